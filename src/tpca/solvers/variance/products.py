r"""SecondMoments of samples with rank-one queries, summed over samples: second moments that are never built.

Of a tensor T and a query :math:`u = u_1\otimes\dots\otimes u_k`, with the reward :math:`r = \langle T, u\rangle`, the
gradients :math:`g_i = T(u_{-i})` and the unfoldings :math:`T_{(i)}`, these are quadratic in T:

.. math:: r^2,\qquad \lVert T\rVert^2,\qquad G_i = r\,g_i,\qquad H_i = A_i u_i,\qquad A_i = T_{(i)}T_{(i)}^\top .

**Known components** :math:`v_c` are taken out of T inside the contraction: with their amplitudes
:math:`b = K^{-1}\rho,\ \rho_c = \langle T, v_c\rangle,\ K_{ce} = \langle v_c, v_e\rangle`, all fitted together,
:math:`T' = T - \sum_c b_c v_c` has, with :math:`K^{(i)}_{ce} = \prod_{j\ne i}\langle v_{cj}, v_{ej}\rangle`,

.. math::
    g_i' = g_i - \sum_c b_c \prod_{j\ne i}\langle v_{cj}, u_j\rangle\, v_{ci}, \qquad
    \lVert T'\rVert^2 = \lVert T\rVert^2 - 2\,b^\top\rho + b^\top K b, \\
    A_i' = A_i - \sum_c \bigl(y_c v_{ci}^\top + v_{ci} y_c^\top\bigr)
        + \sum_{ce} b_c b_e K^{(i)}_{ce}\, v_{ci} v_{ei}^\top, \qquad y_c = b_c\, T(v_{c,-i}) .

One of them may be ``spared``, its amplitude fitted but left in: it is then seen beside all the others.

==================  =========================================
symbol              code
==================  =========================================
u_i, v_ci           ``queries[i]`` (R, d_i), ``known[i]`` (C, d_i)
b, K^-1             ``amplitudes``, ``inverse``
A_i, y_c            ``gram``, ``rows``
P_i                 ``pairs``: :math:`g_i g_i^\top`, where it is wanted
==================  =========================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tpca.noise.sketch import sample_gradients
from tpca.tensors.blocks import Array
from tpca.tensors.contraction import outer


@dataclass
class SecondMoments:
    """Sums over samples: ``squares`` (R,), ``total``, ``gradients[i]`` and ``energies[i]`` (R, d_i), ``grams[i]``.

    ``slices[i]`` are covariances of mode i within the slices of the next (:mod:`tpca.solvers.variance.filters`), and
    ``pairs[i]`` (R, d_i, d_i) those of the gradients of every query.  ``whole``: r² of the last query, and ‖T‖², with
    all known components left in.
    """

    squares: Array
    total: float
    gradients: list[Array]
    energies: list[Array]
    grams: list[Array]
    slices: list[Array]
    pairs: list[Array]
    whole: Array

    def add(self, other: SecondMoments, weight: float = 1.0) -> None:
        """Add ``weight`` times those of other samples."""
        self.total += weight * other.total
        for own, others in zip(self.arrays, other.arrays, strict=True):
            own += weight * others

    def divide(self, count: float) -> None:
        """Means, from sums."""
        self.total /= count
        for array in self.arrays:
            array /= count

    def of_first(self) -> SecondMoments:
        """Those of the first query, without Gram matrices."""
        first = slice(0, 1)
        gradients, energies = ([a[first].copy() for a in each] for each in (self.gradients, self.energies))
        return SecondMoments(self.squares[first].copy(), self.total, gradients, energies, [], [], [], self.whole.copy())

    def of_ends(self) -> SecondMoments:
        """Those of the first and the last query."""
        ends = [0, -1]
        gradients, energies = ([a[ends] for a in each] for each in (self.gradients, self.energies))
        return SecondMoments(self.squares[ends], self.total, gradients, energies, [], [], [], self.whole)

    @property
    def arrays(self) -> list[Array]:
        """What is held."""
        return [self.squares, *self.gradients, *self.energies, *self.grams, *self.slices, *self.pairs, self.whole]

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(array.nbytes for array in self.arrays)


class Contraction:
    """Products of samples with ``queries``; ``known`` components are taken out, but for number ``spared`` of them.

    With ``grams`` also A_i, with ``rotations`` covariances within slices of samples turned and whitened by them, with
    ``pairs`` P_i.
    """

    def __init__(
        self,
        queries: Sequence[Array],
        known: Sequence[Array],
        spared: int | None = None,
        grams: bool = False,
        rotations: Sequence[Array] = (),
        pairs: bool = False,
    ) -> None:
        self.queries, self.known, self._grams, self._rotations = list(queries), list(known), grams, list(rotations)
        self._pairs = pairs
        self._vectors = [np.concatenate([u, v]) for u, v in zip(queries, known, strict=True)]
        self._inner = np.stack([u @ v.T for u, v in zip(queries, known, strict=True)])  # (k, R, C)
        self._between = np.stack([v @ v.T for v in known])  # (k, C, C)
        self._inverse = np.linalg.pinv(self._between.prod(axis=0), hermitian=True)
        if spared is not None:
            self._inverse[:, spared] = 0.0

    def of(self, samples: Array) -> SecondMoments:
        """Summed over ``samples`` (n, d_1, ..., d_k) in float64."""
        n, count = len(samples), len(self.queries[0])
        each = self._gradients(samples)
        known = [g[:, count:] for g in each]
        rho = np.einsum("ncd,cd->nc", known[0], self.known[0])
        amplitudes = rho @ self._inverse
        flat = samples.reshape(n, -1)
        whole = np.array([self._last(each[0][:, :count]), float(np.einsum("ni,ni->", flat, flat))])
        total = float(whole[1]) - 2 * float(np.vdot(amplitudes, rho))
        total += float(np.einsum("nc,ce,ne->", amplitudes, self._between.prod(axis=0), amplitudes))
        gradients = [self._without(mode, g[:, :count], amplitudes) for mode, g in enumerate(each)]
        rewards = np.einsum("nrd,rd->nr", gradients[0], self.queries[0])
        energies, grams = [], []
        for mode in range(len(each)):
            rows = np.einsum("nc,ncd->cd", amplitudes, known[mode])
            energy, gram = self._energies(mode, samples, rows, amplitudes.T @ amplitudes)
            energies.append(energy)
            grams += [gram] if self._grams else []
        weighted = [np.einsum("nr,nrd->rd", rewards, g) for g in gradients]
        slices = self._slices(samples, amplitudes) if self._rotations else []
        pairs = [np.matmul(g.transpose(1, 2, 0), g.transpose(1, 0, 2)) for g in gradients] if self._pairs else []
        squares = np.einsum("nr,nr->r", rewards, rewards)
        return SecondMoments(squares, total, weighted, energies, grams, slices, pairs, whole)

    def _last(self, gradients: Array) -> float:
        """r² of the last query."""
        rewards = gradients[:, -1:, :] @ self.queries[0][-1:].T
        return float(np.vdot(rewards, rewards))

    def _gradients(self, samples: Array) -> list[Array]:
        """T(u_-i) of all queries and known components, ``(n, R + C, d_i)``."""
        shapes = [(len(samples), *v.shape) for v in self._vectors]
        if not len(self._vectors[0]):
            return [np.zeros(shape) for shape in shapes]
        edges = np.cumsum([v.size for v in self._vectors])[:-1]
        blocks = np.split(sample_gradients(samples, self._vectors), edges, axis=1)
        return [block.reshape(shape) for block, shape in zip(blocks, shapes, strict=True)]

    def _without(self, mode: int, gradients: Array, amplitudes: Array) -> Array:
        """The gradients of samples without the known components."""
        others = np.delete(self._inner, mode, axis=0).prod(axis=0)  # (R, C)
        return np.asarray(gradients - np.einsum("nc,rc,cd->nrd", amplitudes, others, self.known[mode]))

    def _energies(self, mode: int, samples: Array, rows: Array, pairs: Array) -> tuple[Array, Array]:
        """H_i of all queries, and A_i where that is wanted (else empty); A_i is not built where H_i takes less."""
        queries, known = self.queries[mode], self.known[mode]
        columns = np.moveaxis(samples, mode + 1, -1).reshape(-1, samples.shape[mode + 1])
        inner = pairs * np.delete(self._between, mode, axis=0).prod(axis=0)
        if self._grams or columns.shape[1] <= 2 * len(queries):
            gram = columns.T @ columns + known.T @ (inner @ known) - rows.T @ known - known.T @ rows
            return queries @ gram, gram
        along = queries @ known.T
        energies = (columns.T @ (columns @ queries.T)).T
        energies += (along @ inner.T - queries @ rows.T) @ known - along @ rows
        return energies, np.zeros((0, 0))

    def _slices(self, samples: Array, amplitudes: Array) -> list[Array]:
        """S_il of samples without the known components, turned and whitened."""
        turned = samples
        for b, *vectors in zip(amplitudes.T, *self.known, strict=True):
            turned = turned - np.multiply.outer(b, outer(vectors).reshape(samples.shape[1:]))
        for mode, rotation in enumerate(self._rotations, start=1):
            turned = np.moveaxis(np.tensordot(turned, rotation, axes=(mode, 1)), -1, mode)
        found = []
        for mode in range(1, samples.ndim):
            beside = mode % (samples.ndim - 1) + 1
            rows = np.moveaxis(turned, (beside, mode), (0, 1)).reshape(turned.shape[beside], turned.shape[mode], -1)
            found.append(np.matmul(rows, rows.transpose(0, 2, 1)))
        return found
