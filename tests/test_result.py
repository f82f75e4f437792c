"""A result: what is saved is what is read, of one fit or refused; and it does what the estimator does."""

import errno
import hashlib
import json
import os
import shutil
from pathlib import Path

import msgspec
import numpy as np
import pytest
import xarray

import tpca
from kills import kills
from tpca.errors import OutputError, SampleError, StreamError

RNG = np.random.default_rng(0)
DIMS = (4, 5, 6)
NOISE = RNG.standard_normal((60, *DIMS))
PATTERN = tpca.SpikedTensor.random(DIMS, 3.0, random_state=1).signal()
LABELS = np.array(["a", "b", "c"])[np.arange(60) % 3]
DOSE = np.linspace(-1, 1, 60)


def half(batch):
    return batch / 2


def dated():
    """Samples with names, times and an axis without either."""
    coords = {"channel": ["Fz", "Cz", "Pz", "Oz"], "time": np.arange(5).astype("datetime64[D]")}
    return xarray.DataArray(NOISE + PATTERN, dims=("trial", "channel", "time", "band"), coords=coords)


ON = NOISE + (LABELS == "b")[:, None, None, None] * PATTERN
FITS = {  # options of TensorPCA, samples, y
    "mean": ({"n_components": 2}, NOISE + PATTERN, None),
    "names": ({}, dated(), None),
    "effect": ({"target": "effect"}, ON, np.where(LABELS == "b", "on", "off")),
    "labels": ({"target": "effect"}, ON, LABELS),
    "covariates": (
        {"target": "effect"},
        NOISE + np.multiply.outer(DOSE, PATTERN),
        np.column_stack([DOSE, RNG.standard_normal(60)]),
    ),
    "variance": (
        {"n_components": 2, "target": "variance"},
        NOISE + np.multiply.outer(RNG.standard_normal(60), PATTERN),
        None,
    ),
    "race": ({"solver": "race"}, NOISE + PATTERN, None),
    "missing": ({"nan_policy": "zero"}, np.where(RNG.random(NOISE.shape) < 0.1, np.nan, NOISE + PATTERN), None),
    "nothing": ({}, np.concatenate([NOISE, -NOISE]), None),
    "preprocess": ({"preprocess": half}, NOISE + PATTERN, None),
}


def fitted(kind):
    """A fit, its samples, and y."""
    options, X, y = FITS[kind]
    return tpca.TensorPCA(random_state=0, **options).fit(X, y), X, y


@pytest.fixture(scope="module")
def views():
    rng = np.random.default_rng(0)
    shared = rng.standard_normal(400)
    return [np.outer(shared, rng.standard_normal(d)) + rng.standard_normal((400, d)) for d in (4, 5)]


def same(one, other):
    """Whether two results say and hold the same."""
    mine, theirs = ({**json.loads(each.to_json()), "vectors_sha256": ""} for each in (one, other))
    assert mine == theirs
    for name in ("vectors", "errors", "loadings", "means", "observed"):
        for a, b in zip(getattr(one, name), getattr(other, name), strict=True):
            np.testing.assert_array_equal(a, b)
    for name in ("entry_p_values", "null_distribution"):
        a, b = getattr(one, name), getattr(other, name)
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_array_equal(a, b)
    assert str(one.summary()) == str(other.summary())
    assert one.methods() == other.methods()
    assert [axis.name for axis in one.labels.axes] == [axis.name for axis in other.labels.axes]


