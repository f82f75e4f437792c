r"""Moments of stored views: the best rank-one part of E[z_1 ⊗ … ⊗ z_k̄], in a few passes, without building it.

Views z_i are whitened rows.  With scores :math:`y_i = \langle z_i, v_i\rangle` the moment
:math:`E[y_1\cdots y_{\bar k}]` is climbed by alternating over the modes (higher-order power iteration, many starts at
once; :mod:`tpca.solvers.moments.climb`):

.. math::
    g_m = E\Bigl[z_m \prod_{i\ne m} y_i\Bigr]
          - \sum_c \lambda_c \prod_{i\ne m}\langle v_i, u_{ic}\rangle\, u_{mc}, \qquad v_m = g_m/\|g_m\|,

the sum being over components (λ_c, u_c) found before.

Rows are in K folds.  Each is held out once: all others are climbed on, for all folds in step, and the fold's rows are
scored with what was reached.  So every row is judged by a fit that has not seen it; all of them together say how far to
climb (to the top, a few sweeps, or not at all), and a permutation test by fold whether it could be chance
(:mod:`tpca.solvers.moments.judge`).  If it could not, the same is done on all rows: what was judged is the procedure on
a part of the rows, an honest and cautious figure.

The same data give the same components: folds depend on what is in the rows, what is decided is decided on all rows and
without the seed, and the last climb goes on from the tops of all folds, whose starts were so many that what the seed
adds reaches none higher.

With ``clip`` a score counts at most ``clip`` standard deviations, so that a row's influence on the moment is bounded by
clip^k̄ (rows were drawn back to ``clip`` typical distances before, :mod:`tpca.streams.whitening`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.engines import open_engine
from tpca.errors import SolverError
from tpca.integers import check_integer
from tpca.randomness import generator
from tpca.solvers.base import Callback, check_options, check_positive, check_seed, check_share, option
from tpca.solvers.moments.accumulators import NONE, FoldCounts, HeldScores, total
from tpca.solvers.moments.climb import ALONE, JUDGED, REPORTED, Objective, Steps, step_on_all_rows, steps_to_the_top
from tpca.solvers.moments.judge import (
    MAX_PERMUTATIONS,
    PERMUTATIONS,
    aside,
    choose,
    combined,
    correlation,
    p_value,
    pairs_p_value,
    products,
)
from tpca.solvers.moments.rows import Rows, Split
from tpca.solvers.rank_one import is_ghost, oriented
from tpca.tensors import RankOne
from tpca.tensors.blocks import Array

MIN_ROWS = 20
SAME = 0.7  # overlap above which a vector is that of an earlier component


@dataclass(frozen=True)
class Moment:
    """One component: vectors among the whitened columns, its moment on all rows, and what held-out rows say of it."""

    vectors: tuple[Array, ...]
    moment: float
    correlation: float
    correlation_error: float
    p_value: float
    trained: tuple[RankOne, ...] = ()
    """The same from the rows that every fold learnt from."""
    pairs_p_value: float = math.nan
    """Where an odd number of views proves nothing: the chance of views as related in pairs by accident."""


@dataclass(frozen=True)
class Judged:
    """A fold: what was reached without it, and the scores of its rows.

    ``scores[s][i]`` are those of view i at step s, ``aside`` the same along what known components have no part in, and
    ``pairs`` those along the shared start that stands out most in pairs of views.
    """

    reached: Steps
    scores: Sequence[Sequence[NDArray[Any]]]
    aside: Sequence[Sequence[NDArray[Any]]]
    pairs: Sequence[NDArray[Any]]


@dataclass(kw_only=True, eq=False)
class MomentSolver:
    """Rank-one parts of the moment of stored views, one after the other, as long as held-out rows prove them."""

    random_state: int = option(0, check_seed)
    n_components: int = option(1, check_integer)
    validation_fraction: float = option(0.2, check_share)
    clip: float | None = option(None, check_positive)
    confidence: float = option(0.95, check_share)
    memory_limit: float = option(256e6)
    refit: bool = option(True)
    callbacks: Sequence[Callback] = option((), lambda _, value: tuple(value), setting=False)

    def __post_init__(self) -> None:
        check_options(self)

    def run(self, data: Any) -> list[Moment]:
        """Components, strongest evidence first found; the last one is not proven if its ``p_value`` is too large.

        ``data`` is a stream of whitened views, or an engine over one.
        """
        progress = Progress(self.callbacks)
        # Without a refit what is judged is what is reported: one fold.
        split = Split.into(self.validation_fraction, single=not self.refit)
        rows = Rows(open_engine(data), split, self.memory_limit, progress.after_pass)
        self._check_rows(rows)
        found: list[Moment] = []
        while len(found) < self.n_components:
            progress.component = len(found) + 1
            found.append(self._component(rows, found, progress))
            if any(is_ghost(found[-1].vectors, earlier.vectors, SAME) for earlier in found[:-1]):
                found.pop()
                break
            if not self._proven(found[-1].p_value):
                break
        return found

    def _check_rows(self, rows: Rows) -> None:
        counts = total(rows, FoldCounts(rows.split.count))
        if counts.n < MIN_ROWS:
            raise SolverError(f"at least {MIN_ROWS} rows are needed to learn from and to judge by, got {counts.n}.")
        learnt = counts.n - int(counts.held[0])
        if learnt < 2:
            raise SolverError(
                f"validation_fraction={self.validation_fraction} leaves {learnt} of {counts.n} rows to learn from; "
                "hold out fewer, or give more."
            )

    def _component(self, rows: Rows, found: Sequence[Moment], progress: Progress) -> Moment:
        progress.phase = "folds"
        # What the rows that a climb sees say of the earlier components is subtracted: nothing of others gets in.
        known = {fold: [moment.trained[fold] for moment in found] for fold in range(rows.split.count)}
        known[NONE] = [RankOne(earlier.moment, earlier.vectors) for earlier in found]
        objective = Objective(rows, rows.dims, self.clip, known)
        # What is only judged has the same random starts whatever the seed: so are the verdict, and how far to climb.
        effort, seed = (JUDGED, 0) if self.refit else (ALONE, self.random_state)
        steps, tops = steps_to_the_top(objective, range(rows.split.count), seed, effort)
        folds = self._judged(rows, steps, known)
        held = self._products(folds)
        chosen = choose(held)
        mean, error = correlation(held[chosen])
        shufflings = self._shufflings()
        rng = generator(0, "shufflings")  # the same whatever the seed: so is the verdict
        p = combined([p_value(each.aside, chosen, self.clip, rng, shufflings) for each in folds])
        best, pairs = folds[0].reached.steps[chosen], math.nan
        if self.refit and self._proven(p):
            progress.phase = "all rows"
            best = step_on_all_rows(objective, chosen, tops, self.random_state, REPORTED)
        elif len(rows.dims) % 2 and not found and not self._proven(p):
            pairs = combined([pairs_p_value(each.pairs, rng, PERMUTATIONS) for each in folds])
        progress.judged(mean, error, self._proven(p))
        trained = tuple(each.reached.steps[chosen] for each in folds)
        return Moment(oriented(best.vectors), best.strength, mean, error, p, trained, pairs)

    def _judged(self, rows: Rows, steps: dict[int, Steps], known: dict[int, list[RankOne]]) -> list[Judged]:
        """Score the rows of every fold along what was reached without them."""
        asked = []
        for fold, reached in steps.items():
            vectors = [step.vectors for step in reached.steps]
            each = [*vectors, *(aside(own, known[fold]) for own in vectors), reached.pairs]
            asked.append([np.stack(mode) for mode in zip(*each, strict=True)])
        scores, folds = total(rows, HeldScores(asked)), []
        for fold, reached in steps.items():
            joined, count = scores.joined(fold), len(reached.steps)
            each = [[view[:, level] for view in joined] for level in range(2 * count + 1)]
            folds.append(Judged(reached, each[:count], each[count:-1], each[-1]))
        return folds

    def _products(self, folds: Sequence[Judged]) -> list[Array]:
        """Products of the scores of all rows that were held out, for every step."""
        steps = range(len(folds[0].scores))
        return [np.concatenate([products(each.scores[step], self.clip) for each in folds]) for step in steps]

    def _shufflings(self) -> int:
        """Enough for the level asked for to be reached by one fold, up to a confidence of about 0.9999."""
        return min(max(PERMUTATIONS, math.ceil(2 / (1 - self.confidence))), MAX_PERMUTATIONS)

    def _proven(self, p: float) -> bool:
        return p <= 1 - self.confidence


class Progress:
    """Counts rows and tells the callbacks what is being done, pass after pass."""

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        self.component, self.phase = 1, "reading"
        self._callbacks, self._rows = tuple(callbacks), 0
        self._known: dict[str, Any] = {}

    def after_pass(self, rows: int) -> None:
        """One more pass over so many rows."""
        self._rows += rows
        self._tell()

    def judged(self, correlation: float, error: float, proven: bool) -> None:
        """What held-out rows say of a component."""
        self._known = {"strength": correlation, "strength_error": error, "found": proven, "measure": "correlation"}
        self.phase = "judged"
        self._tell()

    def _tell(self) -> None:
        for callback in self._callbacks:
            callback({"phase": f"component {self.component}, {self.phase}", "samples": self._rows, **self._known})
