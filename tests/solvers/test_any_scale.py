"""Finite numbers of any size: the answer does not depend on the units of the data, and nothing overflows unsaid."""

import functools
import math

import numpy as np
import pytest

from consistent import assert_consistent
from tpca import MeanSolver, RaceSolver, SpikedTensor, TensorPCA, open_stream
from tpca.engines import LocalEngine
from tpca.errors import SampleError, StreamError
from tpca.solvers.loop import drive
from tpca.tensors import DenseBatch, Gradients, contract_all

DIMS = (6, 5, 4)
SOLVERS = [RaceSolver, MeanSolver]
# From the smallest numbers with 44 bits left to those of which a few add up to more than the largest float.
SCALES = [1e-310, 1e-307, 1e-160, 1e150, 1e300, 1e307, 3e307]


@functools.cache
def samples(n=200):
    truth = SpikedTensor.random(DIMS, strength=2.0, random_state=1)
    return next(iter(truth.stream(random_state=2, batch_size=n)))


@functools.cache
def plain(solver, dtype="f8"):
    return solver(random_state=1).run(samples().astype(dtype))


def check_same(found, expected, scale, digits):
    assert_consistent(found)
    assert found.stop_reason is expected.stop_reason
    for v, w in zip(found.vectors, expected.vectors, strict=True):
        np.testing.assert_allclose(v, w, atol=digits)
    assert found.strength / scale == pytest.approx(expected.strength, rel=digits)
    for one, other in zip(found.strength_interval, expected.strength_interval, strict=True):
        assert one / scale == pytest.approx(other, rel=digits)
    for e, f in zip(found.standard_errors, expected.standard_errors, strict=True):
        np.testing.assert_allclose(e, f, atol=digits)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("scale", SCALES)
def test_the_answer_does_not_depend_on_the_scale(solver, scale):
    # Half precision in the race rounds numbers below one in another way where the scale cannot make them one (1e-310).
    check_same(solver(random_state=1).run(scale * samples()), plain(solver), scale, 1e-3 if scale < 1e-308 else 1e-6)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("exponent", [-1000, -7, 40, 1000])
def test_powers_of_two_change_no_bit(solver, exponent):
    found = solver(random_state=1).run(np.ldexp(samples(), exponent))
    assert math.ldexp(found.strength, -exponent) == plain(solver).strength
    for v, w in zip(found.vectors, plain(solver).vectors, strict=True):
        np.testing.assert_array_equal(v, w)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("scale", [1e-40, 1e-30, 1e30, 4e37])
def test_the_answer_does_not_depend_on_the_scale_of_single_precision(solver, scale):
    data = samples().astype("f4") * np.float32(scale)
    check_same(solver(random_state=1).run(data), plain(solver, "f4"), scale, 1e-3)


@pytest.mark.parametrize("solver", SOLVERS)
def test_many_samples_next_to_the_largest_float(solver, tmp_path):
    """Sums of hundreds of samples in one round, from memory and from a file, which is added up in groups."""
    data = 2e307 * np.tile(samples(), (10, 1, 1, 1))
    found = solver(random_state=1).run(data)
    assert_consistent(found)
    assert found.strength / 1e307 == pytest.approx(4.0, rel=0.1)
    np.save(tmp_path / "x.npy", data)
    stored = solver(random_state=1).run(open_stream(tmp_path / "x.npy"))
    assert stored.strength / 1e307 == pytest.approx(4.0, rel=0.1)


@pytest.mark.parametrize("solver", ["race", "mean"])
def test_partial_fit_takes_any_scale(solver):
    pca = TensorPCA(solver=solver, items="batches", random_state=0)
    for batch in np.split(1e307 * samples(), 8):
        pca.partial_fit(batch)
    assert_consistent(pca.recovery_)
    assert pca.strengths_[0] / 1e307 == pytest.approx(2.0, rel=0.1)


@pytest.mark.parametrize("value", [1e70, -1e160, 1e300, 1.7e308])
def test_one_huge_entry_among_ordinary_ones_is_named(value):
    """The race squares what it sees: it refuses what would overflow, in one line with the samples and a way out."""
    data = samples().copy()
    data[50, 1, 2, 3] = value
    with pytest.raises(
        SampleError, match=r"samples (\d+) to (\d+) of this pass hold values that come to about"
    ) as told:
        RaceSolver(random_state=1).run(data)
    first, last = (int(word) for word in str(told.value).split() if word.isdigit())
    assert first <= 50 <= last
    assert "clip them" in str(told.value)
    assert "\n" not in str(told.value)
    assert_consistent(MeanSolver(random_state=1).run(data))  # only adds up: it can say that this is no signal


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("value", [1e300, 1.7e308])
def test_one_huge_entry_in_the_first_samples_does_not_fool_the_scale_estimate(place, value):
    data = samples().copy()
    data[place, 1, 2, 3] = value
    found = RaceSolver(random_state=1).run(data)
    assert found.strength == pytest.approx(2.0, rel=0.1)


