"""Rows of views in folds: a climb may leave one fold out, whose rows then judge what it came to.

The fold of a row depends on what is in it (:mod:`tpca.streams.places`): neither on its place nor on any seed.  All
folds are left out in turn by climbs that go in step, so that one pass over the rows serves all of them.

Passes go through an engine: rows that fit the memory are kept between passes, in this process or by the workers;
others are read, and whitened, again on every pass.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tpca.engines import Engine, LocalEngine
from tpca.streams.places import places
from tpca.streams.vectors import KeptVectors
from tpca.streams.views import ViewsStream
from tpca.tensors import Accumulator, ViewsBatch
from tpca.tensors.blocks import Array

A = TypeVar("A", bound=Accumulator)
MAX_FOLDS = 10


class SplitBatch(ViewsBatch):
    """Rows put in the order of their folds: those of fold f are from ``edges[f]`` to ``edges[f + 1]``.

    ``room`` is what scores may take up for every row of a batch that is kept.
    """

    def __init__(self, batch: ViewsBatch, folds: NDArray[Any], count: int, room: float = 0.0) -> None:
        order = np.argsort(folds, kind="stable")
        super().__init__([view[order] for view in batch.views], None, batch.first, batch.dropped)
        self.edges = np.searchsorted(folds[order], np.arange(count + 1))
        self._room, self._known = room, dict[int, tuple[Array, NDArray[Any]]]()

    def along(self, view: int, vectors: Array) -> NDArray[Any]:
        """Scores ``(n, c)`` of a view; those of the last time are kept: of all modes only one has changed since."""
        known = self._known.get(view)
        if known is None or known[0] is not vectors:
            rows = self.views[view]
            known = vectors, rows @ vectors.T.astype(rows.dtype)
            if len(vectors) * len(self.views) * rows.itemsize <= self._room:
                self._known[view] = known
        return known[1]

    def forget(self, view: int) -> None:
        """Keep no scores of a view whose vectors are about to change."""
        self._known.pop(view, None)

    def held(self) -> list[slice]:
        """The rows of every fold."""
        return [slice(int(first), int(stop)) for first, stop in itertools.pairwise(self.edges)]


@dataclass(frozen=True)
class Split:
    """Folds of a ``share`` of the rows each, ``count`` of them; what is beyond is never held out."""

    share: float
    count: int = 1

    @classmethod
    def into(cls, share: float, single: bool = False) -> Split:
        """As many folds of a share as there can be, or a single one."""
        return cls(share, 1 if single else max(1, min(MAX_FOLDS, int(1 / share + 1e-9))))

    def __call__(self, batch: ViewsBatch, room: float = 0.0) -> SplitBatch:
        """The rows of a batch, put in order."""
        if isinstance(batch, SplitBatch):
            return batch
        folds = np.minimum(places(batch) / self.share, self.count).astype(int)
        return SplitBatch(batch, folds, self.count, room)


class InFolds(Accumulator):
    """Another accumulator, of rows put in the order of their folds."""

    def __init__(self, inner: Any, split: Split) -> None:
        super().__init__(inner, split)
        self.inner, self._split = inner.fresh(), split

    def add(self, batch: ViewsBatch, at: int = 0) -> None:
        """Put the rows of a batch in order."""
        self.inner.add(self._split(batch), at)
        self.n += len(batch)

    def merge(self, other: InFolds) -> None:
        """Take what another has."""
        self.inner.merge(other.inner)
        self.n += other.n

    def close(self) -> None:
        """As the inner one."""
        self.inner.close()

    def finish(self) -> None:
        """As the inner one."""
        self.inner.finish()

    def forget(self) -> None:
        """Leave the question behind."""
        super().forget()
        self.inner.forget()

    def recall(self, blank: InFolds) -> None:
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
            row = sum(stream.dims) * np.dtype(stream.dtype).itemsize
            if stream.length is not None and stream.length * row <= memory_limit:
                # Scores take up what rows leave.
                room = memory_limit / max(stream.length, 1) - row
                engine = LocalEngine(KeptVectors(stream, functools.partial(split, room=room)))
        self._engine = engine

    def total(self, blank: A) -> A:
        """An accumulator of all rows."""
        self._engine.rewind()
        whole = self._engine.reduce(InFolds(blank, self.split))
        if self._after_pass is not None:
            self._after_pass(whole.n)
        inner: A = whole.inner
        return inner
