"""A run goes on with the data that it was begun with, and with no others."""

import math
import os
import shutil

import h5py
import numpy as np
import pytest
import scipy.sparse
import zarr

import command
import tpca.checkpoint
from damage_kinds import table_of
from stream_suite import take
from tpca import RaceSolver, SpikedTensor, open_stream
from tpca.checkpoint import VERSION, Checkpoints
from tpca.data.base import Source, read_cost
from tpca.data.stored import StoredStream
from tpca.errors import CheckpointError, StreamError
from tpca.solvers import LeastSquares
from tpca.solvers.run import Keeper
from tpca.tensors import SparseBatch
from tpca.tensors.accumulators import MAX_ENTRIES, digest

DIMS = (4, 5, 6)
N = 400
READ = 150  # samples, or a few more, that are read when a run is stopped
SHORT = 16 * math.prod(DIMS)  # entries of a batch: 16 samples, so that one of them is little of the whole


def samples_of(n=N, dims=DIMS, strength=1.0):
    return take(SpikedTensor.random(dims, strength), n).astype(np.float32)


def noise_like(samples):
    return np.random.default_rng(9).standard_normal(samples.shape).astype(samples.dtype)


class StoppedError(Exception):
    pass


@pytest.fixture
def stop_after(monkeypatch):
    """``stop_after(n)`` stops runs inside a batch, n samples or more read; ``stop_after(None)`` lets them end."""
    usual = Keeper.after_round

    def stop(n):
        def after_round(keeper, run, engine):
            usual(keeper, run, engine)
            position = engine.position()
            if n is not None and position["offset"] > 1 and position["first"] + position["offset"] >= n:
                raise StoppedError

        monkeypatch.setattr(Keeper, "after_round", after_round)

    return stop


@pytest.fixture
def short_batches(monkeypatch):
    monkeypatch.setattr("tpca.data.stored.BATCH_ENTRIES", SHORT)
    monkeypatch.setattr("tpca.data.iterables.BATCH_ENTRIES", SHORT)
    monkeypatch.setattr("tpca.data.iterables.BATCH_SAMPLES", 16)
    monkeypatch.setattr("tpca.data.rows.BATCH_ENTRIES", 16 * sum(DIMS))


def told(estimate):
    vectors = [v.tobytes() for c in estimate.components or (estimate.guess,) for v in c.vectors]
    return vectors, repr(estimate.strength), estimate.n_samples, estimate.n_skipped, estimate.stop_reason


def begun(source, folder, stop_after, read=READ, solver=RaceSolver):
    """Begin a run and stop it; where the next sample is."""
    stop_after(read)
    with pytest.raises(StoppedError):
        solver(random_state=1, checkpoint=folder, checkpoint_every=0).run(source)
    stop_after(None)
    return Checkpoints(folder).load()["engine"]


def resumed(source, folder, solver=RaceSolver):
    return solver(random_state=1, checkpoint=folder, resume=True).run(source)


# -- The command.

FIT = ["fit", "d.npy", "--solver", "race", "--checkpoint-every", "0", "--quiet"]


