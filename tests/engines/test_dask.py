"""The same solver on a cluster of processes: the same bytes as in one process, whatever happens to the workers."""

import contextlib
import itertools
import json
import logging
import math
import multiprocessing
import multiprocessing.forkserver
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import dask
import dask.array
import numpy as np
import psutil
import pytest
from distributed import Client, LocalCluster, wait  # its defaults first: `dask.config.set` takes back what came later
from typer.testing import CliRunner

import stream_suite
from research.cluster import round_traffic
from stream_suite import folder, hdf5, npy
from tpca import SpikedTensor, TensorCCA, TensorPCA
from tpca.cli import app
from tpca.cli.cluster import cluster
from tpca.data import open_stream, open_views, stored
from tpca.data import rows as vectors
from tpca.engines import DaskEngine, LocalEngine
from tpca.engines import base as groups
from tpca.engines.base import cut_samples
from tpca.engines.dask import cluster as cluster_module
from tpca.engines.dask import engine as engine_module
from tpca.engines.dask.cluster import Cluster
from tpca.errors import CheckpointError, ClusterError, SampleError, StreamError
from tpca.solvers.least_squares.solver import LeastSquares
from tpca.solvers.paper.schedule import Leg, Schedule
from tpca.solvers.paper.solver import PaperSolver
from tpca.solvers.race.run import RaceSolver
from tpca.tensors import Gradients, Query, TensorSum, accumulators
from tpca.tensors.blocks import Partition
from traffic import bytes_sent, count_bytes

DIMS = (6, 5, 4)
ENTRIES = math.prod(DIMS)
TRUTH = SpikedTensor.random(DIMS, 1.5, random_state=1)


def samples_of(n, dims=DIMS, strength=1.5, seed=2, dtype=np.float32):
    truth = SpikedTensor.random(dims, strength, random_state=1)
    return next(iter(truth.stream(random_state=seed, batch_size=n, dtype=dtype)))


def zarr_array(data, work, chunks=None):
    """Chunks of whole samples, if not told otherwise: thousands of small files would take longer than all else."""
    return stream_suite.zarr_array(data, work, chunks=chunks or (5, *data.shape[1:]))


@pytest.fixture(scope="module", autouse=True)
def forked():
    """Workers are forks of one process that has imported everything, which would take each of them two seconds."""
    loaded = ["distributed", "tpca.estimators", "tpca.engines.dask", "zarr", "dask.array"]
    multiprocessing.set_forkserver_preload(loaded)
    multiprocessing.forkserver.ensure_running()
    lean = {"worker.multiprocessing-method": "forkserver", "worker.profile.enabled": False}
    lean |= {"admin.tick.interval": "1s", "admin.system-monitor.interval": "10s"}
    with dask.config.set({f"distributed.{name}": value for name, value in lean.items()}):
        yield


@contextlib.contextmanager
def cluster_of(workers, stealing=False):
    options = {"processes": True, "threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": logging.CRITICAL}
    # Stealing, on a busy machine, moves tasks, and with them bytes, which are counted here.
    with dask.config.set({"distributed.scheduler.work-stealing": stealing}):
        cluster = LocalCluster(n_workers=workers, **options)
    with cluster, Client(cluster) as client:
        yield client


