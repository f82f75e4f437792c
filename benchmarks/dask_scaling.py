"""Throughput of the Dask engine with 1 and 2 workers against the local engine, on the same compressed Zarr store.

    python benchmarks/dask_scaling.py --out benchmarks/results/dask_scaling.json

What is timed are the rounds that a race asks for over the last part of a store, with the replicas of a real race in its
search; nothing of the solver.  Every contender runs with one BLAS thread on cores of its own: the local engine on one,
one worker on the same one, two workers on one each (reading ahead and decompression use threads, which would otherwise
spread over all cores and make one worker as good as two).  The repeats of all contenders are interleaved, medians are
shown.  On a machine that does other things meanwhile a round waits for the worker whose core is busier, which hides
what two workers are worth; the processor seconds of the busiest worker do not depend on that.

Bytes are those that all processes hand to their sockets, counted at ``TCP.write``, per round, against the formula of
``research.cluster``.
"""

import argparse
import contextlib
import json
import logging
import os
import pickle
import platform
import shutil
import statistics
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

DIMS = (16, 16, 16, 16)
CHUNK = 16  # samples, a batch of 4 MB
MEMORY = "200KB"  # of the race: its gradients are smaller than a sample, as in all races that are worth a cluster
TARGETS = {"2 workers / 1 worker": 1.85, "1 worker / local": 0.8}


def write_store(place: Path, samples: int) -> int:
    """Signal and noise in float32, compressed as Zarr does by default; bytes on disk."""
    import zarr

    from tpca import SpikedTensor

    store = zarr.create_array(str(place), shape=(samples, *DIMS), chunks=(CHUNK, *DIMS), dtype="f4")
    batches = iter(
        SpikedTensor.random(DIMS, 1.0, random_state=1).stream(random_state=2, batch_size=256, dtype=np.float32)
    )
    for first in range(0, samples, 256):
        store[first : first + 256] = next(batches)[: samples - first]
    return sum(file.stat().st_size for file in place.rglob("*") if file.is_file())


def race_accumulator(place: Path):
    """What a race asks for in its search: an accumulator."""
    from tpca.engines import LocalEngine
    from tpca.solvers.race.run import RaceRun, RaceSolver

    engine = LocalEngine(str(place))
    run = RaceRun(RaceSolver(random_state=0, memory_limit=MEMORY), engine)
    for _ in range(40):
        ask = run.ask()
        run.tell(engine.reduce(ask.blank, ask.n))
    return run.ask().blank


def rounds_of(samples: int) -> tuple[int, list[int]]:
    """Where to begin, and the rounds of a race from there to the end of the store."""
    from tpca.solvers.race.rounds import round_size

    sizes, done = [], samples // 4
    while done < samples:
        sizes.append(min(round_size(done), samples - done))
        done += sizes[-1]
    return samples // 4 // CHUNK * CHUNK, sizes


def go_over(engine, first: int, sizes: list[int], blank) -> tuple[float, bytes]:
    """Seconds for all rounds, and the last rewards as bytes."""
    engine.seek({**engine.position(), "first": first, "offset": 0, "ended": False})
    began = time.perf_counter()
    for n in sizes:
        part = engine.reduce(blank, n)
    return time.perf_counter() - began, part.answers[0].rewards.tobytes()


def pin(cores: set[int]) -> None:
    """Keep this process, all of its threads and those it will start, on some cores."""
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), cores)


@contextlib.contextmanager
def on_cores(cores: set[int]):
    """This process on some cores only."""
    before = os.sched_getaffinity(0)
    pin(cores)
    try:
        yield
    finally:
        pin(before)


def count_bytes() -> None:
    """From now on, count what this process hands to its sockets."""
    from distributed.comm import tcp

    if hasattr(tcp, "tpca_sent"):
        tcp.tpca_sent = 0
        return
    tcp.tpca_sent, write = 0, tcp.TCP.write

    async def counted(self, *arguments, **options):
        sent = await write(self, *arguments, **options)
        tcp.tpca_sent += sent
        return sent

    tcp.TCP.write = counted


def bytes_sent() -> int:
    """Bytes since then."""
    from distributed.comm import tcp

    return tcp.tpca_sent


@contextlib.contextmanager
def workers(count: int):
    """A cluster of processes on cores of their own, the first on the first."""
    from distributed import Client, LocalCluster

    options = {"processes": True, "threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": logging.CRITICAL}
    with LocalCluster(n_workers=count, **options) as cluster, Client(cluster, set_as_default=False) as client:
        cores = sorted(os.sched_getaffinity(0))
        for i, address in enumerate(sorted(client.nthreads())):
            client.run(pin, {cores[i % len(cores)]}, workers=[address])
        yield client


