"""Download one file over HTTP. It gets its final name only after it is complete and verified.

Until then the data is in NAME.part, and a later call resumes from there. NAME.part.json stores the server's version of
the file (its ETag or Last-Modified), so that parts of two versions are never joined.

This is not left to a library such as pooch, which checks digests, but neither resumes a download nor limits its size.
"""

import http.client
import json
import os
import re
import shutil
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from .checking import sha256 as sha256_of
from .errors import DownloadError, explain

Progress = Callable[[int, int | None], None]  # bytes received, total bytes if known
BLOCK = 1 << 16


@dataclass(frozen=True)
class Limits:
    max_bytes: int = 2**30
    timeout: float = 30.0  # seconds without receiving a byte
    seconds: float = 6 * 3600.0  # total for all attempts
    attempts: int = 5
    pause: float = 1.0  # seconds before the second attempt; doubles before each further one


LIMITS = Limits()


class _RetryError(Exception):
    """This attempt failed; another one may complete or replace the received data."""


def fetch(
    url: str,
    target: Path,
    *,
    size: int | None = None,
    sha256: str | None = None,
    limits: Limits = LIMITS,
    progress: Progress = lambda done, total: None,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Download `url` to the file `target`, or raise a DownloadError with a one-line message.

    Args:
        url: An http or https URL.
        target: Replaced if it exists, unless its SHA-256 already matches.
        size: Expected size in bytes, if known.
        sha256: Expected SHA-256, if known.
        limits: Size and time limits.
        progress: Called after every block.
        sleep: Called to wait between attempts.

    >>> fetch("ftp://example.org/data.gz", Path("data.gz"))
    Traceback (most recent call last):
    ...
    equipoise_lab.data.errors.DownloadError: ftp://example.org/data.gz: the URL must be http or https
    """
    if not url.startswith(("http://", "https://")):
        raise DownloadError(f"{url}: the URL must be http or https")
    job = _Download(url, target, size, sha256, limits, progress, time.monotonic() + limits.seconds)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if sha256 is not None and target.is_file() and sha256_of(target) == sha256:
            return
        for attempt in range(limits.attempts):
            try:
                job.attempt()
                return
            except _RetryError as failure:
                reason = str(failure)
            if attempt + 1 < limits.attempts:
                sleep(limits.pause * 2**attempt)
    except OSError as failure:
        raise DownloadError(explain(failure, target)) from None
    note = f"; {job.received} bytes are kept, and the next download resumes from there" if job.received else ""
    raise DownloadError(f"{url}: {reason} (attempt {limits.attempts} of {limits.attempts}){note}")


@dataclass
class _Download:
    url: str
    target: Path
    size: int | None
    sha256: str | None
    limits: Limits
    progress: Progress
    deadline: float

    @property
    def part(self) -> Path:
        return self.target.with_name(self.target.name + ".part")

    @property
    def note(self) -> Path:
        return self.target.with_name(self.target.name + ".part.json")

    @property
    def received(self) -> int:
        return self.part.stat().st_size if self.part.exists() else 0

    def attempt(self) -> None:
        start = self._resumable()
        try:
            with _open(self.url, start, self._stored_version() if start else None, self.limits.timeout) as response:
                total, start = self._check_headers(response, start)
                with self.part.open("r+b" if start else "wb") as out:
                    out.seek(start)
                    out.truncate()
                    self.note.write_text(json.dumps({"url": self.url, "version": _version(response)}))
                    self._receive(response, out, start, total)
        except urllib.error.HTTPError as failure:
            self._handle_status(failure)
        except (
            http.client.HTTPException,
            urllib.error.URLError,
            ConnectionError,
            TimeoutError,
            ssl.SSLError,
        ) as failure:
            cause = failure.reason if isinstance(failure, urllib.error.URLError) else failure
            if isinstance(cause, (socket.gaierror, ssl.SSLCertVerificationError)):  # usually permanent: no retry
                raise DownloadError(f"{self.url}: {cause}; check the network connection") from None
            raise _RetryError("the server timed out" if isinstance(cause, TimeoutError) else str(cause)) from None
        except ValueError as failure:  # such as a redirect to an invalid URL
            raise DownloadError(f"{self.url}: the server's answer is invalid: {failure}") from None
        self._finish(resumed=start > 0)

    def _resumable(self) -> int:
        """The number of received bytes that can be continued: 0 if they could be from another version."""
        return self.received if self.sha256 is not None or self._stored_version() is not None else 0

    def _stored_version(self) -> str | None:
        try:
            note = json.loads(self.note.read_text())
            return note["version"] if note["url"] == self.url else None
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None

    def _check_headers(self, response: Any, start: int) -> tuple[int | None, int]:
        """The size of the whole file, and the offset in it at which the body of this response begins."""
        total = _count(response.headers.get("Content-Length", ""))
        if response.status == 206:
            span, _, whole = response.headers.get("Content-Range", "").removeprefix("bytes ").partition("/")
            if span.partition("-")[0] != str(start) or self._stored_version() not in (None, _version(response)):
                self._discard()
                raise _RetryError("the server did not send the requested range")
            total = _count(whole) or (None if total is None else start + total)
        else:
            start = 0
        if total is not None and self.size is not None and total != self.size:
            self._discard()
            raise DownloadError(f"{self.url}: expected a file of {self.size} bytes, the server has {total}")
        total = total if total is not None else self.size
        if total is not None and total > self.limits.max_bytes:
            raise DownloadError(f"{self.url}: {total} bytes exceed the limit of {self.limits.max_bytes}")
        free = shutil.disk_usage(self.target.parent).free
        if total is not None and total - start > free:
            raise DownloadError(f"{self.target}: {total - start} more bytes are needed, but the disk has {free} free")
        return total, start

    def _receive(self, response: Any, out: IO[bytes], done: int, total: int | None) -> None:
        self.progress(done, total)
        while block := response.read1(BLOCK):
            done += len(block)
            if done > (total if total is not None else self.limits.max_bytes):
                self._discard()
                raise DownloadError(f"{self.url}: received more than {total or self.limits.max_bytes} bytes")
            out.write(block)
            self.progress(done, total)
            if time.monotonic() > self.deadline:
                raise DownloadError(f"{self.url}: not complete after {self.limits.seconds:.0f} s; the data is kept")
        if total is not None and done < total:
            raise _RetryError(f"the connection ended after {done} of {total} bytes")
        out.flush()
        os.fsync(out.fileno())

    def _handle_status(self, failure: urllib.error.HTTPError) -> None:
        """Raise an error, retryable or final. 416 (no bytes after the last one) means the file may be complete."""
        if failure.code == 416:
            whole = failure.headers.get("Content-Range", "").rpartition("/")[2]
            if whole == str(self.received):
                return
            self._discard()
            raise _RetryError("the file on the server has changed") from None
        if failure.code in (408, 425, 429) or failure.code >= 500:
            raise _RetryError(f"the server answered {failure.code} {failure.reason}") from None
        raise DownloadError(f"{self.url}: the server answered {failure.code} {failure.reason}") from None

    def _finish(self, resumed: bool) -> None:
        if self.size is not None and self.received != self.size:
            got = self.received
            self._discard()
            raise DownloadError(f"{self.url}: expected {self.size} bytes, got {got}")
        if self.sha256 is not None and (got_digest := sha256_of(self.part)) != self.sha256:
            self._discard()
            if resumed:
                raise _RetryError("the joined parts have the wrong SHA-256")
            raise DownloadError(f"{self.url}: expected SHA-256 {self.sha256}, got {got_digest}")
        os.replace(self.part, self.target)
        self.note.unlink(missing_ok=True)

    def _discard(self) -> None:
        self.part.unlink(missing_ok=True)
        self.note.unlink(missing_ok=True)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follow redirects to http and https, but never from https to http."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        allowed = "https://" if req.full_url.startswith("https://") else ("http://", "https://")
        if not newurl.startswith(allowed):
            raise DownloadError(f"{req.full_url}: the redirect to {newurl} is not followed")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _open(url: str, start: int, version: str | None, timeout: float) -> Any:
    """The response to a request for the bytes from `start` on. The opener supports http and https only."""
    opener = urllib.request.OpenerDirector()
    web = (urllib.request.HTTPHandler, urllib.request.HTTPSHandler, urllib.request.ProxyHandler, _Redirects)
    errors = (urllib.request.HTTPErrorProcessor, urllib.request.HTTPDefaultErrorHandler, urllib.request.UnknownHandler)
    for handler in (*web, *errors):
        opener.add_handler(handler())
    headers = {"User-Agent": "equipoise (Python library)", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
        if version is not None:
            headers["If-Range"] = version
    return opener.open(urllib.request.Request(url, headers=headers), timeout=timeout)


def _version(response: Any) -> str | None:
    """The strong ETag of the file, else its Last-Modified. A weak ETag does not identify a version."""
    etag = response.headers.get("ETag")
    version = etag if etag and not etag.startswith("W/") else response.headers.get("Last-Modified")
    # It is sent back to the server, so it must be a valid header.
    return version if version and len(version) <= 200 and version.isascii() and version.isprintable() else None


def _count(text: str) -> int | None:
    """A number of bytes in a header, if it is one."""
    return int(text) if re.fullmatch("[0-9]{1,18}", text) else None
