"""Fetch one file over HTTP: it appears under its name only when it is whole and right.

Until then it grows as NAME.part, and a later call goes on where the last one stopped. NAME.part.json keeps what the
server called the file (its ETag, or the time of its last change), so that parts of two versions are never joined.
"""

import http.client
import json
import os
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

Progress = Callable[[int, int | None], None]  # bytes here, of how many if that is known
BLOCK = 1 << 16


@dataclass(frozen=True)
class Limits:
    max_bytes: int = 2**30
    timeout: float = 30.0  # seconds without a byte
    seconds: float = 6 * 3600.0  # for all attempts together
    attempts: int = 5
    pause: float = 1.0  # seconds before the second attempt, twice as long before each further one


LIMITS = Limits()


class _TryAgainError(Exception):
    """What came has to be completed or replaced by another attempt."""


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
    """Fetch `url` into the file `target`, or raise a DownloadError of one line.

    Args:
        url: http or https.
        target: Replaced if it exists, unless it is right by its SHA-256.
        size: What the file must have, if known.
        sha256: What the file must have, if known.
        limits: Beyond which the attempt is given up.
        progress: Called after every block.
        sleep: How to wait between attempts.

    >>> fetch("ftp://example.org/data.gz", Path("data.gz"))
    Traceback (most recent call last):
    ...
    equipoise.lab.data.errors.DownloadError: ftp://example.org/data.gz: only http and https addresses are fetched
    """
    if not url.startswith(("http://", "https://")):
        raise DownloadError(f"{url}: only http and https addresses are fetched")
    job = _Job(url, target, size, sha256, limits, progress, time.monotonic() + limits.seconds)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if sha256 is not None and target.is_file() and sha256_of(target) == sha256:
            return
        for attempt in range(limits.attempts):
            try:
                job.attempt()
                return
            except _TryAgainError as failure:
                reason = str(failure)
            if attempt + 1 < limits.attempts:
                sleep(limits.pause * 2**attempt)
    except OSError as failure:
        raise DownloadError(explain(failure, target)) from None
    kept = f"; the {job.have} bytes that came are kept, and the next download goes on from there" if job.have else ""
    raise DownloadError(f"{url}: {reason} (attempt {limits.attempts} of {limits.attempts}){kept}")


