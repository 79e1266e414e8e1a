"""Parameters of the drop-in: initial values, checkpoints of pytorch-crf, copies, and conversion to `ChainCRF`."""

import copy
import pickle
from collections.abc import Callable

import pytest
import torch
import torchcrf

from equipoise import constraints
from equipoise.compat.torchcrf import CRF, to_chain_crf


@pytest.mark.parametrize("num_tags", [1, 3])
def test_the_same_seed_gives_the_same_parameters(num_tags: int) -> None:
    torch.manual_seed(5)
    oracle = torchcrf.CRF(num_tags)
    torch.manual_seed(5)
    ours = CRF(num_tags)
    again = copy.deepcopy(ours)
    torch.manual_seed(5)
    again.reset_parameters()
    for crf in (ours, again):
        assert {name: x.tolist() for name, x in crf.named_parameters()} == {
            name: x.tolist() for name, x in oracle.named_parameters()
        }
    assert repr(ours) == repr(oracle)
    assert repr(torch.nn.Sequential(ours)) == repr(torch.nn.Sequential(oracle))


@pytest.mark.parametrize(("source", "target"), [(CRF, torchcrf.CRF), (torchcrf.CRF, CRF)])
def test_checkpoints_load_both_ways(source: type, target: type) -> None:
    old, new = source(4), target(4)
    assert not torch.equal(old.transitions, new.transitions)
    new.load_state_dict(old.state_dict(), strict=True)
    emissions, tags = torch.randn(5, 2, 4), torch.randint(4, (5, 2))
    torch.testing.assert_close(new(emissions, tags), old(emissions, tags))
    assert list(new.state_dict()) == list(old.state_dict())


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda crf: pickle.loads(pickle.dumps(crf))], ids=["copy", "pickle"])
def test_a_copy_gives_the_same_results_and_shares_nothing(copied: Callable[[CRF], CRF]) -> None:
    crf = CRF(3, batch_first=True)
    emissions, tags = torch.randn(2, 4, 3), torch.randint(3, (2, 4))
    before = crf(emissions, tags)
    other = copied(crf)
    assert other.batch_first
    torch.testing.assert_close(other(emissions, tags), before, rtol=0, atol=0)
    torch.nn.init.ones_(other.start_transitions)
    torch.testing.assert_close(crf(emissions, tags), before, rtol=0, atol=0)


def test_convert_the_checkpoint_of_a_whole_model() -> None:
    model = torch.nn.ModuleDict({"net": torch.nn.Linear(4, 3), "tagger": torch.nn.ModuleDict({"crf": CRF(3)})})
    rules = constraints.from_labels(["O", "B", "I"], "BIO")
    crf = to_chain_crf(model.state_dict(), constraints=rules, objective="marginal")
    assert torch.equal(crf.pairwise, model["tagger"]["crf"].transitions)
    assert crf.start is not None
    assert torch.equal(crf.start, model["tagger"]["crf"].start_transitions)
    assert crf.constraints is not None
    crf.pairwise.detach().zero_()
    assert bool(model["tagger"]["crf"].transitions.any())  # the scores were copied


@pytest.mark.parametrize("source", [{}, torch.nn.Linear(2, 2), torch.nn.ModuleList([CRF(2), CRF(2)])])
def test_convert_needs_one_layer(source) -> None:
    with pytest.raises(ValueError, match="must have one layer with start_transitions, end_transitions, transitions"):
        to_chain_crf(source)
