"""Groups of large samples in little memory: the sum of all, that of the open group, and contrasts in bytes.

When a group is full its contrast with all before it is kept (:mod:`tpca.solvers.mean.contrasts`), and it is added to
the sum of all.  Contrasts are whitened before they are rounded, so what the noise is must be known by the end of the
first group; the sum of all stays as it is.  Of eight groups of float32 that is 15 bytes an entry instead of 36.

The last group is one, however few samples it has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import get_blas_funcs

from tpca.checkpoint import kept
from tpca.noise import Whitening
from tpca.solvers.mean.contrasts import Coded, RoundedContrasts, blocks_of, group_rows
from tpca.solvers.mean.grouping import Array32, Grouping
from tpca.tensors.blocks import Array
from tpca.threads import share

# Entries, from which memory counts: of smaller samples rounding takes longer than it saves; and blocks, of which two
# are read at a time.
COMPACT, MIN_BLOCKS = 2**18, 8


def can_be_compact(dims: tuple[int, ...]) -> bool:
    """Whether samples are so large that it is worth it, and no single mode makes most of that."""
    return math.prod(dims) > COMPACT and len(blocks_of(dims)) >= MIN_BLOCKS


@kept
class CompactGrouping(Grouping):
    """Sums of groups whose sizes a ``plan`` says; ``whitening`` is to be set before the second one is full."""

    def __init__(self, dims: Sequence[int], plan: Sequence[int]) -> None:
        super().__init__(dims, 0, plan=plan)
        self.contrasts = RoundedContrasts(dims, len(plan) - 1)
        self.ratios: list[float] = []
        self.whitening: Whitening | None = None
        self.last: NDArray[Any] | None = None  # the sum of the open group
        self._spare: Array32 | None = None  # memory for the next

    def _make_room(self) -> Array32:
        return np.empty((0, *self.dims), np.float32)

    @property
    def vacant(self) -> list[Array32]:
        """The memory of the next group."""
        if not self._begins or len(self.counts) >= self.most:
            return []
        if self._spare is None:
            self._spare = np.empty(self.dims, np.float32)
        return [self._spare]

    def add(self, part: NDArray[np.floating], n: int, worth: float | None = None) -> None:
        """Add ``n`` samples, which sum to ``part`` and are ``worth`` so many, to the open group."""
        if self._begins:
            self._open()
        self.last = np.require(part, requirements=("C", "W")) if self.last is None else _plus(self.last, part)
        self._spare = None
        self.counts[-1] += n
        self.worths[-1] += n if worth is None else worth
        if self._begins and len(self.counts) < self.most:  # the last one takes all that come
            self._keep()

    def multiply(self, factor: float) -> None:
        """Have all sums in another unit."""
        for sums in (self.total, self.last):
            if sums is not None:
                sums *= sums.dtype.type(factor)
        self.contrasts.multiply(factor)

    def transform(self, linear: Callable[[Array32], Array32]) -> None:
        """Have the sum of all transformed: contrasts are already."""
        assert self.total is not None
        self.total = linear(self.total)

    @property
    def whole(self) -> Array:
        """The sum of all groups."""
        if self.total is None or self.last is None:
            return np.asarray(self.last if self.total is None else self.total)
        return np.asarray(self.total + self.last)

    def close(self) -> None:
        """There will be no more samples."""
        self._keep()
        self.most = max(1, len(self.counts))
        self.contrasts.shorten(len(self.ratios))
        self._spare = None

    @property
    def rows(self) -> Coded:
        """What all groups are combinations of."""
        assert self.total is not None
        return Coded(self.total, self.contrasts)

    @property
    def basis(self) -> Array | None:
        """As which combinations of the rows, ``(G, G)``."""
        return group_rows(self.ratios)

    def _keep(self) -> None:
        """Turn the open group into its contrast, and add it to the sum of all."""
        part, self.last = self.last, None
        if part is None:
            return
        if self.total is None:
            self.total = part
            return
        place, whole = len(self.ratios), sum(self.worths)
        ratio = self.worths[-1] / whole if whole > 0 else 0.0
        self.ratios.append(ratio)
        kind = np.result_type(self.total, part)
        self.total, part = self.total.astype(kind, copy=False), part.astype(kind, copy=False)
        own, total, blocks = part.reshape(-1), self.total.reshape(-1), blocks_of(self.dims)
        more = get_blas_funcs("axpy", dtype=own.dtype)

        def turn(block: int) -> None:
            some = blocks[block]
            total[some] += own[some]
            more(total[some], own[some], a=-ratio)  # in place
            if self.whitening is None:
                self.contrasts.put_block(place, block, own[some])

        share(turn, range(len(blocks)))
        if self.whitening is not None:
            self.contrasts.put(place, np.ascontiguousarray(self.whitening.tensor(part)))
        self._spare = part if part.dtype == np.float32 else None


def _plus(sums: NDArray[Any], part: NDArray[Any]) -> NDArray[Any]:
    """The sum of both, in place where that loses nothing."""
    return np.asarray(np.add(sums, part, out=sums if np.result_type(sums, part) == sums.dtype else None))
