"""The mean of N samples as a source of its own: what methods that see nothing but the mean are run on.

Most published methods touch the data only through contractions of the mean of all samples.  To such a method the
mean, computed or drawn once, *is* the data: it may be read as often as it likes and says how many samples it stands
for.  Studies use it to run many methods on the very same samples at the cost of one pass.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tpca.engines import Round
from tpca.errors import StreamError
from tpca.model import SpikedTensor
from tpca.randomness import generator
from tpca.tensors import Query, contract
from tpca.tensors.blocks import Array


class AverageOracle:
    """Answers questions over all N samples at once, any number of passes; anything less than a pass is refused."""

    def __init__(self, mean: Array, n: int, identity: str = "mean") -> None:
        self._mean = mean
        self._n = n
        self._read = False
        self.identity = f"{identity} of {n} samples"
        self.length = n
        self.buffer_bytes = self.n_skipped = 0
        self.rereadable, self.endless, self.constant = True, False, False

    @property
    def dims(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return self._mean.shape

    def rewind(self) -> None:
        """Start another pass."""
        self._read = False

    def position(self) -> dict[str, Any]:
        """At the start of a pass or at its end."""
        return {"read": self._read}

    def seek(self, position: dict[str, Any]) -> None:
        """Go on from there."""
        self._read = bool(position["read"])

    def mean(self, queries: Sequence[Query], n: int, scale: float = 1.0) -> Round:
        """The answers over all samples; an array that is the mean itself is copied."""
        if self._read:
            return Round(0, ())
        if n < self._n:
            raise StreamError(f"a mean of {self._n} samples cannot answer for {n} of them; use the samples.")
        self._read = True
        mean = self._mean * scale  # a copy: methods may work in what they are given
        return Round(self._n, tuple(contract(mean, query) for query in queries))

    def each(self, query: Query, n: int) -> Round:  # noqa: ARG002
        """Single samples are gone."""
        raise StreamError(f"a mean of {self._n} samples has no single ones left for {n} steps; use the samples.")


def drawn_average(truth: SpikedTensor, n: int, seed: int) -> AverageOracle:
    """The mean of n Gaussian samples from its exact law: λ v₁ ⊗ … + N(0, 1/n)."""
    mean: Array = generator(seed, "average").standard_normal(truth.dims)
    mean /= math.sqrt(n)
    mean += truth.signal()
    average = AverageOracle(mean, n, f"law {truth.dims} seed {seed}")
    average.buffer_bytes = mean.nbytes
    return average


def averaged(batches: Any, dims: tuple[int, ...], n: int) -> AverageOracle:
    """The mean of the first n samples of some batches, never holding more than one batch."""
    total, left, flight = np.zeros(dims), n, 0
    for batch in batches:
        part = batch[:left]
        total += part.sum(axis=0)
        left -= len(part)
        flight = max(flight, batch.nbytes + total.nbytes)  # a batch and its sum
        if left <= 0:
            break
    total /= n - left
    average = AverageOracle(total, n - left)
    average.buffer_bytes = flight
    return average
