"""One race at work, as a state machine (the procedure is at the top of :mod:`tpca.solvers.race.solver`).

=========  ====================================================  ==========================================
phase      the next samples go to                                it ends
=========  ====================================================  ==========================================
probe      the probe                                             after three samples
search     all racers and leaders                                found and accurate: polish; no more: trial
trial      the leaders only (the held-out part, if any)          found: polish; else: again, or done
again      the main racer, a whole pass at once                  reading at rest: trial; else: again
polish     the polish                                            accurate as asked, or no more: done
=========  ====================================================  ==========================================
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tpca.engines import Round
from tpca.errors import SolverError
from tpca.randomness import generator
from tpca.solvers.loop import Ask, Data
from tpca.solvers.memory import default_memory, round_bytes
from tpca.solvers.overflow import WILD, largest, refuse_beyond
from tpca.solvers.race.conclusion import conclusion, record_of
from tpca.solvers.race.limits import strength_limit
from tpca.solvers.race.refine import Polish, polish_from
from tpca.solvers.race.rounds import round_size
from tpca.solvers.race.scale import Probe
from tpca.solvers.race.strategies.choice import LEADER_VECTORS, Contestant, again, check_partition, line_up
from tpca.solvers.race.strategies.protocol import Part
from tpca.solvers.race.strategies.whole import WholeRacer
from tpca.solvers.recovery import Recovery, StopReason
from tpca.tensors import Query, RankOne
from tpca.tensors.blocks import Array

if TYPE_CHECKING:
    from tpca.solvers.race.solver import RaceSolver

# Readings are taken when the samples have grown by this factor since the last one: they cost more than the round
# itself.
LOOK = 1.08
# A leader hands over to the polish when found and (signal² · samples)/d is at least this: overlap² about 0.9.
ACCURATE = 8.0
# An endless stream is left when the root mean squared error of every vector is below this: squared error 1 %.
ENDLESS_TOLERANCE = 0.1
# A root mean squared error above this is worth a warning: overlap below 0.9.
POOR = 0.45
# Share of the data that racers never see when there are several passes.
HELD_OUT = 0.2
# A reading has come to rest when every vector overlaps this much with that of the pass before.
REST = 0.99
# Passes that max_passes="auto" allows where they can help.
AUTO_PASSES = 10


class RaceRun:
    """One race: its state is the contestants and the polish, the rest is accounting.

    ``others`` are other components, subtracted from what this race sees.  A race with a ``number`` above 0 is one for a
    further component: it takes over the ``scale`` of the first, and ``begins`` when so many samples of the pass have
    gone by, or (``None``) with a new pass.
    """

    # All that a checkpoint holds; what else there is follows from the solver and the data.
    STATE: tuple[str, ...] = ("phase", "probe", "contestants", "polished", "reason", "samples", "begins", "passes")
    STATE += ("state_bytes", "held_now", "scale", "history", "_limit", "_look", "_reading", "_rested", "_rewind")
    STATE += ("_before", "reach")

    def __init__(
        self, solver: RaceSolver, data: Data, number: int = 0, scale: float | None = None, begins: int | None = 0
    ) -> None:
        self.solver, self.data, self.number = solver, data, number
        budget = default_memory(data.dims) if solver.memory is None else solver.memory
        budget -= 8 * LEADER_VECTORS * sum(data.dims) * min(number, solver.n_components - 1)  # for polishing the others
        rng = generator(solver.seed, f"race {number}" if number else "race")
        self.probe = Probe(data.dims, rng)
        delta = 1 - solver.confidence
        self.contestants = line_up(data.dims, budget, check_partition(data.dims, solver.partition), delta, rng)
        self.max_passes = self._allowed_passes()
        if self.max_passes > 1:  # half of the chance of a false alarm is kept for the passes after the first
            for contestant in self.contestants:
                contestant.leader.delta /= 2
        self.per_pass = self._samples_per_pass()
        # With several passes the last part of the data is kept from the racers, so that re-use cannot fool a trial.
        self.racing = int((1 - HELD_OUT) * self.per_pass) if self.max_passes > 1 else self.per_pass
        self.others: tuple[RankOne, ...] = ()
        self.phase = "probe" if scale is None else "search"
        self.polished: Polish | None = None
        self.reason: StopReason | None = None
        self.samples, self.passes, self.state_bytes, self.held_now = 0, 1, 0, 0
        self.scale = 1.0 if scale is None else scale  # everybody sees the samples times this
        self.history: list[dict[str, Any]] = []
        self.begins = begins or 0
        self._limit, self._look, self._rewind = self.racing, 0.0, begins is None
        self._reading: tuple[Array, ...] | None = None
        self._rested = False
        self._before = 0  # samples of the passes before this one
        self.reach: float | None = None  # what the search would have found by its first claim, in noise levels
        self._asked: list[tuple[Part, tuple[Query, ...]]] = []

    @property
    def position(self) -> int:
        """Samples of this pass that have gone by."""
        return self.begins + self.samples

    @property
    def component(self) -> RankOne | None:
        """The signal as it is known now; ``None`` before it is found and accurate."""
        if self.polished is None:
            return None
        return RankOne(self.polished.strength / self.scale, self.polished.vectors)

    def ask(self) -> Ask | None:
        """What the next samples are needed for; ``None`` when the race is over."""
        while self.phase != "done":
            if self.phase == "polish" and self._accurate():
                self._finish(StopReason.ACCURATE)
                continue
            size = min(self._round_size(), self._limit - self.position)
            if size >= 1:
                less = tuple(RankOne(c.strength * self.scale, c.vectors) for c in self.others)
                self._asked = [(part, part.queries()) for part in self._parts()]
                queries = (query for _, queries in self._asked for query in queries)
                asked = tuple(dataclasses.replace(q, less=less) for q in queries) if less else tuple(queries)
                return Ask(asked, int(size), self.scale, self._rewind)
            self.end()
        return None

    def tell(self, answered: Round) -> None:
        """Take the answers to the last question; a round of no samples means that they have ended."""
        self._rewind = False
        if answered.n == 0:
            self.end()
            return
        self._check_sizes(answered)
        self.samples += answered.n
        self.held_now = round_bytes(self._asked, answered.answers)
        self.state_bytes = max(self.state_bytes, self.held_now)
        answers = iter(answered.answers)
        for part, queries in self._asked:
            part.absorb(tuple(itertools.islice(answers, len(queries))), answered.n)
        {
            "probe": self._after_probe,
            "search": self._after_search,
            "trial": self._after_trial,
            "again": self._after_again,
            "polish": self._after_polish,
        }[self.phase]()

    def _check_sizes(self, answered: Round) -> None:
        """Leaders and the polish square what they get, in double precision; racers pass over what does not fit."""
        if self.phase != "probe":
            each = (g for answer in answered.answers for g in answer.gradients.values() if g.dtype == np.float64)
            refuse_beyond(WILD, largest(each), self.scale, self.position, answered.n)

    def end(self) -> None:
        """The samples of this phase have ended."""
        if self.phase == "probe":
            self._enter_search()
        elif self.phase == "search":
            self.phase, self._limit = "trial", self.per_pass
        elif self.phase == "trial":
            best = self.leading()
            if best.leader.found:
                self._enter_polish(best)
            elif self._rested or self.passes >= self.max_passes:
                self._finish(StopReason.NO_SIGNAL)
            else:
                if self.passes == 1:
                    self.contestants = [again(self.contestants[0], (1 - self.solver.confidence) / 2)]
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
        if self.phase == "probe":
            return [self.probe]
        if self.phase == "search":
            return [part for c in self.contestants for part in (c.leader, c.racer)]
        if self.phase == "trial":
            return [c.leader for c in self.contestants]
        if self.phase == "again":
            return [self.contestants[0].racer]
        assert self.polished is not None
        return [self.polished]

    def _round_size(self) -> float:
        return self.racing if self.phase == "again" else round_size(self.samples)

    def _after_probe(self) -> None:
        self.scale = self.probe.looking
        if self.probe.done:
            self._enter_search()

    def _enter_search(self) -> None:
        self.phase, self.scale = "search", self.probe.scale

    def _after_search(self) -> None:
        found = [c for c in self.contestants if c.leader.found]
        if found:  # the others have lost: from here on they would only cost memory
            self.reach = self.reach or self._reach()
            self.contestants = [max(found, key=lambda c: c.leader.log_evidence)]
        best = self.leading()
        self._record(best)
        if found and best.leader.accuracy >= ACCURATE:
            self._enter_polish(best)
        elif self.samples >= self._look:
            self._look = max(self.samples + 1, LOOK * self.samples)
            for contestant in self.contestants:
                contestant.leader.consider(contestant.racer)

    def _after_trial(self) -> None:
        self._record(self.leading())

    def _enter_again(self) -> None:
        """The next pass: one step of subspace iteration on the racers' part."""
        self.phase, self._limit, self._before = "again", self.racing, max(self._before, self.position)
        self.passes, self.samples, self.begins, self._rewind = self.passes + 1, 0, 0, True
        self.contestants[0].racer.restart()

    def _after_again(self) -> None:
        """A reading that has come to rest, or the last one, is tried on the held-out part.

        Every trial raises the bar for the next, so there is none of what still moves, nor a second one of the same.
        """
        (contestant,) = self.contestants
        # Copies: a vector may be a column of some matrix, which would be kept with it.
        before, self._reading = self._reading, tuple(v.copy() for v in contestant.racer.propose().vectors)
        rests = before is not None and min(abs(float(v @ w)) for v, w in zip(before, self._reading, strict=True)) > REST
        if not (rests or self.passes == self.max_passes):
            self._enter_again()
            return
        self._rested = True
        contestant.leader.appoint(contestant.racer)
        self._record(contestant)
        self.phase, self._limit = "trial", self.per_pass

    def hidden(self, sigma: float) -> float:
        """The strength that the search would have found; once there was a claim, until then."""
        reach = self.reach or self._reach()
        return sigma * reach if math.isfinite(reach) else math.inf

    def _reach(self) -> float:
        racer, delta = self.contestants[0].racer, 1 - self.solver.confidence
        return strength_limit(self.data.dims, racer, self.distinct, 1.0, delta)

    def _enter_polish(self, winner: Contestant) -> None:
        self.reach = self.reach or self._reach()
        self.phase, self._limit = "polish", self.per_pass
        self.polished, self.contestants = polish_from(winner.leader), []

    def _after_polish(self) -> None:
        assert self.polished is not None
        self._record(self.polished)

    def _finish(self, reason: StopReason) -> None:
        self.phase, self.reason = "done", reason

    def _accurate(self) -> bool:
        """Whether the vectors are as accurate as asked for and the strength has settled."""
        assert self.polished is not None
        tolerance = self._tolerance()
        return tolerance is not None and self.polished.error() <= tolerance and self.polished.settled

    def _tolerance(self) -> float | None:
        asked = self.solver.tolerance
        if asked is None and self.data.endless and self.solver.max_samples is None:
            return ENDLESS_TOLERANCE
        return asked

    def _why_ended(self) -> StopReason:
        assert self.polished is not None
        if self.polished.error() > (self._tolerance() or POOR):
            return StopReason.NOT_ACCURATE
        limit = self.solver.max_samples
        return StopReason.MAX_SAMPLES if limit is not None and self.position >= limit else StopReason.STREAM_ENDED

    def _allowed_passes(self) -> int:
        """``max_passes``; "auto" is one pass where a second is impossible, or useless: all data are in the state."""
        passes = self.solver.max_passes
        again_possible = self.data.rereadable and self.data.length
        if isinstance(passes, str):  # "auto"
            useless = isinstance(self.contestants[0].racer, WholeRacer)
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

    def leading(self) -> Contestant:
        """The contestant with the strongest evidence."""
        return max(self.contestants, key=lambda c: c.leader.log_evidence)

    def _record(self, best: Contestant | Polish) -> None:
        record, vectors = record_of(self, best)
        self.history.append(record)
        for callback in self.solver.callbacks:
            callback({**record, "position": self.position, "vectors": vectors, "state_bytes": self.state_bytes})
