r"""The noise, as far as it must be known before anything is found: its scale, dependent neighbours, and whitening.

**The probe** are random vectors that stay as they are.  The root mean square of what the first samples give along them
is about the noise level; strategies keep half precision, which needs data of unit size.  The median of three is not
fooled by one odd sample, and samples of nothing but zeros are passed over.

**Neighbours that are alike.**  Bets are fair for samples, or blocks of them, that are independent of those before.
With :math:`g_t` the p gradients of the probe in round t, over :math:`n_t` samples, the autocorrelation r of
:math:`\sqrt{n_t}(g_t - \bar g)` (:class:`tpca.solvers.race.evidence.Neighbours`) has the standard error
:math:`1/\sqrt{pN}` after N rounds of independent samples; p is dozens, so that a few rounds tell.  Whatever all samples
share, a signal above all, is in :math:`\bar g`.  Rounds that are alike, r above ``Z`` standard errors, make blocks of
about :math:`n_t(1 + r)/(1 - r)` samples count as one observation, and rounds are counted anew.  The levels of evidence
see one slow direction; without the probe 9 of 20 races claim a signal in AR(0.8) noise (8×8×8, 300 samples), with it
one.

**Whitening by the modes**, where it is asked for (``whiten="modes"``), is decided once, by the first samples.
Of up to 256 samples, each of length one, the second moments of every mode are added up; they give the maps
:math:`W_i` of :mod:`tpca.inference.whitening`, which stay fixed.  Turning round the sign of a sample changes no moment,
so that bets are as fair on these samples as on fresh ones: stored data are read from their beginning again.  Of a
stream that is gone once read the race begins with the next samples.

Data are never transformed; queries and answers are.  With :math:`T' = T\times_1 W_1\dots\times_{\bar k} W_{\bar k}` and
a block of modes (i, j, ...) contracted as :math:`Q' = Q\times_i W_i\times_j W_j\dots`

.. math::
    \langle T', Q_1\otimes\dots\otimes Q_k\rangle = \langle T, Q_1'\otimes\dots\otimes Q_k'\rangle, \qquad
    \nabla_m R(T'; Q) = \nabla_m R(T; Q') \times_i W_i\times_j W_j\dots .

A signal :math:`\lambda' u_1\otimes\dots` of whitened data is one of the data with

.. math:: v = \frac{W^{-1}u}{\|W^{-1}u\|}, \qquad \lambda = \lambda'\prod_i\|W_i^{-1}u_i\| ,

and small errors e of u, independent as the noise is white, become

.. math:: \delta v = \frac{(I - vv^\top)W^{-1}e}{\|W^{-1}u\|}, \qquad
    \delta\ln\|W^{-1}u\| = \frac{v^\top W^{-1}e}{\|W^{-1}u\|} .
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.checkpoint import kept
from tpca.engines import Data
from tpca.inference.whitening import Whitening, longest_within, map_of, sphere
from tpca.solvers.race.evidence import Neighbours
from tpca.tensors import Accumulator, Answer, DenseBatch, Query, RankOne
from tpca.tensors.blocks import Array, Partition, unit

LOOKS = 3  # at the size of samples
ENTRIES = 128  # of gradients that are looked at: of the shortest modes, one at least
MIN_ROUNDS = 8  # before neighbours may be taken for alike
Z = 4.0  # standard errors of r from which on they are: 1 look of 30 000 in white noise
SLIGHT, STILL = 0.1, 0.3  # what r must be besides; and again, once blocks count: levels of bets see to the rest
ALIKE = 0.9  # the largest r that is believed

SAMPLES = 256  # that are read to learn the maps
SHARE = 1 / 3  # of all samples, that these may be
CHUNK = 2**12  # entries of a wider copy; one replica of a block where that is more
QUERIES = 2 / 3  # of the memory for strategies that their queries leave when they are copied to be whitened
PIECE = 2**16  # entries of a sample that are looked at: of a larger one every so many slices
MATRICES = 4 * 8  # bytes per entry of a map: it, its inverse, the moment, and a copy of this


def probed_modes(dims: Sequence[int]) -> tuple[int, ...]:
    """The shortest modes, with no more than so many entries together."""
    by_length = sorted(range(len(dims)), key=lambda m: dims[m])
    totals = itertools.accumulate(dims[m] for m in by_length)
    return tuple(sorted(m for i, (m, t) in enumerate(zip(by_length, totals, strict=True)) if i == 0 or t <= ENTRIES))


def probe_floats(dims: Sequence[int]) -> int:
    """Floats that the probe holds: its vectors; sums, the last answer and the next."""
    return sum(dims) + 5 * sum(dims[m] for m in probed_modes(dims))


@kept
class Probe:
    """Random vectors, the size of what they have seen, and how alike neighbouring rounds are."""

    working_bytes = 0

    def __init__(self, dims: tuple[int, ...], rng: np.random.Generator) -> None:
        self._partition, self._modes = Partition.singles(dims), probed_modes(dims)
        self._vectors = tuple(unit(rng.standard_normal((1, d))) for d in dims)
        self._sizes: list[float] = []
        self._least = SLIGHT
        self._begin()

    def _begin(self) -> None:
        self._rounds = Neighbours(sum(self._partition.dims[m] for m in self._modes), 1)

    @property
    def done(self) -> bool:
        """Whether the scale is known."""
        return len(self._sizes) >= LOOKS

    @property
    def scale(self) -> float:
        """What to multiply the samples by; 1 if there was nothing but zeros."""
        return 1 / statistics.median(self._sizes) if self._sizes else 1.0

    def queries(self) -> tuple[Query, ...]:
        """The random vectors, gradients of a few dozen entries."""
        return (Query(self._partition, self._vectors, self._modes),)

    def absorb(self, answers: tuple[Answer, ...], n: int) -> None:
        """Note the size of the gradients, in units of one sample's noise; later, how alike they are to the last."""
        gradients = np.concatenate([g.ravel() for g in answers[0].gradients.values()])
        if self.done:
            self._rounds.add(n * gradients[None], np.array([float(n)]))
        elif (largest := float(np.max(np.abs(gradients)))) > 0:  # first, so that squares neither overflow nor vanish
            self._sizes.append(largest * math.sqrt(n * float(np.mean((gradients / largest) ** 2))))

    def block(self) -> int:
        """Samples that count as one observation, where neighbouring rounds are alike; 0 where they are not."""
        rounds = self._rounds
        r = rounds.autocorrelation() if rounds.count >= MIN_ROUNDS else 0.0
        if r < max(self._least, Z / math.sqrt(max(1, rounds.count) * len(rounds.y))):
            return 0
        n, r, self._least = float(rounds.z[0] ** 2), min(r, ALIKE), STILL
        self._begin()
        return math.ceil(n * (1 + r) / (1 - r))

    def arrays(self) -> list[Array]:
        """Every array of the state."""
        return [*self._vectors, *self._rounds.arrays]


