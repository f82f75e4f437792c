r"""Effects in a stream whose background does not fit: slopes of a few neighbours, from which the background cancels.

Samples are :math:`T_i = B + y_iS + E_i`.  Neighbours are put into blocks; a block ends as soon as

.. math:: v = \sum_i (y_i - \bar y)^2 \ge 3\,\mathrm{Var}(y) ,

after four samples or so, later where y varies little.  Each block b gives one *contrast*, its slope on y,

.. math:: C_b = \frac1{v_b}\sum_{i\in b} (y_i - \bar y_b)\,T_i = S + \text{noise of variance } \sigma^2/v_b ,

and the race looks for the mean of the contrasts, as of any samples.  Blocks share no sample, so that contrasts are
independent where samples are.  Where blocks end depends on y alone, which says nothing of the noise.

**What it costs.**  Every block fits a mean of its own.  Of the information :math:`I = \sum_i (y_i - \bar y)^2` that
least squares has about S, contrasts keep :math:`m^2/(I\sum_b 1/v_b)`, m their number: about three quarters for y in
random order.  A y that follows the order of the samples leaves next to nothing.

Nothing is held but three tensors of the open block: its first sample, which is subtracted from all others so that a
large background does not cancel in the sums, and Σ T and Σ y T.

==========  =========================
symbol      code
==========  =========================
v           ``Block.spread``
3 Var(y)    ``least``
==========  =========================
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.data import Stream
from tpca.data.base import without_empty
from tpca.engines import open_engine
from tpca.engines.local import LocalEngine
from tpca.errors import SolverError
from tpca.inference.design import Design
from tpca.solvers.estimate import Estimate
from tpca.solvers.race.rounds import MIN_SAMPLES
from tpca.tensors import DenseBatch
from tpca.tensors.blocks import Array

SPREAD = 3.0  # v that ends a block, over the variance of y


def refused(design: Design) -> str | None:
    """What of a design contrasts cannot answer, in words; ``None`` if they can."""
    if len(design.labels) > 2:
        return f"{len(design.labels)} labels"
    if design.n_columns != 2:
        return "a nuisance" if design.n_nuisance > 1 else f"{design.n_columns - design.n_nuisance} columns of y"
    if design.weights is not None:
        return "sample_weight"
    return None if design.groups is None else "groups"


class Block:
    """Neighbours whose slope is wanted: what their y and, where they are given, the samples add up to."""

    def __init__(self, least: float) -> None:
        self._least = least
        self._begin()

    def _begin(self) -> None:
        self.count, self._mean, self.spread = 0, 0.0, 0.0
        self._first: Array | None = None

    def ends(self, y: float) -> bool:
        """Take the y of the next sample (Welford 1962); whether the block is complete."""
        self.count += 1
        step = y - self._mean
        self._mean += step / self.count
        self.spread += step * (y - self._mean)
        return self.spread >= self._least

    def slopes(self, samples: NDArray[Any], ys: Array) -> Iterator[Array]:
        """The slopes of all blocks that are complete with these samples."""
        start = 0
        for i, y in enumerate(ys.tolist()):
            if self.ends(y):
                self._add(samples[start : i + 1], ys[start : i + 1])
                yield (self._products - (self._mean - self._y) * self._sum) / self.spread
                self._begin()
                start = i + 1
        if start < len(ys):
            self._add(samples[start:], ys[start:])

    def _add(self, samples: NDArray[Any], ys: Array) -> None:
        if self._first is None:
            self._first, self._y = samples[0].astype(np.float64), float(ys[0])
            self._sum, self._products = np.zeros_like(self._first), np.zeros_like(self._first)
        less = samples - self._first
        self._sum += less.sum(axis=0)
        self._products += np.tensordot(ys - self._y, less, 1)


class ContrastStream(Stream):
    """The contrasts of a stream of samples, batch by batch; what is not said here is as there."""

    kind = "contrasts"

    def __init__(self, stream: Stream, design: Design, most: int | None) -> None:
        assert design.columns is not None
        self._stream, self._design = stream, design
        self._y = design.columns[:most, 1]
        self._least = SPREAD * float(self._y.var())
        block, self.ends, self._spreads = Block(self._least), [], []
        for i, y in enumerate(self._y.tolist(), start=1):
            if block.ends(y):
                self.ends.append(i)
                self._spreads.append(block.spread)
                block = Block(self._least)
        for name in ("dims", "dtype", "rereadable", "files", "nan_policy", "labels"):
            setattr(self, name, getattr(stream, name))
        self.length = len(self.ends)
        if self.length < MIN_SAMPLES:
            raise SolverError(
                f"y varies so little from sample to sample that {len(self._y)} samples give {self.length} contrasts, "
                f"and the race needs {MIN_SAMPLES}; give samples in random order, or raise memory_limit for least "
                "squares."
            )
        # For every contrast the samples that it is made of are in memory.
        self.ahead = math.ceil((1 + stream.ahead) * self.ends[-1] / self.length)

    @property
    def identity(self) -> str:
        """That of the samples and of y."""
        return f"{self._stream.identity} {self._design.digest}"

    def batches(self, start: int = 0) -> Iterator[Any]:
        """The contrasts of every batch of samples that completes some."""
        return (batch for batch in without_empty(self._batches()) if batch.first >= start)

    def _batches(self) -> Iterator[DenseBatch]:
        block, done = Block(self._least), 0
        batch: Any
        for batch in self._stream.batches():
            some = batch.places < len(self._y)
            found = list(block.slopes(batch.samples[some], self._y[batch.places[some]]))
            contrasts = np.array(found, self.dtype).reshape(-1, *self.dims)
            yield DenseBatch(contrasts, done, batch.dropped)
            done += len(contrasts)
            if not some.all():
                return

    def told(self, found: Estimate) -> Estimate:
        """What was found, as of samples."""
        used = self.ends[found.n_samples - 1] if found.n_samples else 0
        kept = len(self._spreads) ** 2 / sum(1 / v for v in self._spreads) / (len(self._y) * float(self._y.var()))
        note = (
            f"The sums of least squares were not used: {len(self._y)} samples give {self.length} contrasts of "
            f"neighbours, with {kept:.0%} of the information about the effect."
        )
        level = found.noise_level / math.sqrt(sum(1 / v for v in self._spreads) / len(self._spreads))
        components = tuple(dataclasses.replace(c, effect=self._design.names[0]) for c in found.components)
        return dataclasses.replace(
            found, components=components, n_samples=used, noise_level=level, advice=(*found.advice, note)
        )


def contrasts(source: Any, design: Design, most: int | None = None) -> ContrastStream:
    """The contrasts of samples, at most ``most`` of these; refused in words where there are none."""
    if (why := refused(design)) is not None:
        raise SolverError(
            f"solver='race' takes one number or two labels for every sample, not {why}; raise memory_limit, or use "
            "solver='least_squares'."
        )
    engine = open_engine(source)
    if not isinstance(engine, LocalEngine):
        raise SolverError(
            "the race makes contrasts of neighbouring samples in one process; give the samples themselves instead of a "
            f"{type(engine).__name__}, or use solver='least_squares'."
        )
    if not engine.whole or engine.partial or engine.like is not None:
        kind = "on a device" if engine.like is not None else "with missing entries" if engine.partial else "in pieces"
        raise SolverError(f"the race makes no contrasts of samples {kind}; use solver='least_squares'.")
    return ContrastStream(engine.stream, design, most)
