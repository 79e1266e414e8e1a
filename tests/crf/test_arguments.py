"""The wrong kind of argument is named where it is given, in one line, with what was meant if that is clear."""

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import equipoise
from equipoise import ChainCRF, GaussianCRF, SpanDecoder, constraints, gaussian, objectives, scaling
from equipoise.compat.torchcrf import CRF, to_chain_crf

RULES = constraints.from_labels(["O", "B-X"], "BIO")
METHOD = "scaling must be a method such as scaling.Learned(), got "
FROM_LABELS = "constraints must come from constraints.from_labels, got "
FUNCTION = "objective must be a name or an objectives.Objective, got "
WRONG: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "a class": (
        lambda: ChainCRF(5, scaling=scaling.Learned),
        TypeError,
        METHOD + "the class Learned: write scaling.Learned()",
    ),
    "a name": (lambda: ChainCRF(5, "learned"), TypeError, METHOD + "'learned': write scaling.Learned()"),
    "an unknown name": (lambda: ChainCRF(5, "best"), TypeError, METHOD + "'best'"),
    "a factor": (lambda: ChainCRF(5, 2.0), TypeError, METHOD + "2.0: write scaling.Fixed(2.0)"),
    "constraints as scaling": (
        lambda: ChainCRF(2, RULES),
        TypeError,
        METHOD + "an object of type Constraints: write constraints=...",
    ),
    "another module": (lambda: ChainCRF(5, torch.nn.Identity()), TypeError, METHOD + "an object of type Identity"),
    "labels": (
        lambda: ChainCRF(5, constraints=["O", "B-X"]),
        TypeError,
        FROM_LABELS + "the list ['O', 'B-X']: write constraints.from_labels(labels, 'BIO')",
    ),
    "a scheme": (
        lambda: ChainCRF(5, constraints="bioes"),
        TypeError,
        FROM_LABELS + "'bioes': write constraints.from_labels(labels, 'BIOES')",
    ),
    "scaling as constraints": (
        lambda: ChainCRF(5, None, scaling.Learned()),
        TypeError,
        FROM_LABELS + "an object of type Learned: write scaling=...",
    ),
    "a list of labels as their number": (
        lambda: ChainCRF(["O", "B-X"]),
        TypeError,
        "num_labels must be an integer, got the list ['O', 'B-X']: write len(...)",
    ),
    "a number of labels as text": (lambda: ChainCRF("5"), TypeError, "num_labels must be an integer, got '5'"),
    "a loss": (
        lambda: ChainCRF(5, objective=objectives.marginal),
        TypeError,
        FUNCTION + "the function marginal: write 'marginal'",
    ),
    "a loss of one's own": (
        lambda: ChainCRF(5, objective=lambda u, w, y, n: u),
        TypeError,
        FUNCTION + "the function <lambda>: write objectives.Objective(loss, rule)",
    ),
    "a name as a loss": (
        lambda: ChainCRF(5, objective=objectives.Objective("marginal", "map")),
        TypeError,
        "the loss of an objective must be a function, got 'marginal'",
    ),
    "a list of rules": (
        lambda: ChainCRF(2).decode(torch.zeros(1, 2, 2), rule=["map"]),
        TypeError,
        "rule must be one of map, marginal, mean_field, unary, got the list ['map']",
    ),
    "a flag as text": (
        lambda: ChainCRF(5, boundaries="no"),
        TypeError,
        "boundaries must be True or False, got 'no'",
    ),
    "a seed": (
        lambda: ChainCRF(5, generator=3),
        TypeError,
        "generator must be a torch.Generator, got 3: write torch.Generator().manual_seed(3)",
    ),
    "scaling as ridge": (
        lambda: GaussianCRF(2, scaling.Learned()),
        TypeError,
        "ridge must be a positive number, or one per replica, got an object of type Learned: write scaling=...",
    ),
    "a class, images": (
        lambda: GaussianCRF(2, scaling=scaling.Learned),
        TypeError,
        METHOD + "the class Learned: write scaling.Learned()",
    ),
    "a class of solvers": (
        lambda: GaussianCRF(2, method=gaussian.CG),
        TypeError,
        "method must be a solver, got the class CG: write CG()",
    ),
    "a share as text": (
        lambda: GaussianCRF(2, share="half"),
        TypeError,
        "share must be a number above 0 and below 1, or a tensor of them, got 'half'",
    ),
    "a tolerance as text": (
        lambda: GaussianCRF(2, method="cg", tolerance="1e-6"),
        TypeError,
        "tolerance must be positive and max_iterations at least 1, got '1e-6' and 200",
    ),
    "no method": (
        lambda: GaussianCRF(2, method=None),
        TypeError,
        "method must be one of direct, cg, dense, or a solver, got None",
    ),
    "a number of tags as text": (lambda: CRF("5"), TypeError, "num_tags must be an integer, got '5'"),
    "scaling of the drop-in": (
        lambda: CRF(5, balanced=scaling.Learned()),
        TypeError,
        "balanced must be True or False, got an object of type Learned",
    ),
    "no layer": (lambda: to_chain_crf(3), TypeError, "source must be a layer or a state dict, got 3"),
    "a class, conversion": (
        lambda: to_chain_crf(CRF(3), scaling=scaling.Learned),
        TypeError,
        METHOD + "the class Learned: write scaling.Learned()",
    ),
    "alpha as text": (
        lambda: scaling.Fixed("big"),
        TypeError,
        "alpha must be a positive number, or one per replica, got 'big'",
    ),
    "a scheme as labels": (
        lambda: constraints.from_labels("BIO", "BIO"),
        TypeError,
        "labels must be a list of labels or a dictionary such as id2label, got 'BIO'",
    ),
    "numbers as labels": (
        lambda: constraints.from_labels([0, 1], "BIO"),
        TypeError,
        "labels must be text, such as 'B-NP', got 0",
    ),
    "a number as labels": (
        lambda: SpanDecoder(5),
        TypeError,
        "labels must be a list of labels or a dictionary such as id2label, got 5",
    ),
}


