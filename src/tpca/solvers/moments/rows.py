"""Rows of views in folds: one fold is held out to judge by, all others are to learn from, one fold after the other.

The fold of a row depends on what is in it (:mod:`tpca.streams.places`): neither on its place nor on any seed.

Passes over them go through an engine: rows that fit the memory are kept between passes, in this process or by the
workers; others are read, and whitened, again on every pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tpca.engines import Engine, LocalEngine
from tpca.streams.places import places
from tpca.streams.views import ViewsStream
from tpca.streams.whitening import KeptViews
from tpca.tensors import Accumulator, ViewsBatch

A = TypeVar("A", bound=Accumulator)
MOST_FOLDS = 10


class SplitBatch(ViewsBatch):
    """Rows put in the order of their folds: those of fold f are from ``edges[f]`` to ``edges[f + 1]``."""

    def __init__(self, batch: ViewsBatch, folds: NDArray[Any], count: int) -> None:
        order = np.argsort(folds, kind="stable")
        super().__init__([view[order] for view in batch.views], None, batch.first, batch.dropped)
        self.edges = np.searchsorted(folds[order], np.arange(count + 1))


@dataclass(frozen=True)
class Split:
    """Folds of a ``share`` of the rows each, ``count`` of them; what is beyond is never held out."""

    share: float
    count: int = 1

    @classmethod
    def into(cls, share: float, single: bool = False) -> Split:
        """As many folds of a share as there can be, or a single one."""
        return cls(share, 1 if single else max(1, min(MOST_FOLDS, int(1 / share + 1e-9))))

    def __call__(self, batch: ViewsBatch) -> SplitBatch:
        """The rows of a batch, put in order."""
        if isinstance(batch, SplitBatch):
            return batch
        folds = np.minimum(places(batch) / self.share, self.count).astype(int)
        return SplitBatch(batch, folds, self.count)

    def part(self, batch: ViewsBatch, part: str, fold: int = 0) -> list[ViewsBatch]:
        """Rows of a batch: those to learn from (``train``) or to judge by (``held``) in a fold, or all there are."""
        rows = self(batch)
        first, stop = (int(edge) for edge in rows.edges[fold : fold + 2])
        kinds: dict[str, list[ViewsBatch]] = {
            "train": [rows[:first], rows[stop:]],
            "held": [rows[first:stop]],
            "all": [rows],
        }
        return [piece for piece in kinds[part] if len(piece)]


class OnPart(Accumulator):
    """Another accumulator, of one part of the rows only."""

    def __init__(self, inner: Any, split: Split, part: str, fold: int = 0) -> None:
        super().__init__(inner, split, part, fold)
        self.inner, self._split, self._part, self._fold = inner.fresh(), split, part, fold

    def add(self, batch: ViewsBatch, at: int = 0) -> None:
        """Take the rows of a batch that belong to the part."""
        for piece in self._split.part(batch, self._part, self._fold):
            self.inner.add(piece, at)
        self.n += len(batch)

    def merge(self, other: OnPart) -> None:
        """Take what another has."""
        self.inner.merge(other.inner)
        self.n += other.n

    def close(self) -> None:
        """As the inner one."""
        self.inner.close()

    def finish(self) -> None:
        """As the inner one, if there were rows."""
        if self.inner.n:
            self.inner.finish()

    def forget(self) -> None:
        """Leave the question behind."""
        super().forget()
        self.inner.forget()

    def recall(self, blank: OnPart) -> None:
        """Take the question up again."""
        super().recall(blank)
        self.inner.recall(blank.inner)


class Rows:
    """Whitened rows in folds, kept here if they fit ``memory_limit``; workers keep what fits themselves.

    ``after_pass`` is told the rows of every pass.
    """

    def __init__(
        self, engine: Engine, split: Split, memory_limit: float, after_pass: Callable[[int], None] | None = None
    ) -> None:
        self.split, self.dims, self._after_pass = split, engine.dims, after_pass
        if isinstance(engine, LocalEngine) and isinstance(engine.stream, ViewsStream):
            stream = engine.stream
            item = np.dtype(stream.dtype).itemsize
            if stream.length is not None and stream.length * sum(stream.dims) * item <= memory_limit:
                engine = LocalEngine(KeptViews(stream, split))
        self._engine = engine
        self.all = PartOfRows(self, "all", 0)

    def train(self, fold: int) -> PartOfRows:
        """Rows to learn from while a fold is held out."""
        return PartOfRows(self, "train", fold)

    def held(self, fold: int) -> PartOfRows:
        """Rows of a fold, to judge by."""
        return PartOfRows(self, "held", fold)

    def total(self, part: str, fold: int, blank: A) -> A:
        """An accumulator of a part of the rows."""
        self._engine.rewind()
        whole = self._engine.reduce(OnPart(blank, self.split, part, fold))
        if self._after_pass is not None:
            self._after_pass(whole.n)
        inner: A = whole.inner
        return inner


@dataclass(frozen=True)
class PartOfRows:
    """Rows to learn from (``train``) or to judge by (``held``) in a fold, or ``all``."""

    rows: Rows
    part: str
    fold: int

    def total(self, blank: A) -> A:
        """An accumulator of these rows."""
        return self.rows.total(self.part, self.fold, blank)
