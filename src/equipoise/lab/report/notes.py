"""What was tried where a result is not the paper's: a paragraph under a table or figure, by "task/name".

Numbers in the tables follow from the records; these sentences do not, so each says what it rests on.
"""

NOTES = {
    "ocr/unary": (
        "Our net alone is a point better than the paper's. The learning rate makes that difference: at 1e-3 instead of "
        "3e-3 it reaches 92.0 (6 runs). And it is a slow climber: after 12 epochs it stands at 90.8 on validation "
        "words, where it ends at 92.1, so a stopping rule that is a little less patient gives the paper's figure too."
    ),
    "ocr/main": (
        "**Joint** under cross-entropy and likelihood is 0.36 above the paper's. It hangs on the learning rate: 96.2 "
        "at 1e-3, 96.8 at 3e-3 (the figure `rates`); the paper's 96.5 lies between. At 1e-2 it would be 97.0, but one "
        "or two of 72 runs are lost there (they read fewer than a quarter of the letters), and a rate at which runs "
        "are lost is not chosen. The same happens to offline_reg at 1e-2, so its rate is 3e-3 as well.\n\n"
        "**Structured SVM** does not need repair here: joint is 0.75 above the paper's, and above stage. The ratio of "
        "its two parts ends at 2.5, where cross-entropy ends at 6.0 with the same net: the loss asks for a margin of "
        "1/L a letter and then for nothing more, so the net's scores have no reason to outgrow the pairwise ones. What "
        "the paper explains by the ratio is what we see, with another loss than there.\n\n"
        "**Online** is joint, to the last digit, in every cell. The factor is searched after an epoch that minimised "
        "the loss with the factor at 1, and the last layer of the net can take up any factor by itself, so its size is "
        "right already: on 2,000 training words the best factor lay between 0.92 and 1.19 after 1, 2 and 5 epochs at "
        "three learning rates, while the next ones on the paper's grid, 1/2 and 2, had losses 11 to 119 % higher "
        "(`studies/online.json`, made by `studies/online.py`). Started with another factor it keeps that one (the "
        "figure `online`). So Algorithm 1 does nothing for a net that ends in a linear layer, unless it starts with a "
        "good factor; why it helped in the paper we cannot tell.\n\n"
        "**Mean field**: how many iterations to learn through is not in the paper, and matters. Through ten, which is "
        "near convergence, models fit even their training words worse (97.4 %, where three iterations give 99.0 %); "
        "the tables use three (`studies/mean_field.json`). Updating all letters at once instead of every other one is "
        "0.1 better on validation words. What remains of offline's gap is in the answer: asked for the best labelling "
        "instead of mean field's, the same models read 97.1 % of the letters of validation words, not 96.9 (three "
        "folds, `studies/mean_field_answers.json`)."
    ),
    "ocr/temperature": (
        "Here one factor for both parts does repair joint training, which the paper denies. With a factor of 4 the "
        "ratio ends at 3.4 (cross-entropy; stage 3.1, joint 6.0). A common factor does not change the balance of given "
        "scores, but it changes how fast each part learns: both get gradients four times as large, under Adam to no "
        "effect on the size of a step, and both must move a quarter as far. The pairwise part is the one that has the "
        "farther way to go."
    ),
    "ocr/sgd": (
        "With SGD the paper's picture stands out more clearly than with Adam: joint ends with a ratio of 13 and a "
        "point below stage and offline. Momentum is 0.9, which the paper does not say. The scales of learned are moved "
        "by Adam: plain SGD lost 256 of 288 runs.\n\n"
        "**Joint** is 0.3 to 0.4 below the paper's under cross-entropy, likelihood and mean field. The paper's 96.4 "
        "and 96.3 are ours at three times the rate: the run in the middle then has 96.4 under cross-entropy (18 runs) "
        "and 96.5 under likelihood (72), but in both cases one run is lost, so that rate is not chosen. Under mean "
        "field three times the rate does worse (95.0, 6 runs), and why it is 0.4 below the paper's is not known. Under "
        "the structured SVM it needs no repair, as with Adam, and **online** is joint, as with Adam.\n\n"
        "**offline_reg** has a smaller rate than would be best for it under cross-entropy and likelihood, too. At "
        "three times that rate the run in the middle has 96.5 to 96.8 instead of 96.4, but one or two of 72 are lost: "
        "that happened to all six points of its grids that were run for this table at such a rate. The penalty does "
        "its work, the ratio ends at 1.8 to 4.9 where joint's is 13, and most of joint's gap to stage remains. So the "
        "ratio is not all there is to it: offline and learned, which divide each part by its size, close the gap.\n\n"
        "**Mean field** is where these two do not: they underfit. At none of offline's 16 points (rates from 0.01 to "
        "0.3, alpha from 1/2 to 4) does it read more than 98.8 % of its training words, where joint reads 99.4 %, and "
        "part of the loss is in the answer, as with Adam."
    ),
    "ocr/figure1a": (
        "The paper's curve is ours at the bold rate: small factors are level with stage, large ones lose more and more "
        "runs. At the rate chosen on validation it is flat, and below stage everywhere: no factor repairs what a small "
        "rate leaves undone."
    ),
    "ocr/rates": (
        "Two seeds of nine folds a point. offline_reg was run at all rates with the two alphas on either side of the "
        "one that was chosen later, 1 and 4, at the same weight (18 runs a point, 72 at 1e-2): 91.0 with both at 1e-4, "
        "94.3 and 94.6 at 3e-4, 96.3 and 96.5 at 1e-3, 97.0 and 96.9 at 3e-3, 95.9 and 94.7 at 1e-2, where runs are "
        "lost, 33 with both at 3e-2. So it stays within 0.3 points of its best at 3e-3 alone, as joint does."
    ),
    "ocr/online": (
        "Two seeds of nine folds a point. Of all 1,184 runs of online in the records, 1,152 end with the factor they "
        "started with. Where the net is farthest from having found its own size, at a learning rate of 1e-4, all 18 "
        "moved, and gained 0.3 points (the figure `rates`)."
    ),
    "chunking/unary": (
        "The paper's 86.2 is out of reach, as an F1, for a net that sees one word at a time: whoever gives each word "
        "and part of speech the tag that they have most often gets 78.7 on the very sentences that were counted, with "
        "86.1 % of the tags right (`docs/chunking.md`). The first-stage rates that were tried differ by less than runs "
        "do (deviation 1.2)."
    ),
    "chunking/main": (
        "GloVe's word vectors stand in for SENNA's, which moves every figure; the claims under test are the "
        "differences between schemes.\n\n"
        "**Joint** needs no repair here once its learning rate is right. It hangs on the rate more than the others: "
        "88.4 at 1e-3, 89.4 at 3e-3, 89.7 at 1e-2 (the figure `rates`); 87.9 to 88.3 on validation sentences at 1e-3 "
        "for nets of 50 to 300 hidden units, and 89.4 to 89.6 at 1e-2 (`studies/hidden_size.py`). The paper's 87.9 "
        "lies between what joint has here at 3e-4 (85.5) and at 1e-3. What a small rate takes from joint it does not "
        "take from the schemes that divide the parts by their sizes: at 1e-4 offline has 87.1 and learned 87.4, joint "
        "84.0. So the paper's gap is there, on the side of small rates, and the remedy is that it does not matter "
        "which rate one takes. Runs end after 9 epochs, by the stopping rule of Appendix B, whose plateau is a single "
        "epoch; whether a more patient rule would give small rates their due was not tried.\n\n"
        "**Mean field** is the one objective under which stage is significantly ahead of joint, by 0.4.\n\n"
        "The ratio is far apart all the same, 11 for joint and online and 2 to 3 for the others under cross-entropy, "
        "at the same F1: an imbalance of that size does no harm by itself.\n\n"
        "**Stage** wants a bold last stage: 1e-2, which is joint's own rate and the largest that was tried, under all "
        "four objectives. With 1e-3 it had 87.6 on validation sentences under the structured SVM, where it has 89.5 "
        "now, and 0.4 to 0.5 less than now under the others.\n\n"
        "**Online** kept its factor in 68 of 70 runs, as for handwriting."
    ),
    "chunking/sgd": (
        "With SGD every cell is 0.7 points or more below Adam's, and stage and joint are as close as with Adam. The "
        "last stage was given three rates, and is best at the largest under all four objectives; the rates of all "
        "other schemes are inside their grids.\n\n"
        "**Offline and learned**, which divide the parts by their sizes, are where SGD does worse: under cross-entropy "
        "each lost most of one run of eight, of the same seed (70 % F1; without it they have 88.3 and 88.5), and under "
        "the structured SVM they are 2.8 and 2.5 points below joint, on training sentences too. Both smaller and "
        "larger rates were tried."
    ),
    "chunking/bilstm": (
        "Eight seeds, both schemes with rates chosen on validation sentences: joint has 3e-3, of 1e-3 and 3e-3; stage "
        "3e-3 for the net and 3e-4 for the last stage, of two each. Joint is level with stage, as the paper says, and "
        "under the structured SVM and likelihood even 0.1 to 0.2 ahead. All is 0.6 to 1.0 below the paper's; GloVe's "
        "vectors stand in for SENNA's here, too."
    ),
    "chunking/rates": (
        "Two seeds a point. Stage has its own row at the rates of the table alone. In the proportions that were chosen "
        "before its last stage had larger rates to choose from (1, 10 and 0.1 times the first), two seeds had 82.2, "
        "86.0, 87.7, 89.1, 89.5 and 89.6 at the six rates: it hangs on the rate as joint does."
    ),
    "horses/main": (
        "**Joint needs no repair here.** It has the paper's figure for joint, 85.7, which is 0.8 above the net alone, "
        "and no other scheme is above it. What does not reproduce is the further point that stage and the remedies "
        "have in the paper. What was tried to find it:\n\n"
        "**Rates.** Stage had 27 combinations, joint, online and learned four rates, offline 16 and offline_reg 24 "
        "points; and the figure `rates` has all schemes at six rates. At 1e-4, where all are bad, stage is 4.5 points "
        "and learned 2.0 above joint; from 1e-3 on none is by more than a point. Offline has the smallest alpha of its "
        "grid, 1, and no smaller one is better: 84.4 on validation pictures with 1, 84.2 with 1/2 and 80.7 with 1/4 "
        "(four seeds of one fold, CPU, float32).\n\n"
        "**The form of the CRF**, validation IoU, four seeds of one fold (`studies/horses_choices.py`), where the "
        "net alone has 84.1. Joint at 1e-2: sigma_max bounded at half of ridge 84.6 ± 0.7, at a quarter 85.1 ± 0.2, at "
        "three quarters 84.5, at 0.9 83.0, at 0.99 68 ± 10, learned from a half 85.1 ± 0.3, the paper's form as it "
        "stands 78 ± 12. Stage at the rates of the table: 84.3 at a half, 83.8 to 84.2 in all other bounded forms, the "
        "paper's 73 ± 8. A system that is not definite stopped all runs where that is checked. So the form decides "
        "between a gain of half a point and collapse, and no form gives stage more than joint.\n\n"
        "**What stage does.** In 36 of 40 runs the embeddings of at least one picture end at exactly 0, so that its "
        "CRF is silent, and where the ratio is a number it is thirty times joint's. The pairwise part that is taught "
        "on top of a finished net is taught to keep out of the way: W = A Aᵀ has a gradient of 0 at A = 0, so what has "
        "come there stays. Joint's embeddings learn while the net still errs.\n\n"
        "**A better net.** `w8-64` with mirror images (20 runs a scheme) has 86.6 alone, and joint, stage, offline, "
        "offline_reg and learned lie between 86.1 and 86.6, online at 86.9: nothing to gain at all. The table `best` "
        "has a larger one.\n\n"
        "**Online** moves its factor here, in 59 of 68 runs, mostly to 1/4, unlike in the other tasks, and is not "
        "better for it. At joint's rate, 1e-2, it has 85.6 (7 runs)."
    ),
    "chunking/online": "Two seeds a point. All 12 runs of online that start with another factor than 1 keep it.",
    "horses/unary": (
        "The net was chosen on validation pictures for a baseline near the paper's: of ten widths, resolutions and "
        "with or without mirror images, `w8-64` without them has 84.1 there at a rate of 1e-2 (four seeds of one fold, "
        "`studies/horses_choices.py`). Tuning then chose 3e-2, with 84.2 on validation pictures over all folds and "
        "seeds; the test pictures are easier."
    ),
    "horses/sgd": (
        "SGD is 3 points below Adam, on test pictures, not on those trained on (93 to 94 %): it fits as well and "
        "generalises worse. The rate of 0.3 is the largest at which no run of 40 is lost; at 1 the run in the middle "
        "has 83.3 under joint and online, and two of 40 end with no horse in any picture, after 14 epochs.\n\n"
        "**Offline and learned** are 8 points lower still, and have the smallest rates of their grids, 0.03: at 0.1 "
        "the run in the middle has 77 and 79, but 3 and 5 of 40 runs are lost in that way, and at 0.3 more. Where the "
        "parts are divided by their sizes and all is said to be background at first, the first 14 epochs of SGD do not "
        "get out of it, and the stopping rule ends the run. With Adam that happened to learned at 0.1. Other momenta "
        "than 0.9 were not tried."
    ),
    "horses/best": (
        "`w16-128`, mirror images included: one seed of five folds, at the rates that were chosen for the small net. "
        "Here the CRF is worth more: stage is 1.2 and joint 0.8 above the net alone, and offline 1.1, in every fold. "
        "(The net alone has a rate of 3e-2, the others start with 1e-2.) Stage is 0.4 above joint, in three folds of "
        "five; five runs cannot tell these apart (their differences have a deviation of 0.9)."
    ),
    "horses/rates": (
        "One seed of five folds a point, where the tables have no more. Six rates were run, none above 3e-2."
    ),
}