@dataclass
class _Job:
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
    def have(self) -> int:
        return self.part.stat().st_size if self.part.exists() else 0

    def attempt(self) -> None:
        start = self._resumable()
        try:
            with _open(self.url, start, self._version() if start else None, self.limits.timeout) as answer:
                total, start = self._agree(answer, start)
                with self.part.open("r+b" if start else "wb") as out:
                    out.seek(start)
                    out.truncate()
                    self.note.write_text(json.dumps({"url": self.url, "version": _version(answer)}))
                    self._receive(answer, out, start, total)
        except urllib.error.HTTPError as failure:
            self._judge(failure)
        except (
            http.client.HTTPException,
            urllib.error.URLError,
            ConnectionError,
            TimeoutError,
            ssl.SSLError,
        ) as failure:
            cause = failure.reason if isinstance(failure, urllib.error.URLError) else failure
            if isinstance(cause, (socket.gaierror, ssl.SSLCertVerificationError)):  # lasting, as a rule
                raise DownloadError(f"{self.url}: {cause}; is there a network?") from None
            raise _TryAgainError("the server is silent" if isinstance(cause, TimeoutError) else str(cause)) from None
        self._finish(resumed=start > 0)

    def _resumable(self) -> int:
        """How many bytes are here that the next ones may follow: all, unless they could be of another version."""
        return self.have if self.sha256 is not None or self._version() is not None else 0

    def _version(self) -> str | None:
        try:
            note = json.loads(self.note.read_text())
            return note["version"] if note["url"] == self.url else None
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None

    def _agree(self, answer: Any, start: int) -> tuple[int | None, int]:
        """The size of the whole file, and where the body of this answer begins in it."""
        length = answer.headers.get("Content-Length", "")
        total = int(length) if length.isdecimal() else None
        if answer.status == 206:
            span, _, whole = answer.headers.get("Content-Range", "").removeprefix("bytes ").partition("/")
            if span.partition("-")[0] != str(start) or self._version() not in (None, _version(answer)):
                self._discard()
                raise _TryAgainError("the server sent another part than the one asked for")
            total = int(whole) if whole.isdecimal() else None if total is None else start + total
        else:
            start = 0
        if total is not None and self.size is not None and total != self.size:
            self._discard()
            raise DownloadError(f"{self.url}: the server has a file of {total} bytes, {self.size} wanted")
        total = total if total is not None else self.size
        if total is not None and total > self.limits.max_bytes:
            raise DownloadError(f"{self.url}: {total} bytes are more than the {self.limits.max_bytes} allowed")
        free = shutil.disk_usage(self.target.parent).free
        if total is not None and total - start > free:
            raise DownloadError(f"{self.target}: {total - start} bytes are to come, but the disk has only {free} free")
        return total, start

    def _receive(self, answer: Any, out: IO[bytes], done: int, total: int | None) -> None:
        self.progress(done, total)
        while block := answer.read1(BLOCK):
            done += len(block)
            if done > (total if total is not None else self.limits.max_bytes):
                self._discard()
                raise DownloadError(f"{self.url}: more came than the {total or self.limits.max_bytes} bytes announced")
            out.write(block)
            self.progress(done, total)
            if time.monotonic() > self.deadline:
                raise DownloadError(f"{self.url}: not done after {self.limits.seconds:.0f} s; what came is kept")
        if total is not None and done < total:
            raise _TryAgainError(f"the connection ended after {done} of {total} bytes")
        out.flush()
        os.fsync(out.fileno())

    def _judge(self, failure: urllib.error.HTTPError) -> None:
        """Another attempt, an end, or (416: no bytes after the last one) nothing, as the file is whole."""
        if failure.code == 416:
            whole = failure.headers.get("Content-Range", "").rpartition("/")[2]
            if whole == str(self.have):
                return
            self._discard()
            raise _TryAgainError("the file on the server is another than the one begun") from None
        if failure.code in (408, 425, 429) or failure.code >= 500:
            raise _TryAgainError(f"the server answered {failure.code} {failure.reason}") from None
        raise DownloadError(f"{self.url}: the server answered {failure.code} {failure.reason}") from None

    def _finish(self, resumed: bool) -> None:
        if self.size is not None and self.have != self.size:
            got = self.have
            self._discard()
            raise DownloadError(f"{self.url}: {got} bytes came, {self.size} wanted")
        if self.sha256 is not None and (got_digest := sha256_of(self.part)) != self.sha256:
            self._discard()
            if resumed:
                raise _TryAgainError("the parts did not fit together")
            raise DownloadError(f"{self.url}: the file has SHA-256 {got_digest}, but {self.sha256} is wanted")
        os.replace(self.part, self.target)
        self.note.unlink(missing_ok=True)

    def _discard(self) -> None:
        self.part.unlink(missing_ok=True)
        self.note.unlink(missing_ok=True)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follow a redirect, but never from https to http, nor to anything else."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        allowed = "https://" if req.full_url.startswith("https://") else ("http://", "https://")
        if not newurl.startswith(allowed):
            raise DownloadError(f"{req.full_url}: sends on to {newurl}, which is not followed")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _open(url: str, start: int, version: str | None, timeout: float) -> Any:
    """The answer to a request for the bytes from `start` on. Speaks http and https only, whatever a redirect asks."""
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


def _version(answer: Any) -> str | None:
    """What tells this version of the file from another; a weak ETag does not."""
    etag = answer.headers.get("ETag")
    return etag if etag and not etag.startswith("W/") else answer.headers.get("Last-Modified")
