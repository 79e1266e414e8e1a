"""The sentences of the results pages."""

INTRODUCTION = (
    "A neural net scores each label by itself (the unary part), and a conditional random field (CRF) scores which "
    "labels go together (the pairwise part). The paper “Scaling Matters in Deep Structured-Prediction Models” "
    "(Shevchenko and Osokin) claims that training both jointly fails where one part outweighs the other, and that "
    "scaling the parts repairs it. We ran its experiments again."
)

TABLES = (
    "Test results as mean ± standard deviation over seeds; below, in small type, the paper's number. Columns are "
    "training schemes, rows are objectives under a setting: Adam's default rate, and the tuned one. A dash means that "
    "there are too few runs."
)

CLAIMS = (
    "Each cell has the verdict, the number of comparisons that are yes, and the effect. Effects are differences in "
    "points unless stated otherwise. One comparison has the interval that decides its verdict, with Holm's correction; "
    "several have their mean with its 95 % interval, which decides nothing, and their range. “Closes” is the share of "
    "the gap between joint and stage training that a scheme closes. An empty cell means that the claim is not about "
    "the task. The page of each task lists all comparisons."
)

RULES = (
    "**Pairs.** Two schemes are compared in pairs of runs with the same seed and fold. Such runs start from the same "
    "parameters and see the same examples.",
    "**Effect.** From 16 pairs on, the difference d is the Hodges-Lehmann estimate, the median of the averages of two "
    "paired differences, with an exact interval from Wilcoxon's signed ranks; single diverged runs hardly move it, and "
    "they are counted separately. With fewer pairs, d is the mean with Student's interval, because the ranks of eight "
    "pairs cannot reach small levels. For several comparisons, the paired differences are averaged first.",
    "**Correction.** All comparisons of a page are one family. Holm's procedure keeps the probability of any wrong "
    "verdict on the page at 5 %: with n comparisons, each is first decided by its interval of 100 - 5/n %; those that "
    "remain undecided are decided again with n as their number, until none is decided. Each comparison is shown with "
    "the interval that decided it. Ranges of a grid and counts of runs have no interval and are not in the family.",
    "**Margin.** With many pairs even a tiny difference is significant. So two schemes count as level within a margin "
    "m, the paper's own noise: m = sqrt(s1² + s2²), with the standard deviations that the paper prints for the two "
    "cells. Where it prints none, those of the main table's row are used, and for a scheme that is not in the paper "
    "the pooled standard deviation of that row.",
    "**Beats.** Yes if the interval of d is above 0. No if it is below 0 or inside ±m. A scheme with a lower mean does "
    "not beat another. "
    "**Level with, as good as.** Yes if the interval of d is above -m. No if it is below -m, or if the scheme has more "
    "diverged runs. **Stays behind** is the opposite. **Alike**: yes if the interval is inside ±m, no if outside. "
    "**Slightly worse.** Yes if the interval of d is between -0.5 (or -m, if that is lower) and m. No if it is "
    "outside.",
    "**Share of the gap closed.** (scheme - joint) / (stage - joint), of means over paired runs, with the interval of "
    "a paired bootstrap (2,000 replicates, fixed seed). Where stage does not beat joint, at 95 % and without "
    "correction, there is no gap to close; whether a scheme repairs joint training is then not tested.",
    "**About half the time.** At most two thirds of stage's epochs, by the ratio of paired runs. **Training fails**: "
    "the mean is at least 1 point below the best alpha's, with Student's interval. **Stable**: the ratio changes by "
    "less than 20 %. **Keeps the factor**: at least nine of ten runs. "
    "**Not below by more than 0.2 points.** Yes if the interval of d is above -0.2. No if it is below. "
    "**Undecided** is every comparison between yes and no. **Not tested** is a comparison with fewer than six pairs of "
    "runs, and one in which both schemes have 0.00 in every run. "
    "**Claim.** Yes: every comparison is yes. In part: some are yes, and the others are not or were not tested. No: "
    "none is yes, and at least one is no. Undecided: none is yes or no.",
)

CAPTION = (
    "The small line is the paper's number, with our difference in brackets; ▲ and ▼ mark differences of more than 0.3 "
    "points. Within noise: the difference is at most two standard deviations, of ours and the paper's together. "
    "Diverged: a result below three quarters of the median run's; one such run lowers a mean by about a point."
)

FINDING = "The paper finds stage training and every scaling better than joint training. What reproduces:"

NOT_HOLDING = "All comparisons are in the section “Claims”, each with the interval that decides it."

DEAD = (
    "A run counts as dead if its ratio ‖U‖ / ‖W‖ ends above 10,000 or is infinite (W = 0). Where W = 0 the CRF has no "
    "effect; a finite ratio alone does not show this, because the Gaussian W sums over all pairs of pixels."
)

ONE_WORD = (
    "Means over folds 1 to 8, ± standard deviation over seeds where there are several; below, the paper's number, fold "
    "0 and all nine folds, and the accuracy on training examples. The settings were noticed on fold 0, so the claims "
    "are judged on folds 1 to 8. “Online” searches alpha on training examples, as the paper says, and “held out” on "
    "half of the validation examples."
)

FINETUNING = (
    "A pretrained encoder with a CRF on top, fine-tuned as usual. Softmax is the encoder without a CRF. In joint x10, "
    "x100 and x1000 the learning rate of the CRF is that many times larger."
)

HEADS = (
    "Mean ± standard deviation over eight seeds unless stated otherwise, at a learning rate of 3e-5, by the standard "
    "deviation of the initial weights of the last layer; 0.02 is the usual one. With 10 % and 1 % of the sentences, "
    "each seed has its own subset. The methods were chosen on development data with other seeds. A dash means that "
    "there are no runs yet."
)

DEVELOPMENT = (
    "Four seeds that no table of test results has. With 10 % and 1 % of the sentences, each seed has its own subset. "
    "“From label counts”: the transitions start from the counts of label pairs of the training sentences in use. Below "
    "is each corpus; ± is the standard deviation over seeds."
)

FINETUNING_TABLES = (
    "Test F1 in %, as mean ± standard deviation over seeds, trained with the log-likelihood unless stated otherwise. "
    "A dash means that there are no runs yet."
)

FINETUNING_CLAIMS = (
    "Runs are compared in pairs with the same seed; effects are differences in points. All comparisons of this page, "
    "of all corpora, are one family with Holm's correction: the probability of any wrong verdict is at most 5 %, and "
    "each comparison is shown with the interval that decides it. **Not below by more than the margin** "
    "(non-inferiority): yes if the interval is above -m, no if it is below, otherwise undecided. The margin was fixed "
    "before the runs: 0.3 points, or two standard errors of the planned eight seeds where that is more, by corpus and "
    "size of data. The best of several schemes is chosen by its mean test F1 in that row. This favours it over learned "
    "scaling, and nothing corrects for it. **By at least**: yes if the interval is above the number, no if below. "
    "**Beats**: yes if the interval is above 0, no if it is below 0 or inside the margin. **Within 0.5 points**: yes "
    "if the interval is inside ±0.5, no if outside. Two schemes with 0.00 in every run are not tested."
)

FINETUNING_RATIOS = (
    "The median ratio ‖U‖ / ‖W‖ of the test sentences at the end of training; below, what `scaling.verdict` says of "
    "it, and the gain in F1 over softmax with the same seed."
)

FINETUNING_RANGES = (
    "All runs with a CRF by their final ratio. `scaling.verdict` warns from 6 on, and more strongly from 10 on (also "
    "below 1/6 and 1/10)."
)
