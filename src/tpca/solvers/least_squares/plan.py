r"""What least squares holds: how many bins, samples and flips at a time, within the memory.

There are 2048 bins for digests at most, a power of two; for large samples no more than take 2²¹ numbers, but 32, and
fewer, down to 8, only where the memory asks for it.  Bins of neighbours are 32 to 64, fewer from 16 on.  All of this
follows from the shape of samples, their columns and the memory, not from their number, so that samples that are given
at once and samples that are pushed in one after the other end in the same bins; but for groups that do not fit, whose
number is known only of samples that are given at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tpca.errors import MemoryBudgetError
from tpca.inference.design import Design
from tpca.inference.flips import CHUNK
from tpca.inference.regression import SINGLE_PRECISION
from tpca.solvers.least_squares.sums import Binning
from tpca.tensors.adding import ROWS, SMALL_SAMPLE
from tpca.wording import amount

MOST_UNITS = 2048
"""Bins of digests, or groups; up to some 2000 samples of usual size a bin is a sample."""
MANY = 256
"""Bins of digests for which the first samples are looked at for copies; fewer show nothing, but of small samples."""
USUAL_DEALT = 32
FEWEST_DEALT = 8
"""Bins of digests, whatever the size of samples; and where the memory is short."""
MOST_NEIGHBOURS = 64
USUAL_NEIGHBOURS = 32
FEWEST_NEIGHBOURS = 16
"""Bins of neighbours at most: there are then half as many at least.  A stretch has whole bins from 16 on."""
USUAL_NUMBERS = 2**21
"""Numbers of all bins of a kind: 16 MB, which are added up in little time, and sent in little time."""
SETS = 3
"""Sums of all bins that are held while samples are added: of levels, of a level, and of a stretch."""
VERSIONS = 2
"""Contributions of units while they are tested: as they are; and whitened, from which loud directions are taken."""
FLIP_COPIES = 2
"""Flipped tensors, while they are fitted: as they are, and a piece of them."""
MOST_KEPT = 256
USUAL_KEPT = 24
FEWEST_KEPT = 8
LEAST_KEPT = 2
KEPT_NUMBERS = 3 * 2**19
"""Samples for whitening and advice: as many as have so many numbers, but 24 where they fit, 8 in little memory."""
SHORTEST_STRETCH = 64
"""Samples: fewer cost less to add up than their sums."""


@dataclass(frozen=True)
class BinPlan:
    """The bins, numbers of flips that are held at a time, and bytes of all."""

    binning: Binning
    chunk: int
    nbytes: int


@dataclass(frozen=True)
class Sizes:
    """What a bin takes: ``entries`` of a sample, ``columns`` of the design, those of ``interest`` as one question."""

    entries: int
    columns: int
    interest: int
    partial: bool

    @property
    def bin_bytes(self) -> int:
        """Bytes of the sums of one bin."""
        grams = self.columns**2 if self.partial else 0
        return 8 * self.entries * (self.columns + grams)

    @property
    def unit_bytes(self) -> int:
        """Bytes of all versions of what one unit contributes."""
        return VERSIONS * contribution_bytes(self.entries) * self.entries * self.interest

    @property
    def kept_bytes(self) -> int:
        """Bytes of a sample that is kept: as it is, with what was seen of it, and what is left of it, whitened."""
        return 16 * self.entries * (2 if self.partial else 1)

    @property
    def estimate_bytes(self) -> int:
        """Bytes of the estimate, the background and the squares."""
        return 8 * self.entries * (self.columns + 4 * self.interest + 2)


def contribution_bytes(entries: int) -> int:
    """Bytes of a number of a contribution."""
    return 4 if entries > SINGLE_PRECISION else 8


def plan_memory(
    dims: Sequence[int],
    design: Design,
    dependence: str | int | None,
    partial: bool,
    limit: int,
    pushed: bool = False,
) -> BinPlan:
    """As many bins as fit into ``limit`` bytes; refuses less than the fewest.

    Of samples that are ``pushed`` there may come groups that nobody has heard of.
    """
    entries = math.prod(dims)
    interest = design.n_columns - design.n_nuisance if design.stacked else 1
    sizes = Sizes(entries, design.n_columns, interest, partial)
    dealt, neighbours, shortest = usual_bins(sizes, design, dependence, pushed)
    fewest_dealt = min(dealt, FEWEST_DEALT)
    fewest_neighbours = min(neighbours, FEWEST_NEIGHBOURS)
    while bytes_of_bins(sizes, dealt, neighbours) + FEWEST_KEPT * sizes.kept_bytes > limit:
        if dealt > fewest_dealt and dealt >= neighbours:
            dealt = max(fewest_dealt, dealt // 2)
        elif neighbours > fewest_neighbours:
            neighbours = max(fewest_neighbours, neighbours // 2)
        elif dealt > fewest_dealt:
            dealt = max(fewest_dealt, dealt // 2)
        elif bytes_of_bins(sizes, dealt, neighbours) + LEAST_KEPT * sizes.kept_bytes <= limit:
            break
        else:
            needed = amount(bytes_of_bins(sizes, dealt, neighbours) + LEAST_KEPT * sizes.kept_bytes)
            raise MemoryBudgetError(
                f"the sums of {dealt + neighbours} units of samples of shape {tuple(dims)} take {needed}, the memory "
                f"is {amount(limit)}; raise memory_limit, or use solver='race', which holds less."
            )
    held = bytes_of_bins(sizes, dealt, neighbours)
    fit = max(LEAST_KEPT, (limit - held) // sizes.kept_bytes)
    kept = min(MOST_KEPT, max(USUAL_KEPT, KEPT_NUMBERS // entries), fit)
    held += kept * sizes.kept_bytes
    chunk = int(min(CHUNK, max(entries, (limit - held) // (8 * FLIP_COPIES))))
    binning = Binning(
        dealt=dealt,
        neighbours=neighbours,
        stretch=stretch_of(shortest),
        samples=kept,
        shortest=shortest,
        grouped=design.groups is not None,
        partial=partial,
        looks=design.groups is None and dealt > 0 and (dealt >= MANY or entries <= SMALL_SAMPLE),
    )
    return BinPlan(binning, chunk, held)


def usual_bins(sizes: Sizes, design: Design, dependence: str | int | None, pushed: bool) -> tuple[int, int, int]:
    """Bins of digests or groups, bins of neighbours, and the fewest samples of one, if the memory is large."""
    bin_numbers = sizes.bin_bytes // 8
    most_dealt = power_between(USUAL_NUMBERS // bin_numbers, USUAL_DEALT, MOST_UNITS)
    if design.groups is not None:
        units = MOST_UNITS
        if not pushed:
            units = min(units, len(design.group_names))
        return units, 0, 1
    if dependence is None:
        return most_dealt, 0, 1
    if isinstance(dependence, int):
        return 0, most_dealt, dependence
    return most_dealt, power_between(USUAL_NUMBERS // bin_numbers, USUAL_NEIGHBOURS, MOST_NEIGHBOURS), 1


def power_between(most: int, least: int, largest: int) -> int:
    """The largest power of two up to ``most`` that lies between two others."""
    power = 1 << max(0, most.bit_length() - 1)
    return min(max(power, least), largest)


def stretch_of(shortest: int) -> int:
    """Samples of the first stretches: whole bins of neighbours, and a multiple of what is added at a time."""
    doubled = ROWS
    while shortest * doubled < SHORTEST_STRETCH:
        doubled *= 2
    return shortest * doubled


def bytes_of_bins(sizes: Sizes, dealt: int, neighbours: int) -> int:
    """The most that is held of bins: while samples are added, or while contributions are tested."""
    tested = neighbours or dealt
    added_up = (SETS * dealt + neighbours) * sizes.bin_bytes
    concluded = (dealt + neighbours) * sizes.bin_bytes + tested * sizes.unit_bytes
    return max(added_up, concluded) + sizes.estimate_bytes


def bytes_of_fewest_bins(dims: Sequence[int]) -> int:
    """The least memory that least squares of a mean needs."""
    sizes = Sizes(math.prod(dims), 1, 1, False)
    return bytes_of_bins(sizes, FEWEST_DEALT, FEWEST_NEIGHBOURS) + LEAST_KEPT * sizes.kept_bytes
