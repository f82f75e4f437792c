"""A fit of components of variation at work, as a state machine; one component after the other.

*Where samples can be read again*, and several passes are allowed: a candidate is fitted to the first quarter of the
samples and tested on the next quarter, which it has not seen; then one is fitted to the first half and tested on the
second.  Fitting is a look at the covariances of the modes, and at those within slices, for starts, a few steps of all
of them, each to the best vector of one mode, steps on one half of the samples and the other in turn, so that how much a
replica varies is told by samples that it did not come from, and steps of the best one on all samples.  A component that
is proven is refined on all samples, beside those found before.

*In one pass*, rounds grow by half: the candidate is tested on the samples of a round, and takes a step with them; until
one is proven, new starts join from the covariances learnt so far.
"""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, Any

from tpca.engines import Data
from tpca.randomness import generator
from tpca.solvers.loop import Ask
from tpca.solvers.recovery import Recovery
from tpca.solvers.variance.accumulator import Variances
from tpca.solvers.variance.conclude import conclusion, record_of
from tpca.solvers.variance.filters import Filters
from tpca.solvers.variance.limits import (
    FIRST,
    Plan,
    check_data,
    edges_within,
    plan_within,
    refuse_beyond_squares,
    steps_within,
)
from tpca.solvers.variance.refine import Refined, rows_of
from tpca.solvers.variance.search import MOVE_TOL, VariationSearch
from tpca.tensors import Together
from tpca.tensors.blocks import Array

if TYPE_CHECKING:
    from tpca.solvers.variance.solver import VarianceSolver


