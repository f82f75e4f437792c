"""LeastSquares: the mean of all samples, or what follows a condition, as rank-one components with a test."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tpca.engines import Data, open_engine
from tpca.errors import MemoryBudgetError, SampleError, check_integer
from tpca.inference.design import Design
from tpca.inference.flips import CHUNK
from tpca.inference.units import MAX_UNITS
from tpca.solvers.estimate import Recovery
from tpca.solvers.least_squares.run import LeastSquaresRun, Plan
from tpca.solvers.memory import budget
from tpca.solvers.options import ClaimingSolver, check_whiten, option
from tpca.solvers.run import drive, keeper_of
from tpca.wording import amount

LEAST_BINS = 8
MOST_UNITS = 2048  # groups, or samples, that are units of their own
COPIES = 2  # of contributions: as they are, and whitened
FLIP_COPIES = 4  # of flipped tensors, while they are fitted
KEPT_SAMPLES = 256  # for whitening, spread over the data


def check_dependence(name: str, value: Any) -> str | int | None:
    """``"auto"``, ``None`` or so many neighbours."""
    if value is None or value == "auto":
        return None if value is None else "auto"
    return check_integer(name, value, instead=", 'auto' or None")


def check_resamples(name: str, value: Any) -> int | str:
    """``"auto"`` or so many flips."""
    return "auto" if value == "auto" else check_integer(name, value, 19, instead=" or 'auto'")


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

    def run(self, source: Any, design: Design | None = None) -> Recovery:
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
            f"{amount(limit)}; raise memory_limit, or use solver='race' for the mean."
        )


def held_bytes(dims: Sequence[int], units: int, dtype: str, design: Design, partial: bool = False) -> int:
    """Bytes of the sums of so many units, their contributions, and the estimate."""
    c = design.n_columns
    asked = c - design.n_nuisance if design.stacked else 1
    numbers = c + c * c * partial
    sums = units * numbers * (8 if dtype == "float64" else 4) + (0 if dtype == "float64" else 8 * numbers)
    contributions = units * 8 * (COPIES * asked + partial)
    return math.prod(dims) * (sums + contributions + 8 * (c + 4 * asked))