class ModeMoments(Accumulator):
    r"""Sums of :math:`T_{(m)}T_{(m)}^\top/|T|^2` of the modes that are ``wanted``, over ``columns[m]`` columns."""

    SUMS = ("moments", "columns")

    def __init__(self, dims: Sequence[int], wanted: Sequence[int], most: int) -> None:
        super().__init__(tuple(dims), tuple(wanted), most)
        self._step = int(min(dims[0], dims[1], max(1, -(-math.prod(dims) // most))))
        self._most = most
        self.moments = {m: np.zeros((dims[m], dims[m])) for m in wanted}
        self.columns = dict.fromkeys(wanted, 0)

    def add(self, batch: Any, at: int = 0) -> None:  # noqa: ARG002
        """Add the samples of a batch, some at a time; those of nothing but zeros say nothing."""
        if isinstance(batch, DenseBatch):
            batch.check()
        for _, piece, _ in batch.dense_pieces(self._most):
            for m, total in self.moments.items():
                thinned = piece[:, :, :: self._step] if m == 0 else piece[:, :: self._step]
                some = sphere(thinned[np.any(thinned, axis=tuple(range(1, thinned.ndim)))])
                matrices = np.moveaxis(some, m + 1, 1).reshape(len(some), len(total), -1)
                total += np.matmul(matrices, matrices.transpose(0, 2, 1)).sum(axis=0)
                self.columns[m] += len(some) * matrices.shape[2]
        self.n += len(batch)


@kept
class Noise:
    """What the races of a run know of the noise: maps, where they were asked for, and samples that count as one."""

    def __init__(self, solver: Any, data: Data, per_pass: float) -> None:
        self.whitening: Whitening | None = None
        self.block = solver.groups or 1  # samples that count as one observation
        self.limit = solver.budget(data.dims)
        self.samples, self.wanted = 0, 0  # samples that the maps were learnt from; that are to be
        self._dims, self._bytes = data.dims, 0
        self._modes: tuple[int, ...] = ()
        if solver.whiten == "modes":
            longest = longest_within(self.limit / len(data.dims))
            self._modes = tuple(m for m, d in enumerate(data.dims) if d <= longest)
            self._bytes = MATRICES * sum(data.dims[m] ** 2 for m in self._modes)
            self.wanted = int(min(SAMPLES, SHARE * per_pass)) if self._modes else 0
            if solver.memory_limit is None:
                self.limit += self._bytes

    def blank(self) -> ModeMoments:
        """What is kept of the first samples."""
        return ModeMoments(self._dims, self._modes, int(min(PIECE, max(1, self.limit // 64))))

    def take(self, part: ModeMoments) -> None:
        """Maps from what was read."""
        self.samples, self.wanted = part.n, 0
        if not part.n:
            return
        pairs: list[tuple[Any, Any]] = [(None, None)] * len(self._dims)
        for m, moment in part.moments.items():
            pairs[m] = map_of(moment, part.columns[m])
        self.whitening = Whitening(tuple(one for one, _ in pairs), tuple(other for _, other in pairs))

    @property
    def factor(self) -> float:
        """The largest strength in the data over that in whitened data, of any vectors."""
        inverses = () if self.whitening is None else self.whitening.inverses
        return math.prod(float(np.linalg.norm(inverse, 2)) for inverse in inverses if inverse is not None)

    @property
    def nbytes(self) -> int:
        """Bytes of the maps."""
        return 0 if self.whitening is None else sum(2 * w.nbytes for w in self.whitening.maps if w is not None)

    def left(self, taken: int) -> int:
        """Bytes for strategies, when ``taken`` are for something else."""
        left = self.limit - self._bytes - taken
        return int(left if self.whitening is None else QUERIES * left)

    def advice(self) -> tuple[str, ...]:
        """What was done."""
        if self.whitening is None:
            return ()
        inverses = [inverse for inverse in self.whitening.inverses if inverse is not None]
        spread = max(float(np.linalg.cond(inverse)) for inverse in inverses)
        left = len(self._dims) - len(inverses)
        return (
            f"Whitened axis by axis, by {self.samples} samples: noise was {spread:.2g} times as loud in one direction "
            f"of an axis as in another{f'; {left} too long for the memory' if left else ''}.",
        )


def query_of_data(whitening: Whitening | None, query: Query) -> Query:
    """What to ask of the data themselves to learn the answer to ``query`` about whitened data.

    Identities that were traced become blocks like any other.
    """
    if whitening is None:
        return query
    pairs = zip(query.replicas, query.partition.groups, strict=True)
    replicas = tuple(_applied(block, [whitening.maps[n] for n in group]) for block, group in pairs)
    deflate = tuple(RankOne(c.strength, tuple(whitening.back(c.vectors))) for c in query.deflate)
    return dataclasses.replace(query, replicas=replicas, deflate=deflate, traced=())


def whitened_answer(whitening: Whitening | None, query: Query, answer: Answer) -> Answer:
    """The answer about whitened data, from the one that the data gave; rewards are the same."""
    if whitening is None:
        return answer
    maps = [[whitening.maps[n] for n in group] for group in query.partition.groups]
    parts = answer.by_part
    if parts is not None:
        parts = dataclasses.replace(parts, gradients={m: _applied(g, maps[m]) for m, g in parts.gradients.items()})
    gradients = {m: _applied(g, maps[m]) for m, g in answer.gradients.items()}
    return dataclasses.replace(answer, gradients=gradients, by_part=parts)


def of_data(
    whitening: Whitening | None, vectors: Sequence[Array], errors: Sequence[Array] = ()
) -> tuple[tuple[Array, ...], float, tuple[Array, ...], float]:
    """Unit vectors of the data, and the strength in the data over that in whitened data; errors of entries of both.

    The error of the factor is that of its logarithm.
    """
    if whitening is None:
        return tuple(vectors), 1.0, tuple(errors), 0.0
    raw = whitening.back(vectors)
    lengths = [float(np.linalg.norm(v)) for v in raw]
    told, variance = list(errors), 0.0
    for i, (e, inverse) in enumerate(zip(errors, whitening.inverses, strict=False)):
        if inverse is not None:
            v, u = raw[i] / lengths[i], vectors[i]
            along = v @ inverse / lengths[i]
            told[i] = np.sqrt((inverse / lengths[i] - np.outer(v, along)) ** 2 @ e**2)
            variance += float(np.sum(((along - (along @ u) * u) * e) ** 2))
    return tuple(unit(v) for v in raw), math.prod(lengths), tuple(told), math.sqrt(variance)


def _applied(array: NDArray[Any], maps: Sequence[Array | None]) -> NDArray[Any]:
    """``array`` times a symmetric map along each of its last axes, in its own dtype; a few entries at a time."""
    if not any(array.strides) and not array.flat[0]:
        return array  # nothing but one zero, however large it looks
    shape = array.shape[array.ndim - len(maps) :]
    rows = array.reshape(-1, *shape)
    mapped: NDArray[Any] = np.empty(rows.shape, array.dtype)
    step = max(1, CHUNK // math.prod(shape))
    with np.errstate(over="ignore"):
        for start in range(0, len(rows), step):
            part = rows[start : start + step].astype(np.result_type(array.dtype, np.float32), copy=False)
            for axis, map_ in enumerate(maps, start=1):
                if map_ is not None:
                    part = np.moveaxis(np.moveaxis(part, axis, -1) @ map_, -1, axis)
            mapped[start : start + step] = part
    return mapped.reshape(array.shape)
