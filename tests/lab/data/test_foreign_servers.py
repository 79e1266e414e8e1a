"""Servers that send control characters, invalid headers or another file: nothing wrong is put in place."""

import hashlib
from pathlib import Path

import pytest
from lab.data.loopback import Site

from equipoise_lab.data.download import Limits, fetch
from equipoise_lab.data.errors import DownloadError

BODY = bytes(range(256)) * 1000

SHA256 = hashlib.sha256(BODY).hexdigest()
ONCE = Limits(attempts=1)


CONTROL = "\x1b]0;title\x07\x1b[2J\x9b31m\x08gone"


def assert_plain(error: Exception) -> None:
    """The message is one line that a terminal only prints."""
    assert str(error).isprintable()
    assert len(str(error)) < 1000


def test_control_characters_of_a_server_are_escaped(site: Site, tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match=r"the server answered 403 \\x1b\]0;title") as caught:
        fetch(site.serve("a", BODY, statuses=[403], reason=CONTROL), tmp_path / "a")
    assert_plain(caught.value)
    with pytest.raises(DownloadError, match=r"the server answered 503 \\x1b\]0;title") as caught:
        fetch(site.serve("b", BODY, statuses=[503], reason=CONTROL * 500), tmp_path / "b", limits=ONCE)
    assert_plain(caught.value)
    for location in (f"ftp://{CONTROL}/", f"http://{CONTROL}/", f"http://[{CONTROL}/", f"/{CONTROL}"):
        with pytest.raises(DownloadError) as caught:
            fetch(site.serve("c", b"", location=location), tmp_path / "c", limits=ONCE)
        assert_plain(caught.value)
    assert list(tmp_path.glob("[abc]")) == []


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Length": "9" * 5000},
        {"Content-Length": "many"},
        {"Content-Length": "-5"},
        {"Last-Modified": CONTROL},
        {"Last-Modified": "x" * 5000},
        {"Content-Encoding": "gzip"},
    ],
)
def test_invalid_headers_never_put_a_wrong_file_in_place(site: Site, tmp_path: Path, headers: dict[str, str]) -> None:
    url = site.serve("a", BODY, etag=None, headers=headers, cuts=[1000])
    for _ in range(3):
        try:
            fetch(url, tmp_path / "a", sha256=SHA256, limits=Limits(attempts=1, timeout=2.0))
        except DownloadError as error:
            assert_plain(error)
            assert not (tmp_path / "a").exists()
        else:
            assert (tmp_path / "a").read_bytes() == BODY


PAGE = b"<html><title>\x1b[2J404</title>" + b"x" * 300


@pytest.mark.parametrize("body", [b"", PAGE, BODY[:-1], BODY + b"x", BODY[::-1]], ids=len)
@pytest.mark.parametrize("chunked", [False, True])
def test_foreign_and_truncated_bodies_are_refused(site: Site, tmp_path: Path, body: bytes, chunked: bool) -> None:
    """The answer is complete and has status 200, but it is another file."""
    with pytest.raises(DownloadError, match=f"expected SHA-256 {SHA256}, got ") as caught:
        fetch(site.serve("a", body, chunked=chunked), tmp_path / "a", sha256=SHA256)
    assert_plain(caught.value)
    assert list(tmp_path.iterdir()) == []
