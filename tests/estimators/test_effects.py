"""TensorPCA(target="effect"): what follows y, whatever the background, and no more than that."""

import math
import warnings

import numpy as np
import pytest
import zarr
from scipy.stats import binom
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GroupKFold, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline

import naive
from amounts import few_or_many
from tpca import TensorPCA
from tpca.errors import ConditionsWarning, SampleError, SolverError
from tpca.streams.conditions import read_conditions
from tpca.streams.contrasts import plans

DIMS = (6, 5, 4)
N = 300


def units(rng):
    vectors = [rng.standard_normal(d) for d in DIMS]
    return [v / np.linalg.norm(v) for v in vectors]


def made(rng, y, strength, background=50.0):
    """Samples with a background of rank one, far stronger than the effect; and the vectors of the effect."""
    vectors = units(rng)
    effect = strength * np.einsum("i,j,k->ijk", *vectors)
    shared = background * math.sqrt(math.prod(DIMS)) * np.einsum("i,j,k->ijk", *units(rng))
    return shared + y[:, None, None, None] * effect + rng.standard_normal((len(y), *DIMS)), vectors


def overlaps(pca, vectors):
    return [abs(float(c[0] @ v)) for c, v in zip(pca.components_, vectors, strict=True)]


RNG = np.random.default_rng(3)
Y = RNG.standard_normal(N)
X, VECTORS = made(RNG, Y, 2.0)
EXTRA = RNG.standard_normal((N, 1))
# Squared error of a vector (d-1)/(λ²N) = 0.4 %: an overlap below 0.97 is more than ten standard errors away.
CLOSE = 0.97


def effect(**options):
    return TensorPCA(target="effect", random_state=0, **options)


@pytest.mark.parametrize("nuisance", [None, EXTRA])
def test_the_fit_is_the_rank_one_fit_of_the_coefficients_of_brute_force(nuisance):
    samples = X if nuisance is None else X + 30 * EXTRA[:, :, None, None]
    pca = effect(solver="mean", whiten=None, clip=None).fit(samples, Y, nuisance=nuisance)
    (plan,) = plans(read_conditions("effect", N, Y, nuisance))
    blocks = [np.arange(a, b) for a, b in zip(plan.starts, plan.stops, strict=True)]
    length, vectors = naive.rank_one(naive.block_regression(samples, Y, blocks, nuisance))
    assert abs(pca.recovery_.evidence.value / abs(length) - 1) < 1e-9
    for found, v in zip(pca.components_, vectors, strict=True):
        assert np.abs(found[0] * np.sign(found[0] @ v) - v).max() < 1e-9


@pytest.mark.parametrize("solver", ["mean", "race"])
def test_an_effect_is_found_beside_a_large_background(solver):
    n = 300 if solver == "mean" else 6000
    rng = np.random.default_rng(4)
    y = rng.standard_normal(n)
    samples, vectors = made(rng, y, 2.0)
    pca = effect(solver=solver).fit(samples, y)
    assert pca.effects_ == ["y"]
    assert min(overlaps(pca, vectors)) > CLOSE
    # Standard error of the strength about 1/√N = 0.06 at most, and the interval at 0.95; six of them are 0.35.
    assert abs(pca.strengths_[0] - 2) < 0.35
    assert 0.8 < pca.noise_variance_ < 1.25  # of one entry of one sample: thousands of entries, but few blocks
    assert n - 4 <= pca.n_samples_seen_ <= n  # a few at the end may have no contrast
    slope = pca.score(samples, y)
    assert abs(slope - 2) < 6 * slope.standard_error + 0.05
    amplitudes = pca.transform(samples)[:, 0]
    assert abs(np.polyfit(y, amplitudes, 1)[0] - slope) < 1e-9


def claims_and_covered(runs, strength, draw, **fit_options):
    claims = covered = 0
    for seed in range(runs):
        rng = np.random.default_rng([seed, 5])
        y = draw(rng)
        samples, _ = made(rng, y, strength)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pca = TensorPCA(target="effect", random_state=seed, **fit_options).fit(samples, y)
        claims += pca.n_components_
        covered += bool(pca.n_components_) and bool(np.prod(np.sign(pca.strength_intervals_[0] - strength)) <= 0)
    return claims, covered


