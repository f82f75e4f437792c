r"""The batch-mean simulation as an engine: the mean of n Gaussian samples is one draw, whatever n is.

The mean of n samples of :math:`\lambda v_1\otimes\dots\otimes v_{\bar k} + E` with i.i.d. N(0, 1) noise is exactly
:math:`\lambda v_1\otimes\dots\otimes v_{\bar k} + N(0, 1/n)`.  A solver driven by this engine sees the same law as on
real samples, at a cost that depends on the number of rounds only.
"""

from __future__ import annotations

import dataclasses
import math
import zlib
from typing import Any

from tpca.engines.law_of_sub_batches import scattered, sizes_of
from tpca.engines.protocol import A
from tpca.errors import StreamError
from tpca.labels import Labels
from tpca.model import SpikedTensor
from tpca.randomness import generator
from tpca.tensors import Accumulator, DenseBatch, Gradients, Projected, TensorSum, Together
from tpca.tensors.blocks import Array

PIECE = 2**22  # entries of samples that are drawn at a time


class LawEngine:
    """Gaussian batches of a spiked tensor drawn at once; ``scale`` multiplies every sample (signal and noise).

    ``truth=None`` with ``dims`` gives pure noise.  ``max_samples`` ends the stream.
    """

    labels: Labels | None = None
    like = None

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
        self.buffer_bytes = self.n_skipped = 0
        self.constant = False
        planted = "noise" if self._signal is None else f"{zlib.crc32(self._signal.tobytes()):08x}"
        self.identity = f"law of {planted} {self.dims} seed {random_state} scale {scale} of {max_samples} samples"
        self.length = None if math.isinf(max_samples) else int(max_samples)
        self.rereadable, self.whole, self.partial = False, True, False

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
        return {"rng": self._rng, "left": left, "buffer_bytes": self.buffer_bytes}

    def seek(self, position: dict[str, Any]) -> None:
        """Go on drawing from there."""
        self._rng, self.buffer_bytes = position["rng"], int(position["buffer_bytes"])
        self._left = math.inf if position["left"] is None else int(position["left"])

    def reduce(self, blank: A, n: int | None = None) -> A:
        """The next ``n`` samples, from one draw of their mean; only what is made of sums can be filled from that."""
        if n is None and self.endless:
            raise StreamError("samples drawn from a law without max_samples never end; ask for a number of them.")
        part = blank.fresh()
        n = int(self._left if n is None else min(n, self._left))
        if n == 0:
            return part
        if part.of_few:  # nothing to gain from the law of a mean: drawn one by one
            step = max(1, PIECE // math.prod(self.dims))
            for at in range(0, n, step):
                drawn = self._drawn((min(step, n - at), *self.dims), 1.0)
                part.add(DenseBatch(drawn), at)
            part.finish()
        else:
            _refuse_samples(part)
            drawn = self._drawn(self.dims, 1 / math.sqrt(n))
            self._fill(part, drawn, n)
        self._left -= n
        self.buffer_bytes = max(self.buffer_bytes, drawn.nbytes)
        return part

    def _fill(self, part: Accumulator, mean: Array, n: int) -> None:
        """Fill what is made of sums with the mean of ``n`` samples, and finish it."""
        if isinstance(part, Together):
            own = part.projection.tensor(mean) if isinstance(part, Projected) else mean
            for one in part.parts:
                self._fill(one, own, n)
            part.n = n
        elif isinstance(part, TensorSum | Gradients):
            part.add_mean(mean.copy(), n)
            part.finish()
            if isinstance(part, Gradients) and part.edges:
                self._scatter(part, n)

    def _scatter(self, part: Gradients, n: int) -> None:
        """Answers for sub-batches, whose mean is the one that was drawn."""
        places = [i for i, query in enumerate(part.queries) if query.by_part is not None]
        if not places:
            return
        answers, queries = [part.answers[i] for i in places], [part.queries[i] for i in places]
        found = scattered(answers, queries, sizes_of(part.edges, n), self._scale * part.scale, self._rng)
        parts = dict(zip(places, found, strict=True))
        part.answers = tuple(dataclasses.replace(a, by_part=parts.get(i)) for i, a in enumerate(part.answers))

    def _drawn(self, shape: tuple[int, ...], deviation: float) -> Array:
        drawn = self._rng.standard_normal(shape)
        drawn *= self._scale * deviation
        if self._signal is not None:
            drawn += self._scale * self._signal
        return drawn


def _refuse_samples(part: Accumulator) -> None:
    """Refuse what needs samples one by one."""
    if isinstance(part, Together):
        for one in part.parts:
            _refuse_samples(one)
    elif not isinstance(part, TensorSum | Gradients):
        kind = type(part).__name__
        raise StreamError(f"the law of a mean knows sums and gradients only, got {kind}; draw samples instead.")
