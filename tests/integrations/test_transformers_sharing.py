"""What a saved model has beside its weights: versions, a file that imports equipoise, a card, and who may read it."""

import json
import os
import re
from pathlib import Path

import pytest
import torch

pytest.importorskip("transformers")
pytest.importorskip("tokenizers")

import tiny_encoder
from huggingface_hub import ModelCard
from transformers import AutoConfig, AutoModelForTokenClassification, BertConfig

from equipoise.integrations.transformers import CRFConfig, CRFForTokenClassification
from equipoise.integrations.transformers.sharing import AUTO_MAP, FORMAT
from equipoise.repository import URL


def small(**fields: object) -> CRFForTokenClassification:
    encoder = BertConfig(vocab_size=50, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
    return CRFForTokenClassification(
        CRFConfig(**{"encoder_config": encoder, "id2label": dict(enumerate(tiny_encoder.LABELS)), **fields})
    )


def change(path: Path, **fields: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def test_a_newer_model_is_an_error_that_says_what_reads_it(tmp_path: Path) -> None:
    small().save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["format_version"] == FORMAT
    change(tmp_path / "config.json", format_version=FORMAT + 1, oldest_equipoise="7.3.1", scaling=["of another form"])
    for load in (AutoModelForTokenClassification, CRFForTokenClassification, AutoConfig, CRFConfig):
        with pytest.raises(ValueError, match=r"format_version 2, .* up to 1: install 7\.3\.1 or newer, pip .*git\+"):
            load.from_pretrained(tmp_path)
    change(tmp_path / "config.json", oldest_equipoise="\x1b[31m; rm")
    with pytest.raises(ValueError, match="install a newer version, pip"):
        CRFConfig.from_pretrained(tmp_path)
    change(tmp_path / "config.json", format_version="2")
    with pytest.raises(ValueError, match=r"format_version of config\.json must be a positive integer, got '2'"):
        CRFConfig.from_pretrained(tmp_path)


def test_where_equipoise_is_imported_no_file_of_the_model_is_run(tmp_path: Path) -> None:
    """Not even with `trust_remote_code=True`."""
    small().save_pretrained(tmp_path / "model")
    marker = tmp_path / "marker"
    (tmp_path / "model" / "modeling_equipoise.py").write_text(f"open({str(marker)!r}, 'w')\n")
    for options in ({}, {"trust_remote_code": False}, {"trust_remote_code": True}):
        made = AutoModelForTokenClassification.from_pretrained(tmp_path / "model", **options)
        assert type(made) is CRFForTokenClassification
    assert not marker.exists()
    made.save_pretrained(tmp_path / "again")
    assert "open(" not in (tmp_path / "again" / "modeling_equipoise.py").read_text()


def test_a_folder_names_its_own_file_also_after_loading_from_elsewhere(tmp_path: Path) -> None:
    """transformers puts the name of the repository before a class that it loads from the hub."""
    small().save_pretrained(tmp_path)
    change(tmp_path / "config.json", auto_map={name: f"someone/else--{value}" for name, value in AUTO_MAP.items()})
    made = CRFForTokenClassification.from_pretrained(tmp_path)
    made.register_for_auto_class("AutoModelForTokenClassification")  # as transformers calls it
    made.config.register_for_auto_class()
    made.save_pretrained(tmp_path / "again")
    assert json.loads((tmp_path / "again" / "config.json").read_text())["auto_map"] == AUTO_MAP
    code = [path.name for path in (tmp_path / "again").glob("*.py")]
    assert code == ["modeling_equipoise.py"]


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600)])
def test_weights_have_the_mode_of_other_files(mask: int, mode: int, tmp_path: Path) -> None:
    before = os.umask(mask)
    try:
        small().save_pretrained(tmp_path, max_shard_size="4KB")
    finally:
        os.umask(before)
    files = list(tmp_path.iterdir())
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
    assert {path.stat().st_mode & 0o777 for path in files} == {mode}


def test_the_card_has_metadata_and_no_label_is_markup(tmp_path: Path) -> None:
    labels = {0: "O", 1: "B-</a>\n---\n# x", 2: "I-</a>\n---\n# x"}
    made = small(id2label=labels, base_model="someone/encoder")
    made.save_pretrained(tmp_path, metrics={"f1": 0.8944})
    path = tmp_path / "README.md"
    metadata = ModelCard.load(path).data.to_dict()
    assert metadata["pipeline_tag"] == "token-classification"
    assert metadata["library_name"] == "transformers"
    assert metadata["base_model"] == "someone/encoder"
    assert metadata["metrics"] == ["f1"]
    text = path.read_text()
    assert "| f1 | 0.8944 |" in text
    assert not re.search("^# x", text, re.MULTILINE)
    assert "The scheme is BIO." in text
    assert URL in text
    assert not re.search(r"pip install '?equipoise(\[\w+\])?'?$", text, re.MULTILINE)

    made.save_pretrained(tmp_path)
    assert "0.8944" not in path.read_text()  # it is ours, and is written again
    path.write_text("A card by a person.\n")
    made.save_pretrained(tmp_path)
    assert path.read_text() == "A card by a person.\n"


def test_a_folder_on_this_machine_is_no_base_model(tmp_path: Path) -> None:
    made = CRFForTokenClassification.from_encoder(tiny_encoder.save(tmp_path / "encoder"), tiny_encoder.LABELS)
    assert made.config.base_model is None
    made.config.base_model = "../../a secret\nlicense: mit"
    made.save_pretrained(tmp_path / "model")
    assert "base_model" not in ModelCard.load(tmp_path / "model" / "README.md").data.to_dict()
    assert torch.equal(CRFForTokenClassification.from_pretrained(tmp_path / "model").crf.pairwise, made.crf.pairwise)
