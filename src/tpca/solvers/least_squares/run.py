"""A least-squares fit at work: one pass for sums of units, a second for errors, then the test.

Pass 1 adds up :class:`~tpca.inference.units.UnitSums`, round after round.  Where samples can be read again, pass 2
looks at how each of them scatters about the fit (:class:`~tpca.solvers.least_squares.residuals.Residuals`).  What
passes by once is judged by its bins alone.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tpca.engines import Data
from tpca.errors import SampleError, StreamError
from tpca.inference.design import Design, Units
from tpca.inference.units import MAX_UNITS, Contributions, UnitSum, UnitSums, halved, merge_units
from tpca.solvers.estimate import Recovery
from tpca.solvers.least_squares.conclusion import conclude
from tpca.solvers.least_squares.residuals import Answer, Residuals
from tpca.solvers.run import Ask, KeptRun, refuse_all_left_out
from tpca.wording import count

LEAST_ROUND = 64  # samples; of fewer, a round costs more than adding them up
OF_GROUPS = 64  # samples of a round, where groups are given and their number is not


@dataclass(frozen=True)
class Plan:
    """What is held: ``units`` at most, their ``dtype``, ``kept`` samples for whitening, ``chunk`` numbers of flips."""

    units: int
    dtype: str
    kept: int
    chunk: int


class LeastSquaresRun(KeptRun):
    """Asks for samples, is given their sums, ends with the components.

    Of samples that are ``pushed``, batch after batch, neither the number nor all of the design is known.
    """

    kept = ("sums", "n", "_size", "_looked", "_phase", "_residuals")

    def __init__(self, solver: Any, data: Data, design: Design, plan: Plan, pushed: bool = False) -> None:
        super().__init__(solver)
        self._data, self.design, self._plan = data, design, plan
        length = None if pushed else data.length if design.plain else len(design)
        limit = solver.max_samples
        self._length = length if length is None or limit is None else min(length, limit)
        self._size = solver.dependence if isinstance(solver.dependence, int) else 1
        self.sums: dict[int, UnitSum] = {}
        self.n = 0
        self._looked = 0  # samples of the second pass
        self._residuals: Residuals | None = None
        self._phase = "sums"

    # What samples are asked for ---------------------------------------------------------------------------------------

    @property
    def _units(self) -> Units:
        """The unit of every place, by what is known of the length."""
        design, most, size = self.design, self._plan.units, self.solver.dependence
        if design.groups is not None:
            return Units(most if self._length is None else min(most, len(design.group_names)))
        if self._length is None:
            return Units(most, None, self._size)
        if isinstance(size, int):
            wanted = max(1, -(-self._length // size))
            return Units(most, None, size * -(-wanted // most))
        wanted = self._length if size is None else MAX_UNITS
        return Units(max(1, min(wanted, most, self._length)), self._length)

    def ask(self) -> Ask[Any] | None:
        """The next samples, for sums or for a second look."""
        if self._phase == "sums":
            wanted = self._round()
            if wanted > 0:
                return Ask(UnitSums(self.design, self._units, np.dtype(self._plan.dtype)), wanted)
            self._end_sums(self._data.rereadable)
        if self._phase == "residuals":
            wanted = min(max(LEAST_ROUND, -(-self.n // MAX_UNITS)), self.n - self._looked)
            return Ask(self._blank, wanted, rewind=self._looked == 0)
        return None

    def _round(self) -> int:
        """Samples of the next round of the first pass; 0 when there are enough."""
        limit = math.inf if self.solver.max_samples is None else self.solver.max_samples
        if self._length is None:
            each = max(1, self._plan.units // MAX_UNITS) if self.design.groups is None else OF_GROUPS
            return int(min(self._size * each, limit - self.n))
        return int(min(max(LEAST_ROUND, -(-self._length // MAX_UNITS)), self._length - self.n))

    def tell(self, part: Any) -> None:
        """Take what was asked for."""
        if self._phase == "sums":
            wanted = self._round()
            merge_units(self.sums, part.units)
            self.n += part.n
            if not all(np.isfinite(unit.moments).all() for unit in part.units.values()):
                raise StreamError("the sum of the samples is not finite; divide them by some power of ten.")
            if self._length is None and self.design.groups is None:
                while self.sums and max(self.sums) >= self._plan.units:
                    self.sums, self._size = halved(self.sums), 2 * self._size
            if part.n < wanted:
                self._end_sums(self._data.rereadable)
        else:
            self._looked += part.n
            if self._residuals is None:
                self._residuals = part
            else:
                self._residuals.merge(part)
            if not part.n or self._looked >= self.n:
                self._phase = "done"
        passes = 1 if self._phase == "sums" else 2
        self.call({"samples": self.n, "pass": passes, "phase": self._phase, "new": part.n})

    def close(self) -> None:
        """No more samples."""
        if self._phase == "sums":
            self._end_sums(again=False)
        elif self._phase == "residuals":
            self._residuals, self._phase = None, "done"

    def _end_sums(self, again: bool) -> None:
        """Go on to the second pass, if samples can be read again; refuse a design of more rows than samples."""
        self._phase = "residuals" if again and self.n > 1 else "done"
        read = self.n + getattr(self._data, "n_skipped", 0)
        if self.n and self._data.length is None and self._length is not None and read < self._length:
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
            found.append(Answer.of(name, parts, self.solver))
        return found

    @functools.cached_property
    def _blank(self) -> Residuals:
        """What the second pass fills."""
        keep = np.unique(np.linspace(0, self.n - 1, min(self._plan.kept, self.n)).astype(np.intp))
        size = self.solver.dependence if isinstance(self.solver.dependence, int) else None
        return Residuals(self.design, self.answers, keep, size)

    @property
    def residuals(self) -> Residuals | None:
        """The second pass, where there was one over all samples."""
        return self._residuals if self._looked >= self.n else None

    def recovery(self) -> Recovery:
        """Components, their test and errors."""
        refuse_all_left_out(self.n, self._data)
        if self.n < 2:
            raise StreamError(f"least squares needs two samples, got {count(self.n, 'sample')}; give more.")
        return conclude(self)

    @property
    def dtype(self) -> str:
        """In which sums are held."""
        return self._plan.dtype

    @property
    def chunk(self) -> int:
        """Numbers of flipped tensors that may be held at a time."""
        return self._plan.chunk

    @property
    def state_bytes(self) -> int:
        """What was held at most: sums of all units, contributions and a version of them, the estimate."""
        sums = sum(unit.nbytes for unit in self.sums.values())
        own = max(answer.parts.C.nbytes for answer in self.answers)
        kept = 0 if self._residuals is None else self._residuals.nbytes
        return int(sums + 2 * own + kept + 4 * self.answers[0].parts.D.nbytes)
