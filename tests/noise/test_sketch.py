"""The sketch of the noise: pairs by their place, and nothing held."""

import itertools

import numpy as np
import pytest

from noises import coloured, fed, smooth
from tpca.noise import ModeCovariances, QueryGradients, Sketch, Whitening
from tpca.noise.sketch import gradient_bytes, matrix_bytes
from tpca.tensors import DenseBatch, SlabBatch, SparseBatch, ViewsBatch
from tpca.tensors.observed import ScaledDense

DIMS, N = (3, 4, 5), 11
RNG = np.random.default_rng(0)
SAMPLES = RNG.standard_normal((N, *DIMS))
WHITENING = Whitening.of(smooth(DIMS, 0.5))


def grams_of(samples, whitening=None, before=0):
    """Sums over both halves, written as in the formula."""
    sums = [[np.zeros((d, d)) for d in samples.shape[1:]] for _ in (0, 1)]
    for j in range(len(samples) // 2):
        delta = samples[2 * j + 1] - samples[2 * j]
        if whitening is not None:
            delta = np.einsum("ia,jb,kc,abc->ijk", *whitening.matrices, delta)
        delta = delta / np.sqrt(np.mean(delta**2))
        for i, own in enumerate(sums[(j + before) % 2]):
            rows = np.moveaxis(delta, i, 0).reshape(len(own), -1)
            own += rows @ rows.T * len(own) / delta.size
    return [gram for half in sums for gram in half]


def close(found, expected):
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-6, atol=2e-6)  # dozens of numbers of size one, in float32


def added(edges, batch_of=DenseBatch, whitening=None, before=0):
    part = ModeCovariances(whitening, before)
    for start, stop in itertools.pairwise(edges):
        part.add(batch_of(SAMPLES[start:stop]), start)
    return part


def slabs(samples):
    return SlabBatch(
        DIMS, 1, [slice(0, 3), slice(3, 4)], np.arange(len(samples)), lambda i, part: samples[i][:, part].copy()
    )


def sparse(samples):
    sample, *coords = np.nonzero(samples)
    return SparseBatch(np.stack(coords), samples[samples != 0], sample, len(samples), DIMS)


@pytest.mark.parametrize("edges", [(0, N), (0, 1, 2, 3, 4, 7, N), (0, 5, 6, N), tuple(range(N + 1))])
@pytest.mark.parametrize("batch_of", [DenseBatch, slabs, sparse])
@pytest.mark.parametrize("whitening", [None, WHITENING])
def test_pairs_do_not_depend_on_batches(edges, batch_of, whitening):
    part = added(edges, batch_of, whitening, 1)
    part.finish()
    assert (part.n, part.pairs, part.counts) == (N, 5, [2, 3])
    close([gram for half in part.grams for gram in half], grams_of(SAMPLES, whitening, 1))


@pytest.mark.parametrize("cut", range(1, N))
def test_pairs_across_two_parts(cut):
    """Also after the question has gone, as on a cluster."""
    left, right = ModeCovariances(WHITENING), ModeCovariances(WHITENING)
    left.add(DenseBatch(SAMPLES[:cut]), 0)
    right.add(DenseBatch(SAMPLES[cut:]), cut)
    left.forget()
    right.forget()
    left.merge(right)
    left.finish()
    close([gram for half in left.grams for gram in half], grams_of(SAMPLES, WHITENING))


def test_a_signal_leaves_no_trace():
    shifted = ModeCovariances()
    shifted.add(DenseBatch(SAMPLES + 100.0), 0)
    close([gram for half in shifted.grams for gram in half], grams_of(SAMPLES))


@pytest.mark.parametrize("scale", [1e-160, 1e200])
def test_any_scale(scale):
    part, sketch = ModeCovariances(), Sketch(DIMS, np.random.default_rng(0))
    part.add(DenseBatch(SAMPLES * scale), 0)
    close([gram for half in part.grams for gram in half], grams_of(SAMPLES))
    told = [fed(Sketch(DIMS, np.random.default_rng(0)), SAMPLES * s).contrasts.dependence() for s in (1.0, scale)]
    assert told[0].time == pytest.approx(told[1].time, rel=1e-5)
    assert sketch.n == 0


def test_samples_that_are_the_same_say_nothing():
    part = ModeCovariances()
    part.add(DenseBatch(np.ones((4, *DIMS))), 0)
    assert part.pairs == 0


def kurtosis_of(samples, amounts, edges, scaled=False):
    """What batches say of the tails, cut at ``edges``."""
    part = ModeCovariances()
    for a, b in itertools.pairwise(edges):
        batch = DenseBatch(samples[a:b], exposure=amounts[a:b])
        part.add(ScaledDense(batch, [np.arange(1.0, d + 1) for d in DIMS]) if scaled else batch, a)
    return part.tails / part.seen


