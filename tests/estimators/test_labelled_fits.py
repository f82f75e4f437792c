"""Labels in, labels out: a labelled fit has the bits of the plain one, and its names are in all that it leaves."""

import dataclasses
import json
import re

import numpy as np
import pandas as pd
import pytest
import xarray

from command import run
from tpca import MeanSolver, RaceSolver, SpikedTensor, TensorPCA, TpcaError, open_stream
from tpca.labels import Axis, Labels
from tpca.report.component_pictures import component_figure
from tpca.results import read_result, write_result
from tpca.solvers.recovery import Component

CHANNELS, SECONDS = ["Fz", "Cz", "Pz", "Oz"], np.linspace(0, 1, 6)
X = next(iter(SpikedTensor.random((4, 6, 5), 3.0, random_state=1).stream(random_state=2, batch_size=120)))
NAMED = xarray.DataArray(
    X, dims=("trial", "channel", "time", "band"), coords={"channel": CHANNELS, "time": SECONDS}, name="eeg"
)
TURNED = NAMED.transpose("channel", "trial", "band", "time")
MODES = ("channel", "band", "time")
PLAIN = np.ascontiguousarray(TURNED.transpose("trial", ...).values)


def same_bits(one, other):
    assert [v.tobytes() for v in one.components_] == [v.tobytes() for v in other.components_]
    assert [v.tobytes() for v in one.standard_errors_] == [v.tobytes() for v in other.standard_errors_]
    assert one.strengths_.tobytes() == other.strengths_.tobytes()


@pytest.mark.parametrize("solver", ["mean", "race"])
def test_a_labelled_fit_has_the_bits_of_the_plain_one(solver):
    plain = TensorPCA(solver, random_state=0).fit(PLAIN)
    named = TensorPCA(solver, random_state=0).fit(TURNED, sample_dim="trial")
    same_bits(named, plain)
    assert named.recovery_.labels.modes == MODES
    assert plain.recovery_.labels is None
    np.testing.assert_array_equal(named.transform(TURNED), plain.transform(PLAIN))  # sample_dim is that of fit
    np.testing.assert_array_equal(named.transform(PLAIN, sample_dim=0), plain.transform(PLAIN))
    assert float(named.score(TURNED)) == float(plain.score(PLAIN))
    np.testing.assert_array_equal(
        TensorPCA(solver, random_state=0).fit_transform(TURNED, sample_dim="trial"), plain.transform(PLAIN)
    )


def test_partial_fit_keeps_the_names():
    named, plain = TensorPCA(random_state=0), TensorPCA(random_state=0, items="batches")
    for start in range(0, 120, 25):
        named.partial_fit(TURNED.isel(trial=slice(start, start + 25)), sample_dim="trial")
        plain.partial_fit(PLAIN[start : start + 25])
    same_bits(named, plain)
    assert named.recovery_.labels.modes == MODES
    with pytest.raises(TpcaError, match=r"as in the first batch: entry 0 of 'channel' is 'Oz', expected 'Fz'; put"):
        named.partial_fit(TURNED.isel(channel=[3, 2, 1, 0]), sample_dim="trial")
    named.partial_fit(TURNED.isel(trial=0))  # one sample
    assert named.n_samples_seen_ == 121


def test_samples_in_another_order_are_not_scored():
    pca = TensorPCA(random_state=0).fit(NAMED)
    with pytest.raises(TpcaError, match=r"entry 1 of 'channel' is 'Pz', expected 'Cz'.*reindex"):
        pca.transform(NAMED.isel(channel=[0, 2, 1, 3]))
    planted = np.outer([2.0, 0, 0, 0], [0, 0, 0, 2.0]) + X[:, :, :4, 0]
    square = xarray.DataArray(planted, dims=("trial", "a", "b"))
    fitted = TensorPCA(random_state=0).fit(square)
    with pytest.raises(TpcaError, match=r"their modes are 'b', 'a', expected 'a', 'b'"):
        fitted.score(square.transpose("trial", "b", "a"))
    np.testing.assert_array_equal(fitted.transform(planted), fitted.transform(square))


