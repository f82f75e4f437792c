"""Names and coordinates of axes: what every format says of them arrives with the samples, wherever these lie."""

import json
import pickle
import tracemalloc

import h5py
import numpy as np
import pytest
import scipy.io
import xarray
import zarr

from tpca import TensorPCA, TpcaError, open_stream
from tpca.data import stored
from tpca.labels import Axis, Labels, labels_of, parse_labels, read_labels
from tpca.result import load

DIMS = ("trial", "channel", "time")
CHANNELS = np.array(["Fz", "Cz", "Pz", "Oz"])
SECONDS = np.array([0.0, 0.1, 0.25, 0.5, 1.0])
DAYS = np.array(["2020-02-28", "2020-02-29", "2020-03-01", "2020-03-02", "2020-03-03"], dtype="datetime64[ns]")
X = np.random.default_rng(0).standard_normal((20, 4, 5))
TURNED = (1, 2, 0)  # channel, time, trial


def data_array(order=(0, 1, 2), time=SECONDS):
    array = xarray.DataArray(X, dims=DIMS, coords={"channel": CHANNELS, "time": time}, name="eeg")
    return array.transpose(*(DIMS[i] for i in order))


def values(stream):
    return np.concatenate([batch.samples for batch in stream.batches()])


def arrives(source, time=SECONDS, **options):
    """The samples and all names of ``X`` are what is read."""
    stream = open_stream(source, **options)
    np.testing.assert_array_equal(values(stream), X)
    assert (stream.labels.sample, stream.labels.modes) == ("trial", ("channel", "time"))
    assert stream.labels.axes[0].coords.tolist() == CHANNELS.tolist()
    np.testing.assert_array_equal(stream.labels.axes[1].coords, time)
    return stream


# -- makers: real files, with the samples along any axis --------------------------------------------------------------


def netcdf(folder, order, time=SECONDS):
    data_array(order, time).to_netcdf(folder / "x.nc", engine="h5netcdf")
    return folder / "x.nc"


def zarr_of_xarray(folder, order, version, time=SECONDS):
    place = folder / f"{version}.zarr"
    coords = {"channel": ("channel", CHANNELS.astype(object)), "time": time}  # Zarr 3 has no fixed-width text
    data_array(order, time).assign_coords(coords).to_dataset().to_zarr(place, zarr_format=version, consolidated=False)
    return f"{place}::/eeg"


def zarr_by_hand(folder, order):
    group = zarr.open_group(folder / "hand.zarr", mode="w", zarr_format=3)
    names = [DIMS[i] for i in order]
    array = group.create_array(
        "deep/eeg", shape=X.transpose(order).shape, dtype="f8", chunks=(2, 3, 2), dimension_names=names
    )
    array[:] = X.transpose(order)
    group.create_array("deep/time", shape=SECONDS.shape, dtype="f8")[:] = SECONDS
    text = group.create_array("deep/channel", shape=CHANNELS.shape, dtype=str)
    text[:] = CHANNELS.astype(object)
    return f"{folder / 'hand.zarr'}::/deep/eeg"


def hdf5_scales(folder, order):
    with h5py.File(folder / "x.h5", "w") as file:
        file["eeg"] = X.transpose(order)
        file["channel"], file["time"] = CHANNELS.astype("S"), SECONDS
        for place, axis in enumerate(order):
            file["eeg"].dims[place].label = DIMS[axis]
            if DIMS[axis] != "trial":
                file[DIMS[axis]].make_scale(DIMS[axis])
                file["eeg"].dims[place].attach_scale(file[DIMS[axis]])
    return folder / "x.h5"


def npz(folder, order):
    names = [DIMS[i] for i in order]
    np.savez(folder / "x.npz", eeg=X.transpose(order), dims=names, channel=CHANNELS, time=SECONDS)
    return folder / "x.npz"


FILES = {
    "netcdf": netcdf,
    "zarr 2 of xarray": lambda folder, order: zarr_of_xarray(folder, order, 2),
    "zarr 3 of xarray": lambda folder, order: zarr_of_xarray(folder, order, 3),
    "zarr 3": zarr_by_hand,
    "hdf5": hdf5_scales,
    "npz": npz,
    "data array": lambda folder, order: data_array(order),
    "data set": lambda folder, order: data_array(order).to_dataset(),
    "data array on dask": lambda folder, order: data_array(order).chunk({"trial": 6}),
    "data array of netcdf": lambda folder, order: xarray.open_dataarray(netcdf(folder, order), engine="h5netcdf"),
}


