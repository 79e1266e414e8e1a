"""What the report says in words, for readers who do not know the project."""

TASKS = {"ocr": "Handwritten words", "chunking": "Text chunking", "horses": "Horse segmentation"}

SCHEMES = (
    ("unary", "the net alone, no CRF"),
    ("stage", "the net, then the CRF on top of the frozen net, then both together"),
    ("joint", "both at once, from the start: the plain way"),
    ("online", "joint, and after each epoch the factor alpha of the net's scores is searched anew (§5.1)"),
    ("offline", "joint, with both parts divided by their size, the net's then times a fixed alpha (§5.2)"),
    ("offline_reg", "joint, with a penalty that draws the ratio of the two parts to a fixed alpha (§5.2)"),
    ("temperature", "joint, with one factor for both parts (Appendix A.2)"),
    ("learned", "ours: joint, with both parts divided by their size, times a scale each that is learned"),
)

INTRODUCTION = (
    "A structured model reads a whole word, sentence or picture at once. A neural net scores each letter, word or "
    "pixel by itself (the unary part), and a conditional random field, CRF, scores which labels go together (the "
    "pairwise part). The paper “Scaling Matters in Deep Structured-Prediction Models” (Shevchenko and Osokin) says "
    "that training both at once fails where one part drowns the other, and that keeping the two in balance repairs it. "
    "Here every claim and number of the paper stands beside runs of our own. Results are in percent (of letters read "
    "right, for handwritten words) on examples never trained on: mean ± standard deviation over seeds. Differences are "
    "in points."
)

GLANCE = (
    "Yes: reproduced. In part: reproduced with conditions. Below stands in how many comparisons, which are objectives "
    "or cells of a table, the claim holds. Each is given with its statistics in the next sections, and what was tried "
    "to find the reason stands under the tables."
)

MARKS = (
    "Below each result stands the paper's, and in brackets by how many points ours is higher; ▲ and ▼ mark results "
    "more than 0.3 points off. Inside the noise: the two differ by no more than two standard deviations of both put "
    "together. Collapsed: runs with less than three quarters of what the run in the middle of the cell has; one of "
    "them lowers a mean by about a point."
)

RULES = (
    "Two schemes are compared in pairs of runs with the same seed and fold, which start from the same parameters and "
    "see the same examples. A difference counts where Wilcoxon's signed ranks give p < 0.05 over these pairs; p over "
    "the means of seeds stands beside it. The typical difference, with its 95 % interval in brackets, is the median of "
    "averages of two of them: single runs that collapsed do not move it, and are counted. Better means significantly "
    "so, with a higher mean too. Level means at most 0.15 points worse, or not significantly so, with no more "
    "collapsed runs. A ratio is stable if it changes by less than 20 %. A claim is reproduced if every comparison "
    "holds; reproduced with conditions if at least half do, or if some were not run; and else not reproduced. Every "
    "verdict follows from the records by these rules."
)
