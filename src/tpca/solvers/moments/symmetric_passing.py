r"""Rows of a table that pass by once: ``partial_fit``.

The first rows, ten for every column and at least a thousand, are kept, and fitted like a stored table: whitening,
search and climb.  From then on no row is kept.  Rounds of rows follow, each half as many as all before, in the
whitened columns z of the first rows:

* the gradients c of a round are those at weights fixed before it, so that its rows judge them: with the normal score
  s_b of the test (:mod:`~tpca.solvers.moments.symmetric_models`) over n_b rows, :math:`\sum_b\sqrt{n_b}\,s_b /
  \sqrt{\sum_b n_b}` is standard normal for rows without a moment, at any time fixed in advance;
* gradients are averaged over all rounds (a gradient depends on its weights in second order only), whitened by the
  covariance of z over all rows, and give the weights of the next round in one step.

The state is the covariance and r gradients for each of K sub-batches, whatever the number of rows.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from tpca.engines import LocalEngine
from tpca.errors import SolverError
from tpca.solvers.moments.symmetric import TableFit
from tpca.solvers.moments.symmetric_models import MIN_HELD, Sources
from tpca.solvers.moments.symmetric_options import BLOCKS, TableOptions, TableRecovery, holm, oriented_parts
from tpca.solvers.moments.symmetric_search import Found, orthonormal, together
from tpca.solvers.moments.symmetric_sums import PowerSums
from tpca.solvers.moments.symmetric_tables import Scatter
from tpca.solvers.moments.symmetric_whitening import HandedRows, RowWhitening, projected
from tpca.streams.vectors import KeptVectors
from tpca.tensors.blocks import Array
from tpca.tensors.rows import RowsBatch

FIRST_ROWS, ROWS_PER_COLUMN = 1000, 10
GROWTH = 0.5  # rows of a round, as a share of all before
ENOUGH = BLOCKS * 10  # rows of a round that is not over, from which it is taken into account
MIN_CHANCE = 1e-300  # p-values are no smaller: their scores stay finite


class PassingTable:
    """A fit whose rows are handed in; what is known can be asked for at any time."""

    def __init__(self, d: int, dtype: np.dtype[Any], asked: TableOptions) -> None:
        if asked.model != "sources" or not asked.whiten:
            raise SolverError(
                "rows that pass by once need model='sources' and whiten=True; give an array or a file to fit, which "
                "can be read again."
            )
        asked.directions(d)
        asked.check_memory(d)
        self.d, self.dtype, self.n, self.n_skipped = d, dtype, 0, 0
        self._asked = asked
        self._first = max(FIRST_ROWS, ROWS_PER_COLUMN * d)
        self._waiting: list[RowsBatch] = []
        self._rounds: Rounds | None = None
        self._before: TableRecovery | None = None  # what the rows that waited told

    def pour(self, batch: RowsBatch) -> None:
        """Take some more rows, numbered from those before on."""
        self.n_skipped += batch.dropped
        taken = 0
        while taken < len(batch):
            room = self._first - self.n if self._rounds is None else self._rounds.room
            some = batch[taken : taken + room]
            some = RowsBatch(some.rows, np.arange(self.n, self.n + len(some)))
            taken, self.n = taken + len(some), self.n + len(some)
            if self._rounds is not None:
                self._rounds.take(some)
                continue
            self._waiting.append(some)
            if self.n >= self._first:
                self._rounds, self._waiting = self._begin(), []

    def recovery(self) -> TableRecovery:
        """What is known now; more may follow."""
        if self._rounds is None:
            return self._stored(self._asked)[1]
        if self._before is not None and not self._rounds.judged:
            return dataclasses.replace(self._before, n_samples=self.n, n_skipped=self.n_skipped)
        return self._rounds.recovery(self.n_skipped)

    def _stored(self, asked: TableOptions) -> tuple[TableFit, TableRecovery]:
        about = HandedRows(self.d, self.dtype, self.n)
        fit = TableFit(KeptVectors(about, kept=self._waiting), LocalEngine, asked)
        return fit, fit.recovery()

    def _begin(self) -> Rounds:
        """Fit the rows that waited, all of them, and go on from there; what a fifth of them judges holds till then."""
        self._before = self._stored(self._asked)[1]
        options = {**vars(self._asked), "validation_fraction": 0.0}
        fit, found = self._stored(TableOptions(**options))
        white = fit.whitening
        assert white is not None
        assert white.back is not None
        scatter = Scatter(white.q)
        for batch in self._waiting:
            scatter.take(projected(batch, white))
        weights = np.asarray(found.weights @ white.back)
        return Rounds(self._asked, white, weights, np.sign(found.strengths), scatter, self.n)


class Rounds:
    """Rounds of whitened rows z; ``weights`` ``(r, q)`` are those among z that the next rows are scored with."""

    def __init__(
        self, asked: TableOptions, white: RowWhitening, weights: Array, signs: Array, scatter: Scatter, n: int
    ) -> None:
        self._asked, self._model, self._white = asked, Sources(asked.order), white
        self._weights, self._scatter, self.n = weights, scatter, n
        self._gradients, self._rows = np.zeros((BLOCKS, *weights.shape)), 0
        self._signs, self._scores, self._tested = signs, np.zeros(len(weights)), 0
        self._start()

    def _start(self) -> None:
        self._round = max(1, int(GROWTH * self.n))
        self._sums = PowerSums(self._weights, np.zeros(self._white.q), self._model.order, BLOCKS)

    @property
    def room(self) -> int:
        """Rows that the round still takes."""
        return self._round - int(self._sums.count)

    @property
    def judged(self) -> bool:
        """Whether enough rows came after the first."""
        return self._rows > 0 or self._sums.count >= ENOUGH

    def take(self, batch: RowsBatch) -> None:
        """Take no more rows than there is room for."""
        rows = projected(batch, self._white)
        self._scatter.take(rows)
        self._sums.add(rows)
        self.n += len(rows)
        if not self.room:
            self._close()

    def _close(self) -> None:
        """The end of a round: judge, average, and step."""
        sums, n = self._sums, int(self._sums.count)
        own = np.stack([self._model.gradients(sums, self._weights, 0.0, block) for block in range(BLOCKS)])
        strengths = np.sum(self._weights * own.mean(axis=0), axis=1)
        if n >= MIN_HELD:
            chance = np.clip(self._model.p_values(sums, self._signs), MIN_CHANCE, 1 - 1e-16)
            self._scores = self._scores + math.sqrt(n) * -ndtri(chance)
            self._tested += n
        self._gradients += (own - self._gradients) * (n / (self._rows + n))
        self._rows += n
        self._signs = np.sign(strengths)
        self._weights = self._stepped()
        self._start()

    def _stepped(self) -> Array:
        """Weights for the next round, from the gradients of all and the covariance of all rows."""
        values, basis = np.linalg.eigh(self._scatter.second_moment)
        root = basis / np.sqrt(values)
        vectors = orthonormal(Found(self._weights @ (basis * np.sqrt(values)), np.ones(len(self._weights)))).vectors
        after = together(self._gradients.mean(axis=0) @ root, vectors).vectors
        return np.asarray(after @ root.T)

    def recovery(self, n_skipped: int) -> TableRecovery:
        """What the rows so far tell, those of the open round among them."""
        ending = copy.deepcopy(self)
        if ending._sums.count >= ENOUGH:
            ending._close()
        return ending._told(n_skipped)

    def _told(self, n_skipped: int) -> TableRecovery:
        white, back = self._white, self._white.back
        assert white.weights is not None
        assert back is not None
        whole, parts = self._gradients.mean(axis=0) @ back.T, self._gradients @ back.T
        weights = self._weights @ white.weights
        p_values = holm(ndtr(-self._scores / math.sqrt(self._tested))) if self._tested else np.ones(len(weights))
        proven = p_values <= 1 - self._asked.confidence
        chosen = proven if proven.any() else np.ones(len(weights), dtype=bool)
        told = oriented_parts(self._model, weights[chosen], whole[chosen], parts[:, chosen])
        centre = white.centre + back @ self._scatter.mean
        counts = (int(proven.sum()), True, self.n, n_skipped, self._bytes())
        return TableRecovery.of(centre, told, p_values[chosen], 0.0, *counts)

    def _bytes(self) -> int:
        held = (self._scatter.scatter, self._gradients, self._weights, self._sums.products, self._sums.powers)
        return self._white.nbytes + sum(array.nbytes for array in held)
