"""The state of one race: all that a checkpoint holds, and what can be read from it.

What happens to it, phase after phase, is :mod:`tpca.solvers.race.run`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tpca.engines import Data
from tpca.noise import Check, noise_checks, steadiness
from tpca.randomness import generator
from tpca.solvers.race.ascent import Ascent
from tpca.solvers.race.limits import strength_limit
from tpca.solvers.race.noise import RaceNoise
from tpca.solvers.race.refine import Refinement
from tpca.solvers.race.rounds import FEW_SUB_BATCHES, HOPE, SUB_BATCHES, sub_batch_edges
from tpca.solvers.race.scale import ScaleEstimate
from tpca.solvers.race.stopping import allowed_passes, claims_from, samples_per_pass, tolerance
from tpca.solvers.race.strategies.carrying import enlarged
from tpca.solvers.race.strategies.choice import (
    Search,
    check_partition,
    refinement_floats,
    strategies_within,
    sub_batches_within,
)
from tpca.solvers.race.strategies.flow import BlockFlow
from tpca.solvers.race.strategies.protocol import Part
from tpca.solvers.recovery import Evidence, StopReason
from tpca.tensors import Query, RankOne

if TYPE_CHECKING:
    from tpca.solvers.race.solver import RaceSolver

# Samples over those at the last look at proposals: making one costs more than a round itself.
LOOK = 1.08
# Memory for strategies over that while the noise is learnt from which on looks wait until it is known.
GROWS = 1.1
# Share of the data that strategies never see when there are several passes.
HELD_OUT = 0.2


class RaceState:
    """One race: its state is the searches and the refinement, the rest is accounting.

    ``others`` are other components, subtracted from what this race sees.  A race with a ``number`` above 0 is one for a
    further component: it takes over the ``scale`` of the first, and ``begins`` when so many samples of the pass have
    gone by, or (``None``) with a new pass.

    What is known of the ``noise`` is shared by all races.  No claim is made while it is learnt, nor before sample
    ``claims_from``.
    """

    # All that a checkpoint holds; what else there is follows from the solver and the data.
    STATE: tuple[str, ...] = ("phase", "scale_estimate", "searches", "refinement", "reason", "samples", "begins")
    STATE += ("passes", "state_bytes", "held_now", "scale", "history", "_limit", "_look", "ascent", "_rested")
    STATE += ("_rewind", "_before", "reach", "loudest", "claims_from", "_proof", "max_passes", "racing")

    def __init__(
        self,
        solver: RaceSolver,
        data: Data,
        noise: RaceNoise,
        number: int = 0,
        scale: float | None = None,
        begins: int | None = 0,
    ) -> None:
        self.solver, self.data, self.noise, self.number = solver, data, noise, number
        rng = generator(solver.random_state, f"race {number}" if number else "race")
        self.scale_estimate = ScaleEstimate(data.dims, rng)
        self.max_passes = 1
        self.searches = self.strategies(rng)
        self.max_passes = allowed_passes(solver, data, self.searches[0].strategy)
        for search in self.searches if self.max_passes > 1 else ():
            search.candidate.delta /= 2  # see strategies()
        self.per_pass = samples_per_pass(solver, data)
        self.claims_from = 0 if number else claims_from(self.per_pass)  # by then the first race has waited
        # With several passes the last part of the data is kept from the strategies, so that re-use cannot fool a trial.
        self.racing = int((1 - HELD_OUT) * self.per_pass) if self.max_passes > 1 else self.per_pass
        self.others: tuple[RankOne, ...] = ()
        self.phase = "scale" if scale is None else "search"
        self.refinement: Refinement | None = None
        self.reason: StopReason | None = None
        self.samples, self.passes, self.state_bytes, self.held_now = 0, 1, 0, 0
        self.scale = 1.0 if scale is None else scale  # everybody sees the samples times this
        self.history: list[dict[str, Any]] = []
        self.begins = begins or 0
        self._limit, self._look, self._rewind = self.racing, 0.0, begins is None
        self.ascent: Ascent | None = None  # from the second pass on
        self._rested = False
        self._before = 0  # samples of the passes before this one
        self.reach: float | None = None  # what the search would have found until the refinement began, in noise levels
        self.loudest = 0.0  # the noise level along the directions that were tried, where it was largest
        self._proof: Evidence | None = None
        self._asked: list[tuple[Part, tuple[Query, ...]]] = []
        self._sent: tuple[Query, ...] = ()  # what the data were asked, where they are whitened

    @property
    def sub_batches(self) -> int:
        """Sub-batches of a round of which gradients can be held."""
        return sub_batches_within(self.data.dims, self.noise.limit, self.solver.n_components)

    def edges(self, n: int) -> tuple[int, ...]:
        """Where the sub-batches of a round of ``n`` samples begin: known before it, as evidence needs it."""
        if self.phase == "refinement":
            return sub_batch_edges(n, self.noise.block, self.sub_batches)
        candidates = [search.candidate for search in self.searches]
        hope = self.phase == "trial" or any(candidate.log_evidence > HOPE for candidate in candidates)
        open_ = hope and not any(candidate.found for candidate in candidates)
        return sub_batch_edges(n, self.noise.block, SUB_BATCHES if open_ else FEW_SUB_BATCHES)

    def strategies(self, rng: np.random.Generator) -> list[Search]:
        """What fits into the memory that knowing the noise and refining other components leave."""
        dims, others = self.data.dims, min(self.number, self.solver.n_components - 1)
        left = self.noise.left(8 * refinement_floats(dims, self.sub_batches) * others)
        partition = check_partition(dims, self.solver.partition)
        delta = 1 - self.solver.confidence
        if self.max_passes > 1:  # half of the chance of a false alarm is kept for the passes after the first
            delta /= 2
        projection = self.solver.projection
        alike = self.noise.symmetric and (projection is None or projection.shared)
        return strategies_within(dims, left, partition, delta, rng, alike)

    def enlarge(self) -> None:
        """Search in the memory that has become free: what is known stays, if the strategies are the same."""
        before, look = self.searches, self._look
        self.search_afresh()
        main = self.searches[0].strategy
        if [one.name for one in before] == [one.name for one in self.searches] and enlarged(before[0].strategy, main):
            self.searches, self._look = [Search(main, before[0].candidate), *before[1:]], look

    def search_afresh(self) -> None:
        """Forget all: from now on the data are seen otherwise."""
        self.searches = self.strategies(generator(self.solver.random_state, f"race {self.number} at {self.samples}"))
        self._look = 0.0

    @property
    def grows(self) -> bool:
        """Whether a search is under way whose main strategy would be larger in more memory."""
        if self.phase not in ("scale", "search"):
            return False
        main = self.searches[0].strategy
        return not isinstance(main, BlockFlow) or main.columns < main.partition.sizes[0]

    @property
    def waits(self) -> bool:
        """Whether strategies are not looked at yet: they will be larger once the noise is known, or begin anew.

        Until then nothing is claimed anyway.  Where nobody knows when samples end, they may end before that: then it is
        worth looking from the half of those on after which there may be a claim.
        """
        noise = self.noise
        plain = noise.learning and noise.whitening is None and noise.tails.clip is None
        if not plain or self.solver.memory_limit is None or not self.grows:
            return False
        early = math.isfinite(self.per_pass) or self.position < self.claims_from // 2
        return early and noise.limit > GROWS * noise.left()

    @property
    def position(self) -> int:
        """Samples of this pass that have gone by."""
        return self.begins + self.samples

    @property
    def unit(self) -> float:
        """What a strength seen here is times this in the data."""
        return 1 / self.scale / self.noise.tails.share

    def checks(self) -> tuple[Check, ...]:
        """Whether the noise is as assumed."""
        along = None if self.refinement is None else self.refinement.loudness
        tails = self.noise.tails
        checks = noise_checks(self.noise.model, self.distinct, along, tails.clip, tails.beyond, self.solver.groups)
        excess = None if self.refinement is None else self.refinement.rewards.excess
        return checks if excess is None else (*checks, steadiness(excess))

    @property
    def component(self) -> RankOne | None:
        """The signal as it is known now; ``None`` before it is found and accurate."""
        if self.refinement is None:
            return None
        return RankOne(self.refinement.strength / self.scale, self.refinement.vectors)

    def state(self) -> dict[str, Any]:
        """All that the next step needs."""
        return {name: getattr(self, name) for name in self.STATE}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        for name in self.STATE:
            setattr(self, name, state[name])

    def count_afresh(self) -> None:
        """Neighbouring samples are alike: evidence that took them for independent is void."""
        for search in self.searches:
            search.candidate.forget_evidence()

    def is_found(self, search: Search) -> bool:
        """Whether a signal is proven, and may be claimed by now."""
        return search.candidate.found and self.position >= self.claims_from and not self.noise.learning

    def look(self) -> None:
        """Let every candidate look at what its strategy proposes."""
        self._look = max(self.samples + 1, LOOK * self.samples)
        for search in self.searches:
            search.candidate.consider(search.strategy)

    @property
    def tol(self) -> float | None:
        """The error of vectors at which to stop, if any."""
        return tolerance(self.solver, self.data)

    def hidden(self) -> float:
        """The strength that the search would have found; once there was a claim, until then."""
        if self.reach is None:
            self.note_reach()
        assert self.reach is not None
        return self.loudest * self.reach if math.isfinite(self.reach) else math.inf

    def note_reach(self) -> None:
        """Take note of what the search would have found by now, the first time, and of the noise it has met."""
        if self.reach is None:
            strategy, delta = self.searches[0].strategy, 1 - self.solver.confidence
            counted = self.distinct // self.noise.block if self.position >= self.claims_from else 0  # 0: no claim yet
            self.reach = strength_limit(self.data.dims, strategy, counted, 1.0, delta)
        self.loudest = max(self.loudest, *(search.candidate.loudest for search in self.searches))

    @property
    def distinct(self) -> int:
        """Samples consumed, those of later passes not counted again."""
        return max(self._before, self.samples)

    @property
    def proof(self) -> Evidence:
        """What the claim rests on; before there is one, the most that speaks for a signal so far."""
        return self._proof or self.leading().evidence

    def leading(self) -> Search:
        """The search with the strongest evidence; of several that have found a signal the one with the largest reward.

        A larger reward is one of better vectors.  The others go on until the refinement begins: a claim may be luck,
        and if its evidence falls again they must not have been dropped for it.
        """
        if found := [c for c in self.searches if self.is_found(c)]:
            return max(found, key=lambda c: c.candidate.strength)
        return max(self.searches, key=lambda c: c.candidate.log_evidence)
