"""Several components, one after the other, each searched for in what the ones before it leave.

Found components are subtracted inside the contraction (:class:`tpca.tensors.RankOne`), never from the data.

The next race begins as soon as the last signal is found, on the same samples that go on refining the ones before, and
each is refined with all others subtracted: that is what keeps components that are not orthogonal from bending each
other.  Only when a good part of stored data has gone by before a signal is found does the next race wait for the end of
the pass, to begin with one of its own.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tpca.engines import Data
from tpca.solvers.claim import flaws
from tpca.solvers.loop import Ask
from tpca.solvers.race.noise import RaceNoise
from tpca.solvers.race.refine import Refinement
from tpca.solvers.race.run import RaceRun
from tpca.solvers.race.strategies.choice import check_partition, least_bytes, refinement_floats
from tpca.solvers.rank_one import is_ghost, overlaps
from tpca.solvers.recovery import Recovery
from tpca.tensors import Accumulator, Gradients, RankOne, Together

if TYPE_CHECKING:
    from tpca.solvers.race.solver import RaceSolver

# Share of a pass over stored data that may have gone by when another race begins in the middle of it.
YOUNG = 0.5
MAX_GHOSTS = 3  # races that end with what another one left, before the search for more is given up
# The next race begins when the last component was refined with so many samples, to such an error: what an inaccurate
# one leaves behind would be found as another component, and bend all others (docs/race.md).
MIN_REFINED, WELL = 60, 0.1


class ComponentsRun:
    """Races for up to ``solver.n_components`` components on shared samples."""

    def __init__(self, solver: RaceSolver, data: Data) -> None:
        self.solver, self.data = solver, data
        least = least_bytes(data.dims, check_partition(data.dims, solver.partition))
        self.noise = RaceNoise(solver, data, least, 8 * refinement_floats(data.dims) * (solver.n_components - 1))
        self.runs = [RaceRun(solver, data, self.noise)]
        self.state_bytes, self.started = 0, 0
        self.known: dict[int, bool] = {}  # races whose component was introduced to the others; true: not for good yet
        self._asked: list[tuple[RaceRun, int]] = []

    def ask(self) -> Ask[Gradients | Together] | None:
        """All that the races under way want to know, over as many samples as the one that wants fewest."""
        while True:
            if self.runs[0].position >= self.runs[0].per_pass:
                self._stop_learning()
            self._introduce()
            asks = [(run, ask) for run in self.runs if (ask := run.ask()) is not None]
            if self._is_ghost(self.runs[-1]):
                ghost = self.runs.pop()
                self.known.pop(ghost.number, None)
                begins = self._begins(ghost)
                if self._enough:
                    continue
            elif self._next_due():
                begins = self._begins(self.runs[-1])
            else:
                break
            self.started += 1
            self.runs.append(RaceRun(self.solver, self.data, self.noise, self.started, self.runs[0].scale, begins))
        if not asks:
            return None
        self._asked = [(run, len(ask.blank.queries)) for run, ask in asks]
        queries = tuple(query for _, ask in asks for query in ask.blank.queries)
        n = min(ask.n for _, ask in asks)
        blank = Gradients(queries, asks[0][1].blank.scale, self._edges([run for run, _ in asks], n))
        learnt = self.noise.blanks()
        return Ask(self.noise.tails.together(blank, *learnt), n, any(ask.rewind for _, ask in asks))

    @staticmethod
    def _edges(runs: Sequence[RaceRun], n: int) -> tuple[int, ...]:
        """Where sub-batches begin: no more than refinements have room for; else as the race wants that has most."""
        refining = [run.edges(n) for run in runs if run.refinement is not None]
        return min(refining, key=len) if refining else max((run.edges(n) for run in runs), key=len)

    def tell(self, part: Gradients | Together) -> None:
        """Hand every race its answers; learn what else the samples tell of the noise."""
        gradients, *learnt = self.noise.tails.parts(part)
        assert isinstance(gradients, Gradients)
        if part.n == 0:
            self._stop_learning()
        answers = iter(gradients.answers)
        for run, count in self._asked:
            run.take(tuple(itertools.islice(answers, count)), part.n)
        held = self.noise.nbytes + sum(one.nbytes for one in learnt)
        self.state_bytes = max(self.state_bytes, held + sum(run.held_now for run, _ in self._asked))
        if learnt and part.n:
            self._learn(learnt)

    def _learn(self, parts: Sequence[Accumulator]) -> None:
        """What is learnt of the noise may make the races begin anew."""
        before, clip, left = self.noise.whitening, self.noise.tails.clip, self.noise.left()
        self.noise.take(parts)
        for run in self.runs:
            if self.noise.tails.clip is not clip:
                run.search_afresh()
            elif self.noise.whitening is not before:
                run.whiten(before)
            else:
                if self.noise.left() > left and run.grows:
                    run.enlarge()
                if self.noise.dependent:
                    run.count_afresh()

    def _stop_learning(self) -> None:
        """There are no more samples to learn the noise from."""
        if self.noise.learning:
            self.noise.conclude()
            for run in self.runs:
                if self.noise.dependent:
                    run.count_afresh()

    def close(self) -> None:
        """There will be no more samples."""
        self._stop_learning()
        for run in self.runs:
            run.close()

    def recovery(self) -> Recovery:
        """All components, strongest first; or that there is none.

        Those after one that is withdrawn were searched for in what it left, and go with it.
        """
        ended: list[Recovery] = []
        for run in self.runs:
            if not self._is_ghost(run):
                ended.append(run.recovery())
                if flaws(ended[-1].history):
                    break
        first, *others = sorted((r for r in ended if r.found), key=lambda r: -r.strength) or ended[:1]
        withdrawn = [] if ended[-1] is first else [r for r in ended[-1].history if r.get("flaw")]
        history = [{**record, "component": c} for c, r in enumerate((first, *others)) for record in r.history]
        return first.with_others(others, state_bytes=self.state_bytes, history=[*history, *withdrawn])

    def state(self) -> dict[str, Any]:
        """All that the next step needs."""
        runs = [(run.number, run.state()) for run in self.runs]
        own = {"state_bytes": self.state_bytes, "started": self.started, "known": self.known, "noise": self.noise}
        return {**own, "runs": runs}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.state_bytes, self.started, self.known = state["state_bytes"], state["started"], state["known"]
        self.noise = state["noise"]
        self.runs = []
        for number, own in state["runs"]:
            run = RaceRun(self.solver, self.data, self.noise, number, 1.0)
            run.restore(own)
            self.runs.append(run)

    def silent_copy(self) -> ComponentsRun:
        """A copy that calls nobody back."""
        solver = copy.copy(self.solver)
        solver.callbacks = ()
        twin = ComponentsRun(solver, self.data)
        twin.restore(copy.deepcopy(self.state()))
        return twin

    @property
    def _stored(self) -> bool:
        """Whether there can be another pass."""
        return self.data.rereadable and self.data.length is not None

    def _introduce(self) -> None:
        """Let every race know of the others' components.

        When a new one is found the sums of the others hold it still, and once it is known well they hold what was
        wrong with it: those that it bends by more than their own noise start over.
        """
        refining = [run for run in self.runs if run.refinement is not None and run.phase != "done"]
        for run in refining:
            assert run.refinement is not None
            first = run.number not in self.known
            if first or (self.known[run.number] and run.refinement.samples >= MIN_REFINED):
                self.known[run.number] = first
                for one, other in itertools.permutations(refining, 2):
                    if run is one or (run is other and not first):
                        _start_over_if_bent(one, other)
        for run in self.runs:
            run.others = self._beside(run)

    def _begins(self, last: RaceRun) -> int | None:
        """Where the race after ``last`` begins: here, or with a pass of its own."""
        return None if last.phase == "done" and self._stored else last.position

    def _beside(self, run: RaceRun) -> tuple[RankOne, ...]:
        """Components that are subtracted from what a race sees.

        A matrix is a sum of parts in many ways, so that any two that were mixed would stay so: there it is the stronger
        ones only, and the strongest comes to the leading singular vectors.
        """
        own = run.component
        others = [r.component for r in self.runs if r is not run and r.component is not None]
        if own is not None and len(self.data.dims) == 2:
            others = [other for other in others if other.strength > own.strength]
        return tuple(others)

    def _is_ghost(self, run: RaceRun) -> bool:
        """Whether a component is only what an inaccurate estimate of another, stronger one leaves."""
        mine = run.component
        others = [other.component for other in self.runs if other is not run and other.component is not None]
        return mine is not None and any(
            other.strength >= mine.strength and is_ghost(mine.vectors, other.vectors) for other in others
        )

    @property
    def _enough(self) -> bool:
        """Whether so many races have ended with a ghost that the next would, too: where noise is not white."""
        return self.started >= self.solver.n_components + MAX_GHOSTS

    def _next_due(self) -> bool:
        """Whether the last component is known well, and the pass young enough to begin with the next, or over."""
        last = self.runs[-1]
        if len(self.runs) >= self.solver.n_components or last.refinement is None or self._enough:
            return False
        if last.phase != "done" and (any(self.known.values()) or not _accurate(last.refinement)):
            return False
        return not self._stored or last.phase == "done" or last.position <= YOUNG * last.per_pass


def _start_over_if_bent(one: RaceRun, other: RaceRun) -> None:
    """Forget the sums of ``other`` if ``one``, which was in them, bends its vectors by more than half their error."""
    if one.component is None or other.component is None or other.refinement is None:
        return
    inner = np.abs(overlaps(one.component.vectors, other.component.vectors))
    overlap = max(float(np.delete(inner, i).prod()) for i in range(len(inner)))
    if one.component.strength * overlap > 0.5 * other.refinement.error() * other.component.strength:
        other.refinement.start_over()


def _accurate(refinement: Refinement) -> bool:
    """Whether what is left after subtracting a component is small enough not to be taken for another one."""
    return refinement.settled and refinement.samples >= MIN_REFINED and refinement.error() <= WELL
