"""Fits of samples on a device: the same answer as on the host, and scores that are where the samples are."""

import itertools

import numpy as np
import pytest
from sklearn import config_context
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

from homes import JAX, STRICT, TORCH, elsewhere, homes
from tpca import SpikedTensor, TensorPCA, open_stream
from tpca.errors import SampleError
from tpca.tensors.namespaces import crossed, home_of, to_host

DIMS, N = (6, 7, 8), 600
TRUTH = SpikedTensor.random(DIMS, 1.2, random_state=0)
X = np.concatenate(list(itertools.islice(TRUTH.stream(random_state=1, batch_size=50), N // 50))).astype(np.float32)


def same(one, other):
    assert one.verdict_ == other.verdict_ == "signal"
    np.testing.assert_allclose(one.strengths_, other.strengths_, rtol=1e-4)
    for own, others in zip(one.components_, other.components_, strict=True):
        np.testing.assert_allclose(own, others, atol=1e-4)


def solvers():
    """JAX compiles every operation of a fit: too long for `make test`, which has its batches and accumulators."""
    for home, solver in itertools.product(elsewhere(), ("race", "least_squares")):
        marks = [*home.marks, *([pytest.mark.slow] if home.values[0] == JAX else [])]
        yield pytest.param(home.values[0], solver, id=f"{home.id}-{solver}", marks=marks)


@pytest.mark.parametrize(("home", "solver"), list(solvers()))
def test_a_fit_is_the_same_wherever_the_samples_are(home, solver):
    there = home.put(X)
    found = TensorPCA(solver=solver, random_state=0).fit(there)
    same(found, TensorPCA(solver=solver, random_state=0).fit(X))
    scores = found.transform(there)
    assert home_of(scores) == home_of(there)
    assert type(scores) is type(there)
    np.testing.assert_allclose(to_host(scores), found.transform(X), rtol=1e-4, atol=1e-3)
    back = found.inverse_transform(scores)
    assert home_of(back) == home_of(there)
    assert tuple(back.shape) == X.shape
    assert float(found.score(there)) == pytest.approx(float(found.score(X)), rel=1e-4)


OPTIONS = [
    ({"solver": "race", "n_components": 2}, {}),
    ({"solver": "least_squares", "whiten": "modes"}, {}),
    ({"solver": "least_squares", "nan_policy": "zero"}, {}),
    ({"solver": "least_squares", "nan_policy": "omit"}, {}),
    ({"n_resamples": 49, "target": "effect"}, {"y": np.arange(N) % 2 * 1.0}),
    ({"n_resamples": 49}, {"groups": np.arange(N) // 40}),
    ({"n_resamples": 49, "target": "variance"}, {}),
]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("home", homes(STRICT, TORCH))
@pytest.mark.parametrize(("options", "given"), OPTIONS)
def test_options_and_conditions_mean_on_a_device_what_they_mean_on_the_host(home, options, given):
    data = X.copy()
    if "nan_policy" in options:
        data[::40, 2, 3, 4] = np.nan
    found, other = (TensorPCA(random_state=0, **options).fit(one, **given) for one in (home.put(data), data))
    np.testing.assert_allclose(found.strengths_, other.strengths_, rtol=1e-3)
    if "n_resamples" in options:
        np.testing.assert_allclose(found.p_values_, other.p_values_, atol=0.05)


@pytest.mark.parametrize("home", homes(STRICT, TORCH))
@pytest.mark.parametrize("policy", ["raise", "zero"])
def test_joint_scores_on_a_device_are_those_of_the_host(home, policy):
    data = X[:60].copy()
    if policy == "zero":
        data[::4, 2, 3] = np.nan
    pca = TensorPCA(2, random_state=0, n_resamples=19, nan_policy=policy).fit(data)
    there = home.put(data)
    scores = pca.transform(there)
    assert home_of(scores) == home_of(there)
    np.testing.assert_allclose(to_host(scores), pca.transform(data), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("home", homes(STRICT, TORCH))
@pytest.mark.parametrize("solver", ["race", "least_squares"])
def test_batches_that_are_handed_in_stay_where_they_are(home, solver):
    found, other = TensorPCA(solver=solver, random_state=0), TensorPCA(solver=solver, random_state=0)
    for a in range(0, N, 60):
        found.partial_fit(home.put(X[a : a + 60]))
        other.partial_fit(X[a : a + 60])
    same(found, other)
    with pytest.raises(SampleError, match="one form, expected"):
        found.partial_fit(X[:60])


@pytest.mark.parametrize("home", homes(STRICT, TORCH))
@pytest.mark.parametrize("items", ["batches", "samples"])
def test_iterables_of_arrays_on_a_device(home, items):
    step = 60
    there = [home.put(X[a : a + step]) for a in range(0, N, step)]
    source = there if items == "batches" else (home.put(sample) for sample in X)
    before = crossed.nbytes
    found = TensorPCA(solver="race", random_state=0).fit(open_stream(iter(source), items=items))
    assert crossed.nbytes - before < X.nbytes / 2  # gradients; as many as that only because the samples are small
    assert found.verdict_ == "signal"
    scores = found.transform(iter(there))
    assert home_of(scores) == home_of(there[0])
    np.testing.assert_allclose(to_host(scores), found.transform(X), rtol=1e-4, atol=1e-3)


def test_other_forms_of_samples_on_a_device_and_what_is_refused():
    expected = TensorPCA(random_state=0).fit(X)
    samples = open_stream([STRICT.put(one) for one in X], items="samples")
    same(TensorPCA(random_state=0).fit(samples), expected)
    same(TensorPCA(random_state=0).fit(STRICT.put(np.moveaxis(X, 0, -1).copy()), dim=3), expected)
    batches = [STRICT.put(X[:100]), X[100:200]]
    with pytest.raises(SampleError, match=r"one library and on one device, expected array_api_strict.*got NumPy"):
        TensorPCA(solver="least_squares").fit(open_stream(iter(batches), items="batches"))
    holes = X.copy()
    holes[437, 1, 1, 1] = np.nan
    with pytest.raises(SampleError, match="sample 437 contains NaN or Inf"):
        TensorPCA(solver="least_squares").fit(STRICT.put(holes))


def test_a_pipeline_with_array_api_dispatch_stays_in_the_namespace(monkeypatch):
    import array_api_strict as xp

    # float64: the scaler of scikit-learn 1.6 multiplies float32 by float64, which this library refuses.
    there = xp.asarray(X.astype(np.float64))
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    pca = TensorPCA(solver="least_squares", random_state=0)
    assert pca.__sklearn_tags__().array_api_support
    plain = make_pipeline(pca, MinMaxScaler()).fit_transform(X)
    with config_context(array_api_dispatch=True):
        scaled = make_pipeline(pca, MinMaxScaler()).fit_transform(there)
    assert type(scaled) is type(there)
    np.testing.assert_allclose(np.asarray(scaled), plain, atol=1e-4)


@pytest.mark.parametrize("home", homes(TORCH))
def test_a_data_loader(home):
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    tensor = torch.tensor(X, requires_grad=True)
    loader = DataLoader(TensorDataset(tensor), batch_size=50)
    found = TensorPCA(solver="least_squares", random_state=0).fit(loader)
    batches = (X[a : a + 50] for a in range(0, N, 50))
    same(found, TensorPCA(solver="least_squares", random_state=0).fit(open_stream(batches, items="batches")))
    scores = found.transform(loader)
    assert isinstance(scores, torch.Tensor)
    assert not scores.requires_grad
    assert scores.shape == (N, 1)
