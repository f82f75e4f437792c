"""MomentPCA: independent sources of a table, from moments that are never built."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin

from tpca.data.rows import open_rows
from tpca.engines.local import rows_opened
from tpca.errors import SampleError
from tpca.estimators._common import RowsEstimator, check_names
from tpca.labels import Axis, Labels, as_coords
from tpca.result import Result
from tpca.solvers.sources import SourcesFit, SourcesOptions, fit_sources
from tpca.tensors.blocks import Array
from tpca.tensors.rows import BatchLists, scores


class MomentPCA(RowsEstimator[SourcesFit], ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Independent component analysis by the third or fourth moment tensor of a table, which is never built.

    Rows ``x`` are whitened to ``z``, and directions ``u`` found along which ``E[(u·z)³]``, or the fourth cumulant
    ``E[(u·z)⁴] - 3``, is largest.  Gradients ``E[(u·z)² z]`` and ``E[(u·z)³ z] - 3u`` cost O(n·d) a pass, where the
    tensors have d³ or d⁴ entries.

    Parameters
    ----------
    n_components : int
        Sources to look for.
    order : {3, 4}
        Order of the moment: 3 sees what is skewed, 4 what has heavy or light tails.
    whiten_rank : int, optional
        Leading directions of the covariance that rows are whitened in.  By default all d, which takes d² numbers of
        state and one pass; a number q takes about (q + 10)·d numbers and some passes, and leaves the rest out, as PCA.
    shrinkage : float in [0, 1)
        Shrinkage of the covariance towards a multiple of the identity, for fewer rows than columns, constant columns or
        a covariance of less than full rank, which are refused without it.
    validation_fraction : float in [0, 1)
        Share of the rows that only judge; 0 leaves out the test, and ``verdict_`` is ``"not tested"``.
    confidence : float
        At most ``1 - confidence`` of all fits to independent Gaussian rows claim a source.
    memory_limit : int or str, optional
        Bound on what is held, in bytes or as ``"64MB"``: covariances, which are refused if they take more, and rows
        kept between passes, which are read again if they do not fit (default 256 MB, and nothing is refused).
    nan_policy : {"raise", "omit"}
        What to do about rows with NaN or Inf.
    random_state : int, Generator, RandomState or None

    Attributes
    ----------
    components_ : array ``(n_components, d)``
        Weights: ``transform(X)`` is ``(X - mean_) @ components_.T``.  Scores have variance 1.  Strongest first.
    directions_ : array ``(n_components, d)``
        Columns of the mixing matrix, what a score stands for, in units of the rows.
    standard_errors_ : array ``(n_components, d)``
        Of ``directions_``, whose length is taken as given.
    strengths_ : array ``(n_components,)``
        Skewness or excess kurtosis of the scores.
    p_values_, significant_ : arrays ``(n_components,)``
        Chance of any such claim without a moment (adjusted for their number, Holm); NaN where there was no test.
    mean_ : array ``(d,)``
        What is subtracted from rows.
    n_samples_seen_, n_skipped_, n_features_in_ : int
        Rows used; rows left out; columns.
    verdict_, found_ : Verdict, bool
    result_ : Result
        All of this and more: ``save``, ``summary``, ``plot``, ``report``, ``to_xarray``, ``methods``.

    If nothing is proven, a ``ConvergenceWarning`` says so.

    Examples
    --------
    >>> import numpy as np, tpca
    >>> rng = np.random.default_rng(0)
    >>> sources = rng.exponential(size=(5000, 3))
    >>> mixing = rng.standard_normal((3, 3))
    >>> ica = tpca.MomentPCA(3, order=3, random_state=0).fit(sources @ mixing.T)
    >>> np.abs(ica.components_ @ mixing).round(1).max(axis=0)
    array([1., 1., 1.])
    """

    FITTED = ("components", "directions", "standard_errors", "strengths", "mean")
    components_: Array
    directions_: Array
    standard_errors_: Array
    strengths_: Array
    mean_: Array
    n_features_in_: int

    def __init__(
        self,
        n_components: int = 1,
        *,
        order: int = 3,
        whiten_rank: int | None = None,
        shrinkage: float = 0.0,
        validation_fraction: float = 0.2,
        confidence: float = 0.95,
        memory_limit: str | float | None = None,
        nan_policy: str = "raise",
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.order = order
        self.whiten_rank = whiten_rank
        self.shrinkage = shrinkage
        self.validation_fraction = validation_fraction
        self.confidence = confidence
        self.memory_limit = memory_limit
        self.nan_policy = nan_policy
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002
        """Fit a table ``(n, d)``: an array, a path, a DataFrame, or an iterable of batches, which are kept in memory.

        A Dask array is worked on where it is, by the workers of the active client, if there is one; give
        ``DaskEngine(client, tpca.data.open_rows(path))`` to have workers read files.
        """
        stream, reader, asked = self._opened(X, open_rows, SourcesOptions)
        fitted = fit_sources(stream, reader, asked)
        check_names(self, X, stream.dims[0], reset=True)
        self._keep(fitted)
        return self

    def transform(self, X: Any) -> Array:
        """Scores ``(n, n_components)``; ``X`` is whatever :meth:`fit` takes."""
        weights, means = [self.components_], [self.mean_]
        stream, reader = rows_opened(X, open_rows)
        check_names(self, X, stream.dims[0], reset=False)
        return reader(stream).reduce(BatchLists(scores, weights, means)).joined()[0]

    def inverse_transform(self, X: Any) -> Array:
        """Rows ``(n, d)`` from scores ``(n, n_components)``: ``mean_ + X @ directions_``."""
        given = np.asarray(X, dtype=np.float64)
        if given.ndim != 2 or given.shape[1] != len(self.directions_):
            raise SampleError(f"scores must have shape (n, {len(self.directions_)}), got {given.shape}.")
        return np.asarray(given @ self.directions_ + self.mean_)

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    @property
    def result_(self) -> Result:
        """All that is known, to save, show and draw."""
        names = getattr(self, "feature_names_in_", None)
        columns = Axis("column", None if names is None else as_coords(names))
        return Result.of_table(self.fit_, self._settings(), Labels((columns,)))
