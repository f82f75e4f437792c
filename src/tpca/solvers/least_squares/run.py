"""A least-squares fit at work: one pass for sums of units, a second for errors, then the test.

Pass 1 adds up :class:`~tpca.inference.units.UnitSums`, round after round.  Where samples can be read again, pass 2
looks at how each of them scatters about the fit (:class:`~tpca.solvers.least_squares.residuals.Residuals`).  What
passes by once is judged by its bins alone.
"""

from __future__ import annotations

import copy
import functools
import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from tpca.engines import Data
from tpca.errors import SampleError, StreamError
from tpca.inference.design import Design, Indices, Units
from tpca.inference.units import MAX_UNITS, Contributions, UnitSum, UnitSums, halved, merge_units
from tpca.solvers.estimate import Recovery
from tpca.solvers.least_squares.conclusion import Answer, conclude
from tpca.solvers.least_squares.residuals import Residuals
from tpca.solvers.run import Ask, refuse_all_left_out
from tpca.wording import count

KEPT_SAMPLES = 256  # for whitening, spread over the data
LEAST_ROUND = 64  # samples; of fewer, a round costs more than adding them up


@dataclass(frozen=True)
class Plan:
    """What is held: ``units`` at most, their ``dtype``, and ``kept`` samples for whitening."""

    units: int
    dtype: str
    kept: int


