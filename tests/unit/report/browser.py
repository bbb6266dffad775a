"""Headless Chromium, driven by its DevTools protocol over a pipe: nothing listens, and no package is needed.

Source: https://chromedevtools.github.io/devtools-protocol/; messages end with a zero byte on descriptors 3 and 4.
"""

import base64
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
DEADLINE_S = 60.0
"""Seconds for an answer, on a machine with much else to do."""
OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--no-first-run",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
)


def chromium() -> str | None:
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """A page. `asked` has the URLs that it wanted, `errors` what went wrong in it."""

    def __init__(self, to: int, answers: int) -> None:
        self._to, self._from = to, answers
        self._number = 0
        self._rest = b""
        self._session: dict[str, str] = {}
        self.asked: list[str] = []
        self.errors: list[str] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = {"sessionId": attached["sessionId"]}
        for domain in "Page", "Network", "Runtime", "Log":
            self._call(f"{domain}.enable")

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters, **self._session}
        os.write(self._to, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + DEADLINE_S
        while (found := self._receive(deadline)).get("id") != self._number:
            self._note(found)
        assert "error" not in found, found
        result: dict[str, Any] = found["result"]
        return result

    def _receive(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            assert time.monotonic() < deadline, "Chromium does not answer"
            data = os.read(self._from, 1 << 20)
            assert data, "Chromium has ended"
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(line)
        return found

    def _note(self, event: dict[str, Any]) -> None:
        found = event.get("params", {})
        match event.get("method"):
            case "Network.requestWillBeSent":
                self.asked.append(found["request"]["url"])
            case "Runtime.exceptionThrown":
                self.errors.append(str(found["exceptionDetails"]))
            case "Log.entryAdded":
                self.errors.append(f"{found['entry']['level']}: {found['entry']['text']}")

    def look(self, *, width: int, height: int, dark: bool = False, phone: bool = False) -> None:
        """The kind of screen, and the theme of the system."""
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height, mobile=phone, deviceScaleFactor=1)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, file: Path, fragment: str = "") -> None:
        """Opens a report and waits until it is drawn."""
        self._call("Page.navigate", url="about:blank")
        self.asked.clear()
        self._call("Page.navigate", url=file.as_uri() + fragment)
        deadline = time.monotonic() + DEADLINE_S
        while not self.run("document.documentElement?.dataset.ready"):
            assert time.monotonic() < deadline, self.errors
            time.sleep(0.02)

    def run(self, code: str) -> Any:
        """The value of an expression in the page."""
        found = self._call("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def press(self, key: str) -> None:
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        codes = {"Enter": 13, "Tab": 9, "ArrowLeft": 37, "ArrowRight": 39}
        for kind in "keyDown", "keyUp":
            more = text if kind == "keyDown" else {}
            code = codes.get(key, 0)
            self._call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **more)

    def screenshot(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        data = self._call("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        file.write_bytes(base64.b64decode(data))


@contextmanager
def browser(program: str, profile: Path) -> Iterator[Browser]:
    commands, to = os.pipe()
    answers, replies = os.pipe()

    def place() -> None:
        for number, descriptor in ((10, commands), (11, replies)):
            os.dup2(descriptor, number)
        os.dup2(10, 3)
        os.dup2(11, 4)

    process = subprocess.Popen(
        [program, *OPTIONS, f"--user-data-dir={profile}", "about:blank"],
        preexec_fn=place,  # noqa: PLW1509
        close_fds=False,
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(commands)
    os.close(replies)
    try:
        yield Browser(to, answers)
    finally:
        os.close(to)
        os.close(answers)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
