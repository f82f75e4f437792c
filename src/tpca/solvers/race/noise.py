r"""The noise, as far as it must be known before anything is found: its scale, and dependent neighbours.

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
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np

from tpca.checkpoint import kept
from tpca.engines import Data
from tpca.solvers.race.evidence import Neighbours
from tpca.tensors import Answer, Query
from tpca.tensors.blocks import Array, Partition, unit

LOOKS = 3  # at the size of samples
ENTRIES = 128  # of gradients that are looked at: of the shortest modes, one at least
MIN_ROUNDS = 8  # before neighbours may be taken for alike
Z = 4.0  # standard errors of r from which on they are: 1 look of 30 000 in white noise
SLIGHT, STILL = 0.1, 0.3  # what r must be besides; and again, once blocks count: levels of bets see to the rest
ALIKE = 0.9  # the largest r that is believed


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


@kept
class Noise:
    """What the races of a run share: the samples that count as one observation, and the memory that they may take."""

    def __init__(self, solver: Any, data: Data) -> None:
        self.block = solver.groups or 1
        self.limit = solver.budget(data.dims)
