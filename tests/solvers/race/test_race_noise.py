"""The race in noise that is not white, or whose neighbours are alike: what is found, and what is said of it."""

import math

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

from amounts import few_or_many
from noises import coloured, scales, serial, smooth
from research.noise.laws import LAWS
from tpca import RaceSolver, TensorPCA, open_stream
from tpca.inference.whitening import Whitening, map_of
from tpca.solvers.race.noise import Noise, of_data, query_of_data, whitened_answer
from tpca.tensors import Query, RankOne, contract
from tpca.tensors.blocks import Partition, unit

DIMS, CUBE, SHORT = (12, 12, 12), (8, 8, 8), (3, 4, 5)


def outer(vectors):
    return np.einsum("a,b,c->abc", *vectors)


def planted(covariances, rng, n, level=1.5, count=1):
    """Samples with signals of strength ``level`` in the whitened data, and their vectors and strengths."""
    samples = coloured(n, covariances, rng)
    truth = []
    for _ in range(count):
        vectors = [unit(rng.standard_normal(len(c))) for c in covariances]
        white = [np.linalg.solve(np.linalg.cholesky(c), v) for c, v in zip(covariances, vectors, strict=True)]
        truth.append((vectors, level / np.prod([np.linalg.norm(v) for v in white])))
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


def test_handed_in_or_read_and_few_samples_give_no_maps_and_no_crash():
    samples, _ = planted(smooth(DIMS, 0.9), np.random.default_rng(2), 500)
    batches = [samples[start : start + 7] for start in range(0, 500, 7)]
    read = RaceSolver(random_state=1, whiten="modes").run(open_stream(iter(batches), items="batches"))
    pca = TensorPCA(solver="race", random_state=1, whiten="modes")
    for batch in batches:
        pca.partial_fit(batch)
    assert read.found
    assert pca.strengths_[0] == pytest.approx(read.strength, rel=1e-6)
    assert min(overlaps([v[0] for v in pca.components_], read.vectors), 1) > 1 - 1e-9
    for n in (1, 4, 7):
        assert not RaceSolver(whiten="modes").run(np.random.default_rng(0).standard_normal((n, 4, 5, 6))).found


@pytest.mark.parametrize(
    ("dims", "limit"), [(DIMS, 400_000), (CUBE, 150_000), ((30, 40), 2_000_000), ((4, 100), 40_000)]
)
def test_memory_is_kept_and_axes_that_are_too_long_for_it_are_left_as_they_are(dims, limit):
    samples = coloured(150, smooth(dims, 0.9), np.random.default_rng(0))
    found = RaceSolver(random_state=0, memory_limit=limit, whiten="modes").run(samples)
    assert found.state_bytes <= limit
    assert any("1 too long for the memory" in line for line in found.advice) == (dims == (4, 100))


@pytest.mark.parametrize(("phi", "window"), [(0.5, 1), (0.9, 1), (0.0, 10)])
@pytest.mark.slow
def test_neighbours_that_are_alike_are_counted_in_blocks(phi, window):
    """Pure noise that claimed a signal in one of three runs before; one run in twenty may, of which there are 4 here.

    Three claims in as many runs of three laws have a chance of 10^-3.
    """
    claims = 0
    for seed in range(4):
        samples = serial(300, CUBE, np.random.default_rng(seed), phi, window)
        found = RaceSolver(random_state=seed).run(samples)
        claims += found.found
        if (phi, window) != (0.5, 1):  # of which sums of some samples are hardly alike
            assert any("Neighbouring samples are alike" in line for line in found.advice)
    assert claims < 3


def test_a_signal_is_found_where_neighbours_are_alike_and_independent_samples_are_not_taken_for_it():
    """A z-value of 4·√(1500/19) = 36 along the signal, so that blocks of some dozens of samples prove it."""
    rng = np.random.default_rng(1)
    vectors = [unit(rng.standard_normal(8)) for _ in range(3)]
    samples = serial(1500, CUBE, rng, 0.9) + 4 * outer(vectors)
    found = RaceSolver(random_state=0).run(samples)
    assert found.found
    assert overlaps(found.vectors, vectors) > 0.9
    samples = serial(200, CUBE, np.random.default_rng(0), 0.9)
    assert not RaceSolver(random_state=0, groups=40).run(samples).found
    # A strong mean, heavy tails and levels that differ are no dependence; 1 run of 1000 or less may say so.
    rng = np.random.default_rng(4)
    offset = 5 * rng.standard_normal((6, 7, 8))
    for noise in (rng.standard_normal, lambda shape: rng.standard_t(3, shape)):
        found = RaceSolver(random_state=0).run(noise((200, 6, 7, 8)) + offset)
        assert not any("Neighbouring samples are alike" in line for line in found.advice)


