r"""The batch-mean simulation as an engine: the mean of n Gaussian samples is one draw, whatever n is.

The mean of n samples of :math:`\lambda v_1\otimes\dots\otimes v_{\bar k} + E` with i.i.d. N(0, 1) noise is exactly
:math:`\lambda v_1\otimes\dots\otimes v_{\bar k} + N(0, 1/n)`.  A solver driven by this engine sees the same law as on
real samples, at a cost that depends on the number of rounds only.

The means of sub-batches of :math:`n_1, n_2, \dots` samples are :math:`\bar T + Z_j - \sum_l n_l Z_l/n`, where
:math:`Z_j \sim N(0, 1/n_j)` is independent of the mean :math:`\bar T` of all n.  Only contractions of :math:`Z_j` with
the few rank-one replicas asked about are wanted.  With :math:`Q_i` an orthonormal basis of what these replicas hold of
block i, noise in which every block lies in :math:`Q_i`, and noise in which block i alone does not, are independent for
different i, and all that any gradient sees:

.. math:: Z \times_{j \ne i} Q_j = Q_i\,C_{(i)} + (I - Q_i Q_i^\top)\,G_i ,

C and :math:`G_i` of independent N(0, 1) entries: :math:`r^k + \sum_i D_i r^{k-1}` numbers for r replicas instead of D.

Most published methods touch the data only through contractions of the mean of all samples.  To such a method the mean,
computed or drawn once, *is* the data: :class:`AverageEngine` may be read as often as one likes and says how many
samples it stands for.  Studies use it to run many methods on the very same samples at the cost of one pass.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from tpca.engines import LocalEngine
from tpca.engines.base import A
from tpca.errors import StreamError
from tpca.labels import Labels
from tpca.model import SpikedTensor
from tpca.randomness import generator
from tpca.solvers.least_squares.sums import SampleSums
from tpca.tensors import Answer, DenseBatch, Gradients, Query, SampleGradients, SubBatches, TensorSum
from tpca.tensors.blocks import Array

PIECE = 2**22  # entries of samples that are drawn at a time


class _Drawn:
    """What engines without a store have in common: nothing is read that could change."""

    labels: Labels | None = None
    like = stops_within = None
    whole, partial, constant = True, False, False
    n_skipped = 0

    def keep(self) -> None:
        """Remember what was read."""

    check_unchanged = keep


class LawEngine(_Drawn):
    """Gaussian batches of a spiked tensor drawn at once; ``scale`` multiplies every sample (signal and noise).

    ``truth=None`` with ``dims`` gives pure noise.  ``max_samples`` ends the stream.
    """

    rereadable = False

    def __init__(
        self,
        truth: SpikedTensor | None,
        random_state: int = 0,
        dims: tuple[int, ...] | None = None,
        scale: float = 1.0,
        max_samples: float = math.inf,
    ) -> None:
        self.dims = truth.dims if truth is not None else tuple(dims or ())
        self._signal: Array | None = None if truth is None else truth.signal()
        self._rng = generator(random_state, "law")
        self._scale = scale
        self._left = max_samples
        self.buffer_bytes = self._place = 0
        planted = "noise" if self._signal is None else f"{zlib.crc32(self._signal.tobytes()):08x}"
        self.identity = f"law of {planted} {self.dims} seed {random_state} scale {scale} of {max_samples} samples"
        self.length = None if math.isinf(max_samples) else int(max_samples)

    @property
    def endless(self) -> bool:
        """Whether the samples never end."""
        return math.isinf(self._left)

    def rewind(self) -> None:
        """Samples that are drawn once cannot be read again."""
        raise StreamError("samples drawn from a law cannot be read again; use max_passes=1.")

    def position(self) -> dict[str, Any]:
        """What was drawn so far."""
        left = None if self.endless else int(self._left)
        return {"rng": self._rng, "left": left, "place": self._place, "buffer_bytes": self.buffer_bytes}

    def seek(self, position: dict[str, Any]) -> None:
        """Go on drawing from there."""
        self._rng, self.buffer_bytes = position["rng"], int(position["buffer_bytes"])
        self._place = int(position["place"])
        self._left = math.inf if position["left"] is None else int(position["left"])

    def reduce(self, blank: A, n: int | None = None) -> A:
        """The next ``n`` samples, from one draw of their mean; only what is made of sums can be filled from that."""
        if n is None and self.endless:
            raise StreamError("samples drawn from a law without max_samples never end; ask for a number of them.")
        part = blank.fresh()
        n = int(self._left if n is None else min(n, self._left))
        if n == 0:
            return part
        if isinstance(part, SampleGradients):
            step = max(1, PIECE // math.prod(self.dims))
            for at in range(0, n, step):
                drawn = self._drawn((min(step, n - at), *self.dims), 1.0)
                part.add(DenseBatch(drawn), at)
            part.finish()
        elif isinstance(part, SampleSums):
            drawn = self._fill_sums(part, n)
        elif isinstance(part, TensorSum | Gradients):
            drawn = self._drawn(self.dims, 1 / math.sqrt(n))
            part.add_mean(drawn, n)
            part.finish()
            if isinstance(part, Gradients) and part.edges:
                self._scatter(part, n)
        else:
            kind = type(part).__name__
            raise StreamError(f"the law of a mean knows sums and gradients only, got {kind}; draw samples instead.")
        self._left -= n
        self._place += n
        self.buffer_bytes = max(self.buffer_bytes, drawn.nbytes)
        return part

    def _fill_sums(self, part: SampleSums, n: int) -> Array:
        """Sums of the next ``n`` samples, one draw for every bin of neighbours; for the mean of all samples only.

        Sums of squares are their expectation: of thousands of entries they hardly differ from it.
        """
        design = part.question[0]
        binning = part.binning
        if not design.plain or not binning.neighbours or not binning.dealt:
            raise StreamError("the law of a mean knows no y, weights, groups or dependence; draw samples instead.")

        def draw(count: int) -> Array:
            return (count * self._drawn(self.dims, 1 / math.sqrt(count))).reshape(-1)

        signal = np.zeros(self.dims) if self._signal is None else self._signal
        squares = n * self._scale**2 * (1 + signal.reshape(-1) ** 2)
        part.add_drawn(n, draw, squares)
        return squares

    def _scatter(self, part: Gradients, n: int) -> None:
        """Answers for sub-batches, whose mean is the one that was drawn."""
        places = [i for i, query in enumerate(part.queries) if query.by_part is not None]
        if places:
            answers, queries = [part.answers[i] for i in places], [part.queries[i] for i in places]
            sizes = np.diff(np.minimum([*part.edges, max(n, part.edges[-1])], n))
            sizes = sizes[sizes > 0].astype(np.float64)
            parts = scattered(answers, queries, sizes, self._scale * part.scale, self._rng)
            found = dict(zip(places, parts, strict=True))
            part.answers = tuple(dataclasses.replace(a, by_part=found.get(i)) for i, a in enumerate(part.answers))

    def _drawn(self, shape: tuple[int, ...], deviation: float) -> Array:
        drawn = self._rng.standard_normal(shape)
        drawn *= self._scale * deviation
        if self._signal is not None:
            drawn += self._scale * self._signal
        return drawn


def scattered(
    answers: Sequence[Answer], queries: Sequence[Query], sizes: Array, scale: float, rng: np.random.Generator
) -> list[SubBatches]:
    """Sub-batches of ``sizes`` samples in noise of level ``scale``, given the ``answers`` of all samples."""
    drawn = contracted_noise(queries, len(sizes), rng)
    found = []
    for answer, query, own in zip(answers, queries, drawn, strict=True):
        gradients = {}
        for m in query.by_part or query.blocks[:1]:
            noise = own[m] / np.sqrt(sizes)[:, None]
            noise -= sizes @ noise / sizes.sum()
            gradients[m] = answer.gradients[m] + scale * noise.reshape(len(sizes), *query.partition.shapes[m])
        any_block = next(iter(gradients))
        rewards = gradients[any_block].reshape(len(sizes), -1) @ query.replicas[any_block].reshape(-1)
        found.append(SubBatches(sizes, gradients if query.by_part else {}, rewards))
    return found


def contracted_noise(queries: Sequence[Query], count: int, rng: np.random.Generator) -> list[dict[int, Array]]:
    """``count`` tensors of N(0, 1) entries, contracted with the one replica of every query: by block, ``(count, D_m)``.

    Those of different queries are of the same tensors.
    """
    partition = queries[0].partition
    if any(query.partition != partition for query in queries):
        raise StreamError("sub-batches drawn from a law need queries of one partition; draw samples instead.")
    vectors = [np.stack([query.replicas[m].reshape(-1) for query in queries]) for m in range(len(partition))]
    bases = [np.linalg.qr(v.T)[0] for v in vectors]
    coordinates = [v @ q for v, q in zip(vectors, bases, strict=True)]
    ranks = [q.shape[1] for q in bases]
    core = rng.standard_normal((count, *ranks))
    found: list[dict[int, Array]] = [{} for _ in queries]
    for m, basis in enumerate(bases):
        others = [c for i, c in enumerate(coordinates) if i != m]
        inside = np.moveaxis(core, 1 + m, 1).reshape(count, ranks[m], -1)
        outside = rng.standard_normal((count, len(basis), inside.shape[2]))
        noise = basis @ inside + outside - basis @ (basis.T @ outside)
        for a, own in enumerate(found):
            own[m] = noise @ functools.reduce(np.kron, [c[a] for c in others])
    return found


class AverageEngine(_Drawn):
    """Gives all N samples at once, in any number of passes; anything less than a pass is refused."""

    rereadable, endless = True, False

    def __init__(self, mean: Array, n: int, identity: str = "mean", buffer_bytes: int = 0) -> None:
        self._mean, self._read = mean, False
        self.dims, self.length, self.buffer_bytes = mean.shape, n, buffer_bytes
        self.identity = f"{identity} of {n} samples"

    def rewind(self) -> None:
        """Start another pass."""
        self._read = False

    def position(self) -> dict[str, Any]:
        """At the start of a pass or at its end."""
        return {"read": self._read}

    def seek(self, position: dict[str, Any]) -> None:
        """Go on from there."""
        self._read = bool(position["read"])

    def reduce(self, blank: A, n: int | None = None) -> A:
        """All samples at once; single ones are gone."""
        part = blank.fresh()
        if self._read:
            return part
        if n is not None and n < self.length:
            raise StreamError(f"a mean of {self.length} samples cannot answer for {n} of them; use the samples.")
        if not isinstance(part, TensorSum | Gradients):
            raise StreamError(f"a mean of {self.length} samples has no single ones left; use the samples.")
        self._read = True
        part.add_mean(self._mean.copy(), self.length)  # methods may work in what they are given
        part.finish()
        return part


def drawn_average(truth: SpikedTensor, n: int, seed: int) -> AverageEngine:
    """The mean of n Gaussian samples from its exact law: λ v₁ ⊗ … + N(0, 1/n)."""
    mean: Array = generator(seed, "average").standard_normal(truth.dims)
    mean /= math.sqrt(n)
    mean += truth.signal()
    return AverageEngine(mean, n, f"law {truth.dims} seed {seed}", mean.nbytes)


def averaged(source: Any, n: int) -> AverageEngine:
    """The mean of the first n samples of a source, never holding more than one batch and the sum."""
    engine = LocalEngine(source)
    part = engine.reduce(TensorSum(), n)
    mean = np.asarray(part.total, dtype=np.float64) / part.n
    return AverageEngine(mean, part.n, buffer_bytes=engine.buffer_bytes)
