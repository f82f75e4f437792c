r"""What rows that were held out say of a climb: how far to go, how related the scores are, and whether by chance.

Scores of one set of vectors are standardised over the rows of their fold; their product has the mean

.. math::
    \rho = E[\tilde y_1 \cdots \tilde y_{\bar k}],

the correlation of higher order.  Without any relation all ways to shuffle the rows of the views against each other are
equally likely, which gives p for every fold, whatever the law of the scores.

The fits of K folds have most of their rows in common, so that their p are not independent.  As normal scores
:math:`z_f = \Phi^{-1}(1 - p_f)` they add up (Stouffer 1949),

.. math::
    p = 1 - \Phi\Bigl(\sum_f z_f \Big/ \sqrt{K\,b_K}\Bigr), \qquad
    b_K = 1 + \max_j\, j\,\Bigl(\frac{K-2}{K-1}\Bigr)^{j-1} ,

b being a bound on what dependence adds to the variance (K = 5: 2.69).  Where no relation is, the moments C_f of the
folds are as good as independent and normal, and what is judged is
:math:`m_f = \langle C_f, W(\sum_{g\ne f} C_g)\rangle`, with any W of length 1.  By Stein's identity
:math:`\mathrm{cov}(m_f, m_g) \le E\|E[\nabla W \mid \text{all but } f, g]\|^2`; of a part of W of degree j in the
Hermite polynomials of the sum that is :math:`j\,((K-2)/(K-1))^{j-1}/(K-1)` of its square, however many parts there are.
A z counts at most ``MAX_Z``, which is less than all that is needed: no single fold decides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from tpca.solvers.moments.accumulators import bounded
from tpca.solvers.rank_one import units
from tpca.tensors import RankOne
from tpca.tensors.blocks import Array

PERMUTATIONS, MAX_PERMUTATIONS = 199, 29_999
EXACT_ROWS = 4000  # above this many rows the permutation law is normal enough
AT_A_TIME = 2**18  # numbers shuffled at a time
ENOUGH = 100  # shufflings as related as what was found, after which p is known to a tenth, and more are not needed
# Standard errors by which a shorter climb must be better.  Products have heavy tails, and the mean of m rows that are
# far out, all others being nothing beside them, is about the root of m of its standard errors: three decide nothing.
CLEARLY = 2.0
MAX_Z = float(-ndtri(1e-4))


def standardised(views: Sequence[NDArray[Any]], clip: float | None) -> list[Array]:
    """Scores of mean 0 and variance 1, at most ``clip`` in size."""
    each = []
    for view in views:
        wide = view.astype(np.float64)
        spread = float(wide.std())
        each.append(bounded((wide - wide.mean()) / (spread or 1.0), clip))
    return each


def products(views: Sequence[NDArray[Any]], clip: float | None) -> Array:
    """Products of the standardised scores of all views, row by row."""
    each: Array = np.prod(standardised(views, clip), axis=0)
    return each


def choose(steps: Sequence[Array]) -> int:
    """How far to climb: to the top, unless held-out rows are clearly better off with less.

    ``steps`` are the products of every step, of the same rows.
    """
    chosen = 0
    for step in range(1, len(steps)):
        gain = steps[step] - steps[chosen]
        if len(gain) > 1 and gain.mean() > CLEARLY * gain.std(ddof=1) / math.sqrt(len(gain)):
            chosen = step
    return chosen


def correlation(each: Array) -> tuple[float, float]:
    """The mean of the products of held-out rows, and its standard error."""
    if len(each) < 3:
        return math.nan, math.nan
    return float(each.mean()), float(each.std(ddof=1)) / math.sqrt(len(each))


def p_value(
    steps: Sequence[Sequence[NDArray[Any]]], chosen: int, clip: float | None, rng: np.random.Generator, shufflings: int
) -> float:
    """The chance of scores as related as those of one step by accident, in the best of all steps.

    ``steps[s][i]`` are the scores of view i, the same rows for all steps.
    """
    rows = len(steps[0][0])
    if rows < 3:
        return 1.0
    standard = [standardised(views, clip) for views in steps]
    each = np.prod(standard[chosen], axis=0)
    mean, spread = float(each.mean()), float(each.std(ddof=1))
    if not spread > 0:
        return 1.0
    if rows > EXACT_ROWS:
        return min(1.0, len(steps) * float(ndtr(-mean * math.sqrt(rows) / spread)))
    # In the order of the first scores, so that what shuffling gives does not depend on the order of the rows.
    scores = np.array(standard)[:, :, np.argsort(standard[0][0], kind="stable")]
    return _chance(mean, scores, rng, shufflings)


def pairs_p_value(views: Sequence[NDArray[Any]], rng: np.random.Generator, shufflings: int) -> float:
    """The chance of scores as related in pairs by accident: the mean of y_i y_j over all pairs of views."""
    rows = len(views[0])
    if rows < 3:
        return 1.0
    scores = np.array(standardised(views, None))[:, np.argsort(views[0], kind="stable")]
    # The sum over all pairs is (square of the sum - sum of squares) / 2, and shuffling leaves the squares alone.
    found, higher = float(np.mean(scores.sum(axis=0) ** 2)), 1
    for _ in range(shufflings):
        higher += bool(np.mean(rng.permuted(scores, axis=1).sum(axis=0) ** 2) >= found)
    return higher / (shufflings + 1)


def combined(p_values: Sequence[float]) -> float:
    """One p of those of K folds."""
    count = len(p_values)
    if count == 1:
        return p_values[0]
    z = np.clip(-ndtri(np.array(p_values)), -MAX_Z, MAX_Z)
    return float(ndtr(-z.sum() / math.sqrt(count * inflation(count))))


def inflation(folds: int) -> float:
    """b_K: by how much the dependence of folds may raise the variance of their sum."""
    degrees = np.arange(1, folds + 1)  # the largest is at 1 / log((K - 1)/(K - 2)) < K
    return 1 + float(np.max(degrees * ((folds - 2) / (folds - 1)) ** (degrees - 1)))


def aside(vectors: Sequence[Array], known: Sequence[RankOne]) -> list[Array]:
    """Vectors without what they have in common with those of known components, view by view.

    Scores along them are uncorrelated with the scores of those components: only they can prove another one.  Along
    vectors that are partly those of a known component, views are related by what is known already.
    """
    left = [v.copy() for v in vectors]
    for mode, v in enumerate(left):
        if known:
            basis = np.linalg.qr(np.stack([one.vectors[mode] for one in known], axis=1))[0]
            v -= basis @ (basis.T @ v)
    return [units(v[None])[0] for v in left]


def _chance(mean: float, scores: Array, rng: np.random.Generator, shufflings: int) -> float:
    """Share of shufflings of ``scores`` (steps, views, rows) in which the best step has at least this mean product."""
    steps, views, rows = scores.shape
    done, higher = 0, 1
    while done < shufflings and higher <= ENOUGH:
        count = min(shufflings - done, max(PERMUTATIONS, AT_A_TIME // (steps * rows)))
        product = np.repeat(scores[:, :1], count, axis=1)
        for view in range(1, views):
            order = rng.permuted(np.broadcast_to(np.arange(rows), (count, rows)), axis=1)
            product *= scores[:, view][:, order]
        higher += int(np.count_nonzero(product.mean(axis=2).max(axis=0) >= mean))
        done += count
    return higher / (done + 1)
