"""Several components, one after the other, each searched for in what the ones before it leave.

Found components are subtracted inside the contraction (:class:`tpca.batches.RankOne`), never from the data.

The next race begins as soon as the last signal is found, on the same samples that go on polishing the ones before, and
each is polished with all others subtracted: that is what keeps components that are not orthogonal from bending each
other.  Only when a good part of stored data has gone by before a signal is found does the next race wait for the end of
the pass, to begin with one of its own.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
from typing import TYPE_CHECKING, Any

from tpca.oracles import Round
from tpca.solvers.drive import Ask, Data
from tpca.solvers.race_run import RaceRun
from tpca.solvers.recovery import Recovery

if TYPE_CHECKING:
    from tpca.solvers.race import RaceSolver

# Share of a pass over stored data that may have gone by when another race begins in the middle of it.
YOUNG = 0.1


class ComponentsRun:
    """Races for up to ``solver.n_components`` components on shared samples."""

    def __init__(self, solver: RaceSolver, data: Data) -> None:
        self.solver, self.data = solver, data
        self.runs = [RaceRun(solver, data)]
        self.state_bytes = 0
        self._asked: list[tuple[RaceRun, int]] = []

    def ask(self) -> Ask | None:
        """All that the races under way want to know, over as many samples as the one that wants fewest."""
        while True:
            for run in self.runs:
                run.others = tuple(r.component for r in self.runs if r is not run and r.component is not None)
            asks = [(run, ask) for run in self.runs if (ask := run.ask()) is not None]
            if not self._next_due():
                break
            last = self.runs[-1]
            begins = None if last.phase == "done" and self._stored else last.position
            self.runs.append(RaceRun(self.solver, self.data, len(self.runs), self.runs[0].scale, begins))
        if not asks:
            return None
        self._asked = [(run, len(ask.queries)) for run, ask in asks]
        queries = tuple(query for _, ask in asks for query in ask.queries)
        return Ask(queries, min(ask.n for _, ask in asks), asks[0][1].scale, any(ask.rewind for _, ask in asks))

    def tell(self, answered: Round) -> None:
        """Hand every race its answers."""
        answers = iter(answered.answers)
        for run, count in self._asked:
            run.tell(Round(answered.n, tuple(itertools.islice(answers, count))))
        self.state_bytes = max(self.state_bytes, sum(run.held_now for run, _ in self._asked))

    def close(self) -> None:
        """There will be no more samples."""
        for run in self.runs:
            run.close()

    def recovery(self) -> Recovery:
        """The strongest component, with the others as ``further``; or that there is none."""
        ended = [run.recovery() for run in self.runs]
        first, *further = sorted((r for r in ended if r.found), key=lambda r: -r.strength) or ended[:1]
        return dataclasses.replace(first, further=tuple(further), state_bytes=self.state_bytes)

    def state(self) -> dict[str, Any]:
        """All that the next step needs."""
        return {"state_bytes": self.state_bytes, "runs": [run.state() for run in self.runs]}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.state_bytes = state["state_bytes"]
        self.runs = [RaceRun(self.solver, self.data, number, 1.0) for number in range(len(state["runs"]))]
        for run, own in zip(self.runs, state["runs"], strict=True):
            run.restore(own)

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

    def _next_due(self) -> bool:
        """Whether the last component is found, and the pass young enough to begin with the next, or over."""
        last = self.runs[-1]
        if len(self.runs) >= self.solver.n_components or last.component is None:
            return False
        return not self._stored or last.phase == "done" or last.position <= YOUNG * last.per_pass