@pytest.mark.filterwarnings("ignore:.*Zarr V3 specification", "ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", FILES)
def test_names_and_coordinates_arrive_wherever_the_samples_lie_and_go_through_a_fit_to_its_result(name, tmp_path):
    source = FILES[name](tmp_path, (0, 1, 2))
    arrives(source)
    result = load(TensorPCA(random_state=0).fit(source).save(tmp_path / "r"))
    assert (result.labels.sample, result.labels.modes) == ("trial", ("channel", "time"))
    np.testing.assert_array_equal(result.labels.axes[0].coords, CHANNELS)
    np.testing.assert_allclose(result.labels.axes[1].coords, SECONDS)
    result.to_xarray().to_netcdf(tmp_path / "found.nc", engine="h5netcdf")
    with xarray.open_dataset(tmp_path / "found.nc", engine="h5netcdf") as found:
        assert list(found["channel"].values) == list(CHANNELS)
        np.testing.assert_allclose(found["time"].values, SECONDS)
    for order in (TURNED, (1, 0, 2)):
        (tmp_path / str(order)).mkdir()
        source = FILES[name](tmp_path / str(order), order)
        arrives(source, dim="trial")
        stream = arrives(source, dim=order.index(0))
        if stream.readable_elsewhere and stream.kind != "dask":
            np.testing.assert_array_equal(values(pickle.loads(pickle.dumps(stream))), X)


def test_times_are_times_and_a_dimension_without_coordinates_has_a_name_only(tmp_path):
    arrives(netcdf(tmp_path, (0, 1, 2), DAYS), DAYS)
    arrives(zarr_of_xarray(tmp_path, (0, 1, 2), 2, DAYS), DAYS)
    data_array().drop_vars("time").to_netcdf(tmp_path / "y.nc", engine="h5netcdf")
    labels = open_stream(tmp_path / "y.nc").labels
    assert labels.modes == ("channel", "time")
    assert labels.axes[1].coords is None


def test_a_data_array_in_a_file_is_read_batch_by_batch_and_never_held(tmp_path, monkeypatch):
    """Of 16 MB: a batch of 0.8 MB that is worked on, one that waits, one that is read and its copy; later, none."""
    monkeypatch.setattr(stored, "BATCH_ENTRIES", 10_000)
    monkeypatch.setattr(stored, "depth", lambda *_: 1)
    whole = np.random.default_rng(1).standard_normal((2000, 10, 100))
    how = {"eeg": {"chunksizes": (100, 10, 100)}}
    xarray.DataArray(whole, dims=DIMS, name="eeg").to_netcdf(tmp_path / "x.nc", engine="h5netcdf", encoding=how)
    with xarray.open_dataarray(tmp_path / "x.nc", engine="h5netcdf") as lazy:
        tracemalloc.start()
        stream = open_stream(lazy)
        found = sum(batch.add_to(None) for batch in stream.batches())
        held, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert stream.kind == "xarray"
        np.testing.assert_allclose(found, whole.sum(axis=0), rtol=1e-9, atol=1e-9)
        assert held < 0.8e6
        assert peak < 5 * 0.8e6
        assert open_stream(lazy.load()).kind == "array"  # now it is in memory, and is read there


def test_packed_numbers_are_read_as_they_are_meant(tmp_path):
    """Rounded to 0.001, so that no entry is off by more than half of that; the missing one is NaN."""
    packed = data_array().copy()
    packed[3, 1, 2] = np.nan
    how = {"dtype": "int16", "scale_factor": 0.001, "add_offset": 0.5, "_FillValue": -32768}
    packed.to_netcdf(tmp_path / "x.nc", engine="h5netcdf", encoding={"eeg": how})
    packed.to_dataset().drop_vars("channel").to_zarr(tmp_path / "x.zarr", consolidated=False, encoding={"eeg": how})
    for source in (tmp_path / "x.nc", f"{tmp_path / 'x.zarr'}::/eeg"):
        stream = open_stream(source, nan_policy="omit")
        np.testing.assert_allclose(values(stream), np.delete(X, 3, axis=0), atol=0.00051)
        with pytest.raises(TpcaError, match="sample 3 contains NaN"):
            values(open_stream(source))


@pytest.mark.parametrize("version", ["7.3", "5"])
def test_mat_files_have_the_axes_of_matlab(version, tmp_path):
    turned = X.transpose(TURNED)
    if version == "5":
        scipy.io.savemat(tmp_path / "x.mat", {"eeg": turned, "fs": 100.0})
    else:
        with h5py.File(tmp_path / "x.mat", "w", userblock_size=512) as file:
            file["eeg"], file["fs"] = turned.T, 100.0
        with open(tmp_path / "x.mat", "r+b") as file:
            file.write(b"MATLAB 7.3 MAT-file")
    np.testing.assert_array_equal(values(open_stream(tmp_path / "x.mat", dim=-1)), X)
    np.testing.assert_array_equal(values(open_stream(tmp_path / "x.mat::eeg")), turned)
    with h5py.File(tmp_path / "plain.mat", "w") as file:  # not written by MATLAB
        file["eeg"] = X
    np.testing.assert_array_equal(values(open_stream(tmp_path / "plain.mat")), X)
    with pytest.raises(TpcaError, match=r"no array 'other'; it holds .*eeg"):
        open_stream(f"{tmp_path / 'x.mat'}::other")


