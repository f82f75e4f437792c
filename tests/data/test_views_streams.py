import threading

import numpy as np
import pytest

from stream_suite import Tensor, dask_array, hdf5, npy, strided, zarr_array
from tpca import TensorPCA, TpcaError, open_views
from tpca.data.rows import RowsStream
from tpca.errors import SampleError, StreamError
from tpca.tensors import RowsBatch

N, DIMS, STEP = 23, (3, 4, 2), 7
NAMES = ("left", "middle", "right")


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    """7 rows of 3 + 4 + 2 columns per batch, so that a few rows make several."""
    monkeypatch.setattr("tpca.data.rows.BATCH_ENTRIES", STEP * sum(DIMS))


def data(n=N, dims=DIMS, dtype=np.float64, seed=0):
    rng = np.random.default_rng(seed)
    return [(100 * rng.standard_normal((n, d))).astype(dtype) for d in dims]


def pieces(views, size=5):
    return [tuple(view[i : i + size] for view in views) for i in range(0, len(views[0]), size)]


def frame(views, levels=False):
    import pandas as pd

    columns = [(name, f"{name}{i}") for name, view in zip(NAMES, views, strict=False) for i in range(view.shape[1])]
    parts = [pd.DataFrame(view) for view in views]
    table = pd.concat(parts, axis=1)
    table.columns = pd.MultiIndex.from_tuples(columns) if levels else [column for _, column in columns]
    return table


def column_groups(views):
    return {name: [f"{name}{i}" for i in range(v.shape[1])] for name, v in zip(NAMES, views, strict=False)}


def zarr_views(views, work):
    chunks = [(4, 2), (5, 1), (23, 2)]
    return [zarr_array(v, work, chunks=c, zarr_format=f) for v, c, f in zip(views, chunks, (2, 3, 3), strict=False)]


def hdf5_views(views, work):
    chunks = [(3, 3), None, (10, 1)]
    return [hdf5(v, work, "::/group/x", chunks=c) for v, c in zip(views, chunks, strict=False)]


def mixed(views, work):
    first, second, third = views
    return [npy(first, work), hdf5(second, work, "::/group/x", chunks=(2, 4)), zarr_array(third, work, chunks=(6, 1))]


STORED = {
    "arrays": lambda views, work: list(views),
    "tuple of arrays": lambda views, work: tuple(views),
    "strided arrays": lambda views, work: [strided(view, work) for view in views],
    "tensors": lambda views, work: [Tensor(view) for view in views],
    "npy": lambda views, work: [npy(view, work) for view in views],
    "npy, as text, in Fortran order": lambda views, work: [str(npy(view, work, order="F")) for view in views],
    "zarr": zarr_views,
    "hdf5": hdf5_views,
    "dask": lambda views, work: [dask_array(view, work) for view in views],
    "npy, hdf5 and zarr": mixed,
    "array and npy": lambda views, work: [views[0], *[npy(view, work) for view in views[1:]]],
    "table and mapping": lambda views, work: frame(views),
    "table and lists": lambda views, work: frame(views),
    "table with levels": lambda views, work: frame(views, levels=True),
}
ONCE = {
    "list of tuples": lambda views, work: pieces(views),
    "generator of tuples": lambda views, work: (x for x in [tuple(view[:0] for view in views), *pieces(views)]),
    "generator of lists": lambda views, work: (list(x) for x in pieces(views, 1)),
    "loader of tensors": lambda views, work: (tuple(map(Tensor, x)) for x in pieces(views)),
}
ALL = {**STORED, **ONCE}
every = pytest.mark.parametrize("how", ALL)


def opened(how, views, work, **options):
    groups = {"table and mapping": column_groups(views), "table and lists": list(column_groups(views).values())}
    return open_views(ALL[how](views, work), groups=groups.get(how), **options)


def joined(batches):
    return [np.concatenate(view) for view in zip(*(batch.views for batch in batches), strict=True)]


def same_views(found, expected):
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.dtype == other.dtype


def same(batches, others):
    assert [(b.first, b.dropped, len(b)) for b in batches] == [(b.first, b.dropped, len(b)) for b in others]
    for one, other in zip(batches, others, strict=True):
        same_views(one.views, other.views)


