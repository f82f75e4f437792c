r"""The race: racers propose, leaders are tried, the polish finishes.  Nothing needs to be known or tuned.

Every round takes B = max(1, ⌊0.06 n⌋) fresh samples, the same ones for everybody:

1. each racer names the replicas it wants gradients of, each leader its vectors: all fixed before the samples;
2. the oracle answers; racers add up, leaders take their rewards as evidence (:mod:`tpca.solvers.leader`);
3. a leader with enough evidence is a signal *found*, with error at most 1 − ``confidence`` over the whole run;
4. whenever n has grown by 8 %, each leader looks at its racer's reading, and stays, is refined, or steps down.

When a signal is found and its leader is accurate enough the racers go home, and the polish
(:mod:`tpca.solvers.polish`) uses every further sample until the vectors are as accurate as asked, or the samples end.
If they end before a signal is found: ``NO_SIGNAL``, with an upper limit on the strength.

The first three samples only tell in what units the data come (:mod:`tpca.solvers.probe`).

Several passes (``max_passes`` > 1 on stored data): the last fifth of the data is held out from the racers.  After the
first pass, which is the one-pass race, the main racer repeats whole passes over its part (subspace iteration), and a
reading that has come to rest is tried on the held-out part only.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from scipy.special import ndtri

from tpca.batches import Answer, Query
from tpca.blocks import Array
from tpca.errors import SolverError
from tpca.oracles import Oracle, open_oracle
from tpca.randomness import generator
from tpca.solvers.limits import strength_limit
from tpca.solvers.lineup import Contestant, again, check_partition, line_up
from tpca.solvers.memory import default_memory, held_bytes, parse_memory
from tpca.solvers.polish import Polish, polish_from
from tpca.solvers.probe import Probe
from tpca.solvers.racers.protocol import Part
from tpca.solvers.recovery import Recovery, StopReason

GROWTH = 0.06
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
Callback = Callable[[dict[str, Any]], None]


class RaceSolver:
    """Recover a rank-one signal of unknown strength in unknown noise, in one pass, with bounded memory.

    Parameters
    ----------
    memory
        Bound on the solver's state, bytes or text like ``"64MB"``; by default the smaller of a tenth of the machine's
        memory and four samples' size, but at least 1 MB.
    max_samples, max_passes
        Limits on what is read; passes beyond the first need a re-readable stream.
    confidence
        At most ``1 - confidence`` of all runs on pure noise ever claim a signal.
    tolerance
        Root mean squared error of a vector at which to stop.  ``None``: use all of a finite stream, and leave an
        endless one at 0.1 (1 % squared error).
    partition
        Groups of modes: two for the block flow, as in ``[(0, 1), (2, 3, 4)]``, by default as even as possible; more,
        of one or two modes each, for replicas of such blocks.
    callbacks
        Called after every round with its record and, under ``"vectors"``, the current estimate.
    """

    def __init__(
        self,
        seed: int = 0,
        memory: str | float | None = None,
        max_samples: int | None = None,
        max_passes: int = 1,
        confidence: float = 0.95,
        tolerance: float | None = None,
        partition: Sequence[Sequence[int]] | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        if not 0.0 < confidence < 1.0:
            raise SolverError(f"confidence must lie strictly between 0 and 1, got {confidence}.")
        if tolerance is not None and not tolerance > 0:
            raise SolverError(f"tolerance must be positive, got {tolerance}.")
        if max_samples is not None and max_samples < 1:
            raise SolverError(f"max_samples must be at least 1, got {max_samples}.")
        if max_passes < 1:
            raise SolverError(f"max_passes must be at least 1, got {max_passes}.")
        self.seed = seed
        self.memory = None if memory is None else parse_memory(memory)
        self.max_samples = max_samples
        self.max_passes = max_passes
        self.confidence = confidence
        self.tolerance = tolerance
        self.partition = partition
        self.callbacks = tuple(callbacks)

    def run(self, source: Any) -> Recovery:
        """Race on a stream (or oracle) and return what was found, or that nothing was."""
        return RaceRun(self, open_oracle(source)).finish()


class RaceRun:
    """One run of the race; its state is the contestants and the polish, the rest is accounting."""

    def __init__(self, solver: RaceSolver, oracle: Oracle) -> None:
        self.solver, self.oracle = solver, oracle
        budget = default_memory(oracle.dims) if solver.memory is None else solver.memory
        partition = check_partition(oracle.dims, solver.partition)
        rng = generator(solver.seed, "race")
        self.probe = Probe(oracle.dims, rng)
        # With several passes half of the chance of a false alarm is kept for the passes after the first.
        self._delta = (1 - solver.confidence) / (2 if solver.max_passes > 1 else 1)
        self.contestants = line_up(oracle.dims, budget, partition, self._delta, rng)
        self._reading: tuple[Array, ...] | None = None
        self._rested = False
        self.samples, self.passes, self.state_bytes = 0, 1, 0
        self.per_pass = self._samples_per_pass()
        # With several passes the last part of the data is kept from the racers, so that re-use cannot fool a trial.
        self.racing = int((1 - HELD_OUT) * self.per_pass) if solver.max_passes > 1 else self.per_pass
        self.scale = 1.0  # everybody sees the samples times this; strengths are divided by it at the end
        self._limit = self.racing
        self.history: list[dict[str, Any]] = []
        self._started = time.perf_counter()

    def finish(self) -> Recovery:
        """Search, polish, and say how it ended."""
        while not self.probe.done and self._round([self.probe]):
            pass
        self.scale = self.probe.scale
        winner = self.search()
        if winner is None and self.solver.max_passes > 1:
            self.contestants = [again(self.contestants[0], self._delta)]
        while winner is None and not self._rested and self._next_pass():
            winner = self.search_again()
        if winner is None:
            return self._nothing_found()
        polish = polish_from(winner.leader)
        self.contestants = []
        return self._found(polish, self.polish(polish))

    def search(self) -> Contestant | None:
        """The one-pass race, until a leader is found and accurate or the samples end; ``None`` if nothing was found."""
        look = 0.0
        while self._round([part for c in self.contestants for part in (c.leader, c.racer)]):
            found = [c for c in self.contestants if c.leader.found]
            if found:  # the others have lost: from here on they would only cost memory
                self.contestants = [max(found, key=lambda c: c.leader.log_evidence)]
            best = self._leading()
            self._record("search", best)
            if found and best.leader.accuracy >= ACCURATE:
                return best
            if self.samples >= look:
                look = max(self.samples + 1, LOOK * self.samples)
                for contestant in self.contestants:
                    contestant.leader.consider(contestant.racer)
        return self._try_held_out()

    def search_again(self) -> Contestant | None:
        """A later pass: one step of subspace iteration on the racers' part.

        A reading that has come to rest, or the last one, is tried on the held-out part; every trial raises the bar for
        the next, so that there is no trial of what still moves, nor a second one of the same.
        """
        (contestant,) = self.contestants
        contestant.racer.restart()
        self._round([contestant.racer], size=self.racing)
        before, self._reading = self._reading, contestant.racer.propose().vectors
        rests = before is not None and min(abs(float(v @ w)) for v, w in zip(before, self._reading, strict=True)) > REST
        if not (rests or self.passes == self.solver.max_passes):
            return None
        self._rested = True
        contestant.leader.appoint(contestant.racer)
        self._record("search", contestant)
        return self._try_held_out()

    def _try_held_out(self) -> Contestant | None:
        """Rounds in which the leaders are tried and nobody learns; then the winner, if there is one."""
        self._limit = self.per_pass
        while self._round([c.leader for c in self.contestants]):
            self._record("trial", self._leading())
        best = self._leading()
        return best if best.leader.found else None

    def polish(self, polish: Polish) -> StopReason:
        """Rounds until the vectors are accurate enough and the strength has settled, or the samples end."""
        self._limit = self.per_pass
        tolerance = self.solver.tolerance
        if tolerance is None and self.oracle.endless and self.solver.max_samples is None:
            tolerance = ENDLESS_TOLERANCE
        while tolerance is None or polish.error() > tolerance or not polish.settled:
            if not self._round([polish]):
                return self._why_ended(polish, tolerance)
            self._record("polish", polish)
        return StopReason.ACCURATE

    def _next_pass(self) -> bool:
        """Rewind for another pass, if one is allowed and there is anything to rewind."""
        if self.passes >= self.solver.max_passes:
            return False
        self.oracle.rewind()
        self.passes, self.samples, self._limit = self.passes + 1, 0, self.racing
        return True

    def _round(self, parts: Sequence[Part], size: float | None = None) -> bool:
        """The next B samples for all parts; false when there are none left."""
        size = min(max(1, int(GROWTH * self.samples)) if size is None else size, self._limit - self.samples)
        if size < 1:
            return False
        asked = [part.queries() for part in parts]
        answered = self.oracle.mean([query for queries in asked for query in queries], int(size), self.scale)
        if answered.n == 0:
            return False
        self.samples += answered.n
        self._note_state(parts, asked, answered.answers)
        answers = iter(answered.answers)
        for part, queries in zip(parts, asked, strict=True):
            part.absorb(tuple(itertools.islice(answers, len(queries))), answered.n)
        return True

    def _samples_per_pass(self) -> float:
        """The smaller of ``max_samples`` and the stream's length; infinite when neither is known."""
        if self.solver.max_passes > 1 and not (self.oracle.rereadable and self.oracle.length):
            raise SolverError(
                f"max_passes={self.solver.max_passes} needs samples that can be read again, such as an array; "
                "use max_passes=1 for a stream that is gone once read."
            )
        limits = (self.solver.max_samples, self.oracle.length)
        return min((limit for limit in limits if limit is not None), default=math.inf)

    @property
    def distinct(self) -> int:
        """Samples consumed, those of later passes not counted again."""
        return self.samples if self.passes == 1 else int(self.per_pass)

    def _leading(self) -> Contestant:
        """The contestant with the strongest evidence."""
        return max(self.contestants, key=lambda c: c.leader.log_evidence)

    def _note_state(self, parts: Sequence[Part], asked: Sequence[tuple[Query, ...]], answers: Sequence[Answer]) -> None:
        """State right now: arrays of all parts, replicas made for queries, answers in flight, working copies.

        Parts absorb one after the other, so that only the largest working copy counts.
        """
        held = [array for part in parts for array in part.arrays().values()]
        made = [block for queries in asked for query in queries for block in query.replicas]
        in_flight = sum(a.nbytes for a in answers) + max(part.working_bytes for part in parts)
        self.state_bytes = max(self.state_bytes, held_bytes([*held, *made]) + in_flight)

    def _record(self, phase: str, best: Contestant | Polish) -> None:
        """What a reader of the race wants to know of a round; vectors go to the callbacks only."""
        record: dict[str, Any] = {
            "phase": phase,
            "pass": self.passes,
            "samples": self.samples,
            "seconds": time.perf_counter() - self._started,
        }
        if isinstance(best, Contestant):
            leader, vectors = best.leader, best.leader.vectors
            record |= {"leader": best.name, "tenure": leader.tenure, "log_evidence": leader.log_evidence}
            record |= {"found": leader.found, "strength": leader.strength / self.scale}
        else:
            vectors = best.vectors
            record |= {"leader": "polish", "found": True, "strength": best.strength / self.scale, "error": best.error()}
        self.history.append(record)
        for callback in self.solver.callbacks:
            callback({**record, "vectors": vectors})

    def _why_ended(self, polish: Polish, tolerance: float | None) -> StopReason:
        if polish.error() > (POOR if tolerance is None else tolerance):
            return StopReason.NOT_ACCURATE
        limit = self.solver.max_samples
        return StopReason.MAX_SAMPLES if limit is not None and self.samples >= limit else StopReason.STREAM_ENDED

    def _found(self, polish: Polish, reason: StopReason) -> Recovery:
        strength = polish.strength / self.scale
        half = float(ndtri(0.5 + self.solver.confidence / 2)) * polish.strength_error / self.scale
        return self._recovery(
            polish.vectors,
            strength,
            reason,
            standard_errors=polish.standard_errors(),
            strength_interval=(max(0.0, strength - half), strength + half),
        )

    def _nothing_found(self) -> Recovery:
        best = self._leading().leader
        delta, racer = 1 - self.solver.confidence, self.contestants[0].racer
        limit = strength_limit(self.oracle.dims, racer, self.distinct, best.sigma / self.scale, delta)
        return self._recovery(best.vectors, math.nan, StopReason.NO_SIGNAL, strength_interval=(0.0, limit))

    def _recovery(self, vectors: tuple[Array, ...], strength: float, reason: StopReason, **more: Any) -> Recovery:
        return Recovery(
            vectors=vectors,
            strength=strength,
            n_samples=self.distinct,
            n_passes=self.passes,
            state_bytes=self.state_bytes,
            buffer_bytes=self.oracle.buffer_bytes,
            stop_reason=reason,
            history=self.history,
            **more,
        )
