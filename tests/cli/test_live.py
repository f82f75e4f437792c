"""Watching a fit: the pace, the words, and the displays, on a terminal and without one."""

import io
import math

import numpy as np
import pytest
from rich.console import Console

from tpca import RaceSolver, SpikedTensor, TensorCCA
from tpca.cli.live import ASCII_BLOCKS, BLOCKS, Bar, Lines, Panel, display_for, sparkline
from tpca.cli.progress import Nothing, Pace, Progress, ProgressCallback, line, thinned


class Clock:
    """Time that passes when it is told to."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def terminal(width=80, encoding="utf-8"):
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, write_through=True)
    return Console(file=file, force_terminal=True, width=width, height=24, legacy_windows=False), raw


def watched(display, clock=None):
    """A race on a planted signal, shown on a display."""
    truth = SpikedTensor.random((6, 5, 4), 2.0, random_state=1)
    watch = ProgressCallback(display, "tpca fit d.npy", clock or Clock())
    with watch.watching(300):
        found = RaceSolver(max_samples=300, callbacks=[watch]).run(truth.stream(random_state=2))
    return watch, found


def test_the_live_view_shows_all_that_is_known():
    for width in (80, 120):
        console, raw = terminal(width)
        watch, found = watched(Panel(console))
        with console.capture() as capture:
            console.print(Panel(console).render(watch.progress))
        text = capture.get()
        for word in (
            "tpca fit d.npy",
            "log evidence",
            "needed",
            "strength",
            "±",
            "(found)",
            "candidate",
            "state",
            "samples",
        ):
            assert word in text, (width, word)
        assert "300 of 300" in text
        assert any(block in text for block in BLOCKS)
        assert "\x1b[" in raw.getvalue().decode()  # drawn in place
        assert all(len(row) <= width for row in _plain(console, watch.progress).splitlines())
        assert found.found
        assert f"{found.strength:.3g}" in text


def test_a_fit_of_views_is_shown_pass_after_pass():
    rng = np.random.default_rng(0)
    shared = rng.standard_normal(400)
    views = [np.outer(shared, np.ones(3)) + rng.standard_normal((400, 3)) for _ in range(2)]
    console, _ = terminal(100)
    watch = ProgressCallback(Panel(console), "tpca fit --views", Clock())
    with watch.watching(None):
        cca = TensorCCA(random_state=0, callbacks=[watch]).fit(views)
    text = _plain(console, watch.progress)
    assert "component 1, judged" in text
    assert f"correlation {cca.correlations_[0]:.3g}" in text
    assert "(found)" in text


def _plain(console, progress):
    flat = Console(file=io.StringIO(), width=console.width, color_system=None)
    flat.print(Panel(flat).render(progress))
    return flat.file.getvalue()


def test_the_live_view_fits_where_letters_are_few():
    console, _ = terminal(60, "ascii")
    watch, _ = watched(Nothing())
    rows = dict(Panel(console)._rows(watch.progress))
    assert not set(rows["log evidence"]) & set(BLOCKS)
    assert set(rows["log evidence"]) & set(ASCII_BLOCKS)


def test_without_a_terminal_there_are_plain_lines_at_intervals():
    clock = Clock()
    console = Console(file=io.StringIO(), width=40)
    display = display_for(console, live=True, quiet=False)
    assert isinstance(display, Lines)
    lines = Lines(console, least=2.0, most=60.0, clock=clock)
    progress = Progress("tpca fit x", total=1000)
    lines.open(progress)
    for step in range(1, 201):  # a round a second, five samples each
        clock.now += 1
        progress.done, progress.evidence, progress.needed, progress.found = 5 * step, 1.0, 6.0, step >= 150
        lines.show(progress)
    text = console.file.getvalue().splitlines()
    assert text[0] == "tpca fit x, 1,000 samples"
    # The first round, every doubling of the samples (8), every minute (at most 3), and when the signal is found.
    assert 9 <= len(text) <= 14, text
    assert all("\x1b" not in row for row in text)
    assert any("750 of 1,000 samples" in row for row in text)
    assert "log evidence 1 of 6 needed" in text[-1]


def test_screens_are_chosen():
    console, _ = terminal()
    assert isinstance(display_for(console, live=True, quiet=False), Panel)
    assert isinstance(display_for(console, live=False, quiet=False), Bar)
    assert isinstance(display_for(console, live=True, quiet=True), Nothing)


def test_the_bar_is_dark_without_a_terminal():
    console = Console(file=io.StringIO())
    watched(Bar(console))
    assert console.file.getvalue() == ""
    console, raw = terminal(100)
    watched(Bar(console))
    assert "300/300" in raw.getvalue().decode()


def test_the_watch_counts_all_passes_and_remembers_the_pace():
    clock = Clock()
    watch = ProgressCallback(Nothing(), "t", clock)
    with watch.watching(100):
        for passes, samples in ((1, 40), (1, 100), (2, 50), (2, 100)):
            clock.now += 1
            watch({"phase": "search", "pass": passes, "component": 0, "samples": samples, "position": samples})
    assert watch.trace == [(40, 1.0), (100, 2.0), (150, 3.0), (200, 4.0)]
    assert watch.progress.phase == "search, pass 2"
    assert watch.seconds == pytest.approx(4.0)


def test_records_of_the_papers_algorithm_are_understood():
    watch = ProgressCallback(Nothing(), "t", Clock())
    watch({"phase": "I.1", "samples": 10, "block": 0, "reward": 0.5, "blocks": ()})
    assert line(watch.progress).startswith("I.1: 10 samples")
    assert "mean reward 0.5" in line(watch.progress)


def test_pace_says_how_long_it_takes():
    clock = Clock()
    pace = Pace(clock)
    for done in (0, 100, 200, 400):
        pace.note(done)
        clock.now += 1
    assert pace.rate == pytest.approx(400 / 3)
    assert 0 < pace.left(1000) < 60
    assert pace.left(400) == 0


def test_small_bars():
    assert sparkline([], 8) == ""
    assert sparkline([0, 7], 8) == "▁█"
    assert sparkline([3, 3, 3], 8) == "▁▁▁"
    assert len(sparkline(list(range(100)), 10)) == 10
    assert thinned(list(range(9)), 4) == [0, 2, 4, 6, 8]
    assert "needed" not in line(Progress("t", evidence=1.0, needed=math.inf))
