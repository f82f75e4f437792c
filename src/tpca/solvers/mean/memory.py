"""The memory that a fit of the mean takes, and how many groups of samples fit into what is given."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tpca.errors import MemoryBudgetError
from tpca.solvers.mean.fit import WORK, most_starts, unfoldings
from tpca.solvers.rank_one import DENSE_ROWS, LANCZOS

# Groups of samples: one less is the number of contrasts that show what noise does.  Beyond eight there is little to
# gain (a threshold lower by 0.04 σ), below two there is nothing to tell noise from signal.
GROUPS = (8, 4, 2)


def mean_bytes(dims: Sequence[int], groups: int) -> int:
    """Peak state: the sums and, beside them, the samples in flight or the work of a fit, whichever is more."""
    entries = math.prod(dims)
    starts = most_starts(dims) * sum(dims) * groups
    climbing = max(entries, WORK) + 4 * starts
    fitting = _spectral(dims) if len(dims) == 2 else max(_spectral(dims) + starts, climbing)
    return 8 * (groups * entries + max(entries, fitting))


def _spectral(dims: Sequence[int]) -> int:
    """Floats to find the starts: an unfolding out of order is a copy; its singular vectors have a few of their own."""
    sizes = [sorted(math.prod(dims[n] for n in side) for side in pair) for pair in unfoldings(dims)]
    rows, columns = max(small for small, _ in sizes), max(large for _, large in sizes)
    copy = math.prod(dims) if len(dims) > 2 else 0
    return copy + 8 * columns + (3 * rows if rows <= DENSE_ROWS else LANCZOS + 3) * rows


def groups_within(dims: Sequence[int], nbytes: int) -> int:
    """The most groups that fit into ``nbytes``."""
    for groups in GROUPS:
        if mean_bytes(dims, groups) <= nbytes:
            return groups
    raise MemoryBudgetError(
        f"memory_limit of {nbytes} bytes is too small for the mean of samples of shape {tuple(dims)}; "
        f"give at least {mean_bytes(dims, GROUPS[-1])} bytes, or use RaceSolver."
    )
