"""MomentPCA: rank-one parts of the moment tensor of a table that is never built."""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning

from tpca.estimators.asking import seed_from
from tpca.estimators.names import check_names
from tpca.estimators.opening import Reader, rows_opened
from tpca.estimators.showing import ShowsTable
from tpca.solvers.moments.symmetric import KEEP, TableFit
from tpca.solvers.moments.symmetric_options import TableOptions
from tpca.solvers.moments.symmetric_passing import PassingTable
from tpca.solvers.moments.symmetric_tables import RowScores
from tpca.streams.table_rows import RowsStream, open_rows
from tpca.tensors.blocks import Array

NOT_OF_THE_FIT = ("random_state", "nan_policy")


class MomentPCA(ShowsTable, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Leading rank-one parts of the third or fourth moment tensor of a table, which is never built.

    Rows ``x`` are whitened to ``z``, and directions ``u`` found along which ``E[(u·z)³]``, or the fourth cumulant
    ``E[(u·z)⁴] - 3``, is largest.  Gradients ``E[(u·z)² z]`` and ``E[(u·z)³ z] - 3u`` cost O(n·d) a pass, where the
    tensors have d³ or d⁴ entries.  That is independent component analysis; of a mixture of Gaussians or of word counts
    the parts are means or topics.  Sparse rows stay sparse.

    Parameters
    ----------
    order : {3, 4}
        Order of the moment: 3 sees what is skewed, 4 what has heavy or light tails.
    n_components : int
        Components to look for.
    whiten : bool
        Whether rows are whitened; if not, they are only centred, and components are those of the third or fourth
        cumulant of the columns as they are.
    random_state : int, Generator, RandomState or None
    model : {"sources", "mixture", "topics"}
        What rows are: mixed independent sources; members of ``n_components`` Gaussians of one variance in all
        directions; counts of the words of documents with one topic each.  The last two need order 3.
    whiten_rank : int, optional
        Leading directions of the covariance that rows are whitened in.  By default all d, which takes d² numbers of
        state and one pass; a number q takes about (q + 10)·d numbers and some passes, and leaves the rest out, as PCA.
        A mixture and topics always take ``n_components``.
    shrinkage : float in [0, 1)
        Shrinkage of the covariance towards a multiple of the identity, for fewer rows than columns, constant columns or
        a covariance of less than full rank, which are refused without it.
    validation_fraction : float in [0, 1)
        Share of the rows of stored data that only judge; 0 leaves out the test, and ``verdict_`` is ``"not tested"``.
    confidence : float
        At most ``1 - confidence`` of all fits to Gaussian rows (documents of one topic) claim a component.
    memory_limit : int or str, optional
        Bound on the solver's state, in bytes or as ``"64MB"``; what takes more is refused.  Whitened rows of fewer
        columns are kept between passes if they fit (by default into 256 MB).
    nan_policy : {"raise", "omit"}
        What to do about rows with NaN or Inf.

    Attributes
    ----------
    components_ : array ``(n_components_, d)``
        Weights: ``transform(X)`` is ``(X - mean_) @ components_.T``.  Scores of sources have variance 1; those of a
        mixture, and of shares of words, are about 1 for rows of the component and 0 for others.
    directions_ : array ``(n_components_, d)``
        What the score stands for, in units of the rows: columns of the mixing matrix, means of the Gaussians,
        probabilities of the words of a topic.
    standard_errors_ : array ``(n_components_, d)``
        Of ``directions_``, whose length (for topics, sum) is taken as given.
    strengths_ : array ``(n_components_,)``
        Skewness or excess kurtosis of the scores; 1/√share of the rows for a mixture or topics.  Strongest first.
    shares_ : array ``(n_components_,)``
        Share of the rows in every component of a mixture or topic; NaN for sources.
    p_values_ : array ``(n_components_,)``
        Chance of any such claim without a moment (adjusted for their number, Holm); NaN where there was no test.
    mean_ : array ``(d,)``
        What is subtracted from rows; zero for a mixture and topics.
    noise_variance_ : float
        σ² of the Gaussians of a mixture; NaN for others.
    n_components_, n_samples_seen_, n_skipped_, n_features_in_, state_bytes_ : int
        Components that were proven; rows used; rows left out; columns; bytes of the largest sums held.
    verdict_, stop_reason_ : Verdict, StopReason
    recovery_ : TableRecovery
        What the fit gave, with a guess that proves nothing where there is no signal.

    If nothing is proven, a ``ConvergenceWarning`` says so and ``n_components_`` is 0.

    Examples
    --------
    >>> import numpy as np, tpca
    >>> rng = np.random.default_rng(0)
    >>> sources = rng.exponential(size=(5000, 3))
    >>> mixing = rng.standard_normal((3, 3))
    >>> ica = tpca.MomentPCA(order=3, n_components=3, random_state=0).fit(sources @ mixing.T)
    >>> np.abs(ica.components_ @ mixing).round(1).max(axis=0)
    array([1., 1., 1.])
    """

    n_features_in_: int

    def __init__(
        self,
        order: int = 3,
        n_components: int = 1,
        whiten: bool = True,
        random_state: Any = None,
        *,
        model: str = "sources",
        whiten_rank: int | None = None,
        shrinkage: float = 0.0,
        validation_fraction: float = 0.2,
        confidence: float = 0.95,
        memory_limit: str | float | None = None,
        nan_policy: str = "raise",
    ) -> None:
        self.order = order
        self.n_components = n_components
        self.whiten = whiten
        self.random_state = random_state
        self.model = model
        self.whiten_rank = whiten_rank
        self.shrinkage = shrinkage
        self.validation_fraction = validation_fraction
        self.confidence = confidence
        self.memory_limit = memory_limit
        self.nan_policy = nan_policy

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002
        """Fit a table ``(n, d)``: an array, a path, a ``scipy.sparse`` matrix, a DataFrame, or an iterable of batches.

        A Dask array is worked on where it is, by the workers of the active client, if there is one; give
        ``DaskEngine(client, tpca.streams.open_rows(path))`` to have workers read files.
        """
        asked = self._asked()
        stream, reader = _opened(X, self.nan_policy)
        check_names(self, X, stream.dims[0], reset=True)
        self._recovery = self._passing = None
        if stream.rereadable:
            self._recovery = TableFit(stream, reader, asked).recovery()
        else:
            passing = PassingTable(stream.dims[0], stream.dtype, asked)
            for batch in stream.batches():
                passing.pour(batch)
            self._recovery = passing.recovery()
        self._warn()
        return self

    def partial_fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002
        """Take some more rows; the first ten for every column are kept to begin with, no row after them.

        The same as ``fit`` on an iterable of the same rows.
        """
        asked, first = self._asked(), self._passing is None
        stream = open_rows(iter([X]), self.nan_policy)
        check_names(self, X, stream.dims[0], reset=first)
        if self._passing is None:
            self._passing = PassingTable(stream.dims[0], stream.dtype, asked)
        for batch in stream.batches():
            self._passing.pour(batch)
        self._recovery = None
        return self

    def transform(self, X: Any) -> Array:
        """Scores ``(n, n_components_)``, maybe without a column; ``X`` is whatever :meth:`fit` takes."""
        weights, mean = self.components_, self.mean_
        stream, reader = _opened(X, "raise")
        check_names(self, X, stream.dims[0], reset=False)
        return reader(stream).reduce(RowScores(weights, mean, self.model == "topics")).scores

    def _asked(self) -> TableOptions:
        """The options, checked."""
        own = {name: value for name, value in self.get_params(deep=False).items() if name not in NOT_OF_THE_FIT}
        return TableOptions(**own, random_state=seed_from(self.random_state))

    def _warn(self) -> None:
        found = self.recovery_
        if found.tested and not found.proven:
            least = float(np.min(found.p_values, initial=1.0))
            warnings.warn(
                f"no component could be proven (p = {least:.3g}): give more rows, or the other order.",
                ConvergenceWarning,
                stacklevel=3,
            )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _opened(X: Any, nan_policy: str) -> tuple[RowsStream, Reader]:
    return rows_opened(X, lambda source: open_rows(source, nan_policy), KEEP)
