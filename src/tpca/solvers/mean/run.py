"""One fit of the mean at work, as a state machine: add samples up in groups; at their end, fit and judge.

The state are sums of contiguous groups of samples (:mod:`tpca.solvers.mean.grouping`; :mod:`tpca.solvers.mean.test`
says why several) and the sum of all.
"""

from __future__ import annotations

import copy
import math
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tpca.engines import Data
from tpca.engines.groups import GROUP_ENTRIES
from tpca.errors import SolverError
from tpca.solvers.loop import Ask
from tpca.solvers.mean.bending import too_strong
from tpca.solvers.mean.compact import CompactGrouping, can_be_compact
from tpca.solvers.mean.ending import Ending
from tpca.solvers.mean.grouping import LARGE, Grouping, equal_groups
from tpca.solvers.mean.memory import groups_within, mean_bytes
from tpca.solvers.mean.noise import MeanNoise
from tpca.solvers.mean.observed import all_observed
from tpca.solvers.mean.sums import GroupSums, SumInPlace
from tpca.solvers.overflow import largest, refuse_beyond
from tpca.solvers.recovery import Recovery
from tpca.tensors import TensorSum, Together
from tpca.tensors.blocks import Array
from tpca.tensors.dense import total_size

if TYPE_CHECKING:
    from tpca.solvers.mean.solver import MeanSolver

ROUNDS, LONG = 2, 2**28  # a group is read in so many if it has so many entries, for checkpoints in between
# All groups of small samples are read at once if they have fewer entries than this, so few that no engine cuts them:
# the bits are those of groups that are read one by one.
SHORT = 2 * GROUP_ENTRIES
# Sums between 2^-FAR and 2^FAR are kept as they are, others in units of a power of two.  Samples are asked for in units
# between SMALL and 1, which all types of floats have and in which no sample overflows.
FAR, SMALL = 40, 2.0**-120


def least_group(solver: MeanSolver, data: Data) -> int:
    """Samples of the smallest group: where nobody knows how many there will be, two neighbours tell of the noise."""
    return solver.groups or (1 if solver.whiten is None or data.length is not None else 2)


