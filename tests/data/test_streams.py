import itertools
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stream_suite import (
    BATCHES,
    DIMS,
    MEMBERS,
    SINGLE,
    SYNTHETIC,
    Tensor,
    Workspace,
    dask_array,
    folder,
    hdf5,
    npy,
    synthetic_data,
    zarr_array,
)
from tpca import TpcaError, open_stream
from tpca.data import KINDS
from tpca.data.numpy_files import NpyFile
from tpca.errors import SampleError, StreamError
from tpca.tensors import DenseBatch, SlabBatch

N = 23
BY_NAME = {member.name: member for member in MEMBERS}
STORED = [member for member in MEMBERS if member.stored]
FILES = [BY_NAME[name] for name in ("npy", "npy in Fortran order", "folder of batches", "folder of samples")]
FILES += [BY_NAME[name] for name in ("zarr 2", "zarr 3", "hdf5", "hdf5 chunked", "dask")]


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    """About 8 samples of 3 x 4 per batch, so that a few samples make several."""
    monkeypatch.setattr("tpca.data.stored.BATCH_ENTRIES", 96)
    monkeypatch.setattr("tpca.data.stored.ARRAY_SAMPLES", 1)
    monkeypatch.setattr("tpca.data.stored.FILE_SAMPLES", 1)
    monkeypatch.setattr("tpca.data.iterables.BATCH_ENTRIES", 96)


def data(n=N, dims=DIMS, dtype=np.float64, seed=0):
    return (100 * np.random.default_rng(seed).standard_normal((n, *dims))).astype(dtype)


def read(stream, start=0):
    """The batches of one pass, or, of an endless stream, those that begin before sample ``N``."""
    return list(itertools.takewhile(lambda batch: batch.first < N or not stream.endless, stream.batches(start)))


def joined(batches):
    return np.concatenate([batch.samples for batch in batches])


def same(batches, others):
    assert [(b.first, b.dropped, len(b)) for b in batches] == [(b.first, b.dropped, len(b)) for b in others]
    for one, other in zip(batches, others, strict=True):
        np.testing.assert_array_equal(one.samples, other.samples)
        assert one.samples.dtype == other.samples.dtype


def test_the_suite_has_every_kind():
    assert {member.kind for member in [*MEMBERS, SYNTHETIC]} == set(KINDS) - {"table"}  # test_tables.py: float64 only


@pytest.mark.parametrize("member", [*MEMBERS, SYNTHETIC], ids=str)
class TestConformance:
    def source(self, member):
        return synthetic_data(25) if member.kind == "synthetic" else data()

    def test_the_samples_come_in_order_and_in_small_batches(self, member, work):
        expected = self.source(member)
        stream = member.open(expected, work)
        assert stream.kind == member.kind
        assert stream.dims == DIMS
        assert stream.length == (N if member.stored else None)
        assert stream.endless == (member.kind == "synthetic")
        assert stream.rereadable == member.stored
        batches = read(stream)
        np.testing.assert_array_equal(joined(batches), expected)
        assert len(batches) > 1
        firsts = [batch.first for batch in batches]
        assert firsts == [0, *np.cumsum([len(batch) for batch in batches])[:-1]]
        for batch in batches:
            assert isinstance(batch, DenseBatch)
            assert batch.dropped == 0
            assert 0 < len(batch) <= 8 + 4  # the limit, rounded up to chunks of at most 5 samples
            assert batch.samples.flags.c_contiguous

    def test_reading_goes_on_from_every_batch_and_identity_tells_data_apart(self, member, work):
        expected = self.source(member)
        stream = member.open(expected, work)
        identity, batches = stream.identity, read(stream)
        for number, batch in enumerate(batches):
            again = member.open(expected, work)
            assert again.identity == identity
            same(read(again, batch.first), batches[number:])
        assert "\n" not in identity
        if member.kind == "iterable":
            with pytest.raises(StreamError, match=r"cannot go back to sample 0.*23 samples are gone"):
                stream.batches()
        else:
            same(read(stream), batches)
        if member.stored:
            for other in (expected + 1, expected[:-1]):
                assert identity != member.open(other, work).identity
            assert identity != member.open(expected, work, shuffle=True, random_state=1).identity