@pytest.mark.parametrize("solver", [MeanSolver(random_state=0, n_components=2), RaceSolver(random_state=0)])
def test_to_xarray_has_names_coordinates_and_where_it_came_from(solver, tmp_path):
    recovery = solver.run(open_stream(NAMED))
    found = recovery.to_xarray(confidence=0.9)
    assert dict(found.sizes) == {"component": len(recovery.components), "channel": 4, "time": 6, "band": 5, "bound": 2}
    np.testing.assert_array_equal(found["vector_channel"][0], recovery.vectors[0])
    assert found["vector_channel"].coords["channel"].values.tolist() == CHANNELS
    np.testing.assert_array_equal(found["time"], SECONDS)
    assert "band" not in found.coords
    np.testing.assert_array_equal(found["standard_error_time"][0], recovery.standard_errors[1])
    width = found["interval_time"].sel(bound="high") - found["interval_time"].sel(bound="low")
    np.testing.assert_allclose(width[0], 2 * 1.6448536269514722 * recovery.standard_errors[1])  # the 0.95 quantile
    assert found.attrs["strength"][0] == recovery.strength
    assert (found.attrs["solver"], found.attrs["n_samples"]) == (recovery.solver, recovery.n_samples)
    assert found.attrs["sample_dim"] == "trial"
    found.to_netcdf(tmp_path / "r.nc", engine="h5netcdf")
    xarray.testing.assert_equal(xarray.open_dataset(tmp_path / "r.nc", engine="h5netcdf"), found)


def test_to_xarray_without_names_or_signal():
    recovery = TensorPCA(random_state=0).fit(X).recovery_
    assert list(recovery.to_xarray()["vector_mode_0"].dims) == ["component", "mode_0"]
    bare = dataclasses.replace(recovery, components=(Component(recovery.vectors, 1.0),)).to_xarray()
    assert np.isnan(bare["standard_error_mode_1"]).all()
    with pytest.warns(match="No signal"):
        nothing = TensorPCA(random_state=0).fit(X[:5])  # at 0.95, five samples prove nothing
    found = nothing.recovery_.to_xarray()
    assert (found.sizes["component"], found.attrs["verdict"]) == (0, "no signal")
    assert found.attrs["strength_high"][0] > 0
    with pytest.raises(TpcaError, match="confidence must be between 0 and 1, got 95"):
        nothing.recovery_.to_xarray(confidence=95)


def test_names_that_the_data_set_needs_itself():
    odd = NAMED.rename(channel="component", time="bound")
    found = TensorPCA(random_state=0).fit(odd).recovery_.to_xarray()
    assert {"component_mode", "bound_mode", "band", "component", "bound"} == set(found.dims)


def test_a_data_array_on_a_cluster_has_the_bits_of_the_local_one():
    """Workers as threads of this process: the client, scheduler and protocol are real."""
    distributed = pytest.importorskip("distributed")
    blocks = TURNED.chunk({"trial": 40})
    local = TensorPCA(random_state=0).fit(blocks, sample_dim="trial")
    with (
        distributed.LocalCluster(1, threads_per_worker=1, processes=False, dashboard_address=None) as cluster,
        distributed.Client(cluster),
    ):
        there = TensorPCA(random_state=0).fit(blocks, sample_dim="trial")
        scores = there.transform(blocks)
    same_bits(there, local)
    assert there.recovery_.labels.modes == MODES
    np.testing.assert_array_equal(scores, local.transform(blocks))


# -- results, tables and reports --------------------------------------------------------------------------------------


def test_stored_results_keep_labels_and_older_ones_are_read(tmp_path):
    dated = NAMED.assign_coords(time=pd.date_range("2020-01-01", periods=6), band=[4, 8, 13, 30, 45])
    recovery = MeanSolver(random_state=0).run(open_stream(dated))
    write_result(tmp_path / "r", recovery, "x.nc")
    stored = read_result(tmp_path / "r")
    assert stored.labels.difference(recovery.labels) == ""
    assert (stored.labels.sample, stored.labels.modes) == ("trial", ("channel", "time", "band"))
    for own, kept in zip(recovery.labels.axes, stored.labels.axes, strict=True):
        assert own.coords.dtype == kept.coords.dtype
        np.testing.assert_array_equal(own.coords, kept.coords)
    summary = json.loads((tmp_path / "r" / "recovery.json").read_text())
    del summary["labels"]
    (tmp_path / "r" / "recovery.json").write_text(json.dumps(summary))
    assert read_result(tmp_path / "r").labels is None
    summary["labels"] = {"0": ["too", "few"]}
    (tmp_path / "r" / "recovery.json").write_text(json.dumps(summary))
    with pytest.raises(TpcaError, match="a list of 4 names, got 2"):
        read_result(tmp_path / "r")


