r"""The noise, as far as it must be known before anything is found: its scale, and dependent neighbours.

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
from tpca.solvers.race.rounds import FEW_SUB_BATCHES
from tpca.tensors import Answer, Query
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


@kept
class Noise:
    """What the races of a run share: the samples that count as one observation, and the memory that they may take."""

    def __init__(self, solver: Any, data: Data) -> None:
        self.block = solver.groups or 1
        self.limit = solver.budget(data.dims)
