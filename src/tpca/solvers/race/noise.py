r"""The noise, as far as it must be known before anything is found: its scale, dependent neighbours, and whitening.

**The probe** are random vectors that stay as they are.  The root mean square of what the first samples give along them
is about the noise level; strategies keep half precision, which needs data of unit size.  The median of three is not
fooled by one odd sample, and samples of nothing but zeros are passed over.

**Neighbours that are alike.**  Bets are fair for samples, or blocks of them, that are independent of those before.
With :math:`g_t` the gradient of the probe's shortest mode in sub-batch t, of :math:`n_t` samples, and :math:`m_{t-1}`
the mean over all :math:`N_{t-1}` samples before, the steps from the running mean

.. math:: e_t = (g_t - m_{t-1})\,/\sqrt{1/n_t + 1/N_{t-1}}, \qquad
    z = \sum_t\langle e_t, e_{t-1}\rangle\Big/\sqrt{\sum_t\langle e_t, e_{t-1}\rangle^2}, \qquad
    r = \sum_t\langle e_t, e_{t-1}\rangle\Big/\sum_t|e_t|^2

of independent samples are uncorrelated, whatever their mean (Brown, Durbin and Evans 1975).  z is normalised by its own
terms: it needs no idea of how many entries of a gradient are independent of each other, which of real noise, with a
strong common pattern, is about one.  Sub-batches are alike where z is above ``Z`` and r above ``SLIGHT``; blocks of
about :math:`\bar n(1 + r)/(1 - r)` samples, n̄ in a sub-batch on average, then count as one observation, and all is
counted anew.  The first sub-batches are single samples, so that this is known before the first claim.

Measured, 300 samples of 8×8×8, 4×5×6 and 12×10 (400).  Shuffled real sets with an obvious mean (images, tumours, wines,
economies, surveys; 23 sets, 16 shuffles each) are taken for alike in 1 of 368 runs, of which 35 were when r was
compared with 4/√(pN), p the entries of a gradient.  AR(0.5) is seen in 56 of 60 runs with a strong mean and in 60
without, AR(0.8) and AR(0.9) in all.  Noise that is AR(0.5) to AR(0.95), or the mean of ten neighbours, is claimed to
have a signal in 5 of 400 runs.

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
from tpca.solvers.race.rounds import FEW_SUB_BATCHES
from tpca.tensors import Accumulator, Answer, DenseBatch, Query, RankOne
from tpca.tensors.blocks import Array, Partition, unit

LOOKS = 3  # at the size of samples
ENTRIES = 128  # of gradients that are looked at: of the shortest modes, one at least
MIN_PRODUCTS = 20  # of neighbouring steps, before sub-batches may be taken for alike
BIAS = 3.0  # of r, which is too small by about so many r/N where neighbours are alike: the mean follows them
Z = 3.3
SLIGHT = 0.1  # what r must be besides
# The same once blocks count.  That samples are dependent is known then; the question is whether blocks are long enough.
MIN_PRODUCTS_OF_BLOCKS, Z_OF_BLOCKS, SLIGHT_OF_BLOCKS = 8, 2.0, 0.45
ALIKE = 0.92  # the largest r that is believed

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
    """Floats that the probe holds: its vectors; an answer, by sub-batch later on; the mean, and a step."""
    probed = sum(dims[m] for m in probed_modes(dims))
    watched = min(dims)
    return sum(dims) + max(5 * probed, 3 * watched + part_floats(dims, FEW_SUB_BATCHES))


def part_floats(dims: Sequence[int], sub_batches: int) -> int:
    """Floats that the answer to the probe has of sub-batches: a gradient, a reward, and a size of each."""
    return sub_batches * (min(dims) + 2)


@kept
class Probe:
    """Random vectors, the size of what they have seen, and how alike neighbouring sub-batches are.

    ==============================  ==============================================
    symbol                          code
    ==============================  ==============================================
    m, N                            ``mean``, ``seen``
    e_t of the last sub-batch       ``step``
    Σ⟨e_t, e_{t−1}⟩, its squares    ``products``, ``squared_products``
    Σ|e_t|²                         ``squares``
    whether blocks count as one     ``blocked``
    ==============================  ==============================================
    """

    working_bytes = 0

    def __init__(self, dims: tuple[int, ...], rng: np.random.Generator) -> None:
        self._partition = Partition.singles(dims)
        self._modes = probed_modes(dims)
        self._watched = min(range(len(dims)), key=lambda m: dims[m])
        self._vectors = tuple(unit(rng.standard_normal((1, d))) for d in dims)
        self._sizes: list[float] = []
        self.sub_batches = 1  # of the next round; of many there is one gradient, which takes less memory
        self.blocked = False
        self._begin()

    def _begin(self) -> None:
        entries = self._partition.dims[self._watched]
        self.mean = np.zeros(entries)
        self.step = np.zeros(entries)
        self.seen = 0.0
        self.steps = 0
        self.products = 0.0
        self.squared_products = 0.0
        self.squares = 0.0

    @property
    def done(self) -> bool:
        """Whether the scale is known."""
        return len(self._sizes) >= LOOKS

    @property
    def scale(self) -> float:
        """What to multiply the samples by; 1 if there was nothing but zeros."""
        return 1 / statistics.median(self._sizes) if self._sizes else 1.0

    def queries(self) -> tuple[Query, ...]:
        """The random vectors: gradients of a few dozen entries for the scale, then of one mode."""
        if not self.done:
            return (Query(self._partition, self._vectors, self._modes),)
        by_part = (self._watched,) if self.sub_batches <= FEW_SUB_BATCHES else None
        return (Query(self._partition, self._vectors, (self._watched,), by_part=by_part),)

    def absorb(self, answers: tuple[Answer, ...], n: int) -> None:
        """Note the size of the gradients, in units of one sample's noise; later, how alike neighbours are."""
        (answer,) = answers
        parts = answer.by_part
        if self.done and parts is not None:
            for gradient, size in zip(parts.gradients[self._watched], parts.sizes.tolist(), strict=True):
                self._compare(gradient, size)
            return
        if self.done:
            self._compare(answer.gradients[self._watched][0], n)
            return
        gradients = np.concatenate([g.ravel() for g in answer.gradients.values()])
        largest = float(np.max(np.abs(gradients)))
        if largest > 0:  # first, so that squares neither overflow nor vanish
            self._sizes.append(largest * math.sqrt(n * float(np.mean((gradients / largest) ** 2))))

    def _compare(self, gradient: Array, size: float) -> None:
        """The step of a sub-batch of ``size`` samples from the running mean, and its product with the step before."""
        if self.seen:
            step = (gradient - self.mean) / math.sqrt(1 / size + 1 / self.seen)
            product = float(step @ self.step)
            self.products += product
            self.squared_products += product**2
            self.squares += float(step @ step)
            self.steps += 1
            self.step = step
        self.seen += size
        self.mean = self.mean + (size / self.seen) * (gradient - self.mean)

    def block(self) -> int:
        """Samples that count as one observation, where neighbours are alike; 0 where they are not."""
        products = self.steps - 1  # the first step has none before it
        least_products, least_z, least_r = MIN_PRODUCTS, Z, SLIGHT
        if self.blocked:
            least_products, least_z, least_r = MIN_PRODUCTS_OF_BLOCKS, Z_OF_BLOCKS, SLIGHT_OF_BLOCKS
        if products < least_products or not self.squared_products > 0:
            return 0
        z = self.products / math.sqrt(self.squared_products)
        r = (self.products / products) / (self.squares / self.steps)
        if z <= least_z or r <= least_r:
            return 0
        r = min(r * (1 + BIAS / products), ALIKE)
        sub_batch = self.seen / (self.steps + 1)
        block = math.ceil(sub_batch * (1 + r) / (1 - r))
        self.blocked = True
        self._begin()
        return block

    def arrays(self) -> list[Array]:
        """Every array of the state."""
        return [*self._vectors, self.mean, self.step]


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
