r"""How sub-batches of Gaussian samples scatter about the mean of all, from the exact law, without drawing samples.

The means of sub-batches of :math:`n_1, n_2, \dots` samples are :math:`\bar T + Z_j - \sum_l n_l Z_l/n`, where
:math:`Z_j \sim N(0, 1/n_j)` is independent of the mean :math:`\bar T` of all n.  Only contractions of :math:`Z_j` with
the few rank-one replicas asked about are wanted.  With :math:`Q_i` an orthonormal basis of what these replicas hold of
block i, noise in which every block lies in :math:`Q_i`, and noise in which block i alone does not, are independent for
different i, and all that any gradient sees:

.. math:: Z \times_{j \ne i} Q_j = Q_i\,C_{(i)} + (I - Q_i Q_i^\top)\,G_i ,

C and :math:`G_i` of independent N(0, 1) entries: :math:`r^k + \sum_i D_i r^{k-1}` numbers for r replicas instead of D.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from tpca.errors import StreamError
from tpca.tensors import Answer, Query, SubBatches
from tpca.tensors.blocks import Array


def sizes_of(edges: Sequence[int], n: int) -> Array:
    """Samples of every sub-batch that has any, of ``n``."""
    sizes = np.diff(np.minimum([*edges, max(n, edges[-1])], n))
    return sizes[sizes > 0].astype(np.float64)


def scattered(
    answers: Sequence[Answer], queries: Sequence[Query], sizes: Array, scale: float, rng: np.random.Generator
) -> list[SubBatches]:
    """Sub-batches of ``sizes`` samples in noise of level ``scale``, given the ``answers`` of all samples."""
    drawn = contracted_noise(queries, len(sizes), rng)
    found = []
    for answer, query, own in zip(answers, queries, drawn, strict=True):
        gradients = {}
        for m in query.by_part or query.blocks[:1]:
            noise = own[m] / np.sqrt(sizes)[:, None]
            noise -= sizes @ noise / sizes.sum()
            gradients[m] = answer.gradients[m] + scale * noise.reshape(len(sizes), *query.partition.shapes[m])
        any_block = next(iter(gradients))
        rewards = gradients[any_block].reshape(len(sizes), -1) @ query.replicas[any_block].reshape(-1)
        found.append(SubBatches(sizes, gradients if query.by_part else {}, rewards))
    return found


def contracted_noise(queries: Sequence[Query], count: int, rng: np.random.Generator) -> list[dict[int, Array]]:
    """``count`` tensors of N(0, 1) entries, contracted with the one replica of every query: by block, ``(count, D_m)``.

    Those of different queries are of the same tensors.
    """
    partition = queries[0].partition
    if any(query.partition != partition for query in queries):
        raise StreamError("sub-batches drawn from a law need queries of one partition; draw samples instead.")
    vectors = [np.stack([query.replicas[m].reshape(-1) for query in queries]) for m in range(len(partition))]
    bases = [np.linalg.qr(v.T)[0] for v in vectors]
    coordinates = [v @ q for v, q in zip(vectors, bases, strict=True)]
    ranks = [q.shape[1] for q in bases]
    core = rng.standard_normal((count, *ranks))
    found: list[dict[int, Array]] = [{} for _ in queries]
    for m, basis in enumerate(bases):
        others = [c for i, c in enumerate(coordinates) if i != m]
        inside = np.moveaxis(core, 1 + m, 1).reshape(count, ranks[m], -1)
        outside = rng.standard_normal((count, len(basis), inside.shape[2]))
        noise = basis @ inside + outside - basis @ (basis.T @ outside)
        for a, own in enumerate(found):
            own[m] = noise @ functools.reduce(np.kron, [c[a] for c in others])
    return found
