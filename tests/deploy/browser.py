"""Headless Chromium, driven over its own debugging protocol: no package beyond tornado is needed."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tornado.websocket import websocket_connect

PATIENCE = 60
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
)


class Page:
    """One tab."""

    def __init__(self, address: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._socket = self._loop.run_until_complete(self._connect(address))
        self._count = 0
        self.requests: list[str] = []
        self.errors: list[str] = []
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    async def _connect(self, address: str) -> Any:
        return await websocket_connect(address, max_message_size=1 << 28)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send one command and return its answer; events that come before it are kept."""
        return self._loop.run_until_complete(asyncio.wait_for(self._call(method, params), PATIENCE))

    async def _call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self._count += 1
        await self._socket.write_message(json.dumps({"id": self._count, "method": method, "params": params}))
        while True:
            said = json.loads(await self._socket.read_message())
            if said.get("id") == self._count:
                assert "error" not in said, said
                return said["result"]
            self._note(said.get("method"), said.get("params"))

    def _note(self, method: str, params: Any) -> None:
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.errors.append(params["exceptionDetails"].get("exception", {}).get("description", "exception"))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(params["entry"]["text"])

    def size(self, width: int, height: int, phone: bool = False) -> None:
        """Set the size of the window in CSS pixels."""
        ratio = 2 if phone else 1
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=ratio, mobile=phone
        )

    def dark(self, dark: bool) -> None:
        """Ask for a dark or a light page."""
        value = "dark" if dark else "light"
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": value}])

    def open(self, url: str) -> None:
        """Go to a page."""
        self.call("Page.navigate", url=url)

    def eval(self, script: str) -> Any:
        """Return the value of an expression in the page."""
        said = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in said, said
        return said["result"].get("value")

    def until(self, script: str, timeout: float = PATIENCE) -> Any:
        """Wait for an expression to become true."""
        end = time.monotonic() + timeout
        while not (value := self.eval(script)):
            assert time.monotonic() < end, (
                f"still not so after {timeout} s: {script}\n{self.eval('document.body.innerText')}"
            )
            time.sleep(0.1)
        return value

    def shot(self, path: Path) -> None:
        """Write a picture of the whole page."""
        found = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(found["data"]))


@contextmanager
def browser() -> Iterator[Page]:
    """Start Chromium with one tab, and end it."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    assert program is not None
    profile = Path(tempfile.mkdtemp(prefix="chromium-"))
    process = subprocess.Popen(
        [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"], stderr=subprocess.DEVNULL
    )
    try:
        end = time.monotonic() + PATIENCE
        port = profile / "DevToolsActivePort"
        while not port.is_file() or not port.read_text().strip():
            assert time.monotonic() < end, "Chromium did not start"
            assert process.poll() is None, "Chromium ended"
            time.sleep(0.1)
        number = port.read_text().split()[0]
        tabs: list[dict[str, Any]] = []
        while not tabs:
            with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{number}/json/list", timeout=5) as answer:
                tabs = [tab for tab in json.load(answer) if tab["type"] == "page"]
            assert time.monotonic() < end, "Chromium has no tab"
            time.sleep(0.1)
        yield Page(tabs[0]["webSocketDebuggerUrl"])
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
        shutil.rmtree(profile, ignore_errors=True)
