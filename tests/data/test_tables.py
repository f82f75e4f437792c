"""Long tables: CSV, Parquet, Arrow and data frames, in pieces, dense and sparse; what is wrong is named by its row."""

import pickle

import numpy as np
import pandas as pd
import pyarrow
import pytest

from tpca import RaceSolver, SpikedTensor, TpcaError, open_stream
from tpca.data import tables as table_files
from tpca.data.tables import SparseTableStream
from tpca.solvers.least_squares.solver import LeastSquares
from tpca.tensors import DenseBatch, SparseBatch

GENES, TIMES = ["b", "a", "c"], [0.5, 1.0, 2.0, 8.0]
X = np.random.default_rng(0).standard_normal((30, 3, 4)).round(6)
COLUMNS = {"sample": "trial", "modes": ["gene", "time"], "value": "count"}


def frame(array=X, genes=GENES, times=TIMES):
    index = pd.MultiIndex.from_product([range(len(array)), genes, times], names=["trial", "gene", "time"])
    return pd.DataFrame({"count": array.ravel()}, index).reset_index().assign(note="x")


def csv(table, folder, separator=","):
    table.to_csv(folder / "t.csv", index=False, sep=separator)
    return folder / "t.csv"


def parquet(table, folder):
    table.to_parquet(folder / "t.parquet", row_group_size=37)
    return folder / "t.parquet"


class Frame:
    """As one of polars or DuckDB: nothing but the protocol of Arrow."""

    def __init__(self, table):
        self.table = pyarrow.Table.from_pandas(table)

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