def tumours():
    """Mean, error and worst of ten measures of 569 tumours, in their units: areas are most of the noise."""
    return load_breast_cancer().data.reshape(-1, 3, 10)


def mixtures():
    """Fluorescence of 64 mixtures, which differ in little but one pattern."""
    datasets = pytest.importorskip("tensorly.datasets")
    return np.nan_to_num(np.asarray(datasets.load_kinetic().tensor))


@pytest.mark.parametrize("data", [tumours, mixtures])
def test_real_samples_in_random_order_are_independent(data):
    """Their noise has one strong pattern, and their mean is obvious.

    One false alarm in 300 runs was seen: at 1 in 100 more than 2 of 16 have a chance of 5·10⁻⁴.  Before, 4 and 8 of 16.
    """
    X, alarms = data(), 0
    for seed in range(16):
        found = RaceSolver(random_state=seed).run(np.random.default_rng([seed, 5]).permutation(X))
        alarms += any("Neighbouring samples are alike" in line for line in found.advice)
        assert found.found
    assert alarms <= 2


@pytest.mark.parametrize("level", [0.0, 6.0])
@pytest.mark.parametrize("phi", [0.5, 0.8])
def test_a_series_is_seen_with_and_without_a_mean(phi, level):
    """Seen in 20 of 20 runs of each kind; 3 of 4 are missed by chance less than once in 1000 times."""
    seen = 0
    for seed in range(4):
        rng = np.random.default_rng(seed)
        samples = serial(300, CUBE, rng, phi) + level * outer([unit(rng.standard_normal(8)) for _ in range(3)])
        found = RaceSolver(random_state=seed).run(samples)
        seen += any("Neighbouring samples are alike" in line for line in found.advice)
        assert found.found or level == 0 or phi > 0.5
    assert seen >= 3


# Queries and answers about whitened samples -------------------------------------------------------------------------


def whitening(rng):
    """Maps of the first two modes; the third is left as it is."""
    pairs = [map_of(a @ a.T, 10**6) for a in (rng.standard_normal((d, d)) for d in SHORT[:2])]
    return Whitening((*(w for w, _ in pairs), None), (*(inverse for _, inverse in pairs), None))


@pytest.mark.parametrize("partition", [Partition.singles(SHORT), Partition(SHORT, ((2, 0), (1,)))])
def test_an_answer_is_that_about_whitened_samples(partition):
    rng = np.random.default_rng(0)
    maps, sample = whitening(rng), rng.standard_normal(SHORT)
    known = RankOne(0.7, tuple(rng.standard_normal(d) for d in SHORT))
    query = Query(partition, tuple(rng.standard_normal((2, *shape)) for shape in partition.shapes), deflate=(known,))
    found = whitened_answer(maps, query, contract(sample, query_of_data(maps, query)))
    expected = contract(maps(sample[None])[0], query)
    np.testing.assert_allclose(found.rewards, expected.rewards, rtol=1e-9)
    for m, gradient in expected.gradients.items():
        np.testing.assert_allclose(found.gradients[m], gradient, rtol=1e-9)


def test_a_signal_goes_there_and_back_and_errors_come_back_as_small_changes_do():
    rng = np.random.default_rng(1)
    maps, vectors = whitening(rng), [unit(rng.standard_normal(d)) for d in SHORT]
    there = maps(2.0 * outer(vectors)[None])[0]
    white = maps.of_vectors(vectors)
    back, factor, _, _ = of_data(maps, white)
    for v, w in zip(back, vectors, strict=True):
        np.testing.assert_allclose(v, w)
    assert factor * np.linalg.norm(there) == pytest.approx(2.0)
    noise = Noise.__new__(Noise)
    noise.whitening = maps
    assert factor <= noise.factor * (1 + 1e-12)
    # 20 000 draws: standard deviations to 0.5 %, six standard errors 3 %.
    rng = np.random.default_rng(2)
    maps, white = whitening(rng), [unit(rng.standard_normal(d)) for d in SHORT]
    sizes = [1e-4 * rng.uniform(0.5, 2, d) for d in SHORT]
    vectors, factor, errors, relative = of_data(maps, white, sizes)
    drawn, factors = [[] for _ in SHORT], []
    for _ in range(20_000):
        moved = [unit(u + e * rng.standard_normal(len(u))) for u, e in zip(white, sizes, strict=True)]
        there, own, _, _ = of_data(maps, moved)
        factors.append(np.log(own / factor))
        for one, v, w in zip(drawn[:2], there, vectors, strict=False):
            one.append(v - w)
    for one, expected in zip(drawn[:2], errors, strict=False):
        np.testing.assert_allclose(np.std(one, axis=0), expected, rtol=0.03)
    assert np.std(factors) == pytest.approx(relative, rel=0.03)


