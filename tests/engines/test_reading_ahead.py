"""Reading ahead, by counts and events: who reads when, how often, and how much is held meanwhile."""

import gc
import threading
import weakref

import numpy as np
import pytest

from tpca import RaceSolver, open_stream
from tpca.data import numpy_files as npy
from tpca.data import stored
from tpca.data.base import MAX_AHEAD, depth, read_ahead
from tpca.data.numpy_files import NpyFile
from tpca.data.stored import Leases
from tpca.engines import LocalEngine
from tpca.errors import StreamError
from tpca.tensors import TensorSum

DIMS, BATCH, COUNT = (5, 4), 2, 30
SAMPLES = np.random.default_rng(0).standard_normal((BATCH * COUNT, *DIMS)).astype(np.float32)
PATIENCE = 20.0  # seconds that an event may take to happen before the test gives up on it


@pytest.fixture
def path(tmp_path, monkeypatch):
    """A file of thirty batches of two samples, and two cores."""
    monkeypatch.setattr(stored, "BATCH_ENTRIES", BATCH * 20)
    monkeypatch.setattr(stored, "FILE_SAMPLES", BATCH)
    monkeypatch.setattr(stored, "cores", lambda: 2)
    np.save(tmp_path / "x.npy", SAMPLES)
    return tmp_path / "x.npy"


class Watched:
    """Notes what is read of a file: the first sample of every batch, and the arrays that are alive."""

    def __init__(self, monkeypatch):
        self.began, self.arrays, self.most = [], [], 0
        self._lock = threading.Condition()
        usual = NpyFile.read

        def rows(file, some):
            with self._lock:
                self.began.append(some[0].start)
                self._lock.notify_all()
            array = usual(file, some)
            with self._lock:
                self.arrays.append(weakref.ref(array))
                self.most = max(self.most, sum(alive() is not None for alive in self.arrays))
            return array

        monkeypatch.setattr(NpyFile, "read", rows)

    def wait_for(self, count):
        """Whether so many reads begin."""
        with self._lock:
            return self._lock.wait_for(lambda: len(self.began) >= count, PATIENCE)


def readers():
    return [thread for thread in threading.enumerate() if thread.name.startswith("tpca-prefetch")]


def test_the_next_round_is_read_while_nobody_asks_for_it(path, monkeypatch):
    watched = Watched(monkeypatch)
    stream = open_stream(path)
    assert stream.ahead == MAX_AHEAD  # batches of 160 bytes
    engine = LocalEngine(stream)
    engine.reduce(TensorSum(), 4)
    # The solver looks now.  Two batches are used up: meanwhile the next ones are read, and no more than is said.
    assert watched.wait_for(2 + stream.ahead)
    assert len(watched.began) == 2 + stream.ahead
    engine.reduce(TensorSum(), 4)
    assert watched.wait_for(4 + stream.ahead)
    assert len(watched.began) == 4 + stream.ahead


def test_every_batch_is_read_once_and_never_more_held_than_is_counted(path, monkeypatch):
    watched = Watched(monkeypatch)
    engine = LocalEngine(path)
    sums = [engine.reduce(TensorSum(), n) for n in (1, 3, 3)]
    assert (engine.position()["first"], engine.position()["offset"]) == (6, 1)  # what was used, not what was read
    sums += [engine.reduce(TensorSum(), n) for n in (5, 20, 28)]
    assert sum(part.n for part in sums) == len(SAMPLES)
    assert sorted(watched.began) == list(range(0, len(SAMPLES), BATCH))
    batch = SAMPLES[:BATCH].nbytes
    assert watched.most <= 1 + engine.stream.ahead
    assert watched.most * batch <= engine.buffer_bytes == (1 + engine.stream.ahead) * batch + SAMPLES[0].nbytes


@pytest.mark.parametrize(("limit", "ahead"), [(None, 5), (350_000, 2), (100_000, 0)])
def test_no_more_is_read_ahead_than_the_memory_that_was_given(limit, ahead, tmp_path, monkeypatch):
    """Six batches of 2 samples of 80 kB; and the same bits."""
    monkeypatch.setattr(stored, "BATCH_ENTRIES", 40_000)
    monkeypatch.setattr(stored, "FILE_SAMPLES", 2)
    samples = np.random.default_rng(0).standard_normal((12, 200, 100), dtype=np.float32)
    np.save(tmp_path / "x.npy", samples)
    expected = RaceSolver(memory_limit=limit, random_state=0).run(tmp_path / "x.npy")
    watched = Watched(monkeypatch)
    stream = open_stream(tmp_path / "x.npy")
    found = RaceSolver(memory_limit=limit, random_state=0).run(stream)
    assert watched.most <= max(2, 1 + ahead)  # a batch that was used goes when the next one is there
    assert stream.ahead == 5  # what the user holds stays as it is
    assert [v.tobytes() for v in found.vectors] == [v.tobytes() for v in expected.vectors]


