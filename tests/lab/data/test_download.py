"""A downloaded file gets its name only when it is complete and verified; interrupted downloads resume."""

import errno
import hashlib
import os
import socket
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from lab.data.loopback import Site

from equipoise_lab.data.download import Limits, fetch
from equipoise_lab.data.errors import DownloadError

BODY = bytes(range(256)) * 1000
SHA256 = hashlib.sha256(BODY).hexdigest()
ONCE = Limits(attempts=1)


def get(url: str, target: Path, **options: Any) -> list[float]:
    """Download without waiting, and return the waiting times."""
    waits: list[float] = []
    fetch(url, target, sleep=waits.append, **options)
    assert not list(target.parent.glob("*.part*"))
    return waits


def test_a_download_reports_progress(site: Site, tmp_path: Path) -> None:
    reported: list[tuple[int, int | None]] = []
    url = site.serve("a.gz", BODY)
    get(url, tmp_path / "new" / "a.gz", sha256=SHA256, size=len(BODY), progress=lambda *x: reported.append(x))
    assert (tmp_path / "new" / "a.gz").read_bytes() == BODY
    assert reported[0] == (0, len(BODY))
    assert reported[-1] == (len(BODY), len(BODY))
    assert all(a <= b for a, b in pairwise(reported))


def test_a_correct_file_is_not_downloaded_again(site: Site, tmp_path: Path) -> None:
    url = site.serve("a", BODY)
    get(url, tmp_path / "a", sha256=SHA256)
    get(url, tmp_path / "a", sha256=SHA256)
    assert len(site.requests) == 1


@pytest.mark.parametrize("sha256", [SHA256, None])
def test_a_retry_resumes_after_a_broken_connection(site: Site, tmp_path: Path, sha256: str | None) -> None:
    url = site.serve("a", BODY, cuts=[100_000, 50_000])
    assert get(url, tmp_path / "a", sha256=sha256) == [1.0, 2.0]
    assert (tmp_path / "a").read_bytes() == BODY
    assert [span for _, span in site.requests] == [None, "bytes=100000-", "bytes=150000-"]