DRAWS = {
    "numbers": lambda rng: rng.standard_normal(200),
    "rare": lambda rng: (rng.random(200) < 0.2).astype(float),
    "sorted": lambda rng: np.repeat([0.0, 1.0], 100),
}


@few_or_many(8, 60)
@pytest.mark.parametrize("draw", DRAWS)
def test_a_background_alone_makes_no_claims(runs, draw):
    claims, _ = claims_and_covered(runs, 0.0, DRAWS[draw])
    # At most 5 % of fits claim: more than this many of them have a probability below 1e-4.
    assert claims <= binom.isf(1e-4, runs, 0.05)


@few_or_many(8, 60)
@pytest.mark.parametrize("draw", DRAWS)
def test_planted_effects_are_found_and_intervals_cover(runs, draw):
    claims, covered = claims_and_covered(runs, 3.0, DRAWS[draw])
    assert claims == runs  # λ√(N var y) is 17 at least, and noise reaches about 6
    # Every interval holds the truth with probability 0.95, so that the runs that do are binomial: fewer than this many
    # have a probability below 1e-4, which is below 1e-3 for the three kinds of y, few and many runs, together.
    assert covered >= binom.ppf(1e-4, runs, 0.95)


@pytest.mark.parametrize("handed", [False, True])
def test_blocks_that_hold_more_of_the_effect_than_others_make_no_errors(handed):
    """Blocks differ in Σ (y − mean)² by an order of magnitude: their sums differ by that much signal, not by noise."""
    rng = np.random.default_rng(4)
    subjects = np.repeat(np.arange(40), rng.integers(4, 40, 40))
    y = rng.standard_normal(len(subjects)) * np.exp(0.3 * rng.standard_normal(40))[subjects]
    samples, _ = made(rng, y, 2.0, background=5.0)
    pca = effect(solver="mean", whiten=None, clip=None, items="batches" if handed else "auto")
    (pca.partial_fit if handed else pca.fit)(samples, y, groups=subjects)
    low, high = pca.strength_intervals_[0]
    within = y - np.array([y[subjects == s].mean() for s in range(40)])[subjects]
    error = 1 / np.linalg.norm(within)
    # The half width is Student's t of 7 degrees of freedom, 2.36, times an error that is known to 1/√14 = 27 %; where
    # the amount of signal counted as noise it was more than ten times as wide.  A false alarm at 3.2 such errors: 1e-3.
    assert 0.3 * 2.36 * error < (high - low) / 2 < 1.9 * 2.36 * error
    assert low - 4 * error < 2.0 < high + 4 * error