@pytest.fixture(scope="module")
def client():
    with cluster_of(3) as client:
        yield client


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Small batches and groups, so that small data are many of them."""
    monkeypatch.setattr(stored, "BATCH_ENTRIES", 4 * ENTRIES)
    monkeypatch.setattr(stored, "FILE_SAMPLES", 1)
    monkeypatch.setattr(vectors, "BATCH_ENTRIES", 10 * sum(DIMS))
    monkeypatch.setattr(groups, "GROUP_ENTRIES", 4 * ENTRIES)
    monkeypatch.setattr(groups, "GROUP_SAMPLES", 2)
    monkeypatch.setattr(accumulators, "REPLICA_SAMPLES", 0.02)


@contextlib.contextmanager
def using(workers, monkeypatch):
    """Only the first few workers get tasks; the parts that come back of every round are counted."""
    everyone, gather, parts = Cluster.workers, Cluster.gather, []
    with monkeypatch.context() as patch:
        patch.setattr(Cluster, "workers", lambda self: everyone(self)[:workers])
        patch.setattr(Cluster, "gather", lambda self, futures: parts.append(len(futures)) or gather(self, futures))
        yield parts


def told(estimate):
    """All that an estimate says, as bytes; what was held where is not part of the result."""
    text = []
    for part in estimate.components:
        text += [v.tobytes() for v in part.vectors] + [e.tobytes() for e in part.standard_errors or ()]
        text += [part.strength, part.strength_interval, part.p_value, part.e_value]
    text += [estimate.stop_reason.name, estimate.n_samples, estimate.n_passes, estimate.noise_level]
    text += [estimate.n_skipped, estimate.state_bytes, estimate.history]
    return repr(text)


def shown(result):
    """The same of a result."""
    return repr([v.tobytes() for v in (*result.vectors, *result.errors)] + [result.components, result.n_samples])


SOLVERS = {
    "mean": lambda: LeastSquares(random_state=0, n_resamples=19),
    "race": lambda: RaceSolver(random_state=0),
    "race in little memory": lambda: RaceSolver(random_state=0, memory_limit="14KB", max_passes=3),
    "race for two": lambda: RaceSolver(random_state=0, memory_limit="30KB", n_components=2, max_samples=200),
}


def file(kind, work, **options):
    """A file of samples, by a path from where we are; the last one of a folder is shorter."""
    return open_stream(os.path.relpath(kind(samples_of(152, dtype=np.float64), work), work.path), **options)


def with_holes(work, policy):
    samples = samples_of(200)
    samples[[3, 20, 21, 100], 0, 0, 0] = np.nan
    samples[30:47] = np.nan
    samples[-12:] = np.inf
    return open_stream(zarr_array(samples, work, chunks=(1, *DIMS)), nan_policy=policy)


def blocks(work=None):
    return dask.array.from_array(samples_of(210), chunks=((30, 25, 50, 5, 5, 95), 6, 5, 2))


DATA = {
    "npy": lambda work: file(npy, work),
    "folder": lambda work: file(folder, work, items="batches"),
    "hdf5": lambda work: file(hdf5, work),
    "shuffled": lambda work: open_stream(zarr_array(samples_of(150), work), shuffle=True, random_state=5),
    "omit": lambda work: with_holes(work, "omit"),
    "zero": lambda work: with_holes(work, "zero"),
    "slabs": lambda work: open_stream(zarr_array(samples_of(120), work, chunks=(1, 2, 5, 4))),
    "blocks of a Dask array": blocks,
    "those that are there": lambda work: blocks().persist(),
}


class TestBits:
    @pytest.mark.parametrize(
        "name", ["mean", "race", *(pytest.param(name, marks=pytest.mark.slow) for name in list(SOLVERS)[2:])]
    )
    def test_any_number_of_workers_gives_the_bytes_of_one_process(self, name, client, work, monkeypatch):
        place = zarr_array(samples_of(280), work)
        local = told(SOLVERS[name]().run(LocalEngine(place)))
        for workers in (1, 2, 3):
            with using(workers, monkeypatch) as parts:
                assert told(SOLVERS[name]().run(DaskEngine(client, place))) == local
            # Parts of a round that come back: least squares has them merged on the workers.
            assert max(parts) == 1 if workers == 1 or name == "mean" else max(parts) in (2, 4)

    @pytest.mark.parametrize("kind", DATA)
    def test_any_data(self, kind, client, work, monkeypatch):
        monkeypatch.chdir(work.path)  # workers were started elsewhere
        if kind == "slabs":
            monkeypatch.setattr(stored, "SLAB_ENTRIES", ENTRIES // 3)
            monkeypatch.setattr(stored, "SLAB_SAMPLES", 10)
        source = DATA[kind](work)
        solver = SOLVERS["mean"]() if kind == "zero" else RaceSolver(random_state=0, memory_limit="14KB", max_passes=2)
        local, there = solver.run(LocalEngine(source)), solver.run(DaskEngine(client, source))
        assert told(there) == told(local)
        assert there.n_skipped == {"omit": 33, "zero": 29}.get(kind, 0)

    @pytest.mark.parametrize("kind", ["shuffled", "omit", "zero"])
    def test_scores_lie_where_their_samples_do(self, kind, client, work):
        source = DATA[kind](work)
        pca = TensorPCA(random_state=0, n_resamples=19).fit(samples_of(150))
        scores = pca.transform(DaskEngine(client, source))
        np.testing.assert_array_equal(scores, pca.transform(source))
        assert int(np.isnan(scores[:, 0]).sum()) == {"omit": 33, "zero": 29}.get(kind, 0)
        if kind == "omit":
            assert np.isnan(scores[[3, 20, 21, 100, *range(30, 47)]]).all()

    def test_whole_groups_that_are_left_out(self, client, work, rng):
        """Their places in the tree stay empty: what follows does not move up."""
        samples = samples_of(96)
        samples[24:47] = np.nan
        samples[72:] = np.nan
        stream = open_stream(zarr_array(samples, work, chunks=(4, *DIMS)), nan_policy="omit")
        assert cut_samples(stream.layout, stream.dtype, Gradients(asks_of(rng)), 0, 49).leaves == 8
        for n in (49, 96):
            expected = parted(LocalEngine(stream), (n,), ask := asks_of(rng))
            assert parted(DaskEngine(client, stream), (n,), ask) == expected

    def test_fresh_samples_for_every_replica(self, client, work):
        place = zarr_array(samples_of(500, (4, 3, 5, 4), 3.0), work)
        leg = Leg(steps=7, step_size=0.05)
        schedule = Schedule("short", stages=((leg, leg),), ascent=(leg, leg), selection=6, estimation=(leg, leg))
        engines = (LocalEngine(place), DaskEngine(client, place))
        runs = [PaperSolver(random_state=0, schedule=schedule).run(engine) for engine in engines]
        assert told(runs[0]) == told(runs[1])
        assert runs[0].n_samples > 300


def parted(engine, sizes, asks):
    return [[answer.rewards.tobytes() for answer in engine.reduce(Gradients(asks), n).answers] for n in sizes]


def asks_of(rng, count=3):
    partition = Partition.singles(DIMS)
    return [Query(partition, tuple(rng.standard_normal((count, d)) for d in DIMS))]


class TestPositions:
    def test_a_run_can_move_from_one_engine_to_the_other_at_any_round(self, client, work, rng):
        samples = samples_of(120)
        samples[40:52] = np.nan
        stream, asks = open_stream(zarr_array(samples, work, chunks=(1, *DIMS)), nan_policy="omit"), asks_of(rng)
        sizes = (1, 9, 35, 2, 40, 30)
        expected = parted(LocalEngine(stream), sizes, asks)
        for first in (LocalEngine(stream), DaskEngine(client, stream)):
            engine, got = first, []
            for n in sizes:
                got += parted(engine, (n,), asks)
                position = engine.position()
                engine = LocalEngine(stream) if isinstance(engine, DaskEngine) else DaskEngine(client, stream)
                engine.seek(position)
            assert got == expected
            assert engine.n_skipped == 12

    @pytest.mark.parametrize("begun_here", [True, False])
    @pytest.mark.parametrize("kind", ["files", "blocks"])
    def test_changed_samples_are_noticed_by_either_engine(self, kind, begun_here, client, work, rng):
        samples, asks = samples_of(120), asks_of(rng)

        def opened():
            if kind == "blocks":
                return dask.array.from_array(samples.copy(), chunks=(20, *DIMS))
            return open_stream(zarr_array(samples, work, chunks=(1, *DIMS)))

        source, engines = opened(), (LocalEngine, lambda stream: DaskEngine(client, stream))
        begin, other = engines if begun_here else engines[::-1]
        expected = parted(LocalEngine(source), (30, 45, 20), asks)[2:]
        first = begin(source)
        first.keep()
        parted(first, (30, 45), asks)
        position = first.position()
        assert position["read"]["end"] >= 75
        for make, same in itertools.product((begin, other), (source, opened())):  # what nobody wrote to, and a copy
            again = make(same)
            again.seek(position)
            assert parted(again, (20,), asks) == expected
        samples[10] *= -1
        for make in (begin, other):
            with pytest.raises(CheckpointError, match=r"changed since the checkpoint: (samples 0 to|.* it had)"):
                make(opened()).seek(position)

    def test_reading_that_fails_because_of_a_writer_says_so(self, client, work, rng):
        place = npy(samples_of(120), work)
        engine = DaskEngine(client, place)
        parted(engine, (10,), asks_of(rng))
        os.truncate(place, 1000)
        with pytest.raises(StreamError, match=r"have changed while they were read: .* has 1,000 bytes"):
            parted(engine, (100,), asks_of(rng))


class TestTraffic:
    @pytest.mark.parametrize("count", [20, 60])
    def test_a_round_sends_what_the_formula_says(self, count, client, work, rng, monkeypatch):
        dims, n = (40, 36, 32), 24
        partition = Partition(dims, ((0, 1), (2,)))
        ask = Query(partition, tuple(rng.standard_normal((count, *shape)) for shape in partition.shapes))
        place = zarr_array(rng.standard_normal((2 * n, *dims)), work, chunks=(1, *dims))
        with using(2, monkeypatch):
            engine = DaskEngine(client, place)
            engine.reduce(Gradients([ask]), n)
            cut = cut_samples(engine.stream.layout, engine.stream.dtype, Gradients([ask]), n, n)
            assert cut.leaves == 8
            client.run(count_bytes)
            count_bytes()
            engine.reduce(Gradients([ask]), n)
            counted = bytes_sent() + sum(client.run(bytes_sent).values())
        blocks = 8 * count * (40 * 36 + 32)  # replicas, and their gradients
        down, up = (blocks, blocks) if count == 20 else (0, 8 * 40 * 36 * 32)
        expected = round_traffic(down, up, 2, cut.leaves)
        # The replicas from the client to the scheduler, to one worker, to the other; a part of each back the same way.
        assert expected.sent == 3 * down + 4 * up
        assert counted == pytest.approx(expected.sent, rel=0.2)

    def test_least_squares_sends_few_sums_of_a_sample(self, client, work, rng, monkeypatch):
        """At 16⁴ the sums of 32 + 32 bins, squares, kept samples; of 4000 samples that is 0.04 of the data."""
        dims, n = (16, 16, 16, 16), 512
        single = 4 * 16**4
        few = 66 * 2 * single + 26 * single
        assert few < 0.04 * 4000 * single
        tiles = np.tile(rng.standard_normal((n, 512), dtype=np.float32), 16**4 // 512)  # quickly packed
        place = zarr_array(tiles.reshape(n, *dims), work, chunks=(16, *dims))
        with using(2, monkeypatch) as parts:
            count_bytes()
            found = LeastSquares(random_state=0, n_resamples=19).run(DaskEngine(client, place))
            sent = bytes_sent()  # of this process, in which the scheduler is: to the client, and questions
        assert found.n_samples == n
        assert parts == [1]  # one round, one part
        assert 32 * 2 * single < sent < few + 0.001 * 4000 * single

    def test_blocks_that_are_not_there_yet_are_made_some_at_a_time(self, client, monkeypatch):
        expected = told(SOLVERS["mean"]().run(DaskEngine(client, blocks())))
        monkeypatch.setattr(engine_module, "BLOCKS_HELD", 30 * 8 * ENTRIES)
        with using(2, monkeypatch) as parts:
            assert told(SOLVERS["mean"]().run(DaskEngine(client, blocks()))) == expected
        assert len(parts) >= 3


class Deadly(stored.StoredStream):
    """Samples that no worker survives."""

    def batch(self, number, parts=None):
        if number == 7:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().batch(number, parts)


def pids(client):
    return dict(client.run(os.getpid))


def set_pause(share, dask_worker=None):
    dask_worker.memory_manager.memory_pause_fraction = share


def until(true, seconds=60):
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def fake_cluster(everyone, tasks, patience=0.0):
    """A cluster whose scheduler says so, or nothing at all."""

    def about(n_workers):
        if everyone is None:
            time.sleep(60)
        return {"address": "tcp://s", "workers": {worker: {"status": status} for worker, status in everyone.items()}}

    return Cluster(SimpleNamespace(scheduler_info=about, processing=lambda: tasks), patience)


ONE_PAUSED = {"a": "running", "b": "paused"}


@pytest.mark.parametrize(
    ("everyone", "tasks", "says"),
    [
        ({}, {}, "has 0 workers, 0 of them paused"),
        (ONE_PAUSED, {"b": ["x"]}, "has 2 workers, 1 of them paused .* worked for 0 seconds; start"),
        (None, {}, "the connection to the scheduler .* is lost .TimeoutError"),
        (ONE_PAUSED, {"a": ["x"], "b": ["x"]}, None),
        ({"a": "running"}, {"a": ["of somebody else"]}, None),
    ],
)
def test_who_is_at_work_and_why_nobody_is(everyone, tasks, says, monkeypatch):
    monkeypatch.setattr(cluster_module, "LOOK", 0.02)
    cluster = fake_cluster(everyone, tasks, patience=0.2 if everyone is None else 0.0)
    cluster.client.gather = lambda _: time.sleep(0.1) or []  # some looks
    if says is None:
        assert cluster.gather([]) == []
    else:
        for ask in (cluster.gather, lambda _: cluster.workers())[: 1 if everyone else 2]:
            with pytest.raises(ClusterError, match=says):
                ask([])


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("nonsense://x", "unknown address scheme 'nonsense'"),
        ("hello", "Must include protocol like tcp://"),
        ("tcp://127.0.0.1", "missing port number"),
        ("tcp://no.such.host.invalid:8786", "Name or service not known|not known|resol"),
    ],
)
def test_an_address_that_can_never_be_reached_is_refused_at_once(address, says, monkeypatch):
    monkeypatch.setattr("distributed.Client", None)  # nobody tries to connect
    with pytest.raises(ClusterError, match=f"no Dask scheduler answers at '{address}': .*({says}).*; check the"):
        cluster(address, None).__enter__()


class TestFaults:
    @pytest.fixture(autouse=True)
    def _quick_looks(self, monkeypatch):
        monkeypatch.setattr(cluster_module, "LOOK", 0.25)

    @pytest.mark.parametrize("name", ["mean", pytest.param("race in little memory", marks=pytest.mark.slow)])
    def test_a_worker_that_is_killed_in_mid_round_changes_nothing(self, name, client, work, monkeypatch):
        place = zarr_array(samples_of(280), work)
        expected = told(SOLVERS[name]().run(LocalEngine(place)))
        gather, rounds, killed = Cluster.gather, 0, []
        deaths = 1 if name == "mean" else 2  # which reads all in one round

        def gather_and_kill(self, futures):
            nonlocal rounds
            is_round = len(futures) > 1 or name == "mean"
            rounds += is_round
            if is_round and rounds in (1, 3):  # of several tasks, which are on their way
                killed.append(sorted(pids(client).values())[0])
                os.kill(killed[-1], signal.SIGKILL)
            return gather(self, futures)

        monkeypatch.setattr(Cluster, "gather", gather_and_kill)
        assert told(SOLVERS[name]().run(DaskEngine(client, place))) == expected
        assert len(set(killed)) == deaths

    @pytest.mark.parametrize(("name", "done"), [("mean", False), ("race", False), ("mean", True)])
    def test_workers_that_are_all_replaced_change_nothing(self, name, done, work, monkeypatch):
        """In mid-round, or when all is done and still with them.  A nanny may give up on workers killed as they start:

        so this is a cluster of its own, whose nannies have started theirs.
        """
        place = zarr_array(samples_of(280), work)
        expected = told(SOLVERS[name]().run(LocalEngine(place)))
        with cluster_of(2) as doomed:
            gather, killed = doomed.gather, []

            def gather_and_kill(futures):
                if not killed:
                    if done:
                        wait(futures)
                    killed.extend(pids(doomed).values())
                    for pid in killed:  # those that come after them have other addresses
                        os.kill(pid, signal.SIGKILL)
                return gather(futures)

            monkeypatch.setattr(doomed, "gather", gather_and_kill)
            assert told(SOLVERS[name]().run(DaskEngine(doomed, place))) == expected
        assert len(killed) == 2

    def test_nobody_is_waited_for_for_ever_and_whoever_comes_in_time_does_it(self, work, rng, monkeypatch):
        place, asks, gather = zarr_array(samples_of(60), work), asks_of(rng), Cluster.gather
        expected = parted(LocalEngine(place), [60], asks)

        def gather_alone(self, futures):
            if leaving.cluster.workers:
                leaving.cluster.scale(0)
                until(lambda: not leaving.scheduler_info()["workers"])
            return gather(self, futures)

        monkeypatch.setattr(Cluster, "gather", gather_alone)
        with cluster_of(2) as leaving:
            with pytest.raises(ClusterError, match=r"has 0 workers, .* for 1 seconds; start some"):
                DaskEngine(leaving, place, patience=1.0).reduce(Gradients(asks), 60)
            leaving.cluster.scale(1)
            leaving.wait_for_workers(1)
            later = threading.Timer(1.5, lambda: monkeypatch.undo() or leaving.cluster.scale(2))
            later.start()
            assert parted(DaskEngine(leaving, place), [60], asks) == expected
            later.join()

    @pytest.mark.slow
    def test_a_worker_that_sleeps_for_a_while_changes_nothing_whoever_steals_its_tasks(self, work, monkeypatch):
        place = zarr_array(samples_of(280), work)
        expected = told(SOLVERS["race"]().run(LocalEngine(place)))
        gather, stopped = Cluster.gather, []

        def gather_and_stop(self, futures):
            if len(futures) > 1 and len(stopped) < 3:
                stopped.append(sorted(pids(thieves).values())[len(stopped)])
                os.kill(stopped[-1], signal.SIGSTOP)
                threading.Timer(1.0, os.kill, (stopped[-1], signal.SIGCONT)).start()
            return gather(self, futures)

        monkeypatch.setattr(Cluster, "gather", gather_and_stop)
        with cluster_of(3, stealing=True) as thieves:
            assert told(SOLVERS["race"]().run(DaskEngine(thieves, place))) == expected
            until(lambda: len(pids(thieves)) == 3)  # all are awake again
        assert len(set(stopped)) == 3

    @pytest.mark.parametrize("most", [2**16, 0])
    def test_a_stream_goes_with_every_task_unless_it_is_long(self, most, client, work, rng, monkeypatch):
        place, keys, submit = zarr_array(samples_of(60), work), [], Cluster.submit
        monkeypatch.setattr(engine_module, "SMALL", most)

        def noted(*args, key, **more):
            keys.append(key)
            return submit(*args, key=key, **more)

        monkeypatch.setattr(Cluster, "submit", noted)
        asks = asks_of(rng)
        assert parted(DaskEngine(client, place), [60], asks) == parted(LocalEngine(place), [60], asks)
        assert any(key.endswith("-stream") for key in keys) is (most == 0)

    @pytest.mark.slow
    def test_paused_workers_are_not_counted_and_it_is_said_why(self, client, work, rng):
        place = zarr_array(samples_of(60), work)
        engine = DaskEngine(client, place, patience=0.5)
        client.run(set_pause, 1e-9)  # as if their memory were full
        try:
            until(lambda: not engine.cluster._running(engine.cluster._everyone()))
            with pytest.raises(ClusterError, match="has 3 workers, 3 of them paused"):
                engine.reduce(Gradients(asks_of(rng)), 60)
        finally:
            client.run(set_pause, 0.8)
        until(lambda: len(engine.cluster._running(engine.cluster._everyone())) == 3)
        asks = asks_of(rng)
        assert parted(DaskEngine(client, place), [60], asks) == parted(LocalEngine(place), [60], asks)

    def test_what_workers_cannot_read_is_named(self, client, work, rng):
        samples, asks = samples_of(100), asks_of(rng)
        place = zarr_array(samples, work, chunks=(10, *DIMS))
        (chunk,) = work.path.rglob("c/4/0/0/0")
        chunk.write_bytes(b"no longer what it was")
        with pytest.raises(StreamError, match=r"samples 40 to 49 .*on worker tcp://"):
            DaskEngine(client, place).reduce(Gradients(asks), 100)
        for source in (samples, iter([samples[:1], samples]), TRUTH.stream()):
            with pytest.raises(StreamError, match="save the samples as Zarr"):
                DaskEngine(client, source)
        samples[33, 0, 0, 0] = np.nan
        with pytest.raises(SampleError, match="sample 33 contains NaN or Inf"):
            DaskEngine(client, zarr_array(samples, work)).reduce(Gradients(asks), 60)

    @pytest.mark.slow
    def test_samples_that_kill_their_workers_are_named(self, client, work, rng, monkeypatch):
        stream = open_stream(zarr_array(samples_of(100), work))
        stream.__class__ = Deadly
        client.wait_for_workers(3)
        monkeypatch.setattr(client.cluster.scheduler, "allowed_failures", 0)
        with (
            using(2, monkeypatch),
            pytest.raises(ClusterError, match=r"again and again at samples (\d+) to (\d+)") as told_so,
        ):
            DaskEngine(client, stream).reduce(Gradients(asks_of(rng)), 100)
        first, last = map(int, re.search(r"samples (\d+) to (\d+)", str(told_so.value)).groups())
        assert first <= 35 <= last
        assert last - first < 60


@contextlib.contextmanager
def processes(folder, **changed):
    """A scheduler and a worker as a site would start them, the worker in a changed environment; ended in any case."""
    told, running = folder / "scheduler.json", []
    common = ["--scheduler-file", str(told), "--no-dashboard"]
    commands = (["scheduler", *common, "--host", "127.0.0.1", "--port", "0"], ["worker", *common, "--nthreads", "1"])
    try:
        for command in commands:
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            quiet["env"] = {**os.environ, **(changed if command[0] == "worker" else {})}
            running.append(subprocess.Popen([sys.executable, "-m", "dask", *command], start_new_session=True, **quiet))
        yield told, running
    finally:
        for process in running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # a worker has a nanny and children
            process.wait()


class TestLostScheduler:
    def test_the_checkpoint_is_intact_and_the_run_goes_on_elsewhere(self, client, work):
        place = zarr_array(samples_of(160), work)
        whole = told(RaceSolver(random_state=0).run(LocalEngine(place)))
        kept = {"checkpoint": work.path / "kept", "checkpoint_every": 0}
        with processes(work.path) as (address, (scheduler, _)):

            def kill(record):
                if record["samples"] > 60:
                    scheduler.kill()

            with Client(scheduler_file=str(address), timeout="30s", set_as_default=False) as doomed:
                doomed._timeout = 1.0  # for its own attempts to connect again, which are not the matter here
                solver = RaceSolver(random_state=0, callbacks=[kill], **kept)
                with pytest.raises(ClusterError, match=r"scheduler at tcp://127.* is lost .*checkpoint.*--resume"):
                    solver.run(DaskEngine(doomed, place))
        shutil.copytree(work.path / "kept", work.path / "also kept")
        assert told(RaceSolver(random_state=0, resume=True, **kept).run(LocalEngine(place))) == whole
        kept["checkpoint"] = work.path / "also kept"
        assert told(RaceSolver(random_state=0, resume=True, **kept).run(DaskEngine(client, place))) == whole


def fitting(arguments, out):
    """The command, started as a user would, and its first checkpoint."""
    words = [sys.executable, "-m", "tpca.cli", "fit", *arguments, "--out", str(out), "--checkpoint-every", "0"]
    words += ["--solver", "race", "--max-passes", "3"]
    command = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    until(lambda: any((out / "checkpoint").glob("*")) or command.poll() is not None, 120)
    assert command.poll() is None, command.stderr.read()
    return command


class TestCommand:
    """As a user starts it, and as it is ended from outside."""

    @pytest.fixture(autouse=True)
    def small(self):
        """Batches and groups as they are, here as in the commands: other ones are other sums, with other last bits."""

    @pytest.fixture
    def place(self, work):
        return zarr_array(samples_of(6000, strength=0.01), work, chunks=(10, *DIMS))  # found out in three passes

    def vectors(self, place, out):
        words = ["fit", place, "--out", str(out), "--solver", "race", "--max-passes", "3", "--quiet"]
        assert CliRunner().invoke(app, words).exit_code in (0, 3)
        return (out / "vectors.npz").read_bytes()

    @pytest.mark.slow
    def test_the_only_worker_is_killed_and_another_one_goes_on(self, place, work):
        command = fitting([place, "--workers", "1"], work.path / "o")
        children = psutil.Process(command.pid).children()
        (worker,) = [child for child in children if "spawn_main" in " ".join(child.cmdline())]
        worker.kill()
        try:
            _, said = command.communicate(timeout=120)
        finally:
            command.kill()
        assert command.returncode in (0, 3), said
        assert (work.path / "o" / "vectors.npz").read_bytes() == self.vectors(place, work.path / "here")

    @pytest.mark.slow
    def test_ctrl_c_ends_a_fit_that_waits_for_workers_and_it_can_be_gone_on_with(self, place, work):
        with processes(work.path) as (told, (_, worker)):
            until(told.exists)
            scheduler = ["--cluster", json.loads(told.read_text())["address"]]
            command = fitting([place, *scheduler], work.path / "o")
            os.killpg(worker.pid, signal.SIGKILL)  # and its nanny: nobody comes
            time.sleep(2)
            began = time.monotonic()
            command.send_signal(signal.SIGINT)
            _, said = command.communicate(timeout=60)
            assert command.returncode == 130, said
            assert "--resume" in said
            assert time.monotonic() - began < 30  # seconds; it waits for five, and machines may be busy
        command = fitting([place, "--resume"], work.path / "o")
        command.communicate(timeout=120)
        assert command.returncode in (0, 3)
        assert (work.path / "o" / "vectors.npz").read_bytes() == self.vectors(place, work.path / "here")

    @pytest.mark.parametrize(
        ("other", "says"),
        [
            (
                "__version__ = '0.0.1'",
                r"the worker at tcp://.* has tpca 0\.0\.1, and this process .*; install the same",
            ),
            ("raise ModuleNotFoundError('no tpca here')", r"the worker at tcp://.* has no tpca .*\(no tpca here\)"),
        ],
        ids=["another version", "none"],
    )
    def test_a_worker_with_another_tpca_or_none_is_named(self, other, says, work, rng):
        (work.path / "tpca").mkdir()
        (work.path / "tpca" / "__init__.py").write_text(other)
        place = zarr_array(samples_of(20), work)
        with (
            processes(work.path, PYTHONPATH=str(work.path)) as (told, _),
            Client(scheduler_file=str(told), timeout="30s", set_as_default=False) as client,
            pytest.raises(ClusterError, match=says),
        ):
            DaskEngine(client, place).reduce(Gradients(asks_of(rng)), 5)


def views_of(n, dims=(5, 4, 6)):
    rng = np.random.default_rng(0)
    shared = rng.exponential(size=n) - 1
    return [np.outer(shared, rng.standard_normal(d)) + rng.standard_normal((n, d)) for d in dims]


def cca_told(cca):
    numbers = [*cca.weights_, *cca.means_, cca.correlations_, cca.p_values_, cca.moments_]
    return [x.tobytes() for x in numbers], cca.n_samples_seen_, cca.n_skipped_, cca.found_


class TestViews:
    @pytest.fixture(autouse=True)
    def _few_passes(self, monkeypatch):
        monkeypatch.setattr("tpca.solvers.views.LAST_SWEEPS", 2)
        monkeypatch.setattr("tpca.solvers.views.RANDOM", 6)

    def test_whitening_starts_and_climb_on_workers(self, client, work, monkeypatch):
        monkeypatch.setattr(vectors, "BATCH_ENTRIES", 30 * sum(DIMS))
        monkeypatch.setattr(groups, "GROUP_ENTRIES", 50 * sum(DIMS))
        views = views_of(450)
        views[1][[3, 300], 2] = np.nan
        views[0][40:90] = np.inf  # more than a whole batch
        stream = open_views([zarr_array(v, work, chunks=(30, v.shape[1])) for v in views], nan_policy="omit")
        assert cut_samples(stream.layout, stream.dtype, TensorSum(), 0, None).leaves == 8
        options = {"random_state": 0, "memory_limit": "2MB", "nan_policy": "omit"}
        here = cca_told(TensorCCA(**options).fit(stream))
        with using(2, monkeypatch):
            assert cca_told(TensorCCA(**options).fit(DaskEngine(client, stream))) == here
        assert here[1:] == (398, 52, 1)

    def test_views_that_are_dask_arrays_use_the_active_client(self, client, monkeypatch):
        monkeypatch.setattr(vectors, "BATCH_ENTRIES", 90 * sum(DIMS))
        views = views_of(300)
        arrays = [dask.array.from_array(view, chunks=(90, -1)).persist() for view in views]
        passes, reduce = [], DaskEngine.reduce
        monkeypatch.setattr(DaskEngine, "reduce", lambda self, *args: passes.append(1) or reduce(self, *args))
        there = cca_told(TensorCCA(random_state=0).fit(arrays))
        assert len(passes) > 10
        assert there == cca_told(TensorCCA(random_state=0).fit(views))


class TestDoors:
    def test_the_estimator_uses_the_active_client_for_a_dask_array(self, client, monkeypatch):
        samples = samples_of(120)
        array = dask.array.from_array(samples, chunks=(20, *DIMS)).persist()
        asked, reduce = [], DaskEngine.reduce
        monkeypatch.setattr(DaskEngine, "reduce", lambda self, *args: asked.append(1) or reduce(self, *args))
        there = TensorPCA(random_state=0).fit(array)
        assert len(asked) == 1  # all samples in one round
        assert (there.solver_, there.shape_in_) == ("least_squares", DIMS)
        monkeypatch.setattr("tpca.engines.local.active_client", lambda: None)
        here = TensorPCA(random_state=0).fit(array)
        assert shown(there.result_) == shown(here.result_)

    def test_the_estimator_takes_an_engine(self, client, work):
        place = zarr_array(samples_of(120), work)
        for options in ({}, {"solver": "race"}):
            there = TensorPCA(random_state=0, **options).fit(DaskEngine(client, place))
            assert shown(there.result_) == shown(TensorPCA(random_state=0, **options).fit(place).result_)

    def test_the_command_starts_and_stops_workers(self, client, work):
        place = zarr_array(samples_of(60), work)
        scheduler = client.scheduler.address
        arguments = ["fit", place, "--solver", "race", "--quiet", "--out"]
        run = CliRunner().invoke
        results, others = [], set(psutil.Process().children(recursive=True))
        for number, where in enumerate(([], ["--workers", "1"], ["--cluster", scheduler])):
            out = work.path / f"result {number}"
            done = run(app, [*arguments, str(out), *where])
            assert done.exit_code == 0, done.output
            started = set(psutil.Process().children(recursive=True)) - others
            assert psutil.wait_procs(started, timeout=60)[1] == []  # whatever it started is gone
            results.append((out / "vectors.npz").read_bytes())
        assert results[0] == results[1] == results[2]
        both = run(app, [*arguments, str(work.path / "no"), "--workers", "1", "--cluster", scheduler])
        assert isinstance(both.exception, ClusterError)


@contextlib.contextmanager
def nothing_read_here():
    """Forbids this process, not the workers, to read any batch."""

    def refuse(self, *args):
        raise AssertionError("a batch was read in this process")

    with pytest.MonkeyPatch.context() as patch:
        for kind, name in itertools.product((stored.StoredStream, vectors.RowsStream), ("batch", "batches")):
            patch.setattr(kind, name, refuse)
        yield


@pytest.fixture(scope="module")
def pca():
    return TensorPCA(random_state=0).fit(samples_of(200, seed=3))


@pytest.fixture(scope="module")
def cca():
    return TensorCCA(random_state=0).fit(views_of(600))


class TestReaders:
    """Scores are worked out where the samples are."""

    @pytest.mark.parametrize("given", ["engine", "array", "persisted array"])
    def test_workers_read_for_transform_and_score(self, given, client, work, pca, monkeypatch):
        samples = samples_of(130)
        array = dask.array.from_array(samples, chunks=((30, 25, 50, 25), 6, 5, 2))
        X = {"engine": zarr_array(samples, work), "array": array, "persisted array": array.persist()}[given]
        source = DaskEngine(client, X) if given == "engine" else X
        with nothing_read_here():
            there, scored = pca.transform(source), pca.score(source)
            again = pca.transform(source)  # an engine is read from its first sample every time
            monkeypatch.setattr("tpca.engines.local.PIECE", 37)
            in_pieces = pca.score(source)
        monkeypatch.setattr("tpca.engines.local.active_client", lambda: None)
        assert there.tobytes() == again.tobytes() == pca.transform(X).tobytes()
        # Products of four numbers in single precision, added up: 120 roundings of terms of unit size.
        rewards = np.einsum("nabc,ra,rb,rc->n", samples.astype(float), *pca.components_)
        np.testing.assert_allclose(there[:, 0], rewards, atol=120 * np.finfo(np.float32).eps)
        expected = (there.mean(), there.std(ddof=1) / np.sqrt(len(there)))
        for score, rel in ((scored, 1e-12), (in_pieces, 1e-5), (pca.score(X), 1e-5)):  # pieces cut batches: float32
            assert (float(score), score.standard_error) == pytest.approx(expected, rel=rel)

    @pytest.mark.parametrize("given", ["engine", "arrays"])
    def test_workers_read_views(self, given, client, work, cca, monkeypatch):
        monkeypatch.setattr(vectors, "BATCH_ENTRIES", 90 * sum(DIMS))
        views = views_of(300)
        files = [zarr_array(view, work, chunks=(30, view.shape[1])) for view in views]
        arrays = [dask.array.from_array(view, chunks=(90, -1)) for view in views]
        source = DaskEngine(client, open_views(files)) if given == "engine" else arrays
        with nothing_read_here():
            there, score = cca.transform(source), cca.score(source)
        monkeypatch.setattr("tpca.engines.local.active_client", lambda: None)
        here = cca.transform(files if given == "engine" else arrays)
        assert [y.tobytes() for y in there] == [y.tobytes() for y in here]
        assert float(score) == pytest.approx(float(cca.score(views)), rel=1e-9)
        for y, view, mean, w in zip(there, views, cca.means_, cca.weights_, strict=True):
            np.testing.assert_allclose(y, (view - mean) @ w.T, rtol=1e-12, atol=1e-12)