def test_what_was_refused_leaves_the_race_as_it_was():
    pca = TensorPCA(solver="race", items="batches", random_state=0)
    pca.partial_fit(samples()[:100])
    before = pca.recovery_
    wild = samples()[100:140].copy()
    wild[:, 0, 0, 0] = 1e200
    with pytest.raises(SampleError, match="come to about"):
        pca.partial_fit(wild)
    pca.partial_fit(samples()[140:])
    assert_consistent(pca.recovery_)
    assert pca.recovery_.n_samples > before.n_samples
    assert pca.strengths_[0] == pytest.approx(2.0, rel=0.1)


def test_numbers_too_small_to_be_scaled_up_are_named():
    with pytest.raises(StreamError, match=r"of size \d\.\de-3\d\d, which is less than floats hold in full; multiply"):
        RaceSolver(random_state=1).run(1e-318 * samples())


def test_a_strength_beyond_the_largest_float_is_named():
    """Every entry fits, and the strength, √D times as large, does not."""
    data = 4e306 * (10.0 + np.random.default_rng(0).standard_normal((100, 6, 5, 4)))
    for solver in SOLVERS:
        with pytest.raises(StreamError, match=r"more than the largest float, 1\.8e\+308; divide the samples"):
            solver(random_state=1).run(data)


@pytest.mark.parametrize("solver", ["mean", "race"])
@pytest.mark.parametrize("dims", [(3, 4), (100, 100), (400, 400), (30, 1000), (70, 20, 70), (66, 66, 5)])
def test_zeros_are_samples_that_are_all_the_same(solver, dims):
    with pytest.raises(StreamError, match="all samples are the same"):
        TensorPCA(solver=solver, random_state=0).fit(np.zeros((8, *dims)))
    direct = {"mean": MeanSolver, "race": RaceSolver}[solver](random_state=0).run(np.zeros((3, *dims)))
    assert not direct.found
    assert not math.isnan(direct.strength_interval[1])


@pytest.mark.parametrize("solver", SOLVERS)
def test_zeros_before_the_first_sample_tell_nothing_of_the_scale(solver):
    data = np.concatenate([np.zeros((20, *DIMS)), 1e307 * samples()])
    found = solver(random_state=1).run(data)
    assert_consistent(found)
    assert found.strength / 1e307 == pytest.approx(2.0 * 200 / 220, rel=0.2)


def test_the_mean_changes_its_unit_when_large_samples_come():
    """The sums so far are brought to the new unit: the same as with the large ones first."""
    data = np.concatenate([samples()[:100], 1e290 * samples()[100:]])
    found = MeanSolver(random_state=1).run(data)
    other = MeanSolver(random_state=1).run(np.concatenate([1e-250 * data[:100], data[100:]]))
    assert_consistent(found)
    assert found.strength_interval == pytest.approx(other.strength_interval, rel=1e-9)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("scale", [2.0**-90, 0.3, 1.0, 2.0**100])
def test_sums_in_units_of_the_answer_have_the_same_bits(dtype, scale):
    data = samples()[:50].astype(dtype)
    run = RaceSolver(random_state=1)
    queries = _scale_estimate_queries(run, data)
    kept = Gradients(queries, scale)
    kept.add(DenseBatch(data))
    kept.finish()
    plain_sum = DenseBatch(data).add_to(None)
    for a, b in zip(kept.answers, contract_all(plain_sum * (scale / len(data)), queries), strict=True):
        np.testing.assert_array_equal(a.rewards, b.rewards)


def _scale_estimate_queries(solver, data):
    from tpca.solvers.race.components import ComponentsRun

    return ComponentsRun(solver, LocalEngine(data)).ask().blank.parts[0].queries


@pytest.mark.parametrize("rounds", [1, 4, 10])
def test_an_interrupted_mean_of_huge_samples_goes_on_with_the_same_bits(rounds, monkeypatch):
    """Also if the groups were read one by one before, and all at once after."""
    from tpca.solvers.mean.run import MeanRun

    data = 1e307 * samples()
    whole = MeanSolver(random_state=1).run(data)
    monkeypatch.setattr("tpca.solvers.mean.run.SHORT", 0)
    engine = LocalEngine(data)
    run = MeanRun(MeanSolver(random_state=1), engine)
    for _ in range(rounds):
        ask = run.ask()
        run.tell(engine.reduce(ask.blank, ask.n))
    monkeypatch.undo()
    again = MeanRun(MeanSolver(random_state=1), engine)
    again.restore(run.state())
    assert drive(again, engine).strength == whole.strength
