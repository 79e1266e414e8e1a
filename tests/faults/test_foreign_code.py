"""No file of a tagger or an encoder runs code: not as Python, as a pickle, nor as a name of another model.

The answer `y` waits on standard input, in case somebody asks.
"""

import io
import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tagger.small import write

pytest.importorskip("transformers")

import tiny_encoder
from faults.taggers import sign

from equipoise.integrations.transformers import CRFForTokenClassification

Call = Callable[..., int]
EVIL = "from transformers import {base}\nopen({marker!r}, 'w')\nclass Evil({base}): pass\n"


class Exploit:
    """A pickle that makes a file when it is read."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (str(self.marker), "w")


def change(path: Path, **fields: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def code_of_the_tokenizer(folder: Path, marker: Path) -> None:
    (folder / "evil.py").write_text(EVIL.format(base="PreTrainedTokenizerFast", marker=str(marker)))
    auto_map = {"AutoTokenizer": ["evil.Evil", "evil.Evil"]}
    change(folder / "tokenizer_config.json", auto_map=auto_map, tokenizer_class="Evil")


def code_of_the_configuration(folder: Path, marker: Path) -> None:
    (folder / "evil.py").write_text(EVIL.format(base="PreTrainedConfig", marker=str(marker)))
    change(folder / "config.json", model_type="evil", auto_map={"AutoConfig": "evil.Evil", "AutoModel": "evil.Evil"})


def pickled_weights(folder: Path, marker: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Exploit(marker)))


def weights_in_another_file(folder: Path, marker: Path) -> None:
    pickled_weights(folder, marker)
    (folder / "pytorch_model.bin").rename(folder / "adapter_model.bin")
    change(folder / "config.json", transformers_weights="adapter_model.bin")


def pickled_shards(folder: Path, marker: Path) -> None:
    pickled_weights(folder, marker)
    index = {"metadata": {}, "weight_map": {"embeddings.LayerNorm.bias": "pytorch_model.bin"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def shards_elsewhere(folder: Path, marker: Path) -> None:
    (folder / "model.safetensors").rename(folder.parent / "elsewhere.safetensors")
    index = {"metadata": {}, "weight_map": {"embeddings.LayerNorm.bias": "../elsewhere.safetensors"}}
    (folder / "other.safetensors.index.json").write_text(json.dumps(index))
    change(folder / "config.json", transformers_weights="other.safetensors.index.json")


def adapter(folder: Path, marker: Path) -> None:
    fields = {"base_model_name_or_path": str(marker), "peft_type": "LORA", "auto_mapping": None}
    (folder / "adapter_config.json").write_text(json.dumps(fields))


def attention_of_a_repository(folder: Path, marker: Path) -> None:
    change(folder / "config.json", attn_implementation="evil/kernel")


WAYS = (
    code_of_the_tokenizer,
    code_of_the_configuration,
    pickled_weights,
    weights_in_another_file,
    pickled_shards,
    shards_elsewhere,
    adapter,
    attention_of_a_repository,
)


@pytest.fixture
def encoder(tmp_path: Path) -> Path:
    return Path(tiny_encoder.save(tmp_path / "encoder"))


@pytest.fixture
def trained(command: Call, encoder: Path, tmp_path: Path) -> Path:
    train = write(tmp_path / "train.conll", 12)
    (tmp_path / "text.txt").write_text("we met Ada in Rome\n")
    assert command("tag", "train", "--train", train, "--encoder", encoder, "--epochs", 1, "--out", tmp_path / "m") == 0
    return tmp_path / "m"


def test_a_question_about_code_is_not_asked(trained: Path, tmp_path: Path) -> None:
    """`tag run MODEL -` in a process, whose text begins with the answer."""
    code_of_the_tokenizer(trained, tmp_path / "marker")
    sign(trained)
    call = [sys.executable, "-m", "equipoise", "tag", "run", str(trained), "-"]
    done = subprocess.run(call, input="y\nwe met Ada in Rome\n", capture_output=True, text=True)
    assert not (tmp_path / "marker").exists()
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"equipoise: {trained}")


@pytest.mark.parametrize(
    ("kind", "way"),
    [
        (kind, way)
        for kind in ("encoder", "tagger", "library")
        for way in WAYS
        if kind == "tagger" or way is not code_of_the_tokenizer  # others take the tokenizer of BERT, or none
    ],
)
def test_code_is_not_run(
    kind: str,
    way: Callable[[Path, Path], None],
    command: Call,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder: Path = request.getfixturevalue("encoder" if kind == "encoder" else "trained")
    marker = tmp_path / "marker"
    way(folder, marker)
    if kind == "tagger":
        sign(folder)  # a stranger can write digests
    capsys.readouterr()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"y\n" * 9)))
    if kind == "library":
        with pytest.raises((OSError, ValueError)) as caught:
            CRFForTokenClassification.from_pretrained(folder)
        assert str(caught.value).isprintable()
    else:
        train = write(tmp_path / "train.conll", 12)
        if kind == "tagger" and way is adapter:  # a file that tagger.json does not list is not read
            assert command("tag", "run", folder, tmp_path / "text.txt") == 0
            return
        training = ("train", "--train", train, "--encoder", folder, "--epochs", 1, "--out", tmp_path / "new")
        assert command("tag", *(training if kind == "encoder" else ("run", folder, "-"))) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert line.isprintable()
        assert str(folder) in line
        assert not (tmp_path / "new").exists()
    assert not marker.exists()