@pytest.mark.parametrize("member", MEMBERS, ids=str)
class TestContents:
    @pytest.mark.parametrize(
        ("stored", "read_as"),
        [(kind, "f4") for kind in ("f4", "f2", "i1", "u2", "?", ">i2")]
        + [(kind, "f8") for kind in ("i4", "i8", np.longdouble, ">f8")],
    )
    def test_dtypes(self, member, work, stored, read_as):
        if np.dtype(stored) == np.longdouble and not member.native:
            pytest.skip("the format does not know this dtype")
        values = np.random.default_rng(0).integers(0, 100, (N, *DIMS)).astype(stored)
        batches = read(member.open(values, work))
        assert {batch.samples.dtype for batch in batches} == {np.dtype(read_as)}
        assert all(batch.samples.dtype.isnative for batch in batches)
        np.testing.assert_array_equal(joined(batches), values.astype(read_as))

    @pytest.mark.parametrize("dtype", [np.complex128, "datetime64[s]", "S3"])
    def test_other_dtypes_are_refused(self, member, work, dtype):
        values = np.ones((N, *DIMS), dtype=np.int64).astype(dtype)
        if member.kind in ("hdf5", "zarr", "dask") and dtype != np.complex128:
            pytest.skip("the format, or its arithmetic, does not know this dtype")
        with pytest.raises(SampleError, match="samples must be real numbers, got dtype"):
            read(member.open(values, work))

    def test_missing_entries(self, member, work):
        values = data(dtype=np.float32)
        values[4, 1, 2], values[9, 0, 0], values[9, 2, 3] = np.nan, np.inf, -np.inf
        values[12] = np.nan
        with pytest.raises(SampleError, match=r'sample 4 contains NaN or Inf.*nan_policy="omit", or "zero" for a mean'):
            joined(read(member.open(values, work)))  # looked for when the samples are used
        skipped = read(member.open(values, work, nan_policy="omit"))
        np.testing.assert_array_equal(joined(skipped), np.delete(values, [4, 9, 12], axis=0))
        assert sum(batch.dropped for batch in skipped) == 3
        zeroed = read(member.open(values, work, nan_policy="zero"))
        kept = np.delete(values, 12, axis=0)
        np.testing.assert_array_equal(joined(zeroed), np.where(np.isfinite(kept), kept, 0))
        observed = [np.ones(b.samples.shape, bool) if b.exposure is None else b.exposure for b in zeroed]
        np.testing.assert_array_equal(np.concatenate(observed), np.isfinite(kept))
        assert sum(batch.dropped for batch in zeroed) == 1
        assert np.isnan(values[4, 1, 2])  # the caller's array is left alone
        for batch in skipped:
            again = read(member.open(values, work, nan_policy="omit"), batch.first)
            same(again, [other for other in skipped if other.first >= batch.first])

    @pytest.mark.parametrize("holes", [slice(0, 15), slice(3, 20), slice(15, N), slice(0, N)])
    def test_batches_that_are_dropped_whole_are_counted_with_the_next(self, member, work, holes):
        values = data()
        values[holes] = np.nan
        batches = read(member.open(values, work, nan_policy="omit"))
        assert all(len(batch) for batch in batches[:-1])
        assert sum(batch.dropped for batch in batches) == holes.stop - holes.start
        ends = np.cumsum([len(batch) + batch.dropped for batch in batches])
        assert [batch.first for batch in batches] == [0, *ends[:-1]]
        assert ends[-1] == N
        np.testing.assert_array_equal(joined(batches), np.delete(values, holes, axis=0))
        for number, batch in enumerate(batches):
            same(read(member.open(values, work, nan_policy="omit"), batch.first), batches[number:])

    def test_no_samples_samples_of_one_axis_and_a_place_that_is_none(self, member, work):
        with pytest.raises(TpcaError, match=r"holds no samples|is empty|holds no \.npy files") as caught:
            member.open(data(0), work)
        assert "\n" not in str(caught.value)
        rows = member.open(data(dims=(3,)), work)
        assert rows.dims == (3,)
        np.testing.assert_array_equal(joined(read(rows)), data(dims=(3,)))
        with pytest.raises(StreamError, match="starts at sample 3; go on with the data"):
            read(member.open(data(), work), start=3)


