"""What speed rests on, by counts: reads, calls, allocations, threads.  Seconds are for ``make bench``."""

import contextlib
import importlib
import json
import math
import os
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController

from tpca import PaperSolver, RaceSolver, SpikedTensor, TensorPCA
from tpca.engines import LocalEngine
from tpca.solvers import LeastSquares
from tpca.solvers.race.run import RaceRun
from tpca.tensors import DenseBatch
from tpca.threads import calm_blas

DIMS = (5, 4, 6, 3)
ROOT = Path(__file__).parents[2]


def noise(n, dims=DIMS, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal((n, *dims), dtype=dtype)


def blas_threads():
    return {pool["num_threads"] for pool in ThreadpoolController().info() if pool["user_api"] == "blas"}


@pytest.fixture
def two_threads():
    """BLAS with two threads, whatever the environment says; skips where it has but one."""
    with ThreadpoolController().limit(limits=2, user_api="blas"):
        if blas_threads() != {2}:
            pytest.skip("this BLAS has no second thread")
        yield


def test_every_sample_is_added_up_exactly_once_in_a_pass(monkeypatch):
    samples, counted, own = noise(400), [], DenseBatch.add_to
    monkeypatch.setattr(DenseBatch, "add_to", lambda batch, *rest: (counted.append(len(batch)), own(batch, *rest))[1])
    estimate = RaceSolver(random_state=1, groups=1).run(samples)
    assert sum(counted) == estimate.n_samples == 400


def test_a_pushed_sample_asks_no_question_of_its_own(monkeypatch):
    asked = []
    original = RaceRun.ask
    monkeypatch.setattr(RaceRun, "ask", lambda run: (asked.append(1), original(run))[1])
    model, samples = TensorPCA(solver="race", random_state=0), noise(1000)
    for i in range(len(samples)):
        model.partial_fit(samples[i : i + 1])
    # Rounds of 6 % of the samples so far, after some single ones; each is asked for once, and the pending one again.
    assert len(asked) <= math.log(1000) / math.log(1.06) + 20


def test_a_pushed_sample_allocates_no_more_than_a_sum():
    dims = (12,) * 4
    samples = noise(200, dims)
    model = TensorPCA(solver="least_squares", random_state=0)
    for i in range(100):
        model.partial_fit(samples[i : i + 1])
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        model.partial_fit(samples[100:101])
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # What is left behind is the sum of a bin in float64, if one begins; on the way, the sample in float64, weighted.
    assert held - before <= 2 * samples[0].nbytes + 20_000
    assert peak - before <= 3 * 2 * samples[0].nbytes + 50_000


def push(note):
    model = TensorPCA(solver=RaceSolver(random_state=0, callbacks=note))
    for sample in noise(30)[:, None]:
        model.partial_fit(sample)


WORK = {
    "race": lambda note: RaceSolver(random_state=1, callbacks=note).run(noise(60)),
    "squares": lambda note: LeastSquares(random_state=1, callbacks=note).run(noise(60)),
    "paper": lambda note: PaperSolver(callbacks=note, strength=9.0).run(
        SpikedTensor.random((4,) * 4, 9.0, random_state=1).stream(random_state=2)
    ),
    "pushed": push,
}


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("work", WORK.values(), ids=list(WORK))
def test_samples_are_worked_on_with_one_thread(work):
    seen = []
    work((lambda record: seen.append(blas_threads()),))
    assert seen
    assert set().union(*seen) == {1}
    assert blas_threads() == {2}


@pytest.mark.usefixtures("two_threads")
def test_spells_of_one_thread_may_be_nested_and_end_in_errors():
    with calm_blas():
        with contextlib.suppress(ZeroDivisionError), calm_blas():  # an error gives the threads back
            assert blas_threads() == {1}
            raise ZeroDivisionError
        assert blas_threads() == {1}
    assert blas_threads() == {2}
    with pytest.raises(ZeroDivisionError), calm_blas():
        raise ZeroDivisionError
    assert blas_threads() == {2}


@pytest.mark.usefixtures("two_threads")
def test_a_solve_that_ends_last_in_another_thread_gives_the_number_back():
    begun, may_end, seen = threading.Event(), threading.Event(), []

    def solve():
        with calm_blas():
            begun.set()
            may_end.wait(60)
            seen.append(blas_threads())

    thread = threading.Thread(target=solve)
    with calm_blas():
        thread.start()
        assert begun.wait(60)
    may_end.set()
    thread.join()
    assert seen == [{1}]
    assert blas_threads() == {2}


@pytest.mark.slow
def test_fits_in_threads_have_the_bits_of_the_main_thread():
    """In a process whose BLAS has the threads it likes, four fits at a time and one after the other."""
    code = (
        "import warnings, numpy as np\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "from tpca import SpikedTensor, TensorPCA\n"
        "from tpca.threads import _blas_pools\n"
        "warnings.simplefilter('ignore')\n"
        "usual = [pool.num_threads for pool in _blas_pools()]\n"
        "def fit(seed):\n"
        "    truth = SpikedTensor.random((20, 18, 16), 1.0, random_state=seed)\n"
        "    data = next(iter(truth.stream(random_state=seed, batch_size=40)))\n"
        "    fitted = TensorPCA(solver='race' if seed % 2 else 'auto', random_state=0).fit(np.sin(data * seed))\n"
        "    return b''.join(v.tobytes() for v in fitted.components_) + fitted.strengths_.tobytes()\n"
        "alone = [fit(seed) for seed in range(1, 9)]\n"
        "with ThreadPoolExecutor(4) as pool:\n"
        "    assert list(pool.map(fit, range(1, 9))) == alone\n"
        "assert [pool.num_threads for pool in _blas_pools()] == usual\n"
    )
    env = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    subprocess.run([sys.executable, "-c", code], check=True, env=env, timeout=600)


@pytest.mark.parametrize("rows", [60, 400])
def test_least_squares_reads_every_sample_once(rows, tmp_path):
    np.save(tmp_path / "x.npy", noise(rows))
    engine, asked = LocalEngine(str(tmp_path / "x.npy")), []
    usual = engine.reduce
    engine.reduce = lambda blank, n: (asked.append(n), usual(blank, n))[1]
    assert LeastSquares(random_state=1, n_resamples=99).run(engine).n_samples == rows
    assert sum(asked) == rows


@pytest.fixture
def report(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    monkeypatch.delitem(sys.modules, "report", raising=False)
    return importlib.import_module("report")


def test_the_stored_run_is_complete(report):
    stored = json.loads(report.STORED.read_text())
    assert {row["family"] for row in stored["rows"]} == set(report.FAMILIES)
    assert not stored["revision"].endswith("+")
    for row in stored["rows"]:
        assert row["ratio"] is not None or row["note"]  # what is not measured says why