def test_two_labels_are_the_second_less_the_first_also_where_they_are_sorted():
    labels = np.repeat(["rest", "task"], N // 2)
    samples, vectors = made(np.random.default_rng(6), (labels == "task").astype(float), 3.0)
    with pytest.warns(ConditionsWarning, match="task - rest hardly varies among neighbouring samples"):
        pca = effect().fit(samples, labels)
    assert pca.effects_ == ["task - rest"]
    assert min(overlaps(pca, vectors)) > 0.9
    sign = np.prod([np.sign(c[0] @ v) for c, v in zip(pca.components_, vectors, strict=True)])
    assert sign == 1
    with pytest.warns(ConditionsWarning):
        booleans = effect().fit(samples, labels == "task")
    assert booleans.effects_ == ["True - False"]
    np.testing.assert_allclose(booleans.strengths_, pca.strengths_)
    with pytest.raises(SampleError, match="a stream is read once"):
        effect(items="batches").fit(iter([samples]), labels)


@pytest.mark.parametrize("labels", [3, 4, 10])
@pytest.mark.parametrize("step", [1.0, 3.0, 50.0])  # strong effects are no noise along themselves
@pytest.mark.parametrize("sort", [False, True])
def test_labels_are_told_apart_in_any_order_however_strong_their_effect(labels, step, sort):
    rng = np.random.default_rng([labels, int(step)])
    codes = rng.integers(0, labels, N)
    codes = np.sort(codes) if sort else codes
    samples, vectors = made(rng, step * codes.astype(float), 1.0)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        pca = effect().fit(samples, np.array([f"label {code}" for code in codes]))
    assert pca.found_
    assert any("hardly varies among neighbouring" in str(one.message) for one in said) == sort
    assert min(overlaps(pca, vectors)) > 0.95  # (d-1)/(sd²N) is 3 % at most, for sd = 0.8
    # The strength is known to 1/√N = 0.06, and blocks take up to a fifth of the samples' information: five of these.
    assert abs(pca.strengths_[0] - step * codes.std()) < 0.35 + 0.01 * step * codes.std()


def test_blocks_of_all_labels_that_are_no_neighbours_are_told():
    rng = np.random.default_rng(11)
    codes = rng.permutation(np.resize(np.arange(10), 100))
    samples, vectors = made(rng, 3.0 * codes, 1.0)
    with pytest.warns(ConditionsWarning, match=r"effect between 10 labels: .* blocks reach over \d+ of 100 samples"):
        pca = effect().fit(samples, codes.astype(str))
    assert min(overlaps(pca, vectors)) > CLOSE


def test_one_label_that_comes_by_itself_is_dealt_among_the_others():
    rng = np.random.default_rng(12)
    codes = np.concatenate([rng.integers(0, 3, 400), np.full(16, 3)])
    samples, vectors = made(rng, codes.astype(float), 2.0)
    with pytest.warns(ConditionsWarning):
        pca = effect(block_size=8).fit(samples, codes.astype(str))
    assert min(overlaps(pca, vectors)) > CLOSE - 0.02


def test_columns_for_sorted_labels_are_dealt_too():
    codes = np.repeat(np.arange(4), N // 4)
    samples, vectors = made(np.random.default_rng(8), (codes == 2).astype(float), 3.0)
    with pytest.warns(ConditionsWarning, match="hardly varies among neighbouring"):
        pca = effect().fit(samples, np.eye(4)[codes][:, 1:])
    assert pca.effects_ == ["y[1]"]
    assert min(overlaps(pca, vectors)) > CLOSE - 0.05  # half as many samples of either kind


def test_a_strong_effect_in_blocks_of_unequal_contrast_is_not_whitened_away():
    rng = np.random.default_rng(9)
    dose = np.exp(1.5 * rng.standard_normal(N))
    samples, vectors = made(rng, dose, 100.0)
    assert min(overlaps(effect().fit(samples, dose), vectors)) > 0.9999


def test_too_few_samples_for_blocks_of_all_labels_are_told():
    labels = np.resize(list("abcdefgh"), 32)
    with pytest.warns(ConvergenceWarning, match="Fewer than 6 blocks of samples can prove nothing"):
        pca = effect().fit(np.random.default_rng(10).standard_normal((32, *DIMS)), labels)
    assert not pca.found_


def test_more_than_two_labels_give_the_pattern_that_separates_them_most():
    rng = np.random.default_rng(7)
    codes = rng.integers(0, 4, N)
    amplitudes = np.array([-3.0, 0.0, 1.0, 2.0])
    samples, vectors = made(rng, amplitudes[codes], 1.0)
    pca = effect().fit(samples, np.array(["a", "b", "c", "d"])[codes])
    assert pca.effects_ == ["between 4 labels"]
    assert [c.shape[1] for c in pca.components_] == [6, 5, 4]
    assert [e.shape for e in pca.standard_errors_] == [c.shape for c in pca.components_]
    assert [c.shape for c in pca.noise_covariances_] == [(d, d) for d in DIMS]
    assert min(overlaps(pca, vectors)) > CLOSE
    sign = np.prod([np.sign(c[0] @ v) for c, v in zip(pca.components_, vectors, strict=True)])
    # The amplitude of a label is known to about 1/√75 = 0.12: five of these.
    np.testing.assert_allclose(sign * pca.label_amplitudes_[0], amplitudes - amplitudes.mean(), atol=0.6)
    assert abs(pca.strengths_[0] - amplitudes[codes].std()) < 0.3
    score = pca.score(samples, np.array(["a", "b", "c", "d"])[codes])
    assert abs(score - pca.strengths_[0]) < 0.2


def test_every_covariate_has_its_own_test_with_the_others_as_nuisances():
    rng = np.random.default_rng(8)
    both = rng.standard_normal((N, 2)) @ [[1, 0.7], [0, 0.7]]  # correlated: by itself, the second would follow as well
    samples, vectors = made(rng, both[:, 0], 2.0)
    pca = effect().fit(samples, both)
    assert pca.effects_ == ["y[0]"]
    assert [str(one.verdict) for one in pca.recoveries_] == ["signal", "no signal"]
    assert min(overlaps(pca, vectors)) > CLOSE
    assert abs(pca.score(samples, both) - 2) < 0.3
    pca, alone = effect(block_size=12).fit(samples, both), effect(block_size=12)
    alone.fit(samples, both[:, 0], nuisance=both[:, 1])
    np.testing.assert_allclose(alone.strengths_, pca.strengths_)
    poured = effect(items="batches").fit(iter([samples]), both)
    assert poured.effects_ == ["y[0]"]


def test_fit_partial_fit_and_files_agree_for_the_same_blocks(tmp_path):
    whole = effect(block_size=12).fit(X, Y)
    zarr.create_array(str(tmp_path / "d.zarr"), data=X, chunks=(16, *DIMS))
    stored = effect(block_size=12).fit(tmp_path / "d.zarr", Y)
    np.testing.assert_allclose(stored.strength_intervals_, whole.strength_intervals_, rtol=1e-9)
    poured = effect(block_size=12, items="batches").fit((X[a : a + 41] for a in range(0, N, 41)), Y)
    fed = effect(block_size=12, items="batches")
    for a in range(0, N, 17):
        fed.partial_fit(X[a : a + 17], Y[a : a + 17])
    np.testing.assert_allclose(fed.strength_intervals_, poured.strength_intervals_, rtol=1e-6)
    assert (fed.n_samples_seen_, poured.n_samples_seen_) == (N, N)
    for one in (stored, poured, fed):
        # The coefficients are the same to 1e-9; what the noise is taken for depends on how samples come.
        assert all(abs(a[0] @ b[0]) > 0.999 for a, b in zip(one.components_, whole.components_, strict=True))


def test_a_last_block_that_is_not_complete_counts_when_somebody_looks():
    fed = effect(block_size=22, items="batches")
    fed.partial_fit(X[:180], Y[:180])
    assert fed.n_samples_seen_ == 180
    before = fed.recovery_.strength
    fed.partial_fit(X[180:], Y[180:])
    assert fed.recovery_.strength != before
    whole = effect(block_size=22, items="batches").fit(iter([X]), Y)
    np.testing.assert_allclose(fed.recovery_.strength, whole.recovery_.strength, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::tpca.errors.ConditionsWarning")
def test_workers_read_what_one_process_reads(tmp_path):
    import dask.array
    from distributed import Client, LocalCluster

    from tpca.engines import DaskEngine

    zarr.create_array(str(tmp_path / "d.zarr"), data=X, chunks=(16, *DIMS))
    turn = np.argsort(Y)
    for samples, y in ((X, Y), (X[turn], Y[turn])):
        zarr.create_array(str(tmp_path / "d.zarr"), data=samples, chunks=(16, *DIMS), overwrite=True)
        here = effect().fit(tmp_path / "d.zarr", y)
        options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
        with LocalCluster(**options) as cluster, Client(cluster) as client:
            there = effect().fit(DaskEngine(client, tmp_path / "d.zarr"), y)
            lazy = effect().fit(dask.array.from_array(samples, chunks=(50, *DIMS)), y)
        assert here.recovery_.strength == there.recovery_.strength
        assert all(np.array_equal(a, b) for a, b in zip(here.components_, there.components_, strict=True))
        np.testing.assert_allclose(lazy.strengths_, here.strengths_, rtol=1e-6)


def test_groups_are_what_the_evidence_is_made_of():
    rng = np.random.default_rng(9)
    groups = np.repeat([f"s{i:02}" for i in range(20)], 15)
    same, vectors = made(rng, Y, 2.0)
    pca = effect().fit(same, Y, groups=groups)
    assert min(overlaps(pca, vectors)) > CLOSE
    shuffled = rng.permutation(N)
    again = effect().fit(same[shuffled], Y[shuffled], groups=groups[shuffled])
    np.testing.assert_allclose(again.strengths_, pca.strengths_, rtol=0.1)  # groups in another order
    # An effect of another sign in every group, strong in each: no signal across groups, whatever is in one of them.
    signs = np.repeat(np.tile([1.0, -1.0], 10), 15)
    mixed, _ = made(rng, Y * signs, 2.0)
    with pytest.warns(ConvergenceWarning):
        assert str(effect().fit(mixed, Y, groups=groups).verdict_) == "no signal"
    mean = TensorPCA(random_state=0).fit(same, groups=groups)
    assert mean.n_components_ == 1
    with pytest.raises(SolverError, match="say two things"):
        effect(groups=5).fit(X, Y, groups=groups)


@pytest.mark.filterwarnings("ignore:No signal was found")
def test_groups_that_are_too_few_to_prove_anything_are_said():
    with pytest.warns(ConditionsWarning, match="3 of 3 groups say something, and a claim at confidence 0.95 needs 6"):
        effect().fit(X, Y, groups=np.arange(N) // 100)
    with pytest.warns(ConditionsWarning, match="1 of 3 groups say something"):
        effect().fit(X, Y, groups=np.minimum(np.arange(N), 2))  # two of a single sample


def test_groups_that_come_back_are_refused_where_samples_are_read_in_order(tmp_path):
    groups = np.arange(N) % 20
    np.save(tmp_path / "d.npy", X)
    with pytest.raises(SampleError, match="group '0' comes back at sample 20"):
        effect().fit(tmp_path / "d.npy", Y, groups=groups)
    with pytest.raises(SampleError, match="comes back after others"):
        effect(items="batches").fit(iter([X]), Y, groups=groups)
    effect().fit(X, Y, groups=groups)


def test_samples_without_weight_are_as_good_as_left_out():
    weight = np.repeat([1.0, 0.0], N // 2)
    half = TensorPCA(random_state=0).fit(X[: N // 2])
    weighted = TensorPCA(random_state=0).fit(X, sample_weight=weight)
    np.testing.assert_allclose(weighted.strengths_, half.strengths_, rtol=1e-9)
    assert weighted.n_samples_seen_ == half.n_samples_seen_ == N // 2
    twice = effect().fit(X, Y, sample_weight=np.full(N, 2.0))
    np.testing.assert_allclose(twice.strengths_, effect().fit(X, Y).strengths_, rtol=1e-9)


def test_pipelines_cross_validation_and_routing():
    assert "y" not in str(TensorPCA(random_state=0).fit(X, Y).effects_)  # the mean takes no notice of y
    scores = cross_val_score(effect(), X, Y, cv=3)
    assert np.abs(scores - 2).max() < 0.5
    pipeline = make_pipeline(effect(), LinearRegression()).fit(X, Y)
    assert pipeline.score(X, Y) > 0.7  # the amplitude is 2y + noise of one: R² = 0.8
    groups = np.repeat(np.arange(20), 15)
    with config_context(enable_metadata_routing=True):
        routed = clone(effect()).set_fit_request(groups=True, sample_weight=True)
        params = {"groups": groups, "sample_weight": np.ones(N)}
        found = cross_validate(routed, X, Y, cv=GroupKFold(3), params=params)
    assert np.abs(found["test_score"] - 2).max() < 0.5


def test_what_means_nothing_is_refused():
    with pytest.raises(SolverError, match="target must be 'mean', 'effect' or 'variance'"):
        TensorPCA(target="median").fit(X, Y)
    with pytest.raises(SolverError, match="block_size=8 means nothing to target='mean'"):
        TensorPCA(block_size=8).fit(X)
    with pytest.raises(SampleError, match="needs y"):
        effect().fit(X)
    with pytest.raises(SampleError, match="needs y"):
        effect().fit(X, Y).score(X)
    with pytest.raises(SampleError, match="4 labels, and partial_fit takes two"):
        effect(items="batches").partial_fit(X, np.arange(N).astype(str).astype("U1")[np.arange(N) % 4])
    three = np.array(["a", "b", "c"])[np.arange(N) % 3]
    with pytest.raises(SampleError, match="3 labels, and samples that pass by once can be asked for two"):
        effect(items="batches").fit(iter([X]), three)
    fed = effect(items="batches").partial_fit(X, np.where(Y > 0, "b", "a"))
    with pytest.raises(SampleError, match="y has the label 'c', the first samples had 'a' and 'b'"):
        fed.partial_fit(X, np.where(Y > 0, "c", "a"))
    same = effect(items="batches").partial_fit(X, np.ones(N))
    with pytest.raises(SampleError, match="was the same within all"):
        same.recovery_  # noqa: B018
