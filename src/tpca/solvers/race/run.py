r"""The race: strategies propose, candidates are tried, the refinement finishes.  Nothing needs to be known or tuned.

A :class:`Race` for one component goes through phases:

==========  ====================================================  ===============================================
phase       the next samples go to                                it ends
==========  ====================================================  ===============================================
scale       the probe (:mod:`tpca.solvers.race.noise`)            after three samples: search
search      all strategies and candidates                         found and accurate: refinement; no more: trial
trial       the candidates only (the held-out part, if any)       found: refinement; else, or not accurate: again
again       the climbs and the main strategy, a pass at once      climbs at rest: trial; else: again
refinement  the refinement                                        accurate as asked, or no more: done
==========  ====================================================  ===============================================

Every round takes B = max(1, ⌊0.06 n⌋, min(max(4, ⌊2²⁰/D⌋), max(⌊n/8⌋, min(4, ⌊n/4⌋)))) fresh samples
of D entries, the same ones for everybody (:mod:`tpca.solvers.race.rounds`).  In the search

1. each strategy names the replicas it wants gradients of (:mod:`tpca.solvers.race.strategies`), each candidate its
   vectors: all fixed before the samples;
2. the engine reads the samples into mean gradients and rewards; strategies add up the gradients, candidates take their
   rewards as evidence (:mod:`tpca.solvers.race.candidate`);
3. a candidate with enough evidence is a signal *found*, with error at most 1 − ``confidence`` over the whole run;
4. whenever n has grown by 8 %, each candidate looks at its strategy's proposal: it is refined, or replaced by it.

Then the refinement (:mod:`tpca.solvers.race.refinement`) uses every further sample, until the vectors are as accurate
as asked, or the samples end.  If they end before a signal is found: ``NO_SIGNAL``, with an upper limit on the strength.

**Later passes.**  With ``max_passes`` > 1 the last fifth of stored data is held out from the strategies, which read the
rest again, and vectors climb on it; what they come to is tried on the held-out part.  Where memory is small this halves
the samples that are needed (10⁴ in 12 kB, 200 samples of strength 1: 8 of 12 signals are found, none in one pass;
without the climbs 5, without the strategy 3).  A signal that the first pass has found with vectors that are not
accurate is ``standing``: a refinement that waits, and goes on where the better vectors prove nothing.

**Several components** (:class:`RaceRun`) come one after the other, each searched for in what the ones before it leave.
Found components are subtracted inside the contraction (:class:`tpca.tensors.RankOne`), never from the data.  The next
race begins as soon as the last signal is known well, on the same samples that go on refining the ones before, and each
is refined with all others subtracted: that keeps components that are not orthogonal from bending each other.  Only when
a good part of stored data has gone by before a signal is found does the next race wait for the end of the pass, to
begin with one of its own.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tpca.checkpoint import kept
from tpca.engines import Data
from tpca.errors import PartitionError, SampleError, SolverError, StreamError, check_integer
from tpca.inference.design import Design
from tpca.randomness import generator
from tpca.solvers.estimate import Estimate, StopReason
from tpca.solvers.options import (
    ClaimingSolver,
    check_passes,
    check_positive,
    default_memory,
    held_bytes,
    option,
)
from tpca.solvers.race.candidate import Candidate, Part
from tpca.solvers.race.contrasts import contrasts
from tpca.solvers.race.noise import Noise, Probe, part_floats
from tpca.solvers.race.refinement import Refinement
from tpca.solvers.race.replicas import Climbs
from tpca.solvers.race.rounds import FEW_SUB_BATCHES, round_size, strength_limit, sub_batch_edges
from tpca.solvers.race.strategies import candidates_within, refinement_floats, sub_batches_within
from tpca.solvers.rank_one import is_ghost, overlaps, positive
from tpca.solvers.run import Ask, Run
from tpca.tensors import Answer, Gradients, Query, RankOne
from tpca.tensors.blocks import Array, Partition

# A candidate hands over to the refinement when found and (signal² · samples)/d is at least this: overlap² about 0.9.
ACCURATE = 8.0
LOOK = 1.08  # samples over those at the last look at proposals: making one costs more than a round itself
CLAIMS_FROM = 32  # no claim before this sample, or half of the data: whether neighbours are alike is known by then
# Sub-batches of a round: none can win more than a factor of two, and each costs a look at the sum of the samples.
# Many where some candidate has evidence above HOPE and nothing is proven, for there a round may say much (of z²/2 = 3
# nats 4 sub-batches win 1.7, 16 2.5, 32 2.7); few in all other rounds, which are most, and as good for what says little
# (z²/2 = 0.5: 0.45).
HOPE = 0.5
HELD_OUT = 0.2  # share of the data that strategies never see when there are several passes
AUTO_PASSES = 10  # that max_passes="auto" allows where they can help
ENDLESS_TOL = 0.1  # root mean squared error of every vector at which an endless stream is left: squared error 1 %
POOR = 0.45  # a root mean squared error above this is worth a warning: overlap below 0.9
ROUNDINGS = 8.0  # of a sum, by which sub-batches of samples that are all the same differ at most: 5.5 was seen
WILD = 2.0**200  # rewards in units of the noise: the race forms their fourth powers, times numbers of samples

# Share of a pass over stored data that may have gone by when another race begins in the middle of it.
YOUNG = 0.5
MAX_GHOSTS = 3  # races that end with what another one left, before the search for more is given up
# The next race begins when the last component was refined with so many samples, to such an error: what an inaccurate
# one leaves behind would be found as another component, and bend all others (docs/race.md).
MIN_REFINED, WELL = 60, 0.1


@dataclass(kw_only=True, eq=False)
class RaceSolver(ClaimingSolver):
    """Recover a rank-one signal of unknown strength in unknown noise, in one pass, with bounded memory.

    Parameters
    ----------
    random_state
        Seed of the random starts.
    memory_limit
        Bound on the solver's state, bytes or text like ``"64MB"``; by default the smaller of a tenth of the machine's
        memory and four samples' size, but at least 1 MB.
    max_samples, max_passes
        Limits on what is read; passes beyond the first need a re-readable stream.  ``"auto"`` allows ten where they
        can help.
    confidence
        At most ``1 - confidence`` of all runs on pure noise ever claim a signal.
    tol
        Root mean squared error of a vector at which to stop.  ``None``: use all of a finite stream, and leave an
        endless one at 0.1 (1 % squared error).
    partition
        Two groups of modes for the block flow, as in ``[(0, 1), (2, 3, 4)]``; by default as even as possible.
    n_components
        Components to look for, each in what those before it leave.
    groups
        Samples that belong together, the next of which begin a new group: they count as one observation.
    callbacks
        Called after every round with its record and, under ``"vectors"``, the current estimate.
    checkpoint, checkpoint_every, resume
        Folder for checkpoints, and seconds between them (0: after every round).  With ``resume`` the run goes on from
        the last one there; on stored data it ends with the same bits as a run that was never interrupted.
    """

    name: ClassVar[str] = "race"

    groups: int | None = option(None, check_integer)
    max_passes: int | str = option(1, check_passes)
    tol: float | None = option(None, check_positive)
    partition: Sequence[Sequence[int]] | None = option(None)

    def start(self, data: Data) -> Run:
        """A race for every component, one after the other."""
        if data.partial:
            raise SolverError("the race takes no missing entries; use nan_policy='omit', or solver='least_squares'.")
        if len(data.dims) < 2:
            raise SolverError(
                f"the race needs samples with two axes or more, got {data.dims}; use solver='least_squares'."
            )
        return RaceRun(self, data)

    def run(self, source: Any, design: Design | None = None) -> Estimate:
        """Read a stream (or engine) as far as needed; with a ``design``, for the effect of its y."""
        if design is None or design.plain:
            return super().run(source)
        stream = contrasts(source, design, self.max_samples)
        solver = dataclasses.replace(self, max_samples=stream.length)
        return stream.told(ClaimingSolver.run(solver, stream))

    def budget(self, dims: Sequence[int]) -> int:
        """Bytes that the state may take for samples of shape ``dims``."""
        return default_memory(dims) if self.memory_limit is None else int(self.memory_limit)

    def settings(self) -> dict[str, Any]:
        """What a run depends on besides its data, as plain values."""
        groups = None if self.partition is None else [[int(n) for n in group] for group in self.partition]
        return {**super().settings(), "partition": groups}


@kept
class Limits:
    """What all races of a run share: plain values of a solver's options and of its data.

    ``per_pass`` is the smaller of ``max_samples`` and the stream's length, infinite when neither is known; ``watched``:
    whether dependence of neighbours is looked for, as nobody gave ``groups``.
    """

    def __init__(self, solver: RaceSolver, data: Data) -> None:
        self.dims, self.stored = tuple(data.dims), data.rereadable and data.length is not None
        self.confidence, self.n_components, self.watched = solver.confidence, solver.n_components, solver.groups is None
        self.max_samples, self.max_passes = solver.max_samples, solver.max_passes
        self.per_pass = min((n for n in (solver.max_samples, data.length) if n is not None), default=math.inf)
        endless = solver.tol is None and data.endless and solver.max_samples is None
        self.tol = ENDLESS_TOL if endless else solver.tol
        self.partition: Partition | None = None
        if solver.partition is not None:
            self.partition = Partition(self.dims, tuple(tuple(group) for group in solver.partition))
            if len(self.partition) != 2:
                raise PartitionError(f"partition must have two groups of axes, got {self.partition.groups}.")
            if self.partition.sizes[0] > self.partition.sizes[1]:
                self.partition = Partition(self.dims, self.partition.groups[::-1])
        if not isinstance(self.max_passes, str) and self.max_passes > 1 and not self.stored:
            raise SolverError(
                f"max_passes={self.max_passes} needs samples that can be read again, such as an array; "
                "use max_passes=1 for a stream that is gone once read."
            )


class RaceRun(Run):
    """Races for up to ``solver.n_components`` components on shared samples."""

    kept = ("limits", "noise", "races", "state_bytes", "started")
    solver: RaceSolver

    def __init__(self, solver: RaceSolver, data: Data) -> None:
        super().__init__(solver)
        self.limits = Limits(solver, data)
        self.noise = Noise(solver, data)
        self.races = [Race(self.limits, self.noise, generator(solver.random_state, "race"))]
        self.state_bytes, self.started = 0, 0
        self._asked: list[tuple[Race, int]] = []

    def ask(self) -> Ask[Gradients] | None:
        """All that the races under way want to know, over as many samples as the one that wants fewest."""
        self._forget_bent()
        while True:
            asks = [(race, ask) for race in self.races if (ask := race.ask(self._beside(race))) is not None]
            last = self.races[-1]
            # Where noise is not white races may end with one ghost after the other.
            enough = self.started >= self.solver.n_components + MAX_GHOSTS
            if self._is_ghost(last):
                self.races.pop()
                if enough:
                    continue
            elif enough or not self._next_due(last):
                break
            self.started += 1
            begins = None if last.done and self.limits.stored else last.position
            rng = generator(self.solver.random_state, f"race {self.started}")
            self.races.append(Race(self.limits, self.noise, rng, self.started, self.races[0].scale, begins))
        if not asks:
            return None
        self._asked = [(race, len(ask.blank.queries)) for race, ask in asks]
        queries = tuple(query for _, ask in asks for query in ask.blank.queries)
        n = min(ask.n for _, ask in asks)
        # Sub-batches: no more than refinements have room for; else as the race wants that has most.
        refining = [race.edges(n) for race, _ in asks if race.refinement is not None]
        edges = min(refining, key=len) if refining else max((race.edges(n) for race, _ in asks), key=len)
        return Ask(Gradients(queries, asks[0][1].blank.scale, edges), n, any(ask.rewind for _, ask in asks))

    def tell(self, part: Gradients) -> None:
        """Hand every race its answers."""
        answers = iter(part.answers)
        for race, count in self._asked:
            race.tell(tuple(itertools.islice(answers, count)), part.n)
        del answers
        part.answers = ()  # their memory is for what happens between rounds
        for race, _ in self._asked:
            before = len(race.history)
            race.go_on(part.n)
            if self.solver.callbacks and len(race.history) > before:
                shown = {"position": race.position, "vectors": race.vectors, "state_bytes": race.held}
                self.call({**race.history[-1], **shown})
        held = sum(race.held for race, _ in self._asked)
        self.state_bytes = max(self.state_bytes, held)

    def close(self) -> None:
        """There will be no more samples."""
        for race in self.races:
            while not race.done:
                race.end_phase()

    def estimate(self) -> Estimate:
        """All components, strongest first; or that there is none.

        Those after one that came to nothing were searched for in what it left, and go with it.
        """
        ended: list[Estimate] = []
        for race in self.races:
            if not self._is_ghost(race):
                ended.append(race.estimate())
                if not ended[-1].found:
                    break
        first, *others = sorted((r for r in ended if r.found), key=lambda r: -r.strength) or ended[:1]
        history = [{**record, "component": c} for c, r in enumerate((first, *others)) for record in r.history]
        return first.with_others(others, state_bytes=self.state_bytes, history=history)

    def _forget_bent(self) -> None:
        """When a component is found the sums of the others hold it still, and once it is known well, what was wrong.

        Both times those others start over that it bends by more than half their error; the second time it does, too.
        """
        refining = [
            (race, race.component, race.refinement)
            for race in self.races
            if race.component is not None and race.refinement is not None and not race.done
        ]
        for race, _, own in refining:
            times = race.introduced
            if times > 1 or (times == 1 and own.samples < MIN_REFINED):
                continue
            race.introduced += 1
            for (one, bending, _), (other, bent, sums) in itertools.permutations(refining, 2):
                if race is one or (race is other and times):
                    inner = np.abs(overlaps(bending.vectors, bent.vectors))
                    overlap = max(float(np.delete(inner, i).prod()) for i in range(len(inner)))
                    if bending.strength * overlap > 0.5 * sums.error() * bent.strength:
                        sums.start_over()

    def _others(self, race: Race) -> list[RankOne]:
        """Components of all other races, as they are known now."""
        return [r.component for r in self.races if r is not race and r.component is not None]

    def _beside(self, race: Race) -> tuple[RankOne, ...]:
        """Components that are subtracted from what a race sees.

        A matrix is a sum of parts in many ways, so that any two that were mixed would stay so: there it is the stronger
        ones only, and the strongest comes to the leading singular vectors.
        """
        least = -math.inf if race.component is None or len(self.limits.dims) > 2 else race.component.strength
        return tuple(other for other in self._others(race) if other.strength > least)

    def _is_ghost(self, race: Race) -> bool:
        """Whether a component is only what an inaccurate estimate of another, stronger one leaves."""
        own = race.component
        return own is not None and any(
            other.strength >= own.strength and is_ghost(own.vectors, other.vectors) for other in self._others(race)
        )

    def _next_due(self, last: Race) -> bool:
        """Whether the last component is known well, and the pass young enough to begin with the next, or over."""
        refined = last.refinement
        if len(self.races) >= self.solver.n_components or refined is None:
            return False
        well = refined.settled and refined.samples >= MIN_REFINED and refined.error() <= WELL
        young = not self.limits.stored or last.position <= YOUNG * self.limits.per_pass
        return last.done or (well and young)


@kept
class Race:
    """The race for one component: the phase it is in, who is at work, and accounting.

    A race with a ``number`` above 0 is one for a further component: it takes over the ``scale`` of the first, and
    ``begins`` when so many samples of the pass have gone by, or (``None``) with a new pass.  The ``noise`` is shared by
    all races.
    """

    def __init__(
        self,
        limits: Limits,
        noise: Noise,
        rng: np.random.Generator,
        number: int = 0,
        scale: float | None = None,
        begins: int | None = 0,
    ) -> None:
        self.limits, self.noise, self.number = limits, noise, number
        self.sub_batches = sub_batches_within(limits.dims, noise.limit, limits.n_components)
        self.probe = Probe(limits.dims, rng)
        # What fits into the memory that refining other components leaves.
        refining = min(number, limits.n_components - 1)
        taken = 8 * refinement_floats(limits.dims, self.sub_batches) * refining
        if refining:  # the probe has as many sub-batches as these, then
            taken += 8 * part_floats(limits.dims, self.sub_batches)
        left = noise.limit - taken
        self.candidates = candidates_within(limits.dims, left, limits.partition, 1 - limits.confidence, rng)
        # "auto" is one pass where a second is impossible, or useless: all data are in the state.
        helps = limits.stored and self.candidates[0].strategy.name != "whole"
        auto = AUTO_PASSES if helps else 1
        self.max_passes = auto if isinstance(limits.max_passes, str) else limits.max_passes
        for candidate in self.candidates if self.max_passes > 1 else ():
            candidate.delta /= 2  # half of the chance of a false alarm is kept for the passes after the first
        # With several passes the last part of the data is kept from the strategies, so that re-use cannot fool a trial.
        self.racing = int((1 - HELD_OUT) * limits.per_pass) if self.max_passes > 1 else limits.per_pass
        self.claims_from = 0 if number else int(min(CLAIMS_FROM, limits.per_pass // 2))  # later ones have waited
        self.phase = "scale" if scale is None else "search"
        self.reason = StopReason.NO_SIGNAL
        self.refinement: Refinement | None = None
        self.standing: Refinement | None = None
        self.claimed: tuple[float, float] | None = None  # what the claim rests on, once there is one
        self.climbs: Climbs | None = None
        self.next_look, self.rested = 0.0, False  # rested: what is on trial would not get better
        self.samples, self.passes, self.held = 0, 1, 0  # held: bytes of state in the last round
        self.scale = 1.0 if scale is None else scale  # everybody sees the samples times this
        self.history: list[dict[str, Any]] = []
        self.begins, self.rewind, self.limit = begins or 0, begins is None, self.racing
        self.before = 0  # samples of the passes before this one
        self.introduced = 0  # how often the others were told of its component
        self.differ: bool | None = None  # whether samples do; None: nobody knows
        self._asked: list[tuple[Part, tuple[Query, ...]]] = []  # what the data were asked, and for whom

    def ask(self, others: Sequence[RankOne] = ()) -> Ask[Gradients] | None:
        """What the next samples are needed for; ``None`` when the race is over.

        ``others`` are other components, subtracted from what this race sees.
        """
        while not self.done:
            usual = round_size(self.samples, self.noise.block, math.prod(self.limits.dims))
            wanted = self.racing if self.phase == "again" else 0 if self._accurate else usual
            size = int(max(0, min(wanted, self.limit - self.position)))
            if size < 1:
                self.end_phase()
                continue
            deflate = tuple(RankOne(c.strength * self.scale, c.vectors) for c in others)
            edges = self.edges(size)
            self.probe.sub_batches = len(edges)
            self._asked = []
            for part in self._parts():
                queries = tuple(dataclasses.replace(query, deflate=deflate) for query in part.queries())
                self._asked.append((part, queries))
            asked = tuple(query for _, queries in self._asked for query in queries)
            return Ask(Gradients(asked, self.scale, edges), size, self.rewind)
        return None

    def _parts(self) -> list[Part]:
        """Who gets the next samples."""
        if self.phase == "scale":
            return [self.probe]
        if self.phase == "search":
            parts: list[Part] = [part for c in self.candidates for part in (c, c.strategy)]
            return [*parts, self.probe] if self.probe.done and self.limits.watched else parts
        if self.phase == "again":
            assert self.climbs is not None
            return [self.climbs] if self.standing is not None else [self.climbs, self.candidates[0].strategy]
        return [*self.candidates] if self.refinement is None else [self.refinement]

    def edges(self, n: int) -> tuple[int, ...]:
        """Where the sub-batches of a round of ``n`` samples begin: known before it, as evidence needs it."""
        if self.refinement is not None:
            return sub_batch_edges(n, self.noise.block, self.sub_batches)
        hope = self.phase == "trial" or any(candidate.wealth.log > HOPE for candidate in self.candidates)
        if hope and not any(candidate.found for candidate in self.candidates):
            return sub_batch_edges(n, self.noise.block)
        return sub_batch_edges(n, self.noise.block, FEW_SUB_BATCHES)

    def tell(self, answers: tuple[Answer, ...], n: int) -> None:
        """Take the answers to this race's queries over ``n`` samples; :meth:`go_on` when nobody holds them any more."""
        self.rewind = False
        asked, self._asked = self._asked, []
        if n == 0:
            return
        for answer in answers:
            parts = answer.by_part
            if parts is None:
                continue
            largest = float(np.max(np.abs(parts.rewards)))
            if not largest < WILD:
                raise SampleError(
                    f"samples {self.position} to {self.position + n - 1} of this pass hold values so far beyond those "
                    f"before, about {1 / self.scale:.0e}, that products overflow; leave such samples out, or divide "
                    "all of them by some power of ten."
                )
            if not self.differ and len(parts.rewards) > 1:
                size = max(float(np.linalg.norm(g)) for g in answer.gradients.values())  # a reward may be next to 0
                self.differ = bool(np.ptp(parts.rewards) > ROUNDINGS * parts.rounding * size)
        self.samples += n
        self.held = round_bytes(asked, answers)
        left = iter(answers)
        for part, queries in asked:
            part.absorb(tuple(itertools.islice(left, len(queries))), n)

    def go_on(self, n: int) -> None:
        """What happens between two rounds; no samples: they have ended."""
        if n == 0 or (self.phase == "scale" and self.probe.done):
            self.end_phase()
        elif self.phase == "search":
            self._look()
        elif self.phase == "again":
            self._climbed()
        elif self.phase != "scale":
            self._record()

    def _look(self) -> None:
        """Hand over to the refinement as soon as a signal is found and accurate; now and then, look at proposals."""
        if block := self.probe.block():
            self.noise.block = block
            for candidate in self.candidates:
                candidate.forget_evidence()
        self._record()
        best = self.leading()
        if self._is_found(best) and best.accuracy >= ACCURATE:
            self._refine(self._claim(best))
        elif self.samples >= self.next_look:
            self.next_look = max(self.samples + 1, LOOK * self.samples)
            for candidate in self.candidates:
                candidate.consider()

    def _climbed(self) -> None:
        """After a pass: what has come to rest, or the last pass left, is tried on the held-out part.

        Every trial raises the bar for the next, so there is none of what still moves, nor a second one of the same.
        """
        assert self.climbs is not None
        (candidate,), best = self.candidates, self.climbs.propose()
        if self.standing is None and (look := candidate.strategy.read()) is not None:
            self.climbs.challenge(look.propose())
        if not self.climbs.rest and self.passes < self.max_passes:
            self._read_again()
            return
        candidate.install(best)
        self._record()
        self.phase, self.limit, self.rested = "trial", self.limits.per_pass, True

    def _read_again(self) -> None:
        """The next pass: one step of the climbs, and one of subspace iteration, on the strategies' part."""
        self.phase, self.limit, self.before = "again", self.racing, max(self.before, self.position)
        self.passes, self.samples, self.begins, self.rewind = self.passes + 1, 0, 0, True
        self.candidates[0].strategy.restart()

    def end_phase(self) -> None:
        """The samples of this phase have ended: the phase after it."""
        if self.phase == "scale":
            self.phase, self.scale = "search", self.probe.scale
        elif self.phase == "search":  # what is left of the data, if some was held out, is for the candidates
            self.phase, self.limit = "trial", self.limits.per_pass
        elif self.phase == "refinement":
            assert self.refinement is not None
            limited = self.limits.max_samples is not None and self.position >= self.limits.max_samples
            self.reason = StopReason.MAX_SAMPLES if limited else StopReason.STREAM_ENDED
            if self._accurate:
                self.reason = StopReason.ACCURATE
            elif self.vector_error() > (self.limits.tol or POOR):
                self.reason = StopReason.NOT_ACCURATE
            self.phase = "done"
        else:
            self._judge()

    def _judge(self) -> None:
        """All samples have been tried on: a signal, none, or another pass."""
        best, main = self.leading(), self.candidates[0]
        found, over = self._is_found(best), self.rested or self.phase == "again" or self.passes >= self.max_passes
        look = None if over or (found and best.accuracy >= ACCURATE) else main.strategy.read()
        if look is not None:
            # None of this may depend on samples of the held-out part, on which what comes of it will be tried.
            self.climbs = Climbs([best.vectors, look.propose()])
            self.standing = self._claim(best) if found else None
            main.delta, main.attempt, self.candidates = (1 - self.limits.confidence) / 2, 0, [main]
            main.forget_evidence()
            self._read_again()
        elif found:
            self._refine(self._claim(best))
        elif self.standing is not None:
            self._refine(self.standing)
        else:
            self.phase = "done"

    def _claim(self, best: Candidate) -> Refinement:
        """A signal is found: note what that rests on.

        At the end of the samples of the first pass the candidate has a last look at all of them.
        """
        self.claimed = best.evidence
        if self.passes == 1 and self.phase == "trial":
            look = best.strategy.read()
            assert look is not None
            best.refine(look, best.vectors)
        return Refinement(best)

    def _refine(self, refinement: Refinement) -> None:
        """The refinement begins; the strategies go."""
        self.phase, self.limit = "refinement", self.limits.per_pass
        self.refinement, self.candidates, self.climbs = refinement, [], None

    @property
    def done(self) -> bool:
        """Whether it is over."""
        return self.phase == "done"

    @property
    def component(self) -> RankOne | None:
        """The signal as it is known now; ``None`` before it is found and accurate."""
        if self.refinement is None:
            return None
        return RankOne(self.refinement.strength / self.scale, self.refinement.vectors)

    @property
    def vectors(self) -> tuple[Array, ...]:
        """The best vectors so far."""
        return (self.refinement or self.leading()).vectors

    @property
    def position(self) -> int:
        """Samples of this pass that have gone by."""
        return self.begins + self.samples

    def _is_found(self, candidate: Candidate) -> bool:
        """Whether a signal is proven, and may be claimed by now."""
        return candidate.found and self.position >= self.claims_from

    def leading(self) -> Candidate:
        """The candidate with the strongest evidence; of several that have found a signal that with the largest reward.

        A larger reward is one of better vectors.  The others go on until the refinement begins: a claim may be luck,
        and they must not have been dropped for it.
        """
        if found := [c for c in self.candidates if self._is_found(c)]:
            return max(found, key=lambda c: c.strength)
        return max(self.candidates, key=lambda c: c.wealth.log)

    def vector_error(self) -> float:
        """Root mean squared error of the least certain vector."""
        assert self.refinement is not None
        return max(float(np.linalg.norm(e)) for e in self.refinement.standard_errors(False))

    @property
    def _accurate(self) -> bool:
        """Whether the vectors are as accurate as asked, and the strength has settled."""
        tol, known = self.limits.tol, self.refinement
        return tol is not None and known is not None and known.settled and self.vector_error() <= tol

    def _record(self) -> None:
        """Keep a record of the round."""
        phase = "search" if self.phase == "again" else self.phase
        record = {"component": self.number, "phase": phase, "pass": self.passes, "samples": self.samples}
        known = self.refinement or self.leading()
        if isinstance(known, Candidate):
            record |= {"candidate": known.strategy.name, "found": self._is_found(known)}
            record |= {"log_evidence": known.wealth.log, "needed": known.needed}
        else:
            record |= {"candidate": "refinement", "found": True, "error": self.vector_error()}
        record |= {"strength": known.strength / self.scale, "strength_error": known.strength_error / self.scale}
        self.history.append(record)

    def estimate(self) -> Estimate:
        """What was found, or that nothing was, in the units of the data.

        Where all samples are the same there is no noise to tell a signal from, and nothing is said; of zeros, that
        there is no signal.
        """
        refined = self.refinement
        if refined is not None and self.differ is False:
            raise StreamError(
                "all samples are the same: there is no noise to tell a signal from; give samples that differ."
            )
        known, advice = refined or self.leading(), []
        if self.limits.watched and self.noise.block > 1:
            advice.append(f"Neighbouring samples are alike: every {self.noise.block} in a row count as one.")
        most, needed = self.claimed or self.leading().evidence
        if refined is not None:  # bets go on while the vectors are refined
            most = refined.wealth.proof if refined.slow else max(most, refined.wealth.proof)
            advice += refined.advice()
        # Bets against "no signal" share one unit among all candidates: attempt k of one of error share δ_l begins with
        # δ_l/(δ k(k + 1)) of it, and has won exp(log E − needed)/δ.  By Ville's inequality the chance that this ever
        # comes to e on pure noise is at most 1/e, which is the p-value.
        log_e = most - needed - math.log(1 - self.limits.confidence)
        return Estimate.of_one(
            solver="race",
            vectors=positive(self.vectors, refined.strength if refined else 1.0)[0],
            noise_level=known.sigma / self.scale,
            p_value=math.exp(-max(0.0, log_e)),
            e_value=math.exp(min(log_e, 700.0)),
            n_samples=max(self.before, self.samples),
            n_passes=self.passes,
            state_bytes=self.held,
            advice=tuple(advice),
            history=self.history,
            **{"stop_reason": self.reason, **self._strength()},
        )

    def _strength(self) -> dict[str, Any]:
        """The strength, its intervals, and the errors of the vectors; or that there is none, and what may be hidden."""
        limits, refined = self.limits, self.refinement
        none = {"strength": 0.0, "stop_reason": StopReason.NO_SIGNAL}
        if refined is None:  # the strength that the search would have found, in the loudest noise that it has met
            counted = max(self.before, self.samples) // self.noise.block if self.position >= self.claims_from else 0
            main, loudest = self.candidates[0].strategy, max(candidate.loudest for candidate in self.candidates)
            reach = strength_limit(limits.dims, main.name, main.size, counted, 1 - limits.confidence)
            unit = loudest / self.scale if math.isfinite(reach) else 1.0
            return {**none, "strength_interval": (0.0, unit * reach)}
        strength = abs(refined.strength)
        errors = refined.standard_errors()
        unit = 1 / self.scale
        halves = [refined.reach(limits.confidence, always) for always in (False, True)]
        interval, sequence = ((unit * max(0.0, strength - half), unit * (strength + half)) for half in halves)
        if refined.failed:
            return {**none, "strength_interval": (0.0, interval[1])}
        return {
            "strength": unit * strength,
            "strength_interval": interval,
            "strength_sequence": sequence,
            "standard_errors": tuple(e * min(1.0, math.sqrt(2) / (float(np.linalg.norm(e)) or 1.0)) for e in errors),
        }


def round_bytes(asked: Sequence[tuple[Part, tuple[Query, ...]]], answers: Sequence[Answer]) -> int:
    """State in the middle of a round: arrays of all parts, replicas made for queries, answers, working copies.

    Parts absorb one after the other, so that only the largest working copy counts.
    """
    held = [array for part, _ in asked for array in part.arrays()]
    made = [block for _, queries in asked for query in queries for block in query.replicas]
    in_flight = sum(answer.nbytes for answer in answers) + max(part.working_bytes for part, _ in asked)
    return held_bytes([*held, *made]) + in_flight
