"""Rows of views in two parts: those to learn from, and those held out to judge by.

Passes over them go through an engine: rows that fit the memory are kept between passes, in this process or by the
workers; others are read, and whitened, again on every pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from tpca.engines import Engine, LocalEngine
from tpca.randomness import generator
from tpca.streams.views import ViewsStream
from tpca.streams.whitening import KeptViews
from tpca.tensors import Accumulator, ViewsBatch

A = TypeVar("A", bound=Accumulator)


class SplitBatch(ViewsBatch):
    """Rows put in order: the first ``learnt`` of them are to learn from, the others are held out."""

    def __init__(self, batch: ViewsBatch, aside: Any) -> None:
        order = np.argsort(aside, kind="stable")
        super().__init__([view[order] for view in batch.views], None, batch.first, batch.dropped)
        self.learnt = int(np.count_nonzero(~aside))


@dataclass(frozen=True)
class Split:
    """Rows in two parts, by chance, the same every time."""

    share: float
    random_state: int

    def __call__(self, batch: ViewsBatch) -> SplitBatch:
        """The rows of a batch, put in order."""
        if isinstance(batch, SplitBatch):
            return batch
        return SplitBatch(
            batch, generator(self.random_state, f"held out {batch.first}").random(len(batch)) < self.share
        )

    def part(self, batch: ViewsBatch, part: str) -> list[ViewsBatch]:
        """The rows of a batch to learn from (``train``), to judge by (``held``), or both, one after the other."""
        rows = self(batch)
        kinds = {"train": rows[: rows.learnt], "held": rows[rows.learnt :]}
        return [piece for piece in kinds.values() if len(piece)] if part == "all" else [kinds[part]]


class OnPart(Accumulator):
    """Another accumulator, of one part of the rows only."""

    def __init__(self, inner: Any, split: Split, part: str) -> None:
        super().__init__(inner, split, part)
        self.inner, self._split, self._part = inner.fresh(), split, part

    def add(self, batch: ViewsBatch, at: int = 0) -> None:
        """Take the rows of a batch that belong to the part."""
        for piece in self._split.part(batch, self._part):
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
    """Whitened rows in two parts, kept here if they fit ``memory_limit``; workers keep what fits themselves."""

    def __init__(self, engine: Engine, validation_fraction: float, memory_limit: float, random_state: int) -> None:
        self._split = Split(validation_fraction, random_state)
        self.dims = engine.dims
        if isinstance(engine, LocalEngine) and isinstance(engine.stream, ViewsStream):
            stream = engine.stream
            item = np.dtype(stream.dtype).itemsize
            if stream.length is not None and stream.length * sum(stream.dims) * item <= memory_limit:
                engine = LocalEngine(KeptViews(stream, self._split))
        self._engine = engine
        self.train, self.held, self.all = (PartOfRows(self, part) for part in ("train", "held", "all"))

    def total(self, part: str, blank: A) -> A:
        """An accumulator of a part of the rows."""
        self._engine.rewind()
        inner: A = self._engine.reduce(OnPart(blank, self._split, part)).inner
        return inner


@dataclass(frozen=True)
class PartOfRows:
    """Rows to learn from (``train``), to judge by (``held``), or both (``all``)."""

    rows: Rows
    part: str

    def total(self, blank: A) -> A:
        """An accumulator of these rows."""
        return self.rows.total(self.part, blank)
