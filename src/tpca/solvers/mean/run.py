"""One fit of the mean at work, as a state machine: add samples up in groups; at their end, fit once and judge.

The state is G sums of samples (:mod:`tpca.solvers.mean.test` says why several); the next round always goes to the
group that has the fewest.  When the samples end, the sums become the mean and the contrasts, in place.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from tpca.engines import Data
from tpca.errors import SolverError
from tpca.randomness import generator
from tpca.solvers.loop import Ask
from tpca.solvers.mean.components import find_components
from tpca.solvers.mean.fit import best_fits, gradients, hosvd_fit, unfoldings
from tpca.solvers.mean.memory import groups_within, mean_bytes
from tpca.solvers.mean.symmetric import best_symmetric, can_be_symmetric
from tpca.solvers.mean.symmetric_test import MARGIN, SymmetricFit, read_symmetric, symmetric_reach, symmetry_rejected
from tpca.solvers.mean.test import (
    Law,
    Local,
    Null,
    contrasts,
    plain_threshold,
    read,
    strength_interval,
    strength_limit,
)
from tpca.solvers.memory import default_memory
from tpca.solvers.overflow import largest, refuse_beyond
from tpca.solvers.race.stopping import POOR
from tpca.solvers.rank_one import oriented, top_pairs, unfold
from tpca.solvers.recovery import Claim, Recovery, StopReason, flaws
from tpca.tensors import RankOne, TensorSum
from tpca.tensors.blocks import Array

if TYPE_CHECKING:
    from tpca.solvers.mean.solver import MeanSolver

# A round is this share of the samples so far: small against a group, so that all groups are about equal.
GROWTH = 1 / 32
# Where the number of samples is known, every group gets so many rounds, in turns: what drifts is in all of them alike.
TURNS = 8
# Where a sum of samples is larger than LARGE, all are added up multiplied by SMALL.  Sums below MIN_SUM count as that.
LARGE, SMALL, MIN_SUM = 2.0**100, 2.0**-128, 2.0**-1000
COLUMNS = 2**12  # entries of the sums that are turned into contrasts at a time


class MeanRun:
    """The sums of the samples, in groups."""

    STATE = ("sums", "counts", "unit", "scale", "ended", "gathered", "history")

    def __init__(self, solver: MeanSolver, data: Data) -> None:
        if data.endless and solver.max_samples is None:
            raise SolverError(
                "MeanSolver reads to the end of the samples, and these have none; give max_samples, or use RaceSolver."
            )
        self.solver, self.data = solver, data
        budget = default_memory(data.dims) if solver.memory_limit is None else solver.memory_limit
        groups = groups_within(data.dims, budget)
        self.sums = np.zeros((groups, *data.dims))
        self.counts = [0] * groups
        self.unit: float | None = None  # what samples are multiplied by, so that no sum overflows
        self._asked = 1.0  # what those asked for are
        self.scale = 1.0  # after the end: what the sums were divided by
        self.ended, self.gathered = False, False
        self.history: list[dict[str, Any]] = []
        self._recovery: Recovery | None = None
        self._reach: dict[str, Any] = {}  # of the noise, for the record of the first fit

    @property
    def samples(self) -> int:
        """Samples so far."""
        return sum(self.counts)

    def ask(self) -> Ask[TensorSum] | None:
        """The sum of the next few samples; ``None`` when they have ended."""
        size = max(1, int(GROWTH * self.samples))
        limits = [limit for limit in (self.data.length, self.solver.max_samples) if limit is not None]
        if self.data.length is not None:
            size = max(1, min(limits) // (TURNS * len(self.counts)))
        if self.solver.max_samples is not None:
            size = min(size, self.solver.max_samples - self.samples)
        if self.ended or size < 1:
            self.close()
            return None
        # Before their size is known, samples are asked for so small that not even the sum of the largest overflows.
        self._asked = 2.0 ** -size.bit_length() if self.unit is None else self.unit
        return Ask(TensorSum(self._asked), size)

    def tell(self, part: TensorSum) -> None:
        """Add the samples to the smallest group."""
        if part.total is None:
            self.close()
            return
        group = self.counts.index(min(self.counts))
        self._choose_unit(largest((part.total,)), part.n)
        self.sums[group] += part.total.astype(np.float64) * ((self.unit or 1.0) / self._asked)
        self.counts[group] += part.n
        self._record({"phase": "average", "component": 0, "found": False}, None)

    def _choose_unit(self, size: float, n: int) -> None:
        """One, as long as all is well within the range of floats; powers of two change no bits."""
        refuse_beyond(sys.float_info.max, size, self._asked, self.samples, n)
        if size > 0:
            unit = SMALL if size / self._asked > LARGE or self.unit == SMALL else 1.0
            if self.unit is not None and unit != self.unit:
                self.sums *= unit
            self.unit = unit

    def close(self) -> None:
        """There will be no more samples."""
        self.ended = True
        if not self.gathered:
            self._gather()

    def recovery(self) -> Recovery:
        """The fit of the mean, if the contrasts do not reach as far; worked out once."""
        if self._recovery is None:
            assert self.gathered, "there may be more samples"
            self._recovery = self._fit()
        return self._recovery

    def state(self) -> dict[str, Any]:
        """All that the next step needs."""
        return {name: getattr(self, name) for name in self.STATE}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        for name in self.STATE:
            setattr(self, name, state[name])

    def silent_copy(self) -> MeanRun:
        """A copy that calls nobody back."""
        solver = copy.copy(self.solver)
        solver.callbacks = ()
        twin = copy.copy(self)
        twin.solver = solver
        twin.restore(copy.deepcopy(self.state()))
        return twin

    def _gather(self) -> None:
        """Turn the sums into √N times the mean and J contrasts, of about unit size so that no square overflows."""
        self.gathered = True
        groups = len(self.counts)
        few = 2 ** int(math.log2(max(1, min(self.samples, groups))))
        for group in range(few, groups):  # with fewer samples than groups
            self.sums[group % few] += self.sums[group]
            self.counts[group % few] += self.counts[group]
        self.counts = self.counts[:few]
        self.scale = max(largest((self.sums,)), MIN_SUM) if self.sums.any() else 1.0
        turned = contrasts(self.counts) / np.sqrt(self.counts) / self.scale if self.samples else np.eye(few)
        self.sums = self.sums[:few] if few == groups else self.sums[:few].copy()
        flat = self.sums.reshape(few, -1)
        for some in range(0, flat.shape[1], COLUMNS):
            flat[:, some : some + COLUMNS] = turned @ flat[:, some : some + COLUMNS]

    def _fit(self) -> Recovery:
        plain = self._plain_to_see()
        return self._look_closely() if plain is None else plain

    def _plain_to_see(self) -> Recovery | None:
        """The fit from one spectral start, if it is so far beyond what noise can reach that no other would be better.

        Several components, and vectors that may be the same in all modes, take a closer look.
        """
        noise = self.sums[1:]
        if self.solver.n_components > 1 or not len(noise) or self.sums.ndim == 3:
            return None
        sigma = math.sqrt(float(np.vdot(noise, noise)) / noise.size)
        vectors, value = hosvd_fit(self.sums[0])
        found, local = RankOne(value, vectors), self._local(vectors)
        needed = plain_threshold(self.data.dims, sigma, local, len(noise), self.solver.confidence)
        if found.strength <= needed:
            return None
        self._reach = {"noise_fits": [], "needed": self._in_units(needed)}
        if can_be_symmetric(self.data.dims):
            most = symmetric_reach(found.strength, vectors, max(sigma, local.sigma))
            if not symmetry_rejected(self.data.dims, value, most, max(sigma, local.sigma)):
                return None
        return self._conclude(found, max((sigma, noise.size), local.level), 0)

    def _look_closely(self) -> Recovery:
        """Fits from many starts, of the mean and of the contrasts."""
        rng = generator(self.solver.random_state, "mean")
        vectors, maxima = best_fits(self.sums, rng)
        noise = self.sums[1:]
        sigma = math.sqrt(float(np.vdot(noise, noise)) / noise.size) if noise.size else math.nan
        null = Null(sigma, noise.size, maxima[1:])
        first = RankOne(float(maxima[0]), tuple(v[0] for v in vectors))
        symmetric = self._symmetric(null, vectors)
        self._reach = self._noise_reach(null, self._local(first.vectors))
        if symmetric is not None and symmetric.proven(self.solver.confidence):
            other = self._proven(null, first) and symmetry_rejected(
                self.data.dims, first.strength, symmetric.value, symmetric.sigma
            )
            if not other:
                self._reach = self._noise_reach(symmetric.null, symmetric.local, MARGIN * symmetric.sigma)
                if (one := self._conclude(symmetric.component, symmetric.noise, 0, read_symmetric)) is not None:
                    return one
        found = find_components(self.sums[0], first, self.solver.n_components, rng, lambda c: self._proven(null, c))
        noises = [max((null.sigma, null.entries), self._local(c.vectors).level) for c in found]
        concluded = [self._conclude(c, level, i) for i, (c, level) in enumerate(zip(found, noises, strict=True))]
        each = [one for one in concluded if one is not None]
        if not each:
            likelier = symmetric is not None and symmetric.likelier(first.strength - null.mean)
            guess = symmetric.component if symmetric is not None and likelier else first
            return self._nothing(null, first.strength, guess, rng)
        first_one, *further = sorted(each, key=lambda r: -r.strength)
        return dataclasses.replace(first_one, further=tuple(further), history=self.history)

    def _symmetric(self, null: Null, fitted: list[Array]) -> SymmetricFit | None:
        """The fit with all vectors the same; only of one component, and only where they have the same length."""
        if self.solver.n_components > 1 or not null.entries or not can_be_symmetric(self.data.dims):
            return None
        return SymmetricFit.of(
            self.sums, null, best_symmetric(self.sums, fitted, generator(self.solver.random_state, "symmetric mean"))
        )

    def _noise_reach(self, null: Null, local: Local, margin: float = 0.0) -> dict[str, Any]:
        """What the same fit reaches on noise alone, and what it must exceed, in units of the data."""
        needed = null.threshold(local, self.solver.confidence) + margin
        return {"noise_fits": [self._in_units(float(z)) for z in null.maxima], "needed": self._in_units(needed)}

    def _in_units(self, value: float) -> float:
        """A length in the sums as one of a signal, in the units of the data."""
        return self.scale / math.sqrt(max(1, self.samples)) * value / (self.unit or 1.0)

    def _proven(self, null: Null, component: RankOne) -> bool:
        return component.strength > null.threshold(self._local(component.vectors), self.solver.confidence)

    def _local(self, vectors: tuple[Array, ...]) -> Local:
        """The noise next to some vectors, from the contrasts contracted with all of them but one."""
        noise = self.sums[1:]
        if not len(noise):
            return Local(math.nan, 0, math.nan)
        stacked = [np.broadcast_to(v, (len(noise), 1, len(v))) for v in vectors]
        across = [gradients(noise, stacked, mode)[:, 0] for mode in range(len(vectors))]
        squares, lengths = sum(float(np.sum(g**2)) for g in across), sum(len(v) for v in vectors)
        along = math.sqrt(float(np.mean((across[0] @ vectors[0]) ** 2)))
        entries = (lengths - len(vectors) + 1) * len(noise)
        return Local(math.sqrt(squares / (lengths * len(noise))), entries, along)

    def _conclude(self, component: RankOne, noise: tuple[float, int], number: int, law: Law = read) -> Recovery | None:
        """A component in the units of the data, in noise of a level that rests on so many entries.

        ``None`` if what comes out is impossible, since the noise is not what the law takes it for: it is withdrawn.
        """
        sigma, freedom = noise
        dims, confidence = self.data.dims, self.solver.confidence
        vectors, reading = oriented(component.vectors), law(dims, component.strength, sigma)
        interval = strength_interval(dims, component.strength, sigma, freedom, confidence, law)
        own = Claim(reading.strength, interval, reading.standard_errors(vectors))
        claim = own.converted(self._in_units)
        if own.flaw:
            known = {"phase": "withdrawn", "component": number, "found": False, "flaw": claim.flaw or own.flaw}
            self._record(known, component.vectors)
            return None
        record = {"phase": "fit", "component": number, "found": True, "strength": claim.strength}
        record |= {"strength_error": self._in_units(sigma), "error": reading.error, "symmetric": law is read_symmetric}
        record |= {"fit": self._in_units(component.strength), **(self._reach if number == 0 else {})}
        self._record(record, component.vectors)
        return self._recovery_of(vectors, self._why_ended(reading.error), claim)

    def _recovery_of(self, vectors: tuple[Array, ...], reason: StopReason, claim: Claim) -> Recovery:
        return Recovery(
            vectors=vectors,
            strength=claim.strength,
            n_samples=self.samples,
            state_bytes=self._state_bytes(),
            buffer_bytes=0,  # the engine's, added by whoever drives
            stop_reason=reason,
            standard_errors=claim.errors,
            strength_interval=claim.interval,
            history=self.history,
        )

    def _nothing(self, null: Null, value: float, best: RankOne, rng: np.random.Generator) -> Recovery:
        limit = math.inf
        if null.entries:
            matrix = unfold(self.sums[0], unfoldings(self.data.dims)[0])
            (norm,), _, _ = top_pairs(matrix, 1, rng)
            rows, columns = matrix.shape
            # The norm of an unfolding is no smaller with a signal, whatever became of a claim.  But where one was
            # withdrawn the noise is not white: its level is taken where it is strongest, next to and along the fit.
            local = self._local(best.vectors) if flaws(self.history) else Local(0.0, 0, 0.0)
            sigma = max(null.sigma, local.sigma, local.along)
            limit = self._in_units(strength_limit(rows, columns, float(norm), sigma, null.entries))
        reached = {"fit": self._in_units(value), **self._reach}
        self._record({"phase": "fit", "component": 0, "found": False, **reached}, best.vectors)
        return self._recovery_of(oriented(best.vectors), StopReason.NO_SIGNAL, Claim.nothing(limit))

    def _why_ended(self, error: float) -> StopReason:
        if error > POOR:
            return StopReason.NOT_ACCURATE
        limit = self.solver.max_samples
        return StopReason.MAX_SAMPLES if limit is not None and self.samples >= limit else StopReason.STREAM_ENDED

    def _state_bytes(self) -> int:
        """The sums, and what the fit needs besides."""
        return mean_bytes(self.data.dims, len(self.counts))

    def _record(self, known: dict[str, Any], vectors: tuple[Array, ...] | None) -> None:
        record = {**known, "pass": 1, "samples": self.samples, "candidate": "mean"}
        self.history.append(record)
        for callback in self.solver.callbacks:
            callback({**record, "position": self.samples, "vectors": vectors, "state_bytes": self._state_bytes()})
