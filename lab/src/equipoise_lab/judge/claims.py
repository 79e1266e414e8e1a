"""The claims of the paper, and ours, each with its checks."""

from ..tasks import task_by_name
from . import figure_checks, finetuning, frozen, one_word, table_checks
from .table_checks import PAPER_SCHEMES, REMEDIES
from .verdicts import Claim

OCR = ("ocr",)

CLAIMS = (
    Claim(
        "unary",
        "The unary net alone is worse than every full model.",
        "§6.2",
        table_checks.each_cell(PAPER_SCHEMES, table_checks.above_unary),
    ),
    Claim(
        "stage-joint",
        "Stage training beats joint training with alpha = 1, for every objective.",
        "§2, Table 1; §6.2",
        table_checks.first_beats("stage", "joint"),
    ),
    Claim(
        "default-rate",
        "At Adam's default rate, 1e-3, stage training and every scaling beat joint training (cross-entropy).",
        "§6.2",
        table_checks.default_rate,
        pooled=False,
    ),
    *one_word.CLAIMS,
    *(
        Claim(
            f"{scheme}-stage",
            f"Joint training with {scheme} scaling is level with stage training.",
            "§6.2",
            table_checks.level_with_stage(scheme),
        )
        for scheme in REMEDIES
    ),
    *(
        Claim(
            f"{scheme}-joint",
            f"Joint training with {scheme} scaling beats joint training without scaling.",
            "§6.2",
            table_checks.first_beats(scheme, "joint"),
        )
        for scheme in REMEDIES
    ),
    Claim(
        "time",
        "The three scaling methods need about half of stage training's time.",
        "§6.2",
        table_checks.each_cell(REMEDIES, table_checks.half_the_time),
        of="of stage's epochs",
    ),
    Claim(
        "epochs",
        "Stage training needs significantly more epochs than joint training.",
        "§2; Appendix B",
        table_checks.first_beats("stage", "joint", "epochs"),
    ),
    Claim(
        "overfitting",
        "The gap is not over-fitting: stage training beats joint training on the training examples too.",
        "§6.2",
        table_checks.first_beats("stage", "joint", "train"),
    ),
    Claim(
        "sgd-order",
        "With SGD the order is the same: all schemes beat joint training.",
        "Appendix A.1",
        table_checks.each_cell(("stage", *REMEDIES), table_checks.sgd_order),
    ),
    Claim(
        "sgd-adam",
        "With SGD every scheme is slightly worse than with Adam.",
        "Appendix A.1",
        table_checks.each_cell(PAPER_SCHEMES, table_checks.sgd_worse),
    ),
    Claim(
        "temperature",
        "One factor for both parts, plain or normalised, does not repair joint training: it stays behind stage.",
        "Appendix A.2",
        table_checks.temperature,
    ),
    Claim(
        "sigmoid",
        "With a sigmoid at the top of the net, stage and joint training are alike.",
        "§2",
        table_checks.sigmoid,
        OCR,
    ),
    Claim(
        "layernorm",
        "Layer-wise normalisation of the net does not repair joint training: it stays behind stage.",
        "§3",
        table_checks.normalized_layers,
        OCR,
        pooled=False,
    ),
    Claim(
        "bilstm",
        "With a BiLSTM over the sentence, joint training is as good as stage training.",
        "§6.1",
        table_checks.recurrent,
        ("chunking",),
    ),
    Claim(
        "sweet-spot",
        "At some alpha other than 1, joint training beats alpha = 1 and is as good as stage training.",
        "§2, Figure 1a",
        figure_checks.sweet_spot,
        OCR,
        pooled=False,
    ),
    Claim(
        "extremes",
        "With alpha too small or too large, training fails.",
        "§2, Figure 1a",
        figure_checks.extremes,
        OCR,
        pooled=False,
    ),
    Claim(
        "joint-ratio",
        "The ratio of unary to pairwise diverges where joint training fails, and is stable where it works.",
        "§2, Figure 1b",
        figure_checks.joint_ratios,
        OCR,
        pooled=False,
        of="change of the ratio",
    ),
    Claim(
        "stage-ratio",
        "In stage training the ratio grows, then falls, then is stable.",
        "§2, Figure 1c",
        figure_checks.stage_ratios,
        OCR,
        pooled=False,
        of="change of the ratio",
    ),
    Claim(
        "online-start",
        "Online scaling keeps the factor that it starts with, so it equals joint training with that factor.",
        "ours",
        figure_checks.keeps_its_start,
        pooled=False,
        of="of runs",
    ),
    Claim(
        "learned-stage",
        "Learned scaling, which has no alpha to choose, is level with stage training.",
        "ours",
        table_checks.level_with_stage("learned"),
    ),
    Claim(
        "learned-joint",
        "Learned scaling beats joint training without scaling.",
        "ours",
        table_checks.first_beats("learned", "joint"),
    ),
    Claim(
        "learned-rates",
        "Learned scaling stays within 0.3 points of its best over a wider range of learning rates than joint training.",
        "ours",
        figure_checks.wider_rates,
        pooled=False,
    ),
    Claim(
        "learned-harm",
        "In no cell of the main and SGD tables is learned scaling below joint training by more than 0.2 points.",
        "ours",
        table_checks.learned_does_no_harm,
    ),
    Claim(
        "learned-decades",
        "Learned scaling stays within 0.3 points of its best over learning rates that differ by a factor of 100.",
        "ours",
        figure_checks.two_decades,
        ("ocr", "chunking"),
        pooled=False,
    ),
)


def about(task: str) -> tuple[Claim, ...]:
    """The claims for tasks of this kind: those about the paper's experiments, or those about fine-tuning.

    >>> about("horses") == CLAIMS, about("tagging-wnut17")[0].name
    (True, 'frozen-rival')
    """
    settings = task_by_name(task).settings
    return CLAIMS if settings.tuned else (*frozen.CLAIMS, *(finetuning.CLAIMS if settings.experiments else ()))
