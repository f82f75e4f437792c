"""One fit of the mean at work, as a state machine: add samples up in groups; at their end, fit and judge.

The state are sums of contiguous groups of samples (:mod:`tpca.solvers.mean.grouping`; :mod:`tpca.solvers.mean.test`
says why several) and the sum of all.
"""

from __future__ import annotations

import copy
import math
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from tpca.engines import Data
from tpca.errors import SolverError
from tpca.noise import CENTRED
from tpca.randomness import generator
from tpca.solvers.claim import Claim
from tpca.solvers.loop import Ask
from tpca.solvers.mean.conclude import Units
from tpca.solvers.mean.grouping import Grouping, equal_groups
from tpca.solvers.mean.groups import Groups
from tpca.solvers.mean.judge import Found, Judge
from tpca.solvers.mean.limit import strength_limit
from tpca.solvers.mean.memory import groups_within, mean_bytes
from tpca.solvers.mean.noise import MeanNoise
from tpca.solvers.mean.test import Proof
from tpca.solvers.overflow import largest, refuse_beyond
from tpca.solvers.race.stopping import POOR
from tpca.solvers.recovery import Evidence, Recovery, StopReason
from tpca.tensors import RankOne, TensorSum, Together
from tpca.tensors.blocks import Array

if TYPE_CHECKING:
    from tpca.solvers.mean.solver import MeanSolver

ROUNDS = 2  # a group is read in so many
# Sums between 2^-FAR and 2^FAR are kept as they are, others in units of a power of two.  Samples are asked for in units
# between SMALL and 1, which all types of floats have and in which no sample overflows.
FAR, SMALL = 40, 2.0**-120


