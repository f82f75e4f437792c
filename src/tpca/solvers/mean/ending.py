"""The end of a fit of the mean: the groups are whitened where the noise is not white, fitted, judged, and told of.

What was found is said in the units and axes of the data (:mod:`tpca.solvers.mean.conclude`), or how strong a signal may
be that was not (:mod:`tpca.solvers.mean.limit`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tpca.noise import CENTRED, Check, NoiseModel, too_alike
from tpca.randomness import generator
from tpca.solvers.claim import Claim
from tpca.solvers.mean.bending import BEND, LARGE, bent, squared_share
from tpca.solvers.mean.conclude import Units
from tpca.solvers.mean.groups import Groups
from tpca.solvers.mean.judge import Found, Judge
from tpca.solvers.mean.limit import strength_limit
from tpca.solvers.mean.observed import balance, evened
from tpca.solvers.mean.test import Proof
from tpca.solvers.race.stopping import POOR
from tpca.solvers.recovery import Evidence, Recovery, StopReason
from tpca.tensors import RankOne, SliceCounts
from tpca.tensors.blocks import Array

if TYPE_CHECKING:
    from tpca.solvers.mean.run import MeanRun


class Ending:
    """What a run says at its end; its sums are used up."""

    def __init__(self, run: MeanRun) -> None:
        self.run = run
        self._sigma, self._more = math.nan, list[Check]()
        self._factors: Sequence[Array] | None = None  # of slices, where entries are missing

    def recovery(self) -> Recovery:
        """The fit of the mean, if its flips do not reach as far."""
        grouping, noise, solver = self.run.grouping, self.run.noise, self.run.solver
        if not grouping.samples:
            vectors = tuple(np.eye(1, d)[0] for d in self.run.data.dims)
            return self._recovery_of(vectors, StopReason.NO_SIGNAL, Claim.nothing(math.inf))
        whitening, observed, louder, every = noise.whitening, self.run.observed, 1.0, [grouping]
        if observed is not None:
            factors = SliceCounts.of_entries(observed.whole, grouping.samples, grouping.dims).factors()
            if whitening is not None:
                whitening = evened(whitening, factors)
            self._factors, louder, every = factors, balance(grouping, observed), [grouping, observed]
        if whitening is not None:
            for one in every:
                one.transform(whitening.tensor)
        groups = Groups.of(grouping, noise.correlation_time, None if observed is None else observed.sums)
        if groups.centred:
            self._more.append(CENTRED)
        if not groups.coupling.enough:
            self._more.append(too_alike(len(groups), groups.coupling.worth))
        scale, projection = groups.unit / groups.length / self._share(), solver.projection
        units = Units(scale, self.run.unit or 1.0, whitening, projection)
        level = groups.own_level
        self._sigma = groups.pulled_level() * groups.unit / units.unit / math.sqrt(louder)
        alike = (whitening is None or whitening.shared) and (projection is None or projection.shared)
        judge = Judge.of(groups, solver.confidence, solver.n_components, solver.random_state, alike)
        found, guess = judge.look()
        each = [self._conclude(one, number, units, level) for number, one in enumerate(found)]
        proven = [one for one in each if one is not None]
        if not proven:
            return self._nothing(groups, guess, judge.proofs[0], units)
        first, *others = sorted(proven, key=lambda r: -r.strength)
        return first.with_others(others)

    def _share(self) -> float:
        """What a signal is seen times: the share of entries within the bound, counted where none are missing."""
        tails, grouping = self.run.noise.tails, self.run.grouping
        if tails.clip is None or self.run.observed is not None:
            return tails.share
        return 1 - sum(tails.beyond) / (grouping.samples * math.prod(grouping.dims))

    def _conclude(self, found: Found, number: int, units: Units, level: float) -> Recovery | None:
        """A component in the units of the data, in noise of some ``level`` in those of the groups.

        ``None`` if what comes out is impossible, since the noise is not what the law takes it for: it is withdrawn.
        """
        said = units.told(found.scatter, self.run.solver.confidence)
        clip, squared = self.run.noise.tails.clip, 0.0
        if clip is not None and self.run.solver.projection is None:
            squared = squared_share(units.to_data(said.claim.strength), said.vectors, clip.scales)
        if squared > LARGE:
            self._more.append(bent(squared))
        if squared:
            units = dataclasses.replace(units, scale=units.scale * (1 + BEND * min(squared, LARGE)))
        claim = said.claim.converted(units.to_data)
        if said.claim.flaw:
            known = {"phase": "withdrawn", "component": number, "found": False, "flaw": claim.flaw or said.claim.flaw}
            self.run.record(known, said.vectors)
            return None
        record = {"phase": "fit", "component": number, "found": True, "strength": claim.strength}
        record |= {"strength_error": units.to_data(said.strength_error), "error": said.error}
        record |= {"symmetric": found.scatter.symmetric, **_told_of(found.proof, units, found.scatter.fit)}
        self.run.record(record, said.vectors)
        loudness = found.scatter.along / level if level > 0 else None  # of the noise along it, over that elsewhere
        return self._recovery_of(said.vectors, self._why_ended(said.error), claim, loudness)

    def _nothing(self, groups: Groups, best: RankOne, proof: Proof, units: Units) -> Recovery:
        if units.whitening is not None:  # of signals along the loudest directions, which whitened data say least of
            groups = groups.transformed(units.whitening.undone.tensor)
        limit = math.inf  # what changes slowly may hide anything
        if groups.coupling.enough:
            limit = strength_limit(groups, generator(self.run.solver.random_state, "mean limit"))
        vectors = units.vectors(best.vectors)
        self.run.record({"phase": "fit", "component": 0, "found": False, **_told_of(proof, units, best)}, vectors)
        claim = Claim.nothing(units.to_data(limit))
        return self._recovery_of(vectors, StopReason.NO_SIGNAL, claim)

    def _recovery_of(
        self, vectors: tuple[Array, ...], reason: StopReason, claim: Claim, loudness: float | None = None
    ) -> Recovery:
        """What was found, as the last record tells."""
        record = self.run.history[-1] if self.run.history else {}
        evidence = None
        if "needed" in record:
            evidence = Evidence("length", record["fit"], record["needed"], tuple(record["noise_fits"]))
        return Recovery.of_one(
            evidence=evidence,
            p_value=record.get("p_value", math.nan),
            solver="mean",
            noise_level=self._sigma,
            noise=self._noise(),
            checks=(*self.run.noise.checks(self.run.samples, loudness), *self._more),
            vectors=vectors,
            strength=claim.strength,
            n_samples=self.run.samples,
            state_bytes=self.run.state_bytes,
            stop_reason=reason,
            standard_errors=claim.errors,
            strength_interval=claim.interval,
            history=self.run.history,
        )

    def _noise(self) -> NoiseModel | None:
        """What is known of the noise of entries that were observed."""
        model = self.run.noise.model
        if model is None or model.whitening is None or self._factors is None:
            return model
        return dataclasses.replace(model, whitening=evened(model.whitening, self._factors, of_noise=True))

    def _why_ended(self, error: float) -> StopReason:
        if error > POOR:
            return StopReason.NOT_ACCURATE
        limit = self.run.solver.max_samples
        return StopReason.MAX_SAMPLES if limit is not None and self.run.samples >= limit else StopReason.STREAM_ENDED


def _told_of(proof: Proof, units: Units, fit: RankOne) -> dict[str, Any]:
    """How far the fit reaches, its flips, and what it had to exceed, in units of the data."""
    factor = units.factor(fit)
    value, needed, *flips = (units.to_data(factor * z) for z in (proof.value, proof.needed, *proof.flips))
    return {"fit": value, "needed": needed, "noise_fits": flips, "p_value": proof.p_value}
