"""Tensor files: in the safetensors format, refused when damaged, and written completely or not at all."""

import errno
import json
import os
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from equipoise_lab.training import BadFileError
from equipoise_lab.training.tensors import KINDS, load, save

NUMPY = {"F32": "<f4", "F64": "<f8", "F16": "<f2", "I64": "<i8", "I32": "<i4", "U8": "u1", "BOOL": "?"}


def examples() -> dict[str, Tensor]:
    named = {str(dtype): (torch.arange(6) % 2).reshape(2, 3).to(dtype) for dtype in KINDS}
    named |= {"scalar": torch.tensor(1 / 3), "empty": torch.zeros(0, 4), "odd/näme": torch.tensor([True, False, True])}
    named |= {"across": torch.arange(12.0).reshape(3, 4).T, "part": torch.arange(10)[::3]}
    named |= {"one, with a stride": torch.arange(2.0)[::2]}  # counts as contiguous
    named |= {"special": torch.tensor([float("nan"), float("inf"), -0.0, 1e-45])}
    return named | {"grad": torch.ones(2, requires_grad=True)}


def test_tensors_survive_saving_and_loading(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "file"
    save(path, examples(), 'a text, "quoted", ü')
    got, text = load(path)
    assert text == 'a text, "quoted", ü'
    assert list(got) == list(examples())
    for name, want in examples().items():
        assert got[name].dtype == want.dtype
        assert got[name].shape == want.shape
        assert (
            got[name].detach().numpy(force=True).tobytes() == want.detach().contiguous().numpy(force=True).tobytes()
            if want.dtype != torch.bfloat16
            else torch.equal(got[name], want)
        )
    assert os.listdir(path.parent) == ["file"]


def test_a_file_without_tensors(tmp_path: Path) -> None:
    save(tmp_path / "file", {}, "{}")
    assert load(tmp_path / "file") == ({}, "{}")


def test_the_format_is_that_of_safetensors(tmp_path: Path) -> None:
    """Parsed by the specification: header length, JSON header, bytes at the offsets in the header."""
    path = tmp_path / "file"
    save(path, examples(), "text")
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    assert size % 8 == 0
    header = json.loads(data[8 : 8 + size])
    metadata = header.pop("__metadata__")
    assert metadata.pop("equipoise.sha256")
    assert metadata == {"equipoise": "text"}
    stop = 0
    for name, want in examples().items():
        entry = header.pop(name)
        assert entry["shape"] == list(want.shape)
        assert entry["data_offsets"][0] == stop  # no gaps
        start, stop = entry["data_offsets"]
        if entry["dtype"] in NUMPY:
            got = np.frombuffer(data[8 + size + start : 8 + size + stop], NUMPY[entry["dtype"]])
            assert got.tobytes() == want.detach().contiguous().numpy().tobytes()
    assert not header
    assert len(data) == 8 + size + stop


def test_the_safetensors_library_reads_and_writes_these_files(tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors.torch")
    plain = {name: x.detach().contiguous() for name, x in examples().items()}
    save(tmp_path / "ours", plain, "text")
    theirs = library.load_file(tmp_path / "ours")
    library.save_file(plain, tmp_path / "theirs", metadata={"equipoise": "words"})
    ours, text = load(tmp_path / "theirs")
    assert text == "words"
    for name, want in plain.items():
        for got in (theirs[name], ours[name]):
            assert torch.equal(
                got.nan_to_num(7.0) if name == "special" else got, want.nan_to_num(7.0) if name == "special" else want
            )
    library.save_file(plain, tmp_path / "foreign")
    with pytest.raises(BadFileError, match="was not written by equipoise"):
        load(tmp_path / "foreign")


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    save(path, {"a": torch.arange(4), "b": torch.ones(3)}, "text")
    whole = path.read_bytes()
    body = 8 + struct.unpack("<Q", whole[:8])[0]
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        message = "truncated: [ab] is incomplete" if length >= body else "truncated"
        with pytest.raises(BadFileError, match=f"file.* {message}"):
            load(path)


@given(content=st.binary(max_size=60))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_bytes_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    for data in (content, struct.pack("<Q", len(content)) + content):
        path.write_bytes(data)
        with pytest.raises(BadFileError, match="file"):
            load(path)


@pytest.mark.parametrize(
    "header",
    [
        [],
        1,
        "text",
        {"a": 1},
        {"a": {}},
        {"__metadata__": 3},
        {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0]}},
        {"a": {"dtype": "F32", "shape": [2], "data_offsets": ["0", "8"]}},
        {"a": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}},
        {"a": {"dtype": "F32", "shape": "2", "data_offsets": [0, 8]}},
        {"a": {"dtype": "C64", "shape": [1], "data_offsets": [0, 8]}},
        {"a": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}},
        {"a": {"dtype": "F32", "shape": [2], "data_offsets": [-8, 0]}},
        {"a": {"dtype": "F32", "shape": [2], "data_offsets": [8, 0]}},
        {"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 3]}},
    ],
    ids=str,
)
def test_an_invalid_header_is_refused(tmp_path: Path, header: object) -> None:
    head = json.dumps(header | {"__metadata__": {"equipoise": ""}} if header == {"a": 1} else header).encode()
    path = tmp_path / "file"
    path.write_bytes(struct.pack("<Q", len(head)) + head + bytes(8))
    with pytest.raises(BadFileError):
        load(path)