class LeastSquaresRun:
    """Asks for samples, is given their sums, ends with the components."""

    def __init__(self, solver: Any, data: Data, design: Design, plan: Plan, handed_in: bool = False) -> None:
        self.solver, self._data, self.design, self._plan = solver, data, design, plan
        self._pushed = handed_in  # what is known of the samples grows with them
        length = data.length if design.plain else len(design)
        limits = [one for one in (None if self._pushed else length, solver.max_samples) if one is not None]
        self._length = min(limits, default=None) if length is not None and not self._pushed else None
        self._growing = self._length is None
        self._size = solver.dependence if isinstance(solver.dependence, int) else 1
        self.sums: dict[int, UnitSum] = {}
        self._n = 0
        self._looked = 0  # samples of the second pass
        self._residuals: Residuals | None = None
        self._phase = "sums"

    # What samples are asked for ---------------------------------------------------------------------------------------

    @property
    def _units(self) -> Units:
        """The unit of every place, by what is known of the length."""
        design, most = self.design, self._plan.units
        if design.groups is not None:
            return Units(min(most, len(design.group_names)) if not self._growing else most)
        if self._growing:
            return Units(most, None, self._size)
        assert self._length is not None
        if isinstance(self.solver.dependence, int):
            wanted = max(1, -(-self._length // self.solver.dependence))
            return Units(most, None, self.solver.dependence * -(-wanted // most))
        wanted = self._length if self.solver.dependence is None else MAX_UNITS
        return Units(max(1, min(wanted, most, self._length)), self._length)

    def ask(self) -> Ask[Any] | None:
        """The next samples, for sums or for a second look."""
        if self._phase == "sums":
            wanted = self._round(self._n)
            if wanted > 0:
                return Ask(UnitSums(self.design, self._units, np.dtype(self._plan.dtype)), wanted)
            self._end_sums()
        if self._phase == "residuals":
            wanted = min(max(LEAST_ROUND, -(-self._n // MAX_UNITS)), self._n - self._looked)
            if wanted > 0:
                return Ask(self._blank, wanted, rewind=self._looked == 0)
            self._phase = "done"
        return None

    def _round(self, n: int) -> int:
        """Samples of the next round of the first pass; 0 when there are enough."""
        limit = math.inf if self.solver.max_samples is None else self.solver.max_samples
        if self._length is None:
            each = self._size * (max(1, self._plan.units // 32) if self.design.groups is None else 64)
            return int(min(each, limit - n))
        return int(min(max(LEAST_ROUND, -(-self._length // MAX_UNITS)), limit - n, self._length - n))

    def tell(self, part: Any) -> None:
        """Take what was asked for."""
        if self._phase == "sums":
            wanted = self._round(self._n)
            merge_units(self.sums, part.units)
            self._n += part.n
            for unit in part.units.values():
                if not np.isfinite(unit.moments).all():
                    raise StreamError("the sum of the samples is not finite; divide them by some power of ten.")
            if self._growing and self.design.groups is None:
                while self.sums and max(self.sums) >= self._plan.units:
                    self.sums, self._size = halved(self.sums), 2 * self._size
            if part.n < wanted:
                self._end_sums()
        else:
            self._looked += part.n
            if self._residuals is None:
                self._residuals = part
            else:
                self._residuals.merge(part)
            if not part.n or self._looked >= self._n:
                self._phase = "done"
        self._call(part.n)

    def close(self) -> None:
        """No more samples."""
        if self._phase == "sums":
            self._end_sums(last=True)
        elif self._phase == "residuals":
            self._residuals, self._phase = None, "done"

    def _end_sums(self, last: bool = False) -> None:
        again = self._data.rereadable and not last and self._n > 1
        self._phase = "residuals" if again else "done"
        if self._n:
            self._check_rows()

    def _check_rows(self) -> None:
        """Refuse a design with more rows than there are samples."""
        read = self._n + getattr(self._data, "n_skipped", 0)
        if not self._pushed and self._data.length is None and self._length is not None and read < self._length:
            raise SampleError(
                f"y, groups or sample_weight have {len(self.design)} rows for {read} samples; give one for each."
            )

    def extend(self, design: Design) -> None:
        """What is known of the samples that come next."""
        self.design = design

    # What is known after the first pass -------------------------------------------------------------------------------

    @functools.cached_property
    def answers(self) -> list[Answer]:
        """Contributions and components of every question."""
        found = []
        for name, nuisances, asked in self.design.questions:
            parts = Contributions(self.sums, nuisances, asked, self._data.dims, self.design.stacked)
            found.append(Answer(name, parts, self.solver))
        return found

    @functools.cached_property
    def _blank(self) -> Residuals:
        """What the second pass fills."""
        spread = np.linspace(0, self._n - 1, min(self._plan.kept, self._n)).astype(np.intp)
        keep: Indices = np.unique(spread)
        size = self.solver.dependence if isinstance(self.solver.dependence, int) else None
        return Residuals(self.design, [answer.fitted for answer in self.answers], keep, size)

    def recovery(self) -> Recovery:
        """Components, their test and errors."""
        refuse_all_left_out(self._n, self._data)
        if self._n < 2:
            raise StreamError(f"least squares needs two samples, got {count(self._n, 'sample')}; give more.")
        return conclude(self)

    # Checkpoints ------------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """All that the next step needs."""
        look = self._residuals
        return {
            "sums": self.sums,
            "size": self._size,
            "n": self._n,
            "looked": self._looked,
            "phase": self._phase,
            "residuals": None
            if look is None
            else [look.scatters, look.shape, look.samples, sorted(look.digests), look.copies, look.n],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.sums = {int(number): unit for number, unit in state["sums"].items()}
        self._size, self._n, self._looked, self._phase = (state[name] for name in ("size", "n", "looked", "phase"))
        if state["residuals"] is not None:
            look = self._blank.fresh()
            look.scatters, look.shape, samples, digests, look.copies, look.n = state["residuals"]
            look.samples = {int(place): one for place, one in samples.items()}
            look.digests = set(digests)
            for scatter in look.scatters:
                scatter.units = {int(number): one for number, one in scatter.units.items()}
            self._residuals = look

    def silent_copy(self) -> Self:
        """A copy that calls nobody back."""
        twin = copy.copy(self)
        twin.__dict__.pop("answers", None)
        twin.__dict__.pop("_blank", None)
        twin.sums = {number: copy.deepcopy(unit) for number, unit in self.sums.items()}
        twin.solver = copy.copy(self.solver)
        twin.solver.callbacks = ()
        return twin

    def _call(self, n: int) -> None:
        record = {"samples": self._n, "pass": 1 if self._phase == "sums" else 2, "phase": self._phase, "new": n}
        for callback in self.solver.callbacks:
            callback(record)

    @property
    def residuals(self) -> Residuals | None:
        """The second pass, where there was one over all samples."""
        whole = self._residuals is not None and self._looked >= self._n
        return self._residuals if whole else None

    @property
    def dtype(self) -> str:
        """In which sums are held."""
        return self._plan.dtype

    @property
    def n(self) -> int:
        """Samples that were added up."""
        return self._n

    @property
    def state_bytes(self) -> int:
        """What was held at most: sums of all units, contributions and a version of them, the estimate."""
        sums = sum(unit.nbytes for unit in self.sums.values())
        own = max(answer.parts.C.nbytes for answer in self.answers)
        kept = 0 if self._residuals is None else self._residuals.nbytes
        return int(sums + 2 * own + kept + 4 * self.answers[0].parts.D.nbytes)