class TestConformance:
    @every
    def test_the_rows_come_in_order_in_small_batches_and_have_an_identity(self, how, work):
        views = data()
        stream = opened(how, views, work)
        assert isinstance(stream, RowsStream)
        assert (stream.kind, stream.dims, stream.endless, stream.length) == ("views", DIMS, False, N)
        assert stream.rereadable
        assert stream.dtype == np.float64
        batches = list(stream.batches())
        assert all(isinstance(batch, RowsBatch) for batch in batches)
        assert all(0 < len(batch) <= STEP and batch.dropped == 0 for batch in batches)
        assert all(view.flags.c_contiguous for batch in batches for view in batch.views)
        assert [batch.first for batch in batches] == [0, *np.cumsum([len(batch) for batch in batches])[:-1]]
        same_views(joined(batches), views)
        next(stream.batches())  # a pass that was broken off
        for number, batch in enumerate(batches):  # later passes, also from there on
            same(list(stream.batches(batch.first)), batches[number:])
        assert not any(thread.name.startswith("tpca-prefetch") for thread in threading.enumerate())
        assert stream.identity == opened(how, views, work).identity
        assert "\n" not in stream.identity
        assert str(DIMS) in stream.identity
        for changed in ([views[0] + 1, *views[1:]], [view[:-1] for view in views]):
            assert stream.identity != opened(how, changed, work).identity

    @pytest.mark.parametrize(
        ("stored_as", "read_as"),
        [("f4", "f4"), ("f8", "f8"), ("f2", "f4"), ("i2", "f4"), ("i8", "f8"), ("?", "f4")],
    )
    @every
    def test_dtypes(self, how, work, stored_as, read_as):
        views = [v.astype(stored_as) for v in np.split(np.arange(N * 9).reshape(N, 9) % 100, [3, 7], axis=1)]
        stream = opened(how, views, work)
        assert stream.dtype == read_as
        same_views(joined(stream.batches()), [view.astype(read_as) for view in views])

    def test_views_of_different_dtypes_take_the_widest(self):
        wide, narrow, whole = data()[0], data(dtype=np.float32)[1], data(dtype=np.int8)[2]
        same_views(joined(open_views([narrow, whole]).batches()), [narrow, whole.astype(np.float32)])
        for source in ([wide, narrow, whole], iter([(wide, narrow, whole)])):
            found = joined(open_views(source).batches())
            same_views(found, [wide, narrow.astype(np.float64), whole.astype(np.float64)])


class TestMissing:
    @every
    def test_a_row_with_a_hole_in_any_view_is_refused_or_skipped(self, how, work):
        views = data(dtype=np.float32)
        views[1][4, 2], views[0][9, 0], views[2][9, 1], views[2][N - 1, 0] = np.nan, np.inf, -np.inf, np.nan
        with pytest.raises(
            SampleError, match=r'row 4 of view 1 contains NaN or Inf; clean it, or give nan_policy="omit"'
        ):
            list(opened(how, views, work).batches())
        stream = opened(how, views, work, nan_policy="omit")
        batches = list(stream.batches())
        same_views(joined(batches), [np.delete(view, [4, 9, N - 1], axis=0) for view in views])
        assert sum(batch.dropped for batch in batches) == 3
        ends = np.cumsum([len(batch) + batch.dropped for batch in batches])
        assert [batch.first for batch in batches] == [0, *ends[:-1]]
        assert ends[-1] == N
        for number, batch in enumerate(batches):
            again = opened(how, views, work, nan_policy="omit")
            same(list(again.batches(batch.first)), batches[number:])
        assert np.isnan(views[1][4, 2])  # the caller's array is left alone

    @pytest.mark.parametrize("holes", [slice(0, 15), slice(3, 20), slice(15, N), slice(0, N)])
    @pytest.mark.parametrize("how", ["arrays", "npy, hdf5 and zarr", "list of tuples"])
    def test_batches_that_are_dropped_whole_are_counted_with_the_next(self, how, holes, work):
        views = data()
        views[1][holes] = np.nan
        batches = list(opened(how, views, work, nan_policy="omit").batches())
        assert all(len(batch) for batch in batches[:-1])
        assert sum(batch.dropped for batch in batches) == holes.stop - holes.start
        same_views(joined(batches), [np.delete(view, holes, axis=0) for view in views])


def refused(error, says, source, **options):
    with pytest.raises(error, match=says) as caught:
        list(open_views(source, **options).batches())
    assert isinstance(caught.value, TpcaError)
    assert "\n" not in str(caught.value)


