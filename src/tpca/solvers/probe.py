"""The probe: a first look at a few samples, to learn in what units the data come.

Racers keep their replicas in half precision, which needs data of about unit size.  The probe contracts single samples
with random vectors; the root mean square of the gradients is about the noise level.  The median of three looks is not
fooled by one odd sample, and samples of nothing but zeros are passed over.
"""

from __future__ import annotations

import math
import statistics

import numpy as np

from tpca.batches import Answer, Query
from tpca.blocks import Array, Partition, unit
from tpca.checkpoint import kept

LOOKS = 3


@kept
class Probe:
    """Random vectors, and the size of what they have seen."""

    working_bytes = 0

    def __init__(self, dims: tuple[int, ...], rng: np.random.Generator) -> None:
        self._partition = Partition.singles(dims)
        self._vectors = tuple(unit(rng.standard_normal((1, d))) for d in dims)
        self._sizes: list[float] = []

    @property
    def done(self) -> bool:
        """Whether enough has been seen."""
        return len(self._sizes) >= LOOKS

    @property
    def scale(self) -> float:
        """What to multiply the samples by; 1 if there was nothing but zeros."""
        return 1 / statistics.median(self._sizes) if self._sizes else 1.0

    def queries(self) -> tuple[Query, ...]:
        """The random vectors, gradients of all modes."""
        return (Query(self._partition, self._vectors),)

    def absorb(self, answers: tuple[Answer, ...], n: int) -> None:
        """Note the size of the gradients, in units of one sample's noise."""
        gradients = np.concatenate([g.ravel() for g in answers[0].gradients.values()])
        largest = float(np.max(np.abs(gradients)))  # first, so that squares neither overflow nor vanish
        if 0 < largest < math.inf:
            self._sizes.append(largest * math.sqrt(n * float(np.mean((gradients / largest) ** 2))))

    def arrays(self) -> dict[str, Array]:
        """The vectors."""
        return {f"vector_{i}": v for i, v in enumerate(self._vectors)}
