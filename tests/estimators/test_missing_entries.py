"""nan_policy="zero": mean, effects and gradients of what was observed, whatever is missing at which rate."""

import math
import warnings

import numpy as np
import pytest
from scipy.stats import binom

import naive
from amounts import few_or_many
from command import run
from tpca import PaperSolver, SpikedTensor, TensorPCA, open_stream
from tpca.engines import LocalEngine
from tpca.errors import SampleError
from tpca.results import read_result
from tpca.solvers.base import StreamSolver
from tpca.streams.conditions import read_conditions
from tpca.streams.contrasts import plans
from tpca.streams.effects import DerivedStream
from tpca.tensors import Observed, SliceCounts, TensorSum

DIMS, N = (6, 5, 4), 300
RATES = np.einsum("i,j,k->ijk", np.linspace(0.25, 1, 6), np.linspace(0.5, 1, 5), np.ones(4))


def units(rng):
    return [v / np.linalg.norm(v) for v in map(rng.standard_normal, DIMS)]


def made(seed, strength, n=N, rates=RATES, background=0.0, y=None):
    """Samples with entries missing at unequal rates, and the vectors of the signal, or of what follows ``y``."""
    rng = np.random.default_rng([seed, 31])
    vectors = units(rng)
    each = np.ones(n) if y is None else y
    samples = np.multiply.outer(each * strength, np.einsum("i,j,k->ijk", *vectors)) + rng.standard_normal((n, *DIMS))
    samples += background * rng.standard_normal(DIMS)
    samples[rng.random(samples.shape) > rates] = np.nan
    return samples, vectors


X, VECTORS = made(0, 3.0)
Y = np.random.default_rng(1).standard_normal(N)
FOLLOWING, FOLLOWED = made(2, 2.0, background=20.0, y=Y)


def fitted(samples=X, y=None, **options):
    target = "mean" if y is None else "effect"
    return TensorPCA(target=target, nan_policy="zero", random_state=0, **options).fit(samples, y)


def overlaps(pca, vectors):
    return [abs(float(c[0] @ v)) for c, v in zip(pca.components_, vectors, strict=True)]


def same_fits(one, other, rtol=0.0):
    np.testing.assert_allclose(one.strength_intervals_, other.strength_intervals_, rtol=rtol)
    for mine, others in zip(one.components_, other.components_, strict=True):
        np.testing.assert_allclose(mine, others, rtol=0, atol=rtol)


def assert_rank_one_of(pca, tensor):
    length, vectors = naive.rank_one(tensor)
    assert abs(pca.recovery_.evidence.value / abs(length) - 1) < 1e-9
    for found, v in zip(pca.components_, vectors, strict=True):
        assert np.abs(found[0] * np.sign(found[0] @ v) - v).max() < 1e-9


def test_the_fit_is_the_rank_one_fit_of_the_mean_over_what_was_observed():
    assert_rank_one_of(fitted(solver="mean", whiten=None, clip=None), np.nanmean(X, axis=0))


def entry_regression(samples, y, blocks, nuisance=None):
    """Coefficient of y for every entry by itself, over the samples in which it was observed."""
    found = np.empty(DIMS)
    for place in np.ndindex(*DIMS):
        there = np.flatnonzero(np.isfinite(samples[(slice(None), *place)]))
        inside = [np.flatnonzero(np.isin(there, block)) for block in blocks]
        extra = None if nuisance is None else nuisance[there]
        own = samples[(there, *place)][:, None]
        found[place] = naive.block_regression(own, y[there], [b for b in inside if len(b)], extra)[0]
    return found


@pytest.mark.parametrize("nuisance", [None, np.random.default_rng(3).standard_normal((N, 1))], ids=["", "nuisance"])
def test_an_effect_is_that_of_least_squares_over_what_was_observed(nuisance):
    samples = FOLLOWING if nuisance is None else FOLLOWING + 30 * nuisance[:, :, None, None]
    pca = TensorPCA(target="effect", nan_policy="zero", random_state=0, solver="mean", whiten=None, clip=None)
    pca.fit(samples, Y, nuisance=nuisance)
    (plan,) = plans(read_conditions("effect", N, Y, nuisance))
    blocks = [np.arange(a, b) for a, b in zip(plan.starts, plan.stops, strict=True)]
    assert_rank_one_of(pca, entry_regression(samples, Y, blocks, nuisance))
    assert min(overlaps(pca, FOLLOWED)) > 0.95
    assert 0.8 < pca.noise_variance_ < 1.25


