"""Samples so much larger than those before them that what is made of them leaves the range of floats.

Solvers work in units of the first samples (:mod:`tpca.solvers.race.scale`), so the scale of the data is free; only
values that are far beyond all others are left, and these are refused before anything is added up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from tpca.errors import SampleError
from tpca.tensors.blocks import Array

WILD = 2.0**200  # contractions in units of the noise: the race forms their fourth powers, times numbers of samples


def largest(arrays: Iterable[Array]) -> float:
    """The largest size of an entry; NaN if there is one."""
    sizes = [float(size) for a in arrays if a.size for size in (a.max(), -a.min())]
    return math.nan if any(map(math.isnan, sizes)) else max(sizes, default=0.0)


def refuse_beyond(most: float, size: float, scale: float, first: int, n: int) -> None:
    """Refuse ``n`` samples from number ``first`` of a pass, of this ``size`` in units of 1/``scale``, if it is more."""
    if size <= most:
        return
    values = f"about {size / scale:.0e}" if math.isfinite(size / scale) else "more than the largest float"
    raise SampleError(
        f"samples {first} to {first + n - 1} of this pass hold values that come to {values}, so far beyond those "
        f"before, about {1 / scale:.0e}, that products overflow; leave such samples out, clip them, or, if all samples "
        "are as large, divide them by some power of ten."
    )
