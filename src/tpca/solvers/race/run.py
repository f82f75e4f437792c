"""A fit by the race, from here: the races for all components, on shared samples.

One race for one component goes through phases (:mod:`tpca.solvers.race.phases`): scale, search, trial, perhaps again,
refinement.  Before the first one begins the noise is learnt where it is to be whitened
(:mod:`tpca.solvers.race.whitening`).

Several components come one after the other, each searched for in what the ones before it leave.  Found components are
subtracted inside the contraction (:class:`tpca.tensors.RankOne`), never from the data.

The next race begins as soon as the last signal is known well, on the same samples that go on refining the ones before,
and each is refined with all others subtracted: that is what keeps components that are not orthogonal from bending each
other.  Only when a good part of stored data has gone by before a signal is found does the next race wait for the end of
the pass, to begin with one of its own.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING

import numpy as np

from tpca.engines import Data
from tpca.randomness import generator
from tpca.solvers.estimate import Estimate
from tpca.solvers.race.phases import Race
from tpca.solvers.race.rounds import Limits
from tpca.solvers.race.whitening import ModeMoments, Noise
from tpca.solvers.rank_one import is_ghost, overlaps
from tpca.solvers.run import Ask, Run
from tpca.tensors import Gradients, RankOne

if TYPE_CHECKING:
    from tpca.solvers.race.solver import RaceSolver

# Share of a pass over stored data that may have gone by when another race begins in the middle of it.
YOUNG = 0.5
MAX_GHOSTS = 3  # races that end with what another one left, before the search for more is given up
# The next race begins when the last component was refined with so many samples, to such an error: what an inaccurate
# one leaves behind would be found as another component, and bend all others (docs/race.md).
MIN_REFINED, WELL = 60, 0.1


class RaceRun(Run):
    """Races for up to ``solver.n_components`` components on shared samples."""

    kept = ("limits", "noise", "races", "state_bytes", "started", "introduced")
    solver: RaceSolver

    def __init__(self, solver: RaceSolver, data: Data) -> None:
        super().__init__(solver)
        self.limits = Limits.of(solver, data)
        self.noise = Noise(solver, data, self.limits.per_pass)
        self.races: list[Race] = []
        self.state_bytes, self.started = 0, 0
        self.introduced: dict[int, int] = {}  # how often the others were told of a race's component: once, and for good
        self._asked: list[tuple[Race, int]] = []
        if not self.noise.wanted:
            self._begin()

    def _begin(self) -> None:
        """The first race: on the samples that the maps were learnt from, if these can be read again, or after them."""
        begins = None if self.limits.stored and self.noise.samples else self.noise.samples
        rng = generator(self.solver.random_state, "race")
        self.races.append(Race(self.limits, self.noise, rng, begins=begins))

    def ask(self) -> Ask[Gradients | ModeMoments] | None:
        """All that the races under way want to know, over as many samples as the one that wants fewest."""
        if not self.races:
            return Ask(self.noise.blank(), self.noise.wanted)
        self._forget_bent()
        while True:
            asks = [(race, ask) for race in self.races if (ask := race.ask(self._beside(race))) is not None]
            last = self.races[-1]
            if self._is_ghost(last):
                self.races.pop()
                if self._enough:
                    continue
            elif not self._next_due():
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

    def tell(self, part: Gradients | ModeMoments) -> None:
        """Hand every race its answers; or learn the maps."""
        if isinstance(part, ModeMoments):
            self.noise.take(part)
            self.state_bytes = part.nbytes + self.noise.nbytes
            self._begin()
            return
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
        held = self.noise.nbytes + sum(race.held for race, _ in self._asked)
        self.state_bytes = max(self.state_bytes, held)

    def close(self) -> None:
        """There will be no more samples."""
        if not self.races:
            self._begin()
        for race in self.races:
            race.close()

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
        found = first.with_others(others, state_bytes=self.state_bytes, history=history)
        unseen = 0 if self.limits.stored else self.noise.samples  # those that only the maps have seen
        return dataclasses.replace(found, n_samples=found.n_samples + unseen)

    def _forget_bent(self) -> None:
        """When a component is found the sums of the others hold it still, and once it is known well, what was wrong.

        Both times those others start over that it bends by more than half their error; the second time it does, too.
        """
        refining = [race for race in self.races if race.refinement is not None and not race.done]
        for race in refining:
            assert race.refinement is not None
            times = self.introduced.get(race.number, 0)
            if times > 1 or (times == 1 and race.refinement.samples < MIN_REFINED):
                continue
            self.introduced[race.number] = times + 1
            for one, other in itertools.permutations(refining, 2):
                if race is one or (race is other and times):
                    _start_over_if_bent(one, other)

    def _beside(self, race: Race) -> tuple[RankOne, ...]:
        """Components that are subtracted from what a race sees.

        A matrix is a sum of parts in many ways, so that any two that were mixed would stay so: there it is the stronger
        ones only, and the strongest comes to the leading singular vectors.
        """
        own = race.component
        others = [r.component for r in self.races if r is not race and r.component is not None]
        if own is not None and len(self.limits.dims) == 2:
            others = [other for other in others if other.strength > own.strength]
        return tuple(others)

    def _is_ghost(self, race: Race) -> bool:
        """Whether a component is only what an inaccurate estimate of another, stronger one leaves."""
        mine = race.component
        others = [other.component for other in self.races if other is not race and other.component is not None]
        return mine is not None and any(
            other.strength >= mine.strength and is_ghost(mine.vectors, other.vectors) for other in others
        )

    @property
    def _enough(self) -> bool:
        """Whether so many races have ended with a ghost that the next would, too: where noise is not white."""
        return self.started >= self.solver.n_components + MAX_GHOSTS

    def _next_due(self) -> bool:
        """Whether the last component is known well, and the pass young enough to begin with the next, or over."""
        last = self.races[-1]
        if len(self.races) >= self.solver.n_components or last.refinement is None or self._enough:
            return False
        if last.done:
            return True
        refined = last.refinement
        well = refined.settled and refined.samples >= MIN_REFINED and refined.error() <= WELL
        return well and (not self.limits.stored or last.position <= YOUNG * self.limits.per_pass)


def _start_over_if_bent(one: Race, other: Race) -> None:
    """Forget the sums of ``other`` if ``one``, which was in them, bends its vectors by more than half their error."""
    if one.component is None or other.component is None or other.refinement is None:
        return
    inner = np.abs(overlaps(one.component.vectors, other.component.vectors))
    overlap = max(float(np.delete(inner, i).prod()) for i in range(len(inner)))
    if one.component.strength * overlap > 0.5 * other.refinement.error() * other.component.strength:
        other.refinement.start_over()
