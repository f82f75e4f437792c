r"""Heavy tails: how far entries are spread, and whether the mean of clipped entries is worth more than the plain mean.

Entries are compared with scales of product form, read off the logarithms of one sample: with ℓ the mean of
:math:`\log_2|x|` over all entries and ℓ_i(a) over those of row a of mode i,

.. math:: \log_2 y = \log_2|x| - \ell - \sum_i(\ell_i(a_i) - \ell) ,

so that rows of unequal scale are no heavy tail.  Of y a histogram is kept, with bins of 1/8 octave, for entries below
and above zero apart.  With :math:`s = \mathrm{median}(y)/0.6745`, the standard deviation of Gaussian entries, and the
bound :math:`b = cs`, the mean of clipped entries has, for a signal small against b, the variance of a plain mean
times

.. math:: \frac1g = \frac{E\min(y, b)^2}{P(y \le b)^2\,E y^2} .

Entries are clipped where the gain g exceeds 1.25 (Gaussian: 0.97, t with 3 degrees of freedom about 1.5), and only if
the tails beyond b are as heavy on both sides: clipping what is skewed would make a mean of noise alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tpca.checkpoint import kept
from tpca.tensors import Accumulator, Batch, Clipped, DenseBatch, Together
from tpca.tensors.blocks import Array

BOUND = 1.5  # c, in standard deviations: efficiency 0.96 for Gaussian entries, 0.93 for t with 2.5 degrees of freedom
GAIN = 1.25  # of the variance of a mean, below which clipping is not worth it
DENSE = 0.9  # share of entries that are not zero, below which samples are sparse, and nothing is known of tails
LOOKED = 2**15  # entries that are looked at, for one question: they tell a gain to a few per cent
ENOUGH, SEVERAL = 2**20, 4  # entries and samples after which no more are looked at
HEAVY = 4.0  # kurtosis (Gaussian: 3) of differences of samples, below which tails are not heavy
LOPSIDED = 4.0  # standard deviations by which the tails of the two sides may differ in number
OCTAVES, BINS = 10, 8  # of the histogram on each side of the mean size, and bins an octave
NEAR = 8.0  # octaves from the median size of a sample that entries count for at most: zeros, and entries without bounds
ROUGHLY = 2**11  # entries that tell the median size of a sample well enough for this
GAUSSIAN = 0.6745  # median of |x| for standard Gaussian x

A = TypeVar("A", bound=Accumulator)


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
                self._look(np.asarray(batch.filled(most - at), np.float64))
            elif most == 0 and at == 0:
                self._glance(batch.filled(1)[0])

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

    def _look(self, samples: Array) -> None:
        """Look at some samples, each by itself, all at once."""
        self.entries += samples.size
        count, dims = len(samples), samples.shape[1:]
        logs = np.abs(samples)
        with np.errstate(divide="ignore"):
            np.log2(logs, out=logs)
        middle = np.median(logs.reshape(count, -1)[:, :: 1 + samples[0].size // ROUGHLY], axis=1)
        if not np.isfinite(middle).all():  # most entries are zero
            good = np.isfinite(middle)
            samples, logs, middle, count = samples[good], logs[good], middle[good], int(good.sum())
            if not count:
                return
        middle = middle.reshape(count, *[1] * len(dims))
        np.clip(logs, middle - NEAR, middle + NEAR, out=logs)
        means = logs.reshape(count, -1).mean(axis=1).reshape(middle.shape)
        logs -= means
        axes = range(1, samples.ndim)
        rows = [logs.mean(axis=tuple(j for j in axes if j != i), keepdims=True) for i in axes]
        for row in rows:
            logs -= row
        self._note(samples, logs, [row.sum(axis=0).reshape(-1) for row in rows], float(means.sum()), count)

    def _glance(self, sample: NDArray[Any]) -> None:
        """Look at entries of one large sample at equal distances, which have no divisor in common with its shape."""
        distance = math.ceil(sample.size / LOOKED)
        while math.gcd(distance, sample.size) > 1:
            distance += 1
        values = sample.reshape(-1)[::distance].astype(np.float64)
        self.entries += values.size
        with np.errstate(divide="ignore"):
            logs = np.log2(np.abs(values))
        middle = float(np.median(logs))
        if not math.isfinite(middle):
            return
        np.clip(logs, middle - NEAR, middle + NEAR, out=logs)
        mean = float(logs.mean())
        logs -= mean
        places = np.unravel_index(np.arange(0, sample.size, distance), sample.shape)
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


@kept
class Tails:
    """What a run knows of the tails: sizes of entries, until it is decided where to clip, if anywhere.

    ``asked`` is ``"auto"``, a bound in standard deviations, or ``None``: never.  ``beyond`` counts entries that were
    clipped above and below.
    """

    def __init__(self, asked: str | float | None) -> None:
        self.asked = asked
        self.clip: Clip | None = None
        self.beyond = (0, 0)
        self._sizes = None if asked is None else EntrySizes()

    @property
    def share(self) -> float:
        """What a signal is seen times."""
        return 1.0 if self.clip is None else self.clip.share

    @property
    def _looking(self) -> bool:
        sizes = self._sizes
        return sizes is not None and (sizes.entries < ENOUGH or sizes.n < SEVERAL)

    def blanks(self) -> tuple[Accumulator, ...]:
        """What is to be kept of the next samples, while nothing is decided and too little is known."""
        return (EntrySizes(),) if self._looking else ()

    def take(self, parts: Sequence[Any]) -> Sequence[Any]:
        """Take what was kept, as long as there is something the last of ``parts``; returns the others."""
        if self._sizes is None or not self._looking:
            return parts
        *others, own = parts
        assert isinstance(own, EntrySizes)
        self._sizes.merge(own)
        return others

    def decide(self, left: float, kurtosis: float) -> bool:
        """Whether to clip from now on, when the samples so far are thrown away and a share of ``left`` remains.

        ``kurtosis`` is that of entries of differences of neighbouring samples: a strong signal has large entries, too,
        but they cancel there.
        """
        if self._sizes is not None:
            bound = None if isinstance(self.asked, str) else self.asked
            clip = clip_for(self._sizes, bound)
            if clip is not None and (bound is not None or (clip.gain * left > 1 and kurtosis > HEAVY)):
                self.clip = clip
            self._sizes = None
        return self.clip is not None

    def together(self, first: A, *others: Accumulator) -> A | Together:
        """What is to be kept of the next samples as one accumulator: of clipped samples, if they are."""
        if self.clip is not None:
            return Clipped([first, *others], self.clip.scales)
        return Together([first, *others]) if others else first

    def parts(self, filled: Accumulator) -> tuple[Accumulator, ...]:
        """The parts of such an accumulator once it is filled."""
        if isinstance(filled, Clipped):
            above, below = self.beyond
            self.beyond = above + int(filled.beyond[0]), below + int(filled.beyond[1])
        return filled.parts if isinstance(filled, Together) else (filled,)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        own = 0 if self._sizes is None else self._sizes.nbytes
        return own + (0 if self.clip is None else sum(scale.nbytes for scale in self.clip.scales))


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
    edge = (BOUND if bound is None else bound) * sigma
    inside = float(both[y <= edge].sum())
    gain = float(both @ y**2) * inside**2 / float(both @ np.minimum(y, edge) ** 2)
    beyond = sizes.counts[:, y > edge].sum(axis=1)
    if bound is None and (gain < GAIN or lopsided(beyond)):
        return None
    scales = [np.exp2(row / sizes.n) for row in sizes.rows]
    return Clip((edge * 2.0 ** (sizes.level / sizes.n) * scales[0], *scales[1:]), inside, gain)


def lopsided(beyond: Sequence[Any] | Array) -> bool:
    """Whether one tail has more entries than the other, beyond the chance of a fair coin."""
    below, above = (float(count) for count in beyond)
    return abs(above - below) > LOPSIDED * math.sqrt(max(1.0, above + below))
