r"""How strong a signal may be that was not found: an upper limit that noise of any covariance leaves valid.

A fit may miss a signal that is there, so its length limits nothing; a norm misses nothing.  Unfold X and every group x'
of :mod:`tpca.solvers.mean.groups` along the longest mode (no longer than all others together) as matrices of d rows.
For the true vector u of that mode

.. math:: u^\top(XX^\top - C)u = a^2 + 2a\varepsilon + \eta, \qquad
    C = \frac{1}{G-1}\Bigl(\sum_g x'_gx_g'^\top - XX^\top\Bigr), \qquad a = \sqrt N\lambda ,

with ε the noise of X along the signal and η what :math:`\|E^\top u\|^2` differs from its expectation, both of mean 0.
The left side is at most the largest eigenvalue μ, at an eigenvector û, so that with t Student's quantile

.. math:: a \le t s_\varepsilon + \sqrt{\mu + t s_\eta + t^2s_\varepsilon^2} .

s_η is the scatter of :math:`\hat u^\top x'_gx_g'^\top\hat u` over the groups.  The noise along a signal that is not
known can be no more than the noise along the direction where it is strongest, which is looked for: the best fit
:math:`\langle c_1x'_1 + \dots, v_1\otimes\dots\otimes v_k\rangle` over v and c across w, of length Y, is read
(:mod:`tpca.solvers.mean.reading`) as a rank-one signal of one order more, of strength b:
:math:`s_\varepsilon^2 = \sigma^2 + b^2/(G-1)`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from tpca.solvers.mean.climb import WORK, climb
from tpca.solvers.mean.errors import student
from tpca.solvers.mean.fit import gram, leading_of_modes, rows_of_mode
from tpca.solvers.mean.groups import Groups
from tpca.solvers.mean.reading import read
from tpca.solvers.mean.test import flips_at_once
from tpca.solvers.rank_one import lengths, units
from tpca.tensors.blocks import Array
from tpca.tensors.products import gram_of

LIMIT = 0.95
STARTS = 4  # combinations of groups to look for the strongest noise from
FIRST_SWEEPS, ROUNDS, SWEEPS = 8, 10, 2
# In white noise Y is 0.5 σ below where its reading begins, give or take 0.35 σ (2×2 to 20³ and 10⁴): it is read less σ.
CAUTION = 1.0


def strength_limit(groups: Groups, rng: np.random.Generator) -> float:
    """95 % upper limit of √N λ; infinite where there are not two groups."""
    count = len(groups)
    if count < 2:
        return math.inf
    mode = max((m for m, d in enumerate(groups.dims) if d * d <= groups.entries), key=lambda m: groups.dims[m])
    own = gram(groups.mean, mode)
    all_ = sum((grams(some, mode) for some in parts_of(groups)), np.zeros_like(own))
    values, axes = np.linalg.eigh(own - (all_ - own) / (count - 1))
    u, t = axes[:, -1], student(LIMIT, count - 1)
    energies = np.concatenate([_energies(some, mode, u) for some in parts_of(groups)])
    spread = t * float(np.std(energies, ddof=1)) * math.sqrt(1 + 1 / (count - 1))
    error = t * strongest_noise(groups, rng)
    return error + math.sqrt(max(0.0, float(values[-1]) + spread) + error**2)


def strongest_noise(groups: Groups, rng: np.random.Generator) -> float:
    """Standard deviation of the noise along the rank-one direction where it is strongest, as far as groups show it."""
    sigma = groups.own_level
    freedom = len(groups) - 1
    starts, few = rng.standard_normal((STARTS, len(groups))), max(1, min(STARTS, WORK // groups.entries))
    step = STARTS if flips_at_once(groups.entries) >= STARTS else few
    longest = max(_strongest(groups, starts[i : i + step], few) for i in range(0, STARTS, step))
    reading = read([(d - 1) * sigma**2 for d in (freedom, *groups.dims)], longest - CAUTION * sigma)
    extra = 0.0 if reading.edge else reading.strength
    return math.sqrt(sigma**2 + extra**2 / freedom)


def _strongest(groups: Groups, coefficients: Array, few: int) -> float:
    """The largest Y from some starts ``(R, G)``: best vectors of combinations, best coefficients, and so on.

    All go in step; every ``few`` of them end when none of these is much longer than before.
    """
    first, tensors = range(0, len(coefficients), few), groups.mixed(units(_across(coefficients, groups)))
    longest = growing = dict.fromkeys(first, 0.0)  # of those that begin there
    vectors = [leading_of_modes(tensors, mode).astype(tensors.dtype) for mode in range(tensors.ndim - 1)]
    vectors, _ = climb(tensors, vectors, FIRST_SWEEPS, 0.0)
    for _ in range(ROUNDS):
        along = _across(groups.along([v[:, 0] for v in vectors]), groups)
        values = lengths(along).tolist()
        reached = {i: max(values[i : i + few]) for i in growing}
        growing = {i: value for i, value in reached.items() if value > longest[i] * (1 + 1e-4)}
        longest = longest | reached
        if not growing:
            break
        vectors, _ = climb(groups.mixed(units(along)), vectors, SWEEPS, 0.0)
    return float(max(longest.values()))


def _across(coefficients: Array, groups: Groups) -> Array:
    """Rows with nothing of the mean in them."""
    return np.asarray(coefficients - (coefficients @ groups.weights)[:, None] * groups.weights)


def parts_of(groups: Groups) -> Iterator[Array]:
    """All x', some at a time, as many as the test has flips at once."""
    rows, step = np.eye(len(groups)), flips_at_once(groups.entries)
    yield from (groups.mixed(rows[g : g + step]) for g in range(0, len(groups), step))


def grams(tensors: Array, mode: int) -> Array:
    """The sum of the Gram matrices of a mode of some tensors: of their unfoldings side by side."""
    if len(tensors) == 1:
        return gram(tensors[0], mode)
    rows = np.moveaxis(tensors, 1 + mode, 0).reshape(tensors.shape[1 + mode], -1)
    return np.asarray(gram_of(rows), dtype=np.float64)


def _energies(tensors: Array, mode: int, u: Array) -> Array:
    r""":math:`\|x'^\top u\|^2` of every tensor."""
    slices = np.vecmat(u.astype(tensors.dtype), rows_of_mode(tensors, mode)).astype(np.float64)
    return np.asarray(np.vecdot(slices, slices))