class MeanRun:
    """The sums of the samples, in groups."""

    STATE = ("grouping", "noise", "unit", "left_out", "ended", "history")

    def __init__(self, solver: MeanSolver, data: Data) -> None:
        if data.endless and solver.max_samples is None:
            raise SolverError(
                "MeanSolver reads to the end of the samples, and these have none; give max_samples, or use RaceSolver."
            )
        self.solver, self.data = solver, data
        self.left_out = 0  # samples that were only looked at
        self.grouping = self._grouping()
        groups = mean_bytes(data.dims, len(self.grouping.sums))
        self.noise = MeanNoise(solver, data, solver.budget(data.dims) - groups)
        self.unit: float | None = None  # what samples are multiplied by, so that no sum leaves the range of floats
        self._asked = 1.0  # what those asked for are
        self.ended = False
        self.history: list[dict[str, Any]] = []
        self._centred = False
        self._recovery: Recovery | None = None

    def _grouping(self) -> Grouping:
        solver, dims = self.solver, self.data.dims
        budget = solver.budget(dims)
        limits = [limit for limit in (self.data.length, solver.max_samples) if limit is not None]
        if self.data.length is None or not min(limits):
            block = solver.groups or (1 if solver.whiten is None else 2)  # two neighbours tell of the noise
            return Grouping(dims, groups_within(dims, budget, solver.confidence, spare=1), block)
        groups = groups_within(dims, budget, solver.confidence)
        return Grouping(dims, groups, plan=equal_groups(min(limits) - self.left_out, groups, solver.groups or 1))

    @property
    def samples(self) -> int:
        """Samples so far."""
        return self.left_out + self.grouping.samples

    def ask(self) -> Ask[TensorSum | Together] | None:
        """The sum of the next few samples, and what they tell of the noise; ``None`` when they have ended."""
        room, whole = self.grouping.filling
        wanted = self.noise.wanted
        size = min(room, wanted or math.ceil(whole / ROUNDS))
        if self.solver.max_samples is not None:
            size = min(size, self.solver.max_samples - self.samples)
        if self.ended or size < 1:
            self.close()
            return None
        # Before their size is known, samples are asked for so small that not even the sum of the largest overflows.
        self._asked = 2.0 ** -size.bit_length() if self.unit is None else min(max(self.unit, SMALL), 1.0)
        return Ask(self.noise.tails.together(TensorSum(self._asked), *self.noise.blanks()), size)

    def tell(self, part: TensorSum | Together) -> None:
        """Add the samples to the open group; learn from the first of them."""
        sum_, *learnt = self.noise.tails.parts(part)
        assert isinstance(sum_, TensorSum)
        part = sum_
        if part.total is None:
            self.close()
            return
        if self.noise.take(learnt):
            self.left_out = self.samples + part.n
            self.grouping, self.unit = self._grouping(), None
            return
        self._choose_unit(largest((part.total,)), part.n)
        factor = (self.unit or 1.0) / self._asked
        self.grouping.add(part.total if factor == 1 else part.total.astype(float) * factor, part.n)
        self._record({"phase": "average", "component": 0, "found": False}, None)

    def _choose_unit(self, size: float, n: int) -> None:
        """One, as long as all is well within the range of float32; powers of two change no bits."""
        refuse_beyond(sys.float_info.max, size, self._asked, self.samples, n)
        exponent = math.frexp(size)[1] - math.frexp(self._asked)[1]  # of the sum itself, which may not be a float
        inside = exponent + (0 if self.unit is None else math.frexp(self.unit)[1]) <= FAR
        if size == 0 or (self.unit is not None and inside):
            return
        unit = 1.0 if abs(exponent) <= FAR else math.ldexp(1.0, min(1000, max(-1000, -exponent)))
        if self.unit is not None:
            self.grouping.multiply(unit / self.unit)
        self.unit = unit

    def close(self) -> None:
        """There will be no more samples."""
        if not self.ended:
            self.grouping.close()
            self.noise.conclude()
        self.ended = True

    def recovery(self) -> Recovery:
        """The fit of the mean, if its flips do not reach as far; worked out once."""
        if self._recovery is None:
            assert self.ended, "there may be more samples"
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

    def _fit(self) -> Recovery:
        if not self.grouping.samples:
            vectors = tuple(np.eye(1, d)[0] for d in self.data.dims)
            return self._recovery_of(vectors, StopReason.NO_SIGNAL, Claim.nothing(math.inf))
        whitening, self._centred = self.noise.whitening, self.grouping.centred
        if whitening is not None:
            self.grouping.transform(whitening.tensor)
        size = math.ldexp(1.0, math.frexp(largest((self.grouping.sums,)))[1])
        self.grouping.multiply(1 / size)
        groups, solver = Groups.of(self.grouping), self.solver
        units = Units(size / groups.length / self.noise.tails.share, self.unit or 1.0, whitening)
        level = groups.level(np.ones((1, len(groups))))
        sigma = level * size / units.unit
        alike = whitening is None or whitening.shared
        judge = Judge.of(groups, solver.confidence, solver.n_components, solver.random_state, alike)
        found, guess = judge.look()
        each = [
            self._conclude(one, number, units, sigma, one.scatter.along / level) for number, one in enumerate(found)
        ]
        proven = [one for one in each if one is not None]
        if not proven:
            return self._nothing(groups, guess, judge.proofs[0], units, sigma)
        first, *others = sorted(proven, key=lambda r: -r.strength)
        return first.with_others(others)

    def _conclude(self, found: Found, number: int, units: Units, sigma: float, loudness: float) -> Recovery | None:
        """A component in the units of the data; ``loudness`` is the noise along it over that elsewhere.

        ``None`` if what comes out is impossible, since the noise is not what the law takes it for: it is withdrawn.
        """
        said = units.told(found.scatter, self.solver.confidence)
        claim = said.claim.converted(units.to_data)
        if said.claim.flaw:
            known = {"phase": "withdrawn", "component": number, "found": False, "flaw": claim.flaw or said.claim.flaw}
            self._record(known, said.vectors)
            return None
        record = {"phase": "fit", "component": number, "found": True, "strength": claim.strength}
        record |= {"strength_error": units.to_data(said.strength_error), "error": said.error}
        record |= {"symmetric": found.scatter.symmetric, **_told_of(found.proof, units, found.scatter.fit)}
        self._record(record, said.vectors)
        return self._recovery_of(said.vectors, self._why_ended(said.error), claim, sigma, loudness)

    def _nothing(self, groups: Groups, best: RankOne, proof: Proof, units: Units, sigma: float) -> Recovery:
        if units.whitening is not None:  # of signals along the loudest directions, which whitened data say least of
            groups = groups.transformed(units.whitening.undone.tensor)
        limit = strength_limit(groups, generator(self.solver.random_state, "mean limit"))
        vectors = units.vectors(best.vectors)
        self._record({"phase": "fit", "component": 0, "found": False, **_told_of(proof, units, best)}, vectors)
        claim = Claim.nothing(units.to_data(limit))
        return self._recovery_of(vectors, StopReason.NO_SIGNAL, claim, sigma)

    def _recovery_of(
        self,
        vectors: tuple[Array, ...],
        reason: StopReason,
        claim: Claim,
        sigma: float = math.nan,
        loudness: float | None = None,
    ) -> Recovery:
        """What was found, as the last record tells."""
        record = self.history[-1] if self.history else {}
        evidence = None
        if "needed" in record:
            evidence = Evidence("length", record["fit"], record["needed"], tuple(record["noise_fits"]))
        return Recovery.of_one(
            evidence=evidence,
            p_value=record.get("p_value", math.nan),
            solver="mean",
            noise_level=sigma,
            noise=self.noise.model,
            checks=(*self.noise.checks(self.samples, loudness), *([CENTRED] if self._centred else [])),
            vectors=vectors,
            strength=claim.strength,
            n_samples=self.samples,
            state_bytes=self._state_bytes(),
            stop_reason=reason,
            standard_errors=claim.errors,
            strength_interval=claim.interval,
            history=self.history,
        )

    def _why_ended(self, error: float) -> StopReason:
        if error > POOR:
            return StopReason.NOT_ACCURATE
        limit = self.solver.max_samples
        return StopReason.MAX_SAMPLES if limit is not None and self.samples >= limit else StopReason.STREAM_ENDED

    def _state_bytes(self) -> int:
        """The sums, and what the fit needs besides."""
        return mean_bytes(self.data.dims, len(self.grouping.sums)) + self.noise.taken

    def _record(self, known: dict[str, Any], vectors: tuple[Array, ...] | None) -> None:
        record = {**known, "pass": 1, "samples": self.samples, "candidate": "mean"}
        self.history.append(record)
        for callback in self.solver.callbacks:
            callback({**record, "position": self.samples, "vectors": vectors, "state_bytes": self._state_bytes()})


def _told_of(proof: Proof, units: Units, fit: RankOne) -> dict[str, Any]:
    """How far the fit reaches, its flips, and what it had to exceed, in units of the data."""
    factor = units.factor(fit)
    value, needed, *flips = (units.to_data(factor * z) for z in (proof.value, proof.needed, *proof.flips))
    return {"fit": value, "needed": needed, "noise_fits": flips, "p_value": proof.p_value}