# Errors, intervals, limits, looks -----------------------------------------------------------------------------------


def planted_in(law, strength, seed):
    """Samples of a random signal in noise of a law, and its vectors."""
    rng = np.random.default_rng(seed)
    vectors = [unit(rng.standard_normal(d)) for d in CUBE]
    return LAWS[law](rng, 300, CUBE) + strength * outer(vectors), vectors


@pytest.mark.parametrize("whiten", [None, "auto"])
@few_or_many(1, 6)
@pytest.mark.slow
def test_errors_and_intervals_hold_in_noise_of_any_kind(whiten, runs):
    """Pooled over five laws.

    24 entries a run, worth about 8 independent ones: six standard errors of sqrt(.05 * .95 / 40) for one run a law,
    of sqrt(.05 * .95 / 240) for six.  Strength: P(X <= 1 of 5) = 3e-5, P(X <= 22 of 30) = 6e-5.
    """
    inside = entries = covered = count = 0
    laws = {"smooth0.9": 12.0, "scales": 40.0, "factors": 6.0, "t3": 2.0, "serial0.5": 2.0}
    for law, strength in laws.items():
        for seed in range(runs):
            samples, vectors = planted_in(law, strength, seed)
            found = RaceSolver(random_state=seed, whiten=whiten).run(samples)
            if not found.found:
                continue
            count += 1
            low, high = found.strength_interval
            covered += low <= strength <= high
            assert found.strength_sequence[0] <= low
            assert found.strength_sequence[1] >= high
            for v, w, e in zip(found.vectors, vectors, found.standard_errors, strict=True):
                inside += int(np.sum(np.abs(np.sign(v @ w) * v - w) <= 1.96 * e))
                entries += len(v)
    assert count >= 3 * runs
    assert abs(inside / entries - 0.95) < 6 * math.sqrt(0.05 * 0.95 / (8 * count))
    assert covered >= {1: 2, 6: 23}[runs] - (5 * runs - count)


@few_or_many(4, 20)
def test_one_slow_direction_is_no_signal_or_one_with_a_doubt(runs):
    """White noise with one direction of amplitude 4 that is AR(0.9).

    Claims without a doubt, at 5 %: P(X >= 4 of 4) = 6e-6, P(X >= 7 of 20) = 3e-5.
    """
    claims = 0
    for seed in range(runs):
        noise = LAWS["slow-direction"](np.random.default_rng(seed), 400, CUBE)
        found = RaceSolver(random_state=seed).run(noise)
        claims += found.found and not any("along the signal" in line for line in found.advice)
    assert claims < {4: 4, 20: 7}[runs]


@pytest.mark.parametrize("law", ["smooth0.9", "resonances"])
@few_or_many(2, 8)
def test_the_limit_holds_in_noise_that_is_not_white(law, runs):
    """A signal as strong as the limit said after noise alone is found, or limited by no less.

    5 % may be denied: P(X >= 2 of 2) = 0.003 and not one was in 60 runs; P(X >= 5 of 8) = 2e-5.
    """
    denied = 0
    for seed in range(runs):
        noise = LAWS[law](np.random.default_rng(seed + 1000), 300, CUBE)
        limit = RaceSolver(random_state=seed, whiten=None).run(noise).strength_interval[1]
        samples, _ = planted_in(law, limit, seed)
        found = RaceSolver(random_state=seed, whiten=None).run(samples)
        denied += not found.found and found.strength_interval[1] < limit
    assert denied < {2: 2, 8: 5}[runs]


@few_or_many(4, 60)
def test_the_race_claims_nothing_in_noise_however_often_one_looks(runs):
    """20 looks each.  If 5 % of the runs ever claimed: P(X >= 12 of 60) = 4e-5, P(X >= 4 of 4) = 6e-6."""
    claims = 0
    for seed in range(runs):
        noise = np.random.default_rng(seed).standard_normal((400, 5, 4, 3))
        pca, found = TensorPCA(solver="race", random_state=seed), False
        for batch in np.array_split(noise, 20):
            found |= pca.partial_fit(batch).found_
        claims += found
        assert "Tested" not in str(pca.summary())
    assert claims < {60: 12, 4: 4}[runs]


def test_the_mean_test_says_how_often_it_was_looked_at():
    noise = np.random.default_rng(0).standard_normal((120, 5, 4, 3))
    pca, once = (TensorPCA(solver="least_squares", random_state=0) for _ in range(2))
    for looks, batch in enumerate(np.array_split(noise, 3), start=1):
        once.partial_fit(batch)
        pca.partial_fit(batch)
        assert (f"Tested {looks} times" in str(pca.summary())) == (looks > 1)
        assert pca.p_values_[0] <= 1  # more of the same look
    assert once.p_values_[0] == pca.p_values_[0]
    assert "Tested" not in str(once.summary())
