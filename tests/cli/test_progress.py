"""How far a fit is, in a terminal and in a log."""

import io
import re

import numpy as np
import pytest
from rich.console import Console

from tpca import RaceSolver, SpikedTensor, TensorCCA, open_stream
from tpca.cli.progress import FitProgress
from tpca.solvers.least_squares.solver import LeastSquares
from tpca.solvers.variation import Variation

TRUTH = SpikedTensor.random((6, 5, 4), 2.0, random_state=1)
SHARED = np.random.default_rng(0).standard_normal(400)
VIEWS = [np.outer(SHARED, np.ones(3)) + np.random.default_rng(i).standard_normal((400, 3)) for i in (1, 2)]
SAMPLES = next(iter(TRUTH.stream(random_state=2, batch_size=300)))
FITS = {
    "race": lambda watch: RaceSolver(max_samples=300, callbacks=[watch]).run(TRUTH.stream(random_state=2)),
    "least squares": lambda watch: LeastSquares(callbacks=[watch]).run(open_stream(SAMPLES)),
    "variance": lambda watch: Variation(callbacks=[watch]).run(open_stream(SAMPLES)),
    "views": lambda watch: TensorCCA(random_state=0, callbacks=[watch]).fit(VIEWS),
}
LAST = {"race": "300/300", "least squares": "1000/1000", "variance": "100/100", "views": "━"}  # samples, or flips


class Clock:
    """Time that passes when it is told to."""

    now = 0.0

    def __call__(self):
        return self.now


@pytest.mark.parametrize("name", FITS)
def test_a_bar_moves_in_a_terminal_and_is_gone_at_the_end_and_a_log_of_a_short_fit_is_empty(name):
    console = Console(file=io.StringIO(), force_terminal=True, width=80, color_system=None, legacy_windows=False)
    watch = FitProgress(False, console)
    with watch.watching(300):
        FITS[name](watch)
        watch._bars.refresh()
        frames = re.split(r"\r|\n", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", console.file.getvalue()))
    assert "━" in frames[-1]
    assert LAST[name] in frames[-1]
    assert max(map(len, frames)) <= 80
    assert console.file.getvalue().endswith("\x1b[2K")  # the last line is wiped
    console = Console(file=io.StringIO())
    watch = FitProgress(False, console, Clock())
    with watch.watching(300):
        FITS[name](watch)
    assert console.file.getvalue() == ""


def test_a_log_has_a_line_with_news_and_one_a_minute():
    console, clock = Console(file=io.StringIO(), width=40), Clock()
    watch = FitProgress(False, console, clock)
    with watch.watching(1000):
        for step in range(1, 201):  # a round a second, five samples each
            clock.now += 1
            known = {"strength": 1.0, "strength_error": 0.25, "found": step >= 150}
            watch({"phase": "search", "samples": 5 * step, **known})
    lines = console.file.getvalue().splitlines()
    assert [line.split()[1] for line in lines] == ["50", "100", "200", "400", "700", "750"]
    assert lines[-1] == "search: 750 of 1,000 samples, 2.5 min, strength 1 ± 0.25, found"
    silent = FitProgress(True, console, clock)
    with silent.watching(10):
        clock.now += 100
        silent({"phase": "search", "samples": 5})
    assert console.file.getvalue().splitlines() == lines
