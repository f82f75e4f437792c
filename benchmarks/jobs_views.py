"""A batch of views, against the matrix products that its gradients take, alone."""

import math
from collections.abc import Iterator

import numpy as np
from suite import Row, compare

from tpca.tensors import Gradients, Query, ViewsBatch
from tpca.tensors.blocks import Partition

DIMS, ROWS, TARGET = (500,) * 4, 1000, 1.5


def products(views, partition: Partition, replicas):
    """The products that no contraction can do without: t_m = <W_m, x_(m)>, and s_m times x_(m), for every block.

    A block of two views is cut between them: R·d rows of d entries, which is what few replicas are cheapest with.
    """
    count = len(replicas[0])
    work = []
    for group, shape, block in zip(partition.groups, partition.shapes, replicas, strict=True):
        left, right = math.prod(shape[:-1]), views[group[-1]]
        matrix = block.reshape(count * left, shape[-1])
        work.append((right, matrix, np.ones((len(right), count * left), right.dtype)))

    def run():
        for right, matrix, weights in work:
            right @ matrix.T
            weights.T @ right

    return run


def rows() -> Iterator[Row]:
    rng = np.random.default_rng(0)
    views = [rng.standard_normal((ROWS, d), dtype=np.float32) for d in DIMS]
    batch = ViewsBatch(views)
    for name, partition, count in (
        ("pairs, 16 replicas", Partition.pairs(DIMS), 16),
        ("pairs, 1 replica", Partition.pairs(DIMS), 1),
        ("vectors, 16 replicas", Partition.singles(DIMS), 16),
    ):
        replicas = tuple(rng.standard_normal((count, *shape), dtype=np.float32) for shape in partition.shapes)
        round_so_far = Gradients([Query(partition, replicas)])  # finished once a round, batches are many
        took = compare(lambda kept=round_so_far: kept.add(batch), products(views, partition, replicas), repeats=9)
        yield took.row(f"views batch, 4 views, d = 500, n = 1000: {name}", "its matrix products alone", TARGET)
