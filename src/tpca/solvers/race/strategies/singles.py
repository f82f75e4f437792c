r"""Singles, small replicas for the d² regime: one vector per mode each.

When d^{k̄/2} floats do not fit, search with many small replicas on the same samples, all modes updated at once.
Replica j holds unit vectors ``V_ij`` (mode i) and the lengths ``h_ij`` of the sums behind them:

.. math::
    g_{ij} = T \text{ contracted with all } V_{i'j},\ i' \ne i, \qquad
    H_{ij} \leftarrow h_{ij} V_{ij} + B\, g_{ij}, \qquad h_{ij} = \|H_{ij}\|,\quad V_{ij} = H_{ij} / h_{ij} .

A fading sum of rewards is kept, ``score <- 0.9 score + B R``; the replica with the best score is read.

Take-off is a lottery: replica j grows once ∏_i <V_ij, v_i> exceeds about (d/n)^{k̄/(2k̄-4)}, so what counts is the
*number* of replicas.  That is why singles beat the paper's pairs of modes at equal state (k̄ d
against about k̄ d²/2 floats each), and why replicas and answers are kept in 16 bits: their rounding is far below the
noise of a single round.

Symbols: T mean of a round, B its samples (``n`` in ``absorb``), n all samples so far (``seen``), sigma the noise level,
estimated from gradient energies (E‖g‖² = D sigma²/B), so that the scale of the data is free.
"""

from __future__ import annotations

import math

import numpy as np

from tpca.checkpoint import kept
from tpca.solvers.race.strategies.strategy import FADING, Look, NoiseLevel, all_finite
from tpca.solvers.rank_one import units
from tpca.tensors import Answer, Query
from tpca.tensors.blocks import Array, Partition, check_dims, unit

STORE = np.float16
SLICE = 256  # entries of one mode updated at a time: bounds the working copy in 64 bits


def singles_floats(dims: tuple[int, ...], replicas: int) -> float:
    """State of :class:`SingleReplicas` in float64 units: vectors and answers, lengths, scores, a slice of sums."""
    each = 2 * sum(dims) * np.dtype(STORE).itemsize + 4 * len(dims) + 16
    return replicas * each / 8 + 3 * max(SLICE, *dims)


@kept
class SingleReplicas:
    """``replicas`` replicas of one vector per mode; see the top of this file.

    The vectors are stored α times too long, with α^{k̄-1} = √B / sigma for the B expected next: that keeps the answers
    near 1, where 16 bits are plenty.
    """

    name = "singles"

    def __init__(self, dims: tuple[int, ...], replicas: int, rng: np.random.Generator) -> None:
        self._partition, self.size = Partition.singles(check_dims(dims)), replicas
        self._vectors: list[Array] = []
        for d in self._partition.dims:
            start = rng.standard_normal((replicas, d))
            self._vectors.append(units(start).astype(STORE))
        # A start counts as much as the noise of one sample; data come in units of about the noise level.
        self._lengths: Array = np.repeat(np.sqrt(np.array(dims, dtype=np.float32))[:, None], replicas, axis=1)
        self._stretch = 1.0
        self._scores = np.zeros(replicas)
        self._noise = NoiseLevel()
        self._seen = 0

    @property
    def working_bytes(self) -> int:
        """Most bytes of temporary copies while answers are in flight."""
        return 24 * max(SLICE, *self._partition.dims)

    def queries(self) -> tuple[Query, ...]:
        """All replicas, gradients of all modes."""
        return (Query(self._partition, tuple(self._vectors)),)

    def absorb(self, answers: tuple[Answer, ...], n: int) -> None:
        """Add the gradients to the sums; the directions of the sums are the next vectors."""
        (answer,) = answers
        if not all_finite(answers):
            return
        gain = self._stretch ** (self._partition.order - 1)
        self._noise.absorb(answer, n, gain)
        self._seen += n
        expected = max(1.0, self._seen / 16)
        stretch = (math.sqrt(expected) / self._noise.sigma) ** (1 / (self._partition.order - 1))
        for mode, d in enumerate(self._partition.dims):
            step = max(1, SLICE // d)
            for first in range(0, self._lengths.shape[1], step):
                some = slice(first, first + step)
                self._move(mode, some, answer.gradients[mode][some], n / gain, stretch)
        self._scores = FADING * self._scores + n * (answer.rewards / (gain * self._stretch))
        self._stretch = stretch

    def restart(self) -> None:
        """Keep the directions, forget the sums."""
        self._lengths[:] = 0.0
        self._scores[:] = 0.0
        self._seen = 0

    def _move(self, mode: int, some: slice, gradients: Array, weight: float, stretch: float) -> None:
        """Add ``weight * gradients`` to some sums of one mode and store them ``stretch`` long."""
        sums = self._vectors[mode][some].astype(np.float64)
        sums *= self._lengths[mode, some, None] / np.linalg.norm(sums, axis=1, keepdims=True)
        sums += weight * gradients.astype(np.float64)
        lengths = np.maximum(np.linalg.norm(sums, axis=1), np.finfo(np.float32).tiny)
        self._vectors[mode][some] = sums * (stretch / lengths)[:, None]
        self._lengths[mode, some] = lengths

    def read(self) -> Look:
        """What it says can be read off directly."""
        return self

    def propose(self) -> tuple[Array, ...]:
        """The vectors of the replica with the best fading reward."""
        best = int(np.argmax(self._scores))
        return tuple(unit(v[best].astype(np.float64)) for v in self._vectors)

    def evidence(self, vectors: tuple[Array, ...]) -> tuple[list[Array], float]:
        """Take the sums of the replica nearest to ``vectors``; the signs of its partners are matched to theirs."""
        overlaps = np.array([own.astype(np.float64) @ v for own, v in zip(self._vectors, vectors, strict=True)])
        nearest = int(np.argmax(np.abs(overlaps).prod(axis=0)))
        signs = np.where(overlaps[:, nearest] < 0, -1.0, 1.0)
        factors = signs * signs.prod() * self._lengths[:, nearest]  # the sign of mode i is that of its partners
        sums = [f * unit(own[nearest].astype(np.float64)) for f, own in zip(factors, self._vectors, strict=True)]
        return sums, float(max(self._seen, 1))

    def arrays(self) -> list[Array]:
        """Vectors of all replicas by mode, the lengths of their sums, and scores."""
        return [*self._vectors, self._lengths, self._scores]
