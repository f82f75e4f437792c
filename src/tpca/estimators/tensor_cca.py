"""TensorCCA: directions shared by several views, from moments that are never built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin

from tpca.data.alignment import aligned_views, aligned_with
from tpca.data.base import all_finite, as_array, to_floats
from tpca.data.rows import open_views
from tpca.errors import SampleError, SolverError
from tpca.estimators._common import RowsEstimator, view_labels
from tpca.labels import Coords, Labels
from tpca.result import Result, Score
from tpca.solvers.options import Callback, check_callbacks
from tpca.solvers.views import ViewsFit, ViewsOptions, fit_views
from tpca.tensors.blocks import Array


class TensorCCA(RowsEstimator[ViewsFit], TransformerMixin, BaseEstimator, auto_wrap_output_keys=None):  # type: ignore[misc, call-arg]
    """Tensor canonical correlation analysis of two or more views (Luo et al. 2015), without the tensor.

    Finds weights ``w_i`` per view for which the scores ``y_i = (x_i - mean_i) @ w_i`` are as related as can be, all
    views at once: ``E[y_1 y_2 ... y_k]`` is largest, the views being whitened first.  The moment tensor of
    ``d_1 * ... * d_k`` entries never exists; memory is d² per view and fold, of n² if there are fewer rows.

    With an odd number of views only a factor that is skewed shows (odd moments of a symmetric one are zero).

    The null hypothesis is that views are independent of each other.  Views that have only their scale in common are
    uncorrelated, but not independent, and are claimed more often than ``1 - confidence`` (11 to 14 % at 0.95).

    Parameters
    ----------
    n_components : int
        Components to look for, each in what those before leave of the moment.
    shrinkage : float in [0, 1] or "auto"
        Shrinkage of every view's covariance towards a multiple of the identity: 0 is plain CCA, 1 no whitening.
        ``"auto"``: oracle approximating shrinkage; with fewer than ten rows a column, towards the variances of the
        columns, whose units then do not matter.  More than two views are then shrunk more, the more there are, and
        columns that vary less than the median one count less: standardise columns whose units differ.
    validation_fraction : float
        Share of the rows that are held out at a time, to judge by: with 0.2 there are five folds, and every row is
        judged by a fit, whitening included, that has not seen it.
    confidence : float
        At most ``1 - confidence`` of all fits of independent views claim a component.
    n_resamples : int or "auto"
        Rearrangements of the rows of every fold; by default 199, or as many as ``confidence`` needs.
    dependence : {"auto", None}
        ``"auto"``: if neighbouring rows are correlated in two views or more, folds are runs of neighbours, and series
        are shifted instead of permuted.  ``None``: their order is meaningless.
    memory_limit : int or str, optional
        Bound on what is held, in bytes or as ``"64MB"``: covariances, which are refused if they take more, and rows
        kept between passes, which are read again if they do not fit (default 256 MB, and nothing is refused).  Batches
        on their way and some resampled scores, up to 20 MB, come on top.
    nan_policy : {"raise", "omit"}
        What to do about rows with NaN or Inf.
    random_state : int, Generator, RandomState or None
        Of random starts.  The components are the same whatever it is, and whatever the order of the rows.
    callbacks : sequence of callables, optional
        Each is called with a dictionary after every pass over the rows.

    Attributes
    ----------
    weights_ : list of arrays ``(n_components, d_i)``, one per view
        Components as rows.  Shapes do not depend on what is proven; a component that is not there is zeros.
    loadings_ : list of arrays ``(n_components, d_i)``
        Correlation of every column with the score of its view: what to look at.  Weights of columns that are alike
        are not determined one by one.  Signs are such that scores of views agree, as far as can be.
    loading_p_values_ : list of arrays ``(n_components, d_i)``
        Of every column: chance that any column of any view is as related to the scores of the other views (family-wise,
        from the rearrangements of the test).  NaN for series of more than 20 000 rows.
    means_ : list of arrays ``(d_i,)``
    correlations_, correlation_errors_ : arrays ``(n_components,)``
        Mean product of the standardised scores on held-out rows, and standard errors.
    p_values_, significant_ : arrays ``(n_components,)``
        Chance of as much if views are independent; of a further component at least that of those before.
    moments_ : array ``(n_components,)``
        The moment that was maximised, on the rows it was fitted to: too good by what was fitted to noise.
    n_samples_seen_, n_skipped_, n_features_in_ : int
    shape_in_ : tuple of int
        Columns of every view.
    verdict_, found_ : Verdict, bool
        ``"signal"`` or ``"no signal"``, and whether it is the first.
    result_ : Result
        All of this and more: ``save``, ``summary``, ``plot``, ``report``, ``to_xarray``, ``methods``.

    If nothing is proven, a ``ConvergenceWarning`` says so.

    Examples
    --------
    >>> import numpy as np, tpca
    >>> rng = np.random.default_rng(0)
    >>> shared = rng.standard_normal(2000)
    >>> views = [np.outer(shared, rng.standard_normal(8)) + rng.standard_normal((2000, 8)) for _ in range(4)]
    >>> cca = tpca.TensorCCA(random_state=0).fit(views)
    >>> [abs(round(float(np.corrcoef(y[:, 0], shared)[0, 1]), 1)) for y in cca.transform(views)]
    [0.9, 0.9, 0.9, 0.9]
    """

    FITTED = ("weights", "loadings", "loading_p_values", "means", "correlations", "correlation_errors", "moments")
    weights_: list[Array]
    loadings_: list[Array]
    loading_p_values_: list[Array]
    means_: list[Array]
    correlations_: Array
    correlation_errors_: Array
    moments_: Array
    shape_in_: tuple[int, ...]
    _labels: Labels | None = None  # names of views and columns, where the data have them
    _view_names: tuple[str, ...] = ()  # of a dictionary
    _samples: Coords | None = None  # labels of the rows
    _order_advice: Sequence[str] = ()  # of views and groups that were put in another order
    _output: str | None = None  # container of scores

    def __init__(
        self,
        n_components: int = 1,
        shrinkage: float | str = "auto",
        *,
        validation_fraction: float = 0.2,
        confidence: float = 0.95,
        n_resamples: int | str = "auto",
        dependence: str | None = "auto",
        memory_limit: str | float | None = None,
        nan_policy: str = "raise",
        random_state: Any = None,
        callbacks: Sequence[Callback] | None = None,
    ) -> None:
        self.n_components = n_components
        self.shrinkage = shrinkage
        self.validation_fraction = validation_fraction
        self.confidence = confidence
        self.n_resamples = n_resamples
        self.dependence = dependence
        self.memory_limit = memory_limit
        self.nan_policy = nan_policy
        self.random_state = random_state
        self.callbacks = callbacks

    def fit(self, X: Any, y: Any = None, *, groups: Any = None) -> Self:  # noqa: ARG002
        """Fit views ``(n, d_i)``: a list or a dictionary of arrays or paths, a DataFrame with levels, or batches.

        ``groups`` has a label for every row: rows of different groups are independent, and whole groups are held out
        and permuted.  Views and ``groups`` with an index (pandas) or a coordinate (xarray) along the rows are put in
        the order of the first view that has one; other labels are refused.

        Dask arrays are worked on where they are, by the workers of the active Dask client, if there is one; give
        ``DaskEngine(client, open_views(paths))`` to have workers read files.  Rows of an iterable of batches are kept
        in memory.
        """
        callbacks = check_callbacks("callbacks", self.callbacks or ())
        stream, reader, asked = self._opened(X, open_views, ViewsOptions)
        in_order, advice = aligned_with(stream.samples, groups=groups)
        fitted = fit_views(stream, reader, asked, in_order["groups"], callbacks)
        self.shape_in_, self.n_features_in_ = stream.dims, sum(stream.dims)
        self._view_names = tuple(map(str, X)) if isinstance(X, Mapping) else ()
        self._labels = view_labels(X)
        self._samples = None
        if stream.samples is not None and not stream.samples.counted:
            self._samples = stream.samples.values
        self._order_advice = [*stream.advice, *advice]
        self._keep(fitted)
        return self

    @property
    def result_(self) -> Result:
        """All that is known, to save, show and draw."""
        fit = self.fit_
        names = self._view_names or [f"view {i}" for i in range(len(fit.means))]
        result = Result.of_views(fit, names, self._settings(), self._labels)
        result.sample_labels = self._samples
        result.advice = [*result.advice, *self._order_advice]
        return result

    # What other rows show ---------------------------------------------------------------------------------------------

    def transform(self, X: Any) -> list[Any]:
        """Scores of every view, a list of arrays ``(n, n_components)``, or of DataFrames after :meth:`set_output`.

        ``X`` is whatever :meth:`fit` takes, and read by whom it would be there: also by the workers of a Dask client.
        There is a score for every row, NaN where ``nan_policy="omit"`` leaves the row out.
        """
        scores: list[Any] = self.result_.transform(self._in_order(X))
        if self._output is None:
            return scores
        named = list(zip(scores, np.split(self.get_feature_names_out(), len(scores)), strict=True))
        if self._output == "polars":
            import polars as pl  # type: ignore[import-not-found]

            return [pl.DataFrame(own, schema=list(names)) for own, names in named]
        import pandas as pd

        views = list(X.values()) if isinstance(X, Mapping) else X
        first = views[0] if isinstance(views, list | tuple) else views
        index = first.index if hasattr(first, "iloc") else None
        return [pd.DataFrame(own, columns=names, index=index) for own, names in named]

    def set_output(self, *, transform: str | None = None) -> Self:
        """Have ``transform`` give arrays (``"default"``), or DataFrames (``"pandas"``, ``"polars"``)."""
        if transform not in (None, "default", "pandas", "polars"):
            raise SolverError(f"transform must be 'default', 'pandas' or 'polars', got {transform!r}.")
        if transform is not None:
            self._output = None if transform == "default" else transform
        return self

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:  # noqa: ARG002
        """Names of all scores, view by view: ``left_tensorcca0``."""
        views = self.result_.labels.modes
        each = [f"{view}_tensorcca{c}" for view in views for c in range(len(self.moments_))]
        return np.array(each, dtype=object)

    def score(self, X: Any, y: Any = None) -> Score:  # noqa: ARG002
        """Correlation of higher order on other views, with its standard error; the sum over components."""
        return self.result_.score(self._in_order(X))

    def predict(self, X: Any) -> list[NDArray[Any]]:
        """The views, arrays ``(n, d_i)``, with every missing one (``None``) predicted from those that are there.

        The best linear prediction from the scores of the others, learnt from all rows of the fit; NaN where
        ``nan_policy="omit"`` leaves a row out.
        """
        means = self.means_
        views, _, _ = aligned_views(self._in_order(X))
        if len(views) != len(means):
            raise SampleError(f"there must be {len(means)} views, None for each that is missing, got {len(views)}.")
        omit = self.nan_policy == "omit"
        given = [None if view is None else _checked(view, i, len(means[i]), omit) for i, view in enumerate(views)]
        there = {i: view for i, view in enumerate(given) if view is not None}
        if not there:
            raise SampleError("at least one view must be given to predict the others from, got None for all of them.")
        lengths = {len(view) for view in there.values()}
        if len(lengths) > 1:
            raise SampleError(f"views must have the same number of rows, got {', '.join(map(str, sorted(lengths)))}.")
        own = [(view - means[i]) @ self.weights_[i].T for i, view in there.items()]
        known, used = self._predictors(np.concatenate(own, axis=1), list(there))
        columns = self.fit_.slopes[1]
        filled = enumerate(zip(given, means, strict=True))
        return [known @ columns[i][used] + mean if view is None else view for i, (view, mean) in filled]

    def inverse_transform(self, X: Sequence[Any]) -> list[Array]:
        """Views ``(n, d_i)`` from their scores ``(n, n_components)``: the best linear prediction of each by its own."""
        found = []
        for i, (own, mean, columns) in enumerate(zip(X, self.means_, self.fit_.slopes[1], strict=True)):
            known, used = self._predictors(np.asarray(own), [i])
            found.append(known @ columns[used] + mean)
        return found

    def _predictors(self, scores: Array, views: Sequence[int]) -> tuple[Array, NDArray[Any]]:
        """Scores ``(n, c)`` of some views times (Σyyᵀ)⁺, and which of all scores they are."""
        count = len(self.moments_)
        used = np.concatenate([np.arange(i * count, (i + 1) * count) for i in views])
        return scores @ np.linalg.pinv(self.fit_.slopes[0][np.ix_(used, used)], hermitian=True), used

    def _in_order(self, X: Any) -> Any:
        """Views of a dictionary in the order of the fit."""
        self.fit_  # noqa: B018 (not fitted is said first)
        if not isinstance(X, Mapping):
            return X
        if self._view_names and set(map(str, X)) != set(self._view_names):
            raise SampleError(f"views must be {', '.join(self._view_names)} as fitted, got {', '.join(map(str, X))}.")
        named = {str(name): view for name, view in X.items()}
        return [named[name] for name in self._view_names or named]


def _checked(view: Any, number: int, width: int, omit: bool) -> NDArray[Any]:
    rows = to_floats(as_array(view))
    if rows.ndim != 2 or rows.shape[1] != width:
        raise SampleError(f"view {number} must have shape (n, {width}) as it was fitted, got {rows.shape}.")
    if not all_finite(rows):
        if not omit:
            raise SampleError(f'view {number} contains NaN or Inf; clean it, or give nan_policy="omit".')
        whole = np.isfinite(rows).all(axis=1, keepdims=True)
        rows = np.where(whole, rows, rows.dtype.type(np.nan))
    return rows
