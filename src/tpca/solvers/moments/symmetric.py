r"""Rank-one parts of the moment tensor of one table, in some passes, without building it.

Rows are split once (:class:`~tpca.solvers.moments.symmetric_sums.Part`).  Whitening, search and refinement see the part
to learn from; every component is then judged on the rows held out, which know nothing of it.  Of r p-values, Holm's
(1979) adjusted ones are reported: the chance that any component is claimed of rows without a moment is at most
1 - ``confidence``.  What is proven is fitted once more on all rows, starting from where it was.

Moments, whitening and tests of the three kinds of rows: :mod:`~tpca.solvers.moments.symmetric_models`; the climb:
:mod:`~tpca.solvers.moments.symmetric_search`, and of sources at order 4 a last one by functions of least variance,
:mod:`~tpca.solvers.moments.symmetric_climb`.

Errors: the gradient c at the final weights is kept for K sub-batches of rows.  With the direction scaled so that
⟨ℓ, a⟩ is fixed (ℓ = w; for topics the sum of all entries), a = c/⟨ℓ, c⟩·const and

.. math::
    \mathrm{se}(a_j)^2 = \frac{1}{K(K-1)}\sum_b \Bigl(\frac{c_{bj} - a_j\langle\ell, c_b\rangle}{\langle\ell, c\rangle}
    \Bigr)^2 .

It is the error of the direction, not of its length.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from tpca.engines import Engine, LocalEngine
from tpca.errors import SampleError
from tpca.randomness import generator
from tpca.solvers.moments.symmetric_climb import Climb
from tpca.solvers.moments.symmetric_models import Mixture, Sources, Topics
from tpca.solvers.moments.symmetric_options import BLOCKS, TableOptions, TableRecovery, holm, oriented_parts
from tpca.solvers.moments.symmetric_search import RANDOM_STARTS, Found, random_starts, search
from tpca.solvers.moments.symmetric_sums import Part
from tpca.solvers.moments.symmetric_tables import (
    Covariances,
    PairImage,
    RowImage,
    RowMeans,
    Scatter,
    Slices,
    WordMeans,
)
from tpca.solvers.moments.symmetric_whitening import (
    ProjectedRows,
    RowWhitening,
    first_directions,
    whiten_all,
    whiten_leading,
)
from tpca.solvers.rank_one import leading
from tpca.streams.vectors import KeptVectors, VectorStream
from tpca.tensors import Accumulator
from tpca.tensors.blocks import Array

KEEP = 256e6  # bytes of projected rows that are kept between passes
MORE = 4  # eigenvectors of a slice that start beside those wanted

Reader = Callable[[VectorStream], Engine]
A = TypeVar("A", bound=Accumulator)


class TableFit:
    """One fit of a stored table; ``reader`` makes an engine over a stream of rows."""

    def __init__(self, stream: VectorStream, reader: Reader, asked: TableOptions) -> None:
        self._stream, self._reader, self._asked = stream, reader, asked
        self._d, self._q, self._model = stream.dims[0], asked.directions(stream.dims[0]), asked.moment
        asked.check_memory(self._d)
        if stream.length is not None and stream.length < 2:
            raise SampleError(f"moments need rows that differ, got n_samples = {stream.length}; give more.")
        self._engine = reader(stream)
        self._rng = generator(asked.random_state, "moments of a table")
        self._scatters: dict[Part | None, Scatter] = {}
        self.whitening: RowWhitening | None = None  # the last that was learnt
        self.state_bytes = 0
        share, seed = asked.validation_fraction, asked.random_state
        self._train, self._held = (Part(share, seed, held) if share else None for held in (False, True))

    def recovery(self) -> TableRecovery:
        """Learn, judge, and fit what is proven to all rows."""
        asked, whitening = self._asked, self._learn(self._train)
        self.whitening = whitening
        found = self._climb(whitening, self._train, None)
        p_values, proven = np.full(len(found.strengths), np.nan), len(found.strengths)
        if self._held is not None:
            weights = whitening.of_rows(found.vectors)
            held = self._total(self._engine, self._model.sums(weights, whitening.centre, 1, self._held))
            p_values = holm(self._model.p_values(held, np.sign(found.strengths)))
            chosen = p_values <= 1 - asked.confidence
            if proven := int(np.count_nonzero(chosen)):
                whitening, p_values = self._learn(None), p_values[chosen]
                self.whitening = whitening
                found = self._climb(whitening, None, whitening.of_white(weights[chosen]))
        order = np.argsort(-np.abs(found.strengths), kind="stable")
        found = Found(found.vectors[order], found.strengths[order])
        return self._told(whitening, found, p_values[order], proven)

    def _learn(self, part: Part | None) -> RowWhitening:
        """The whitening, from the rows of a part."""
        if isinstance(self._model, Topics):
            return self._learn_topics(part)
        if self._asked.whole():
            return whiten_all(self._scatter(part), self._asked.shrinkage, self._stream.dtype)
        means = self._total(self._engine, RowMeans(self._d, part))
        centre = np.zeros(self._d) if isinstance(self._model, Mixture) else means.mean
        if not self._asked.whiten:
            return RowWhitening(centre, None, None)

        def image(basis: Array) -> Array:
            sums = self._total(self._engine, RowImage(basis, centre, part))
            return np.asarray(sums.image / max(sums.count, 1))

        def noise(values: Array) -> float:
            if not isinstance(self._model, Mixture):
                return 0.0
            if self._d == self._q:
                raise SampleError(
                    f"a mixture of {self._q} Gaussians needs more than {self._d} columns to tell the variance of the "
                    "noise from; ask for fewer components."
                )
            return float((means.squares / max(means.count, 1) - values.sum()) / (self._d - self._q))

        return whiten_leading(image, means, centre, self._first(), noise, self._asked.shrinkage)

    def _learn_topics(self, part: Part | None) -> RowWhitening:
        words = self._total(self._engine, WordMeans(self._d, part))
        if words.strange:
            raise SampleError(
                f"topics need counts of words, whole numbers from 0 on; {words.strange} entries are none: "
                "give the counts themselves, not frequencies or tf-idf."
            )
        if not words.count:
            raise SampleError("no document has two words or more; give longer ones.")

        def image(basis: Array) -> Array:
            sums = self._total(self._engine, PairImage(basis, part))
            return np.asarray(sums.image / sums.count)

        return whiten_leading(image, None, words.mean, self._first(), lambda _: 0.0, 0.0)

    def _first(self) -> Array:
        """Where to look for leading directions: where they were for the rows to learn from."""
        known = None if self.whitening is None else self.whitening.weights
        return first_directions(self._q, self._d, self._rng, known)

    def _scatter(self, part: Part | None) -> Scatter:
        """Mean and covariance of a part; both parts are seen in one pass."""
        if not self._scatters:
            parts = (None,) if self._train is None else (self._train, self._held)
            seen = self._total(self._engine, Covariances(self._d, parts))
            self._scatters = dict(zip(parts, seen.parts, strict=True))
        if part is None and None not in self._scatters:
            whole, rest = self._scatters.pop(self._train), self._scatters.pop(self._held)
            whole.merge(rest)
            self._scatters[None] = whole
        return self._scatters[part]

    def _climb(self, whitening: RowWhitening, part: Part | None, starts: Array | None) -> Found:
        """Components of the rows of a part: searched for, or from ``starts`` on."""
        engine, own = self._engine, whitening
        if isinstance(self._model, Sources) and whitening.q < self._d:
            engine, own = self._projected(whitening), RowWhitening(np.zeros(whitening.q), None, None)

        climb = Climb(self._model, own, lambda blank: self._total(engine, blank), part)
        if starts is not None:
            return climb.refined(Found(starts, np.ones(len(starts))), self._asked.whiten)
        first, count = self._starts(engine, own, part), self._asked.n_components
        found = search(climb.gradient, first, count, self._model.order, self._rng)
        return climb.refined(found, self._asked.whiten)

    def _projected(self, whitening: RowWhitening) -> Engine:
        """Whitened rows of fewer columns, kept here if they fit; workers keep what fits themselves."""
        rows = ProjectedRows(self._stream, whitening)
        limit = KEEP if self._asked.memory_limit is None else self._asked.memory_limit
        fits = rows.length is not None and 8 * rows.length * whitening.q <= limit
        if fits and isinstance(self._engine, LocalEngine):
            return LocalEngine(KeptVectors(rows))
        return self._reader(rows)

    def _starts(self, engine: Engine, own: RowWhitening, part: Part | None) -> Array:
        """Where vectors start: what a slice of the moment shows, and random ones."""
        count, q = self._asked.n_components, own.q
        random = random_starts(count + RANDOM_STARTS, q, self._rng)
        if not isinstance(self._model, Sources):
            return random
        weights = np.eye(q) if own.weights is None else own.weights
        sums = self._total(engine, Slices(weights, own.centre, None, part))
        matrix = sums.matrix / sums.count - (q + 2) * np.eye(q)
        if self._model.order == 3:
            matrix = self._total(engine, Slices(weights, own.centre, sums.trace / sums.count, part)).matrix
        return np.concatenate([leading(matrix, min(q, count + MORE))[1], random])

    def _told(self, whitening: RowWhitening, found: Found, p_values: Array, proven: int) -> TableRecovery:
        """Weights, directions and errors, from a last pass over all rows."""
        weights, model = whitening.of_rows(found.vectors), self._model
        sums = self._total(self._engine, model.sums(weights, whitening.centre, BLOCKS, None))
        noise = whitening.noise_variance
        whole = model.gradients(sums, weights, noise)
        parts = np.stack([model.gradients(sums, weights, noise, block) for block in range(BLOCKS)])
        centre = whitening.centre if isinstance(model, Sources) else np.zeros(self._d)
        told = oriented_parts(model, weights, whole, parts)
        counts = (proven, self._held is not None, sums.n, self._engine.n_skipped, self.state_bytes)
        return TableRecovery.of(centre, told, p_values, noise, *counts)

    def _total(self, engine: Engine, blank: A) -> A:
        """An accumulator of one pass."""
        engine.rewind()
        found = engine.reduce(blank)
        kept = sum(own.scatter.nbytes for own in self._scatters.values())
        kept += 0 if self.whitening is None else self.whitening.nbytes
        self.state_bytes = max(self.state_bytes, found.nbytes + kept)
        return found
