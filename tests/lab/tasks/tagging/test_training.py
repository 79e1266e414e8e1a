"""Tagging trains with every scheme, as transformers and torch.optim do, and does not depend on the stack."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from lab.tasks.tagging import tiny
from torch import Tensor, nn

from equipoise import ChainCRF
from equipoise_lab.nets.encoder import from_checkpoint
from equipoise_lab.recipe import Recipe
from equipoise_lab.schemes import SCHEMES
from equipoise_lab.tasks import Parameters, load, task_by_name
from equipoise_lab.tasks.tagging.task import DROPOUT
from equipoise_lab.training import Run, train
from equipoise_lab.training.replica import Replica

TASK = "tagging-wnut17"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EQUIPOISE_ENCODERS", str(tmp_path))
    monkeypatch.setenv("EQUIPOISE_DATA", str(tmp_path))  # not the real corpora
    tiny.write(tmp_path)
    return tmp_path


def recipe(scheme: str, **more: Any) -> Recipe:
    rates = (3e-3,) * len(SCHEMES[scheme].phases)
    fields = {"learning_rates": rates, "batch_size": 8, "subset": 20, "max_epochs": 10} | more
    return task_by_name(TASK).settings.recipe("likelihood", scheme, **fields)


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_every_scheme_lowers_the_loss_and_learned_scales_find_the_entities() -> None:
    runs = {run.recipe.scheme: run for run in train([recipe(scheme, max_epochs=20) for scheme in SCHEMES])}
    for run in runs.values():
        assert run.failed is None
        last = [epoch.loss for epoch in run.history if epoch.phase == run.history[-1].phase]
        assert last[-1] < (0.7 if len(SCHEMES[run.recipe.scheme].phases) == 1 else 1) * last[0]
    assert runs["learned"].test > 0.5
    assert runs["stage"].epochs == 3 * 20


@pytest.mark.usefixtures("folder")
def test_the_net_from_scratch_learns() -> None:
    (run,) = train([recipe("learned", net="bilstm", max_epochs=6, learning_rates=(1e-2,))])
    assert run.recipe.schedule == "plateau"
    assert run.test > 0.8


class Plain(nn.Module):
    """The same net with transformers' encoder and a ChainCRF."""

    def __init__(self, start: Parameters, tags: int, vocabulary: int, positions: int) -> None:
        transformers = pytest.importorskip("transformers", reason="the reference is in transformers")
        super().__init__()
        config = transformers.BertConfig(
            vocab_size=vocabulary,
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=positions,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            pad_token_id=None,  # row 0 is used here, and must have a gradient
        )
        self.encoder = transformers.BertModel(config, add_pooling_layer=False)
        self.scores, self.crf = nn.Linear(16, tags), ChainCRF(tags)
        with torch.no_grad():
            for name, x in self.named_as_ours().items():
                x.copy_(start[name])
            for i, layer in enumerate(self.encoder.encoder.layer):
                for part in ("weight", "bias"):
                    three = start[f"unary.encoder.layer{i}.qkv.{part}"].chunk(3, -1)
                    for linear, x in zip(("query", "key", "value"), three, strict=True):
                        getattr(getattr(layer.attention.self, linear), part).copy_(x.T if x.ndim == 2 else x)

    def named_as_ours(self, copies: bool = False) -> Parameters:
        """The parameters by our names; with `copies`, also those that we keep side by side in one tensor."""
        ours = from_checkpoint(dict(self.encoder.named_parameters()), self.encoder.config.to_dict())
        found = {f"unary.encoder.{name}": x for name, x in ours.items() if copies or "qkv" not in name}
        found |= {"unary.scores.weight": self.scores.weight, "unary.scores.bias": self.scores.bias}
        return found | {"pairwise.matrix": self.crf.pairwise}

    def forward(self, ids: Tensor, live: Tensor, firsts: Tensor, labels: Tensor) -> Tensor:
        states = self.encoder(ids, attention_mask=live.long()).last_hidden_state
        words = states.gather(1, firsts[..., None].expand(-1, -1, states.shape[-1]))
        return self.crf.loss(self.scores(words), labels)