def test_numbers_and_times_are_places_along_the_axis_of_a_picture():
    vectors = np.array([[0.5, -0.5, 0.5, 0.5]])
    days = np.array(["2020-01-01", "2020-01-02", "2020-01-05", "2020-01-06"], dtype="datetime64[D]")
    for coords, places in (
        (np.array([1.0, 2.0, 4.0, 8.0]), [1.0, 2.0, 4.0, 8.0]),
        (days, [86400 * day for day in (0, 1, 4, 5)]),
        (np.array([3.0, 1.0, 2.0, 9.0]), [0, 1, 2, 3]),  # in no order: names
    ):
        figure = component_figure(0, vectors, None, Labels((Axis("x", coords),)))
        assert list(figure.traces[0]["x"]) == places
        assert len(figure.traces[0]["hover"]) == 4


def test_the_command_takes_labels_from_the_data(tmp_path):
    TURNED.to_netcdf(tmp_path / "d.nc", engine="h5netcdf")
    done = run("info", "d.nc", "--sample-dim", "trial", cwd=tmp_path)
    assert "120 samples of 4 × 5 × 6" in done.stdout
    assert "samples along trial, modes channel (Fz to Oz), band, time (0 to 1)" in done.stdout
    fit = ("fit", "d.nc", "--sample-dim", "trial", "--out", "r", "--report", "r.html")
    done = run(*fit, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "channel (4 entries)" in done.stdout
    assert re.search(r"Oz: −?0\.\d+ ± 0\.\d+", done.stdout)
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "Oz" in page
    assert "one more pass over the 120 samples" in page  # read again with the same axis
    again = TensorPCA(random_state=0).fit(PLAIN)
    assert [v.tobytes() for v in read_result(tmp_path / "r").vectors] == [v.tobytes() for v in again.components_]
    scored = json.loads(run("score", "d.nc", "r", "--json", cwd=tmp_path).stdout)  # the axis is that of the fit
    assert scored["rewards"][0] == pytest.approx(float(again.score(PLAIN)))
    NAMED.isel(channel=[1, 0, 2, 3]).transpose(*TURNED.dims).to_netcdf(tmp_path / "e.nc", engine="h5netcdf")
    done = run("score", "e.nc", "r", cwd=tmp_path)
    assert done.returncode == 2
    assert "entry 0 of 'channel' is 'Cz', expected 'Fz'" in done.stderr
    done = run("fit", "d.nc", "--sample-dim", "trail", "--out", "s", cwd=tmp_path)
    assert re.search("name one of its axes, 'channel', 'trial', 'band', 'time'; got 'trail'", done.stderr)


def test_a_labels_file_says_what_the_data_do_not(tmp_path):
    NAMED.to_netcdf(tmp_path / "d.nc", engine="h5netcdf")
    (tmp_path / "l.json").write_text(json.dumps({"2": {"name": "rhythm", "entries": ["δ", "θ", "α", "β", "γ"]}}))
    done = run("fit", "d.nc", "--out", "r", "--labels", "l.json", cwd=tmp_path)
    assert "rhythm (5 entries)" in done.stdout
    labels = read_result(tmp_path / "r").labels
    assert labels.modes == ("channel", "time", "rhythm")
    assert [labels.entry(0, 3), labels.entry(2, 4)] == ["Oz", "γ"]


def test_the_command_reads_a_long_table(tmp_path):
    NAMED.to_dataframe().reset_index().to_csv(tmp_path / "d.csv", index=False)
    said = run("fit", "d.csv", "--out", "r", cwd=tmp_path)
    assert said.returncode == 2
    assert "--sample, --modes, --value" in said.stderr
    table = ("--sample", "trial", "--modes", "channel,time,band", "--value", "eeg")
    done = run("fit", "d.csv", "--out", "r", *table, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "channel (4 entries)" in done.stdout
    np.testing.assert_allclose(read_result(tmp_path / "r").vectors[0], TensorPCA(random_state=0).fit(X).components_[0])
    assert "table, float64" in run("info", "d.csv", *table, cwd=tmp_path).stdout
    assert run("score", "d.csv", "r", cwd=tmp_path).returncode == 0
    assert run("fit", "d.csv", "--out", "r", *table, cwd=tmp_path).returncode == 0  # the same fit, the same folder