@settings(max_examples=40, deadline=None)
@given(
    member=st.sampled_from(MEMBERS),
    dims=st.lists(st.integers(2, 4), min_size=2, max_size=4).map(tuple),
    n=st.integers(1, 30),
    dtype=st.sampled_from([np.float32, np.float64, np.int16]),
    shuffle=st.none() | st.integers(0, 5),
    seed=st.integers(0, 99),
)
def test_any_shape_dtype_and_split(member, dims, n, dtype, shuffle, seed):
    values = data(n, dims, dtype, seed)
    options = {"shuffle": shuffle is not None, "random_state": shuffle or 0} if member.stored else {}
    with tempfile.TemporaryDirectory() as folder_, Workspace(Path(folder_)).stack as stack:
        work = Workspace(Path(folder_), stack)
        batches = read(member.open(values, work, **options))
        found = joined(batches)
        rows, wanted = found.reshape(n, -1), values.reshape(n, -1).astype(found.dtype)
        if options.get("shuffle"):
            rows, wanted = rows[np.lexsort(rows.T)], wanted[np.lexsort(wanted.T)]
        np.testing.assert_array_equal(rows, wanted)
        middle = batches[len(batches) // 2]
        same(read(member.open(values, work, **options), middle.first), batches[len(batches) // 2 :])


@pytest.mark.parametrize("member", STORED, ids=str)
def test_shuffled_samples_are_a_permutation_that_the_seed_decides(member, work):
    values = np.arange(N * 12.0).reshape(N, *DIMS)
    stream = member.open(values, work, shuffle=True, random_state=7)
    once = read(stream)
    order = joined(once)[:, 0, 0] / 12
    assert sorted(order) == list(range(N))
    assert list(order) != list(range(N))
    same(read(stream), once)
    same(read(member.open(values, work, shuffle=True, random_state=7)), once)
    assert not np.array_equal(joined(read(member.open(values, work, shuffle=True, random_state=8))), joined(once))
    for number, batch in enumerate(once):
        same(read(stream, batch.first), once[number:])
    values[17] = np.nan
    with pytest.raises(SampleError, match="sample 17 contains"):  # its place in the source
        joined(read(member.open(values, work, shuffle=True, random_state=3)))


class TestOptions:
    @pytest.mark.parametrize(
        ("source", "options", "says"),
        [
            (data(), {"nan_policy": "ignore"}, 'nan_policy must be "raise", "omit" or "zero"'),
            (data(), {"shuffle": 1}, "shuffle must be True or False, got 1"),
            (data(), {"items": "rows"}, 'items must be "auto", "batches" or "samples", got .rows'),
            (data(), {"shuffle": True, "random_state": -1}, "random_state must be a whole number of at least 0"),
            ([data()], {"shuffle": True, **BATCHES}, "shuffle needs samples that can be sliced.*store them"),
            (SYNTHETIC.make(None, None), {"shuffle": True}, "shuffle needs samples that can be sliced"),
            (SYNTHETIC.make(None, None), SINGLE, "hold batches"),
            (open_stream(data()), {"shuffle": True}, "keeps the options"),
        ],
    )
    def test_impossible_ones_are_refused(self, source, options, says):
        with pytest.raises(StreamError, match=says):
            open_stream(source, **options)

    @pytest.mark.parametrize("name", ["array", "npy", "zarr 3", "zarr object", "hdf5", "hdf5 object", "dask"])
    def test_arrays_hold_batches(self, name, work):
        with pytest.raises(StreamError, match=r'items="samples" is for iterables and folders.*hold batches'):
            BY_NAME[name].open(data(), work, items="samples")

    def test_optional_packages_are_loaded_only_when_used(self):
        code = "import sys, tpca; assert not {'zarr', 'h5py', 'dask', 'fsspec'} & set(sys.modules)"
        subprocess.run([sys.executable, "-c", code], check=True)

    @pytest.mark.parametrize(("kind", "package"), [("zarr", "zarr"), ("hdf5", "h5py"), ("tables", "pyarrow")])
    def test_a_missing_package_is_named_with_its_extra(self, kind, package, work, monkeypatch):
        makers = {"zarr": zarr_array, "hdf5": hdf5, "tables": lambda *_: work.path / "x.csv"}
        (work.path / "x.csv").write_text("a,b\n1,2\n")
        source = makers[kind](data(), work)
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(StreamError, match=rf"needs the {package} package; install tpca\[{kind}\]"):
            open_stream(source)


class TestItems:
    @pytest.mark.parametrize("pair", [lambda x: (x, 1), lambda x: [x, x], lambda x: [Tensor(x), Tensor(x[:, 0, 0])]])
    def test_several_arrays_in_an_item(self, pair):
        with pytest.raises(SampleError, match=r"one array of samples, got a (tuple|list) of 2.*\(x for x, _ in loader"):
            open_stream([pair(x) for x in (data(), data())])
        with pytest.raises(SampleError, match=r"one array of samples, got a (tuple|list) of 2 at sample 23"):
            read(open_stream([data(), pair(data())]))

    @pytest.mark.parametrize(
        ("items", "single", "says"),
        [
            ([data(5), data(5, (3, 5))], False, r"shape \(n, 3, 4\), got \(5, 3, 5\) at sample 5; all samples"),
            ([data(5), data(5, (3,))], False, r"shape \(n, 3, 4\), got \(5, 3\) at sample 5"),
            ([data(5), 3.0], False, r"shape \(n, 3, 4\), got \(\) at sample 5"),
            ([data(5), data(5, dtype=np.float32)], False, "one dtype, expected float64, got float32 at sample 5"),
            ([data(5), {"x": data(5)}], False, "got a mapping at sample 5"),
            ([data(5), [[1.0], [1.0, 2.0]]], False, "cannot make an array of a list at sample 5"),
            ([np.ma.masked_array(data(5))], False, "would lose their mask"),
            ([data(5).astype(object)], False, "real numbers, got dtype object"),
            ([data(5, ())], False, r"\(n, d_1, ..., d_k\).*, got \(5,\); wrap a single sample as sample\[None\]"),
            ([*data(3), data(1, (3, 5))[0]], True, r"got \(1, 3, 5\) at sample 3"),
            ([np.zeros(())], True, "a single number at sample 0"),
        ],
    )
    def test_bad_items_are_named(self, items, single, says):
        with pytest.raises(SampleError, match=says):
            read(open_stream(items, **(SINGLE if single else BATCHES)))

    def test_a_source_may_reuse_its_buffer_and_gives_one_batch_at_a_time(self):
        def reusing():
            buffer = np.empty(DIMS)
            for number, sample in enumerate(data()):
                drawn.append(number)
                buffer[:] = sample
                yield buffer

        drawn = []
        batches = open_stream(reusing(), items="samples").batches()
        first = next(batches)
        assert len(drawn) == 8
        np.testing.assert_array_equal(joined([first, *batches]), data())

    def test_an_iterable_can_be_left_and_taken_up_again(self):
        stream = open_stream((x for x in [data(5), data(7), data(2)]), **BATCHES)
        assert next(stream.batches()).first == 0
        assert [batch.first for batch in stream.batches(5)] == [5, 12]
        assert list(stream.batches(14)) == []
        with pytest.raises(StreamError, match="starts at sample 15"):
            list(stream.batches(15))

    @pytest.mark.parametrize(
        ("source", "says"),
        [
            (np.zeros(5), r"\(n, d_1, ..., d_k\).*, got \(5,\)"),
            (np.zeros((5, 3, 1)), "at least 2 long"),
            (np.ma.masked_array(data()), "mask"),
            (3, "cannot read samples from int; give an array"),
            (b"x.npy", "cannot read samples from bytes; give an array"),
        ],
    )
    def test_arrays_of_other_kinds_are_refused(self, source, says):
        with pytest.raises(TpcaError, match=says):
            open_stream(source)


class TestFiles:
    """Real damage to real files; every message is one line with the place in it."""

    def fails(self, source, *says, **options):
        with pytest.raises(TpcaError) as caught:
            read(open_stream(source, **options))
        message = str(caught.value)
        assert "\n" not in message
        for words in says:
            assert words in message

    def test_a_path_that_is_not_there_or_of_no_format(self, work):
        for name in ("x.npy", "x.zarr", "x.h5", "x.h5::/a", "x.zarr::/a", "folder"):
            self.fails(work.path / name, "no such file or folder:", name.partition("::")[0])
        self.fails("memory://nowhere/x.zarr", "there is no Zarr array at 'memory://nowhere/x.zarr'")
        self.fails("s3://bucket/x.npy", "only Zarr stores are read from URLs")
        self.fails("nonsense://bucket/x.zarr", "scheme 'nonsense'", "s3, gs, az, https, file, memory")
        (work.path / "empty").mkdir()
        self.fails(work.path / "empty", "holds no .npy files and no Zarr array")
        self.fails(f"{npy(data(), work)}::/a", "a .npy file holds one array")
        for make in (npy, zarr_array, hdf5, folder):
            self.fails(make(data(dtype=np.complex128), work), "real numbers, got dtype complex128 in '", "convert")
        known = {".npy": "is not a .npy file", ".h5": "check that it is an HDF5 file", ".xyz": "give a"}
        for suffix, says in known.items():
            path = work.path / f"x{suffix}"
            path.write_bytes(b"")
            self.fails(path, "is empty (0 bytes)", f"x{suffix}")
            path.write_bytes(b"PK\x03\x04 something else")
            self.fails(path, says, f"x{suffix}")

    def test_a_place_that_may_not_be_read(self, work, monkeypatch):
        def forbidden(path):
            raise PermissionError(13, "Permission denied", path)

        monkeypatch.setattr(os, "listdir", forbidden)
        self.fails(folder(data(), work), "cannot read", "Permission denied", "check its permissions")

    def test_a_truncated_npy_and_a_pickled_one_that_is_never_loaded(self, work):
        class Bomb:
            def __reduce__(self):
                return (pytest.fail, ("unpickled",))

        path = npy(data(), work)
        full = path.stat().st_size
        os.truncate(path, full - 100)
        self.fails(path, f"header says {full} bytes, the file has {full - 100}")
        os.truncate(path, 20)
        self.fails(path, "no readable .npy header")
        np.save(path, np.array([[[Bomb()] * 2] * 2] * 2), allow_pickle=True)
        self.fails(path, "pickled Python objects, which are never loaded")
        path.write_bytes(pickle.dumps(data()))
        self.fails(path, "is not a .npy file")

    def test_folders_name_the_file_that_does_not_fit(self, work):
        path = folder(data(), work)
        np.save(path / "0002.npy", data(5, (3, 5)))
        self.fails(path, "samples of one shape, expected (3, 4), got (3, 5) in", "0002.npy")
        np.save(path / "0002.npy", data(5, dtype=np.float32))
        self.fails(path, "share one dtype, expected float64, got float32 in", "0002.npy")
        (path / "0002.npy").write_bytes(b"junk")
        self.fails(path, "0002.npy' is not a .npy file")
        path = folder(data(), work, size=None)
        assert open_stream(path, **BATCHES).dims == (4,)  # as tables
        rows = folder(data(dims=(3,)), work, size=None)
        self.fails(rows, "0000.npy' must have shape (n, d_1, ..., d_k)", 'give items="samples"', **BATCHES)
        np.save(path / "0009.npy", data(1, (3, 5))[0])
        self.fails(path, "expected (3, 4), got (3, 5) in", "0009.npy", **SINGLE)
        (path / "0009.npy").unlink()
        assert open_stream(path, **SINGLE).length == N - 1

    @pytest.mark.parametrize("fmt", [2, 3])
    def test_a_damaged_zarr_chunk(self, fmt, work):
        path = Path(zarr_array(data(), work, zarr_format=fmt, chunks=(5, *DIMS)))
        chunk = path / ("2.0.0" if fmt == 2 else "c/2/0/0")
        chunk.write_bytes(bytes(255 - byte for byte in chunk.read_bytes()))
        self.fails(path, "cannot read samples 10 to 19 of", path.name, "restore them and try again")
        assert len(next(open_stream(path).batches())) == 10  # what is not damaged is read

    def test_a_damaged_hdf5_chunk(self, work):
        path = hdf5(data(), work, chunks=(8, *DIMS), fletcher32=True)
        with h5py.File(path) as file:
            where = file["group/x"].id.get_chunk_info(1).byte_offset
        with open(path, "r+b") as file:
            file.seek(where)
            file.write(b"\xff" * 50)
        self.fails(path, "cannot read samples 8 to 15 of", "::/group/x")
        os.truncate(path, 1000)
        self.fails(path, "cannot open", "truncated")

    @pytest.mark.parametrize("member", [m for m in FILES if m.kind != "dask"], ids=str)
    def test_files_that_vanish_while_they_are_read(self, member, work):
        source = str(member.make(data(200), work))
        batches = open_stream(source, **member.options).batches()
        next(batches)
        path = Path(source.partition("::")[0])
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        with pytest.raises(StreamError, match=r"cannot read samples \d+ to \d+ of .*damaged or gone"):
            list(batches)

    def test_stores_with_several_arrays_list_them(self, work):
        path = BY_NAME["zarr in a group"].make(data(), work).partition("::")[0]
        self.fails(path, "is a Zarr group", "'/other/one', '/two'")
        self.fails(zarr.open(path, mode="r"), "is a Zarr group", "'/other/one', '/two'")
        self.fails(f"{path}::/three", "there is no Zarr array", "the store holds '/other/one', '/two'")
        (work.path / "empty.zarr").mkdir()
        self.fails(work.path / "empty.zarr", "there is no Zarr array at")
        path = hdf5(data(), work)
        self.fails(f"{path}::/labels", "::/labels' must have shape (n, d_1, ..., d_k)", "got (23,)")
        self.fails(f"{path}::/y", "has no array '/y'", "'/group/x', '/labels'")
        with h5py.File(path, "a") as file:
            assert open_stream(file).length == N
            file["z"] = data()
        self.fails(path, "several arrays; name one", "such as '/group/x', '/z'")
        with h5py.File(path, "a") as file:
            del file["z"], file["group/x"]
        self.fails(path, "no array of at least 2 axes", "'/labels'")
        array = dask_array(data(), work)
        self.fails(array[array[:, 0, 0] > 0], "unknown lengths", "compute_chunk_sizes()")

    def test_batches_are_whole_chunks(self, work):
        path = zarr_array(data(60), work, chunks=(20, 2, 2))
        assert [len(batch) for batch in read(open_stream(path))] == [20, 20, 20]
        path = zarr_array(data(60), work, chunks=(3, 2, 2))
        assert {len(batch) for batch in read(open_stream(path))} == {9, 6}

    @pytest.mark.parametrize("member", FILES, ids=str)
    def test_a_stored_stream_can_be_sent_to_a_worker_and_leaves_no_thread(self, member, work):
        stream = member.open(data(), work)
        same(read(pickle.loads(pickle.dumps(stream))), read(stream))
        batches = stream.batches()
        next(batches)
        batches.close()
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("tpca-prefetch")]


MEASURE = """
import resource, sys
import numpy as np
from tpca.data import open_stream

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

stream = open_stream(sys.argv[1])
before, n = peak(), 0
for batch in stream.batches():
    n += len(batch)
assert n == stream.length
print(peak() - before)
"""


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_large_file_does_not_stay_in_memory(order, tmp_path):
    path = tmp_path / "large.npy"
    n = 75 if order == "F" else 300  # in Fortran order every batch passes over the whole file
    shape = (n, 2**17, 300 // n) if order == "F" else (n, 2**9, 2**8)
    file = np.lib.format.open_memmap(path, mode="w+", dtype=np.float64, shape=shape, fortran_order=order == "F")
    del file
    assert path.stat().st_size > 300 * 2**20
    run = subprocess.run([sys.executable, "-c", MEASURE, path], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    # two batches of 8 MiB, a copy while one is made, a piece of at most 4 MiB: below 30 MiB, and what Python needs
    assert float(run.stdout) < 80


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("piece", [1, 200, 10**6])  # bytes: every row is entered; some are; all are read whole
@given(ranges=st.tuples(*(st.tuples(st.integers(0, d), st.integers(0, d)).map(sorted) for d in (7, 5, 6, 4))))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_part_of_an_npy_file(ranges, piece, order, tmp_path, monkeypatch):
    monkeypatch.setattr("tpca.data.numpy_files.PIECE_BYTES", piece)
    values = np.asarray(np.random.default_rng(0).standard_normal((7, 5, 6, 4)), order=order)
    np.save(tmp_path / "d.npy", values)
    key = tuple(slice(start, stop) for start, stop in ranges)
    np.testing.assert_array_equal(NpyFile(str(tmp_path / "d.npy")).read(key), values[key])


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_file_that_is_cut_while_it_is_read_is_an_error_and_no_signal(order, tmp_path):
    path = tmp_path / "d.npy"
    np.save(path, np.asarray(np.random.default_rng(0).standard_normal((40, 30, 20)), order=order))
    source = NpyFile(str(path))
    assert source.read((slice(0, 8),)).shape == (8, 30, 20)
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(StreamError, match="bytes too early; write or copy it again"):
        source.read((slice(32, 40),))


class TestSlabs:
    DIMS = (6, 8, 5)

    @pytest.fixture(autouse=True)
    def small_slabs(self, monkeypatch):
        monkeypatch.setattr("tpca.data.stored.SLAB_ENTRIES", 100)
        monkeypatch.setattr("tpca.data.stored.SLAB_SAMPLES", 4)

    def check(self, batches, values):
        for batch in batches:
            other = values.shape[1:][: batch.mode] + values.shape[1:][batch.mode + 1 :]
            assert [part.start for part in batch.parts] == [0, *[part.stop for part in batch.parts[:-1]]]
            for part in batch.parts:
                assert (part.stop - part.start) * np.prod(other) <= 100
            for slab in (batch._read(int(i), part) for i in batch.indices for part in batch.parts):
                assert slab.flags.c_contiguous
        found = np.concatenate([batch.samples() for batch in batches if len(batch)])
        np.testing.assert_allclose(found, values, rtol=1e-12)

    @pytest.mark.parametrize("member", FILES, ids=str)
    def test_slabs_make_up_the_samples(self, member, work):
        values = data(9, self.DIMS)
        stream = member.open(values, work)
        assert stream.length == 9
        batches = read(stream)
        assert all(isinstance(batch, SlabBatch) for batch in batches)
        assert [(batch.first, len(batch)) for batch in batches] == [(0, 4), (4, 4), (8, 1)]
        if member.kind not in ("dask", "hdf5"):  # a chunk that is a whole sample cannot be cut
            self.check(batches, values)
        assert [batch.first for batch in stream.batches(4)] == [4, 8]
        assert stream.identity == member.open(values, work).identity
        assert stream.identity != member.open(values + 1, work).identity

    def test_the_mode_with_the_most_chunks_is_cut_into_whole_chunks(self, work):
        for chunks, mode, starts in [
            ((2, 3, 3, 5), 1, [0, 3, 6]),
            ((1, 2, 8, 5), 0, [0, 2, 4]),
            ((1, 6, 8, 1), 2, [0, 2, 4]),
        ]:
            path = zarr_array(data(3, self.DIMS), work, chunks=chunks)
            (batch,) = open_stream(path).batches()
            assert batch.mode == mode
            assert [part.start for part in batch.parts] == starts
            self.check([batch], data(3, self.DIMS))
        assert isinstance(next(open_stream(data(3, self.DIMS)).batches()), DenseBatch)  # in memory nothing is cut

    def test_shuffled_and_damaged(self, work):
        values = data(9, self.DIMS)
        path = npy(values, work)
        batches = read(open_stream(path, shuffle=True, random_state=1))
        order = np.concatenate([batch.indices for batch in batches])
        assert sorted(order) == list(range(9))
        assert list(order) != list(range(9))
        self.check(batches, values[order])
        path.unlink()
        with pytest.raises(StreamError, match=r"cannot read samples (\d) to \1 of"):
            batches[0].samples()


def test_a_program_may_end_while_it_reads(work):
    code = "import sys\nfrom tpca import open_stream\nbatches = open_stream(sys.argv[1]).batches()\nnext(batches)\n"
    command = [sys.executable, "-c", code, npy(data(10**5), work)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (run.returncode, run.stderr) == (0, "")