def test_a_turned_store_is_read_batch_by_batch(tmp_path, monkeypatch):
    """Chunks that hold one channel of all samples: a batch takes a part of each, and never more than the bound."""
    array = zarr.create_array(str(tmp_path / "x.zarr"), shape=(4, 5, 2000), dtype="f8", chunks=(1, 5, 2000))
    long = np.random.default_rng(1).standard_normal((4, 5, 2000))
    array[:] = long
    monkeypatch.setattr(stored, "MAX_ENTRIES", 2000)
    monkeypatch.setattr(stored, "BATCH_ENTRIES", 200)
    stream = open_stream(tmp_path / "x.zarr", dim=2)
    sizes = [len(batch) for batch in stream.batches()]
    assert max(sizes) * 20 <= 2000
    np.testing.assert_array_equal(values(stream), np.moveaxis(long, 2, 0))


# -- bad input --------------------------------------------------------------------------------------------------------


BY_NAME = r"by its name \('trial', 'channel', 'time'\) or its number, 0 to 2; got 'trail'"
SEVERAL = "the Dataset holds several arrays; name one, .* such as 'a', 'b'"


@pytest.mark.parametrize(
    ("source", "options", "says"),
    [
        (data_array(), {"dim": "trail"}, BY_NAME),
        (X, {"dim": "trial"}, "which have no names.* 0 to 2; got 'trial'"),
        (X, {"dim": 3}, "axis of the array, .* 0 to 2; got 3"),
        (X, {"dim": True}, "got True"),
        (X, {"dim": 1.5j}, "got 1.5j"),
        ([X[:3], X], {"dim": 0, "items": "batches"}, "needs an array or a file, got list"),
        (open_stream(X), {"dim": 1}, "comes too late"),
        (data_array().assign_coords(channel=["a", "b", "a", "c"]), {}, r"'a' 2 times along 'channel' .*entries 0, 2"),
        (xarray.Dataset({"a": data_array(), "b": data_array()}), {}, SEVERAL),
        (X, {"sample": "trial"}, "a long table needs sample=, modes= and value=; modes, value was not given"),
        (X, {"missing": "zero"}, "missing='zero' is for long tables"),
    ],
)
def test_what_cannot_be_is_refused(source, options, says):
    with pytest.raises(TpcaError, match=says):
        open_stream(source, **options)


def test_files_that_hold_something_else(tmp_path):
    np.savez(tmp_path / "two.npz", a=X, b=X)
    np.savez(tmp_path / "none.npz", a=X[0, 0])
    scipy.io.savemat(tmp_path / "cell.mat", {"x": np.full((2, 3, 4), "a", dtype=object)})
    (tmp_path / "old.nc").write_bytes(b"CDF\x01" + bytes(60))
    for name, says in (
        ("two.npz", "several arrays; name one, .* such as 'a', 'b'"),
        ("two.npz::c", "has no array 'c'; it holds 'a', 'b'"),
        ("none.npz", "no array of at least 2 axes"),
        ("cell.mat", "must be an array of numbers"),
        ("old.nc", "NetCDF 3 file; open it with xarray"),
    ):
        with pytest.raises(TpcaError, match=says):
            open_stream(str(tmp_path / name))
    assert open_stream(f"{tmp_path / 'two.npz'}::b").dims == (4, 5)


# -- labels as JSON ---------------------------------------------------------------------------------------------------


def test_labels_go_through_json_name_entries_as_people_write_them_and_damaged_ones_are_refused(tmp_path):
    kinds = [CHANNELS, SECONDS, SECONDS.astype(np.float32), np.array([3, 1, 2]), DAYS, np.array([True, False])]
    for coords in [*kinds, np.array([1, 2], dtype="timedelta64[ms]"), None]:
        labels = Labels((Axis("x", coords), Axis()), "trial")
        (tmp_path / "l.json").write_text(json.dumps(labels.as_json()))
        again = read_labels(tmp_path / "l.json", (7 if coords is None else len(coords), 3))
        assert (again.sample, again.modes) == ("trial", ("x", "axis 1"))
        if coords is None:
            assert again.axes[0].coords is None
        else:
            assert again.axes[0].coords.dtype == coords.dtype
            np.testing.assert_array_equal(again.axes[0].coords, coords)
        assert labels.difference(again) == ""
    named = Labels((Axis("a", DAYS), Axis("b", SECONDS), Axis("c", CHANNELS), Axis("d")))
    assert [named.entry(mode, 2) for mode in range(4)] == ["2020-03-01", "0.25", "Pz", "2"]
    for found in ({"0": {"entries": [1, 2], "dtype": "object"}}, {"0": {"entries": ["x", "y"], "dtype": "float64"}}):
        with pytest.raises(TpcaError, match="entries that cannot be used"):
            parse_labels(found, (2, 3))
    twice = labels_of([Axis("trial"), Axis("channel", CHANNELS), Axis("channel", CHANNELS)], "it")
    assert twice.modes == ("channel", "channel_2")
    assert labels_of([Axis(), Axis(), Axis()], "it") is None