@pytest.mark.slow
@pytest.mark.usefixtures("_double")
def test_the_engine_trains_as_transformers_with_adamw_does(folder: Path) -> None:
    """Without dropout: batches, warm-up, decay, clipping and weight decay included."""
    transformers = pytest.importorskip("transformers", reason="the reference is in transformers")
    tiny.write(folder, dropout=0.0)
    wanted, kept = recipe("joint", max_epochs=2), {}
    assert (wanted.schedule, wanted.clip, wanted.weight_decay) == ("linear", 1.0, 0.01)

    def done(run: Run, parameters: Parameters) -> None:
        kept.update(parameters)

    train([wanted], done=done)
    task: Any = load(TASK)
    replica, examples = Replica(wanted), task.split(0, 0).train
    start = task.init(replica.generator("init"))
    config = task.net.encoder.config
    net = Plain(start, len(task.tags), config.vocabulary, config.positions).eval()
    rate = wanted.learning_rates[0]
    optimizer = torch.optim.AdamW(net.parameters(), rate, weight_decay=wanted.weight_decay)
    steps = 2 * len(examples) // 8
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, round(0.1 * steps), steps)
    sentences = task.sentences
    for epoch in range(2):
        order = examples[torch.randperm(len(examples), generator=replica.generator(f"order/0/{epoch}"))]
        for batch in order.split(8):
            live = torch.arange(sentences.ids.shape[1]) < sentences.sizes[batch, None]
            real = torch.arange(sentences.labels.shape[1]) < sentences.lengths[batch, None]
            labels = torch.where(real, sentences.labels[batch], -100)
            optimizer.zero_grad()
            net(sentences.ids[batch, :, 0], live, sentences.firsts[batch], labels).backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            schedule.step()
    for name, x in net.named_as_ours(copies=True).items():
        if name != "unary.encoder.types":  # row 1 is never used
            torch.testing.assert_close(kept[name], x.detach(), atol=1e-8, rtol=1e-6, msg=name)
        assert name == "unary.encoder.positions" or (kept[name] - start[name]).abs().max() > 1e-5


@pytest.mark.usefixtures("folder", "_double")
def test_a_run_with_dropout_does_not_depend_on_its_neighbours() -> None:
    one = recipe("learned", max_epochs=2, seed=1)
    alone: Parameters = {}
    together: Parameters = {}
    others = [recipe("joint", max_epochs=2), replace(one, seed=0), replace(one, learning_rates=(1e-3,))]
    train([one], done=lambda run, parameters: alone.update(parameters))
    train([*others, one], done=lambda run, parameters: run.recipe == one and together.update(parameters))
    assert alone[DROPOUT].tolist()[1] == 10  # steps
    for name, x in alone.items():
        torch.testing.assert_close(together[name], x, atol=1e-9, rtol=1e-7, msg=name)


@pytest.mark.usefixtures("folder")
def test_a_run_with_dropout_continues_from_a_checkpoint(tmp_path: Path) -> None:
    """Bit for bit, as if it had not been interrupted."""
    whole: Parameters = {}
    parts: Parameters = {}
    wanted = recipe("learned", max_epochs=3)
    train([wanted], done=lambda run, parameters: whole.update(parameters))

    def interrupt(replicas: Any) -> None:
        if replicas[0].epochs == 2:
            raise KeyboardInterrupt

    file = tmp_path / "checkpoint"
    with pytest.raises(KeyboardInterrupt):
        train([wanted], checkpoint=file, watch=interrupt)
    train([wanted], checkpoint=file, done=lambda run, parameters: parts.update(parameters))
    for name, x in whole.items():
        assert torch.equal(parts[name], x), name