FORMS = {
    "data frame": lambda table, folder: table,
    "protocol": lambda table, folder: Frame(table),
    "arrow": lambda table, folder: pyarrow.Table.from_pandas(table),
    "categories": lambda table, folder: table.astype({"gene": "category", "trial": "category"}),
    "csv": csv,
    "semicolons": lambda table, folder: csv(table, folder, ";"),
    "parquet": parquet,
}


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Many pieces, whose borders lie within samples."""
    monkeypatch.setattr(table_files, "PIECE_ROWS", 37)
    monkeypatch.setattr("tpca.data.stored.BATCH_ENTRIES", 84)


def values(stream):
    return np.concatenate([batch.samples for batch in stream.batches()])


@pytest.mark.parametrize("form", FORMS)
def test_every_form_holds_the_same_samples_with_their_names(form, tmp_path):
    stream = open_stream(FORMS[form](frame(), tmp_path), **COLUMNS)
    assert (stream.kind, stream.dims, stream.length, stream.rereadable) == ("table", (3, 4), 30, True)
    assert all(isinstance(batch, DenseBatch) for batch in stream.batches())
    np.testing.assert_array_equal(values(stream), X)
    np.testing.assert_array_equal(values(stream), X)  # a second pass
    assert (stream.labels.sample, stream.labels.modes) == ("trial", ("gene", "time"))
    assert stream.labels.axes[0].coords.tolist() == GENES  # text in the order of its first row
    assert stream.labels.axes[1].coords.tolist() == TIMES
    if stream.readable_elsewhere:
        np.testing.assert_array_equal(values(pickle.loads(pickle.dumps(stream))), X)


def test_numbers_and_times_are_sorted_and_levels_that_are_given_stay(tmp_path):
    turned = frame(X[:, :, ::-1], times=TIMES[::-1])
    np.testing.assert_array_equal(values(open_stream(csv(turned, tmp_path), **COLUMNS)), X)
    given = {**COLUMNS, "modes": {"gene": ["c", "b", "a"], "time": [8, 2, 1, 0.5]}}
    for source in (turned, csv(turned, tmp_path)):
        np.testing.assert_array_equal(values(open_stream(source, **given)), X[:, [2, 0, 1]][:, :, ::-1])
    days = pd.date_range("2020-01-01", periods=4)[::-1]
    dated = open_stream(frame(X[:, :, ::-1], times=days), **COLUMNS)
    np.testing.assert_array_equal(values(dated), X)
    assert dated.labels.entry(1, 0) == "2020-01-01"
    given = {**COLUMNS, "modes": {"gene": None, "time": list(days)}}
    for source in (frame(X, times=days), csv(frame(X, times=days), tmp_path)):
        np.testing.assert_array_equal(values(open_stream(source, **given)), X)


@pytest.mark.parametrize("form", ["data frame", "csv"])
def test_rows_of_what_is_held_may_come_in_any_order(form, tmp_path):
    mixed = frame().sample(frac=1, random_state=0)
    given = {**COLUMNS, "modes": {"gene": GENES, "time": None}}
    stream = open_stream(FORMS[form](mixed, tmp_path), **given)
    np.testing.assert_array_equal(values(stream), X)
    assert stream.labels.samples.tolist() == list(range(len(X)))


@pytest.mark.parametrize("form", ["data frame", "csv", "parquet"])
@pytest.mark.parametrize("missing", ["raise", "zero"])
def test_samples_that_are_numbers_or_times_are_sorted_and_text_is_not(form, missing, tmp_path):
    places = np.random.default_rng(1).permutation(len(X))
    shuffled = frame(X[places])  # sample i of the table, in its order, is sample places[i] of X
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(places, "D")
    for names in (places, places / 8, days):
        table = shuffled.assign(trial=np.asarray(names)[shuffled["trial"]])
        stream = open_stream(FORMS[form](table, tmp_path), **COLUMNS, missing=missing)
        np.testing.assert_array_equal(values(stream), X)
        assert list(stream.labels.samples) == sorted(names)
        if stream.readable_elsewhere:
            np.testing.assert_array_equal(values(pickle.loads(pickle.dumps(stream))), X)
    words = np.array([f"s{place}" for place in places])
    table = shuffled.assign(trial=words[shuffled["trial"]])
    stream = open_stream(FORMS[form](table, tmp_path), **COLUMNS, missing=missing)
    np.testing.assert_array_equal(values(stream), X[places])
    assert list(stream.labels.samples) == list(words)


@pytest.mark.parametrize("form", ["data frame", "parquet"])
@pytest.mark.parametrize("column", ["trial", "time"])
def test_durations_are_sorted_as_times_are(column, form, tmp_path):
    table = frame(times=[3.0, 1.0, 2.0, 8.0])
    expected = X[:, :, [1, 2, 0, 3]]
    seconds = table[column]
    table[column] = pd.to_timedelta(seconds, "s")
    stream = open_stream(FORMS[form](table, tmp_path), **COLUMNS)
    np.testing.assert_array_equal(values(stream), expected)
    names = stream.labels.samples if column == "trial" else stream.labels.axes[1].coords
    np.testing.assert_array_equal(names / np.timedelta64(1, "s"), np.unique(seconds))


def test_sparse_samples_of_a_parquet_file_are_sorted_and_errors_name_rows_of_the_file(tmp_path):
    rng = np.random.default_rng(2)
    counts = np.where(rng.random((40, 12, 15)) < 0.02, rng.integers(1, 9, (40, 12, 15)), 0.0)
    counts[:, 0, 0] = 1  # every sample has a row
    places = rng.permutation(len(counts))
    table = frame(counts[places], list(range(12)), list(range(15)))
    table["trial"] = places[table["trial"]]
    table = table[table["count"] != 0].reset_index(drop=True)
    options = {**COLUMNS, "modes": {"gene": range(12), "time": range(15)}, "missing": "zero"}
    stream = open_stream(parquet(table, tmp_path), **options)
    assert isinstance(stream, SparseTableStream)
    unit_vectors = [np.eye(12)[:1], np.eye(15)[:1]]
    corner = np.concatenate([batch.scores(unit_vectors)[:, 0] for batch in stream.batches()])
    np.testing.assert_array_equal(corner, counts[:, 0, 0])
    last = [np.eye(12)[5:6], np.eye(15)[7:8]]
    scores = np.concatenate([batch.scores(last)[:, 0] for batch in stream.batches()])
    np.testing.assert_array_equal(scores, counts[:, 5, 7])
    table.loc[100, "count"] = np.nan
    with pytest.raises(TpcaError, match="row 100 "):
        list(open_stream(parquet(table, tmp_path), **options).batches())
    twice = pd.concat([table.iloc[:101], table.iloc[100:]])
    with pytest.raises(TpcaError, match=r"row 101 .* a second time"):
        list(open_stream(parquet(twice, tmp_path), **options).batches())


def test_a_table_of_counts_is_sparse_where_few_cells_have_a_row(tmp_path):
    rng = np.random.default_rng(1)
    counts = np.where(rng.random((40, 12, 15)) < 0.02, rng.integers(1, 9, (40, 12, 15)), 0.0)
    counts[:, 0, 0] = 1  # every sample has a row
    table = frame(counts, list(range(12)), list(range(15)))
    options = {**COLUMNS, "modes": {"gene": range(12), "time": range(15)}, "missing": "zero"}
    for form in ("data frame", "csv", "parquet"):
        stream = open_stream(FORMS[form](table[table["count"] != 0], tmp_path), **options)
        assert isinstance(stream, SparseTableStream)
        batches = list(stream.batches())
        assert all(isinstance(batch, SparseBatch) for batch in batches)
        np.testing.assert_array_equal(sum(batch.add_to(None) for batch in batches), counts.sum(axis=0))
        assert stream.identity == open_stream(FORMS[form](table[table["count"] != 0], tmp_path), **options).identity
    with pytest.raises(TpcaError, match="this table is sparse"):
        open_stream(table[table["count"] != 0], **options, shuffle=True)


def test_a_sparse_table_is_fitted_as_the_array(tmp_path):
    """Sums of sparse samples are added up in another order than those of arrays: the same up to rounding."""
    rng = np.random.default_rng(2)
    truth = SpikedTensor.random((20, 18), 60.0, random_state=3)
    kept = rng.random((60, 20, 18)) < 0.04
    array = np.where(kept, truth.signal() + rng.standard_normal(kept.shape), 0.0)
    array[:, 0, 0] = 1.0
    table = frame(array, list(range(20)), list(range(18)))
    options = {**COLUMNS, "modes": {"gene": range(20), "time": range(18)}, "missing": "zero"}
    stream = open_stream(table[table["count"] != 0], **options)
    assert isinstance(stream, SparseTableStream)
    for solver in (LeastSquares, RaceSolver):
        found, expected = (solver(random_state=0, max_samples=60).run(data) for data in (stream, array))
        assert found.verdict == expected.verdict
        assert found.labels.modes == ("gene", "time")
    found, expected = (LeastSquares(random_state=0).run(data) for data in (stream, array))
    np.testing.assert_allclose(found.vectors[0], expected.vectors[0], atol=1e-9)


def test_missing_cells():
    holed = frame().drop(index=[5, 40])
    with pytest.raises(TpcaError, match=r"no row for gene 'a', time '1' of trial 0; .*missing=\"zero\" if"):
        values(open_stream(holed, **COLUMNS))
    zero = X.copy()
    zero[0, 1, 1] = zero[3, 1, 0] = 0
    np.testing.assert_array_equal(values(open_stream(holed, **COLUMNS, missing="zero")), zero)
    omitted = open_stream(holed, **COLUMNS, missing="nan", nan_policy="omit")
    np.testing.assert_array_equal(values(omitted), np.delete(X, [0, 3], axis=0))


def again(table, place):
    return pd.concat([table[:place], table[place - 1 : place], table[place:]])


@pytest.mark.parametrize(
    ("change", "columns", "says"),
    [
        (lambda t: again(t, 17), {}, r"row 17 of .*gives gene 'a', time '0.5' of trial '?1'? a second time; add"),
        (lambda t: t.replace({"gene": {"c": "z"}}), {"modes": {"gene": GENES, "time": None}},
         r"row 8 of .* has gene 'z', which is none of its 3 levels .*; add it"),
        (lambda t: t.assign(gene=t["gene"].where(t.index != 7)), {}, r"row 7 of .* has no gene; fill column 'gene'"),
        (lambda t: t, {"value": "note"}, r"row 0 of .* has note 'x', expected a number; convert column 'note'"),
        (lambda t: t, {"sample": "who"}, r"has no column 'who'; its columns are 'count', 'gene', 'note', 'time'"),
        (lambda t: t, {"modes": ["gene"]}, "two or more axes, modes=, must differ"),
        (lambda t: t, {"modes": ["gene", "gene"]}, "two or more axes, modes=, must differ"),
        (lambda t: t, {"modes": "gene"}, "modes= must be a list of columns"),
        (lambda t: t, {"modes": {"gene": ["a", "a"], "time": None}}, "levels of 'gene' must differ"),
        (lambda t: t, {"missing": "drop"}, 'missing must be "raise", "zero" or "nan", got \'drop\''),
        (lambda t: t, {"dim": "trial"}, "dim='trial' is for arrays; .* in sample="),
        (lambda t: t[:0], {}, "has no rows"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("form", ["data frame", "csv", "parquet"])
def test_what_is_wrong_is_named(change, columns, says, form, tmp_path):
    with pytest.raises(TpcaError, match=says) as caught:
        values(open_stream(FORMS[form](change(frame()), tmp_path), **{**COLUMNS, **columns}))
    assert "\n" not in str(caught.value)


def test_a_table_without_words_says_what_to_do(tmp_path):
    worded = frame().astype({"gene": str})
    named = r"is a table with columns 'trial', 'gene', 'time', 'count', .* say which columns are .*"
    named += r"tpca.open_stream\(.*, sample=..., modes=\[..., ...\], value=...\)"
    for source, says in (
        (worded, named),
        (csv(worded, tmp_path), f"{named} .tpca: --sample, --modes, --value"),
        (tmp_path / "none.csv", "no such file or folder: '.*none.csv'"),
    ):
        with pytest.raises(TpcaError, match=says):
            open_stream(source)
    with pytest.raises(TpcaError, match=r"are for long tables .*, got ndarray; leave them out"):
        open_stream(X, **COLUMNS)


@pytest.mark.parametrize("form", ["data frame", "arrow", "csv", "semicolons", "parquet"])
def test_a_table_of_numbers_has_a_sample_in_every_row_and_names_of_columns(form, tmp_path):
    table = pd.DataFrame(X[:, 0], columns=list("abcd"))
    stream = open_stream(FORMS[form](table, tmp_path))
    np.testing.assert_array_equal(values(stream), X[:, 0])
    assert stream.labels.axes[0].coords.tolist() == list("abcd")
    table.loc[4, "b"] = np.nan
    assert sum(batch.dropped for batch in open_stream(FORMS[form](table, tmp_path), nan_policy="omit").batches()) == 1


def test_a_first_line_that_names_no_columns_may_be_a_sample_or_have_an_index(tmp_path):
    np.savetxt(tmp_path / "m.csv", X[0], delimiter=",")
    pd.DataFrame(X[0], columns=list("abcd")).to_csv(tmp_path / "i.csv")
    for name in ("m.csv", "i.csv"):
        with pytest.raises(TpcaError, match=rf"the first line of '.*{name}' must name .* index=False.*numpy.loadtxt"):
            open_stream(tmp_path / name)


def test_files_with_a_column_twice_a_short_row_empty_or_odd_values_odd_names_and_files_that_are_none(tmp_path):
    for text, says in (
        ("trial,gene,time,count,trial\n0,a,1,2,0\n", "has 2 columns 'trial'"),
        ("trial,gene,time,count\n0,a,1\n", "cannot read .* as a table: .*Expected 4 columns, got 3"),
        ("trial,gene,time,count\n0,a,1,2\n0,b,1,\n0,a,2,3\n0,b,2,1\n", "sample 0 contains NaN"),
    ):
        (tmp_path / "t.csv").write_text(text)
        with pytest.raises(TpcaError, match=says):
            values(open_stream(tmp_path / "t.csv", **COLUMNS))
    table = frame().astype({"count": object})
    table.loc[100, "count"] = "much"
    with pytest.raises(TpcaError, match=r"row 100 of .* \(line 102\) has count 'much', expected a number"):
        values(open_stream(csv(table, tmp_path), **COLUMNS))
    apart = frame().sort_values("time", kind="stable")
    with pytest.raises(TpcaError, match=r"row \d+ .*goes on with trial '?0'? after rows of others; sort the table"):
        open_stream(parquet(apart, tmp_path), **COLUMNS)
    names = ['a "b", c', "d\ne", "f"]  # quotes, commas and line breaks
    stream = open_stream(csv(frame(genes=names), tmp_path), **COLUMNS)
    assert stream.labels.axes[0].coords.tolist() == names
    np.testing.assert_array_equal(values(stream), X)
    for name in ("none.csv", "none.parquet"):
        with pytest.raises(TpcaError, match="no such file"):
            open_stream(tmp_path / name, **COLUMNS)
        (tmp_path / name).write_bytes(b"\xff\xfe\x00damaged\n1,2\n" * 5)
        with pytest.raises(TpcaError, match=r"cannot (read|open)|has no column") as caught:
            open_stream(tmp_path / name, **COLUMNS)
        assert "\n" not in str(caught.value)
        (tmp_path / name).write_bytes(b"")
        with pytest.raises(TpcaError, match=r"is empty|cannot open"):
            open_stream(tmp_path / name, **COLUMNS)
