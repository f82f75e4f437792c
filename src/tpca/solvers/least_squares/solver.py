"""LeastSquares: the mean of all samples, or what follows a condition, as components with a test.

All samples are read once, into :class:`~tpca.solvers.least_squares.sums.SampleSums`, round after round; everything that
is said follows from these (:mod:`tpca.solvers.least_squares.conclusion`).
"""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass
from typing import Any, Self

from tpca.engines import Data, open_engine
from tpca.errors import SampleError, StreamError
from tpca.inference.design import Design
from tpca.solvers.estimate import Estimate
from tpca.solvers.least_squares.conclusion import Reading, conclude
from tpca.solvers.least_squares.plan import BinPlan, plan_memory
from tpca.solvers.least_squares.sums import SampleSums
from tpca.solvers.options import (
    ClaimingSolver,
    budget,
    check_components,
    check_dependence,
    check_resamples,
    check_whiten,
    option,
)
from tpca.solvers.run import Ask, Run, drive, refuse_all_left_out, tell_flips
from tpca.wording import count

LOCAL_ROUNDS = 32
"""Rounds of a pass in this process: between two of them there may be a checkpoint, and progress is told."""
REMOTE_ROUNDS = 8
"""Rounds of a pass on a cluster, at most."""
SUMS_WORTH = 64
"""Samples that a round on a cluster reads for every sum that comes back, so that little else is sent than read."""
ENDLESS = 2**62
"""Samples that nobody has."""
FEWEST_SAMPLES = 64
"""Of fewer, a round costs more than adding them up."""


@dataclass(kw_only=True, eq=False)
class LeastSquares(ClaimingSolver):
    """The best rank-one fits of what was asked, in the units of the data, from all samples, whatever their order.

    Options are those of :class:`~tpca.TensorPCA`; ``random_state`` is the seed of the flips, on which no estimate
    depends.
    """

    name = "least_squares"

    n_components: Any = option(1, check_components)
    whiten: str | None = option("auto", check_whiten)
    dependence: str | int | None = option("auto", check_dependence)
    n_resamples: int | str = option("auto", check_resamples)

    def start(self, data: Data, design: Design | None = None, pushed: bool = False) -> LeastSquaresRun:
        """A run that asks for its first samples; of samples that are ``pushed`` the design grows with them."""
        design = Design() if design is None else design
        if design.stacked and data.partial:
            raise SampleError(
                f"{len(design.labels)} labels and missing entries do not go together; give two labels, or numbers."
            )
        return LeastSquaresRun(self, data, design, self.plan(data, design, pushed), pushed)

    def run(self, source: Any, design: Design | None = None) -> Estimate:
        """Read a stream or an engine; the components, with their test."""
        engine = open_engine(source)
        conditions = "" if design is None else design.digest
        return drive(self.start(engine, design), engine, conditions=conditions)

    def budget(self) -> int:
        """Bytes that may be held."""
        return budget(self.memory_limit)

    def plan(self, data: Data, design: Design, pushed: bool = False) -> BinPlan:
        """As many bins as fit into the memory; with ``pushed`` there may be any number of groups."""
        return plan_memory(data.dims, design, self.dependence, data.partial, self.budget(), pushed)


class LeastSquaresRun(Run):
    """Asks for samples until they end, and concludes from their sums.

    Of samples that are ``pushed``, batch after batch, neither the number nor all of the design is known.
    """

    kept = ("sums", "ended", "most_held")

    def __init__(self, solver: Any, data: Data, design: Design, plan: BinPlan, pushed: bool = False) -> None:
        super().__init__(solver)
        self._data = data
        self.design = design
        self.plan = plan
        self._most = math.inf if solver.max_samples is None else solver.max_samples
        self._length: float = math.inf
        if not pushed:
            length = data.length if design.plain else len(design)
            if length is not None:
                self._length = min(length, self._most)
        self._pushed = pushed
        self._remote = getattr(data, "remote", False)
        last = int(self._length) if math.isfinite(self._length) else None
        self.sums = SampleSums(design, plan.binning, goes_on=True, last=last)
        self.most_held = 0
        self.ended = False
        self._before = 0  # samples when the last round was asked for
        self._asked = 0

    def ask(self) -> Ask[Any] | None:
        """The next samples."""
        self.sums.question = (self.design,)  # all that sums that go on ask for
        wanted = self._round()
        if self.ended or wanted <= 0:
            self._end()
            return None
        self._before = self.sums.n
        self._asked = wanted
        return Ask(self.sums, wanted)

    def _round(self) -> int:
        """Samples of the next round, up to the end of a stretch; 0 when there are enough.

        What is pushed is one round: nobody waits for the end of another.
        """
        if self._pushed:
            return int(min(self._most, ENDLESS)) if self.sums.n < self._most else 0
        binning = self.plan.binning
        known = self._length if math.isfinite(self._length) else 0
        wanted = max(FEWEST_SAMPLES, math.ceil(known / LOCAL_ROUNDS))
        if self._remote:
            bins = binning.dealt + binning.neighbours
            wanted = max(bins * SUMS_WORTH, math.ceil(known / REMOTE_ROUNDS))
            if binning.looks and self.sums.end < binning.singles:  # what they show is needed before there are more
                wanted = binning.singles - self.sums.end
        _, stop = binning.stretch_at(self.sums.end + wanted - 1)
        left = min(self._length, self._most) - self.sums.n
        return int(min(stop - self.sums.end, left))

    def tell(self, part: Any) -> None:
        """Take the sums, to which samples were added; fewer than were asked for are the last."""
        new = part.n - self._before
        self.sums = part
        self.most_held = max(self.most_held, part.nbytes)
        if new < self._asked:
            self._end()
        self.call({"samples": part.n, "pass": 1, "phase": "reading", "new": new})

    def close(self) -> None:
        """No more samples."""
        self.ended = True

    def _end(self) -> None:
        """No sample follows; refuse a design of more rows than samples."""
        self.ended = True
        if not self._pushed:  # now: a checkpoint that is taken while the result is worked out has all samples added
            self.sums.end_here()
        read = self.sums.n + getattr(self._data, "n_skipped", 0)
        if self.sums.n and self._data.length is None and read < self._length < math.inf:
            raise SampleError(
                f"y, groups or sample_weight have {len(self.design)} rows for {read} samples; give one for each."
            )

    def silent_copy(self) -> Self:
        """A copy that calls nobody back."""
        self.sums.let_go()
        return super().silent_copy()

    def extend(self, design: Design) -> None:
        """What is known of the samples that come next."""
        self.design = design

    def estimate(self) -> Estimate:
        """Components, their test and errors."""
        refuse_all_left_out(self.sums.n, self._data)
        if self.sums.n < 2:
            raise StreamError(f"least squares needs two samples, got {count(self.sums.n, 'sample')}; give more.")
        self.most_held = max(self.most_held, self.sums.nbytes)
        self.sums.end_here()
        progress = functools.partial(tell_flips, self.solver.callbacks, self.sums.n)
        reading = Reading(self.sums, self.design, self.solver, tuple(self._data.dims), self.plan.chunk, progress)
        estimate = conclude(reading)
        return dataclasses.replace(estimate, state_bytes=max(self.most_held, estimate.state_bytes))
