"""Effects with everything else that a fit can be asked for: names, components, slabs, projections, files."""

import json

import numpy as np
import pytest
import xarray as xr

from command import run
from tpca import TensorPCA, open_stream
from tpca.errors import SampleError
from tpca.results import read_result, write_result
from tpca.tensors import SlabBatch

DIMS, N = (6, 5, 4), 320
RNG = np.random.default_rng(11)
AXES = ("channel", "time", "band")


def orthogonal(count):
    """Vectors of every mode, ``count`` of them, orthogonal to each other."""
    return [np.linalg.qr(RNG.standard_normal((d, count)))[0].T for d in DIMS]


VECTORS = orthogonal(2)
Y = RNG.choice([0.0, 1.0], N)
FIRST, SECOND = (np.einsum("i,j,k->ijk", *(v[c] for v in VECTORS)) for c in range(2))
BACKGROUND = 20 * RNG.standard_normal(DIMS) + RNG.standard_normal((N, *DIMS))
X = BACKGROUND + np.multiply.outer(Y, 4 * FIRST + 2.5 * SECOND)
CODES = RNG.integers(0, 3, N)
LABELS = np.array(["a", "b", "c"])[CODES]
SEPARATED = BACKGROUND + np.multiply.outer(np.array([-2.0, 0.0, 2.0])[CODES], FIRST)


def named(samples):
    channels = [f"E{i}" for i in range(DIMS[0])]
    return xr.DataArray(samples, dims=("trial", *AXES), coords={"channel": channels, "time": np.arange(5) / 10})


def effect(**options):
    return TensorPCA(target="effect", random_state=0, **options)


def overlap(pca, component=0, which=0):
    return min(abs(float(c[component] @ v[which])) for c, v in zip(pca.components_, VECTORS, strict=True))


def test_names_of_axes_come_back_whatever_y_is():
    for samples, y in ((X, Y), (SEPARATED, LABELS)):
        pca = effect().fit(named(samples), y)
        assert pca.recovery_.labels.modes == AXES
        data = pca.recovery_.to_xarray()
        assert list(data["vector_channel"].coords["channel"].values) == [f"E{i}" for i in range(6)]
        assert data.attrs["effect"] == pca.effects_
    assert (data.attrs["label"], len(data.attrs["label_amplitude"])) == (["a", "b", "c"], 3)


def test_names_of_axes_that_are_handed_in_part_by_part():
    fed = effect()
    for a in range(0, N, 80):
        fed.partial_fit(named(X[a : a + 80]), Y[a : a + 80])
    assert fed.recovery_.labels.modes == AXES
    turned = named(X[:80]).assign_coords(channel=[f"E{i}" for i in range(6)][::-1])
    with pytest.raises(SampleError, match="entry 0 of 'channel' is 'E5', expected 'E0'"):
        fed.partial_fit(turned, Y[:80])
    with pytest.raises(SampleError, match=r"must have shape \(6, 5, 4\) as in the first batch"):
        fed.partial_fit(X[:80, :3], Y[:80])
    poured = effect(items="batches").fit(iter([X]), np.column_stack([Y, RNG.standard_normal(N)]))
    assert poured.effects_ == ["y[0]"]


def test_amplitudes_of_labels_are_kept_with_the_result(tmp_path):
    pca = effect().fit(SEPARATED, LABELS)
    write_result(tmp_path, pca.recovery_, "d.npy")
    (component,) = read_result(tmp_path).summary["components"]
    assert list(component["label_amplitudes"]) == ["a", "b", "c"]
    np.testing.assert_array_equal(list(component["label_amplitudes"].values()), pca.label_amplitudes_[0])
    # Known to about 1/√107 = 0.1 each: six of these.
    np.testing.assert_allclose(np.abs(pca.label_amplitudes_[0]), [2, 0, 2], atol=0.6)


