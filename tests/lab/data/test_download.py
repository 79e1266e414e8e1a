"""A file appears under its name only when it is whole and right, whatever the server does; one that was cut goes on."""

import errno
import hashlib
import os
import socket
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from lab.data.loopback import Site

from equipoise.lab.data.download import Limits, fetch
from equipoise.lab.data.errors import DownloadError

BODY = bytes(range(256)) * 1000
SHA256 = hashlib.sha256(BODY).hexdigest()
ONCE = Limits(attempts=1)


def get(url: str, target: Path, **options: Any) -> list[float]:
    """Fetch without waiting, and tell how long it would have waited."""
    waits: list[float] = []
    fetch(url, target, sleep=waits.append, **options)
    assert not list(target.parent.glob("*.part*"))
    return waits


def test_a_file_arrives_and_progress_is_told(site: Site, tmp_path: Path) -> None:
    told: list[tuple[int, int | None]] = []
    url = site.serve("a.gz", BODY)
    get(url, tmp_path / "new" / "a.gz", sha256=SHA256, size=len(BODY), progress=lambda *x: told.append(x))
    assert (tmp_path / "new" / "a.gz").read_bytes() == BODY
    assert told[0] == (0, len(BODY))
    assert told[-1] == (len(BODY), len(BODY))
    assert all(a <= b for a, b in pairwise(told))


def test_a_file_that_is_here_and_right_is_not_fetched_again(site: Site, tmp_path: Path) -> None:
    url = site.serve("a", BODY)
    get(url, tmp_path / "a", sha256=SHA256)
    get(url, tmp_path / "a", sha256=SHA256)
    assert len(site.asked) == 1


@pytest.mark.parametrize("sha256", [SHA256, None])
def test_a_connection_that_is_cut_goes_on_where_it_stopped(site: Site, tmp_path: Path, sha256: str | None) -> None:
    url = site.serve("a", BODY, cuts=[100_000, 50_000])
    assert get(url, tmp_path / "a", sha256=sha256) == [1.0, 2.0]
    assert (tmp_path / "a").read_bytes() == BODY
    assert [span for _, span in site.asked] == [None, "bytes=100000-", "bytes=150000-"]


