r"""Along which vectors a pattern stands out from noise the most, and where to look for one in noise that is not white.

*Filters.*  For a pattern w in noise of covariance :math:`C_1\otimes\dots\otimes C_k` these are
:math:`u_i\propto C_i^{-1}w_i`.  The covariance of mode i is :math:`A_i = c\,C_i + s^2 v_iv_i^\top` where there is a
component; for its own pattern, :math:`A_i^{-1}v_i\propto C_i^{-1}v_i` (Sherman and Morrison), so that nobody needs to
know C_i.  With few columns for every row, m of them for d, the share d/(d + m) of the mean variance is added to the
diagonal.

*Starts.*  The leading vectors of A_i are those of the noise, where that is far from white.  In samples turned and
whitened by all :math:`A_i = U_i\Lambda_iU_i^\top`, :math:`T' = T\times_1\Lambda_1^{-1/2}U_1^\top\dots`, the covariance
of mode i within slice l of another mode j is a multiple of the identity, plus :math:`v_{jl}^2\,v_iv_i^\top` of a
component, more in some slices than in others:

.. math:: Q_i = \sum_l \Bigl(\frac{d_i\,S_{il}}{\operatorname{tr} S_{il}} - \text{mean over } l\Bigr)^2,\qquad
    S_{il} = \mathbb E\bigl[T'_{(i)l}\,T_{(i)l}'^{\,\top}\bigr],

so its leading vectors are those of components, whatever separable noise there is.  A component that lies in few slices
stands out more in the leading vectors of these themselves.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tpca.checkpoint import kept
from tpca.solvers.rank_one import units
from tpca.tensors.blocks import Array


@kept
class Filters:
    """For every mode Λ^-1/2 U^T, and Λ, of mean one; nothing where covariances are not known."""

    def __init__(self, rotations: Sequence[Array], scales: Sequence[Array]) -> None:
        self.rotations, self.scales = list(rotations), list(scales)

    def of(self, patterns: Sequence[Array]) -> list[Array]:
        """Unit vectors along which to contract for ``patterns``, rows of every mode."""
        if not self.rotations:
            return list(patterns)
        return [units(w @ turn.T @ turn) for w, turn in zip(patterns, self.rotations, strict=True)]

    def back(self, mode: int, rows: Array) -> Array:
        """Patterns of the samples, from those of turned and whitened ones."""
        return units((rows * self.scales[mode]) @ self.rotations[mode]) if self.rotations else units(rows)

    @property
    def arrays(self) -> list[Array]:
        """What is held."""
        return [*self.rotations, *self.scales]


def filters_of(grams: Sequence[Array], freedom: float) -> Filters:
    """From all A_i."""
    rotations, scales = [], []
    entries = float(np.prod([len(gram) for gram in grams]))
    for gram in grams:
        d = len(gram)
        values, basis = np.linalg.eigh((gram + gram.T) / 2)
        share = d / (d + freedom * entries / d)
        mean = max(float(values.mean()), np.finfo(float).tiny)
        steady = np.maximum((1 - share) * values / mean + share, 1e-9)
        rotations.append(np.ascontiguousarray((basis / np.sqrt(steady)).T))
        scales.append(steady)
    return Filters(rotations, scales)


def leading_of_slices(slices: Sequence[Array], count: int) -> tuple[list[Array], list[Array]]:
    """The leading vectors of every Q_i, as rows, and of the slices in which they stand out most.

    ``slices[i]`` is (d_j, d_i, d_i).
    """
    shared, single = [], []
    for own in slices:
        traces = np.einsum("lii->l", own)
        even = own / np.where(traces > 0, traces, 1.0)[:, None, None]
        apart = even - even.mean(axis=0)
        basis = np.linalg.eigh(np.einsum("lij,ljk->ik", apart, apart))[1]
        shared.append(np.ascontiguousarray(basis[:, ::-1][:, : min(count, len(basis))].T))
        values, each = np.linalg.eigh(even)
        single.append(np.ascontiguousarray(each[np.argsort(-values[:, -1], kind="stable")[:count], :, -1]))
    return shared, single
