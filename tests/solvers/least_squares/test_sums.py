"""Sums of one pass: what they are, the same bits however samples come, and memory that does not grow."""

import itertools

import numpy as np
import pytest
from scipy import stats

from tpca.checkpoint import _decode, _encode
from tpca.inference.design import Design, read_design
from tpca.solvers.least_squares.sums import SMALLEST_DIGESTS, Binning, SampleSums
from tpca.tensors import DenseBatch
from tpca.tensors.digests import digests

SMALL, LARGE = (5, 4), (20, 30)  # samples that are added by index, and row by row
BINNINGS = {
    "both": Binning(dealt=16, neighbours=16, stretch=64, samples=8),
    "digests alone": Binning(dealt=64, neighbours=0, stretch=64, samples=8),
    "few": Binning(dealt=32, neighbours=16, stretch=64, samples=8),
    "some": Binning(dealt=128, neighbours=16, stretch=64, samples=8),
    "many": Binning(dealt=1024, neighbours=0, stretch=64, samples=8),
    "as many as samples": Binning(dealt=2048, neighbours=0, stretch=64, samples=8),
    "neighbours alone": Binning(dealt=0, neighbours=32, stretch=56 * 2, samples=8, shortest=7),
}


def batch(X, start=0, stop=None, exposure=None):
    seen = None if exposure is None else exposure[start:stop]
    return DenseBatch(X[start:stop], places=int(start), exposure=seen)


def in_batches(X, edges, binning, design=None, exposure=None):
    """The sums of all samples, batch after batch."""
    sums = SampleSums(design or Design(), binning, goes_on=True)
    for start, stop in itertools.pairwise([0, *edges, len(X)]):
        sums.add(batch(X, start, stop, exposure), start)
    return sums


def by_workers(X, binning, workers, rng, design=None):
    """The same by workers that take neighbouring stretches, merged in some order."""
    design = design or Design()
    whole = SampleSums(design, binning, goes_on=True)
    edges = whole.edges(len(X))
    inner = sorted(rng.choice(edges[1:-1], min(workers - 1, len(edges) - 2), replace=False).tolist())
    parts = []
    for start, stop in itertools.pairwise([0, *inner, len(X)]):
        part = whole.for_worker(None)
        middle = int(rng.integers(start, stop + 1))
        for first, last in ((start, middle), (middle, stop)):
            part.add(batch(X, first, last), first)
        part.close()
        parts.append(part)
    while len(parts) > 1:
        place = int(rng.integers(len(parts) - 1))
        parts[place].merge(parts.pop(place + 1))
    whole.merge(parts[0])
    return whole


def bits(sums):
    """All that is said of samples, as bytes."""
    sums.end_here()
    units = [*sums.dealt_units(), *sums.neighbour_units()]
    arrays = [sums.squares]
    for unit in units:
        arrays += [unit.moments, unit.gram, np.array(unit.count)]
        if unit.entry_grams is not None:
            arrays.append(unit.entry_grams)
    for sample in (*sums.kept_samples(), sums.loudest):
        arrays += [sample.values, sample.columns, np.array(sample.place)]
    return [array.tobytes() for array in arrays], sums.n, sums.smallest_digests.copies(sums.n)


def effect(rng, n):
    y = rng.standard_normal(n)
    return read_design("effect", n, y, rng.standard_normal((n, 1)), rng.uniform(0.5, 2.0, n))


