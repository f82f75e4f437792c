r"""Whether two halves of the data show the same components.

Units of samples are split into two halves at random, components are fitted to each half alone, and those of a half are
matched with those of the whole (by the assignment of largest total :math:`|\cos|`).  The agreement of component c is
the cosine of its two unit patterns, :math:`\prod_m \langle u_m, v_m\rangle`, averaged over a few splits: 1 if both
halves show the same pattern, near 0 if they have nothing in common.  Split-half analysis of Harshman & DeSarbo (1984).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from scipy.optimize import linear_sum_assignment

from tpca.tensors.blocks import Array

SPLITS = 5
Patterns = Sequence[Sequence[Array]]


def half_agreements(n_units: int, fitted: Callable[[Array], Patterns], whole: Patterns, signed: bool = True) -> Array:
    """The agreement of every component of ``whole``; ``fitted`` gives those of the units whose numbers it is given.

    Without ``signed`` a pattern and its negative are the same.  NaN for fewer than four units, and for a component that
    is zero.
    """
    if n_units < 4:
        return np.full(len(whole), math.nan)
    rng = np.random.default_rng(0)  # fixed: the answer has no seed
    each = []
    for _ in range(SPLITS):
        order = rng.permutation(n_units)
        halves = [fitted(np.sort(some)) for some in np.array_split(order, 2)]
        matched = [[half[int(j)] for j in linear_sum_assignment(_distances(whole, half))[1]] for half in halves]
        each.append([cosine(a, b) for a, b in zip(*matched, strict=True)])
    mean = np.mean(each if signed else np.abs(each), axis=0)
    there = [all(v.any() for v in vectors) for vectors in whole]
    return np.where(there, mean, math.nan)


def cosine(one: Sequence[Array], other: Sequence[Array]) -> float:
    """Of two unit patterns."""
    return math.prod(float(v @ u) for v, u in zip(one, other, strict=True))


def _distances(some: Patterns, others: Patterns) -> Array:
    return np.array([[-abs(cosine(one, other)) for other in others] for one in some])
