r"""The noise model: what a sketch of some samples says of the noise, and what is done about it.

*White or not.*  With C_A and C_B the covariances of a mode in the two halves of the differences, n_h of them a half,

.. math:: w_i = \langle C_{iA} - I, C_{iB} - I\rangle_F/d_i

estimates how far a mode is from white without counting the chance in either half.  Its own chance has the standard
deviation :math:`s_i = (d_i/n_h D)\sqrt{2 + ((\kappa - 1)^2 - 4)/d_i}`, κ the kurtosis of the entries of differences:
heavy tails blur variances, and are no reason to whiten.  White is what has :math:`w_i < \max(0.02, 3.5 s_i)` for all i.
Five times as much is plain after four pairs already.

*Covariances.*  In noise that is not white the columns of an unfolding are not independent, and the plain Gram matrix
is a poor estimate.  One step of the flip-flop (Dutilleul, 1999) is enough: whitened with what a first sketch said, a
second one of fresh samples has G_i, and :math:`C_i = W_i^{-1}G_iW_i^{-1}`.  Where samples are few,
:math:`m = nD/d_i < 10d_i` columns, C_i is shrunk towards its diagonal, which keeps unequal scales.

Modes of equal length whose covariances agree within their own scatter share one, so that what is symmetric stays so.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tpca.checkpoint import kept
from tpca.noise.serial import SPAN, Dependence
from tpca.noise.sketch import Sketch
from tpca.noise.whitening import Whitening
from tpca.tensors.blocks import Array

SLIGHT = 0.02  # a mode closer to white than this is left alone: whitening would win next to nothing
CHANCE = 3.5  # standard deviations of w_i in white noise
COLUMNS = 10.0  # of an unfolding, over all differences, for every row: with fewer a covariance is shrunk
AGREE = 3.0  # squared distance of two covariances over what their own scatter makes expect
# Loudness that is worth a word.  Measured: up to 3.1 in smooth noise and unequal scales (100 runs, 8^3 and 12^3); above
# this in two of three runs with resonances or one direction 8 to 16 times as loud as the rest.
LOUD = 4.0
FIRST = 32  # samples of a sketch, at least
MAX_FIRST, MAX_SECOND = 128, 256  # the most, for a first look and for covariances; dependence may want more
EARLY, PLAIN = 4, 5.0  # pairs, and times what passes for white, from which on what is not white is seen before that
PRECISE = 0.2  # relative error of the correlation time that needs no more samples


@kept
@dataclass(frozen=True, eq=False)
class NoiseModel:
    """What is known of the noise.

    ``whitening`` is ``None`` where the noise is white, or nothing is known.  ``whiteness`` has w_i of every mode,
    ``limits`` what would still pass for white.  ``loudness`` is the variance of whitened noise along the directions in
    which the modes are loudest, all at once, over that elsewhere: one, if the covariance is a product of those of the
    modes.  Far above it is not: a few directions are loud, resonances, which whitening repairs in part only.
    ``kurtosis`` is that of the entries (3: Gaussian).
    """

    dependence: Dependence
    whitening: Whitening | None = None
    whiteness: tuple[float, ...] = ()
    limits: tuple[float, ...] = ()
    loudness: float = math.nan
    kurtosis: float = math.nan
    samples: int = 0

    @property
    def white(self) -> bool:
        """Whether no mode differs from white noise by more than is worth it, or by more than chance."""
        return all(w < limit for w, limit in zip(self.whiteness, self.limits, strict=True))

    @property
    def correlation_time(self) -> float:
        """τ in samples; one where neighbours are independent."""
        return self.dependence.time if self.dependence.present else 1.0

    @property
    def block(self) -> int:
        """Samples in a block: what counts as one observation."""
        return self.dependence.block

    @property
    def directions(self) -> bool:
        """Whether some directions of the noise are far louder than whitening of the modes can tell."""
        return self.loudness > LOUD

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return 0 if self.whitening is None else self.whitening.nbytes


def samples_wanted(sketch: Sketch, serial: bool = True, model: NoiseModel | None = None) -> int:
    """Samples after which a sketch can be learnt from; it may then want more.

    A first sketch only tells white from not white, and neighbours that are alike from those that are not.  Small
    samples tell less each.  A second one is for the covariances: ten columns for every row, as far as that is bearable.
    ``model`` is what describes the sketch, where that is known.
    """
    entries, longest = math.prod(sketch.dims), max(sketch.dims)
    columns = FIRST if sketch.whitening is None else math.ceil(2 * COLUMNS * longest**2 / entries)
    least = min(max(FIRST, columns), MAX_SECOND)
    if sketch.n < least:
        return least
    model = model or described(sketch)
    if sketch.whitening is None and not model.white:
        return least  # what is not white is looked at again once it is whitened
    dependence = model.dependence
    if not serial:  # somebody knows already
        return least
    if dependence.present:
        return max(least, 1 << math.ceil(math.log2(SPAN * dependence.time)))  # contrasts come in powers of two
    pairs = math.ceil(100 * longest / entries)  # 3.5 standard deviations of w_i are then a tenth
    precise = dependence.error <= PRECISE and (sketch.pairs >= pairs or not sketch.modes)
    return least if precise else min(max(least, 2 * sketch.n), max(least, MAX_FIRST))


def is_plain(sketch: Sketch) -> bool:
    """Whether few samples show already that the noise is not white.

    What is learnt from them is rough, but better than to go on with samples as they are until more have gone by: a
    second sketch, of data whitened by it, makes up for that.
    """
    if sketch.whitening is not None or sketch.pairs < EARLY or min(sketch.counts) == 0:
        return False
    model = described(sketch)
    rows = all(sketch.pairs * sketch.entries >= COLUMNS * d * d for d in sketch.dims)
    return rows and any(w > PLAIN * limit for w, limit in zip(model.whiteness, model.limits, strict=True))


def learn(sketch: Sketch, always: bool = False, model: NoiseModel | None = None) -> NoiseModel:
    """What a sketch says, which a ``model`` may describe; with ``always`` noise is whitened even if it looks white."""
    model = model or described(sketch)
    if min(sketch.counts) == 0 or (model.white and not always and sketch.whitening is None):
        return model
    # A direction that none of m columns has shown may still have a variance of about 1/m.
    least = [d / (sketch.pairs * sketch.entries) for d in sketch.dims]
    return dataclasses.replace(model, whitening=Whitening.of(_covariances(sketch, _halves(sketch)), least))


def described(sketch: Sketch) -> NoiseModel:
    """What a sketch says, without a whitening made of it."""
    dependence = sketch.contrasts.dependence()
    if min(sketch.counts) == 0:
        return NoiseModel(dependence, samples=sketch.n)
    entries = sketch.entries
    kurtosis = sketch.fourth / sketch.pairs * (entries + 2) / entries  # each of unit size: Gaussian ones have 3D/(D+2)
    return NoiseModel(
        dependence,
        None,
        tuple(_from_white(a, b) for a, b in zip(*_halves(sketch), strict=True)),
        _limits(sketch, kurtosis),
        sketch.contrasts.loudness,
        # Of entries that are independent in the two samples of a difference; 3 where no entry is in both.
        2 * (sketch.tails / sketch.seen - 3) + 3 if sketch.seen else 3.0,
        sketch.n,
    )


def _halves(sketch: Sketch) -> list[list[Array]]:
    """The covariances of all modes in each half of the differences."""
    return [[gram.astype(np.float64) / sketch.counts[half] for gram in sketch.grams[half]] for half in (0, 1)]


def _from_white(first: Array, second: Array) -> float:
    """w_i."""
    return float(np.vdot(first, second) - first.trace() - second.trace()) / len(first) + 1


def _limits(sketch: Sketch, kurtosis: float) -> tuple[float, ...]:
    """What passes for white, for every mode."""
    entries, half = sketch.entries, min(sketch.counts)
    blur = max(0.0, (kurtosis - 1) ** 2 - 4)
    return tuple(max(SLIGHT, CHANCE * d / (half * entries) * math.sqrt(2 + blur / d)) for d in sketch.dims)


def _covariances(sketch: Sketch, halves: Sequence[Sequence[Array]]) -> list[Array]:
    """C_i of the data, shrunk where samples are few, shared where modes agree."""
    first, second = ([_unwhitened(sketch, mode, gram) for mode, gram in enumerate(half)] for half in halves)
    whole = [0.5 * (a + b) for a, b in zip(first, second, strict=True)]
    for length in set(sketch.dims):
        modes = [mode for mode, d in enumerate(sketch.dims) if d == length]
        if len(modes) > 1 and _agree([first[m] for m in modes], [second[m] for m in modes]):
            pooled = np.mean([whole[m] for m in modes], axis=0)
            for mode in modes:
                whole[mode] = pooled
    return [_shrunk(sketch, covariance) for covariance in whole]


def _agree(first: Sequence[Array], second: Sequence[Array]) -> bool:
    """Whether covariances of several modes lie as close to their mean as their two halves to each other.

    All are whitened by the mean: otherwise the strongest few directions would decide.
    """
    halves = np.stack([first, second])
    root = Whitening.of([halves.mean(axis=(0, 1))]).matrices[0]
    a, b = root @ halves @ root
    scatter, whole = float(np.sum((a - b) ** 2)) / 4, (a + b) / 2
    apart = float(np.sum((whole - whole.mean(axis=0)) ** 2))
    return apart <= AGREE * (1 - 1 / len(first)) * scatter  # each has a share in the mean, and lies closer by that


def _unwhitened(sketch: Sketch, mode: int, gram: Array) -> Array:
    """The covariance of the data themselves, of mean variance one."""
    if sketch.whitening is not None:
        inverse = sketch.whitening.inverses[mode]
        gram = inverse @ gram @ inverse
    scaled: Array = gram * (len(gram) / np.trace(gram))
    return scaled


def _shrunk(sketch: Sketch, covariance: Array) -> Array:
    """Off the diagonal less, by the share d/(d + m), where there are fewer than ten columns for every row."""
    d = len(covariance)
    columns = sketch.pairs * sketch.entries / d
    if columns >= COLUMNS * d:
        return covariance
    share = d / (d + columns)
    return (1 - share) * covariance + share * np.diag(np.diag(covariance))