@pytest.mark.parametrize("kind", FITS)
def test_what_is_saved_is_what_is_read_and_it_scores_like_the_estimator(kind, tmp_path):
    pca, X, y = fitted(kind)
    saved = pca.result_
    if kind == "race":  # whatever bets have won
        saved.components[0] = msgspec.structs.replace(saved.components[0], e_value=1e200)
    assert saved.save(tmp_path / "r") == tmp_path / "r"
    assert sorted(os.listdir(tmp_path / "r")) == ["result.json", "vectors.npz"]
    again = tpca.load(tmp_path / "r")
    same(saved, again)
    assert (again.verdict, again.found, again.n_samples) == (pca.verdict_, pca.found_, pca.n_samples_seen_)
    np.testing.assert_array_equal([c.p_value for c in again.components], pca.p_values_)
    np.testing.assert_array_equal([c.strength for c in again.components], pca.strengths_)
    np.testing.assert_array_equal([c.significant for c in again.components], pca.significant_)
    for mine, theirs in zip(again.vectors, pca.components_, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    if kind == "preprocess":
        with pytest.raises(SampleError, match=r"preprocess=half.*set result.preprocess"):
            again.transform(X)
        again.preprocess = half
    np.testing.assert_array_equal(np.asarray(again.transform(X)), np.asarray(pca.transform(X)))
    mine, theirs = again.score(X, y), pca.score(X, y)
    assert (mine, mine.standard_error) == (theirs, theirs.standard_error)


def test_the_numbers_are_those_of_the_samples():
    pca, X, _ = fitted("mean")
    result = pca.result_
    patterns = np.einsum("ci,cj,ck->cijk", *result.vectors).reshape(2, -1)
    by_hand = np.linalg.lstsq(patterns.T, X.reshape(len(X), -1).T, rcond=None)[0].T
    np.testing.assert_allclose(result.transform(X), by_hand, atol=1e-12)
    assert float(result.score(X)) == pytest.approx(by_hand.sum(axis=1).mean())
    first = result.components[0]
    assert first.length == pytest.approx(float(by_hand[:, 0].mean()), rel=1e-3)  # that of the fit itself
    assert result.p_value <= 0.05
    assert first.statistic > result.null_distribution[0].max()
    assert result.null_distribution.shape == (2, result.n_resamples)
    assert result.entry_p_values.shape == DIMS


def test_names_come_back_with_their_types(tmp_path):
    pca, X, _ = fitted("names")
    again = tpca.load(pca.save(tmp_path / "r"))
    labels = again.labels
    assert (labels.sample, labels.modes) == ("trial", ("channel", "time", "band"))
    assert labels.axes[1].coords.dtype.kind == "M"
    assert labels.axes[2].coords is None
    scores = again.transform(X)
    assert scores.dims == ("trial", "component")
    moved = X.isel(channel=[1, 0, 2, 3])
    with pytest.raises(SampleError, match="entry 0 of 'channel' is 'Cz', expected 'Fz'"):
        again.transform(moved)


def test_an_xarray_dataset_has_vectors_errors_and_p_of_every_entry(tmp_path):
    result = fitted("names")[0].result_
    found = result.to_xarray()
    np.testing.assert_array_equal(found.vector_channel, result.vectors[0])
    np.testing.assert_array_equal(found.standard_error_band, result.errors[2])
    np.testing.assert_array_equal(found.entry_p_value, result.entry_p_values)
    middle = found.interval_time.mean("bound")
    np.testing.assert_allclose(middle, result.vectors[1])
    assert found.attrs["verdict"] == "signal"
    assert list(found.channel.values) == ["Fz", "Cz", "Pz", "Oz"]
    found.to_netcdf(tmp_path / "d.nc", engine="h5netcdf")
    np.testing.assert_array_equal(found.strength, [c.strength for c in result.components])
    several, labels = (fitted(kind)[0].result_.to_xarray() for kind in ("covariates", "labels"))
    assert several.entry_p_value.dims == ("effect", "axis_0", "axis_1", "axis_2")
    assert (list(labels.label), labels.label_amplitudes.dims) == (["a", "b", "c"], ("component", "label"))
    labels.to_netcdf(tmp_path / "l.nc", engine="h5netcdf")


def test_views_come_back(views, tmp_path):
    cca = tpca.TensorCCA(random_state=0).fit(views)
    again = tpca.load(cca.save(tmp_path / "v"))
    same(cca.result_, again)
    assert again.kind == "views"
    assert again.components[0].strength == cca.correlations_[0]
    for mine, theirs in zip(again.transform(views), cca.transform(views), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert again.score(views) == pytest.approx(cca.score(views))
    with pytest.raises(SampleError, match=r"the columns that were fitted, \(4, 5\), got \(5, 4\)"):
        again.transform(views[::-1])


def test_the_public_names_are_these():
    assert dir(tpca) == [
        "PaperSolver", "RaceSolver", "Result", "SpikedTensor", "TensorCCA", "TensorPCA", "TpcaError",
        "load", "open_stream", "open_views",
    ]  # fmt: skip
    assert all(getattr(tpca, name) is not None for name in dir(tpca))


# Whole or not at all --------------------------------------------------------------------------------------------------

STEPS = [(os, "replace"), (os, "unlink"), (shutil, "rmtree"), (np, "savez"), (Path, "write_bytes")]


@pytest.fixture(scope="module")
def fits():
    """Of a signal, and of none; each knows its name by its source."""
    samples = {"one": NOISE + PATTERN, "none": np.concatenate([NOISE, -NOISE])}
    found = {}
    for name, X in samples.items():
        found[name] = tpca.TensorPCA(random_state=0, n_resamples=199).fit(X).result_
        found[name].source = name
    assert [found[name].found for name in samples] == [True, False]
    return found


def read(folder, fits):
    """Which fit a folder holds, all of it; ``None`` if it is refused."""
    try:
        found = tpca.load(folder)
    except StreamError:
        with pytest.raises(StreamError, match=r"vectors.npz' does not belong to the result.json beside it"):
            tpca.load(folder)
        return None
    same(found, fits[found.source])
    return found.source


@pytest.mark.parametrize(("old", "new"), [("one", "none"), ("none", "one")])
def test_a_kill_at_any_step_leaves_one_result_or_none_but_no_mixture(old, new, tmp_path, fits, monkeypatch):
    seen = set()
    for folder in kills(monkeypatch, tmp_path, fits[old].save, fits[new].save, STEPS, 4):
        seen.add(read(folder, fits))
        fits[new].save(folder)
        assert read(folder, fits) == new
        assert sorted(os.listdir(folder)) == ["result.json", "vectors.npz"]  # and no drafts
    assert seen == {old, None, new}


def full(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("step", [(np, "savez"), (Path, "write_bytes"), (os, "fsync"), (os, "replace")])
def test_a_full_disk_leaves_the_result_before(step, tmp_path, fits, monkeypatch):
    fits["one"].save(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with monkeypatch.context() as patch:
        patch.setattr(*step, full)
        with pytest.raises(OutputError, match=r"cannot write .*result.json': No space left on device; choose"):
            fits["none"].save(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert read(tmp_path, fits) == "one"


# Damaged files --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"dims": [5, 4, 0]}, r"`int` >= 1 - at `\$.dims\[2\]`"),
        ({"dims": [4, 5, 9]}, r"do not fit 1 components of dims \[4, 5, 9\]"),
        ({"components": []}, r"length >= 1 - at `\$.components`"),
        ({"components": [{"strength": "much"}]}, r"expected a number or null, got 'much' - at `\$.components"),
        ({"n_samples": "many"}, r"Expected `int`, got `str` - at `\$.n_samples`"),
        ({"n_samples": -1}, r"`int` >= 0 - at `\$.n_samples`"),
        ({"settings": {"confidence": 2}}, r"`float` < 1.0 - at `\$.confidence`"),
        ({"verdict": "maybe"}, r"'maybe' - at `\$.verdict`"),
        ({"format": "another"}, r"'another' - at `\$.format`"),
        ({"labels": {"7": ["a"]}}, "axes go from 0 to 2"),
        ({"labels": {"0": ["a"]}}, "a list of 4 names, got 1"),
    ],
)
def test_odd_fields_are_named(change, says, tmp_path, fits):
    path = fits["one"].save(tmp_path) / "result.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(StreamError, match=says):
        tpca.load(tmp_path)


def test_files_that_are_cut_short_or_gone_are_refused_in_one_line(tmp_path, fits):
    for name in ("result.json", "vectors.npz"):
        fits["one"].save(tmp_path)
        whole = (tmp_path / name).read_bytes()
        for damaged in (whole[: len(whole) // 2], b"", b"[" * 10**5, b"\xff" * 100):
            (tmp_path / name).write_bytes(damaged)
            with pytest.raises(StreamError) as told:
                tpca.load(tmp_path)
            assert "\n" not in str(told.value)
        (tmp_path / name).unlink()
        with pytest.raises(StreamError, match="cannot read a result from"):
            tpca.load(tmp_path)


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("mode_0", lambda a: a[:, :-1], "do not fit 1 components"),
        ("mode_0", lambda a: a.astype(str), "do not fit 1 components"),
        ("mode_1", lambda a: np.full_like(a, np.nan), "hold NaN or Inf"),
        ("standard_error_2", None, "do not fit 1 components"),
        ("entry_p_values", lambda a: a[0], "entry_p_values of vectors.npz has shape"),
        ("null_distribution", lambda a: a[0], "null_distribution of vectors.npz has shape"),
    ],
)
def test_arrays_that_do_not_fit_are_refused_even_with_the_right_checksum(name, change, says, tmp_path, fits):
    fits["one"].save(tmp_path)
    with np.load(tmp_path / "vectors.npz") as stored:
        arrays = dict(stored)
    if change is None:
        del arrays[name]
    else:
        arrays[name] = change(arrays[name])
    np.savez(tmp_path / "vectors.npz", **arrays)
    about = json.loads((tmp_path / "result.json").read_text())
    about["vectors_sha256"] = hashlib.sha256((tmp_path / "vectors.npz").read_bytes()).hexdigest()
    (tmp_path / "result.json").write_text(json.dumps(about))
    with pytest.raises(StreamError, match=says):
        tpca.load(tmp_path)
