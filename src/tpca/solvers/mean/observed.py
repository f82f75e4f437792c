r"""The mean over what was observed: every entry has its own count.

With :math:`S_{ge}` the sum of what was observed of entry e in group g, :math:`c_{ge}` how often that was,
:math:`C_e = \sum_gc_{ge}`, N samples in all and :math:`n_g` in group g, the mean is :math:`M_e = \sum_gS_{ge}/C_e`.

*The test* flips :math:`\frac{N}{C_e}S_{ge}`, whose sum is :math:`NM_e`: what is missing does not depend on the noise,
so that a group and its flip are equally likely under symmetric noise, as of complete samples.

*Errors* come from what every group pulls the mean by,

.. math:: n_gM_e + \frac{N}{C_e}\bigl(S_{ge} - c_{ge}M_e\bigr) ,

whose sum is :math:`NM_e` as well: that a group happened to have more or less of an entry is no scatter of its values.
An entry has noise of the variance :math:`\sigma^2/C_e` in the mean, :math:`\sigma^2/\rho_e` with :math:`\rho_e = C_e/N`
in units of a sample.  Whitening by modes evens that out as far as it is of product form: covariances are learnt of
samples with zeros for what is missing, and with the factors f of :mod:`tpca.tensors.observed` and F = diag f those of
the sums are :math:`FCF`.

An entry that never was observed, in slices that were, is 0 and the others are scaled by the rates of slices of what
ever was, as where there are no counts of entries.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence

import numpy as np

from tpca.noise import Whitening
from tpca.solvers.mean.grouping import Grouping
from tpca.tensors import SliceCounts
from tpca.tensors.blocks import Array


def all_observed(grouping: Grouping) -> Grouping:
    """How often entries were observed in groups of complete samples: grouped, from then on, as the sums are."""
    twin = copy.copy(grouping)
    twin.counts, twin.worths = list(grouping.counts), list(grouping.worths)
    twin.plan = None if grouping.plan is None else list(grouping.plan)
    twin._room = np.zeros_like(grouping._room)
    for counted, n in zip(twin.sums, grouping.counts, strict=True):
        counted[...] = n
    twin.total = np.full(grouping.dims, float(grouping.samples))
    return twin


def balance(grouping: Grouping, observed: Grouping) -> float:
    """Turn sums into those that are flipped, and counts into what groups pull the mean by, in place.

    Returns the mean of 1/ρ, 0 where nothing was observed: by so much the noise is louder than that of a sample.
    """
    whole, inverse = grouping.samples, _inverse_rates(observed.whole, grouping.samples)
    total = grouping.whole
    total *= inverse
    mean = total / whole
    for n, sums, counts in zip(grouping.counts, grouping.sums, observed.sums, strict=True):
        sums *= inverse
        counts[...] = sums - (counts * inverse - n) * mean
    observed.whole[...] = total
    return float(inverse.mean()) or 1.0


def evened(whitening: Whitening, factors: Sequence[Array], of_noise: bool = False) -> Whitening:
    """Whitening of scaled sums, from that of samples with zeros for what is missing.

    ``of_noise``: that of the noise of entries as they are measured, where none are missing: a variance, unlike a
    covariance of two entries, is not seen in every sample.
    """
    return Whitening.of([_evened(c, f, of_noise) for c, f in zip(whitening.covariances, factors, strict=True)])


def _evened(covariance: Array, factor: Array, of_noise: bool) -> Array:
    own = covariance * np.outer(factor, factor)
    known, place = factor > 0, np.arange(len(factor))
    if of_noise:
        own[place[known], place[known]] /= factor[known]
    own[place[~known], place[~known]] = float(np.mean(np.diag(own)[known])) if known.any() else 1.0
    return own


def _inverse_rates(counts: Array, samples: int) -> Array:
    """1/ρ of every entry; of those never observed, zero."""
    inverse = np.divide(samples, counts, out=np.zeros_like(counts), where=counts > 0)
    if (counts > 0).all():
        return inverse
    ever = SliceCounts.of_entries((counts > 0).astype(np.float64), 1, counts.shape)
    return np.asarray(inverse * functools.reduce(np.multiply.outer, ever.factors()))
