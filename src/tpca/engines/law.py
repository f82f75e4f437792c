r"""The batch law as an oracle: the mean of n Gaussian samples is one draw, whatever n is.

The mean of n samples of :math:`\lambda v_1\otimes\dots\otimes v_{\bar k} + E` with i.i.d. N(0, 1) noise is exactly
:math:`\lambda v_1\otimes\dots\otimes v_{\bar k} + N(0, 1/n)`.  A solver driven by this oracle sees the same law as on
real samples, at a cost that depends on the number of rounds only.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from typing import Any

from tpca.engines.protocol import Round
from tpca.errors import StreamError
from tpca.model import SpikedTensor
from tpca.randomness import generator
from tpca.tensors import Query, contract_all
from tpca.tensors.blocks import Array
from tpca.tensors.dense import DenseBatch


class LawOracle:
    """Gaussian batches of a spiked tensor drawn at once; ``scale`` multiplies every sample (signal and noise).

    ``truth=None`` with ``dims`` gives pure noise.  ``max_samples`` ends the stream.
    """

    def __init__(
        self,
        truth: SpikedTensor | None,
        seed: int = 0,
        dims: tuple[int, ...] | None = None,
        scale: float = 1.0,
        max_samples: float = math.inf,
    ) -> None:
        self._dims = truth.dims if truth is not None else tuple(dims or ())
        self._signal: Array | None = None if truth is None else truth.signal()
        self._rng = generator(seed, "law")
        self._scale = scale
        self._left = max_samples
        self.buffer_bytes = self.n_skipped = 0
        self.constant = False
        planted = "noise" if self._signal is None else f"{zlib.crc32(self._signal.tobytes()):08x}"
        self.identity = f"law of {planted} {self._dims} seed {seed} scale {scale} of {max_samples} samples"
        self.length = None if math.isinf(max_samples) else int(max_samples)
        self.rereadable = False

    @property
    def dims(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return self._dims

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

    def mean(self, queries: Sequence[Query], n: int, scale: float = 1.0) -> Round:
        """Mean gradients over the next ``n`` samples, from one draw of their mean."""
        n = int(min(n, self._left))
        if n == 0:
            return Round(0, ())
        self._left -= n
        mean = self._rng.standard_normal(self._dims)
        mean *= scale * self._scale / math.sqrt(n)
        if self._signal is not None:
            mean += scale * self._scale * self._signal
        self.buffer_bytes = max(self.buffer_bytes, mean.nbytes)
        return Round(n, contract_all(mean, queries))

    def each(self, query: Query, n: int) -> Round:
        """Fresh samples for every replica and step: nothing to gain from the batch law, so they are drawn in full."""
        count = len(query.replicas[0])
        steps = int(min(n, self._left // count))
        self._left -= steps * count
        samples = self._scale * self._rng.standard_normal((steps * count, *self._dims))
        if self._signal is not None:
            samples += self._scale * self._signal
        self.buffer_bytes = max(self.buffer_bytes, samples.nbytes)
        return Round(steps * count, (DenseBatch(samples).each(query),))
