"""Which samples make a block: neighbours, as many as hold enough contrast; groups; or samples that are dealt.

*Neighbours.*  A block ends with the sample that brings its sum of squares of y to what m samples have on average, so
that all blocks say about equally much; of y in random order it has about m samples, of a rare label more.  A block of a
given length ends with its last sample.

*Dealt.*  Where y is sorted, neighbours hardly differ in it.  Samples that can be read in any order are then dealt like
cards: a window is cut into m parts of equal length, and of these one sample each comes next, again and again.

*Even.*  Where more than two labels are sorted, every block gets its part of each: the samples of a label, in their
order, are cut into as many parts as there are blocks, and block b has part b of all labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from tpca.tensors.blocks import Array

MANY, FEW = 256, 16  # blocks that are enough for anything, and that there should be in any case
MIN_BLOCK, MAX_BLOCK = 8, 64  # samples of a block for every degree of freedom that it loses; of 8, an eighth is lost
PER_LABEL = 4  # samples of each of more than two labels in a block, where there are enough for that
ENOUGH = 8  # blocks that do for a test, where there are no more with all labels
UNKNOWN = 16  # the same where nobody knows how many samples there will be

Places = NDArray[np.int64]


def block_length(n: int | None, freedom: int, labels: int = 0) -> int:
    """Samples of a block, each of which loses ``freedom`` degrees: as many as leave enough blocks.

    Of more than two ``labels`` it should have some samples of each.
    """
    if n is None:
        return UNKNOWN * freedom
    long = min(max(n // MANY, MIN_BLOCK * freedom), MAX_BLOCK * freedom)
    return max(1 + freedom, labels, min(max(long, PER_LABEL * labels), n // FEW))


class Contrast:
    """How much the covariates vary within the block at hand: weighted sums of squares around their means.

    A block ends when every covariate has its ``target``, or with sample number ``length``, whichever is given.
    """

    def __init__(self, targets: Sequence[float] | None, length: int | None) -> None:
        self.targets, self.length = targets, length
        self.restart()

    def restart(self) -> None:
        """A new block begins."""
        self._count, self._weight = 0, 0.0
        self._means: list[float] = [0.0] * len(self.targets or ())
        self._squares: list[float] = [0.0] * len(self.targets or ())

    def add(self, row: Iterable[float], weight: float) -> bool:
        """Take a sample; whether the block ends with it, and the next begins."""
        self._count += 1
        ends = self.length is not None and self._count >= self.length
        if self.targets is not None and weight > 0:
            before, self._weight = self._weight, self._weight + weight
            for j, value in enumerate(row):
                step = value - self._means[j]
                self._means[j] += step * weight / self._weight
                self._squares[j] += step * step * before * weight / self._weight
            ends = all(s >= target for s, target in zip(self._squares, self.targets, strict=True))
        if ends:
            self.restart()
        return ends


def contrast_targets(columns: Array, weight: Array, length: int) -> list[float]:
    """Sums of squares that ``length`` samples have on average around their own mean."""
    centred = columns - np.average(columns, axis=0, weights=weight)
    return [float(s) for s in weight @ centred**2 * ((length - 1) / max(1, len(weight)))]


def neighbours(
    columns: Array, weight: Array, targets: Sequence[float] | None, length: int | None, rest: bool = True
) -> Places:
    """Edges of blocks of neighbours, by the rule of :class:`Contrast`.

    What is left at the end is a block, too, or, without ``rest``, belongs to the last one.
    """
    rule = Contrast(targets, length)
    rows, weights = columns.tolist(), weight.tolist()
    ends = [i + 1 for i, (row, w) in enumerate(zip(rows, weights, strict=True)) if rule.add(row, w)]
    if ends and not rest:
        ends[-1] = len(rows)
    return np.array([0, *ends, *([len(rows)] if not ends or ends[-1] < len(rows) else [])], dtype=np.int64)


def dealt(numbers: NDArray[np.intp], length: int, window: int) -> NDArray[np.intp]:
    """An order in which ``length`` samples in a row come from all parts of their window, one of each.

    Rows that follow each other go on where those before were in every part: a few runs of neighbours are read.
    """
    parts: list[NDArray[np.intp]] = []
    for start in range(0, len(numbers), window):
        own = numbers[start : start + window]
        stride = -(-len(own) // length)
        parts += [own[j::stride] for j in range(stride)]
    return np.concatenate(parts)


def even(codes: NDArray[np.intp], length: int) -> tuple[NDArray[np.intp], Places]:
    """An order of the samples, and the edges of blocks in it that hold as much of one label as of any other block's.

    ``codes`` is the label of every sample; blocks have about ``length`` samples.
    """
    counts = np.bincount(codes)
    blocks = max(1, min(len(codes) // length, max(ENOUGH, int(counts[counts > 0].min()))))
    turn = np.argsort(codes, kind="stable")
    rank = np.empty_like(turn)
    rank[turn] = np.arange(len(codes)) - np.repeat(np.cumsum(counts) - counts, counts)
    number = (2 * rank + 1) * blocks // (2 * counts[codes])  # in the middle of its part, for labels with few samples
    order = np.argsort(number, kind="stable")
    edges = np.searchsorted(number[order], np.arange(blocks + 1))
    return order, np.unique(edges).astype(np.int64)
