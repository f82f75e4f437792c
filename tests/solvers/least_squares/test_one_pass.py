"""One pass: the same samples in the same order give the same bits, however they come; in another order to rounding."""

import subprocess
import sys
import time

import numpy as np
import pytest
import zarr

from tpca import TensorPCA
from tpca.engines import DaskEngine

DIMS, N = (12, 6, 5), 400
RNG = np.random.default_rng(0)
Y = RNG.standard_normal(N)
X = RNG.standard_normal((N, *DIMS)) + np.multiply.outer(Y, RNG.standard_normal(DIMS)) + 1
GIVEN = {
    "mean": {},
    "effect": {"y": Y, "nuisance": RNG.standard_normal((N, 2)), "sample_weight": RNG.uniform(0.5, 2, N)},
    "labels": {"y": np.array(["a", "b", "c"])[RNG.integers(0, 3, N)]},
    "groups": {"groups": RNG.integers(0, 20, N)},
}
OPTIONS = {"random_state": 0, "n_resamples": 49}
BATCHINGS = {
    "one by one": range(1, N),
    "of 37 samples": range(37, N, 37),
    "uneven": [5, 6, 200, 333],
}


def estimator(case, **options):
    target = "effect" if "y" in GIVEN[case] else "mean"
    return TensorPCA(2, target=target, **OPTIONS, **options)


def fitted(source, case, **options):
    return estimator(case, **options).fit(source, **GIVEN[case])


def handed_in(case, edges):
    """The same by partial_fit, in batches that end at the edges."""
    pca = estimator(case)
    known = {}
    if case == "labels":
        known["classes"] = ["a", "b", "c"]
    for rows in np.split(np.arange(N), edges):
        given = {name: values[rows] for name, values in GIVEN[case].items()}
        pca.partial_fit(X[rows], **given, **known)
        known = {}
    return pca


def in_turn():
    """Samples that pass by once."""
    for rows in np.split(np.arange(N), [1, 50, 51, 300]):
        yield X[rows]


def bits(pca):
    """Vectors, errors, p-values, and all that comes from them, as bytes."""
    result = pca.result_
    arrays = [*result.vectors, *result.errors, result.null_distribution, result.entry_p_values]
    arrays += [pca.p_values_, pca.strengths_, pca.strength_intervals_]
    return [array.tobytes() for array in arrays], result.n_units, repr(result.components)


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    place = tmp_path_factory.mktemp("stores")
    np.save(place / "x.npy", X)
    zarr.create_array(place / "x.zarr", data=X, chunks=(17, *DIMS))
    return place


@pytest.fixture(scope="module")
def cluster():
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(2, threads_per_worker=1, processes=True, dashboard_address=":0") as cluster:
        yield cluster


@pytest.mark.parametrize("case", ["mean", "effect", "groups", pytest.param("labels", marks=pytest.mark.slow)])
def test_the_bits_are_the_same_however_samples_come(case, stores, cluster, tmp_path, monkeypatch):
    """An array, files, what passes by once, batches of any size, one and two workers, a killed process that goes on."""
    expected = bits(fitted(X, case))
    found = {"npy": fitted(stores / "x.npy", case), "Zarr": fitted(stores / "x.zarr", case)}
    if case == "mean":
        found["what passes by once"] = fitted(in_turn(), case, max_samples=N)
    if case in ("mean", "effect"):
        found["killed"] = killed_and_gone_on(stores / "x.npy", case, tmp_path)
    for name, edges in BATCHINGS.items():
        found[f"partial_fit, {name}"] = handed_in(case, edges)
    with cluster.get_client() as client:
        found["two workers"] = fitted(DaskEngine(client, stores / "x.zarr"), case)
        only = [next(iter(client.scheduler_info()["workers"]))]
        submit = client.submit
        monkeypatch.setattr(client, "submit", lambda *args, **kw: submit(*args, **{**kw, "workers": only}))
        found["one worker"] = fitted(DaskEngine(client, stores / "x.zarr"), case)
    for name, pca in found.items():
        assert bits(pca) == expected, name


FIT = """
import sys, time
from pathlib import Path
sys.path[:0] = {path!r}
from test_one_pass import GIVEN, OPTIONS
from tpca import TensorPCA
from tpca.solvers import LeastSquares

def pause(record):
    if record.get("position", record["samples"]) >= 128:
        Path({told!r}).touch()
        time.sleep(600)

target = "effect" if "y" in GIVEN[{case!r}] else "mean"
solver = LeastSquares(n_components=2, **OPTIONS, checkpoint={folder!r}, checkpoint_every=0.0, callbacks=[pause])
TensorPCA(solver=solver, target=target).fit({place!r}, **GIVEN[{case!r}])
"""


def killed_and_gone_on(place, case, folder):
    """A fit of a process that is killed between two rounds, gone on with in this one."""
    told = folder / "told"
    kept = folder / "kept"
    path = [str(one) for one in sys.path if one]
    names = {"path": path, "told": str(told), "folder": str(kept), "place": str(place), "case": case}
    with subprocess.Popen([sys.executable, "-c", FIT.format(**names)]) as process:
        deadline = time.monotonic() + 120
        while not told.exists():
            assert process.poll() is None, "the fit ended by itself"
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.kill()
    assert any(kept.iterdir())
    return estimator(case).fit(place, **GIVEN[case], checkpoint=kept)


