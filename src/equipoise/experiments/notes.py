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
        "are lost is not chosen. The same happens to offline_reg at 1e-2; under likelihood all three of its best "
        "points have that rate, so the lost run stays in the table.\n\n"
        "**Structured SVM** does not need repair here: joint is 0.75 above the paper's, and above stage. The ratio of "
        "its two parts ends at 2.5, where cross-entropy ends at 6.1 with the same net: the loss asks for a margin of "
        "1/L a letter and then for nothing more, so the net's scores have no reason to outgrow the pairwise ones. "
        "What the paper explains by the ratio is what we see, with another loss than there.\n\n"
        "**Online** is joint, to the last digit, in every cell. The factor is searched after an epoch that minimised "
        "the loss with the factor at 1, and the last layer of the net can take up any factor by itself, so its size is "
        "right already: on 2,000 training words the best factor lay between 0.92 and 1.19 after 1, 2 and 5 epochs at "
        "three learning rates, while the next ones on the paper's grid, 1/2 and 2, had losses 11 to 119 % higher "
        "(`results/online.json`, made by `benchmarks/online.py`). Started with another factor it keeps that one (the "
        "figure `online`). So Algorithm 1 does nothing for a net that ends in a linear layer, unless it starts with a "
        "good factor; why it helped in the paper we cannot tell.\n\n"
        "**Mean field**: how many iterations to learn through is not in the paper, and matters. Through ten, which is "
        "near convergence, models fit even their training words worse (97.4 %, where three iterations give 99.0 %); "
        "the tables use three (`results/mean_field.json`). Updating all letters at once instead of every other one is "
        "0.1 better on validation words. What remains of offline's gap, 0.2, is not explained."
    ),
    "ocr/temperature": (
        "Here one factor for both parts does repair joint training, which the paper denies. With a factor of 4 the "
        "ratio ends at 3.4 (cross-entropy; stage 3.1, joint 6.1). A common factor does not change the balance of given "
        "scores, but it changes how fast each part learns: both get gradients four times as large, under Adam to no "
        "effect on the size of a step, and both must move a quarter as far. The pairwise part is the one that has the "
        "farther way to go."
    ),
    "ocr/sgd": (
        "With SGD the paper's picture stands out more clearly than with Adam: joint ends with a ratio of 13 and a "
        "point below stage and offline. Its rate is not at fault: at three times it, runs are lost or end lower (save "
        "under likelihood, where the largest rate tried is the best). "
        "Momentum is 0.9, which the paper does not say. Cells of fewer than 72 runs are of fewer seeds, as the table "
        'under "every cell" says. The scales of learned are moved by Adam: plain SGD lost 256 of 288 runs.'
    ),
    "ocr/figure1a": (
        "The paper's curve is ours at the bold rate: small factors are level with stage, large ones lose more and more "
        "runs. At the rate chosen on validation it is flat, and below stage everywhere: no factor repairs what a small "
        "rate leaves undone."
    ),
    "ocr/rates": "Two seeds of nine folds a point.",
    "ocr/online": (
        "Two seeds of nine folds a point. Of all 1,148 runs of online in the records, 1,116 end with the factor they "
        "started with. Where the net is farthest from having found its own size, at a learning rate of 1e-4, all 18 "
        "moved, and gained 0.3 points (the figure `rates`)."
    ),
}
