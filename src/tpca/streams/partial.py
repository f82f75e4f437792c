r"""Contrasts of samples with missing entries: every entry has the weights of the samples in which it was observed.

With the columns Z = (1, nuisances, ..., covariate y) of a block's samples, their weights s, and :math:`\delta_{ie}` one
where entry e of sample i was observed, the sums

.. math:: M_e = \sum_i s_i\delta_{ie}\,z_iT_{ie}, \qquad G_e = \sum_i s_i\delta_{ie}\,z_iz_i^\top

give, with A the columns that are taken out of y, the contrast of entry e and what it has of the covariate,

.. math:: D_e = M_{ye} - G_{yA}G_{AA}^{+}M_{Ae}, \qquad S_e = G_{yy} - G_{yA}G_{AA}^{+}G_{Ay} ,

so that the background cancels in every entry, whatever is missing, and :math:`\sum_bD_{be}/\sum_bS_{be}` over blocks b
is the coefficient of y of least squares over what was observed of entry e.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tpca.tensors.blocks import Array

EXPLAINED = 1e-9  # of the sum of squares of y: what is left of it is rounding
RANK = 1e-10  # of the largest singular value: smaller ones are zero


def entry_grams(columns: Array, weight: Array, observed: NDArray[np.bool_]) -> Array:
    """G ``(q, q, entries)`` from columns ``(m, q)``, weights ``(m,)`` and which entries ``(m, entries)`` are there."""
    count = columns.shape[1]
    products = (weight[:, None, None] * columns[:, :, None] * columns[:, None, :]).reshape(len(columns), -1)
    return (products.T @ observed.astype(np.float64)).reshape(count, count, -1)


def entry_contrast(sums: Array, grams: Array, own: int, others: Sequence[int]) -> tuple[Array, Array]:
    """D and S of every entry, for the covariate in column ``own``, the columns ``others`` taken out of it."""
    if not len(others):
        return sums[own], grams[own, own]
    rest = list(others)
    beside, inner = grams[own, rest], grams[np.ix_(rest, rest)]
    if len(rest) == 1:
        taken = np.divide(beside, inner[0], out=np.zeros_like(beside), where=inner[0] > 0)
    else:
        inverses = np.linalg.pinv(np.moveaxis(inner, 2, 0), rcond=RANK, hermitian=True)
        taken = np.einsum("ae,eab->be", beside, inverses)
    energy = grams[own, own] - np.einsum("ae,ae->e", taken, beside)
    there = energy > EXPLAINED * grams[own, own]
    contrast = np.where(there, sums[own] - np.einsum("ae,ae->e", taken, sums[rest]), 0.0)
    return contrast, np.where(there, energy, 0.0)
