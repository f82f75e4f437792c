r"""Climbing a moment of views: starts, and what is reached from them.

The moment has many local optima, so the starts matter:

* *shared*: leading directions of all views put side by side (MAXVAR, Kettenring 1971): what is related in pairs needs
  far fewer rows to be seen there than in a moment of high order;
* *random*: many, of which those that are highest after a few sweeps go on, twice, so that most of the sweeps are made
  by few of them.

With few rows the highest moments are those of single rows, and every sweep leads away from what the views share.  So
there are three steps on the way, and held-out rows choose: the highest top that was reached from any start
(``TOP``), a few sweeps from the shared starts (``FEW``), and the shared starts as they are (``UNMOVED``).

Climbs that leave out one fold each go in step: a start knows the fold that it leaves out, and one pass serves all.  The
climb on all rows then begins where those of the folds ended: between them they have tried so many starts already.

=================  ===================================================================
symbol             code
=================  ===================================================================
v_i                ``Starts.vectors[i]``, one row per start
g_m                :meth:`Objective.gradient`
(λ_c, u_c)         ``Objective.known``
=================  ===================================================================
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tpca.randomness import generator
from tpca.solvers.moments.accumulators import NONE, BasisImage, Folds, Products, total
from tpca.solvers.moments.starts import Effort, Starts
from tpca.solvers.rank_one import alternate, deflated, units
from tpca.tensors import RankOne
from tpca.tensors.blocks import Array

TOP, FEW, UNMOVED = range(3)
SHARED, EXTRA = 6, 4  # shared starts, and columns beside them in every block of the iteration that finds them
PASSES = 6  # of that iteration
FEW_SWEEPS, FIRST_SWEEPS, NEXT_SWEEPS = 5, 2, 3


# In development 64 random starts were enough for all real data tried, 128 for planted factors that do not show in pairs
# of views.  What is only judged needs not be as close to the top as what is reported.
ALONE = Effort(random=128, second=16, finalists=4, sweeps=60, tolerance=1e-9, last_sweeps=200, last_tolerance=1e-12)
JUDGED = Effort(random=32, second=8, finalists=3, sweeps=15, tolerance=1e-5)
# On all rows, after the folds.
REPORTED = Effort(random=16, second=4, finalists=4, sweeps=60, tolerance=1e-9, last_sweeps=200, last_tolerance=1e-12)


@dataclass(frozen=True)
class Steps:
    """What came of a climb: the three steps on the way, and the shared start that stands out most in pairs of views."""

    steps: tuple[RankOne, ...]
    pairs: tuple[Array, ...]


@dataclass(frozen=True)
class Objective:
    """The moment of some rows without one fold, less the components that are ``known`` by whoever leaves it out."""

    rows: Any
    dims: tuple[int, ...]
    clip: float | None = None
    known: Mapping[int, Sequence[RankOne]] | None = None

    def gradient(self, vectors: Sequence[Array], mode: int, out: Folds) -> Array:
        """g_m of every start."""
        folded = None if np.all(out == NONE) else out
        sums = total(self.rows, Products(vectors, mode, self.clip, folded))
        gradient = sums.total / np.maximum(sums.seen, 1)[:, None]
        for fold, known in (self.known or {}).items():
            own = out == fold
            gradient[own] = deflated(gradient[own], [v[own] for v in vectors], mode, known)
        return gradient

    def climb(self, starts: Starts, sweeps: int, tolerance: float = 0.0) -> Starts:
        """Alternate over the modes; a start is at rest when a sweep moves it by less than ``tolerance``, squared."""
        moving, here = np.arange(len(starts.out)), starts
        reached = starts[moving]
        for _ in range(sweeps):
            vectors, heights = alternate(functools.partial(self.gradient, out=here.out), here.vectors, 1)
            pairs = zip(vectors, here.vectors, strict=True)
            rest = tolerance > sum(np.sum((v - before) ** 2, axis=1) for v, before in pairs)
            here = Starts(vectors, here.out, heights)
            if rest.any():
                reached.put(moving[rest], here[rest])
                moving, here = moving[~rest], here[~rest]
            if not len(moving):
                break
        reached.put(moving, here)
        return reached

    def still(self, starts: Starts) -> Starts:
        """Starts as they are, with the signs that make their moments positive."""
        *others, last = starts.vectors
        heights = np.sum(self.gradient(starts.vectors, 0, starts.out) * starts.vectors[0], axis=1)
        return Starts([*others, last * np.where(heights < 0, -1.0, 1.0)[:, None]], starts.out, np.abs(heights))

    def random(self, count: int, folds: Sequence[int], seed: int) -> Starts:
        """So many random starts for every fold."""
        out = np.repeat(folds, count)
        draws = (generator(seed, f"random starts {i}").standard_normal((len(out), d)) for i, d in enumerate(self.dims))
        return Starts.at([units(each) for each in draws], out)

    def shared(self, folds: Sequence[int]) -> Starts:
        """The shared starts of every fold.

        The same whatever the seed: steps that go on from them without reaching a top depend on them.
        """
        vectors = shared_starts(self.rows, self.dims, np.array(folds), generator(0, "shared starts"))
        return Starts.at([v.reshape(-1, v.shape[-1]) for v in vectors], np.repeat(folds, vectors[0].shape[1]))


def steps_to_the_top(
    objective: Objective, folds: Sequence[int], seed: int, effort: Effort
) -> tuple[dict[int, Steps], Starts]:
    """Climb from all starts, with one fold left out after the other; the steps, and the tops that were reached."""
    shared = objective.shared(folds)
    few = objective.climb(shared, FEW_SWEEPS)
    top = _top(objective, few, folds, seed, effort)
    still, steps = objective.still(shared), {}
    for fold in folds:
        pairs = tuple(v[shared.out == fold][0] for v in shared.vectors)
        steps[fold] = Steps((top.top(fold), few.top(fold), still.top(fold)), pairs)
    return steps, top


def step_on_all_rows(objective: Objective, step: int, tops: Starts, seed: int, effort: Effort) -> RankOne:
    """One step on the way, on all rows: to the top from the ``tops`` of folds and some more random starts."""
    if step == TOP:
        starts = Starts.at(tops.vectors, np.full(len(tops.out), NONE))
        return _top(objective, starts, [NONE], seed, effort).top(NONE)
    shared = objective.shared([NONE])
    return (objective.climb(shared, FEW_SWEEPS) if step == FEW else objective.still(shared)).top(NONE)


def _top(objective: Objective, starts: Starts, folds: Sequence[int], seed: int, effort: Effort) -> Starts:
    """The tops that are reached from some starts and from random ones."""
    random = objective.climb(objective.random(effort.starts(objective.dims), folds, seed), FIRST_SWEEPS)
    reached = objective.climb(starts.joined(random.best(effort.second)), NEXT_SWEEPS)
    top = objective.climb(reached.best(effort.finalists), effort.sweeps, effort.tolerance)
    if effort.last_sweeps:
        top = objective.climb(top.best(1), effort.last_sweeps, effort.last_tolerance)
    return top


def shared_starts(rows: Any, dims: tuple[int, ...], out: Folds, rng: np.random.Generator) -> list[Array]:
    """Leading directions of all views side by side, cut into one vector per view: ``(F, SHARED, d_i)``, F folds.

    By block Lanczos iteration: the best within all images so far, which a pass more brings nearer than any number of
    columns more would where noise stands out nearly as much.
    """
    width, count, folded = sum(dims), min(SHARED + EXTRA, *dims), None if np.all(out == NONE) else out
    known = images = np.empty((len(out), width, 0))
    block = np.repeat(np.linalg.qr(rng.standard_normal((width, count)))[0][None], len(out), axis=0)
    for _ in range(PASSES):
        image = total(rows, BasisImage(block, dims, folded)).image
        known, images = np.concatenate([known, block], axis=2), np.concatenate([images, image], axis=2)
        block = _beside(known, image)[:, :, : width - known.shape[2]]
        if not block.shape[2]:
            break
    product = known.transpose(0, 2, 1) @ images
    axes = np.linalg.eigh((product + product.transpose(0, 2, 1)) / 2)[1][:, :, ::-1]
    best = (known @ axes[:, :, : min(SHARED, count)]).transpose(0, 2, 1)
    return [units(part) for part in np.split(best, np.cumsum(dims)[:-1], axis=2)]


def _beside(known: Array, image: Array) -> Array:
    """An orthonormal basis of what an image has beside the known columns; twice, for the sake of rounding."""
    for _ in range(2):
        image = np.linalg.qr(image - known @ (known.transpose(0, 2, 1) @ image))[0]
    return image