@pytest.mark.parametrize("dims", [SMALL, LARGE])
@pytest.mark.parametrize("binning", BINNINGS.values(), ids=BINNINGS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_same_samples_give_the_same_bits_in_any_batches_and_by_any_workers(dims, binning, dtype, rng):
    n = 1500
    X = (rng.standard_normal((n, *dims)) + 3).astype(dtype)
    design = effect(rng, n)
    expected = bits(in_batches(X, [], binning, design))
    assert bits(in_batches(X, range(1, n), binning, design)) == expected
    for _ in range(3):
        edges = np.sort(rng.choice(n, 20, replace=False))
        assert bits(in_batches(X, edges, binning, design)) == expected
    for workers in (2, 3, 7):
        assert bits(by_workers(X, binning, workers, rng, design)) == expected


@pytest.mark.parametrize("missing", [[4], [4, 90, 91], range(60)])
def test_batches_in_which_nothing_is_missing_have_the_same_bits(missing, rng):
    """Such batches come without what was seen of them."""
    n = 130
    X = rng.standard_normal((n, *LARGE))
    seen = np.ones(X.shape)
    for sample in missing:
        seen[sample, 0, sample % 30] = 0
    binning = Binning(dealt=32, neighbours=16, stretch=64, samples=8, partial=True)
    found = []
    for edges in ([], [5], [3, 4, 5, 6], range(1, n), [64, 92]):
        sums = SampleSums(Design(), binning, goes_on=True)
        for start, stop in itertools.pairwise([0, *edges, n]):
            some = seen[start:stop]
            sums.add(batch(X * seen, start, stop, seen if not some.all() else None), start)
        found.append(bits(sums))
    assert all(one == found[0] for one in found)
    counts = sum(unit.entry_grams[0, 0] for unit in sums.dealt_units())
    assert np.array_equal(counts, seen.sum(axis=0).ravel())


@pytest.mark.parametrize("share", [0.02, 0.3])
@pytest.mark.parametrize("dims", [SMALL, LARGE])
def test_copies_among_the_first_samples_are_dealt_out_by_their_places(share, dims, rng):
    """In any batches; a constant that is 2 % or 30 % of all samples is in no bin more often than others, about."""
    n = 1500
    X = rng.standard_normal((n, *dims))
    X[rng.random(n) < share] = 3.0
    binning = Binning(dealt=256, neighbours=16, stretch=64, samples=8, looks=True)
    expected = bits(in_batches(X, [], binning))
    assert bits(in_batches(X, range(1, n), binning)) == expected
    assert bits(in_batches(X, [250, 256, 257, 1000], binning)) == expected
    sums = in_batches(X, [255], binning)
    sums.end_here()
    counts = np.array([unit.count for unit in sums.dealt_units()])
    assert counts.sum() == n
    assert counts.max() < 25  # a bin has 6 on average; by chance 25 or more in 256 bins once in a million


@pytest.mark.parametrize("stop", [3, 64, 100, 700, 1500])
def test_sums_go_on_from_a_checkpoint_with_the_same_bits(stop, rng):
    X = rng.standard_normal((1500, *LARGE)).astype(np.float32)
    binning = BINNINGS["both"]
    first = in_batches(X[:stop], [], binning)
    question = first.question
    first.question = ()
    again = _decode(*_encode(first))
    again.question = question
    again.add(batch(X, stop), stop)
    assert bits(again) == bits(in_batches(X, [], binning))


@pytest.mark.parametrize("dims", [SMALL, LARGE])
@pytest.mark.parametrize("binning", BINNINGS.values(), ids=BINNINGS)
@pytest.mark.parametrize("missing", [False, True])
def test_totals_are_sums_over_all_samples(dims, binning, missing, rng):
    n = 333
    X = rng.standard_normal((n, *dims)) + 3
    exposure = None
    seen = np.ones(X.shape)
    if missing:
        seen = (rng.random(X.shape) < 0.7).astype(float)
        X *= seen
        exposure = seen
    binning = Binning(**{**vars(binning), "partial": missing})
    design = effect(rng, n)
    z, w = design.rows(np.arange(n))
    flat = X.reshape(n, -1)
    sums = in_batches(X, [100, 101], binning, design, exposure)
    sums.end_here()
    np.testing.assert_allclose(sums.squares, w @ flat**2, rtol=1e-12)
    for units in filter(None, (sums.dealt_units(), sums.neighbour_units())):
        assert sum(unit.count for unit in units) == n
        moments = sum(unit.moments for unit in units)
        np.testing.assert_allclose(moments, (z * w[:, None]).T @ flat, atol=1e-10)
        np.testing.assert_allclose(sum(unit.gram for unit in units), (z * w[:, None]).T @ z, atol=1e-10)
        if missing:
            grams = np.einsum("n,nc,nd,ne->cde", w, z, z, seen.reshape(n, -1))
            np.testing.assert_allclose(sum(unit.entry_grams for unit in units), grams, atol=1e-10)


@pytest.mark.parametrize(("n", "length"), [(10, 1), (16, 1), (17, 2), (64, 4), (250, 16), (257, 32)])
def test_bins_of_neighbours_are_as_long_as_there_are_samples(n, length, rng):
    """At most 16 of them, each twice as long once there would be more; a short last one joins the one before."""
    X = rng.standard_normal((n, *SMALL))
    sums = in_batches(X, [], BINNINGS["both"])
    sums.end_here()
    units = sums.neighbour_units()
    edges = np.cumsum([0, *(unit.count for unit in units)])
    assert all(unit.count == length for unit in units[:-1])
    assert length / 2 <= units[-1].count < 2 * length or len(units) == 1
    for unit, (start, stop) in zip(units, itertools.pairwise(edges), strict=True):
        np.testing.assert_allclose(unit.moments[0], X[start:stop].reshape(stop - start, -1).sum(axis=0), atol=1e-12)


def test_digest_bins_and_kept_samples_are_the_same_in_any_order(rng):
    X = rng.standard_normal((400, *LARGE))
    binning = Binning(dealt=64, neighbours=16, stretch=64, samples=20)
    one = in_batches(X, [], binning)
    other = in_batches(X[rng.permutation(400)], [7, 50], binning)
    for sums in (one, other):
        sums.end_here()
    for mine, theirs in zip(one.dealt_units(), other.dealt_units(), strict=True):
        assert mine.count == theirs.count
        np.testing.assert_allclose(mine.moments, theirs.moments, rtol=0, atol=1e-12)
    for mine, theirs in zip(one.kept_samples(), other.kept_samples(), strict=True):
        assert np.array_equal(mine.values, theirs.values)
    assert np.array_equal(one.loudest.values, other.loudest.values)


def test_digests_are_spread_evenly_whatever_samples_are(rng):
    """Of each kind the bins of 4096 samples, by a test of chi² at 10⁻⁵: of six kinds 6·10⁻⁵ by chance."""
    n, entries = 4096, 700
    one_hot = np.zeros((n, entries))
    one_hot[np.arange(n), rng.permutation(n) % entries] = 1 + np.arange(n) // entries
    kinds = {
        "noise": rng.standard_normal((n, entries)),
        "single": rng.standard_normal((n, entries)).astype(np.float32),
        "counts": rng.poisson(0.05, (n, entries)).astype(np.float64),
        "one entry": one_hot,
        "a level each": np.repeat(rng.permutation(n)[:, None] + 1.0, entries, axis=1),
        "few entries": rng.integers(0, 100_000, (n, 2)).astype(np.float64),
    }
    for name, samples in kinds.items():
        seen = digests(samples)
        bins = np.bincount((seen % np.uint64(64)).astype(int), minlength=64)
        assert stats.chisquare(bins).pvalue > 1e-5, name
        distinct = len(np.unique(samples, axis=0))
        assert len(np.unique(seen)) == distinct, name


def test_digests_do_not_depend_on_neighbours_nor_on_the_sign_of_zero(rng):
    X = rng.integers(-1, 2, (50, 3000)).astype(np.float32)
    expected = digests(X)
    assert np.array_equal(digests(X * np.float32(1) + np.float32(0)), expected)
    assert np.array_equal(np.concatenate([digests(row[None]) for row in X]), expected)
    negative = np.where(X == 0, np.float32(-0.0), X)
    assert np.array_equal(digests(negative), expected)


def test_copies_are_counted_and_share_a_bin(rng):
    X = rng.standard_normal((300, *SMALL))
    X[200:250] = X[0]
    X[250:300] = 0  # nothing was measured: these are dealt out by place
    sums = in_batches(X, [10, 20], BINNINGS["both"])
    sums.end_here()
    assert sums.smallest_digests.copies(300) == 50 + 49
    counts = np.array([unit.count for unit in sums.dealt_units()])
    assert len(counts) == 16
    assert 50 <= counts.max() < 50 + 60


@pytest.mark.parametrize("n", [20, 32, 33, 200])
def test_every_sample_has_a_bin_of_its_own_while_there_are_as_many(n, rng):
    """Of 33 samples in 32 bins about 32 (1 - exp(-33/32)) = 20.6 are used, give or take 2.4; at most 32."""
    X = rng.standard_normal((n, *LARGE))
    sums = in_batches(X, [5, 19], BINNINGS["few"])
    sums.end_here()
    counts = [unit.count for unit in sums.dealt_units()]
    assert sum(counts) == n
    if n <= 32:
        assert counts == [1] * n
    else:
        assert 8 < len(counts) <= 32


@pytest.mark.parametrize("dims", [SMALL, LARGE])
def test_what_is_held_does_not_grow_with_the_samples(dims, rng):
    X = rng.standard_normal((2048, *dims))
    sums = SampleSums(Design(), BINNINGS["both"], goes_on=True)
    held = []
    for number in range(16):
        sums.add(DenseBatch(X + number, places=2048 * number), 0)
        assert len(sums.stretches) <= 3
        held.append(sums.nbytes)
    waiting = 2 * 8 * SMALLEST_DIGESTS  # digests that were not sorted in yet, and were
    assert max(held[8:]) <= max(held[:8]) + waiting


def test_a_sample_that_is_not_finite_is_named(rng):
    X = rng.standard_normal((20, *LARGE))
    X[13, 2, 2] = np.nan
    sums = SampleSums(Design(), BINNINGS["both"], goes_on=True)
    with pytest.raises(ValueError, match="sample 13 contains NaN"):
        sums.add(DenseBatch(X, unchecked=0), 0)