@pytest.mark.parametrize(("solver", "y"), [("mean", None), ("mean", Y), ("race", None)])
def test_fits_parts_and_files_agree(solver, y, tmp_path):
    samples = X if y is None else FOLLOWING
    np.save(tmp_path / "d.npy", samples)
    options = {"solver": solver} | ({} if y is None else {"block_size": 12})
    stored = fitted(tmp_path / "d.npy", y, **options)
    assert min(overlaps(stored, VECTORS if y is None else FOLLOWED)) > 0.9
    parts = [slice(a, a + 50) for a in range(0, N, 50)]
    poured = fitted((samples[part] for part in parts), y, items="batches", **options)
    fed = TensorPCA(target="mean" if y is None else "effect", nan_policy="zero", random_state=0, items="batches")
    fed.set_params(**options)
    for part in parts:
        fed.partial_fit(samples[part], None if y is None else y[part])
    same_fits(fed, poured, rtol=1e-6)
    # Sums and counts are the same to 1e-9; what the noise is taken for depends on how samples come.
    assert all(abs(a[0] @ b[0]) > 0.99 for a, b in zip(fed.components_, stored.components_, strict=True))


def test_a_race_follows_y_where_entries_are_missing():
    y = np.random.default_rng(10).standard_normal(4000)
    often = np.sqrt(np.sqrt(RATES))  # an entry that is rarely there twice in a block is not seen at such a rate
    samples, vectors = made(11, 3.0, n=4000, background=20.0, y=y, rates=often)
    pca = fitted(samples, y, solver="race")
    assert min(overlaps(pca, vectors)) > 0.95
    # The error of the strength is about 1/(0.8·4000)^(1/2) = 0.02, and a race may end early: ten times as much.
    assert abs(pca.strengths_[0] - 3) < 0.25
    fed = TensorPCA(target="effect", nan_policy="zero", random_state=0, items="batches", solver="race")
    for a in range(0, 4000, 500):
        fed.partial_fit(samples[a : a + 500], y[a : a + 500])
    assert min(overlaps(fed, vectors)) > 0.95
    assert abs(fed.strengths_[0] - 3) < 0.25


@pytest.mark.parametrize("solver", ["mean", "race"])
def test_a_fit_that_was_interrupted_ends_with_the_same_bits(solver, tmp_path):
    class StopError(Exception):
        pass

    calls = []

    def stop(record):
        calls.append(record)
        if len(calls) == 3:
            raise StopError

    kept = {"checkpoint": tmp_path / "kept", "checkpoint_every": 0, "resume": True}
    with pytest.raises(StopError):
        fitted(solver=solver, callbacks=[stop], **kept)
    same_fits(fitted(solver=solver, **kept), fitted(solver=solver))


@pytest.mark.slow
def test_workers_count_as_one_process_does(tmp_path):
    from distributed import Client, LocalCluster

    from tpca.engines import DaskEngine

    np.save(tmp_path / "d.npy", X)
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        for solver in ("mean", "race"):
            there = fitted(DaskEngine(client, open_stream(tmp_path / "d.npy", nan_policy="zero")), solver=solver)
            same_fits(there, fitted(tmp_path / "d.npy", solver=solver))
        np.save(tmp_path / "f.npy", FOLLOWING)
        there = fitted(DaskEngine(client, open_stream(tmp_path / "f.npy", nan_policy="zero")), Y)
        same_fits(there, fitted(tmp_path / "f.npy", Y))


@pytest.mark.parametrize("solver", ["mean", "race"])
def test_a_slice_that_was_never_observed_is_named(solver):
    holed = X.copy()
    holed[:, 2] = np.nan
    pca = fitted(holed, solver=solver)
    assert pca.recovery_.headline == "signal, but nothing is known of what was never observed: entry 2 of mode 0"
    assert pca.components_[0][0, 2] == 0
    assert math.isinf(pca.standard_errors_[0][0, 2])
    assert np.isfinite(np.delete(pca.standard_errors_[0][0], 2)).all()
    np.testing.assert_allclose(pca.observed_rates_[0], np.isfinite(holed).mean(axis=(0, 2, 3)))
    without = [np.delete(VECTORS[0], 2), *VECTORS[1:]]
    without[0] = without[0] / np.linalg.norm(without[0])
    found = [np.delete(pca.components_[0][0], 2), *(c[0] for c in pca.components_[1:])]
    assert min(abs(float(a @ b)) for a, b in zip(found, without, strict=True)) > 0.97
    # What is left of the strength, the error of which is about (1/(0.6 N))^(1/2) = 0.075: six of them.
    assert abs(pca.strengths_[0] - 3 * math.sqrt(1 - VECTORS[0][2] ** 2)) < 0.45