@pytest.mark.parametrize("scaled", [False, True])
def test_tails_are_those_of_entries_that_both_samples_have(scaled):
    """A signal cancels, whatever is missing, and derived samples hold however much of it.

    8000 pairs of 60 entries, of which 16 to 100 % are in both: 170 000 entries, whose kurtosis of 3 has a standard
    error of (24/170 000)^(1/2) = 0.012; pairs of few entries say less each, and the bound is eight of these.
    """
    rng = np.random.default_rng(11)
    amounts = (rng.random((16000, *DIMS)) < np.linspace(0.4, 1, DIMS[-1])) * rng.uniform(0.5, 2, (16000, 1, 1, 1))
    noise = np.sqrt(amounts) * rng.standard_normal(amounts.shape)
    signal = 30 * amounts * rng.standard_normal(DIMS)
    whole = kurtosis_of(noise + signal, amounts, (0, 16000), scaled)
    assert abs(whole - 3) < 0.1
    assert kurtosis_of(noise + signal, amounts, (0, 1, 2, 777, 16000), scaled) == pytest.approx(whole, rel=1e-9)
    assert kurtosis_of(np.sqrt(amounts) * rng.standard_t(3, amounts.shape), amounts, (0, 16000), scaled) > 5


def test_no_more_than_one_sample_is_held():
    part = added((0, 5, 10, N))
    matrices = 2 * 4 * sum(d * d for d in DIMS)
    assert part.nbytes == matrices + SAMPLES[0].nbytes
    assert all(one.samples.base is None for one in part._last)  # no view of a batch, which would be held with it
    part.finish()
    assert part.nbytes == matrices


def test_of_a_sample_that_waits_only_the_slices_that_are_looked_at_are_held():
    samples = RNG.standard_normal((3, 8, 6, 4))
    part, whole = ModeCovariances(step=2), ModeCovariances(step=2)
    for number in range(3):
        part.add(DenseBatch(samples[number : number + 1]), number)
    whole.add(DenseBatch(samples), 0)
    assert part.nbytes == whole.nbytes == part.gram_bytes + samples[0, ::2].nbytes + samples[0, :, ::2].nbytes
    assert all(np.array_equal(a, b) for a, b in zip(part.grams[0], whole.grams[0], strict=True))


@pytest.mark.parametrize("batch_of", [DenseBatch, slabs, sparse])
def test_gradients_of_every_sample(batch_of):
    vectors = [RNG.standard_normal((2, d)) for d in DIMS]
    part = QueryGradients(vectors)
    part.add(batch_of(SAMPLES), 0)
    a, b, c = vectors
    expected = [
        np.einsum("nabc,rb,rc->nra", SAMPLES, b, c).reshape(N, -1),
        np.einsum("nabc,ra,rc->nrb", SAMPLES, a, c).reshape(N, -1),
        np.einsum("nabc,ra,rb->nrc", SAMPLES, a, b).reshape(N, -1),
    ]
    close([part.rows], [np.concatenate(expected, axis=1)])


def test_gradients_of_views():
    views = [RNG.standard_normal((N, d)) for d in DIMS]
    vectors = [RNG.standard_normal((2, d)) for d in DIMS]
    built = np.einsum("na,nb,nc->nabc", *views)
    parts = [QueryGradients(vectors), QueryGradients(vectors)]
    parts[0].add(ViewsBatch(views), 0)
    parts[1].add(DenseBatch(built), 0)
    close([parts[0].rows], [parts[1].rows])


def test_readings_of_even_length_add_up():
    """Whose turn it is, of the two halves, goes on from reading to reading."""
    close(
        [gram for half in fed(Sketch(DIMS, np.random.default_rng(0)), SAMPLES, (0, 2, 8, 10)).grams for gram in half],
        grams_of(SAMPLES),
    )


def test_a_sketch_of_whitened_data_is_that_of_data_whitened_before():
    rng = np.random.default_rng(1)
    samples = coloured(16, smooth(DIMS, 0.5), rng)
    inside, before = Sketch(DIMS, np.random.default_rng(0), WHITENING), Sketch(DIMS, np.random.default_rng(0))
    before.directions = inside.directions
    fed(inside, samples)
    fed(before, WHITENING.tensor(samples))
    close([g for half in inside.grams for g in half], [g for half in before.grams for g in half])
    assert inside.contrasts.dependence().time == pytest.approx(before.contrasts.dependence().time, rel=1e-5)


def test_bytes():
    """No more than was said, whatever has come so far."""
    for n in (1, 2, 31, 32, 33):
        sketch = fed(Sketch(DIMS, np.random.default_rng(0), WHITENING, 3), RNG.standard_normal((n, *DIMS)))
        assert sketch.nbytes <= gradient_bytes(DIMS, 3, n) + matrix_bytes(DIMS)