def test_the_next_call_resumes(site: Site, tmp_path: Path) -> None:
    url = site.serve("a", BODY, cuts=[100_000])
    with pytest.raises(DownloadError, match=r"100000 of 256000 bytes.*; 100000 bytes are kept"):
        fetch(url, tmp_path / "a", limits=ONCE)
    assert not (tmp_path / "a").exists()
    get(url, tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == BODY
    assert site.requests[-1][1] == "bytes=100000-"


def test_the_next_call_resumes_after_an_interrupt(site: Site, tmp_path: Path) -> None:
    def stop(done: int, total: int | None) -> None:
        if done > 100_000:
            raise KeyboardInterrupt

    url = site.serve("a", BODY)
    with pytest.raises(KeyboardInterrupt):
        fetch(url, tmp_path / "a", progress=stop)
    received = (tmp_path / "a.part").stat().st_size
    assert received > 100_000
    get(url, tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == BODY
    assert site.requests[-1][1] == f"bytes={received}-"


def test_a_complete_part_is_renamed(site: Site, tmp_path: Path) -> None:
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


def test_without_a_digest_or_a_version_the_download_restarts(site: Site, tmp_path: Path) -> None:
    get(site.serve("a", BODY, etag=None, cuts=[100_000]), tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == BODY
    assert [span for _, span in site.requests] == [None, None]


def test_a_damaged_part_is_replaced(site: Site, tmp_path: Path) -> None:
    (tmp_path / "a.part").write_bytes(b"x" * 100_000)
    get(site.serve("a", BODY), tmp_path / "a", sha256=SHA256)
    assert (tmp_path / "a").read_bytes() == BODY
    assert [span for _, span in site.requests] == ["bytes=100000-", None]


def test_a_part_longer_than_the_file_is_replaced(site: Site, tmp_path: Path) -> None:
    (tmp_path / "a.part").write_bytes(BODY + BODY)
    get(site.serve("a", BODY), tmp_path / "a", sha256=SHA256)
    assert (tmp_path / "a").read_bytes() == BODY


def test_attempts_end_if_the_body_is_always_too_short(site: Site, tmp_path: Path) -> None:
    url = site.serve("a", BODY, announce=len(BODY) + 1, ranges=False)
    with pytest.raises(DownloadError, match=r"ended after 256000 of 256001 bytes \(attempt 3 of 3\)"):
        fetch(url, tmp_path / "a", limits=Limits(attempts=3), sleep=lambda s: None)
    assert not (tmp_path / "a").exists()


def test_a_wrong_digest_is_refused_without_a_retry(site: Site, tmp_path: Path) -> None:
    url = site.serve("a", BODY[:-1] + b"?")
    with pytest.raises(DownloadError, match=f"expected SHA-256 {SHA256}, got [0-9a-f]{{64}}"):
        fetch(url, tmp_path / "a", sha256=SHA256)
    assert list(tmp_path.iterdir()) == []
    assert len(site.requests) == 1


def test_server_errors_are_retried_and_a_missing_file_is_not(site: Site, tmp_path: Path) -> None:
    assert get(site.serve("a", BODY, statuses=[500, 503, 429]), tmp_path / "a") == [1.0, 2.0, 4.0]
    assert (tmp_path / "a").read_bytes() == BODY
    site.requests.clear()
    with pytest.raises(DownloadError, match="the server answered 404 Not Found"):
        fetch(f"{site.address}/b", tmp_path / "b")
    assert len(site.requests) == 1
    with pytest.raises(DownloadError, match="503 Service Unavailable"):
        fetch(site.serve("c", BODY, statuses=[503] * 9), tmp_path / "c", sleep=lambda s: None)


def test_files_above_the_size_limit_are_refused(site: Site, tmp_path: Path) -> None:
    small = Limits(max_bytes=1000)
    with pytest.raises(DownloadError, match="256000 bytes exceed the limit of 1000"):
        fetch(site.serve("a", BODY), tmp_path / "a", limits=small)
    with pytest.raises(DownloadError, match="received more than 1000 bytes"):
        fetch(site.serve("b", BODY, chunked=True), tmp_path / "b", limits=small)
    with pytest.raises(DownloadError, match="expected a file of 99 bytes, the server has 256000"):
        fetch(site.serve("c", BODY), tmp_path / "c", size=99)
    assert list(tmp_path.iterdir()) == []


def test_chunked_transfer_and_a_truncated_one(site: Site, tmp_path: Path) -> None:
    get(site.serve("a", BODY, chunked=True), tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == BODY
    get(site.serve("b", BODY, chunked=True, ranges=False, cuts=[1]), tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == BODY
    with pytest.raises(DownloadError, match="received more than 99 bytes"):
        fetch(site.serve("c", BODY, chunked=True), tmp_path / "c", size=99)


def test_redirects_are_followed_to_http_only(site: Site, tmp_path: Path) -> None:
    site.serve("a", BODY)
    get(site.serve("moved", b"", location="/a"), tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == BODY
    (tmp_path / "secret").write_bytes(b"secret")
    for location in ((tmp_path / "secret").as_uri(), "ftp://127.0.0.1/a", "data:,a"):
        with pytest.raises(DownloadError, match=r"not followed|302"):
            fetch(site.serve("bad", b"", location=location), tmp_path / "b", limits=ONCE)
    with pytest.raises(DownloadError, match="must be http or https"):
        fetch((tmp_path / "secret").as_uri(), tmp_path / "b")
    assert not (tmp_path / "b").exists()


def test_timeouts(site: Site, tmp_path: Path) -> None:
    url = site.serve("a", BODY, stall=3.0)
    with pytest.raises(DownloadError, match=r"the server timed out.*; 128000 bytes are kept"):
        fetch(url, tmp_path / "a", limits=Limits(attempts=1, timeout=0.2))
    with pytest.raises(DownloadError, match="not complete after 0 s; the data is kept"):
        fetch(site.serve("b", BODY), tmp_path / "b", limits=Limits(seconds=0))


def test_a_refused_connection(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with pytest.raises(DownloadError, match=r"[Rr]efused") as caught:
        fetch(f"http://127.0.0.1:{port}/a", tmp_path / "a", sleep=lambda s: None)
    assert "\n" not in str(caught.value)


def test_too_little_disk_space_is_reported_before_the_download(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = os.statvfs_result((4096, 4096, 100, 0, 0, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda path: full)
    with pytest.raises(DownloadError, match="256000 more bytes are needed, but the disk has 0 free"):
        fetch(site.serve("a", BODY), tmp_path / "a")


def test_the_disk_becomes_full_during_the_download(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
        with pytest.raises(DownloadError, match="the disk is full; free some space"):
            fetch(url, tmp_path / "a", sha256=SHA256)
    assert not (tmp_path / "a").exists()
    get(url, tmp_path / "a", sha256=SHA256)
    assert (tmp_path / "a").read_bytes() == BODY
    assert site.requests[-1][1] is not None


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_write_permission(site: Site, tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    with pytest.raises(DownloadError, match="no write permission"):
        fetch(site.serve("a", BODY), tmp_path / "a")


def test_a_file_where_a_folder_is_needed(site: Site, tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"")
    with pytest.raises(DownloadError, match="a file exists where a folder is needed"):
        fetch(site.serve("a", BODY), tmp_path / "data" / "a")