@pytest.mark.parametrize("case", GIVEN)
def test_shuffled_samples_have_the_same_answer_to_rounding(case, rng):
    """Vectors and errors to 1e-12 of their size, and the same p-values."""
    order = rng.permutation(N)
    given = {name: values[order] for name, values in GIVEN[case].items()}
    one = fitted(X, case, dependence=None)
    other = estimator(case, dependence=None).fit(X[order], **given)
    assert np.array_equal(one.p_values_, other.p_values_)
    assert np.array_equal(one.entry_p_values_, other.entry_p_values_)
    np.testing.assert_allclose(other.strengths_, one.strengths_, rtol=1e-12)
    np.testing.assert_allclose(other.strength_intervals_, one.strength_intervals_, rtol=1e-11, atol=1e-12)
    for mine, theirs in zip(one.result_.vectors, other.result_.vectors, strict=True):
        np.testing.assert_allclose(theirs, mine, rtol=0, atol=1e-12)
    for mine, theirs in zip(one.result_.errors, other.result_.errors, strict=True):
        np.testing.assert_allclose(theirs, mine, rtol=1e-11, atol=1e-12)


def test_the_default_tells_the_same_of_shuffled_samples_but_for_dependence(rng):
    """Estimate and its bins of errors have nothing to do with the order; only tests of neighbours have."""
    order = rng.permutation(N)
    one = fitted(X, "mean")
    other = estimator("mean").fit(X[order])
    for mine, theirs in zip(one.result_.vectors, other.result_.vectors, strict=True):
        np.testing.assert_allclose(theirs, mine, rtol=0, atol=1e-12)
    lengths = [pca.result_.components[0].length for pca in (one, other)]
    assert lengths[0] == pytest.approx(lengths[1], rel=1e-12)


def test_small_samples_of_a_few_kinds_are_samples_of_their_own(cluster, tmp_path, rng):
    """Answers to four questions: sixteen kinds.  Errors are those of independent samples, and the bits the same."""
    n = 3000
    answers = (rng.random((n, 2, 2)) < 0.4) - 0.3
    deviations = answers - answers.mean(axis=0)
    zarr.create_array(tmp_path / "x.zarr", data=answers, chunks=(100, 2, 2))
    for dependence in ("auto", None):
        pca = TensorPCA(dependence=dependence, **OPTIONS).fit(answers)
        pattern = np.multiply.outer(*[vectors[0] for vectors in pca.components_])
        error = (deviations * pattern).sum(axis=(1, 2)).std() / np.sqrt(n)
        low, high = pca.strength_intervals_[0]
        assert 2 * 1.96 * error * 0.7 < high - low < 2 * 1.96 * error * 1.5  # of 45 bins at least: give or take 11 %
        parts = TensorPCA(dependence=dependence, **OPTIONS)
        for some in np.split(answers, [7, 2040, 2100]):
            parts.partial_fit(some)
        with cluster.get_client() as client:
            both = TensorPCA(dependence=dependence, **OPTIONS).fit(DaskEngine(client, tmp_path / "x.zarr"))
        assert bits(parts) == bits(both) == bits(pca)


def plain_error(samples, pca):
    """The standard error of the mean score of samples with the fitted pattern, and half the interval over 1.96."""
    pattern = np.multiply.outer(*[vectors[0] for vectors in pca.components_])
    scores = np.tensordot(samples, pattern, 2)
    low, high = pca.strength_intervals_[0]
    return scores.std() / np.sqrt(len(samples)), (high - low) / 2 / 1.96


@pytest.mark.parametrize("kind", ["a constant now and then", "ten kinds", "an offset"])
def test_intervals_are_those_of_independent_samples_whatever_repeats(kind, cluster, tmp_path, rng):
    """2500 samples in 2048 bins: some 1440 of them are used, and an error is known to 2 %; 15 % is beyond chance."""
    n, dims = 2500, (20, 15)
    samples = rng.standard_normal((n, *dims)) + 1
    if kind == "a constant now and then":
        samples[rng.random(n) < 0.08] = 3.0
    if kind == "ten kinds":
        samples = samples[rng.integers(0, 10, n)]
    if kind == "an offset":
        samples += 1e8
    pca = TensorPCA(dependence=None, **OPTIONS).fit(samples)
    plain, found = plain_error(samples, pca)
    assert found == pytest.approx(plain, rel=0.15)
    assert pca.result_.noise_level == pytest.approx(np.sqrt(samples.var(axis=0).mean()), rel=0.05)
    if kind == "a constant now and then":
        zarr.create_array(tmp_path / "x.zarr", data=samples, chunks=(100, *dims))
        with cluster.get_client() as client:
            both = TensorPCA(dependence=None, **OPTIONS).fit(DaskEngine(client, tmp_path / "x.zarr"))
        assert bits(both) == bits(pca)


def test_few_kinds_in_little_memory_have_the_same_bits_on_workers(cluster, tmp_path, rng):
    """There are fewer bins than a first stretch has samples, so that one worker deals them out."""
    answers = rng.integers(0, 2, (2000, 2, 2)) * 1.0
    zarr.create_array(tmp_path / "x.zarr", data=answers, chunks=(100, 2, 2))
    options = {**OPTIONS, "memory_limit": 4000, "solver": "least_squares"}
    pca = TensorPCA(**options).fit(answers)
    with cluster.get_client() as client:
        both = TensorPCA(**options).fit(DaskEngine(client, tmp_path / "x.zarr"))
    assert bits(both) == bits(pca)
