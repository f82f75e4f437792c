"""An interrupt or an error inside `partial_fit`: a batch counts whole or not at all, or nothing more is said."""

import copy
import io
import pickle
import signal
import sys
import threading

import numpy as np
import pytest
from sklearn.base import clone

from tpca import SpikedTensor, TensorPCA
from tpca.errors import BatchError, RunInterrupted, SampleError
from tpca.tensors import DenseBatch

TRUTH = SpikedTensor.random((5, 4, 3), 2.0, random_state=1)
DATA = next(iter(TRUTH.stream(random_state=2, batch_size=600)))
BATCHES = np.split(DATA, [200, 400])
SOLVERS = ["least_squares", "race"]


class Interrupting(io.StringIO):
    """Standard output that acts when a line of `verbose=2` comes, once, between two rounds of a batch."""

    def __init__(self, act):
        super().__init__()
        self._act = act
        self._is_armed = True

    def write(self, text):
        if "sample" in text and self._is_armed:
            self._is_armed = False
            self._act()
        return len(text)


def act_inside_a_batch(solver, act, monkeypatch):
    """Something comes in the middle of the next batch, once: between two rounds, or when its samples were added."""
    if solver == "race":
        monkeypatch.setattr(sys, "stdout", Interrupting(act))
        return
    pieces_of = DenseBatch.stored_pieces

    def interrupting(batch, most):
        yield from pieces_of(batch, most)
        monkeypatch.setattr(DenseBatch, "stored_pieces", pieces_of)
        act()

    monkeypatch.setattr(DenseBatch, "stored_pieces", interrupting)


def press_ctrl_c():
    signal.raise_signal(signal.SIGINT)


def press_ctrl_c_twice():
    signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGINT)


def raise_memory_error():
    raise MemoryError


def started(solver, n_batches):
    pca = TensorPCA(solver=solver, verbose=2, n_resamples=99 if solver == "least_squares" else "auto", random_state=0)
    for batch in BATCHES[:n_batches]:
        pca.partial_fit(batch)
    return pca


def interrupted(solver, act, monkeypatch, n_before=1):
    """An estimator into whose next batch, in the middle of its rounds, something comes; and what was raised."""
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    pca = started(solver, n_before)
    act_inside_a_batch(solver, act, monkeypatch)
    with pytest.raises(BaseException) as raised:  # noqa: PT011
        pca.partial_fit(BATCHES[n_before])
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    return pca, raised


def answer(pca):
    return [pca.n_samples_seen_, *(v.tobytes() for v in pca.components_), pca.strengths_.tobytes()]


@pytest.mark.parametrize("n_before", [0, 1])
@pytest.mark.parametrize("solver", SOLVERS)
def test_ctrl_c_waits_for_the_end_of_the_batch(solver, n_before, monkeypatch):
    pca, raised = interrupted(solver, press_ctrl_c, monkeypatch, n_before)
    assert raised.type is RunInterrupted
    assert f"{200 * (n_before + 1)} samples" in str(raised.value)
    assert copy.deepcopy(pca).n_samples_seen_ == 200 * (n_before + 1)
    for batch in BATCHES[n_before + 1 :]:
        pca.partial_fit(batch)
    assert answer(pca) == answer(started(solver, 3))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("act", [press_ctrl_c_twice, raise_memory_error])
@pytest.mark.parametrize("solver", SOLVERS)
def test_half_a_batch_is_refused_until_a_fresh_fit(solver, act, monkeypatch):
    pca, raised = interrupted(solver, act, monkeypatch)
    assert raised.type in (KeyboardInterrupt, MemoryError)
    for half in (pca, pickle.loads(pickle.dumps(pca)), copy.deepcopy(pca)):
        for use in (
            lambda pca=half: pca.partial_fit(BATCHES[2]),
            lambda pca=half: pca.components_,
            lambda pca=half: pca.n_samples_seen_,
            lambda pca=half: pca.transform(DATA),
            lambda pca=half: pca.summary(),
        ):
            with pytest.raises(BatchError, match=rf"{raised.type.__name__}.*fit.*clone"):
                use()
    whole = clone(pca).fit(DATA)
    assert answer(clone(pca).partial_fit(DATA)) == answer(clone(whole).partial_fit(DATA))
    assert answer(pca.fit(DATA)) == answer(whole)
    assert pca.partial_fit(BATCHES[0]).n_samples_seen_ == 200


@pytest.mark.parametrize("solver", SOLVERS)
def test_an_error_in_the_first_batch_leaves_no_trace(solver, monkeypatch):
    pca, _ = interrupted(solver, raise_memory_error, monkeypatch, n_before=0)
    for batch in BATCHES:
        pca.partial_fit(batch)
    assert answer(pca) == answer(started(solver, 3))


def test_a_function_of_the_user_that_fails_leaves_no_trace():
    def halved(samples):
        if len(samples) == 7:
            raise ZeroDivisionError
        return samples / 2

    pca, whole = (TensorPCA(preprocess=halved, random_state=0).partial_fit(BATCHES[0]) for _ in range(2))
    with pytest.raises(ZeroDivisionError):
        pca.partial_fit(DATA[:7])
    assert answer(pca.partial_fit(BATCHES[1])) == answer(whole.partial_fit(BATCHES[1]))


@pytest.mark.parametrize("solver", SOLVERS)
def test_samples_too_large_for_squares_leave_no_trace(solver):
    pca, whole = (TensorPCA(solver=solver, random_state=0).partial_fit(BATCHES[0]) for _ in range(2))
    large = BATCHES[1].copy()
    large[7, 1, 1, 1] = 1e160
    with pytest.raises(SampleError, match=r"got 1e\+160; multiply by 1e-160"):
        pca.partial_fit(large)
    assert answer(pca.partial_fit(BATCHES[1])) == answer(whole.partial_fit(BATCHES[1]))


def test_batches_of_samples_without_weight_are_taken():
    weights = np.repeat([1.0, 0.0, 2.0], 200)
    pca = TensorPCA(random_state=0)
    for i, batch in enumerate(BATCHES):
        pca.partial_fit(batch, sample_weight=weights[200 * i : 200 * (i + 1)])
    assert answer(pca)[1:] == answer(TensorPCA(random_state=0).fit(DATA, sample_weight=weights))[1:]


@pytest.mark.parametrize("rows", [199, 201])
def test_y_of_another_length_than_its_batch_leaves_no_trace(rows):
    y = np.arange(600.0)
    pca, whole = (TensorPCA(target="effect", random_state=0).partial_fit(BATCHES[0], y[:200]) for _ in range(2))
    with pytest.raises(SampleError, match=rf"200 of them, got {rows}"):
        pca.partial_fit(BATCHES[1], y[200 : 200 + rows])
    assert answer(pca.partial_fit(BATCHES[1], y[200:400])) == answer(whole.partial_fit(BATCHES[1], y[200:400]))


def test_a_handler_of_the_user_is_called_after_the_batch(monkeypatch):
    calls = []
    usual = signal.signal(signal.SIGINT, lambda number, frame: calls.append(number))
    try:
        act_inside_a_batch("least_squares", press_ctrl_c, monkeypatch)
        pca = started("least_squares", 3)
    finally:
        signal.signal(signal.SIGINT, usual)
    assert calls == [signal.SIGINT]
    assert pca.n_samples_seen_ == 600


def test_batches_may_come_in_another_thread():
    pca = TensorPCA(random_state=0)
    thread = threading.Thread(target=pca.partial_fit, args=(DATA,))
    thread.start()
    thread.join()
    assert pca.n_samples_seen_ == 600
