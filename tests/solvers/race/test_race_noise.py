"""The race in noise that is not white, or whose neighbours are alike."""

import numpy as np
import pytest

from noises import coloured, scales, serial, smooth
from tpca import RaceSolver, TensorPCA, open_stream
from tpca.errors import SolverError
from tpca.tensors.blocks import unit

DIMS = (12, 12, 12)


def outer(vectors):
    return np.einsum("a,b,c->abc", *vectors)


def planted(covariances, rng, n, level=1.5, count=1):
    """Samples with signals of strength ``level`` in the whitened data, and their vectors and strengths."""
    samples = coloured(n, covariances, rng)
    truth = []
    for _ in range(count):
        vectors = [unit(rng.standard_normal(len(c))) for c in covariances]
        lengths = [
            np.linalg.norm(np.linalg.solve(np.linalg.cholesky(c), v)) for c, v in zip(covariances, vectors, strict=True)
        ]
        truth.append((vectors, level / np.prod(lengths)))
        samples += truth[-1][1] * outer(vectors)
    return samples, truth


def overlaps(found, vectors):
    return min(abs(float(v @ w)) for v, w in zip(found, vectors, strict=True))


@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize("law", ["smooth", "scales"])
def test_a_signal_in_noise_that_is_not_white(law, once):
    """Hidden under directions of the noise that are up to 7000 times as loud; without whitening it is never found.

    In whitened data vectors have a squared error of 11/(400 · 1.5²) = 0.012, overlaps above 0.98; in the data loud
    directions hide more.  A strength is known to a fifth or better where noise is smooth.
    """
    rng = np.random.default_rng(5)
    covariances = smooth(DIMS, 0.9) if law == "smooth" else scales(DIMS, rng)
    samples, [(vectors, strength)] = planted(covariances, rng, 700)
    source = open_stream(iter([samples]), items="batches") if once else samples[:450]
    found = RaceSolver(random_state=1, whiten="modes").run(source)
    assert found.found
    assert found.n_samples == len(samples if once else samples[:450])
    assert any("Whitened axis by axis" in line for line in found.advice)
    roots = [np.linalg.cholesky(c) for c in covariances]
    seen, true = (
        [unit(np.linalg.solve(r, v)) for r, v in zip(roots, vs, strict=True)] for vs in (found.vectors, vectors)
    )
    assert overlaps(seen, true) > 0.95
    assert found.strength == pytest.approx(strength, rel=0.5)
    low, high = found.strength_interval
    assert low < found.strength < high
    assert all(np.linalg.norm(e) < 0.7 for e in found.standard_errors)


def test_noise_is_left_alone_unless_whitening_is_asked_for():
    """A strong pattern in smooth noise: what is found is the pattern of the data, and no check says otherwise."""
    rng = np.random.default_rng(3)
    vectors = [unit(rng.standard_normal(12)) for _ in range(3)]
    samples = coloured(300, smooth(DIMS, 0.9), rng) + 30 * outer(vectors)
    plain, auto = (RaceSolver(random_state=1, whiten=w).run(samples) for w in (None, "auto"))
    assert overlaps(plain.vectors, vectors) > 0.95
    assert not any("hitened" in line for line in plain.advice)
    for v, w in zip(plain.vectors, auto.vectors, strict=True):
        np.testing.assert_array_equal(v, w)


def test_two_components():
    rng = np.random.default_rng(0)
    samples, truth = planted(smooth(DIMS, 0.8), rng, 700, 2.0, 2)
    found = RaceSolver(random_state=0, n_components=2, whiten="modes").run(samples)
    assert len(found.components) == 2
    for vectors, _ in truth:
        assert max(overlaps(one.vectors, vectors) for one in found.components) > 0.8


def test_handed_in_or_read():
    samples, _ = planted(smooth(DIMS, 0.9), np.random.default_rng(2), 500)
    batches = [samples[start : start + 7] for start in range(0, 500, 7)]
    read = RaceSolver(random_state=1, whiten="modes").run(open_stream(iter(batches), items="batches"))
    pca = TensorPCA(solver="race", random_state=1, whiten="modes")
    for batch in batches:
        pca.partial_fit(batch)
    assert read.found
    assert pca.strengths_[0] == pytest.approx(read.strength, rel=1e-6)
    assert min(overlaps([v[0] for v in pca.components_], read.vectors), 1) > 1 - 1e-9


