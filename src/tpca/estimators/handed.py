"""What is told of samples and asked of them, and runs to which both are handed in."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tpca.engines import Data
from tpca.errors import SampleError, SolverError
from tpca.estimators.opening import HandedIn, check_labels
from tpca.estimators.units import in_units
from tpca.integers import check_integer
from tpca.solvers.base import Solver, StreamSolver
from tpca.solvers.loop import Feed
from tpca.solvers.options import TARGETS, parameters_of
from tpca.solvers.projecting import numbered
from tpca.solvers.recovery import Recovery
from tpca.streams import Stream
from tpca.streams.blocking import Contrast, block_length, contrast_targets
from tpca.streams.conditions import Conditions, read_conditions
from tpca.streams.plan import Plan
from tpca.streams.rows import Rows, origin_of, raw_batches
from tpca.streams.running import RunningBlocks
from tpca.tensors.blocks import Array

MakeSolver = Callable[[Any, dict[str, Any]], Solver]


def for_derived(data: Data, center_modes: Any, project: Any, make: MakeSolver) -> MakeSolver:
    """Makes the solver for samples derived from ``data``, whose modes come last and may have lost their names."""

    def solver(derived: Data, known: dict[str, Any]) -> Solver:
        lead = len(derived.dims) - len(data.dims)
        return make(derived, known | numbered(center_modes, project, data.dims, data.labels, lead))

    return solver


@dataclass(frozen=True)
class EffectOptions:
    """Options of an estimator that say how samples are put into blocks, or how many there may be."""

    target: str
    block_size: int | None
    groups: int | None
    max_samples: int | None
    checkpoint: str | os.PathLike[str] | None

    def __post_init__(self) -> None:
        if self.target not in TARGETS:
            raise SolverError(f"target must be 'mean', 'effect' or 'variance', got {self.target!r}.")
        if self.block_size is None:
            return
        if self.target != "effect":
            raise SolverError(f"block_size={self.block_size!r} means nothing to target={self.target!r}; leave it out.")
        check_integer("block_size", self.block_size, 2)

    def fixed(self, told: Conditions) -> int | None:
        """Samples of a block where that is given; those that belong together stay so."""
        if told.covariates is None:
            return 1
        together = self.groups or 1
        block = self.block_size or (None if together == 1 else block_length(len(told), told.freedom))
        return None if block is None else -(-block // together) * together

    def rule(self, told: Conditions, n: int | None) -> Contrast | None:
        """When a block of samples that come one after the other ends; ``None`` where groups are the blocks."""
        if told.groups is not None:
            return None
        fixed = self.fixed(told)
        if fixed is not None or told.covariates is None:
            return Contrast(None, fixed)
        targets = contrast_targets(told.covariates.columns, told.weight, block_length(n, told.freedom))
        return Contrast([target if target > 0 else math.inf for target in targets], None)

    def for_solver(self, told: Conditions, per_block: float, place: str) -> dict[str, Any]:
        """Options of the solver, which counts derived samples; every question keeps its own checkpoints."""
        if told.groups is not None and self.groups is not None:
            raise SolverError(
                f"groups={self.groups!r} of the estimator and the groups of fit say two things; leave one of them out."
            )
        known: dict[str, Any] = {} if told.covariates is None and told.groups is None else {"groups": None}
        if self.groups is not None and told.covariates is not None:
            known["groups"] = 1  # what belongs together is in one block
        if self.max_samples is not None:
            check_integer("max_samples", self.max_samples)
            known["max_samples"] = max(1, math.floor(self.max_samples / per_block))
        if self.checkpoint is not None and place:
            known["checkpoint"] = os.path.join(self.checkpoint, place)
        return known


@dataclass(frozen=True)
class EffectFit:
    """One question: what was found, and of more than two labels how the amplitudes of labels follow from a vector."""

    effect: str
    recovery: Recovery
    amplitudes: Array | None = None
    efficiency: float = math.nan
    labels: tuple[str, ...] = ()


def labels_of(told: Conditions) -> tuple[str, ...]:
    """Labels, where there are some."""
    return () if told.covariates is None else told.covariates.labels


class HandedEffects:
    """Samples that are handed in with what is known of them; a run for every question, fed with derived samples."""

    def __init__(
        self,
        first: Stream,
        told: Conditions,
        asked: EffectOptions,
        make_solver: MakeSolver,
        known: list[Plan] | None = None,
    ) -> None:
        self.dims, self.axes, dims = first.dims, first.labels, first.dims
        self.labels = labels_of(told)
        self._names = ("",) if told.covariates is None else told.covariates.questions
        if told.covariates is not None and told.covariates.stacked:
            raise SampleError(
                f"y has {len(self.labels)} labels, and partial_fit takes two, or numbers; use fit, or give columns of "
                "0 and 1, each a question of its own."
            )
        rule = asked.rule(told, None if known is None else len(told))
        per_block = block_length(None, told.freedom) if rule is None or rule.length is None else rule.length
        self._origin = origin_of(told)
        scales = [plan.scale for plan in known] if known else _first_scales(told, per_block)
        self._running = RunningBlocks(dims, rule, scales, told.covariates is None, first.partial)
        self.n_samples = self._peak = 0
        self._feeds = []
        for _ in self._names:
            solver = make_solver(_Unread(first), asked.for_solver(told, per_block, ""))
            if not isinstance(solver, StreamSolver):
                raise SolverError(f"partial_fit needs solver='race', 'mean' or 'auto', got {solver!r}; use fit.")
            self._feeds.append(Feed(solver.start, dims, self.axes, first.partial))

    def take(self, stream: Stream, told: Conditions) -> None:
        """The next samples and what is known of them."""
        if stream.dims != self.dims:
            raise SampleError(
                f"samples must have shape {self.dims} as in the first batch, got {stream.dims}; call fit to start "
                "afresh."
            )
        check_labels(self.axes, stream.labels, "as in the first batch")
        rows, seen = Rows.of(told, self._origin), 0
        for batch, kept, read in raw_batches(stream):
            own = rows[seen : seen + read]
            seen += read
            for found in self._running.take(batch, own if kept is None else own[kept]):
                for feed, one in zip(self._feeds, found, strict=True):
                    if one is not None:
                        feed.pour(one)
            self._peak = max(self._peak, batch.nbytes + self._running.nbytes)
        if seen != len(rows):
            raise SampleError(f"y has {len(rows)} rows for {seen} samples; give a row for every sample, and no more.")
        self.n_samples += seen

    def fits(self) -> list[EffectFit]:
        """What is known so far, the block at hand included."""
        return [self._fit(j, name, feed) for j, (name, feed) in enumerate(zip(self._names, self._feeds, strict=True))]

    def _fit(self, j: int, name: str, feed: Feed) -> EffectFit:
        ending = self._running.copied()
        rest = ending.end()
        last = None if rest is None else rest[j]
        if not ending.blocks[j]:
            raise SampleError(
                f"{name or 'the weight'} was the same within all {ending.idle} blocks so far: nothing can follow it; "
                "mix the conditions where samples are made, set a larger block_size, or use fit with an array."
            )
        recovery = feed.recovery(last)
        own = in_units(recovery, name, float(ending.factors[j]), ending.scales[j], self.n_samples, 0, self.axes)
        return EffectFit(name, own, labels=self.labels)


def _first_scales(told: Conditions, per_block: int) -> list[float]:
    """A first guess at c of every question, from the first samples; strengths are put right by what c became."""
    if told.covariates is None:
        return [float(told.weight.mean())]
    spread = told.covariates.columns.var(axis=0) * per_block
    return [float(value) if value > 0 else 1.0 for value in spread]


class _Unread(Stream):
    """Derived samples that will be handed in, of which only the shape is known."""

    def __init__(self, first: Stream) -> None:
        self.dims, self.dtype, self.kind = first.dims, np.dtype(np.float64), "handed in"
        self.labels, self.nan_policy = first.labels, first.nan_policy


def effect_options(estimator: Any) -> EffectOptions:
    """Those of its options that say how samples are put into blocks, checked."""
    known = parameters_of(estimator)
    return EffectOptions(**{name: known[name] for name in EffectOptions.__annotations__})


def conditions(
    target: str,
    n: int | None,
    y: Any,
    nuisance: Any,
    sample_weight: Any,
    groups: Any,
    labels: tuple[str, ...] | None = None,
    part: bool = False,
) -> Conditions | None:
    """What is told, or ``None`` where there is nothing: ``y`` means nothing to the mean, nor to the variance.

    Of a ``part`` of a stream y may be constant; ``labels`` are those of the first part.
    """
    told = {"nuisance": nuisance, "sample_weight": sample_weight, "groups": groups}
    if target == "variance" and (given := [name for name, value in told.items() if value is not None]):
        raise SampleError(f"{given[0]} means nothing to target='variance'; leave it out, or use target='effect'.")
    if target != "effect" and nuisance is None and sample_weight is None and groups is None:
        return None
    return read_conditions(target, n, y, nuisance, sample_weight, groups, labels, part)


def hand_in(handed: HandedIn | HandedEffects, batches: Stream, X: Any, told: Conditions | None) -> None:
    """Hand samples to a run, with what is told of them, which must be the same sort of things every time."""
    if isinstance(handed, HandedIn):
        if told is not None:
            raise SampleError("the first samples came without sample_weight and groups, these have some; call fit.")
        handed.take(batches, X)
        return
    if told is None:
        raise SampleError("the first samples came with sample_weight or groups, these have none; give them every time.")
    handed.take(batches, told)