class MeanRun:
    """The sums of the samples, in groups."""

    STATE = ("grouping", "observed", "noise", "unit", "left_out", "ended", "history")

    def __init__(self, solver: MeanSolver, data: Data) -> None:
        if data.endless and solver.max_samples is None:
            raise SolverError(
                "MeanSolver reads to the end of the samples, and these have none; give max_samples, or use RaceSolver."
            )
        self.solver, self.data = solver, data
        self.left_out = 0  # samples that were only looked at
        groups, plan = self._sizes()
        taken = mean_bytes(data.dims, groups if plan is None else len(plan), data.partial)
        self.noise = MeanNoise(solver, data, solver.budget(data.dims, data.partial) - taken)
        self.grouping = self._grouping()
        self.observed: Grouping | None = None  # how often entries were, from the first that was not
        self.unit: float | None = None  # what samples are multiplied by, so that no sum leaves the range of floats
        self._asked = 1.0  # what those asked for are
        self.ended = False
        self.history: list[dict[str, Any]] = []
        self._recovery: Recovery | None = None

    def _sizes(self) -> tuple[int, list[int] | None]:
        """How many groups there may be, and the sizes of all where the number of samples is known."""
        solver, dims = self.solver, self.data.dims
        partial = self.data.partial
        budget = solver.budget(dims, partial)
        limits = [limit for limit in (self.data.length, solver.max_samples) if limit is not None]
        if self.data.length is None or not min(limits):
            return groups_within(dims, budget, solver.confidence, spare=1, partial=partial), None
        groups = groups_within(dims, budget, solver.confidence, partial=partial)
        return groups, equal_groups(min(limits) - self.left_out, groups, solver.groups or 1)

    def _grouping(self) -> Grouping:
        groups, plan = self._sizes()
        small = can_be_compact(self.data.dims) and not self.data.partial
        if plan is not None and small and self.noise.known_after(plan[0]):
            return CompactGrouping(self.data.dims, plan)
        return Grouping(self.data.dims, groups, least_group(self.solver, self.data), plan)

    @property
    def samples(self) -> int:
        """Samples so far."""
        return self.left_out + self.grouping.samples

    def ask(self) -> Ask[TensorSum | GroupSums | Together] | None:
        """The sum of the next few samples, and what they tell of the noise; ``None`` when they have ended.

        Of few entries the sums of all groups that are left.
        """
        room, whole = self.grouping.filling
        wanted = self.noise.wanted
        rounds = ROUNDS if whole * math.prod(self.data.dims) >= LONG else 1
        size = min(room, wanted or math.ceil(whole / rounds))
        if self.solver.max_samples is not None:
            size = min(size, self.solver.max_samples - self.samples)
        if self.ended or size < 1:
            self.close()
            return None
        # Before their size is known, samples are asked for so small that not even the sum of the largest overflows.
        self._asked = 2.0 ** -size.bit_length() if self.unit is None else min(max(self.unit, SMALL), 1.0)
        stored = self.data.rereadable and self.data.length is not None
        tails, sizes = self.noise.tails, self.grouping.ahead
        if stored and not (wanted or tails.on_trial or self.unit is None) and self._few(sum(sizes)):
            return Ask(tails.together(GroupSums(self._asked, sizes)), sum(sizes))
        return Ask(tails.together(SumInPlace(self._asked, self.grouping.vacant), *self.noise.blanks(stored)), size)

    def _few(self, samples: int) -> bool:
        """Whether so many samples, more than one group's, are small and have few entries."""
        entries = math.prod(self.data.dims)
        return entries <= LARGE and self.grouping.filling[0] < samples < SHORT / entries

    def tell(self, part: TensorSum | GroupSums | Together) -> None:
        """Add the samples to the open group, or groups; learn from the first of them."""
        sum_, *learnt = self.noise.tails.parts(part)
        assert isinstance(sum_, TensorSum | GroupSums)
        if not sum_.n:
            self.close()
        elif self.noise.take(learnt):
            self._begin_anew(sum_.n)
        else:
            for one in sum_.parts if isinstance(sum_, GroupSums) else (sum_,):
                if one.n:  # the samples may have ended before
                    self._add(one)

    def _add(self, part: TensorSum) -> None:
        """Add samples to the open group."""
        assert part.total is not None
        self._choose_unit(part.total, part.n)
        if self.observed is None and part.observed is not None:
            self.observed = all_observed(self.grouping)
        if self.observed is not None:
            self.observed.add(np.full(self.data.dims, part.n) if part.observed is None else part.observed, part.n)
        factor = (self.unit or 1.0) / self._asked
        if 1 < factor <= 2.0**FAR:
            part.total *= factor  # a power of two
        elif factor != 1:
            part.total = part.total.astype(float) * factor
        if isinstance(self.grouping, CompactGrouping):
            self.grouping.whitening = self.noise.whitening
            assert self.noise.sketch is None or len(self.grouping.counts) < 2, (
                "what contrasts are whitened by may change"
            )
        self.grouping.add(part.total, part.n, part.worth)
        self.record({"phase": "average", "component": 0, "found": False}, None)
        if self.noise.tails.on_trial:
            self._try_clip()

    def _begin_anew(self, more: int = 0) -> None:
        """Leave out the samples so far, and ``more`` that were looked at."""
        self.left_out = self.samples + more
        self.grouping, self.observed, self.unit = self._grouping(), None, None

    def _try_clip(self) -> None:
        """Do not clip, after all, where a strong signal shows before as many samples went by as were left out before.

        Not where less than half would be left.
        """
        tails, n = self.noise.tails, self.grouping.samples
        tails.on_trial = n < self.left_out
        total = self.data.length or math.inf
        assert tails.clip is not None
        if self.observed is not None or self.samples > total / 2:
            return
        mean = self.grouping.whole / (n * (self.unit or 1.0))
        if too_strong(mean, n, tails.clip.share, tails.clip.scales):
            self.noise.unclip(self.data.dims)
            self._begin_anew()

    def _choose_unit(self, part: NDArray[Any], n: int) -> None:
        """One, as long as all is well within the range of float32; powers of two change no bits."""
        if self._asked == 1.0 == self.unit and total_size(part) < 2.0**FAR:
            return
        size = largest((part,))
        refuse_beyond(sys.float_info.max, size, self._asked, self.samples, n)
        exponent = math.frexp(size)[1] - math.frexp(self._asked)[1]  # of the sum itself, which may not be a float
        inside = exponent + (0 if self.unit is None else math.frexp(self.unit)[1]) <= FAR
        if size == 0 or (self.unit is not None and inside):
            return
        unit = 1.0 if abs(exponent) <= FAR else math.ldexp(1.0, min(1000, max(-1000, -exponent)))
        if self.unit is not None:
            self.grouping.multiply(unit / self.unit)
        self.unit = unit

    def close(self) -> None:
        """There will be no more samples."""
        if not self.ended:
            self.grouping.close()
            if self.observed is not None:
                self.observed.close()
            self.noise.conclude()
        self.ended = True

    def recovery(self) -> Recovery:
        """The fit of the mean, if its flips do not reach as far; worked out once."""
        if self._recovery is None:
            assert self.ended, "there may be more samples"
            self._recovery = Ending(self).recovery()
        return self._recovery

    def state(self) -> dict[str, Any]:
        """All that the next step needs."""
        return {name: getattr(self, name) for name in self.STATE}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        for name in self.STATE:
            setattr(self, name, state[name])

    def silent_copy(self) -> MeanRun:
        """A copy that calls nobody back."""
        solver = copy.copy(self.solver)
        solver.callbacks = ()
        twin = copy.copy(self)
        twin.solver = solver
        twin.restore(copy.deepcopy(self.state()))
        return twin

    @property
    def state_bytes(self) -> int:
        """The sums, and what the fit needs besides."""
        compact = isinstance(self.grouping, CompactGrouping)
        return mean_bytes(self.data.dims, self.grouping.most, self.data.partial, compact) + self.noise.taken

    def record(self, known: dict[str, Any], vectors: tuple[Array, ...] | None) -> None:
        """Keep a record, and call whoever wants to know."""
        record = {**known, "pass": 1, "samples": self.samples, "candidate": "mean"}
        self.history.append(record)
        for callback in self.solver.callbacks:
            callback({**record, "position": self.samples, "vectors": vectors, "state_bytes": self.state_bytes})
