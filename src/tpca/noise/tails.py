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
from numpy.typing import NDArray

from tpca.checkpoint import kept
from tpca.tensors import Accumulator, Batch, DenseBatch
from tpca.tensors.blocks import Array

# c, in standard deviations.  Variances of means for t with 2.5 degrees of freedom, over the least that any estimate can
# have: 1.04, 1.08, 1.13, 1.23; where some entries are far off and the others Gaussian more is lost than won below 1.5.
BOUNDS = (1.0, 1.25, 1.5, 2.0)
GAIN = 1.25  # of the variance of a mean, below which clipping is not worth it
DENSE = 0.9  # share of entries that are not zero, below which samples are sparse, and nothing is known of tails
LOOKED = 2**15  # entries that are looked at, for one question: they tell a gain to a few per cent
LOPSIDED = 4.0  # standard deviations by which the tails of the two sides may differ in number
OCTAVES, BINS = 10, 8  # of the histogram on each side of the mean size, and bins an octave
NEAR = 8.0  # octaves from the median size of a sample that entries count for at most: zeros, and entries without bounds
ROUGHLY = 2**11  # entries that tell the median size of a sample well enough for this
SWEEPS = 4  # over the modes, to take out the means of rows of which entries are missing
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
    """Sizes of the entries of dense samples; others are passed over: ``n`` counts samples that were looked at."""

    of_few = True

    def __init__(self) -> None:
        super().__init__()
        self.counts = np.zeros((2, 2 * OCTAVES * BINS + 1), np.int32)  # below and above zero
        self.rows: list[Array] = []  # of every mode, the sum over samples of ℓ_i - ℓ
        self.level = 0.0  # the sum over samples of ℓ
        self.entries = 0

    def add(self, batch: Batch, at: int) -> None:
        """Look at every sample, of large ones at the first few, or at some entries: each has enough."""
        if isinstance(batch, DenseBatch) and len(batch):
            most = LOOKED // batch.samples[0].size
            if at < most:
                some = batch[: most - at]
                self._look(np.asarray(some.samples, np.float64), _observed(some))
            elif most == 0 and at == 0:
                self._glance(batch.samples[0], _observed(batch[:1]))

    def merge(self, other: EntrySizes) -> None:
        """Add up all that is kept."""
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

    def _look(self, samples: Array, there: NDArray[np.bool_] | None) -> None:
        """Look at some samples, each by itself, all at once."""
        self.entries += samples.size if there is None else int(there.sum())
        logs = np.abs(samples)
        with np.errstate(divide="ignore"):
            np.log2(logs, out=logs)
        middle = _medians(logs, there)
        if not np.isfinite(middle).all():  # most entries are zero
            good = np.isfinite(middle)
            samples, logs, middle = samples[good], logs[good], middle[good]
            there = None if there is None else there[good]
            if not len(samples):
                return
        middle = middle.reshape(-1, *[1] * (samples.ndim - 1))
        np.clip(logs, middle - NEAR, middle + NEAR, out=logs)
        means, rows = _taken_out(logs) if there is None else _taken_out_partly(logs, there)
        self._note(samples, logs, [row.sum(axis=0).reshape(-1) for row in rows], float(means.sum()), len(samples))

    def _glance(self, sample: NDArray[Any], there: NDArray[np.bool_] | None) -> None:
        """Look at entries of one large sample at equal distances, which have no divisor in common with its shape."""
        distance = math.ceil(sample.size / LOOKED)
        while math.gcd(distance, sample.size) > 1:
            distance += 1
        chosen = np.arange(0, sample.size, distance)
        if there is not None:
            chosen = chosen[there.reshape(-1)[chosen]]
        values = sample.reshape(-1)[chosen].astype(np.float64)
        self.entries += values.size
        with np.errstate(divide="ignore"):
            logs = np.log2(np.abs(values))
        middle = float(np.median(logs)) if values.size else -math.inf
        if not math.isfinite(middle):
            return
        np.clip(logs, middle - NEAR, middle + NEAR, out=logs)
        mean = float(logs.mean())
        logs -= mean
        places = np.unravel_index(chosen, sample.shape)
        rows = []
        for place, d in zip(places, sample.shape, strict=True):
            rows.append(np.bincount(place, logs, d) / np.maximum(np.bincount(place, minlength=d), 1))
        for place, row in zip(places, rows, strict=True):
            logs -= row[place]
        self._note(values, logs, rows, mean, 1)

    def _note(self, values: Array, logs: Array, rows: list[Array], level: float, count: int) -> None:
        """Add what ``count`` samples said: logarithms without their scales, which are used up, and sums of these."""
        self.rows = [own + row for own, row in zip(self.rows, rows, strict=True)] if self.rows else rows
        self.level += level
        logs *= BINS
        np.clip(np.rint(logs, out=logs), -OCTAVES * BINS, OCTAVES * BINS, out=logs)
        places = logs.astype(np.int16) + OCTAVES * BINS
        for side, these in enumerate((values < 0, values > 0)):
            self.counts[side] += np.bincount(places[these], minlength=self.counts.shape[1])
        self.n += count


def _observed(batch: DenseBatch) -> NDArray[np.bool_] | None:
    """Which entries are there; ``None``: all."""
    exposure = batch.measured.exposure
    return None if exposure is None else exposure > 0


def _medians(logs: Array, there: NDArray[np.bool_] | None) -> Array:
    """About the median of every sample."""
    flat, step = logs.reshape(len(logs), -1), 1 + logs[0].size // ROUGHLY
    if there is None:
        return np.asarray(np.median(flat[:, ::step], axis=1))
    seen = there.reshape(flat.shape)
    return np.array(
        [np.median(row[own][::step]) if own.any() else -math.inf for row, own in zip(flat, seen, strict=True)]
    )


def _taken_out(logs: Array) -> tuple[Array, list[Array]]:
    """Means of samples and, beside them, of rows of all modes, which are taken out of ``logs``."""
    axes = tuple(range(1, logs.ndim))
    means = logs.reshape(len(logs), -1).mean(axis=1).reshape(-1, *[1] * len(axes))
    logs -= means
    rows = [logs.mean(axis=tuple(j for j in axes if j != i), keepdims=True) for i in axes]
    for row in rows:
        logs -= row
    return means, rows


def _taken_out_partly(logs: Array, there: NDArray[np.bool_]) -> tuple[Array, list[Array]]:
    """The same, of what is there."""
    logs[~there] = 0.0
    axes = tuple(range(1, logs.ndim))
    means = np.sum(logs, axis=axes, keepdims=True) / np.sum(there, axis=axes, keepdims=True)
    logs -= np.where(there, means, 0.0)
    rows = [np.zeros([n if j in (0, i) else 1 for j, n in enumerate(logs.shape)]) for i in axes]
    for _ in range(SWEEPS):
        for i, row in zip(axes, rows, strict=True):
            others = tuple(j for j in axes if j != i)
            more = np.sum(logs, axis=others, keepdims=True) / np.maximum(1, np.sum(there, axis=others, keepdims=True))
            logs -= np.where(there, more, 0.0)
            row += more
    return means, rows


def tail_bytes(dims: Sequence[int]) -> int:
    """Bytes of the sizes of entries that are kept, and of those of a round in flight."""
    return 2 * (4 * 2 * (2 * OCTAVES * BINS + 1) + 8 * sum(dims))


def clip_for(sizes: EntrySizes, bound: float | None = None) -> Clip | None:
    """Where to clip, at a ``bound`` in standard deviations; without one, only if it is worth it and the tails are even.

    ``None``: nowhere.
    """
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