def test_the_next_call_goes_on_where_the_last_one_stopped(site: Site, tmp_path: Path) -> None:
    url = site.serve("a", BODY, cuts=[100_000])
    with pytest.raises(DownloadError, match=r"100000 of 256000 bytes.*the 100000 bytes that came are kept"):
        fetch(url, tmp_path / "a", limits=ONCE)
    assert not (tmp_path / "a").exists()
    get(url, tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == BODY
    assert site.asked[-1][1] == "bytes=100000-"


def test_after_an_interrupt_the_next_call_goes_on(site: Site, tmp_path: Path) -> None:
    def stop(done: int, total: int | None) -> None:
        if done > 100_000:
            raise KeyboardInterrupt

    url = site.serve("a", BODY)
    with pytest.raises(KeyboardInterrupt):
        fetch(url, tmp_path / "a", progress=stop)
    have = (tmp_path / "a.part").stat().st_size
    assert have > 100_000
    get(url, tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == BODY
    assert site.asked[-1][1] == f"bytes={have}-"


def test_all_bytes_here_but_not_yet_renamed(site: Site, tmp_path: Path) -> None:
    (tmp_path / "a.part").write_bytes(BODY)
    get(site.serve("a", BODY), tmp_path / "a", sha256=SHA256)
    assert (tmp_path / "a").read_bytes() == BODY


def test_a_server_without_ranges_starts_over(site: Site, tmp_path: Path) -> None:
    get(site.serve("a", BODY, ranges=False, cuts=[100_000]), tmp_path / "a", sha256=SHA256)
    assert (tmp_path / "a").read_bytes() == BODY


@pytest.mark.parametrize("obey", [True, False])
def test_parts_of_two_versions_are_never_joined(site: Site, tmp_path: Path, obey: bool) -> None:
    url = site.serve("a", BODY, cuts=[100_000])
    with pytest.raises(DownloadError):
        fetch(url, tmp_path / "a", limits=ONCE)
    site.serve("a", BODY[::-1], etag='"second"', obey_if_range=obey)
    get(url, tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == BODY[::-1]


def test_without_a_digest_or_a_version_nothing_is_joined(site: Site, tmp_path: Path) -> None:
    get(site.serve("a", BODY, etag=None, cuts=[100_000]), tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == BODY
    assert [span for _, span in site.asked] == [None, None]


def test_a_spoilt_part_is_replaced(site: Site, tmp_path: Path) -> None:
    (tmp_path / "a.part").write_bytes(b"x" * 100_000)
    get(site.serve("a", BODY), tmp_path / "a", sha256=SHA256)
    assert (tmp_path / "a").read_bytes() == BODY
    assert [span for _, span in site.asked] == ["bytes=100000-", None]


def test_a_part_longer_than_the_file_is_replaced(site: Site, tmp_path: Path) -> None:
    (tmp_path / "a.part").write_bytes(BODY + BODY)
    get(site.serve("a", BODY), tmp_path / "a", sha256=SHA256)
    assert (tmp_path / "a").read_bytes() == BODY


def test_a_body_always_too_short_is_given_up(site: Site, tmp_path: Path) -> None:
    url = site.serve("a", BODY, announce=len(BODY) + 1, ranges=False)
    with pytest.raises(DownloadError, match=r"ended after 256000 of 256001 bytes \(attempt 3 of 3\)"):
        fetch(url, tmp_path / "a", limits=Limits(attempts=3), sleep=lambda s: None)
    assert not (tmp_path / "a").exists()


def test_corrupted_bytes_are_refused_at_once(site: Site, tmp_path: Path) -> None:
    url = site.serve("a", BODY[:-1] + b"?")
    with pytest.raises(DownloadError, match=f"the file has SHA-256 [0-9a-f]{{64}}, but {SHA256} is wanted"):
        fetch(url, tmp_path / "a", sha256=SHA256)
    assert list(tmp_path.iterdir()) == []
    assert len(site.asked) == 1


def test_a_server_in_trouble_is_asked_again_a_missing_file_is_not(site: Site, tmp_path: Path) -> None:
    assert get(site.serve("a", BODY, statuses=[500, 503, 429]), tmp_path / "a") == [1.0, 2.0, 4.0]
    assert (tmp_path / "a").read_bytes() == BODY
    site.asked.clear()
    with pytest.raises(DownloadError, match="the server answered 404 Not Found"):
        fetch(f"{site.address}/b", tmp_path / "b")
    assert len(site.asked) == 1
    with pytest.raises(DownloadError, match="503 Service Unavailable"):
        fetch(site.serve("c", BODY, statuses=[503] * 9), tmp_path / "c", sleep=lambda s: None)


def test_more_than_allowed_is_refused(site: Site, tmp_path: Path) -> None:
    small = Limits(max_bytes=1000)
    with pytest.raises(DownloadError, match="256000 bytes are more than the 1000 allowed"):
        fetch(site.serve("a", BODY), tmp_path / "a", limits=small)
    with pytest.raises(DownloadError, match="more came than the 1000 bytes"):
        fetch(site.serve("b", BODY, chunked=True), tmp_path / "b", limits=small)
    with pytest.raises(DownloadError, match="a file of 256000 bytes, 99 wanted"):
        fetch(site.serve("c", BODY), tmp_path / "c", size=99)
    assert list(tmp_path.iterdir()) == []


def test_a_body_in_chunks_arrives_and_a_cut_one_is_noticed(site: Site, tmp_path: Path) -> None:
    get(site.serve("a", BODY, chunked=True), tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == BODY
    get(site.serve("b", BODY, chunked=True, ranges=False, cuts=[1]), tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == BODY
    with pytest.raises(DownloadError, match="more came than the 99 bytes"):
        fetch(site.serve("c", BODY, chunked=True), tmp_path / "c", size=99)


def test_redirects_stay_on_the_web(site: Site, tmp_path: Path) -> None:
    site.serve("a", BODY)
    get(site.serve("moved", b"", location="/a"), tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == BODY
    (tmp_path / "secret").write_bytes(b"secret")
    for location in ((tmp_path / "secret").as_uri(), "ftp://127.0.0.1/a", "data:,a"):
        with pytest.raises(DownloadError, match=r"not followed|302"):
            fetch(site.serve("bad", b"", location=location), tmp_path / "b", limits=ONCE)
    with pytest.raises(DownloadError, match="only http and https"):
        fetch((tmp_path / "secret").as_uri(), tmp_path / "b")
    assert not (tmp_path / "b").exists()


def test_silence_is_not_waited_for(site: Site, tmp_path: Path) -> None:
    url = site.serve("a", BODY, stall=3.0)
    with pytest.raises(DownloadError, match=r"the server is silent.*128000 bytes that came are kept"):
        fetch(url, tmp_path / "a", limits=Limits(attempts=1, timeout=0.2))
    with pytest.raises(DownloadError, match="not done after 0 s; what came is kept"):
        fetch(site.serve("b", BODY), tmp_path / "b", limits=Limits(seconds=0))


def test_no_server_at_all(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with pytest.raises(DownloadError, match=r"[Rr]efused") as caught:
        fetch(f"http://127.0.0.1:{port}/a", tmp_path / "a", sleep=lambda s: None)
    assert "\n" not in str(caught.value)


def test_a_disk_too_small_is_told_before_the_download(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = os.statvfs_result((4096, 4096, 100, 0, 0, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda path: full)
    with pytest.raises(DownloadError, match="256000 bytes are to come, but the disk has only 0 free"):
        fetch(site.serve("a", BODY), tmp_path / "a")


def test_a_disk_that_fills_up_on_the_way(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path.open

    def nearly_full(path: Path, *args: Any, **kwargs: Any) -> Any:
        stream = real(path, *args, **kwargs)
        return Full(stream) if path.suffix == ".part" else stream

    class Full:
        def __init__(self, stream: Any) -> None:
            self.stream = stream

        def __enter__(self) -> "Full":
            return self

        def __exit__(self, *failure: object) -> None:
            self.stream.close()

        def __getattr__(self, name: str) -> Any:
            return getattr(self.stream, name)

        def write(self, data: bytes) -> None:
            if self.stream.tell() > 100_000:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self.stream.write(data)

    url = site.serve("a", BODY)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", nearly_full)
        with pytest.raises(DownloadError, match="the disk is full; make room"):
            fetch(url, tmp_path / "a", sha256=SHA256)
    assert not (tmp_path / "a").exists()
    get(url, tmp_path / "a", sha256=SHA256)
    assert (tmp_path / "a").read_bytes() == BODY
    assert site.asked[-1][1] is not None


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written(site: Site, tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    with pytest.raises(DownloadError, match="no permission to write there"):
        fetch(site.serve("a", BODY), tmp_path / "a")


def test_a_file_in_the_way_of_the_folder(site: Site, tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"")
    with pytest.raises(DownloadError, match="a file is in the way of a folder"):
        fetch(site.serve("a", BODY), tmp_path / "data" / "a")
