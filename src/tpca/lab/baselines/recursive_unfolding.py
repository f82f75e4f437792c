r"""Recursive unfolding: unfold, take the leading singular vectors, unfold those, until single modes are left.

.. math::
    (u, w) = \text{leading singular vectors of } \mathrm{Mat}(\bar T), \qquad
    u \in R^{d_1 \cdots d_q} \text{ is a smaller tensor: the same again, until } q = 1 .

Reference: A. Montanari, E. Richard, *A statistical model for tensor PCA*, NIPS 2014, algorithm "Recursive
Unfolding".
Different on purpose: the paper has one vector v for all modes and unfolds the first singular vector once more as
n × n^{q-1}; here each mode has a vector of its own, so both singular vectors are followed, and every unfolding is
balanced (``Partition.halves``).  Up to order 4 the result is that of :class:`~tpca.lab.baselines.Unfolding`.

State: the mean, the Lanczos vectors of its unfolding, and the singular vectors (all later ones are smaller).
"""

from __future__ import annotations

from typing import Any

from tpca.lab.baselines.all_samples import AllSamples
from tpca.lab.baselines.unfolding import spectral_vectors
from tpca.randomness import generator
from tpca.solvers.options import check_max_samples
from tpca.solvers.rank_one import split_blocks, top_pairs, unfold
from tpca.solvers.recovery import Recovery
from tpca.tensors.blocks import Array, Partition, unit


class RecursiveUnfolding:
    """Leading singular vectors of unfoldings of unfoldings of the mean."""

    def __init__(self, *, random_state: int = 0, max_samples: int | None = None) -> None:
        self.random_state = random_state
        self.max_samples = check_max_samples(max_samples)

    def run(self, source: Any) -> Recovery:
        """Recover the vectors from all samples of ``source``."""
        samples = AllSamples(source, self.max_samples)
        return samples.recovery(spectral_vectors(samples, generator(self.random_state, "unfolding"), split_recursively))


def split_recursively(block: Array) -> list[Array]:
    """One unit vector per mode of ``block``, by unfolding it again and again."""
    if block.ndim == 1:
        return [unit(block)]
    partition = Partition.halves(block.shape)
    _, *sides = top_pairs(unfold(block, partition.groups))
    parts = [side.reshape(shape) for side, shape in zip(sides, partition.shapes, strict=True)]
    return split_blocks(partition.groups, parts, split_recursively)
