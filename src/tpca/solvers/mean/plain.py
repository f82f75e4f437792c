r"""A signal that is plain to see: so far beyond the reach of noise that hardly any flip needs to be looked at.

Three things must hold of the fit from the leading vectors of the modes, of length Z:

* Z is beyond what white noise reaches, the edge of the law of :mod:`tpca.solvers.mean.reading`, by 2.5σ.  The best fit
  to white noise is half a σ below it, give or take 0.35σ (2×2 to 20³ and 10⁴).  σ is that of the noise next to the
  fit or elsewhere, whichever is larger.
* By Student's t of the groups along it Z is not noise, with a hundredth of the allowed chance of an error.
* No fit of ``FLIPS`` flips comes as far, all fitted by one quick procedure.  In noise of any covariance that happens in
  at most one of eight cases by itself: the mean and its flips are equally likely.

Together they claimed a signal in noise alone in 3 of 4350 runs with an edge at 2σ and in 1 with one at 3σ (8³, 200
samples, 29 laws, 150 runs each); 2.5σ is between these, and adds little to the errors of the test.

Where Z is beyond :math:`E\max Z \le \sigma\sum\sqrt{d_i}` (Sudakov-Fernique) and 4σ, which it is once in 30 000 times
in white noise (Borell 1975), by a factor ``PLAIN``, not even these flips are looked at.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import stdtrit

from tpca.solvers.mean.climb import climb
from tpca.solvers.mean.grouping import Array32
from tpca.solvers.mean.groups import Groups
from tpca.solvers.mean.reading import noise_reach, read
from tpca.solvers.mean.test import draw_flips, flips_allowed, flips_at_once
from tpca.solvers.rank_one import start_of
from tpca.tensors.blocks import Array

PLAIN = 1.25
GUARD = 0.01  # share of the allowed chance of an error
BEYOND, FAR = 2.5, 4.0  # σ beyond what white noise reaches
FLIPS, SWEEPS = 7, 8


def plain_threshold(dims: Sequence[int], sigma: float, along_it: float, groups: int, confidence: float) -> float:
    """The Z beyond which a few flips decide, in noise of level ``sigma`` and of ``along_it`` along the fit.

    Infinite where there are too few groups for the test.
    """
    if 2 ** max(0, groups - 1) <= flips_allowed(confidence)[1]:
        return math.inf
    student = float(stdtrit(groups - 1, 1 - GUARD * (1 - confidence)))
    reach = noise_reach([d - 1 for d in dims], read)
    return max((reach + BEYOND) * sigma, student * along_it)


def far_beyond(dims: Sequence[int], sigma: float, value: float) -> bool:
    """Whether Z is so far beyond that no flip needs to be looked at."""
    return value > PLAIN * (sum(map(math.sqrt, dims)) + FAR) * sigma


def ahead_of_flips(groups: Groups, confidence: float, rng: np.random.Generator) -> bool:
    """Whether a quick fit of the mean is longer than those of a few flips."""
    signs = np.vstack([np.ones(len(groups)), draw_flips(len(groups), confidence, rng)[:FLIPS]])
    step = flips_at_once(groups.entries)
    values = np.concatenate([_quick_fits(groups.flipped(signs[i : i + step])) for i in range(0, len(signs), step)])
    return bool(np.all(values[1:] < values[0]))


def _quick_fits(tensors: Array32) -> Array:
    """Z of every tensor, from one start."""
    vectors = [start_of(tensors, 1 + mode)[:, None] for mode in range(tensors.ndim - 1)]
    return climb(tensors, vectors, SWEEPS, 0.0)[1][:, 0]
