"""Which URLs are opened: those of a few schemes, without chains; whatever else fsspec knows is never started."""

from pathlib import Path

import numpy as np
import pytest
import zarr

import spy_system
from tpca import open_stream, open_views
from tpca.cli.options import read_columns
from tpca.errors import StreamError

SAMPLES = np.random.default_rng(0).standard_normal((20, 4, 5))
OTHERS = ("spy://host/x.zarr", "ftp://host/x.zarr", "http://host/x.zarr", "reference://x.zarr", "S3://bucket/x.zarr")
CHAINS = ("simplecache::spy://host/x.zarr", "spy::file:///d.zarr", "spy::s3://bucket/x.zarr", "s3://a::file://b::x")


def read(source):
    return np.concatenate([batch.samples for batch in open_stream(source).batches()])


@pytest.fixture
def made(monkeypatch):
    """What was made of the file system that must not be."""
    found = []
    monkeypatch.setattr(spy_system, "MADE", found)
    return found


@pytest.mark.parametrize("url", [*OTHERS, *CHAINS])
def test_a_url_of_another_scheme_and_a_chain_are_refused_unopened(url, made):
    opens = {
        "samples": open_stream,
        "views": lambda place: open_views([place, place]),
        "columns": lambda place: read_columns(f"{place}::y"),
    }
    for name, opened in opens.items():
        with pytest.raises(StreamError, match=r"'.*(://|::)") as refused:
            opened(url)
        if name == "samples":
            assert url in str(refused.value)
    assert made == []


def test_the_spy_would_have_been_seen(made):
    with pytest.raises(Exception, match=r"."):
        zarr.open("spy://host/x.zarr", mode="r")
    assert made != []


def test_a_folder_that_is_called_like_a_chain_is_a_folder(tmp_path, made, monkeypatch):
    """zarr takes its name for a chain of file systems."""
    folder = tmp_path / "spy::d.zarr"
    zarr.open_array(Path(folder), mode="w", shape=SAMPLES.shape, chunks=(4, 4, 5), dtype="f8")[:] = SAMPLES
    monkeypatch.chdir(tmp_path)
    for place in ("spy::d.zarr", "spy::d.zarr::x", "spy::d.zarr::/"):
        with pytest.raises(StreamError, match="spy"):
            open_stream(place)
    np.testing.assert_array_equal(read(f"file://{tmp_path}/spy%3A%3Ad.zarr"), SAMPLES)
    assert made == []


def test_a_url_in_the_memory_of_this_process_is_read():
    zarr.open_array("memory://places/d.zarr", mode="w", shape=SAMPLES.shape, chunks=(4, 4, 5), dtype="f8")[:] = SAMPLES
    np.testing.assert_array_equal(read("memory://places/d.zarr"), SAMPLES)