class VarianceRun:
    """Components found, and the search for the next."""

    STATE: tuple[str, ...] = ("found", "search", "filters", "phase", "place", "read", "steps", "stage")
    STATE += ("ended", "history", "rng", "peak")

    def __init__(self, solver: VarianceSolver, data: Data) -> None:
        self.solver, self.data = solver, data
        check_data(data, solver.max_samples, solver.max_passes)
        limits = [limit for limit in (data.length, solver.max_samples) if limit is not None]
        self.limit = min(limits, default=None)
        self.plan: Plan = plan_within(data.dims, solver.budget(data.dims), solver.n_components)
        self.steps_of = steps_within(solver.max_passes)
        self.stored = data.rereadable and data.length is not None and self.steps_of.all > 0
        self.rng = generator(solver.random_state, "variance")
        self.found: list[Refined] = []
        self.search: VariationSearch | None = VariationSearch(data.dims)
        self.filters = Filters([], [])  # for the components found
        self.phase = "look"  # at samples; of stored ones then at "slices", "search", "test", "refine"
        self.place = self.read = self.steps = self.stage = self.peak = 0
        self.ended = False
        self.history: list[dict[str, Any]] = []

    def ask(self) -> Ask[Together] | None:
        """The moments of the next samples, at the vectors that are on trial and those that were found."""
        if self.ended:
            return None
        start, stop = self._span()
        limit = stop if self.solver.max_samples is None else min(stop, self.solver.max_samples)
        if limit <= start:
            self.close()
            return None
        return Ask(Together(self._blanks(stop - start)), limit - start, rewind=start == 0 and self.place > 0)

    def _span(self) -> tuple[int, int]:
        """The samples to read: from the first on, or those after the last; how many there are changes no round."""
        if not self.stored:
            return self.place, self.place + (FIRST if self.place == 0 else self.place // 2)
        assert self.limit is not None
        fitted, tested = self.limit * (self.stage + 1) // 4, self.limit * (self.stage + 1) // 2
        if self.phase == "test":
            return fitted, tested
        if self.phase == "search" and 0 <= self.steps - self.steps_of.every < self.steps_of.halves:
            return (0, fitted // 2) if (self.steps - self.steps_of.every) % 2 == 0 else (fitted // 2, fitted)
        return 0, self.limit if self.phase == "refine" else fitted

    def _blanks(self, n: int) -> list[Variances]:
        edges = edges_within(n, not self.stored or self.phase in ("test", "refine"), self.data.dims)
        known = rows_of(self.found, self.data.dims)
        alone = self.stored and self.phase != "refine"
        blanks = [
            Variances(one.queries(self.filters), known, edges, spared=c)
            for c, one in enumerate(() if alone else self.found)
        ]
        if self.search is not None and not (self.stored and self.phase == "refine"):
            grams = self.plan.grams and (self.phase == "look" or not self.stored)
            turned = self.plan.slices and (self.phase == "slices" or not self.stored)
            pairs = self.plan.pairs and self.stored and self.phase == "search" and self.steps < self.steps_of.every
            tested = self.phase == "test"
            queries = self.search.queries(1 if tested else None, itself=not pairs and not tested)
            rotations = self.search.filters.rotations if turned else ()
            blanks.append(Variances(queries, known, edges, grams, rotations=rotations, pairs=pairs))
        return blanks

    def tell(self, part: Together) -> None:
        """Take the moments, and decide what comes next."""
        if not part.n:
            self.close()
            return
        moments = [one for one in part.parts if isinstance(one, Variances)]
        self.place, self.read = self._span()[0] + part.n, self.read + part.n
        refuse_beyond_squares(moments[0])
        self._note(moments)
        refined = moments if self.search is None or (self.stored and self.phase == "refine") else moments[:-1]
        last = self.stored and 1 <= self.steps == self.steps_of.refining - 1
        for one, own in zip(self.found, refined, strict=False):
            one.take(own, [u[0] for u in one.queries(self.filters)], gather=not self.stored, last=last)
        if self.stored:
            self._take_stored(moments)
        elif self.search is not None:
            self._take_round(self.search, moments[-1])
        self._record()

    def _take_round(self, search: VariationSearch, part: Variances) -> None:
        """One pass: bet on the candidate, and let all take a step with the samples."""
        if part.moments is None:
            return
        if len(search.replicas[0]):
            search.bet(part)
            proven = self._proven(search)
            search.step(part, max(1, self.plan.replicas // 2), gather=True, proven=proven)
            if proven:
                self._keep(search)
                return
        slices, room = part.moments.slices, self.plan.replicas - len(search.replicas[0])
        if slices:  # these are of samples turned as was known before
            search.start(room, slices, self.rng)
        search.learn(part)
        if not slices:
            search.start(room, [], self.rng)

    def _take_stored(self, moments: list[Variances]) -> None:
        """Several passes: look, steps until the candidate rests, test; a second time; refine what was proven."""
        self.steps += 1
        if self.phase == "refine":
            if self.steps >= self.steps_of.refining or all(one.moved < MOVE_TOL for one in self.found):
                self._begin_search()
            return
        search = self.search
        assert search is not None
        (part,) = moments
        if self.phase == "look":
            if part.moments is not None:
                search.learn(part)
            self.phase = "slices"
            if not self.plan.slices:
                self._begin_steps(search, [])
        elif self.phase == "slices":
            self._begin_steps(search, [] if part.moments is None else part.moments.slices)
        elif self.phase == "search":
            halved, count = self.steps <= self.steps_of.every + self.steps_of.halves, len(search.replicas[0])
            if part.moments is not None:
                every = self.steps <= self.steps_of.every  # how good a start is, its own variance does not tell
                search.step(part, count if every else max(1, count // 2 if halved else 1), gather=False)
            if self.steps >= self.steps_of.all or (search.moved < MOVE_TOL and not halved):
                self.phase = "test"
        else:
            search.bet(part)
            self._after_test(search)

    def _begin_steps(self, search: VariationSearch, slices: list[Array]) -> None:
        search.start(self.plan.replicas, slices, self.rng)
        self.phase, self.steps = "search", 0

    def _after_test(self, search: VariationSearch) -> None:
        if self._proven(search):
            self._keep(search)
            self.phase, self.steps = "refine", 0
        elif self.stage == 0:
            self.phase, self.steps, self.stage = "look", 0, 1
            search.grams, search.freedom = [], 0
        else:
            self.close()

    def _begin_search(self) -> None:
        """Look for the next component, if there is to be one."""
        if len(self.found) >= self.solver.n_components:
            self.close()
            return
        self.search, self.phase, self.steps, self.stage = VariationSearch(self.data.dims), "look", 0, 0

    def _proven(self, search: VariationSearch) -> bool:
        """Whether there is a component that is none of those found, inaccurate as these are."""
        if search.log_evidence < self.needed:
            return False
        return not any(one.leaves(search.candidate, search.excess) for one in self.found)

    def _keep(self, search: VariationSearch) -> None:
        one = search.tracked or Refined(search.candidate, bool(search.plain[0]))
        one.log_evidence = search.log_evidence
        self.found.append(one)
        self.filters = search.filters
        more = len(self.found) < self.solver.n_components
        self.search = VariationSearch(self.data.dims) if more and not self.stored else None

    @property
    def needed(self) -> float:
        """Log evidence that proves a component."""
        return -math.log(1 - self.solver.confidence)

    def close(self) -> None:
        """There will be no more samples."""
        self.ended = True

    def recovery(self) -> Recovery:
        """What was found."""
        return conclusion(self)

    def state(self) -> dict[str, Any]:
        """All that the next step needs."""
        return {name: getattr(self, name) for name in self.STATE}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        for name in self.STATE:
            setattr(self, name, state[name])

    def silent_copy(self) -> VarianceRun:
        """A copy that calls nobody back."""
        twin = copy.copy(self)
        twin.solver = copy.copy(self.solver)
        twin.solver.callbacks = ()
        twin.restore(copy.deepcopy(self.state()))
        return twin

    def _note(self, moments: list[Variances]) -> None:
        held = sum(one.nbytes for one in self.found) + (0 if self.search is None else self.search.nbytes)
        self.peak = max(self.peak, held + sum(one.nbytes for one in moments))

    def _record(self) -> None:
        """Keep a record, and call whoever wants to know."""
        record, vectors = record_of(self)
        self.history.append(record)
        for callback in self.solver.callbacks:
            callback({**record, "position": self.place, "vectors": vectors, "state_bytes": self.peak})