def test_the_command_its_result_and_its_report_name_it_too(tmp_path):
    holed = X.copy()
    holed[:, 2] = np.nan
    np.savez(tmp_path / "d.npz", eeg=holed, dims=["trial", "channel", "time", "band"], channel=list("abcdef"))
    asked = ["--nan-policy", "zero", "--out", "r", "--report", "r.html", "--no-checks"]
    done = run("fit", "d.npz", *asked, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "never observed: c of channel" in " ".join(done.stdout.split())
    assert "never observed: c of channel" in (tmp_path / "r.html").read_text()
    stored = read_result(tmp_path / "r")
    assert stored.vectors[0][0, 2] == 0
    assert math.isinf(stored.errors[0][0, 2])
    assert all(0 < error < 1 for error in stored.summary["components"][0]["error"])  # of what was observed


def test_nothing_missing_changes_nothing():
    complete, _ = made(4, 3.0, rates=np.ones(DIMS))
    for solver in ("mean", "race"):
        same_fits(fitted(complete, solver=solver), TensorPCA(solver, random_state=0).fit(complete), rtol=1e-12)
    assert fitted(complete).recovery_.observed is None
    assert all((rate == 1).all() for rate in fitted(complete).observed_rates_)


def test_amplitudes_are_those_of_least_squares_over_what_was_observed():
    pca = fitted()
    pattern = np.einsum("i,j,k->ijk", *(c[0] for c in pca.components_))
    there = np.isfinite(X)
    expected = np.einsum("nijk,ijk->n", np.where(there, X, 0), pattern) / np.einsum("nijk,ijk->n", there, pattern**2)
    np.testing.assert_allclose(pca.transform(X)[:, 0], expected, rtol=1e-9)
    assert abs(pca.score(X) - 3) < 0.5
    nothing = X.copy()
    nothing[7] = np.nan
    with pytest.raises(SampleError, match="1 samples have no observed entry at all"):
        pca.transform(nothing)


def test_rates_of_slices_undo_rates_of_product_form():
    mean = 1.0 + np.random.default_rng(5).random(DIMS)
    rng = np.random.default_rng(6)
    many = np.where(rng.random((4000, *DIMS)) < RATES, mean, np.nan)
    part = LocalEngine(open_stream(many, nan_policy="zero")).reduce(Observed([TensorSum()], SliceCounts(DIMS)))
    (own,) = part.parts
    # An entry is observed at least 500 times of 4000: its rate is known to 4.2 %, five of these are 21 %; and batches
    # by themselves, the first of which nothing came before, are known to as much again.
    assert np.abs(own.total / part.n / mean - 1).max() < 0.3
    assert abs(np.mean(own.total / part.n / mean) - 1) < 0.02


def test_the_published_algorithm_takes_missing_entries():
    truth = SpikedTensor.random((3,) * 4, 8.0, random_state=1)
    samples = next(iter(truth.stream(random_state=2, batch_size=1600)))
    samples[np.random.default_rng(3).random(samples.shape) < 0.2] = np.nan
    found = PaperSolver(strength=8.0).run(open_stream(samples, nan_policy="zero"))
    assert found.observed is not None
    assert min(truth.overlaps(found.vectors)) > 0.9


def test_slabs_are_counted_as_whole_samples_are(tmp_path, monkeypatch):
    np.save(tmp_path / "d.npy", X)
    options = {"solver": "mean", "whiten": None, "clip": None, "memory_limit": "1MB"}
    whole = fitted(tmp_path / "d.npy", **options)
    monkeypatch.setattr("tpca.streams.stored.SLAB_ENTRIES", 40)
    same_fits(fitted(tmp_path / "d.npy", **options), whole, rtol=1e-6)


def test_labels_of_more_than_two_conditions_are_compared_entry_by_entry():
    codes = np.random.default_rng(7).integers(0, 3, N)
    samples, vectors = made(8, 1.0, background=20.0, y=np.array([-3.0, 0.0, 3.0])[codes])
    pca = fitted(samples, np.array(["a", "b", "c"])[codes])
    assert pca.effects_ == ["between 3 labels"]
    assert min(overlaps(pca, vectors)) > 0.95
    assert [len(rate) for rate in pca.observed_rates_] == list(DIMS)
    exact = np.where(np.isfinite(samples), 7.0 + np.array([-3.0, 0.0, 3.0])[codes][:, None, None, None], np.nan)
    (plan,) = plans(read_conditions("effect", N, np.array(["a", "b", "c"])[codes]))
    part = LocalEngine(DerivedStream(open_stream(exact, nan_policy="zero"), plan)).reduce(TensorSum())
    back = np.tensordot(plan.basis, part.total / part.observed, axes=1)
    # The background cancels; which labels are missing more often by chance, in a third of 300 samples, is 10 to 20 %.
    np.testing.assert_allclose(
        back, np.broadcast_to(np.array([-3.0, 0, 3.0])[:, None, None, None], back.shape), atol=1.5
    )


def test_heavy_tails_are_clipped_where_entries_are_missing_too():
    rng = np.random.default_rng(9)
    vectors = units(rng)
    samples = 2 * np.einsum("i,j,k->ijk", *vectors) + rng.standard_t(2, size=(400, *DIMS))
    samples[rng.random(samples.shape) < 0.3] = np.nan
    pca = fitted(samples)
    assert next(one for one in pca.checks_ if one.name == "tails of entries").meaning.startswith("Heavy tails")
    # Clipped at 1.5 standard deviations, squared errors are about (d-1)·2/(0.7·λ²N) = 1 %: this is ten times as much.
    assert min(overlaps(pca, vectors)) > 0.95


LAWS = {"of product form": lambda rng: RATES, "of any form": lambda rng: rng.uniform(0.2, 1.0, DIMS)}


@few_or_many(8, 800)
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("target", ["mean", "effect"])
def test_missing_entries_make_no_claims(runs, law, target):
    claims = 0
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        n, y = (40, None) if target == "mean" else (100, rng.standard_normal(100))
        samples, _ = made(1000 + seed, 0.0, n=n, rates=LAWS[law](rng), background=0 if y is None else 50)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            claims += fitted(samples, y).n_components_
    # At most 5 % of fits claim: more than 60 of 800 have a chance of 9e-4; where 9.4 % do, they are seen in 97 %.
    assert claims <= binom.isf(1e-3, runs, 0.05)


@few_or_many(8, 60)
@pytest.mark.parametrize("strength", [4.0, 8.0])  # four are far beyond noise, also where one entry in eight is there
@pytest.mark.parametrize("target", ["mean", "effect"])
def test_intervals_cover_where_entries_are_missing(runs, strength, target):
    covered = 0
    for seed in range(runs):
        y = None if target == "mean" else np.random.default_rng(seed).standard_normal(200)
        samples, _ = made(2000 + seed, strength, n=100 if y is None else 200, background=0 if y is None else 50, y=y)
        low, high = fitted(samples, y).strength_intervals_[0]
        covered += low <= strength <= high
    assert covered >= binom.ppf(1e-4, runs, 0.95)  # every interval holds the truth with probability 0.95


@few_or_many(8, 60)
def test_intervals_cover_where_entries_of_smooth_noise_are_missing(runs):
    """What is left of smooth noise is no product of covariances of the modes, and whitening mode by mode is not all."""
    roots = [np.linalg.cholesky(0.9 ** np.abs(np.subtract.outer(np.arange(d), np.arange(d)))) for d in DIMS]
    vectors = [np.sin(math.pi * (np.arange(d) + 0.5) / d) for d in DIMS]
    strength = 20.0  # twenty of the errors of the mean of 100 whole samples along the loudest direction, 0.8 √(D/N)
    signal = strength * np.einsum("i,j,k->ijk", *(v / np.linalg.norm(v) for v in vectors))
    covered = 0
    for seed in range(runs):
        rng = np.random.default_rng([seed, 32])
        samples = signal + np.einsum("ia,jb,kc,nabc->nijk", *roots, rng.standard_normal((100, *DIMS)))
        samples[rng.random(samples.shape) > RATES] = np.nan
        low, high = fitted(samples).strength_intervals_[0]
        covered += low <= strength <= high
    assert covered >= binom.ppf(1e-4, runs, 0.95)  # every interval holds the truth with probability 0.95


def test_solvers_say_who_counts_entries():
    assert [kind.name for kind in StreamSolver.__subclasses__() if kind.counts_entries] == ["mean"]
