"""LeastSquares: the mean of all samples, or what follows a condition, as rank-one components with a test.

Pass 1 adds up :class:`~tpca.inference.units.UnitSums`, round after round.  Where samples can be read again, pass 2
looks at how each of them scatters about the fit (:class:`~tpca.solvers.least_squares.residuals.Residuals`).  What
passes by once is judged by its bins alone.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tpca.engines import Data, open_engine
from tpca.errors import MemoryBudgetError, SampleError, StreamError
from tpca.inference.design import Design, Units
from tpca.inference.flips import CHUNK
from tpca.inference.units import MAX_UNITS, Contributions, UnitSum, UnitSums, halved, merge_units
from tpca.solvers.estimate import Estimate
from tpca.solvers.least_squares.conclusion import conclude
from tpca.solvers.least_squares.residuals import Answer, Residuals
from tpca.solvers.memory import budget
from tpca.solvers.options import ClaimingSolver, check_dependence, check_resamples, check_whiten, option
from tpca.solvers.run import Ask, KeptRun, drive, keeper_of, refuse_all_left_out
from tpca.wording import amount, count

LEAST_BINS = 8
MOST_UNITS = 2048  # groups, or samples, that are units of their own
COPIES = 2  # of contributions: as they are, and whitened
FLIP_COPIES = 4  # of flipped tensors, while they are fitted
KEPT_SAMPLES = 256  # for whitening, spread over the data
LEAST_ROUND = 64  # samples; of fewer, a round costs more than adding them up
OF_GROUPS = 64  # samples of a round, where groups are given and their number is not


@dataclass(frozen=True)
class Plan:
    """What is held: ``units`` at most, their ``dtype``, ``kept`` samples for whitening, ``chunk`` numbers of flips."""

    units: int
    dtype: str
    kept: int
    chunk: int


@dataclass(kw_only=True, eq=False)
class LeastSquares(ClaimingSolver):
    """The best rank-one fits of what was asked, in the units of the data, from all samples, whatever their order.

    Parameters
    ----------
    n_components
        Rank-one components to fit.
    confidence
        Of intervals; at most ``1 - confidence`` of fits to noise claim a signal.
    n_resamples
        Flips of the test: by default 999 where that takes about a second (up to 10⁴ entries), fewer for larger
        samples, 199 at least; all there are where that is fewer.
    whiten
        ``"auto"``: whitened statistics sharpen the test, and the estimate is left alone; ``None``: the plain statistic
        only; ``"modes"``: everything in whitened coordinates.
    dependence
        Whether neighbouring samples may be dependent.  ``"auto"`` finds out from bins of neighbours, ``None`` takes
        all samples as independent, a number takes so many neighbours as one unit.
    memory_limit
        Bound on what is held, in bytes or as ``"64MB"``; by default a tenth of the memory of this machine.
    max_samples
        Most samples to use.
    random_state
        Seed of the flips; the estimate does not depend on it.
    """

    name = "least_squares"

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
        return drive(self.start(engine, design), engine, keeper_of(self, conditions=conditions))

    def budget(self) -> int:
        """Bytes that may be held."""
        return budget(self.memory_limit)

    def plan(self, data: Data, design: Design, growing: bool = False) -> Plan:
        """As many units as fit, in float32 where samples are large; with ``growing`` there may be any number."""
        limit, length = self.budget(), None if growing else len(design) or data.length
        wanted = MAX_UNITS
        if design.groups is not None or self.dependence != "auto":
            wanted = MOST_UNITS
            if length is not None:
                size = self.dependence if isinstance(self.dependence, int) else 1
                units = -(-max(length, 1) // size) if design.groups is None else len(design.group_names)
                wanted = min(MOST_UNITS, units)
        least = min(wanted, LEAST_BINS)
        tried = [(wanted >> k, dtype) for k in range(12) for dtype in ("float64", "float32")]
        for units, dtype in tried:
            if units < least or (units > MAX_UNITS and dtype == "float32"):
                continue
            held = held_bytes(data.dims, units, dtype, design, data.partial)
            if held <= limit:
                entries = math.prod(data.dims)
                kept = int(min(KEPT_SAMPLES, max(2, (limit - held) // (16 * entries))))  # float32, whitened copies
                left = limit - held - 4 * entries * kept
                return Plan(units, dtype, kept, int(min(CHUNK, max(entries, left // (8 * FLIP_COPIES)))))
        held = held_bytes(data.dims, least, "float32", design, data.partial)
        raise MemoryBudgetError(
            f"the sums of {least} units of samples of shape {tuple(data.dims)} take {amount(held)}, the memory is "
            f"{amount(limit)}; raise memory_limit, or use solver='race', which holds less."
        )


def held_bytes(dims: Sequence[int], units: int, dtype: str, design: Design, partial: bool = False) -> int:
    """Bytes of the sums of so many units, their contributions, and the estimate."""
    c = design.n_columns
    asked = c - design.n_nuisance if design.stacked else 1
    numbers = c + c * c * partial
    sums = units * numbers * (8 if dtype == "float64" else 4) + (0 if dtype == "float64" else 8 * numbers)
    contributions = units * 8 * (COPIES * asked + partial)
    return math.prod(dims) * (sums + contributions + 8 * (c + 4 * asked))


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

    def estimate(self) -> Estimate:
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
