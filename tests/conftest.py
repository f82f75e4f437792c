import os
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
# research/ is not installed; programs that tests start find it, too.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HERE.parent), os.environ.get("PYTHONPATH")]))

# What is started in the background, as some runners of tests are, ignores Ctrl-C, and so would all that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes is a matter of the machine and of what else it does; no test is about that.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


@pytest.fixture
def rng():
    import numpy as np

    return np.random.default_rng(20240607)


@pytest.fixture
def work(tmp_path):
    """A folder for sources of samples, and what must be closed after use."""
    from stream_suite import Workspace

    workspace = Workspace(tmp_path)
    with workspace.stack:
        yield workspace


@pytest.fixture(scope="module")
def browser():
    """A headless Chromium, where there is one that starts."""
    from browser import Browser, BrowserEndedError, find_browser

    try:
        one = Browser(find_browser())
    except BrowserEndedError:
        pytest.skip(f"{find_browser()} does not start here")
    with one:
        yield one
