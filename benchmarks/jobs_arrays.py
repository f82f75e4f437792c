"""Samples as arrays of JAX and PyTorch on the processor, one thread, against the same samples as NumPy arrays."""

import importlib.util
import os
import time
from collections.abc import Callable, Iterator

import numpy as np
from suite import Row, interleave, on_cores

from tpca.engines import LocalEngine
from tpca.tensors import Gradients, Query, TensorSum
from tpca.tensors.accumulators import gradient_bytes
from tpca.tensors.blocks import Partition
from tpca.tensors.namespaces import crossed

# Read when JAX is imported: its threads would be two against the one of BLAS.
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

DIMS, N, REPLICAS, TARGET = (32,) * 4, 500, 50, 1.3
HOMES = ("jax", "torch")


def placed(package: str, samples: np.ndarray) -> object:
    """The samples in another library's hands."""
    if package == "jax":
        import jax.numpy as jnp

        return jnp.asarray(samples)
    import torch

    torch.set_num_threads(1)
    return torch.from_numpy(samples)


def passes(samples: object, blank: Callable[[], object]) -> Callable[[], float]:
    """Processor time of one pass over the samples."""
    engine = LocalEngine(samples)

    def run() -> float:
        engine.rewind()
        began = time.process_time()
        engine.reduce(blank(), N)
        return time.process_time() - began

    return run


def rows() -> Iterator[Row]:
    """For every library that is installed: the sum of all samples, a round of gradients, and what it brings over."""
    rng = np.random.default_rng(0)
    samples = rng.standard_normal((N, *DIMS), dtype=np.float32)
    partition = Partition.singles(DIMS)
    replicas = tuple(rng.standard_normal((REPLICAS, d), dtype=np.float32) for d in DIMS)
    queries = [Query(partition, replicas)]
    asked = {"sum": TensorSum, f"gradients of {REPLICAS} replicas": lambda: Gradients(queries)}
    for package in HOMES:
        if importlib.util.find_spec(package) is None:
            print(f"{'':10s}  {package} is not installed: its rows are left out", flush=True)
            continue
        there = placed(package, samples)
        for name, blank in asked.items():
            with on_cores({min(os.sched_getaffinity(0))}):
                took = interleave({"there": passes(there, blank)}, passes(samples, blank), repeats=5)["there"]
            job = f"pass over 500 × 32⁴ samples, float32, {package} on the processor: {name}"
            yield took.row(job, "the same of NumPy, one thread, processor time", TARGET)
        yield transfers(package, there, queries)


def transfers(package: str, there: object, queries: list[Query]) -> Row:
    """Bytes that a round brings to the host, over those allowed."""
    engine = LocalEngine(there)
    engine.reduce(Gradients(queries), N // 2)
    before = crossed.nbytes
    engine.reduce(Gradients(queries), N - N // 2)
    brought = crossed.nbytes - before
    allowed = gradient_bytes(queries) + 1024
    note = f"{brought:,} bytes; a sample has {4 * int(np.prod(DIMS)):,}"
    job = f"bytes to the host in a round, 32⁴, {package}"
    return Row(job, "gradients of all replicas in float64, and 1 kB", brought / allowed, 1.0, note=note)
