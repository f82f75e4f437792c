"""One race at work, as a state machine (the procedure is at the top of :mod:`tpca.solvers.race.solver`).

==========  ====================================================  ===============================================
phase       the next samples go to                                it ends
==========  ====================================================  ===============================================
scale       the scale estimate                                    after three samples: search
search      all strategies and candidates                         found and accurate: refinement; no more: trial
trial       the candidates only (the held-out part, if any)       found: refinement; else: again, or done
again       the main strategy, a whole pass at once               proposal at rest: trial; else: again
refinement  the refinement                                        accurate as asked, or no more: done
==========  ====================================================  ===============================================
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tpca.engines import Data
from tpca.errors import SolverError
from tpca.randomness import generator
from tpca.solvers.loop import Ask
from tpca.solvers.memory import round_bytes
from tpca.solvers.overflow import WILD, largest, refuse_beyond
from tpca.solvers.race.conclusion import conclusion, record_of
from tpca.solvers.race.limits import strength_limit
from tpca.solvers.race.refine import Refinement, refinement_from
from tpca.solvers.race.rounds import round_size, sub_batch_edges
from tpca.solvers.race.scale import ScaleEstimate
from tpca.solvers.race.strategies.choice import CANDIDATE_VECTORS, Search, again, check_partition, strategies_within
from tpca.solvers.race.strategies.protocol import Part
from tpca.solvers.race.strategies.whole import WholeSum
from tpca.solvers.recovery import Evidence, Recovery, StopReason
from tpca.tensors import Answer, Gradients, Query, RankOne
from tpca.tensors.blocks import Array

if TYPE_CHECKING:
    from tpca.solvers.race.solver import RaceSolver

# Candidates look at proposals when the samples have grown by this factor since the last look: making one costs more
# than the round itself.
LOOK = 1.08
# A candidate hands over to the refinement when found and (signal² · samples)/d is at least this: overlap² about 0.9.
ACCURATE = 8.0
# An endless stream is left when the root mean squared error of every vector is below this: squared error 1 %.
ENDLESS_TOLERANCE = 0.1
# A root mean squared error above this is worth a warning: overlap below 0.9.
POOR = 0.45
# Share of the data that strategies never see when there are several passes.
HELD_OUT = 0.2
# A proposal has come to rest when every vector overlaps this much with that of the pass before.
REST_OVERLAP = 0.99
# Passes that max_passes="auto" allows where they can help.
AUTO_PASSES = 10
CLAIMS_FROM = 32


class RaceRun:
    """One race: its state is the searches and the refinement, the rest is accounting.

    ``others`` are other components, subtracted from what this race sees.  A race with a ``number`` above 0 is one for a
    further component: it takes over the ``scale`` of the first, and ``begins`` when so many samples of the pass have
    gone by, or (``None``) with a new pass.
    """

    # All that a checkpoint holds; what else there is follows from the solver and the data.
    STATE: tuple[str, ...] = ("phase", "scale_estimate", "searches", "refinement", "reason", "samples", "begins")
    STATE += ("passes", "state_bytes", "held_now", "scale", "history", "_limit", "_look", "_proposal", "_rested")
    STATE += ("_rewind", "_before", "reach", "_proof")

    def __init__(
        self, solver: RaceSolver, data: Data, number: int = 0, scale: float | None = None, begins: int | None = 0
    ) -> None:
        self.solver, self.data, self.number = solver, data, number
        self.block = 1
        budget = solver.budget(data.dims)
        budget -= (
            8 * CANDIDATE_VECTORS * sum(data.dims) * min(number, solver.n_components - 1)
        )  # for refining the others
        rng = generator(solver.random_state, f"race {number}" if number else "race")
        self.scale_estimate = ScaleEstimate(data.dims, rng)
        delta = 1 - solver.confidence
        self.searches = strategies_within(data.dims, budget, check_partition(data.dims, solver.partition), delta, rng)
        self.max_passes = self._allowed_passes()
        if self.max_passes > 1:  # half of the chance of a false alarm is kept for the passes after the first
            for search in self.searches:
                search.candidate.delta /= 2
        self.per_pass = self._samples_per_pass()
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
        self._proposal: tuple[Array, ...] | None = None
        self._rested = False
        self._before = 0  # samples of the passes before this one
        self.reach: float | None = None  # what the search would have found by its first claim, in noise levels
        self._proof: Evidence | None = None
        self._asked: list[tuple[Part, tuple[Query, ...]]] = []

    @property
    def position(self) -> int:
        """Samples of this pass that have gone by."""
        return self.begins + self.samples

    @property
    def component(self) -> RankOne | None:
        """The signal as it is known now; ``None`` before it is found and accurate."""
        if self.refinement is None:
            return None
        return RankOne(self.refinement.strength / self.scale, self.refinement.vectors)

    def ask(self) -> Ask[Gradients] | None:
        """What the next samples are needed for; ``None`` when the race is over."""
        while self.phase != "done":
            if self.phase == "refinement" and self._accurate():
                self._finish(StopReason.ACCURATE)
                continue
            size = min(self._round_size(), self._limit - self.position)
            if size >= 1:
                deflate = tuple(RankOne(c.strength * self.scale, c.vectors) for c in self.others)
                self._asked = [(part, part.queries()) for part in self._parts()]
                queries = (query for _, queries in self._asked for query in queries)
                asked = tuple(dataclasses.replace(q, deflate=deflate) for q in queries) if deflate else tuple(queries)
                edges = sub_batch_edges(int(size), self.block)
                return Ask(Gradients(asked, self.scale, edges), int(size), self._rewind)
            self.end()
        return None

    def tell(self, part: Gradients) -> None:
        """Take what was asked for; an accumulator of no samples means that they have ended."""
        self.take(part.answers, part.n)

    def take(self, answers: tuple[Answer, ...], n: int) -> None:
        """The same, as the answers to this race's own queries."""
        self._rewind = False
        if n == 0:
            self.end()
            return
        self._check_sizes(answers, n)
        self.samples += n
        self.held_now = round_bytes(self._asked, answers)
        self.state_bytes = max(self.state_bytes, self.held_now)
        left = iter(answers)
        for part, queries in self._asked:
            part.absorb(tuple(itertools.islice(left, len(queries))), n)
        {
            "scale": self._after_scale,
            "search": self._after_search,
            "trial": self._after_trial,
            "again": self._after_again,
            "refinement": self._after_refinement,
        }[self.phase]()

    def _check_sizes(self, answers: tuple[Answer, ...], n: int) -> None:
        """Candidates and the refinement square float64 answers; strategies pass over what does not fit."""
        if self.phase != "scale":
            each = (g for answer in answers for g in answer.gradients.values() if g.dtype == np.float64)
            refuse_beyond(WILD, largest(each), self.scale, self.position, n)

    def end(self) -> None:
        """The samples of this phase have ended."""
        if self.phase == "scale":
            self._enter_search()
        elif self.phase == "search":
            self.phase, self._limit = "trial", self.per_pass
        elif self.phase == "trial":
            best = self.leading()
            if best.candidate.found:
                self._enter_refinement(best)
            elif self._rested or self.passes >= self.max_passes:
                self._finish(StopReason.NO_SIGNAL)
            else:
                if self.passes == 1:
                    self.searches = [again(self.searches[0], (1 - self.solver.confidence) / 2)]
                self._enter_again()
        elif self.phase == "again":
            self._finish(StopReason.NO_SIGNAL)
        else:
            self._finish(self._why_ended())

    def close(self) -> None:
        """There will be no more samples."""
        while self.phase != "done":
            self.end()

    def recovery(self) -> Recovery:
        """What was found, or that nothing was."""
        return conclusion(self)

    def state(self) -> dict[str, Any]:
        """All that the next step needs."""
        return {name: getattr(self, name) for name in self.STATE}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        for name in self.STATE:
            setattr(self, name, state[name])

    def _parts(self) -> list[Part]:
        """Who gets the next samples."""
        if self.phase == "scale":
            return [self.scale_estimate]
        if self.phase == "search":
            return [part for c in self.searches for part in (c.candidate, c.strategy)]
        if self.phase == "trial":
            return [c.candidate for c in self.searches]
        if self.phase == "again":
            return [self.searches[0].strategy]
        assert self.refinement is not None
        return [self.refinement]

    def _round_size(self) -> float:
        return self.racing if self.phase == "again" else round_size(self.samples, self.block)

    def _after_scale(self) -> None:
        self.scale = self.scale_estimate.looking
        if self.scale_estimate.done:
            self._enter_search()

    def _enter_search(self) -> None:
        self.phase, self.scale = "search", self.scale_estimate.scale

    def _after_search(self) -> None:
        found = [c for c in self.searches if c.candidate.found] if self.samples >= CLAIMS_FROM else []
        if found:  # the others have lost: from here on they would only cost memory
            self.reach = self.reach or self._reach()
            self.searches = [max(found, key=lambda c: c.candidate.log_evidence)]
        best = self.leading()
        self._record(best)
        if found and best.candidate.accuracy >= ACCURATE:
            self._enter_refinement(best)
        elif self.samples >= self._look:
            self._look = max(self.samples + 1, LOOK * self.samples)
            for search in self.searches:
                search.candidate.consider(search.strategy)

    def _after_trial(self) -> None:
        self._record(self.leading())

    def _enter_again(self) -> None:
        """The next pass: one step of subspace iteration on the strategies' part."""
        self.phase, self._limit, self._before = "again", self.racing, max(self._before, self.position)
        self.passes, self.samples, self.begins, self._rewind = self.passes + 1, 0, 0, True
        self.searches[0].strategy.restart()

    def _after_again(self) -> None:
        """A proposal that has come to rest, or the last one, is tried on the held-out part.

        Every trial raises the bar for the next, so there is none of what still moves, nor a second one of the same.
        """
        (search,) = self.searches
        # Copies: a vector may be a column of some matrix, which would be kept with it.
        before, self._proposal = self._proposal, tuple(v.copy() for v in search.strategy.propose().vectors)
        rests = (
            before is not None
            and min(abs(float(v @ w)) for v, w in zip(before, self._proposal, strict=True)) > REST_OVERLAP
        )
        if not (rests or self.passes == self.max_passes):
            self._enter_again()
            return
        self._rested = True
        search.candidate.adopt(search.strategy)
        self._record(search)
        self.phase, self._limit = "trial", self.per_pass

    def hidden(self, sigma: float) -> float:
        """The strength that the search would have found; once there was a claim, until then."""
        reach = self.reach or self._reach()
        return sigma * reach if math.isfinite(reach) else math.inf

    def _reach(self) -> float:
        strategy, delta = self.searches[0].strategy, 1 - self.solver.confidence
        return strength_limit(self.data.dims, strategy, self.distinct, 1.0, delta)

    def _enter_refinement(self, winner: Search) -> None:
        self.reach = self.reach or self._reach()
        self.phase, self._limit = "refinement", self.per_pass
        self._proof = winner.evidence
        self.refinement, self.searches = refinement_from(winner.candidate), []

    def _after_refinement(self) -> None:
        assert self.refinement is not None
        self._record(self.refinement)

    def _finish(self, reason: StopReason) -> None:
        self.phase, self.reason = "done", reason

    def _accurate(self) -> bool:
        """Whether the vectors are as accurate as asked for and the strength has settled."""
        assert self.refinement is not None
        tolerance = self._tolerance()
        return tolerance is not None and self.refinement.error() <= tolerance and self.refinement.settled

    def _tolerance(self) -> float | None:
        asked = self.solver.tol
        if asked is None and self.data.endless and self.solver.max_samples is None:
            return ENDLESS_TOLERANCE
        return asked

    def _why_ended(self) -> StopReason:
        assert self.refinement is not None
        if self.refinement.error() > (self._tolerance() or POOR):
            return StopReason.NOT_ACCURATE
        limit = self.solver.max_samples
        return StopReason.MAX_SAMPLES if limit is not None and self.position >= limit else StopReason.STREAM_ENDED

    def _allowed_passes(self) -> int:
        """``max_passes``; "auto" is one pass where a second is impossible, or useless: all data are in the state."""
        passes = self.solver.max_passes
        again_possible = self.data.rereadable and self.data.length
        if isinstance(passes, str):  # "auto"
            useless = isinstance(self.searches[0].strategy, WholeSum)
            return AUTO_PASSES if again_possible and not useless else 1
        if passes > 1 and not again_possible:
            raise SolverError(
                f"max_passes={passes} needs samples that can be read again, such as an array; "
                "use max_passes=1 for a stream that is gone once read."
            )
        return passes

    def _samples_per_pass(self) -> float:
        """The smaller of ``max_samples`` and the stream's length; infinite when neither is known."""
        limits = (self.solver.max_samples, self.data.length)
        return min((limit for limit in limits if limit is not None), default=math.inf)

    @property
    def distinct(self) -> int:
        """Samples consumed, those of later passes not counted again."""
        return max(self._before, self.samples)

    @property
    def proof(self) -> Evidence:
        """What the claim rests on; before there is one, the most that speaks for a signal so far."""
        return self._proof or self.leading().evidence

    def leading(self) -> Search:
        """The search with the strongest evidence."""
        return max(self.searches, key=lambda c: c.candidate.log_evidence)

    def _record(self, best: Search | Refinement) -> None:
        record, vectors = record_of(self, best)
        self.history.append(record)
        for callback in self.solver.callbacks:
            callback({**record, "position": self.position, "vectors": vectors, "state_bytes": self.state_bytes})
