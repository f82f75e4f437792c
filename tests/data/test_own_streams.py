"""Samples that come as a user's own objects, and readers that hold a bounded number of scores."""

import numpy as np
import pytest

from tpca import RaceSolver, SpikedTensor, TensorPCA, open_stream
from tpca.checkpoint import CheckpointWarning
from tpca.data.base import Stream
from tpca.engines import LocalEngine, is_engine, mean_and_error
from tpca.errors import StreamError
from tpca.tensors import DenseBatch, Rewards

DIMS = (4, 3, 5)
SAMPLES = next(iter(SpikedTensor.random(DIMS, 2.0, random_state=1).stream(random_state=2, batch_size=300)))
CUTS = range(0, len(SAMPLES), 16)


class Least:
    """All that is asked of a user's stream."""

    dims = DIMS

    def batches(self):
        return (DenseBatch(SAMPLES[first : first + 16], first) for first in CUTS)


class Secretive(DenseBatch):
    """A batch that does not say what it holds."""

    content = None


class Talkative(Least):
    """One that says more of itself."""

    length, rereadable, kind, identity, whole = len(SAMPLES), True, "mine", "these", False

    def batches(self, start=0):
        return (Secretive(SAMPLES[first : first + 16], first) for first in CUTS if first >= start)


class Labelled:
    """What other libraries call an array with names of its axes."""

    dims, shape, ndim = ("sample", "x", "y", "z"), SAMPLES.shape, SAMPLES.ndim

    def __array__(self, dtype=None, copy=None):
        return SAMPLES

    def reduce(self, function, dim):
        raise AssertionError("an array is no engine")


def plain():
    return open_stream((SAMPLES[first : first + 16] for first in CUTS), items="batches")


def test_a_stream_needs_no_more_than_dims_and_batches():
    stream = open_stream(Least())
    named = [name for name in {**vars(Stream), **Stream.__annotations__} if not name.startswith("_")]
    assert len(named) >= 13
    assert all(hasattr(stream, name) for name in named)
    assert (stream.dims, stream.length, stream.rereadable, stream.endless) == (DIMS, None, False, False)
    assert open_stream(stream) is stream
    more = open_stream(Talkative())  # what a stream says of itself counts
    assert (more.length, more.rereadable, more.kind, more.identity) == (len(SAMPLES), True, "mine", "these")
    assert not more.whole
    assert TensorPCA(random_state=0).fit(Talkative()).n_samples_seen_ == len(SAMPLES)
    with pytest.raises(StreamError, match="nan_policy='zero' comes too late"):
        open_stream(Least(), nan_policy="zero")


@pytest.mark.parametrize("kind", [Least, Talkative])
def test_a_users_stream_is_fitted_and_scored_like_any_other(kind):
    options = {"solver": RaceSolver(random_state=0, max_passes=1)}
    own, usual = TensorPCA(**options).fit(kind()), TensorPCA(**options).fit(plain())
    # Samples that are not said to come whole are added up in other groups: the same up to rounding.
    for one, other in zip(own.components_, usual.components_, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)
    np.testing.assert_allclose(own.transform(kind()), usual.transform(plain()), atol=1e-11)
    assert own.score(kind()) == pytest.approx(usual.score(plain()), abs=1e-12)


def test_batches_that_do_not_say_what_they_hold_go_on_with_a_warning(tmp_path):
    whole = RaceSolver(random_state=1).run(Talkative())

    def stop(record):
        if record["samples"] > 100:
            raise InterruptedError

    kept = {"random_state": 1, "checkpoint": tmp_path / "kept", "checkpoint_every": 0}
    with pytest.raises(InterruptedError):
        RaceSolver(callbacks=[stop], **kept).run(Talkative())
    with pytest.warns(CheckpointWarning, match=r"cannot be compared .*; make sure that they are the same"):
        again = RaceSolver(resume=True, **kept).run(Talkative())
    assert [v.tobytes() for v in again.vectors] == [v.tobytes() for v in whole.vectors]


def test_an_array_with_named_axes_is_an_array():
    assert not is_engine(Labelled())
    found, expected = (TensorPCA(random_state=0).fit(X) for X in (Labelled(), SAMPLES))
    assert [v.tobytes() for v in found.components_] == [v.tobytes() for v in expected.components_]
    assert found.transform(Labelled()).tobytes() == expected.transform(SAMPLES).tobytes()


@pytest.fixture
def held(monkeypatch):
    """Pieces of 50 rewards; how many were held of each reading."""
    monkeypatch.setattr("tpca.engines.local.PIECE", 50)
    sizes, reduce = [], LocalEngine.reduce

    def counted(self, blank, n=None):
        part = reduce(self, blank, n)
        if isinstance(part, Rewards):
            sizes.append(part.rewards.size)
        return part

    monkeypatch.setattr(LocalEngine, "reduce", counted)
    return sizes


def test_a_score_holds_a_bounded_number_of_rewards(held):
    pca = TensorPCA(random_state=0).fit(SAMPLES)
    score = pca.score(SAMPLES)
    assert held == [50] * 6 + [0]
    rewards = pca.transform(SAMPLES)[:, 0]
    assert float(score) == pytest.approx(rewards.mean(), rel=1e-12)
    assert score.standard_error == pytest.approx(rewards.std(ddof=1) / np.sqrt(len(rewards)), rel=1e-12)


def test_means_and_errors_do_not_cancel():
    """A spread of 1e-6 beside a mean of 1e6: the squares would lose it (1e12 against 1e-12, double has 16 digits)."""
    rows = 1e6 + 1e-6 * np.random.default_rng(0).integers(-50, 50, (1000, 1))
    _, error, _ = mean_and_error(np.array_split(rows, 7), 1)
    assert error[0] == pytest.approx(rows.std(ddof=1) / np.sqrt(1000), rel=1e-3)
