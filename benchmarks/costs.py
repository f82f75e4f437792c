"""How cost grows with what: samples, entries, order, replicas, memory.  Seconds of this machine, no targets.

Part of ``python benchmarks/run.py`` (and alone: ``--only costs``); shown in docs/performance.md.
"""

import math
import statistics
from collections.abc import Callable

import numpy as np
from jobs_race import Timed, contractions
from suite import seconds_of

from tpca import RaceSolver
from tpca.engines import open_engine
from tpca.tensors import DenseBatch, Query, contract
from tpca.tensors.blocks import Partition

POOL_BYTES = 2**29  # more than the caches hold
SHAPES = [(16,) * 4, (32,) * 4, (1024, 1024), (101,) * 3, (16,) * 5, (10,) * 6]
REPLICAS = (1, 4, 16, 64, 256)
MEMORIES = ((16, "100kB"), (16, "400kB"), (32, "300kB"), (32, "1.2MB"), (32, "2.4MB"))
FIT_SAMPLES = 300


def median(job: Callable[[], object], repeats: int = 5) -> float:
    job()
    return statistics.median(seconds_of(job) for _ in range(repeats))


def per_sample() -> list[list[str]]:
    """Adding samples up: the one thing that is done with every sample, whatever the order and the replicas."""
    rows = [["shape of a sample", "MB", "µs a sample", "GB/s", "÷ ones @ X"]]
    for dims in SHAPES:
        entries = math.prod(dims)
        count = max(1, POOL_BYTES // (4 * entries))
        samples = np.random.default_rng(0).standard_normal((count, *dims), dtype=np.float32)
        flat, ones, total = samples.reshape(count, -1), np.ones(count, np.float32), np.zeros(dims, np.float32)
        batch = DenseBatch(samples, unchecked=0)
        ours, floor = [], []
        for _ in range(5):
            floor.append(seconds_of(lambda ones=ones, flat=flat: ones @ flat))
            ours.append(seconds_of(lambda batch=batch, total=total: batch.add_to(total)))
        took = statistics.median(ours)
        ratio = statistics.median(a / b for a, b in zip(ours, floor, strict=True))
        speed = 4 * entries * count / took / 1e9
        shape = "×".join(map(str, dims))
        rows.append([shape, f"{4 * entries / 1e6:.2g}", f"{1e6 * took / count:.0f}", f"{speed:.1f}", f"{ratio:.2f}"])
    return rows


def per_round() -> list[list[str]]:
    """Contracting a round's sum: once a round, so that replicas cost nothing per sample."""
    rows = [["replicas", "order 4, d = 32", "order 6, d = 10", "GFLOP/s (order 4)"]]
    rng = np.random.default_rng(0)
    shapes = ((32,) * 4, (10,) * 6)
    means = [rng.standard_normal(dims, dtype=np.float32) for dims in shapes]
    for count in REPLICAS:
        took = []
        for dims, mean in zip(shapes, means, strict=True):
            partition = Partition.halves(dims)
            replicas = tuple(rng.standard_normal((count, *shape), dtype=np.float32) for shape in partition.shapes)
            query = Query(partition, replicas)
            took.append(median(lambda mean=mean, query=query: contract(mean, query)))
        speed = 4 * math.prod(shapes[0]) * count / took[0] / 1e9
        rows.append([str(count), *(f"{1e3 * seconds:.1f} ms" for seconds in took), f"{speed:.0f}"])
    return rows


def per_fit() -> list[list[str]]:
    """A race on noise: what is done for every sample, and what for every round, by memory."""
    rows = [["samples", "memory", "state", "rounds", "passes, µs a sample", "strategies and contraction, ms a round"]]
    for d, memory in MEMORIES:
        samples = np.random.default_rng(0).standard_normal((FIT_SAMPLES, *(d,) * 4), dtype=np.float32)
        engine = Timed(open_engine(samples))
        with contractions() as contracted:
            found: list = []
            whole = seconds_of(
                lambda m=memory, o=engine, f=found: f.append(RaceSolver(random_state=1, memory_limit=m).run(o))
            )
        passes = engine.seconds - sum(contracted)
        rounds = len(contracted)
        each = [f"{1e6 * passes / FIT_SAMPLES:.0f}", f"{1e3 * (whole - passes) / rounds:.1f}"]
        rows.append([f"{d}×{d}×{d}×{d}", memory, f"{found[0].state_bytes / 1e3:.0f} kB", str(rounds), *each])
    return rows


TABLES = {
    "a sample": per_sample,
    "a round's contraction": per_round,
    f"a race of {FIT_SAMPLES} samples": per_fit,
}


def measure() -> dict[str, list[list[str]]]:
    """All tables, first row the headings."""
    return {name: table() for name, table in TABLES.items()}


def markdown(tables: dict[str, list[list[str]]]) -> str:
    """The tables of docs/performance.md."""
    parts = []
    for name, (head, *rows) in tables.items():
        lines = ["| " + " | ".join(row) + " |" for row in rows]
        parts.append(
            "\n".join([f"Cost of {name}:", "", "| " + " | ".join(head) + " |", "|---" * len(head) + "|", *lines])
        )
    return "\n\n".join(parts)
