r"""Climbing a moment of views: starts, and what is reached from them.

The moment has many local optima, so the starts matter:

* *shared*: leading directions of all views put side by side (MAXVAR, Kettenring 1971): what is related in pairs needs
  far fewer rows to be seen there than in a moment of high order;
* *random*: many, of which those that are highest after a few sweeps go on, twice, so that most of the sweeps are made
  by few of them.

With few rows the highest moments are those of single rows, and every sweep leads away from what the views share.  So
there are three steps on the way, and held-out rows choose: the highest top that was reached from any start
(``TOP``), a few sweeps from the shared starts (``FEW``), and the shared starts as they are (``STILL``).

=================  ===================================================================
symbol             code
=================  ===================================================================
v_i                ``vectors[i]``, one row per start
g_m                :func:`mode_gradient`
(λ_c, u_c)         ``deflate``
=================  ===================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tpca.randomness import generator
from tpca.solvers.moments.accumulators import BasisImage, Products, total
from tpca.solvers.rank_one import alternate, deflated, units
from tpca.tensors import RankOne
from tpca.tensors.blocks import Array

TOP, FEW, STILL = range(3)
SHARED, EXTRA = 6, 4  # shared starts, and columns beside them in every block of the iteration that finds them
PASSES = 6  # of that iteration
FEW_SWEEPS, FIRST_SWEEPS, NEXT_SWEEPS = 5, 2, 3
SAME_TOP = 0.99  # overlap of all vectors at which two climbs count as one


@dataclass(frozen=True)
class Effort:
    """How much goes into a climb: ``random`` starts, of which ``second`` go on, and ``finalists`` of all starts.

    Finalists make so many ``sweeps``, or rest when their squared change is below ``tolerance``; the best of them makes
    ``last_sweeps`` more, or rests at ``last_tolerance``.  Wide views have fewer random starts, as many as have
    ``ENTRIES`` in all, but no fewer than ``second``.
    """

    random: int
    second: int
    finalists: int
    sweeps: int
    tolerance: float
    last_sweeps: int = 0
    last_tolerance: float = 0.0

    ENTRIES: ClassVar[int] = 2**15

    def starts(self, dims: Sequence[int]) -> int:
        """Random starts for views of these widths."""
        return max(self.second, min(self.random, self.ENTRIES // sum(dims)))


# In development 64 random starts were enough for all real data tried, 128 for planted factors that do not show in pairs
# of views.  What is only judged needs not be as close to the top as what is reported.
JUDGED = Effort(random=48, second=8, finalists=3, sweeps=15, tolerance=1e-5)
REPORTED = Effort(random=128, second=16, finalists=4, sweeps=60, tolerance=1e-9, last_sweeps=200, last_tolerance=1e-12)


@dataclass(frozen=True)
class Steps:
    """What came of a climb: the three steps on the way, and the shared start that stands out most in pairs of views."""

    steps: tuple[RankOne, ...]
    pairs: tuple[Array, ...]


def steps_to_the_top(
    rows: Any, dims: tuple[int, ...], clip: float | None, deflate: Sequence[RankOne], seed: int, effort: Effort
) -> Steps:
    """Climb from all starts."""
    # The same shared starts whatever the seed: steps that go on from them without reaching a top depend on them.
    shared = shared_starts(rows, dims, generator(0, "shared starts"))
    few, heights = climb(rows, shared, FEW_SWEEPS, 0.0, clip, deflate)
    starts = [
        units(generator(seed, f"random starts {i}").standard_normal((effort.starts(dims), d)))
        for i, d in enumerate(dims)
    ]
    random, moments = climb(rows, starts, FIRST_SWEEPS, 0.0, clip, deflate)
    chosen = distinct(random, moments, effort.second)
    both = [np.concatenate([v, w[chosen]]) for v, w in zip(few, random, strict=True)]
    reached, moments = climb(rows, both, NEXT_SWEEPS, 0.0, clip, deflate)
    chosen = distinct(reached, moments, effort.finalists)
    top, highest = climb(rows, [v[chosen] for v in reached], effort.sweeps, effort.tolerance, clip, deflate)
    if effort.last_sweeps:
        best = [int(np.argmax(highest))]
        top, highest = climb(rows, [v[best] for v in top], effort.last_sweeps, effort.last_tolerance, clip, deflate)
    steps = (_best(top, highest), _best(few, heights), _still(rows, shared, clip, deflate))
    return Steps(steps, tuple(v[0] for v in shared))


def climb(
    rows: Any,
    vectors: Sequence[Array],
    sweeps: int,
    tolerance: float,
    clip: float | None,
    deflate: Sequence[RankOne],
) -> tuple[list[Array], Array]:
    """Alternate over the modes until all starts are at rest; the vectors reached and their moments."""
    return alternate(lambda v, mode: mode_gradient(rows, v, mode, clip, deflate), vectors, sweeps, tolerance)


def mode_gradient(
    rows: Any, vectors: Sequence[Array], mode: int, clip: float | None, deflate: Sequence[RankOne]
) -> Array:
    """g_m of every start, over all of some rows."""
    sums = total(rows, Products(vectors, mode, clip))
    return deflated(sums.total / max(sums.n, 1), vectors, mode, deflate)


def shared_starts(rows: Any, dims: tuple[int, ...], rng: np.random.Generator) -> list[Array]:
    """Leading directions of all views side by side, cut into one vector per view.

    By block Lanczos iteration: the best within all images so far, which a pass more brings nearer than any number of
    columns more would where noise stands out nearly as much.
    """
    width, count = sum(dims), min(SHARED + EXTRA, *dims)
    known, images = np.empty((width, 0)), np.empty((width, 0))
    block = np.linalg.qr(rng.standard_normal((width, count)))[0]
    for _ in range(PASSES):
        image = total(rows, BasisImage(block, dims)).image
        known, images = np.hstack([known, block]), np.hstack([images, image])
        block = _beside(known, image)[:, : width - known.shape[1]]
        if not block.shape[1]:
            break
    product = known.T @ images
    values, axes = np.linalg.eigh((product + product.T) / 2)
    best = known @ axes[:, np.argsort(-values)[: min(SHARED, count)]]
    return [units(part.T) for part in np.split(best, np.cumsum(dims)[:-1])]


def distinct(vectors: Sequence[Array], moments: Array, most: int) -> list[int]:
    """The best starts that have not ended at the same place as a better one."""
    alike = np.min([np.abs(v @ v.T) for v in vectors], axis=0) > SAME_TOP
    chosen: list[int] = []
    for r in np.argsort(-moments, kind="stable"):
        if len(chosen) < most and not alike[r, chosen].any():
            chosen.append(int(r))
    return chosen


def _beside(known: Array, image: Array) -> Array:
    """An orthonormal basis of what an image has beside the known columns; twice, for the sake of rounding."""
    for _ in range(2):
        image = np.linalg.qr(image - known @ (known.T @ image))[0]
    return image


def _still(rows: Any, shared: Sequence[Array], clip: float | None, deflate: Sequence[RankOne]) -> RankOne:
    """The best of the shared starts as they are, with the sign that makes its moment positive."""
    moments = np.sum(mode_gradient(rows, shared, 0, clip, deflate) * shared[0], axis=1)
    *others, last = shared
    return _best([*others, last * np.where(moments < 0, -1.0, 1.0)[:, None]], np.abs(moments))


def _best(vectors: Sequence[Array], moments: Array) -> RankOne:
    best = int(np.argmax(moments))
    return RankOne(float(moments[best]), tuple(v[best] for v in vectors))