def test_two_cores_read_at_once_and_the_order_stays(path, monkeypatch):
    meet = threading.Barrier(2)
    usual = NpyFile.read
    monkeypatch.setattr(NpyFile, "read", lambda file, some: (meet.wait(PATIENCE), usual(file, some))[1])
    batches = list(open_stream(path).batches())  # thirty batches, by twos: one reader alone would wait for ever
    assert [batch.first for batch in batches] == list(range(0, len(SAMPLES), BATCH))
    assert np.array_equal(np.concatenate([batch.samples for batch in batches]), SAMPLES)


def test_a_library_with_one_lock_gets_one_reader(path, monkeypatch):
    by, usual = set(), NpyFile.read
    monkeypatch.setattr(NpyFile, "read", lambda file, some: (by.add(threading.get_ident()), usual(file, some))[1])
    monkeypatch.setattr(NpyFile, "parallel", False)
    list(open_stream(path).batches())
    assert len(by) == 1


def test_an_error_comes_in_its_turn_and_takes_the_readers_along():
    def read(number):
        if number == 3:
            raise StreamError("broken")
        return number

    items = read_ahead(read, range(10), 4, 2)
    assert [next(items) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(StreamError, match="broken"):
        next(items)
    assert not readers()


def test_an_interrupted_round_leaves_no_reader(path):
    class Interrupting(TensorSum):
        def add(self, batch, at=0):
            if at >= 4:
                raise KeyboardInterrupt
            super().add(batch, at)

    engine = LocalEngine(path)
    with pytest.raises(KeyboardInterrupt):
        engine.reduce(Interrupting(), 20)
    assert readers()  # the engine may go on
    del engine
    gc.collect()
    assert not readers()


def test_how_far_is_read_ahead():
    """64 MB, one batch at least if there is a second, and no more batches than there are."""
    given = [(2**22, 1), (2**22, 2), (2**22, 99), (2**24, 99), (2**26, 99), (2**30, 99), (0, 99)]
    assert [depth(*each) for each in given] == [0, 1, 16, 4, 1, 1, 16]


def test_memory_is_used_again_when_no_view_of_it_is_left():
    leases, shape, dtype = Leases(), (3, 4), np.dtype(np.float64)
    first = leases.array(shape, dtype)
    first[:] = 1.0
    place, view = first.ctypes.data, first[1:, 2]
    del first
    second = leases.array(shape, dtype)
    assert not np.shares_memory(second, view)
    second[:] = 2.0
    assert view.tolist() == [1.0, 1.0]
    del view
    assert leases.array(shape, dtype).ctypes.data == place
    assert leases.array((3, 40), dtype).shape == (3, 40)  # what is too small is not taken


def test_a_batch_is_not_copied(path, monkeypatch):
    """From a file, the memory that was read into; from an array, the array itself."""
    read = []
    usual = NpyFile.read
    monkeypatch.setattr(NpyFile, "read", lambda file, some: (read.append(usual(file, some)), read[-1])[1])
    for batch in open_stream(path).batches():
        assert any(np.shares_memory(batch.samples, array) for array in read)
    for batch in open_stream(SAMPLES).batches():
        assert np.shares_memory(batch.samples, SAMPLES)


def test_two_chunks_are_decompressed_at_once(tmp_path, monkeypatch):
    zarr = pytest.importorskip("zarr", minversion="3")
    from tpca.data import trust as codecs

    monkeypatch.setattr(stored, "BATCH_ENTRIES", BATCH * 20)
    monkeypatch.setattr(stored, "cores", lambda: 2)
    path, blosc = str(tmp_path / "x.zarr"), zarr.codecs.BloscCodec()
    array = zarr.create_array(path, shape=SAMPLES.shape, chunks=(BATCH, *DIMS), dtype="f4", compressors=blosc)
    array[:] = SAMPLES
    meet, usual = threading.Barrier(2), codecs.decompressed
    monkeypatch.setattr(codecs, "decompressed", lambda *given: (meet.wait(PATIENCE), usual(*given))[1])
    batches = list(open_stream(path).batches())
    assert np.array_equal(np.concatenate([batch.samples for batch in batches]), SAMPLES)


def test_headers_of_a_folder_are_read_once_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr(stored, "BATCH_ENTRIES", BATCH * 20)
    monkeypatch.setattr(stored, "FILE_SAMPLES", BATCH)
    monkeypatch.setattr(stored, "cores", lambda: 1)
    for number in range(3):
        np.save(tmp_path / f"{number}.npy", SAMPLES[20 * number : 20 * (number + 1)])
    stream = open_stream(tmp_path, items="batches")
    opened, usual = [], npy.NpyFile
    monkeypatch.setattr(npy, "NpyFile", lambda path: (opened.append(path), usual(path))[1])
    assert len(list(stream.batches())) == COUNT
    assert len(opened) == len(set(opened)) == 3  # thirty batches, by one reader, in their order
