"""A server that misbehaves at random: a download gives the right file or a readable error, never a wrong file."""

import hashlib
import random
from collections import Counter
from pathlib import Path

from faults.hostile import refused
from lab.data.loopback import running

from equipoise_lab.data.download import Limits, fetch
from equipoise_lab.data.errors import DownloadError

PER_ROUND = 20
CONTROL = "\x1b]0;title\x07\x1b[2J"


def downloads(seed: int, folder: Path) -> Counter[str]:
    chance, counts = random.Random(seed), Counter[str]()
    with running() as site:
        for number in range(PER_ROUND):
            body = chance.randbytes(chance.choice((0, 1, 999, 200_000)))
            served = chance.choice((body, body, body, body[:-1], body + b"x", b"<html>404", body[::-1]))
            behaviour: dict[str, object] = {
                "ranges": chance.random() < 0.7,
                "obey_if_range": chance.random() < 0.7,
                "etag": chance.choice((None, '"first"', "W/weak", "x" * 3000)),
                "statuses": chance.choices((200, 206, 301, 404, 416, 429, 500, 503), k=chance.randrange(3)),
                "cuts": [chance.randrange(len(served) + 1) for _ in range(chance.randrange(3))],
                "announce": chance.choice((None, None, None, 0, len(served) + 1, max(0, len(served) - 1))),
                "chunked": chance.random() < 0.2,
                "location": chance.choice((None,) * 8 + ("/0", "ftp://127.0.0.1/", f"http://{CONTROL}/", "/loop")),
                "reason": chance.choice((None, CONTROL, "x" * 3000)),
                "headers": chance.choice(({},) * 5 + ({"Content-Length": "-5"}, {"Content-Encoding": "gzip"})),
            }
            site.serve("loop", b"", location="/loop")
            url, target = site.serve(str(number), served, **behaviour), folder / f"{number}.data"
            if chance.random() < 0.3:
                target.with_name(f"{target.name}.part").write_bytes(chance.randbytes(chance.choice((1, 500, 300_000))))
            digest = hashlib.sha256(body).hexdigest()
            for _ in range(2):  # the second call continues
                try:
                    fetch(url, target, sha256=digest, limits=Limits(attempts=2, timeout=2.0), sleep=lambda s: None)
                    assert target.read_bytes() == body, f"a wrong file was accepted: {behaviour}"
                    counts["complete"] += 1
                    break
                except DownloadError as error:
                    refused(error)
                    assert not target.exists(), f"a file was left: {behaviour}"
            counts["downloads"] += 1
    return counts