def test_several_components_of_an_effect():
    pca = effect(n_components=2).fit(X, Y)
    assert pca.effects_ == ["y", "y"]
    # Squared errors of vectors are (d-1)/(λ² N/4), 0.4 % and 1 %: these are ten times as much.
    assert overlap(pca, 0, 0) > 0.95
    assert overlap(pca, 1, 1) > 0.9
    fed = effect(n_components=2, items="batches")
    for a in range(0, N, 40):
        fed.partial_fit(X[a : a + 40], Y[a : a + 40])
    assert fed.n_components_ == 2
    np.testing.assert_allclose(fed.strengths_, pca.strengths_, rtol=0.1)
    labels = effect(n_components=2).fit(SEPARATED, LABELS)
    assert labels.label_amplitudes_.shape == (labels.n_components_, 3)


@pytest.mark.slow
def test_several_components_of_an_effect_in_a_race():
    y = np.tile(Y, 20)
    noise = np.random.default_rng(12).standard_normal((len(y), *DIMS))
    pca = effect(solver="race", n_components=2).fit(noise + np.multiply.outer(y, 4 * FIRST + 2.5 * SECOND) + 9.0, y)
    assert pca.effects_ == ["y", "y"]
    assert overlap(pca, 0, 0) > 0.95
    assert overlap(pca, 1, 1) > 0.9


def test_effects_of_samples_that_are_read_in_slabs(tmp_path, monkeypatch):
    np.save(tmp_path / "d.npy", X)
    options = {"memory_limit": "1MB", "clip": None, "whiten": None}
    np.save(tmp_path / "s.npy", SEPARATED)
    whole, several = effect(**options).fit(tmp_path / "d.npy", Y), effect(**options).fit(tmp_path / "s.npy", LABELS)
    monkeypatch.setattr("tpca.streams.stored.SLAB_ENTRIES", 40)
    monkeypatch.setattr("tpca.streams.effects.SLAB_ENTRIES", 40)
    assert isinstance(next(open_stream(tmp_path / "d.npy").batches()), SlabBatch)
    slabs = effect(**options).fit(tmp_path / "d.npy", Y)
    np.testing.assert_allclose(slabs.strength_intervals_, whole.strength_intervals_, rtol=1e-5)
    in_slabs = effect(**options).fit(tmp_path / "s.npy", LABELS)
    np.testing.assert_allclose(in_slabs.label_amplitudes_, several.label_amplitudes_, rtol=1e-4)


def test_effects_beside_given_vectors_in_parts_and_of_several_labels():
    asked = {"project": {"channel": VECTORS[0][:1]}, "center_modes": ("time",)}
    for samples, y in ((X, Y), (SEPARATED + np.multiply.outer(CODES, 3 * SECOND), LABELS)):
        pca = effect(**asked).fit(named(samples), y)
        assert np.abs(pca.components_[0] @ VECTORS[0][0]).max() < 1e-9
        assert np.abs(pca.components_[1].sum(axis=1)).max() < 1e-9
    fed = effect(**asked)
    for a in range(0, N, 80):
        fed.partial_fit(named(X[a : a + 80]), Y[a : a + 80])
    assert fed.n_components_ == 1
    assert np.abs(fed.components_[0] @ VECTORS[0][0]).max() < 1e-9


def test_the_command_projects(tmp_path):
    np.save(tmp_path / "d.npy", X)
    np.save(tmp_path / "y.npy", Y)
    np.savez(tmp_path / "p.npz", **{"0": VECTORS[0][:1]})
    np.save(tmp_path / "p.npy", VECTORS[0][:1])
    told = []
    for place in ("p.npz", "0=p.npy"):
        asked = ["--target", "effect", "--y", "y.npy", "--project", place, "--overwrite"]
        done = run("fit", "d.npy", *asked, "--out", "r", "--json", cwd=tmp_path)
        assert done.returncode == 0
        told.append(json.loads(done.stdout)["components"][0]["strength"])
        assert np.abs(read_result(tmp_path / "r").vectors[0] @ VECTORS[0][0]).max() < 1e-9
    expected = effect(project={0: VECTORS[0][:1]}).fit(tmp_path / "d.npy", Y)
    assert told == [pytest.approx(expected.strengths_[0], rel=1e-9)] * 2
    for place, said in (("p.csv", "--project must be a .npz file"), ("7=p.npy", "names mode '7'"), ("q.npz", "cannot")):
        refused = run("fit", "d.npy", "--project", place, "--out", "x", cwd=tmp_path)
        assert refused.returncode == 2
        assert said in refused.stderr.replace("\n", " ")
