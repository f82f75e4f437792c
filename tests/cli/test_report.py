"""``tpca report``: a result may come from anybody, so of what it names only paths of this machine are read unasked."""

import json
import re

import numpy as np
import pytest
import zarr

import spy_system
from command import line, run
from tpca import TensorPCA

RNG = np.random.default_rng(0)
SAMPLES = RNG.standard_normal((60, 4, 3))
NAMED = [
    "spy://host/x.zarr",
    "reference::spy://host/x.zarr",
    "simplecache::spy://host/x.zarr",
    "spy::d.zarr",
    "spy::d.zarr::x",
    "ftp://host/x.zarr",
    "memory://reports/d.zarr",
    "//host/share/d.npy",
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A result of d.npy, and a folder that zarr takes for a chain of file systems."""
    np.save(tmp_path / "d.npy", SAMPLES)
    np.save(tmp_path / "y.npy", np.arange(60.0))
    fitted = TensorPCA(target="effect", n_resamples=19, random_state=0).fit(SAMPLES, np.arange(60.0))
    result = fitted.result_
    result.source = "d.npy"
    result.settings["y"] = "y.npy"
    result.save(tmp_path / "r")
    group = tmp_path / "spy::d.zarr"
    group.mkdir()
    (group / "zarr.json").write_text('{"zarr_format": 3, "node_type": "group", "attributes": {}}')
    monkeypatch.setattr(spy_system, "MADE", [])
    return tmp_path


def changed(folder, **fields):
    """The result as somebody else would write it: checksums do not hinder that."""
    place = folder / "r" / "result.json"
    stored = json.loads(place.read_text())
    stored["source"] = fields.get("source", stored["source"])
    stored["settings"]["y"] = fields.get("y", stored["settings"]["y"])
    place.write_text(json.dumps(stored))


def drawn(folder):
    """How many figures the page has."""
    return len(re.findall("<figure>", (folder / "r" / "report.html").read_text()))


def test_paths_of_this_machine_are_read_for_scores(folder):
    done = run("report", "r", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    with_scores = drawn(folder)
    assert run("report", "r", "--no-scores", cwd=folder).returncode == 0
    assert drawn(folder) < with_scores


@pytest.mark.parametrize("field", ["source", "y"])
@pytest.mark.parametrize("named", NAMED)
def test_a_url_in_a_result_is_not_opened_and_the_page_goes_without_scores(named, field, folder):
    run("report", "r", "--no-scores", cwd=folder)
    without = drawn(folder)
    changed(folder, **{field: f"{named}::y" if field == "y" else named})
    done = run("report", "r", cwd=folder)
    assert done.returncode == 0, done
    assert spy_system.MADE == []
    assert "the report has no scores" in done.stderr
    assert named.partition("::")[0] in done.stderr
    assert drawn(folder) == without


def test_a_url_is_opened_where_it_is_typed(folder):
    run("report", "r", cwd=folder)
    with_scores = drawn(folder)
    url = "memory://reports/typed.zarr"
    zarr.open_array(url, mode="w", shape=SAMPLES.shape, chunks=(20, 4, 3), dtype="f8")[:] = SAMPLES
    changed(folder, source=url, y="s3://bucket/y.zarr::y")
    done = run("report", "r", "--data", url, "--y", "y.npy", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert drawn(folder) == with_scores
    done = run("report", "r", "--data", "spy://host/x.zarr", "--y", "y.npy", cwd=folder)
    assert "scheme 'spy'" in done.stderr
    assert spy_system.MADE == []


def test_options_for_scores_are_refused_without_them(folder):
    assert line(run("report", "r", "--no-scores", "--y", "y.npy", cwd=folder)).startswith("tpca: --y")