def test_pickles_are_not_loaded(tmp_path: Path) -> None:
    path = tmp_path / "file"

    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(tmp_path / "sprung"),)

    path.write_bytes(pickle.dumps(Trap()))
    with pytest.raises(BadFileError):
        load(path)
    torch.save({"a": torch.ones(2)}, path)
    with pytest.raises(BadFileError):
        load(path)
    assert not (tmp_path / "sprung").exists()


def test_an_enormous_header_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(struct.pack("<Q", 2**62) + bytes(100))
    with pytest.raises(BadFileError, match="not a safetensors file, or is truncated"):
        load(path)


@pytest.mark.parametrize("before", [False, True])
def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: bool) -> None:
    path = tmp_path / "file"
    if before:
        save(path, {"a": torch.ones(2)}, "old")
    calls = 0

    def full(descriptor: int) -> None:
        nonlocal calls
        calls += 1
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        save(path, {"a": torch.zeros(2)}, "new")
    assert calls == 1  # the data is flushed before the file is renamed
    assert os.listdir(tmp_path) == (["file"] if before else [])
    if before:
        named, text = load(path)
        assert text == "old"
        assert named["a"].tolist() == [1, 1]


def test_a_reader_sees_the_old_file_or_the_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Immediately before the rename, the file is still the old one."""
    path = tmp_path / "file"
    save(path, {"a": torch.ones(2)}, "old")
    replace, seen = Path.replace, []

    def watched(self: Path, target: Path) -> Path:
        seen.append(load(path)[1])
        seen.append(load(self)[1])
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", watched)
    save(path, {"a": torch.zeros(2)}, "new")
    assert seen == ["old", "new"]
    assert load(path)[1] == "new"


def test_every_changed_bit_is_noticed(tmp_path: Path) -> None:
    """Also one in the numbers, in a name, or in the text; spaces after the header do not matter."""
    path = tmp_path / "file"
    save(path, {"a": torch.arange(4.0), "b": torch.ones(3)}, "text")
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(BadFileError):
            load(path, old=False)


def test_a_file_without_a_digest_is_only_read_as_an_old_one(tmp_path: Path) -> None:
    path = written(tmp_path / "file", '{"__metadata__": {"equipoise": "text"}}', b"")
    assert load(path) == ({}, "text")
    with pytest.raises(BadFileError, match="has no digest"):
        load(path, old=False)


def written(path: Path, header: str, numbers: bytes) -> Path:
    path.write_bytes(struct.pack("<Q", len(header.encode())) + header.encode() + numbers)
    return path


@pytest.mark.parametrize(
    ("entries", "numbers", "reason"),
    [
        ('{"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}', 4, "not made of numbers from 0 on"),
        ('{"a": {"dtype": "F32", "shape": [1.0], "data_offsets": [0, 4]}}', 4, "not made of numbers from 0 on"),
        ('{"a": {"dtype": "F32", "shape": [true], "data_offsets": [0, 4]}}', 4, "not made of numbers from 0 on"),
        ('{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}', 4, "do not fit"),
        ('{"a": {"dtype": "F32", "shape": [1000000000000, 1000000000000], "data_offsets": [0, 4]}}', 4, "do not fit"),
        ('{"a": {"dtype": "X9", "shape": [1], "data_offsets": [0, 4]}}', 4, "unknown type 'X9'"),
        ('{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}', 9, "5 bytes at the end"),
        ('{"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}', 8, "a gap or an overlap at byte 0"),
        (
            '{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},'
            ' "b": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}}',
            12,
            "a gap or an overlap at byte 4",
        ),
        (
            '{"a": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]},'
            ' "a": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}}',
            0,
            "a name occurs twice",
        ),
        ('{"a": ' + 5000 * "[" + 5000 * "]" + "}", 0, "not a valid safetensors file"),
    ],
)
def test_headers_that_do_not_fit_the_numbers(tmp_path: Path, entries: str, numbers: int, reason: str) -> None:
    with pytest.raises(BadFileError, match=reason):
        load(written(tmp_path / "file", entries, bytes(numbers)))
