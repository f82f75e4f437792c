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

Blocks and the weights :math:`(y_i - \bar y_b)/v_b` of their samples are known before any sample is read, and nothing is
held but the sum of the open block.  A block of which a sample was left out (``nan_policy="omit"``) gives no contrast.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from tpca.data import Stream
from tpca.data.base import without_empty
from tpca.engines import open_engine
from tpca.engines.local import LocalEngine, is_engine
from tpca.errors import SolverError
from tpca.inference.design import Design
from tpca.solvers.estimate import Estimate
from tpca.solvers.race.rounds import MIN_SAMPLES
from tpca.tensors import DenseBatch

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


def unreadable(data: Any) -> str:
    """Why no contrasts are made of some data, in words; empty if they are."""
    if is_engine(data) and not isinstance(data, LocalEngine):
        return f"the race makes contrasts of neighbouring samples in one process, not on a {type(data).__name__}"
    kind = ""
    if data.like is not None:
        kind = "on a device"
    elif data.partial:
        kind = "with missing entries"
    elif not data.whole:
        kind = "in pieces"
    return f"the race makes no contrasts of samples {kind}" if kind else ""


class ContrastStream(Stream):
    """The contrasts of a stream of samples, batch by batch; what is not said here is as there."""

    kind = "contrasts"

    def __init__(self, stream: Stream, design: Design, most: int | None) -> None:
        assert design.columns is not None
        self._stream, self._design = stream, design
        self._y = y = design.columns[:most, 1]
        self._weights, self.ends, self._spreads = np.zeros(len(y)), [], []
        least, first, mean, spread = SPREAD * float(y.var()), 0, 0.0, 0.0
        for i, value in enumerate(y.tolist(), start=1):  # Welford 1962
            step = value - mean
            mean += step / (i - first)
            spread += step * (value - mean)
            if spread >= least:
                self._weights[first:i] = (y[first:i] - mean) / spread
                self.ends.append(i)
                self._spreads.append(spread)
                first, mean, spread = i, 0.0, 0.0
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
        sizes, done = np.diff([0, *self.ends]), 0
        current, count, total = -1, 0, np.zeros(())  # the open block, and its sum so far
        batch: Any
        for batch in self._stream.batches():
            places, found = batch.places[batch.places < self.ends[-1]], []
            blocks = np.searchsorted(self.ends, places, side="right")
            for block in np.unique(blocks):
                some = slice(*np.searchsorted(blocks, [block, block + 1]))
                if block != current:
                    current, count, total = block, 0, np.zeros(self.dims)
                total = total + np.tensordot(self._weights[places[some]], batch.samples[some], 1)
                count += some.stop - some.start
                if count == sizes[block]:
                    found.append(total)
            yield DenseBatch(np.array(found, self.dtype).reshape(-1, *self.dims), done, batch.dropped)
            done += len(found)
            if len(places) < len(batch):
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
    if why := unreadable(engine):
        raise SolverError(f"{why}; give whole samples of NumPy to this process, or use solver='least_squares'.")
    assert isinstance(engine, LocalEngine)
    return ContrastStream(engine.stream, design, most)
