r"""A missing view from the scores of the others: the best linear prediction, learnt from all rows of a fit.

With y the scores of all components in the views that are there, centred rows x of the one that is not, and sums over
the rows of the fit,

.. math::
    \hat x = \mu + B^\top y, \qquad B = \Bigl(\sum y y^\top\Bigr)^{+} \sum y\,x^\top ,

the sums for all views at once being Y^T X_i, one row per score, and Y^T Y: no more than (k̄·C) rows of d_i numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.errors import SampleError
from tpca.streams.checks import all_finite, as_array, to_floats
from tpca.streams.whitening import Clipper, clipped
from tpca.tensors import Accumulator, ViewsBatch
from tpca.tensors.blocks import Array


class Relations(Accumulator):
    """Sums of products of all scores with each other and with the columns of all views.

    ``weights[i]`` are ``(C, d_i)``; scores come view by view.
    """

    def __init__(
        self, weights: Sequence[Array], means: Sequence[Array], clippers: Sequence[Clipper] | None = None
    ) -> None:
        super().__init__(list(weights), list(means), clippers)
        count = sum(len(w) for w in weights)
        self.with_scores = np.zeros((count, count))
        self.with_columns = [np.zeros((count, w.shape[1])) for w in weights]

    def add(self, batch: ViewsBatch, at: int = 0) -> None:  # noqa: ARG002
        """Take the rows of a batch."""
        assert self.question is not None
        weights, means, clippers = self.question
        pairs = zip(clipped(batch.views, clippers), means, strict=True)
        rows = [view - mean.astype(view.dtype) for view, mean in pairs]
        scores = scores_of(rows, weights)
        self.with_scores += scores.T @ scores
        for own, view in zip(self.with_columns, rows, strict=True):
            own += scores.T @ view
        self.n += len(batch)

    def merge(self, other: Relations) -> None:
        """Take the rows that another has seen."""
        self.with_scores += other.with_scores
        for own, others in zip(self.with_columns, other.with_columns, strict=True):
            own += others
        self.n += other.n

    def signs(self) -> Array:
        """Signs ``(C, k̄)`` that make the scores of views agree with those of the first, as far as their product allows.

        The product of all scores keeps its sign, so that of the signs is 1.
        """
        views = len(self.with_columns)
        count = len(self.with_scores) // views
        first = np.sign([[self.with_scores[c, i * count + c] for i in range(views)] for c in range(count)])
        signs = np.where(np.reshape(first, (count, views)) < 0, -1.0, 1.0)
        odd = signs.prod(axis=1) < 0
        if views % 2:
            signs[odd] *= -1
        else:
            signs[odd, -1] *= -1
        return signs

    def turned(self, signs: Array) -> Relations:
        """The same of scores with other signs."""
        assert self.question is not None
        weights, means, clippers = self.question
        turned = Relations([s[:, None] * w for s, w in zip(signs.T, weights, strict=True)], means, clippers)
        each = signs.T.ravel()  # view by view, as the scores
        turned.with_scores = np.multiply.outer(each, each) * self.with_scores
        turned.with_columns = [each[:, None] * own for own in self.with_columns]
        turned.n = self.n
        return turned

    def fill(self, views: Sequence[Any]) -> list[NDArray[Any]]:
        """The views, with what is missing (``None``) predicted from the others."""
        assert self.question is not None
        weights, means, _ = self.question
        given = [None if view is None else _checked(view, i, len(means[i])) for i, view in enumerate(views)]
        there = [i for i, view in enumerate(given) if view is not None]
        lengths = {len(given[i]) for i in there}  # type: ignore[arg-type]
        if len(lengths) > 1:
            raise SampleError(f"views must have the same number of rows, got {', '.join(map(str, sorted(lengths)))}.")
        scores = scores_of([given[i] - means[i] for i in there], [weights[i] for i in there])
        count = len(weights[0])
        used = np.concatenate([np.arange(i * count, (i + 1) * count) for i in there])
        inverse = np.linalg.pinv(self.with_scores[np.ix_(used, used)], hermitian=True)
        predicted = scores @ inverse
        return [
            predicted @ self.with_columns[i][used] + means[i] if view is None else view for i, view in enumerate(given)
        ]


def scores_of(rows: Sequence[NDArray[Any]], weights: Sequence[Array]) -> Array:
    """Scores of all components, view by view, of centred rows."""
    return np.concatenate([view @ w.T for view, w in zip(rows, weights, strict=True)], axis=1)


def check_given(views: Sequence[Any], count: int) -> None:
    """Refuse what does not have one entry for every view, or nothing that is there."""
    if len(views) != count:
        raise SampleError(f"there must be {count} views, None for each that is missing, got {len(views)}.")
    if all(view is None for view in views):
        raise SampleError("at least one view must be given to predict the others from, got None for all of them.")


def _checked(view: Any, number: int, width: int) -> NDArray[Any]:
    rows = to_floats(as_array(view))
    if rows.ndim != 2 or rows.shape[1] != width:
        raise SampleError(f"view {number} must have shape (n, {width}) as it was fitted, got {rows.shape}.")
    if not all_finite(rows):
        raise SampleError(f"view {number} contains NaN or Inf; clean it, or leave its rows out.")
    return rows
