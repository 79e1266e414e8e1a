"""A bad call of the drop-in raises the same type of error as pytorch-crf, with a message that says what is wrong."""

from collections.abc import Callable

import pytest
import torch
import torchcrf

from equipoise.compat.torchcrf import CRF

E, Y = torch.zeros(4, 2, 3), torch.zeros(4, 2, dtype=torch.int64)
ON = torch.ones(4, 2, dtype=torch.bool)
LATE = ON.clone()
LATE[0, 1] = False
LONG_MASK, FLOAT_MASK = ON.long(), ON.float()


BAD_CALLS = {
    "zero tags": lambda cls: cls(0),
    "a negative number of tags": lambda cls: cls(-1),
    "a fractional number of tags": lambda cls: cls(3.0),
    "a string as the number of tags": lambda cls: cls("3"),
    "emissions of two dimensions": lambda cls: cls(3)(E[0], Y),
    "emissions of four dimensions": lambda cls: cls(3)(E[None], Y),
    "emissions for another number of tags": lambda cls: cls(5)(E, Y),
    "emissions of no step": lambda cls: cls(3)(E[:0], Y[:0]),
    "emissions of no step, batch first": lambda cls: cls(3, batch_first=True)(E[:, :0], Y[:, :0]),
    "emissions as a list": lambda cls: cls(3)(E.tolist(), Y),
    "tags as a list": lambda cls: cls(3)(E, Y.tolist()),
    "tags of another length": lambda cls: cls(3)(E, Y[:3]),
    "tags of another batch": lambda cls: cls(3)(E, Y[:, :1]),
    "tags of three dimensions": lambda cls: cls(3)(E, Y[..., None]),
    "float tags": lambda cls: cls(3)(E, Y.float()),
    "bool tags": lambda cls: cls(3)(E, Y.bool()),
    "a tag too high": lambda cls: cls(3)(E, Y + 3),
    "a tag too low": lambda cls: cls(3)(E, Y - 4),
    "a mask of another length": lambda cls: cls(3)(E, Y, ON[:3]),
    "a mask of another batch": lambda cls: cls(3)(E, Y, ON[:, :1]),
    "a mask as a list": lambda cls: cls(3)(E, Y, ON.tolist()),
    "a mask off at a first step": lambda cls: cls(3)(E, Y, LATE),
    "a mask off at a first step, batch first": lambda cls: cls(3, batch_first=True)(E, Y, LATE.roll(1, 1)),
    "a uint8 mask off at a first step": lambda cls: cls(3)(E, Y, LATE.byte()),
    "an int64 mask": lambda cls: cls(3)(E, Y, LONG_MASK),
    "a float mask": lambda cls: cls(3)(E, Y, FLOAT_MASK),
    "an unknown reduction": lambda cls: cls(3)(E, Y, reduction="max"),
    "no reduction": lambda cls: cls(3)(E, Y, reduction=None),
    "decode: emissions of two dimensions": lambda cls: cls(3).decode(E[0]),
    "decode: emissions for another number of tags": lambda cls: cls(5).decode(E),
    "decode: emissions of no step": lambda cls: cls(3).decode(E[:0]),
    "decode: a mask of another length": lambda cls: cls(3).decode(E, ON[:3]),
    "decode: a mask off at a first step": lambda cls: cls(3).decode(E, LATE),
    "decode: an int64 mask": lambda cls: cls(3).decode(E, LONG_MASK),
}


def error(call: Callable[[type], object], cls: type) -> type | None:
    try:
        call(cls)
    except Exception as raised:
        return type(raised)
    return None


@pytest.mark.parametrize("call", BAD_CALLS.values(), ids=BAD_CALLS.keys())
def test_a_bad_call_raises_the_same_type_of_error(call: Callable[[type], object]) -> None:
    expected = error(call, torchcrf.CRF)
    assert expected is not None
    assert error(call, CRF) is expected


def test_errors_name_the_argument_and_the_expected_shape() -> None:
    tags = Y.clone()
    tags[2, 1] = 7
    with pytest.raises(IndexError, match=r"^tags\[2, 1\] is 7, but must be from 0 to 2$"):
        CRF(3)(E, tags)
    with pytest.raises(ValueError, match=r"^mask has shape \(3, 2\), but emissions \(4, 2, 3\) needs \(4, 2\)$"):
        CRF(3)(E, Y, ON[:3])
    with pytest.raises(ValueError, match=r"\(B, L, num_tags\) with num_tags = 5, got \(4, 2, 3\)$"):
        CRF(5, batch_first=True)(E, Y)
