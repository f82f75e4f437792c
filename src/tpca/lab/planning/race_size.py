r"""What the race would be at a given memory, without building it: its main strategy, its size, and what it then needs.

The same decisions as :func:`tpca.solvers.race.strategies.choice.strategies_within`, from the same formulas.  In units
of √∏d the race needs

.. math:: C = C_{whole}, \qquad C_{whole} + \frac{b}{r}, \qquad C_{whole} + c_{\bar k}\Big(\frac{d}{R}\Big)^{0.65}

for the sum of all samples, a flow of r columns, and R small replicas: the forms and constants of
:mod:`tpca.solvers.race.limits`, measured for a signal that is proven in 95 % of runs.  What recovers it in half of all
runs is a constant share of that (``race`` in constants.json).
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass

from tpca.solvers.race import limits
from tpca.solvers.race.strategies.choice import CANDIDATE_VECTORS, FLOW_COLUMNS, STRUCTURE_SHARE, WHOLE_ROWS
from tpca.solvers.race.strategies.flow import state_floats
from tpca.solvers.race.strategies.replicas import singles_floats
from tpca.solvers.race.strategies.symmetric import symmetric_floats, symmetric_pairs_floats
from tpca.solvers.race.strategies.whole import whole_floats
from tpca.tensors.blocks import Partition


@dataclass(frozen=True)
class RaceSize:
    """The main strategy, its columns or replicas, the floats that all take, and whether *symmetric* joins."""

    strategy: str
    count: int
    floats: float
    equal: bool

    def form(self, dims: tuple[int, ...]) -> float:
        """C: what the race needs, in units of √∏d."""
        if self.strategy == "whole":
            return limits.WHOLE
        if self.strategy == "flow":
            return limits.WHOLE + limits.PER_COLUMN / self.count
        each = limits.SINGLES.get(len(dims), 30.0 * 2.5 ** (len(dims) - 6))
        return float(limits.WHOLE + each * (max(dims) / self.count) ** limits.SHARE)

    @property
    def text(self) -> str:
        """The strategy in words."""
        return {"whole": "the sum of all samples", "flow": f"{self.count} columns"}.get(
            self.strategy, f"{self.count} small replicas"
        )


def race_size(dims: tuple[int, ...], nbytes: float) -> RaceSize | None:
    """The race within ``nbytes``; ``None`` if not even the smallest fits."""
    own = CANDIDATE_VECTORS * sum(dims)
    left, most = nbytes / 8 - own, STRUCTURE_SHARE * nbytes / 8 - own
    equal = False
    if len(dims) >= 3 and len(set(dims)) == 1:
        fitting = [a for a in range(1, 16) if symmetric_floats(dims, a) <= most]
        if fitting:
            equal, left = True, left - symmetric_floats(dims, max(fitting)) - own
    if len(dims) >= 4 and symmetric_pairs_floats(dims) <= most:
        left -= symmetric_pairs_floats(dims) + own
    taken = nbytes / 8 - left
    halves = Partition.halves(dims)
    if whole_floats(halves) <= left and halves.sizes[0] <= WHOLE_ROWS:
        return RaceSize("whole", halves.sizes[0], taken + whole_floats(halves), equal)
    rows = range(1, min(halves.sizes[0], int(max(left, 0))) + 1)
    columns = bisect.bisect_right(rows, left, key=lambda r: state_floats(halves, r))  # as many as fit
    if columns >= min(FLOW_COLUMNS if len(dims) >= 5 else 1, halves.sizes[0]):
        return RaceSize("flow", columns, taken + state_floats(halves, columns), equal)
    if len(dims) >= 5:
        fixed, one = singles_floats(dims, 0), singles_floats(dims, 1)
        count = int((left - fixed) / (one - fixed))
        if count >= 1:
            return RaceSize("singles", count, taken + singles_floats(dims, count), equal)
    return None


def least_race_bytes(dims: tuple[int, ...]) -> float:
    """The least memory in which the race runs."""
    own = CANDIDATE_VECTORS * sum(dims)
    smallest = singles_floats(dims, 1) if len(dims) >= 5 else state_floats(Partition.halves(dims), 1)
    return 8 * (smallest + own + 1)
