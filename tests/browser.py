"""A headless Chromium, driven over its debugging pipe: no driver and no package besides the browser is needed.

Messages are JSON, ended by a zero byte, written to the browser's file descriptor 3 and read from its 4
(``--remote-debugging-pipe``, the DevTools protocol).
"""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
LONG = 120.0  # only a browser that hangs is given up on: a busy machine decides nothing


def find_browser():
    """The path of a Chromium, or None."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class BrowserEndedError(Exception):
    """There is a browser, but it does not run, or no longer."""


class Browser:
    """One tab of a Chromium; all that goes wrong in a page is kept in ``troubles``."""

    def __init__(self, path):
        self.troubles, self.requests = [], []
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_browser, self._out = _pipe()
        self._in, from_browser = _pipe()
        command = [path, "--headless=new", "--remote-debugging-pipe", f"--user-data-dir={self._folder.name}"]
        command += ["--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars"]
        command += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
        command += ["--no-sandbox"]  # root has none, many containers allow none, and the page is our own
        self._process = subprocess.Popen(
            [*_with_descriptors(to_browser, from_browser), *command, "about:blank"],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._left, self._number, self._session = b"", 0, None
        try:
            self._attach()
        except BaseException:
            self.__exit__()
            raise

    def _attach(self):
        pages = self.call("Target.getTargets")["targetInfos"]
        page = next(target for target in pages if target["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._out)
        os.close(self._in)
        self._folder.cleanup()

    def call(self, method, **params):
        """Send a command and wait for its answer."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        try:
            os.write(self._out, json.dumps(message).encode() + b"\0")
        except BrokenPipeError:
            raise BrowserEndedError from None
        deadline = time.monotonic() + LONG
        while True:
            answer = self._next(deadline)
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self._note(answer)

    def run(self, expression):
        """The value of a JavaScript expression, a promise awaited."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, expression):
        """Wait until an expression is true."""
        deadline = time.monotonic() + LONG
        while not self.run(f"Boolean({expression})"):
            assert time.monotonic() < deadline, f"waited in vain for {expression}; troubles: {self.troubles}"
            time.sleep(0.03)

    def open(self, url, width=1100, height=900, dark=False, phone=False):
        """Load a page in a window of this size, and wait until it is there."""
        self.troubles.clear()
        self.requests.clear()
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete'")

    def picture(self, path):
        """A screenshot of the whole page."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def _next(self, deadline):
        while b"\0" not in self._left:
            ready, _, _ = select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, "the browser does not answer"
            more = os.read(self._in, 1 << 16)
            if not more:
                raise BrowserEndedError
            self._left += more
        message, self._left = self._left.split(b"\0", 1)
        return json.loads(message)

    def _note(self, event):
        method, params = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.troubles.append(params["exceptionDetails"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.troubles.append(params["args"])
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.troubles.append(params["entry"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])


def _pipe():
    """A pipe whose ends are not among the numbers that the browser expects."""
    low = os.pipe()
    ends = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in low]
    for end in low:
        os.close(end)
    return ends


def _with_descriptors(to_browser, from_browser):
    """A step in between that gives the browser its pipes under the numbers it expects; a shell cannot count so far."""
    code = f"import os, sys; os.dup2({to_browser}, 3); os.dup2({from_browser}, 4); os.execv(sys.argv[1], sys.argv[1:])"
    return [sys.executable, "-S", "-c", code]
