"""Start-up: a new process each, files in the page cache, compiled code as a first start leaves it."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from suite import Row, interleave, seconds_of

TARGET = 1.5


def process(*command: str) -> Callable[[], float]:
    return lambda: seconds_of(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL))


def rows() -> Iterator[Row]:
    python = sys.executable
    jobs = {"import tpca": process(python, "-c", "import tpca")}
    jobs["tpca --help"] = process(os.fspath(Path(python).parent / "tpca"), "--help")
    floor = process(python, "-c", "import numpy, scipy")
    for name, took in interleave(jobs, floor, repeats=9).items():
        yield took.row(name, 'python -c "import numpy, scipy"', TARGET)
