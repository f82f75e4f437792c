"""Fits of views: of stored ones in several passes, of those that pass by once as they come."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from tpca.engines import Engine
from tpca.errors import SolverError
from tpca.integers import check_integer
from tpca.solvers.base import Callback, check_memory, check_options, check_positive, check_share, option
from tpca.solvers.loop import Feed
from tpca.solvers.moments.relations import Relations
from tpca.solvers.moments.solver import Moment, MomentSolver
from tpca.solvers.moments.views_recovery import ViewsRecovery
from tpca.solvers.race.solver import RaceSolver
from tpca.solvers.race.strategies.flow import state_floats
from tpca.solvers.recovery import Component
from tpca.streams.views import ViewsStream
from tpca.streams.whitening import Clipper, FirstRows, RunningMoments, ViewCovariances, WhitenedViews, Whitener, clipped
from tpca.tensors.blocks import Array, Partition
from tpca.tensors.views import ViewsBatch

MEMORY = 256e6
RACE_MEMORY, RACE_COLUMNS = 64e6, 8  # a race on views is given room for so many columns of the flow, if that is less
# Rows from which one-pass data learn their whitening: this many, and this many times the columns of the widest view.
FIRST_ROWS, ROWS_PER_COLUMN = 500, 10


def check_shrinkage(name: str, value: float | str) -> float | str:
    """A share, or ``"auto"``."""
    if value != "auto" and (isinstance(value, str) or not 0 <= value <= 1):
        raise SolverError(f"{name} must lie between 0 and 1, or be 'auto', got {value!r}.")
    return value


@dataclass(kw_only=True, frozen=True)
class ViewsOptions:
    """What a fit of views is asked for."""

    n_components: int = option(1, check_integer)
    shrinkage: float | str = option("auto", check_shrinkage)
    center: bool = option(True)
    clip: float | None = option(None, check_positive)
    validation_fraction: float = option(0.2, check_share)
    confidence: float = option(0.95, check_share)
    refit: bool = option(True)
    memory_limit: Any = option(None, check_memory)

    def __post_init__(self) -> None:
        check_options(self)

    def whiteners(self, moments: Sequence[RunningMoments]) -> list[Whitener]:
        """The whitening of every view."""
        return [Whitener.learn(m, self.shrinkage, self.center, i) for i, m in enumerate(moments)]


def fit_stored(
    stream: ViewsStream,
    reader: Callable[[ViewsStream], Engine],
    asked: ViewsOptions,
    seed: int,
    callbacks: Sequence[Callback] = (),
) -> ViewsRecovery:
    """Learn the whitening in one pass, then the components in some more; ``reader`` makes an engine over views."""
    engine, clippers = reader(stream), None
    if asked.clip is not None:
        assert stream.layout is not None
        clippers = engine.reduce(FirstRows(asked.clip), int(stream.layout.bounds[1])).clippers
        engine.rewind()
    seen = engine.reduce(ViewCovariances(stream.dims, clippers))
    n, n_skipped, whiteners = seen.n, engine.n_skipped, asked.whiteners(seen.moments)
    names = ("n_components", "validation_fraction", "clip", "confidence", "refit")
    options = {name: vars(asked)[name] for name in names}
    solver = MomentSolver(random_state=seed, memory_limit=views_memory(asked), callbacks=callbacks, **options)
    found = solver.run(reader(WhitenedViews(stream, whiteners, clippers)))
    proven = sum(m.p_value <= 1 - asked.confidence for m in found)
    recovery = ViewsRecovery.of(whiteners, found, proven, n, n_skipped)
    relations = Relations(recovery.weights, [whitener.mean for whitener in whiteners], clippers)
    if not proven:
        return dataclasses.replace(recovery, relations=relations)
    engine.rewind()
    return recovery.with_relations(engine.reduce(relations))


def views_memory(asked: ViewsOptions) -> float:
    """Bytes of whitened rows that are kept between passes."""
    return MEMORY if asked.memory_limit is None else float(asked.memory_limit)


class PassingViews:
    """Views that pass by once: the whitening is learnt from the first rows, then they race, and all that follow."""

    def __init__(
        self, dims: tuple[int, ...], asked: ViewsOptions, seed: int, callbacks: Sequence[Callback] = ()
    ) -> None:
        self.dims = dims
        self.n = self.n_skipped = 0
        self._asked, self._seed, self._callbacks = asked, seed, callbacks
        self._waiting: list[ViewsBatch] = []
        self._race: _Race | None = None

    def pour(self, batch: ViewsBatch) -> None:
        """Take some more rows."""
        self.n += len(batch)
        self.n_skipped += batch.dropped
        if self._race is not None:
            self._race.pour(batch)
            return
        self._waiting.append(batch)
        if self.n >= max(FIRST_ROWS, ROWS_PER_COLUMN * max(self.dims)):
            self._race, self._waiting = self._start(self._waiting), []

    def recovery(self) -> ViewsRecovery:
        """What is known now; more may follow."""
        race = self._race if self._race is not None else self._start(copy.copy(self._waiting))
        found, proven = race.moments(self._asked.confidence)
        return ViewsRecovery.of(race.whiteners, found, proven, self.n, self.n_skipped)

    def _start(self, waiting: Sequence[ViewsBatch]) -> _Race:
        """Learn the whitening from the rows that waited, and race on them and all that follow."""
        asked = self._asked
        rows = [np.concatenate(view) for view in zip(*(batch.views for batch in waiting), strict=True)]
        clippers = None if asked.clip is None else [Clipper(view, asked.clip) for view in rows]
        moments = [RunningMoments(width) for width in self.dims]
        _add(moments, clipped(rows, clippers))
        solver = RaceSolver(
            random_state=self._seed,
            memory_limit=_race_memory(self.dims) if asked.memory_limit is None else asked.memory_limit,
            n_components=asked.n_components,
            confidence=asked.confidence,
            whiten=None,  # they are
            callbacks=self._callbacks,
        )
        race = _Race(solver, self.dims, asked.whiteners(moments), clippers)
        for batch in waiting:
            race.pour(batch)
        return race


class _Race:
    """One-pass views, whitened and fed to a race."""

    def __init__(
        self, solver: RaceSolver, dims: tuple[int, ...], whiteners: list[Whitener], clippers: list[Clipper] | None
    ) -> None:
        self.whiteners, self._clippers = whiteners, clippers
        self._feed = Feed(solver.start, dims)
        self._moments = [RunningMoments(width) for width in dims]

    def pour(self, batch: ViewsBatch) -> None:
        rows = clipped(batch.views, self._clippers)
        white = [whitener(view) for whitener, view in zip(self.whiteners, rows, strict=True)]
        _add(self._moments, white)
        self._feed.pour(ViewsBatch(white))

    def moments(self, confidence: float) -> tuple[list[Moment], int]:
        """What the race found, or its guess, and how many of them are proven."""
        recovery = self._feed.recovery()
        if not recovery.components:
            return [Moment(recovery.vectors, math.nan, math.nan, math.nan, 1.0)], 0
        found = [_as_moment(c, confidence, self._spread(c.vectors)) for c in recovery.components]
        return found, len(found)

    def _spread(self, vectors: Sequence[Array]) -> float:
        """Product of the standard deviations of the scores over all rows; the whitening knew only the first ones."""
        pairs = zip(self._moments, vectors, strict=True)
        return math.prod(math.sqrt(v @ moments.covariance() @ v) for moments, v in pairs)


def _race_memory(dims: tuple[int, ...]) -> float:
    """Enough for a search, little enough to be quick: rows are cheap, and more columns cost time."""
    return min(RACE_MEMORY, max(1e6, 8.0 * state_floats(Partition.halves(dims), RACE_COLUMNS)))


def _add(moments: Sequence[RunningMoments], rows: Sequence[Any]) -> None:
    for own, view in zip(moments, rows, strict=True):
        own.add(view)


def _as_moment(found: Component, confidence: float, spread: float) -> Moment:
    """What a race found, in the words of moments; its strength was measured on rows that its vectors had not seen.

    Divided by the spread of the scores, it is their correlation.
    """
    assert found.strength_interval is not None
    _, high = found.strength_interval
    error = (high - found.strength) / float(ndtri(0.5 + confidence / 2))
    p_value = float(ndtr(-found.strength / error)) if error > 0 else 0.0
    return Moment(found.vectors, found.strength, found.strength / spread, error / spread, p_value)
