r"""Traces: contraction with identities, which needs the diagonals of a tensor only.

Where a block of two modes (i, j) is the identity, contraction with it is the trace over i and j, a sum of d slices:

.. math:: (\mathrm{tr}_{ij} T)_{\dots} = \sum_a T_{\dots\,i=a\,\dots\,j=a\,\dots} ,

d^{k-1} of the d^k entries.  Several queries share what they have in common.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.tensors.blocks import Array
from tpca.tensors.namespaces import namespace, permuted, to_host

Pair = tuple[int, int]


class Traces:
    """Traces of one tensor over pairs of modes, each worked out once."""

    def __init__(self, tensor: NDArray[Any]) -> None:
        self._known: dict[tuple[Pair, ...], Any] = {(): tensor}

    def gradients(self, groups: Sequence[Sequence[int]], wanted: Sequence[int]) -> dict[int, Array]:
        """The tensor traced over all groups but one, for every one wanted, as one row."""
        return {m: self._gradient(groups, m) for m in wanted}

    def _gradient(self, groups: Sequence[Sequence[int]], m: int) -> Array:
        pairs = sorted((min(group), max(group)) for i, group in enumerate(groups) if i != m)
        traced = self._over(tuple(pairs))
        left = sorted(groups[m])  # the modes that are left, in their order
        row = to_host(permuted(traced, [left.index(mode) for mode in groups[m]])).reshape(1, -1)
        return row.astype(np.float64, copy=False)

    def _over(self, pairs: tuple[Pair, ...]) -> Any:
        if pairs not in self._known:
            *before, (i, j) = pairs
            rest = self._over(tuple(before))
            gone = [mode for pair in before for mode in pair]
            self._known[pairs] = _trace(rest, i - sum(mode < i for mode in gone), j - sum(mode < j for mode in gone))
        return self._known[pairs]


def _trace(tensor: Any, i: int, j: int) -> Any:
    """Sum of the slices on the diagonal of two axes, ``i`` before ``j``."""
    if isinstance(tensor, np.ndarray):
        axes = list(range(tensor.ndim))
        kept = [axis for axis in axes if axis not in (i, j)]
        axes[j] = i
        return np.einsum(tensor, axes, kept, dtype=np.float64)
    slices = namespace(tensor).moveaxis(tensor, (i, j), (0, 1))
    total = slices[0, 0, ...] + 0  # a copy
    for a in range(1, slices.shape[0]):
        total += slices[a, a, ...]
    return total