@pytest.mark.parametrize(("call", "error", "message"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_kind_of_argument_is_named_with_what_was_meant(
    call: Callable[[], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        call()


LABELS = {0: "O", 1: "B-X", 2: "I-X"}
METHODS = (
    "scaling must be a method of equipoise.scaling (Fixed, Learned, Offline, Online, Regularized, Temperature), got "
)
WRONG_CONFIGURATIONS: dict[str, tuple[dict[str, Any], str]] = {
    "a class": ({"scaling": scaling.Learned}, METHODS + "the class Learned: write scaling.Learned()"),
    "a name": ({"scaling": "learned"}, METHODS + "'learned': write scaling.Learned()"),
    "an unknown argument": ({"scaling": {"name": "Offline", "alfa": 2}}, "scaling Offline takes alpha, got alfa"),
    "an unknown objective": (
        {"objective": "crf"},
        "objective must be one of likelihood, marginal, margin, mean_field, unary, got 'crf'",
    ),
    "an unknown scheme": (
        {"scheme": "BIOE"},
        "scheme must be one of BIO, IOB1, BIOES, BILOU, BMES, IOB2, got 'BIOE'",
    ),
    "constraints": ({"constrained": RULES}, "constrained must be True or False, got an object of type Constraints"),
    "no policy": ({"on_invalid": None}, "on_invalid must be one of raise, warn, repair, got None"),
    "a list": (
        {"id2label": ["O"]},
        "id2label must be a dictionary from numbers to labels, got the list ['O']",
    ),
}


@pytest.mark.parametrize(("arguments", "message"), WRONG_CONFIGURATIONS.values(), ids=WRONG_CONFIGURATIONS.keys())
def test_a_configuration_names_what_is_wrong_when_it_is_made(arguments: dict[str, Any], message: str) -> None:
    pytest.importorskip("transformers", reason="needs equipoise[transformers]")
    from equipoise.integrations.transformers import CRFConfig

    with pytest.raises((TypeError, ValueError), match=f"^{re.escape(message)}$"):
        CRFConfig(**{"id2label": LABELS, **arguments})


def test_an_encoder_is_not_loaded_for_wrong_arguments() -> None:
    pytest.importorskip("transformers", reason="needs equipoise[transformers]")
    from equipoise.integrations.transformers import CRFForTokenClassification

    make = CRFForTokenClassification.from_encoder
    with pytest.raises(ValueError, match="the class Learned: write"):
        make("no/such/folder", LABELS, scaling=scaling.Learned)
    with pytest.raises(TypeError, match=r"^constraints must be True or False, got the list \['O'\]$"):
        make("no/such/folder", LABELS, constraints=["O"])
    with pytest.raises(
        TypeError, match=r"^id2label must be a list of labels or a dictionary such as id2label, got 'BIO'$"
    ):
        make("no/such/folder", "BIO")


def test_what_stands_for_a_right_argument_is_accepted() -> None:
    """Integers of numpy, 0 and 1 as flags as in pytorch-crf, a solver of another class, a method of the user."""

    class Mine(scaling.Fixed):
        pass

    layer = ChainCRF(np.int64(3), Mine(), objective=objectives.OBJECTIVES["margin"], boundaries=np.True_)
    assert layer.num_labels == 3
    assert CRF(np.int32(3), 1).batch_first
    solver = SimpleNamespace(solve=gaussian.Direct().solve)
    assert GaussianCRF(2, method=solver).solver is solver
    assert isinstance(equipoise.GaussianCRF(2, np.float32(2.0)).scaling, scaling.Fixed)
