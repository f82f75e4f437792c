r"""Heavy tails: how far entries are spread, and whether the mean of clipped entries is worth more than the plain mean.

Entries are compared with scales of product form, read off the logarithms of one sample: with ℓ the mean of
:math:`\log_2|x|` over all entries and ℓ_i(a) over those of row a of mode i,

.. math:: \log_2 y = \log_2|x| - \ell - \sum_i(\ell_i(a_i) - \ell) ,

so that rows of unequal scale are no heavy tail.  Where entries are missing means are those of least squares over the
others, a few sweeps over the modes.  Of y a histogram is kept, with bins of 1/8 octave, for entries below
and above zero apart.  With :math:`s = \mathrm{median}(y)/0.6745`, the standard deviation of Gaussian entries, and the
bound :math:`b = cs`, the mean of clipped entries has, for a signal small against b, the variance of a plain mean
times

.. math:: \frac1g = \frac{E\min(y, b)^2}{P(y \le b)^2\,E y^2} .

Of a few bounds c the one with the largest gain is taken.  Entries are clipped where g exceeds 1.25 (Gaussian: 0.99, t
with 3 degrees of freedom about 1.9), and only if the tails beyond b are as heavy on both sides: clipping what is skewed
would make a mean of noise alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tpca.checkpoint import kept
from tpca.noise.sizes import histogram, log_sizes, medians, row_means, taken_out, taken_out_partly
from tpca.tensors import Accumulator, Batch, DenseBatch
from tpca.tensors.blocks import Array
from tpca.tensors.namespaces import (
    bounded,
    cast,
    entries,
    fused,
    lowered,
    name_of,
    namespace,
    rounded,
    rows_of,
    scaled,
    to_device,
    to_host,
)

# c, in standard deviations.  Variances of means for t with 2.5 degrees of freedom, over the least that any estimate can
# have: 1.04, 1.08, 1.13, 1.23; where some entries are far off and the others Gaussian more is lost than won below 1.5.
BOUNDS = (1.0, 1.25, 1.5, 2.0)
GAIN = 1.25  # of the variance of a mean, below which clipping is not worth it
DENSE = 0.9  # share of entries that are not zero, below which samples are sparse, and nothing is known of tails
LOOKED = 2**15  # entries that are looked at, for one question: they tell a gain to a few per cent
LOPSIDED = 4.0  # standard deviations by which the tails of the two sides may differ in number
OCTAVES, BINS = 10, 8  # of the histogram on each side of the mean size, and bins an octave
NEAR = 8.0  # octaves from the median size of a sample that entries count for at most: zeros, and entries without bounds
GAUSSIAN = 0.6745  # median of |x| for standard Gaussian x


@kept
@dataclass(frozen=True, eq=False)
class Clip:
    """A bound c·s_1(a_1)···s_k(a_k) on entries; ``share`` of them lie within it: signals are seen times that."""

    scales: tuple[Array, ...]
    share: float
    gain: float


@kept
class EntrySizes(Accumulator):
    """Sizes of the entries of dense samples; others are passed over: ``n`` counts samples that were looked at.

    Of a large one ``glanced`` entries are.  With ``later`` samples of a group that is not closed, which are in memory
    anyway, are looked at when somebody wants to know (:meth:`settle`): where tails are not heavy, nobody does.
    """

    of_few = True
    _waiting: tuple[DenseBatch, ...] = ()

    def __init__(self, later: bool = False, glanced: int = LOOKED) -> None:
        super().__init__(later, glanced)
        self._later, self._glanced = later, glanced
        self.counts = np.zeros((2, 2 * OCTAVES * BINS + 1), np.int32)  # below and above zero
        self.rows: list[Array] = []  # of every mode, the sum over samples of ℓ_i - ℓ
        self.level = 0.0  # the sum over samples of ℓ
        self.entries = 0

    def add(self, batch: Batch, at: int) -> None:
        """Look at every sample, of large ones at the first few, or at some entries: each has enough."""
        if isinstance(batch, DenseBatch) and len(batch):
            batch.check()
            most = LOOKED // math.prod(batch.dims)
            if at < max(most, 1):
                self._waiting = (*self._waiting, batch[: max(most, 1) - at])
                if not self._later:
                    self.settle()

    def settle(self) -> None:
        """Look at samples that are still waiting for it."""
        waiting, self._waiting = self._waiting, ()
        for some in waiting:
            if math.prod(some.dims) > LOOKED:
                self._glance(some.samples[0, ...], _observed(some))
            else:
                self._look(_wide(some.samples), _observed(some))

    def close(self) -> None:
        """Samples of a closed group are not kept."""
        self.settle()

    def merge(self, other: EntrySizes) -> None:
        """Add up all that is kept."""
        self._waiting += other._waiting
        self.counts += other.counts
        if self.rows and other.rows:
            self.rows = [own + others for own, others in zip(self.rows, other.rows, strict=True)]
        else:  # samples of hardly anything but zeros have none
            self.rows = self.rows or other.rows
        self.level += other.level
        self.entries += other.entries
        self.n += other.n

    @property
    def nbytes(self) -> int:
        """The histogram and the rows."""
        return self.counts.nbytes + sum(row.nbytes for row in self.rows)

    def _look(self, samples: Any, there: Any) -> None:
        """Look at some samples, each by itself, all at once."""
        xp = namespace(samples)
        self.entries += entries(samples) if there is None else int(to_host(xp.sum(cast(there, xp.int32))))
        logs = log_sizes(samples)
        middle = medians(logs, there)
        if not np.isfinite(middle).all():  # most entries are zero
            good = np.flatnonzero(np.isfinite(middle))
            samples, logs, middle = rows_of(samples, good), rows_of(logs, good), middle[good]
            there = None if there is None else rows_of(there, good)
            if not len(good):
                return
        near = to_device(middle.reshape(-1, *[1] * (samples.ndim - 1)), logs)
        logs = bounded(logs, near - NEAR, near + NEAR)
        logs, means, rows = fused(taken_out)(logs) if there is None else fused(taken_out_partly)(logs, there)
        sums = [to_host(xp.sum(row, axis=0)).reshape(-1).astype(np.float64) for row in rows]
        self._note(samples, logs, sums, float(to_host(xp.sum(means))), len(middle))

    def _glance(self, sample: Any, there: Any) -> None:
        """Look at entries of one large sample at equal distances, which have no divisor in common with its shape."""
        size, xp = entries(sample), namespace(sample)
        distance = math.ceil(size / self._glanced)
        while math.gcd(distance, size) > 1:
            distance += 1
        chosen, values = np.arange(0, size, distance), _wide(xp.reshape(sample, (-1,))[::distance])
        if there is not None:
            kept = np.flatnonzero(to_host(xp.reshape(there, (-1,))[::distance]))
            chosen, values = chosen[kept], rows_of(values, kept)
        self.entries += len(chosen)
        logs = log_sizes(values)
        middle = float(medians(logs[None, :], None)[0]) if len(chosen) else -math.inf
        if not math.isfinite(middle):
            return
        logs = bounded(logs, middle - NEAR, middle + NEAR)
        mean = float(to_host(xp.mean(logs)))
        logs, rows = row_means(lowered(logs, mean), np.unravel_index(chosen, tuple(sample.shape)), sample.shape)
        self._note(values, logs, rows, mean, 1)

    def _note(self, values: Any, logs: Any, rows: list[Array], level: float, count: int) -> None:
        """Add what ``count`` samples said: logarithms without their scales, which are used up, and sums of these."""
        self.rows = [own + row for own, row in zip(self.rows, rows, strict=True)] if self.rows else rows
        self.level += level
        places = bounded(rounded(scaled(logs, BINS)), -OCTAVES * BINS, OCTAVES * BINS)
        places = lowered(places, -OCTAVES * BINS)
        self.counts += histogram(values, places, self.counts.shape[1]).astype(np.int32)
        self.n += count


def _wide(samples: Any) -> Any:
    """In float64, of the host."""
    return np.asarray(samples, np.float64) if isinstance(samples, np.ndarray) else samples


def _observed(batch: DenseBatch) -> Any:
    """Which entries are there; ``None``: all."""
    exposure = batch.measured.exposure
    return exposure if exposure is None or name_of(exposure.dtype) == "bool" else exposure > 0


def tail_bytes(dims: Sequence[int]) -> int:
    """Bytes of the sizes of entries that are kept, and of those of a round in flight."""
    return 2 * (4 * 2 * (2 * OCTAVES * BINS + 1) + 8 * sum(dims))


def clip_for(sizes: EntrySizes, bound: float | None = None) -> Clip | None:
    """Where to clip, at a ``bound`` in standard deviations; without one, only if it is worth it and the tails are even.

    ``None``: nowhere.
    """
    sizes.settle()
    total = sizes.counts.sum()
    if total < DENSE * sizes.entries or not total:
        return None
    y = 2.0 ** ((np.arange(sizes.counts.shape[1]) - OCTAVES * BINS) / BINS)
    both = sizes.counts.sum(axis=0) / total
    sigma = float(y[np.searchsorted(np.cumsum(both), 0.5)]) / GAUSSIAN
    edge, inside, gain = max(
        (_gain(y, both, c * sigma) for c in ([bound] if bound else BOUNDS)), key=lambda one: one[2]
    )
    beyond = sizes.counts[:, y > edge].sum(axis=1)
    if bound is None and (gain < GAIN or lopsided(beyond)):
        return None
    logs = np.log2(y)
    variance = float(both @ logs**2) - float(both @ logs) ** 2
    scales = [np.exp2(_drawn(row / sizes.n, variance * len(row) / sizes.entries)) for row in sizes.rows]
    return Clip((edge * 2.0 ** (sizes.level / sizes.n) * scales[0], *scales[1:]), inside, gain)


def _drawn(row: Array, variance: float) -> Array:
    """Logarithms of scales, drawn to each other by as much as chance of some ``variance`` makes of them.

    Signals are seen times the share within the bound where they are, and that is known on average only.
    """
    spread = float(np.sum((row - row.mean()) ** 2))
    kept = max(0.0, 1 - (len(row) - 1) * variance / spread) if spread > 0 else 0.0
    return np.asarray(row.mean() + kept * (row - row.mean()))


def _gain(y: Array, shares: Array, edge: float) -> tuple[float, float, float]:
    """A bound b, P(y ≤ b), and g."""
    inside = float(shares[y <= edge].sum())
    return edge, inside, float(shares @ y**2) * inside**2 / float(shares @ np.minimum(y, edge) ** 2)


def lopsided(beyond: Sequence[Any] | Array) -> bool:
    """Whether one tail has more entries than the other, beyond the chance of a fair coin."""
    below, above = (float(count) for count in beyond)
    return abs(above - below) > LOPSIDED * math.sqrt(max(1.0, above + below))
