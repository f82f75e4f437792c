"""The scale estimate: a first look at a few samples, to learn in what units the data come.

Strategies keep their replicas in half precision, which needs data of about unit size.  The scale estimate contracts
single samples with random vectors; the root mean square of the gradients is about the noise level.  The median of three
looks is not fooled by one odd sample, and samples of nothing but zeros are passed over.

Contractions of the largest numbers there are can overflow: such a sample is passed over, too, and the next are looked
at in larger units.
"""

from __future__ import annotations

import math
import statistics
import sys

import numpy as np

from tpca.checkpoint import kept
from tpca.errors import StreamError
from tpca.tensors import Answer, Query
from tpca.tensors.blocks import Array, Partition, unit

LOOKS = 3
SMALLER = 2.0**-64  # what samples whose contractions overflow are multiplied by
MAX_SCALE = 2.0**1023  # the largest scale there is
MIN_SIZE = 2.0**-8  # of samples so scaled: half precision holds these still


@kept
class ScaleEstimate:
    """Random vectors, and the size of what they have seen."""

    working_bytes = 0

    def __init__(self, dims: tuple[int, ...], rng: np.random.Generator) -> None:
        self._partition = Partition.singles(dims)
        self._vectors = tuple(unit(rng.standard_normal((1, d))) for d in dims)
        self._sizes: list[float] = []
        self.looking = 1.0  # what samples are multiplied by when they are looked at

    @property
    def done(self) -> bool:
        """Whether enough has been seen."""
        return len(self._sizes) >= LOOKS

    @property
    def scale(self) -> float:
        """What to multiply the samples by; 1 if there was nothing but zeros."""
        if not self._sizes:
            return 1.0
        size = statistics.median(self._sizes)
        if size < MIN_SIZE / MAX_SCALE:
            raise StreamError(
                f"the samples are of size {size:.1e}, which is less than floats hold in full; multiply them by 1e20."
            )
        return 1 / size if size > 1 / MAX_SCALE else MAX_SCALE

    def queries(self) -> tuple[Query, ...]:
        """The random vectors, gradients of all modes."""
        return (Query(self._partition, self._vectors),)

    def absorb(self, answers: tuple[Answer, ...], n: int) -> None:
        """Note the size of the gradients, in units of one sample's noise."""
        gradients = np.concatenate([g.ravel() for g in answers[0].gradients.values()])
        largest = float(np.max(np.abs(gradients)))  # first, so that squares neither overflow nor vanish
        if 0 < largest < math.inf:
            size = largest * math.sqrt(n * float(np.mean((gradients / largest) ** 2)))
            self._sizes.append(min(size / self.looking, sys.float_info.max))
        elif largest != 0:  # infinite, or the difference of two that are
            self.looking *= SMALLER

    def arrays(self) -> dict[str, Array]:
        """The vectors."""
        return {f"vector_{i}": v for i, v in enumerate(self._vectors)}