def traffic(client, engine, first, sizes, blank) -> dict:
    """Bytes a round: counted, and by the formula."""
    from research.cluster import round_traffic
    from tpca.engines.base import cut_samples, sum_bytes
    from tpca.tensors.accumulators import gradient_bytes

    layout, place = engine.stream.layout, first
    down = len(pickle.dumps(blank.for_worker(sum_bytes(layout, engine.stream.dtype)), protocol=5))
    up, expected = gradient_bytes(blank.queries), 0
    for n in sizes:
        cut = cut_samples(layout, engine.stream.dtype, blank, place, n)
        expected += round_traffic(down, up, len(client.nthreads()), cut.leaves).sent
        place += n
    count_bytes()
    client.run(count_bytes)
    go_over(engine, first, sizes, blank)
    counted = bytes_sent() + sum(client.run(bytes_sent).values())
    return {"rounds": len(sizes), "down": down, "up": up, "expected": expected, "counted": counted}


def measure(place: Path, samples: int, repeats: int) -> dict:
    """Seconds of all contenders, interleaved."""
    from tpca.engines import DaskEngine, LocalEngine

    blank = race_accumulator(place)
    first, sizes = rounds_of(samples)
    core = {sorted(os.sched_getaffinity(0))[0]}
    seconds: dict[str, list[float]] = {"local": [], "1 worker": [], "2 workers": []}
    busiest: dict[str, list[float]] = {"1 worker": [], "2 workers": []}
    with workers(1) as one, workers(2) as two:
        engines = {"1 worker": DaskEngine(one, str(place)), "2 workers": DaskEngine(two, str(place))}
        for repeat in range(repeats + 1):
            with on_cores(core):
                took = {"local": go_over(LocalEngine(str(place)), first, sizes, blank)}
            for name, engine in engines.items():
                before = engine.cluster.client.run(time.process_time)
                took[name] = go_over(engine, first, sizes, blank)
                after = engine.cluster.client.run(time.process_time)
                busiest[name].append(max(after[worker] - before[worker] for worker in before))
            assert len({rewards for _, rewards in took.values()}) == 1, "the same bits"
            if repeat:  # the first one warms up
                for name, (spent, _) in took.items():
                    seconds[name].append(spent)
        sent = {
            name: traffic(client, engines[name], first, sizes, blank)
            for name, client in (("1 worker", one), ("2 workers", two))
        }
    replicas = sum(len(query.replicas[0]) for query in blank.queries)
    return {
        "rounds": len(sizes),
        "timed_samples": sum(sizes),
        "replicas": replicas,
        "seconds": seconds,
        "busiest": {name: values[1:] for name, values in busiest.items()},
        "traffic": sent,
    }


def table(result: dict) -> list[str]:
    """The figures as lines."""
    medians = {name: statistics.median(values) for name, values in result["seconds"].items()}
    size = result["timed_samples"] * 4 * np.prod(result["dims"]) / 1e6
    lines = ["| contender | seconds (median) | MB/s | samples/s |", "|---|---|---|---|"]
    for name, spent in medians.items():
        lines.append(f"| {name} | {spent:.2f} | {size / spent:.0f} | {result['timed_samples'] / spent:.0f} |")
    busy = {name: statistics.median(values) for name, values in result["busiest"].items()}
    lines += ["", "| ratio | measured | target |", "|---|---|---|"]
    ratios = {
        "2 workers / 1 worker": medians["1 worker"] / medians["2 workers"],
        "1 worker / local": medians["local"] / medians["1 worker"],
    }
    lines += [f"| {name} | {ratio:.2f} | ≥ {TARGETS[name]} |" for name, ratio in ratios.items()]
    lines.append(
        f"| 2 workers / 1 worker, processor seconds of the busiest | {busy['1 worker'] / busy['2 workers']:.2f} | |"
    )
    lines += ["", "| workers | bytes a round, formula | counted | ratio | target |", "|---|---|---|---|---|"]
    for name, sent in result["traffic"].items():
        expected, counted = sent["expected"] / sent["rounds"], sent["counted"] / sent["rounds"]
        lines.append(f"| {name} | {expected:,.0f} | {counted:,.0f} | {counted / expected:.2f} | 0.8 to 1.2 |")
    load, cores = result["machine"]["load"][0], result["machine"]["cores"]
    return [*lines, "", f"Load average of the machine at the end: {load:.1f} on {cores} cores."]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=32768)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="tpca-dask-"))
    try:
        stored = write_store(folder / "data.zarr", options.samples)
        known = {"dims": DIMS, "samples": options.samples, "chunk": CHUNK, "stored_bytes": stored}
        result = {**known, **measure(folder / "data.zarr", options.samples, options.repeats)}
    finally:
        shutil.rmtree(folder)
    from report import about

    result["revision"] = about(1)["revision"]
    result["machine"] = {
        "cores": len(os.sched_getaffinity(0)),
        "load": os.getloadavg(),
        "python": platform.python_version(),
    }
    print("\n".join(table(result)))
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
