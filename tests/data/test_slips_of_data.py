"""What is no set of samples is refused in one sentence, whatever methods it has."""

import json
import uuid

import numpy as np
import pandas
import pyarrow
import pyarrow.parquet
import pytest
import xarray

from command import line, run
from tpca import TensorCCA, TensorPCA, open_stream
from tpca.data import Stream
from tpca.errors import SampleError, StreamError

X = np.random.default_rng(0).standard_normal((60, 4, 3))


class OwnStream:
    """A stream of a user."""

    dims = (4, 3)

    def batches(self):
        yield X


FITS = {
    "fit": lambda data: TensorPCA(random_state=0).fit(data),
    "partial_fit": lambda data: TensorPCA(random_state=0).partial_fit(data),
    "views": lambda data: TensorCCA(random_state=0).fit([data, X[:, :, 0]]),
}


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize(
    "kind", [np.ndarray, pandas.DataFrame, xarray.DataArray, pyarrow.Table, OwnStream, Stream, TensorPCA]
)
def test_a_class_is_no_data(kind, fit):
    with pytest.raises((SampleError, StreamError)):
        FITS[fit](kind)
    with pytest.raises(StreamError, match=rf"class {kind.__name__};"):
        open_stream(kind)


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize(
    "column",
    [
        pandas.Series(X[:, 0, 0]),
        pandas.Series(list(X)),
        pandas.Series(["a"] * 60),
        pyarrow.chunked_array([X[:, 0, 0]]),
        pyarrow.array(X[:, 0, 0]),
    ],
    ids=["numbers", "arrays", "text", "chunked", "arrow"],
)
def test_a_single_column_is_no_set_of_samples(column, fit):
    with pytest.raises(SampleError):
        FITS[fit](column)
    with pytest.raises(SampleError, match=r"\(60,\)"):
        open_stream(column)


@pytest.mark.parametrize("data", [X, "d.npy", iter([X])], ids=["array", "file", "batches"])
def test_dim_is_called_dim(data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("d.npy", X)
    with pytest.raises(StreamError, match=r"^dim.*7") as refused:
        TensorPCA().fit(data, dim=7)
    assert "sample_dim" not in str(refused.value)
    assert "--dim" in line(run("fit", "d.npy", "--dim", "7", cwd=tmp_path))


# Columns that name samples and entries -------------------------------------------------------------------------------


def column_of(kind, numbers):
    """Whole numbers as values of a type of Parquet."""
    if kind == "uuid":
        stored = pyarrow.array([uuid.UUID(int=i).bytes for i in numbers], pyarrow.binary(16))
        return pyarrow.ExtensionArray.from_storage(pyarrow.uuid(), stored)
    if kind == "json":
        return pyarrow.ExtensionArray.from_storage(pyarrow.json_(), pyarrow.array([json.dumps(i) for i in numbers]))
    if kind == "struct":
        return pyarrow.array([{"a": i} for i in numbers])
    if kind == "list":
        return pyarrow.array([[i] for i in numbers])
    return pyarrow.array([[("a", i)] for i in numbers], pyarrow.map_(pyarrow.string(), pyarrow.int64()))


def write_table(path, name, kind):
    """A long table whose column ``name`` has values of a type."""
    columns = dict(zip("nxy", np.indices(X.shape).reshape(3, -1), strict=True))
    values = columns | {name: column_of(kind, columns[name].tolist()), "v": X.ravel()}
    pyarrow.parquet.write_table(pyarrow.table(values), path)


WORDS = ("--sample", "n", "--modes", "x,y", "--value", "v")


@pytest.mark.parametrize("name", ["n", "x"])
@pytest.mark.parametrize("kind", ["uuid", "json"])
def test_names_of_a_type_of_their_own_are_names(kind, name, tmp_path):
    if not hasattr(pyarrow, f"{kind}_".removesuffix("_" if kind == "uuid" else "")):
        pytest.skip("this pyarrow has no such type")
    write_table(tmp_path / "t.parquet", name, kind)
    stream = open_stream(tmp_path / "t.parquet", sample="n", modes=["x", "y"], value="v")
    np.testing.assert_array_equal(np.concatenate([batch.samples for batch in stream.batches()]), X)
    if name == "x":
        expected = str(uuid.UUID(int=1)) if kind == "uuid" else "1"
        assert stream.labels.entry(0, 1) == expected


@pytest.mark.parametrize("name", ["n", "x"])
@pytest.mark.parametrize("kind", ["struct", "map", "list"])
def test_values_that_name_nothing_are_refused_with_their_column(kind, name, tmp_path):
    write_table(tmp_path / "t.parquet", name, kind)
    said = line(run("fit", "t.parquet", *WORDS, cwd=tmp_path))
    assert f"column {name!r} holds {kind}<" in said
    assert "convert" in said