def left_in(folder):
    """All files but the lock of the process that was killed, which is taken over."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}


def tpca_here(*arguments):
    """The command in this process: its exit code, and what it says."""
    done = command.run(*arguments, cwd=".")
    return done.returncode, done.stderr


def test_a_stopped_fit_is_resumed_on_the_same_data_and_version_only(tmp_path, monkeypatch, stop_after, short_batches):
    monkeypatch.chdir(tmp_path)
    good = samples_of()
    np.save("d.npy", good)
    stop_after(READ)
    with pytest.raises(StoppedError):
        tpca_here(*FIT, "--out", "r")
    stop_after(None)
    position = Checkpoints("r/checkpoint").load()["engine"]
    reached = position["first"] + position["offset"]
    assert 0 < position["first"] < reached < N - 50
    kept = left_in(tmp_path / "r")

    def resume_with(samples):
        np.save("d.npy", samples)
        return tpca_here(*FIT, "--out", "r", "--resume")

    noise = noise_like(good)
    changes = {
        "all but the first sample": slice(1, None),
        "what was read in the last batch": slice(position["first"] + 1, reached),
        "what was not read yet": slice(reached + 20, None),
        "nothing but the last sample": slice(len(good) - 1, None),
    }
    for what, where in changes.items():
        samples = good.copy()
        samples[where] = noise[where]
        code, says = resume_with(samples)
        assert code == 2, what
        assert says.count("\n") == 1
        assert "--restart" in says
        in_place = what == "what was read in the last batch"
        assert ("the data have changed since the checkpoint: samples" if in_place else "made on other data") in says
        assert left_in(tmp_path / "r") == kept
    with monkeypatch.context() as later:
        later.setattr(tpca.checkpoint, "VERSION", VERSION + 1)
        code, says = resume_with(good)
    assert (code, says.count("\n")) == (2, 1)
    assert f"has version {VERSION}, this tpca reads version {VERSION + 1}" in says
    assert "damaged" not in says
    assert "--restart" in says
    shutil.copytree("r", "anew")
    assert resume_with(good) == (0, "")
    assert tpca_here(*FIT, "--out", "anew", "--restart")[0] == 0
    assert tpca_here(*FIT, "--out", "whole") == (0, "")
    for name in ("result.json", "vectors.npz"):
        assert (tmp_path / "r" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


# -- Every way samples come.


LOOKED_AT = {place * (N - 1) // 7 for place in range(8)}


def holed(samples):
    samples = samples.copy()
    samples[[3, 77, 78, 79]] = np.nan
    samples[100:130, 0, 0, 0] = np.inf
    return samples


def as_sparse(samples):
    return [scipy.sparse.coo_matrix(np.where(np.abs(s[0]) > 1, s[0], 0)) for s in samples]


def saved_zarr(samples, folder):
    path, chunks = folder / "d.zarr", (16, *samples.shape[1:])
    zarr.create_array(str(path), shape=samples.shape, dtype=samples.dtype, chunks=chunks, overwrite=True)[:] = samples
    return path


def saved_npy(samples, folder):
    np.save(folder / "d.npy", samples)
    return folder / "d.npy"


SOURCES = {
    "an array": lambda x, _: x,
    "npy": saved_npy,
    "shuffled": lambda x, f: open_stream(saved_npy(x, f), shuffle=True, random_state=4),
    "skipping": lambda x, f: open_stream(saved_npy(holed(x), f), nan_policy="omit"),
    "filling, shuffled": lambda x, f: open_stream(
        saved_zarr(holed(x), f), nan_policy="zero", shuffle=True, random_state=1
    ),
    "zarr": saved_zarr,
    "sparse list": lambda x, _: as_sparse(x),
    "iterable": lambda x, _: open_stream((x[i : i + 7] for i in range(0, len(x), 7)), items="batches"),
    "iterable of samples": lambda x, _: open_stream(iter(x), items="samples"),
    "iterable, skipping": lambda x, _: open_stream(iter(holed(x)), items="samples", nan_policy="omit"),
    "iterable of sparse": lambda x, _: iter(as_sparse(x)),
}


@pytest.mark.parametrize("kind", list(SOURCES))
def test_changed_samples_are_noticed_and_the_same_ones_go_on(kind, tmp_path, stop_after, short_batches):
    samples, make = samples_of(), SOURCES[kind]
    solver = LeastSquares if "filling" in kind else RaceSolver  # the race takes no missing entries
    whole = told(solver(random_state=1).run(make(samples, tmp_path)))
    position = begun(make(samples, tmp_path), tmp_path / "run", stop_after, solver=solver)
    reached = position["first"] + position["offset"]
    assert position["first"] > 32
    assert reached < N - 50
    # Some of the last batch that was read, wherever it is in a shuffled file, but not what the identity looks at.
    some = range(N) if "shuffled" in kind else range(position["first"], position["first"] + 7)
    changed = samples.copy()
    changed[[i for i in some if i not in LOOKED_AT]] += 0.5
    with pytest.raises(
        CheckpointError, match=r"the data have changed since the checkpoint: (samples 0 to|.* bytes in)"
    ):
        resumed(make(changed, tmp_path), tmp_path / "run", solver)
    if "iterable" not in kind:  # what they will give is not known before
        changed = samples.copy()
        changed[-1] += 0.5
        with pytest.raises(CheckpointError, match=r"was made on other data.*--restart"):
            resumed(make(changed, tmp_path), tmp_path / "run", solver)
    assert told(resumed(make(samples, tmp_path), tmp_path / "run", solver)) == whole


def test_an_iterable_with_other_batches_fewer_or_more_samples_is_refused(tmp_path, stop_after):
    samples = samples_of(70)

    def parts(n, size):
        return open_stream((samples[i : min(n, i + size)] for i in range(0, n, size)), items="batches")

    begun(parts(56, 7), tmp_path / "run", stop_after, read=29)
    for n, size, says in ((56, 5, "differ"), (14, 7, "differ"), (56, 28, "differ")):
        with pytest.raises(CheckpointError, match=says):
            resumed(parts(n, size), tmp_path / "run")
    whole = told(resumed(parts(56, 7), tmp_path / "run"))
    assert told(resumed(parts(56, 7), tmp_path / "run")) == whole  # a run that has ended is compared as well
    with pytest.raises(CheckpointError, match="there are more than 56 samples"):
        resumed(parts(70, 7), tmp_path / "run")
    samples[3] += 1
    with pytest.raises(CheckpointError, match="samples 0 to 55 differ"):
        resumed(parts(56, 7), tmp_path / "run")


def test_slabs_of_huge_samples_are_compared(tmp_path, stop_after, monkeypatch):
    monkeypatch.setattr("tpca.data.stored.SLAB_ENTRIES", 40)
    monkeypatch.setattr("tpca.data.stored.SLAB_SAMPLES", 6)
    samples = samples_of()
    path = saved_npy(samples, tmp_path)
    whole = told(RaceSolver(random_state=1).run(path))
    position = begun(path, tmp_path / "run", stop_after, read=READ)
    place = position["first"]
    assert place not in LOOKED_AT
    changed = samples.copy()
    changed[place] += 1
    with pytest.raises(CheckpointError, match=f"samples 0 to {place + 5} differ"):
        resumed(saved_npy(changed, tmp_path), tmp_path / "run")
    assert told(resumed(saved_npy(samples, tmp_path), tmp_path / "run")) == whole


# -- Files: nothing is read again of what nobody has written to.


def saved_hdf5(samples, folder):
    with h5py.File(folder / "new.h5", "w") as file:  # who reads may have the old one open
        file.create_dataset("x", data=samples, chunks=(16, *samples.shape[1:]))
    os.replace(folder / "new.h5", folder / "d.h5")
    return folder / "d.h5"


def saved_folder(samples, folder):
    (folder / "d").mkdir(exist_ok=True)
    for i, part in enumerate(np.split(samples, 10)):
        np.save(folder / "d" / f"{i}.npy", part)
    return open_stream(folder / "d", items="batches")


def saved_table(samples, folder):
    table_of(samples).to_parquet(folder / "d.parquet")
    return open_stream(folder / "d.parquet", sample="n", modes=("x", "y", "z"), value="v")


FILES = {"npy": saved_npy, "folder": saved_folder, "zarr": saved_zarr, "hdf5": saved_hdf5, "parquet": saved_table}


def test_nothing_is_read_again_of_files_that_nobody_wrote_to(tmp_path, stop_after, short_batches, monkeypatch):
    path, read, usual = saved_npy(samples_of(), tmp_path), [], StoredStream.batch
    monkeypatch.setattr(StoredStream, "batch", lambda stream, i, *more: read.append(i) or usual(stream, i))
    position = begun(path, tmp_path / "run", stop_after)
    read.clear()
    resumed(path, tmp_path / "run")
    assert min(read) == position["first"] // 16
    begun(path, tmp_path / "other", stop_after)
    os.utime(path, (0, 0))
    read.clear()
    resumed(path, tmp_path / "other")
    assert min(read) == 0  # a copy, for all that is known
    begun(saved_folder(samples_of(), tmp_path), tmp_path / "third", stop_after)
    np.save(tmp_path / "d" / "0.npy", samples_of()[:30])
    np.save(tmp_path / "d" / "1.npy", samples_of()[30:80])
    with pytest.raises(CheckpointError, match=r"d/0.npy' and 9 more has other files; resume with the same data, or"):
        resumed(open_stream(tmp_path / "d", items="batches"), tmp_path / "third")


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("kind", FILES)
def test_data_that_are_written_to_while_they_are_read_are_refused(kind, kept, tmp_path, short_batches):
    samples, make, rounds = samples_of(), FILES[kind], []
    changed, place = samples.copy(), N - 10  # not read yet
    changed[place] *= -1
    assert place not in LOOKED_AT

    def rewrite(record):
        if not rounds:
            make(changed, tmp_path)
        rounds.append(record)

    options = {"checkpoint": tmp_path / "run", "checkpoint_every": 0} if kept else {}
    solver = RaceSolver(random_state=1, callbacks=[rewrite], **options)
    with pytest.raises(StreamError, match=r"have changed while they were read: .*d[./'].*Fit again"):
        solver.run(make(samples, tmp_path))
    assert rounds


# -- What a look costs, and what it sees.


class Counting(Source):
    """An array with chunks, that counts what is read of it."""

    kind, name, dtype = "zarr", "the store", np.dtype(np.float64)

    def __init__(self, shape, chunks):
        self.shape, self.chunks, self.read_from = shape, chunks, []

    def read(self, key):
        self.read_from.append(key[0].start)
        return np.broadcast_to(np.float64(1), self.shape)[key]


@pytest.mark.parametrize(
    ("shape", "chunks", "most"),
    [
        ((1000, 8, 8), None, 8),
        ((1000, 8, 8), (10, 8, 8), 8),
        ((1000, 64, 64), (1000, 64, 64), 2),  # 33 MB for any sample
        ((5, 8, 8), (1, 8, 8), 5),
        ((1, 8, 8), None, 1),
        ((300, 4096, 4096), (1, 64, 4096), 2),  # in slabs
    ],
)
def test_a_look_at_a_store_reads_a_bounded_amount(shape, chunks, most):
    source = Counting(shape, chunks)
    assert StoredStream(source).identity == StoredStream(Counting(shape, chunks)).identity
    assert len(source.read_from) == most
    assert source.read_from[0] == 0
    assert source.read_from[-1] == shape[0] - 1
    assert read_cost(source, source.shape[1:]) >= math.prod(shape[1:]) * 8


def test_a_digest_sees_entries_shapes_and_dtypes():
    x = np.arange(24.0)
    others = [x.reshape(4, 6), x.astype(np.float32), x[::-1], x[:-1], np.where(x == 7, 7.5, x)]
    assert len({digest([a]) for a in [x, *others]}) == 6
    assert digest([x[:6], x[6:]]) != digest([x[:7], x[7:]])
    assert digest([np.asfortranarray(x.reshape(4, 6))]) == digest([x.reshape(4, 6)])
    assert digest([np.zeros((0, 3))]) != digest([])
    large = np.zeros((8, MAX_ENTRIES))
    before = digest([large])
    large[5] += 1  # a sample of many is seen, though not every entry is looked at
    assert digest([large]) != before


def test_sparse_batches_in_a_list_are_told_apart():
    a = SparseBatch(np.array([[0, 1], [1, 2]]), np.array([1.0, 2.0]), np.array([0, 1]), 2, (3, 4))
    b = SparseBatch(np.array([[0, 1], [1, 2]]), np.array([1.0, 3.0]), np.array([0, 1]), 2, (3, 4))
    assert open_stream([a, a]).identity == open_stream([a, a]).identity
    assert open_stream([a, a]).identity != open_stream([a, b]).identity


def test_data_that_cannot_be_read_are_refused_before_a_long_run_and_those_of_a_writer_by_name(tmp_path, short_batches):
    path, rounds = saved_zarr(samples_of(), tmp_path), []
    (path / "c" / "24" / "0" / "0" / "0").write_bytes(b"not a chunk")
    with pytest.raises(StreamError, match=r"cannot read samples 399 to 399 of .*: restore them"):
        RaceSolver(checkpoint=tmp_path / "run", callbacks=[rounds.append]).run(path)
    assert rounds == []
    place = saved_npy(samples_of(), tmp_path)
    with pytest.raises(StreamError, match=r"have changed while they were read: .* has 1,000 bytes") as refused:
        RaceSolver(random_state=1, callbacks=[lambda _: os.truncate(place, 1000)]).run(place)
    assert isinstance(refused.value.__cause__, StreamError)  # what was seen of it
    assert "too early" in str(refused.value.__cause__)
