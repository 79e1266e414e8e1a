"""A headless Chromium, if this machine has one: EQUIPOISE_CHROMIUM names it, or it is on the path.

It is driven by the protocol of its own tools, JSON messages that end with a zero byte, through two pipes.
"""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "chromium-headless-shell")
SECONDS = 60


def program() -> str | None:
    """The path of the browser."""
    return os.environ.get("EQUIPOISE_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


class Tab:
    """One page."""

    def __init__(self, write: int, read: int) -> None:
        self.write, self.read, self.rest, self.number = write, read, b"", 0
        self.session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Page.enable")

    def call(self, method: str, **params: Any) -> Any:
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session is not None:
            message["sessionId"] = self.session
        os.write(self.write, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self.number:
            pass
        assert "error" not in answer, answer
        return answer["result"]

    def open(self, path: Path, width: int = 1280) -> None:
        """Show a file, in a window of this width."""
        self.resize(width)
        self.call("Page.navigate", url=path.resolve().as_uri())
        while self._next().get("method") != "Page.loadEventFired":
            pass

    def resize(self, width: int) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False)

    def run(self, script: str) -> Any:
        """The value of an expression of JavaScript in the page. The page's own policy does not apply to it."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def until(self, script: str) -> None:
        """Wait for an expression to be true."""
        for _ in range(20 * SECONDS):
            if self.run(script):
                return
            time.sleep(0.05)
        raise AssertionError(f"it did not become true: {script}")

    def _next(self) -> Any:
        while b"\0" not in self.rest:
            data = os.read(self.read, 1 << 16)
            assert data, "the browser has ended"
            self.rest += data
        message, _, self.rest = self.rest.partition(b"\0")
        return json.loads(message)


@contextmanager
def tab(folder: Path) -> Iterator[Tab]:
    """A tab of a new browser, whose profile is in this folder."""
    browser = program()
    assert browser is not None
    (its_read, write), (read, its_write) = os.pipe(), os.pipe()
    options = f"--headless --no-sandbox --disable-gpu --remote-debugging-pipe --user-data-dir={folder}"
    command = f'exec timeout {SECONDS} "$0" {options} 3<&{its_read} 4>&{its_write}'
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(["bash", "-c", command, browser], pass_fds=(its_read, its_write), **quiet)  # type: ignore[call-overload]
    os.close(its_read)
    os.close(its_write)
    try:
        yield Tab(write, read)
    finally:
        os.close(write)
        process.terminate()
        process.wait()
        os.close(read)