@pytest.mark.parametrize("stop", [1, 2, 12, 20])
def test_an_interrupted_race_goes_on_with_the_same_bits(stop, tmp_path):
    """Right after the maps were learnt, and later."""
    samples, _ = planted(smooth(DIMS, 0.9), np.random.default_rng(2), 300)
    whole = RaceSolver(random_state=1, whiten="modes").run(samples)

    class StoppedError(Exception):
        pass

    def solver(resume):
        return RaceSolver(random_state=1, whiten="modes", checkpoint=tmp_path, checkpoint_every=0, resume=resume)

    rounds = []

    def stopping(_):
        rounds.append(1)
        if len(rounds) == stop:
            raise StoppedError

    first = solver(False)
    first.callbacks = (stopping,)
    with pytest.raises(StoppedError):
        first.run(samples)
    again = solver(True).run(samples)
    assert again.strength == whole.strength
    for v, w in zip(again.vectors, whole.vectors, strict=True):
        np.testing.assert_array_equal(v, w)


@pytest.mark.parametrize(("dims", "limit"), [((12, 12, 12), 400_000), ((8, 8, 8), 150_000), ((30, 40), 2_000_000)])
def test_memory_is_kept(dims, limit):
    samples = coloured(150, smooth(dims, 0.9), np.random.default_rng(0))
    found = RaceSolver(random_state=0, memory_limit=limit, whiten="modes").run(samples)
    assert found.state_bytes <= limit


def test_axes_that_are_too_long_for_the_memory_are_left_as_they_are():
    samples = coloured(80, smooth((4, 100), 0.9), np.random.default_rng(0))
    found = RaceSolver(memory_limit=40_000, whiten="modes").run(samples)
    assert found.state_bytes <= 40_000
    assert any("1 too long for the memory" in line for line in found.advice)


def test_few_samples_give_no_maps_and_no_crash():
    for n in (1, 4, 7):
        assert not RaceSolver(whiten="modes").run(np.random.default_rng(0).standard_normal((n, 4, 5, 6))).found


@pytest.mark.parametrize(("phi", "window"), [(0.5, 1), (0.9, 1), (0.0, 10)])
@pytest.mark.slow
def test_neighbours_that_are_alike_are_counted_in_blocks(phi, window):
    """Pure noise that claimed a signal in one of three runs before; one run in twenty may, of which there are 4 here.

    Three claims in as many runs of three laws have a chance of 10^-3.
    """
    claims = 0
    for seed in range(4):
        samples = serial(300, (8, 8, 8), np.random.default_rng(seed), phi, window)
        found = RaceSolver(random_state=seed).run(samples)
        claims += found.found
        if (phi, window) != (0.5, 1):  # of which sums of some samples are hardly alike
            assert any("Neighbouring samples are alike" in line for line in found.advice)
    assert claims < 3


def test_a_signal_is_found_where_neighbours_are_alike():
    """A z-value of 4·√(1500/19) = 36 along the signal, so that blocks of some dozens of samples prove it."""
    rng = np.random.default_rng(1)
    vectors = [unit(rng.standard_normal(8)) for _ in range(3)]
    samples = serial(1500, (8, 8, 8), rng, 0.9) + 4 * outer(vectors)
    found = RaceSolver(random_state=0).run(samples)
    assert found.found
    assert overlaps(found.vectors, vectors) > 0.9


def test_independent_samples_are_not_taken_for_alike():
    """A strong mean, heavy tails and levels that differ are no dependence; 1 run of 1000 or less may say so."""
    rng = np.random.default_rng(4)
    offset = 5 * rng.standard_normal((6, 7, 8))
    for noise in (rng.standard_normal, lambda shape: rng.standard_t(3, shape)):
        found = RaceSolver(random_state=0).run(noise((200, 6, 7, 8)) + offset)
        assert not any("Neighbouring samples are alike" in line for line in found.advice)


def test_groups_that_are_known():
    samples = serial(200, (8, 8, 8), np.random.default_rng(0), 0.9)
    assert not RaceSolver(random_state=0, groups=40).run(samples).found
    with pytest.raises(SolverError, match="groups"):
        RaceSolver(groups=0)


def test_what_whiten_may_be():
    with pytest.raises(SolverError, match="whiten must be 'auto', 'modes' or None, got 'rows'"):
        RaceSolver(whiten="rows")