class TestRefused:
    @every
    def test_views_of_different_length(self, how, work):
        views = data()
        views[1] = views[1][:-2]
        if how.startswith("table"):
            refused(SampleError, r"row 21 of view 1 contains NaN", frame(views), groups=column_groups(views))
        else:
            says = r"same number of rows, got 23, 21, 23|widths \(3, 4, 2\), got shapes .* at row 2\d"
            with pytest.raises(SampleError, match=says):
                list(opened(how, views, work).batches())

    def test_fewer_than_two_views_and_no_rows(self, work):
        first, *_ = data()
        needed = "at least two views are needed, got"
        for source in ([first], [], [(first,)], [()], iter([(first,)])):
            refused(StreamError, rf"{needed} [01]\.", source)
        for source in (first, npy(first, work), str(npy(first, work)), dask_array(first, work), Tensor(first)):
            refused(StreamError, f"{needed} one; give a list of arrays or paths, one per view", source)
        refused(StreamError, rf"{needed} 1\.", frame([first]), groups=[["left0", "left1"]])
        refused(StreamError, "the views have no rows; give some", data(0))
        refused(StreamError, "the stream of views is empty; give at least one batch", iter([]))

    @pytest.mark.parametrize("shape", [(N,), (N, 1), (N, 2, 2), ()])
    def test_views_that_are_not_rows_of_columns(self, shape):
        first, second, _ = data()
        says = r"view 1 must have shape \(n, d\) with d at least 2, got .*reshape images to rows"
        for source in ([first, np.zeros(shape), second], iter([(first, np.zeros(shape), second)])):
            refused(SampleError, says, source)

    @pytest.mark.parametrize("dtype", [object, complex, "U5", "datetime64[s]"])
    def test_what_is_not_a_real_number(self, dtype):
        first, second, _ = data(dtype=np.int64)
        refused(SampleError, r"must be real numbers, got dtype .* in view 1", [first, second.astype(dtype)])
        once = iter([(first, second.astype(dtype))])
        refused(SampleError, r"must be real numbers, got dtype .*; convert them to float first", once)

    def test_other_things(self, work):
        first, second, _ = data()
        refused(StreamError, r"no such file or folder: '.*nowhere.npy'", [first, work.path / "nowhere.npy"])
        (work.path / "x.txt").write_text("no views")
        refused(StreamError, r"cannot read samples from '.*x.txt' \(\.txt\); give", [first, work.path / "x.txt"])
        refused(StreamError, r"no such file or folder", [second, ""])
        refused(StreamError, "cannot read views from int; give a list of arrays or paths", 5)
        refused(StreamError, "cannot read views from NoneType; give", None)
        same_views(joined(open_views({"left": first, "right": second}).batches()), [first, second])
        refused(StreamError, "view 1 is a int; give an array or the path of one", [first, 5])
        refused(StreamError, "batches must be tuples of arrays, one per view, got a int", iter([5]))
        refused(SampleError, "masked arrays would lose their mask", [first, np.ma.array(second)])
        refused(SampleError, "cannot make an array of a list", [first, [[1.0, 2.0], [3.0]]])

    def test_a_change_in_mid_stream_and_an_error_of_the_iterable_itself(self):
        batch = data()
        wide = [batch[0], batch[0], batch[2]]
        for bad in (wide, batch[:2], [*batch, batch[0]], [batch[0], batch[1][:3], batch[2]]):
            says = r"batches must hold views of widths \(3, 4, 2\), got shapes .* at row 23"
            refused(SampleError, says, iter([tuple(batch), tuple(bad)]))
        for bad in ((batch[0],), tuple(view[0] for view in batch)):
            refused(TpcaError, "at least two views|must have shape", iter([tuple(batch), bad]))
        refused(SampleError, "got dtype object", iter([tuple(batch), tuple(view.astype(object) for view in batch)]))
        with pytest.raises(ZeroDivisionError):  # which is not hidden
            list(open_views(tuple(batch) if i else 1 / i for i in (1, 0)).batches())


def test_a_stream_of_views_is_returned_as_it_is_holds_the_arrays_themselves_and_no_samples():
    views = data()
    stream = open_views(views)
    assert open_views(stream) is stream
    with pytest.raises(StreamError, match=r"nan_policy must be one of raise, omit for views, got 'zero'"):
        open_views(stream, nan_policy="zero")
    for batch in stream.batches():
        assert all(np.shares_memory(part, view) for part, view in zip(batch.views, views, strict=True))
    with pytest.raises(SampleError, match="views are no samples of a tensor: TensorCCA fits views"):
        TensorPCA().fit(stream)


class TestTables:
    def test_columns_may_be_chosen_in_any_order_and_twice_and_have_any_names(self):
        views = data()
        expected, table = np.concatenate(views, axis=1), frame(views)
        found = joined(open_views(table, groups=[["right1", "left0"], ["left0", "middle3", "left2"]]).batches())
        same_views(found, [expected[:, [8, 0]], expected[:, [0, 6, 2]]])
        tables = [table[columns] for columns in column_groups(views).values()]
        same_views(joined(open_views(tables).batches()), views)
        table.columns = range(9)
        turned = joined(open_views(table.iloc[::-1], groups=[range(3), (3, 4)]).batches())  # the order of the table
        same_views(turned, [expected[::-1, :3], expected[::-1, 3:5]])

    def test_refusals(self):
        table = frame(data())
        refused(StreamError, r"groups must name the columns of every view, as in \{'left': \['a'", table)
        missing = r"the DataFrame has no column 'nose'; it has 'left0', 'left1'"
        refused(StreamError, missing, table, groups=[["left0", "left1"], ["nose", "right0"]])
        refused(
            StreamError, r"list of columns, got the text 'left'; write \['left', ...\]", table, groups=["left", "right"]
        )
        refused(StreamError, "got the text 'left0'", table, groups={"a": "left0", "b": ["left1", "left2"]})
        refused(SampleError, "view 1 must have shape", table, groups=[["left0", "left1"], ["right0"]])
        table["left1"] = "text"
        refused(SampleError, "real numbers, got dtype .* in view 0", table, groups=column_groups(data()))
        groups = [["a", "b"], ["c", "d"]]
        refused(StreamError, "groups are the columns of a DataFrame; give the views themselves", data(), groups=groups)
