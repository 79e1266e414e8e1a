"""A web server on the loopback interface with configurable faults."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Served:
    """A file of the server. Lists hold one entry per request; after the last entry the server behaves normally."""

    body: bytes
    ranges: bool = True
    obey_if_range: bool = True
    etag: str | None = '"first"'
    statuses: list[int] = field(default_factory=list)  # sent instead of the file
    cuts: list[int] = field(default_factory=list)  # bytes of the body after which the connection ends
    announce: int | None = None  # a wrong Content-Length
    chunked: bool = False
    location: str | None = None  # redirect target
    stall: float = 0.0  # seconds without data in the middle of the body
    reason: str | None = None  # text after the status code
    headers: dict[str, str] = field(default_factory=dict)  # sent with the file


@dataclass
class Site:
    address: str
    files: dict[str, Served] = field(default_factory=dict)
    requests: list[tuple[str, str | None]] = field(default_factory=list)  # path and Range of every request

    def serve(self, name: str, body: bytes, **behaviour: object) -> str:
        self.files[f"/{name}"] = Served(body, **behaviour)  # type: ignore[arg-type]
        return f"{self.address}/{name}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    site: Site

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.site.requests.append((self.path, wanted))
        file = self.site.files.get(self.path)
        status = 404 if file is None else file.statuses.pop(0) if file.statuses else 200
        if file is None or status != 200:
            return self.answer(status, reason=None if file is None else file.reason)
        if file.location is not None:
            return self.answer(302, {"Location": file.location})
        start = 0
        same = not file.obey_if_range or self.headers.get("If-Range") in (None, file.etag)
        if wanted is not None and file.ranges and same:
            start, status = int(wanted.removeprefix("bytes=").rstrip("-")), 206
            if start >= len(file.body):
                return self.answer(416, {"Content-Range": f"bytes */{len(file.body)}"})
        return self.body(file, start, status)

    def answer(self, status: int, headers: dict[str, str] | None = None, reason: str | None = None) -> None:
        self.send_response(status, reason)
        for key, value in {"Content-Length": "0", **(headers or {})}.items():
            self.send_header(key, value)
        self.end_headers()

    def body(self, file: Served, start: int, status: int) -> None:
        rest, size = file.body[start:], len(file.body)
        self.send_response(status)
        if status == 206:
            self.send_header("Content-Range", f"bytes {start}-{size - 1}/{size}")
        if file.etag is not None:
            self.send_header("ETag", file.etag)
        for key, value in file.headers.items():
            self.send_header(key, value)
        if file.chunked:
            self.send_header("Transfer-Encoding", "chunked")
        elif "Content-Length" not in file.headers:
            self.send_header("Content-Length", str(len(rest) if file.announce is None else file.announce))
        self.end_headers()
        cut = file.cuts.pop(0) if file.cuts else None
        if file.stall:
            self.wfile.write(rest[: len(rest) // 2])
            self.wfile.flush()
            time.sleep(file.stall)
        elif file.chunked:
            self.wfile.write(b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (rest[:99], rest[99:]) if part))
            self.wfile.write(b"0\r\n\r\n" if cut is None else b"")
        else:
            self.wfile.write(rest[:cut])
        if cut is not None or file.announce is not None or file.stall or file.headers:
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def running() -> Iterator[Site]:
    handler = type("Own", (Handler,), {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    handler.site = Site(f"http://127.0.0.1:{server.server_port}")
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield handler.site
    finally:
        server.shutdown()
        server.server_close()
