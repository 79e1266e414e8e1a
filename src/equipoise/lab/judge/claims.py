"""What the paper says, claim by claim, and what we say, each with the test that decides it."""

from . import figure_tests as of_figures
from . import table_tests as of_tables
from .table_tests import PAPERS, REMEDIES
from .verdicts import Claim

OCR = ("ocr",)

CLAIMS = (
    Claim(
        "unary",
        "The unary net alone is worse than every full model.",
        "§6.2",
        of_tables.each_cell(PAPERS, of_tables.above_unary),
    ),
    Claim(
        "stage-joint",
        "Stage training beats joint training with alpha = 1, whatever the objective.",
        "§2, Table 1; §6.2",
        of_tables.over("stage", "joint"),
    ),
    *(
        Claim(
            f"{scheme}-stage",
            f"Joint training with {scheme} scaling is level with stage training.",
            "§6.2",
            of_tables.level_with_stage(scheme),
        )
        for scheme in REMEDIES
    ),
    *(
        Claim(
            f"{scheme}-joint",
            f"Joint training with {scheme} scaling beats joint training without.",
            "§6.2",
            of_tables.over(scheme, "joint"),
        )
        for scheme in REMEDIES
    ),
    Claim(
        "time",
        "The three scaling methods need about half of stage training's time.",
        "§6.2",
        of_tables.each_cell(REMEDIES, of_tables.half_the_time),
    ),
    Claim(
        "epochs",
        "Stage training needs significantly more epochs than joint training.",
        "§2; Appendix B",
        of_tables.over("stage", "joint", "epochs"),
    ),
    Claim(
        "overfitting",
        "The gap is no over-fitting: stage training beats joint training on the training examples too.",
        "§6.2",
        of_tables.over("stage", "joint", "train"),
    ),
    Claim("sgd-order", "With SGD the order is the same: all beat joint training.", "Appendix A.1", of_tables.sgd_order),
    Claim(
        "sgd-adam",
        "With SGD every scheme is slightly worse than with Adam.",
        "Appendix A.1",
        of_tables.each_cell(PAPERS, of_tables.sgd_worse),
    ),
    Claim(
        "temperature",
        "One factor for both parts, in either form, does not repair joint training.",
        "Appendix A.2",
        of_tables.temperature,
    ),
    Claim("sigmoid", "With a sigmoid at the top of the net, stage and joint are alike.", "§2", of_tables.sigmoid, OCR),
    Claim(
        "layernorm",
        "Layer-wise normalisation of the net does not repair joint training.",
        "§3",
        of_tables.normalized_layers,
        OCR,
    ),
    Claim(
        "bilstm",
        "With a BiLSTM over the sentence, joint training is as good as stage training.",
        "§6.1",
        of_tables.recurrent,
        ("chunking",),
    ),
    Claim(
        "sweet-spot",
        "There is an alpha other than 1 at which joint training matches stage training.",
        "§2, Figure 1a",
        of_figures.sweet_spot,
        OCR,
    ),
    Claim(
        "extremes",
        "With alpha too small or too large, training fails.",
        "§2, Figure 1a",
        of_figures.extremes,
        OCR,
    ),
    Claim(
        "joint-ratio",
        "The ratio of unary to pairwise diverges where joint training fails, and settles where it does not.",
        "§2, Figure 1b",
        of_figures.joint_ratios,
        OCR,
    ),
    Claim(
        "stage-ratio",
        "In stage training the ratio grows, then falls, then is stable.",
        "§2, Figure 1c",
        of_figures.stage_ratios,
        OCR,
    ),
    Claim(
        "online-start",
        "Online scaling keeps the factor it starts with, and so is joint training with that factor.",
        "ours",
        of_figures.keeps_its_start,
    ),
    Claim(
        "learned-stage",
        "Learned scaling, which has no alpha to choose, is level with stage training.",
        "ours",
        of_tables.level_with_stage("learned"),
    ),
    Claim("learned-joint", "Learned scaling beats joint training without.", "ours", of_tables.over("learned", "joint")),
    Claim(
        "learned-rates",
        "Learned scaling stays within 0.3 points of its best over a wider range of learning rates than joint training.",
        "ours",
        of_figures.wider_rates,
    ),
)
