"""TensorCCA: directions shared by several views, from moments that are never built."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from sklearn.base import BaseEstimator, TransformerMixin

from tpca.data.base import all_finite, as_array, to_floats
from tpca.data.rows import open_views
from tpca.engines.opening import rows_opened
from tpca.errors import SampleError, SolverError
from tpca.estimators._common import RowsEstimator, seed_from, view_labels
from tpca.labels import Labels
from tpca.result import Result, Score
from tpca.solvers.folds import Clipper, Whitening, clipped
from tpca.solvers.options import Callback, check_callbacks
from tpca.solvers.race.solver import RaceSolver
from tpca.solvers.race.strategies.flow import state_floats
from tpca.solvers.run import Feed
from tpca.solvers.views import Direction, ViewsFit, ViewsOptions, fit_views
from tpca.tensors.blocks import Array, Partition
from tpca.tensors.rows import ViewsBatch

RACE_MEMORY, RACE_COLUMNS = 64e6, 8  # a race on views is given room for so many columns of the flow, if that is less
# Rows from which one-pass data learn their whitening: this many, and this many times the columns of the widest view.
FIRST_ROWS, ROWS_PER_COLUMN = 500, 10
NOT_OF_THE_FIT = ("random_state", "nan_policy", "callbacks")
NOT_ONE_PASS = ("validation_fraction", "n_resamples", "dependence")


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
        ``"auto"`` chooses by the rows that are fitted: oracle approximating shrinkage, or, with fewer than ten rows a
        column, the share and target (the identity, or variances of columns) that suit rows left out in turn.
    clip : float, optional
        Bound on the influence of a row: rows farther than ``clip`` typical distances from the centre are drawn back,
        and scores of stored data count at most ``clip`` standard deviations.  By default nothing is clipped.  Moments
        of high order have heavy tails: 2 is a good choice for real data.
    validation_fraction : float
        Share of the rows of stored data that are held out at a time, to judge by: with 0.2 there are five folds, and
        every row is judged by a fit, whitening included, that has not seen it.
    confidence : float
        At most ``1 - confidence`` of all fits of independent views claim a component.
    n_resamples : int or "auto"
        Rearrangements of the rows of every fold; by default 199, or as many as ``confidence`` needs.
    dependence : {"auto", None}
        ``"auto"``: if neighbouring rows are correlated in two views or more, folds are runs of neighbours, and series
        are shifted instead of permuted.  ``None``: their order is meaningless.
    memory_limit : int or str, optional
        Bound on what is held, in bytes or as ``"64MB"``: covariances, which are refused if they take more, and rows
        kept between passes, which are read again if they do not fit (default 256 MB, and nothing is refused).  For
        one-pass data, the bound on the solver's state (default 1 to 64 MB).
    nan_policy : {"raise", "omit"}
        What to do about rows with NaN or Inf.
    random_state : int, Generator, RandomState or None
        Of random starts.  Stored data give the same components whatever it is, and whatever the order of their rows.
    callbacks : sequence of callables, optional
        Each is called with a dictionary after every pass over stored rows, and after every round of those that pass
        by once.

    Attributes
    ----------
    weights_ : list of arrays ``(n_components, d_i)``, one per view
        Components as rows.  Shapes do not depend on what is proven; a component that is not there is zeros.
    loadings_ : list of arrays ``(n_components, d_i)``
        Correlation of every column with the score of its view: what to look at.  Weights of columns that are alike
        are not determined one by one.  Signs are such that scores of views agree, as far as can be.
    loading_p_values_ : list of arrays ``(n_components, d_i)``
        Of every column: chance that any column of any view is as related to the scores of the other views (family-wise,
        from the rearrangements of the test).  NaN for long series, and for one-pass data.
    means_ : list of arrays ``(d_i,)``
    correlations_, correlation_errors_ : arrays ``(n_components,)``
        Mean product of the standardised scores on held-out rows (one-pass data: on rows not yet used), standard errors.
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

    shape_in_: tuple[int, ...]
    _labels: Labels | None = None  # names of views and columns, where the data have them
    _view_names: tuple[str, ...] = ()  # of a dictionary
    _output: str | None = None  # container of scores

    def __init__(
        self,
        n_components: int = 1,
        shrinkage: float | str = "auto",
        *,
        clip: float | None = None,
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
        self.clip = clip
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
        and permuted.  Dask arrays are worked on where they are, by the workers of the active Dask client, if there is
        one; give ``DaskEngine(client, open_views(paths))`` to have workers read files.
        """
        asked, callbacks = self._asked(), check_callbacks("callbacks", self.callbacks or ())
        stream, reader = rows_opened(X, lambda source: open_views(source, nan_policy=self.nan_policy), asked.memory)
        if not stream.rereadable:
            self._refuse_idle(groups)
        seed = seed_from(self.random_state)  # before anything is forgotten: what is refused leaves the last fit alone
        if stream.rereadable:
            fitted: ViewsFit = fit_views(stream, reader, asked, seed, groups, callbacks)
        else:
            passing = PassingViews(stream.dims, asked, seed, callbacks)
            for batch in stream.batches():
                passing.pour(batch)
            fitted = passing.run()
        self._fitted, self._passing = fitted, None
        self._note(X, stream.dims)
        self._warn()
        return self

    def partial_fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002
        """Take one more batch of all views; the whitening is learnt from the first rows, then one pass."""
        asked = self._asked()
        self._refuse_idle(None)
        given = list(X.values()) if isinstance(X, Mapping) else X
        stream = open_views([tuple(given)], nan_policy=self.nan_policy)
        if self._passing is None:
            callbacks = check_callbacks("callbacks", self.callbacks or ())
            self._passing = PassingViews(stream.dims, asked, seed_from(self.random_state), callbacks)
            self._note(X if isinstance(X, Mapping) else list(X), stream.dims)
        if stream.dims != self.shape_in_:
            raise SampleError(f"views must have widths {self.shape_in_} as in the first batch, got {stream.dims}.")
        for batch in stream.batches():
            self._passing.pour(batch)
        self._fitted = None
        return self

    def _note(self, X: Any, dims: tuple[int, ...]) -> None:
        self.shape_in_, self.n_features_in_ = dims, sum(dims)
        self._view_names = tuple(map(str, X)) if isinstance(X, Mapping) else ()
        self._labels = view_labels(X)

    def _asked(self) -> ViewsOptions:
        """The options, checked."""
        own = {name: value for name, value in self.get_params(deep=False).items() if name not in NOT_OF_THE_FIT}
        return ViewsOptions(**own)

    def _refuse_idle(self, groups: Any) -> None:
        usual = type(self)()
        given = [name for name in NOT_ONE_PASS if getattr(self, name) != getattr(usual, name)]
        for name in given + ["groups"] * (groups is not None):
            raise SolverError(f"{name} means nothing to views that pass by once; leave it out, or fit arrays or files.")

    # What it learnt ---------------------------------------------------------------------------------------------------

    @property
    def weights_(self) -> list[Array]:
        """Weights ``(n_components, d_i)`` on the columns of every view."""
        return self.fit_.of_every("weights")

    @property
    def loadings_(self) -> list[Array]:
        """Correlations ``(n_components, d_i)`` of the columns of every view with its scores."""
        return self.fit_.of_every("loadings")

    @property
    def loading_p_values_(self) -> list[Array]:
        """Family-wise p of every column, ``(n_components, d_i)``."""
        return self.fit_.of_every("loading_p_values")

    @property
    def means_(self) -> list[Array]:
        """What is subtracted from the columns of every view."""
        return list(self.fit_.means)

    @property
    def correlations_(self) -> Array:
        """Mean product of the standardised scores on rows that were not fitted."""
        return np.array([one.correlation for one in self.fit_.components])

    @property
    def correlation_errors_(self) -> Array:
        """Standard errors of ``correlations_``."""
        return np.array([one.correlation_error for one in self.fit_.components])

    @property
    def p_values_(self) -> Array:
        """Chance of such a correlation if views are independent."""
        return np.array([one.p_value for one in self.fit_.components])

    @property
    def moments_(self) -> Array:
        """The moment that was maximised."""
        return np.array([one.moment for one in self.fit_.components])

    @property
    def result_(self) -> Result:
        """All that is known, to save, show and draw."""
        fit = self.fit_
        names = self._view_names or [f"view {i}" for i in range(len(self.shape_in_))]
        return Result.of_views(fit, names, self._settings(), self._labels)

    # What other rows show ---------------------------------------------------------------------------------------------

    def transform(self, X: Any) -> list[Any]:
        """Scores of every view, a list of arrays ``(n, n_components)``, or of DataFrames after :meth:`set_output`.

        ``X`` is whatever :meth:`fit` takes, and read by whom it would be there: also by the workers of a Dask client.
        """
        scores: list[Any] = self.result_.transform(self._in_order(X))
        if self._output is None:
            return scores
        package = __import__(self._output)
        names = np.split(self.get_feature_names_out(), len(scores))
        views = list(X.values()) if isinstance(X, Mapping) else X
        index = getattr(views[0], "index", None) if isinstance(views, list | tuple) else getattr(views, "index", None)
        more = {"index": index} if self._output == "pandas" and index is not None else {}
        if self._output == "polars":
            return [package.DataFrame(own, schema=list(name)) for own, name in zip(scores, names, strict=True)]
        return [package.DataFrame(own, columns=name, **more) for own, name in zip(scores, names, strict=True)]

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
        each = [f"{view}_tensorcca{c}" for view in views for c in range(len(self.fit_.components))]
        return np.array(each, dtype=object)

    def score(self, X: Any, y: Any = None) -> Score:  # noqa: ARG002
        """Correlation of higher order on other views, with its standard error; the sum over components."""
        return self.result_.score(self._in_order(X))

    def predict(self, X: Any) -> list[NDArray[Any]]:
        """The views, arrays ``(n, d_i)``, with every missing one (``None``) predicted from those that are there.

        The best linear prediction from the scores of the others, learnt from all rows of the fit.  Of stored data only:
        rows that pass by once are gone when the weights are known.
        """
        fit, views = self.fit_, list(self._in_order(X))
        if fit.slopes is None:
            raise SolverError("predict needs a fit of stored views, and these passed by once; fit arrays or files.")
        if len(views) != len(self.shape_in_):
            raise SampleError(
                f"there must be {len(self.shape_in_)} views, None for each that is missing, got {len(views)}."
            )
        given = [None if view is None else _checked(view, i, len(fit.means[i])) for i, view in enumerate(views)]
        there = [i for i, view in enumerate(given) if view is not None]
        if not there:
            raise SampleError("at least one view must be given to predict the others from, got None for all of them.")
        lengths = {len(view) for view in given if view is not None}
        if len(lengths) > 1:
            raise SampleError(f"views must have the same number of rows, got {', '.join(map(str, sorted(lengths)))}.")
        scores, columns = fit.slopes
        count = len(scores) // len(views)
        used = np.concatenate([np.arange(i * count, (i + 1) * count) for i in there])
        weights = self.weights_
        each = [(np.asarray(given[i]) - fit.means[i]) @ weights[i][:count].T for i in there]
        own = np.concatenate(each, axis=1)
        known = own @ np.linalg.pinv(scores[np.ix_(used, used)], hermitian=True)
        filled = enumerate(zip(given, fit.means, strict=True))
        return [known @ columns[i][used] + mean if view is None else view for i, (view, mean) in filled]

    def inverse_transform(self, X: Sequence[Any]) -> list[Array]:
        """Views ``(n, d_i)`` from their scores ``(n, n_components)``: the best linear prediction of each by its own."""
        fit = self.fit_
        if fit.slopes is None:
            raise SolverError("inverse_transform needs a fit of stored views; fit arrays or files.")
        scores, columns = fit.slopes
        count, found = len(scores) // len(fit.means), []
        for i, (own, mean) in enumerate(zip(X, fit.means, strict=True)):
            mine = slice(i * count, (i + 1) * count)
            slopes = np.linalg.pinv(scores[mine, mine], hermitian=True) @ columns[i][mine]
            found.append(np.asarray(own)[:, :count] @ slopes + mean)
        return found

    def _in_order(self, X: Any) -> Any:
        """Views of a dictionary in the order of the fit."""
        self.fit_  # noqa: B018 (not fitted is said first)
        if not isinstance(X, Mapping):
            return X
        if self._view_names and set(map(str, X)) != set(self._view_names):
            raise SampleError(f"views must be {', '.join(self._view_names)} as fitted, got {', '.join(map(str, X))}.")
        named = {str(name): view for name, view in X.items()}
        return [named[name] for name in self._view_names or named]


def _checked(view: Any, number: int, width: int) -> NDArray[Any]:
    rows = to_floats(as_array(view))
    if rows.ndim != 2 or rows.shape[1] != width:
        raise SampleError(f"view {number} must have shape (n, {width}) as it was fitted, got {rows.shape}.")
    if not all_finite(rows):
        raise SampleError(f"view {number} contains NaN or Inf; clean it, or leave its rows out.")
    return rows


# Views that pass by once ----------------------------------------------------------------------------------------------


class PassingViews:
    """The whitening is learnt from the first rows; then these race, and all that follow."""

    def __init__(
        self, dims: tuple[int, ...], asked: ViewsOptions, seed: int, callbacks: Sequence[Callback] = ()
    ) -> None:
        self.n = self.n_skipped = 0
        self._dims, self._asked, self._seed, self._callbacks = dims, asked, seed, callbacks
        self._waiting: list[ViewsBatch] = []
        self._race: _Race | None = None

    def pour(self, batch: ViewsBatch) -> None:
        """Take some more rows."""
        self.n += len(batch)
        self.n_skipped += batch.dropped
        if self._race is not None:
            self._race.pour(batch)
            return
        self._waiting.append(batch)
        if self.n >= max(FIRST_ROWS, ROWS_PER_COLUMN * max(self._dims)):
            self._race, self._waiting = self._start(self._waiting), []

    def run(self) -> ViewsFit:
        """What is known now; more may follow."""
        race = self._race if self._race is not None else self._start(copy.copy(self._waiting))
        return race.told(self._asked, self.n, self.n_skipped)

    def _start(self, waiting: Sequence[ViewsBatch]) -> _Race:
        """Learn the whitening from the rows that waited, and race on them and all that follow."""
        asked, dims = self._asked, self._dims
        rows = [np.concatenate(view) for view in zip(*(batch.views for batch in waiting), strict=True)]
        clippers = None if asked.clip is None else [Clipper(view, asked.clip) for view in rows]
        whitenings = []
        for i, view in enumerate(clipped(rows, clippers)):
            if len(view) < 2:
                raise SampleError(f"at least two rows are needed to whiten view {i}, got {len(view)}.")
            still = np.ptp(view, axis=0) == 0
            covariance = np.cov(view.astype(np.float64).T)
            mean = view.mean(axis=0, dtype=np.float64)
            whitenings.append(Whitening.learn(mean, covariance, len(view), asked.shrinkage, f"view {i}", still))
        # Enough memory for a search, little enough to be quick: rows are cheap, and more columns cost time.
        usual = min(RACE_MEMORY, max(1e6, 8.0 * state_floats(Partition.halves(dims), RACE_COLUMNS)))
        solver = RaceSolver(
            random_state=self._seed,
            memory_limit=usual if asked.memory_limit is None else asked.memory_limit,
            n_components=asked.n_components,
            confidence=asked.confidence,
            whiten=None,  # they are
            callbacks=self._callbacks,
        )
        race = _Race(solver, whitenings, clippers)
        for batch in waiting:
            race.pour(batch)
        return race


class _Race:
    """One-pass views, whitened and fed to a race."""

    def __init__(self, solver: RaceSolver, whitenings: list[Whitening], clippers: list[Clipper] | None) -> None:
        self._whitenings, self._clippers = whitenings, clippers
        dims = tuple(len(white.mean) for white in whitenings)
        self._feed = Feed(solver.start, dims)
        self._n, self._sums, self._squares = 0, [np.zeros(d) for d in dims], [np.zeros((d, d)) for d in dims]

    def pour(self, batch: ViewsBatch) -> None:
        white = []
        for i, (view, own) in enumerate(zip(clipped(batch.views, self._clippers), self._whitenings, strict=True)):
            rows = (view - own.mean.astype(view.dtype)) @ own.factor.astype(view.dtype)
            self._sums[i] += rows.sum(axis=0, dtype=np.float64)
            self._squares[i] += rows.T @ rows
            white.append(rows)
        self._n += len(batch)
        self._feed.pour(ViewsBatch(white))

    def told(self, asked: ViewsOptions, n: int, n_skipped: int) -> ViewsFit:
        """What the race found; a guess in the first place if it proved nothing."""
        estimate, white = self._feed.estimate(), self._whitenings
        found, dims = [], [len(own.mean) for own in white]
        for one in [c for c in estimate.components if c.significant]:
            assert one.strength_interval is not None
            error = (one.strength_interval[1] - one.strength) / float(ndtri(0.5 + asked.confidence / 2))
            # The whitening knew only the first rows: divided by the spread of the scores, a strength is a correlation.
            spread = math.prod(self._spread(i, v) for i, v in enumerate(one.vectors))
            p = float(ndtr(-one.strength / error)) if error > 0 else 0.0
            found.append(self._direction(one.vectors, (one.strength, one.strength / spread, error / spread, p)))
        proven = len(found)
        if not proven:
            found.append(self._direction(estimate.vectors, (math.nan, math.nan, math.nan, 1.0)))
        found += [Direction.nothing(dims)] * (asked.n_components - len(found))
        return ViewsFit([own.mean for own in white], tuple(found), np.arange(len(found)) < proven, n, n_skipped)

    def _direction(self, vectors: Sequence[Array], numbers: tuple[float, float, float, float]) -> Direction:
        """Of every view the largest loading is positive, but for the last, which takes the sign that is left."""
        pairs = list(zip(self._whitenings, vectors, strict=True))
        loadings = [own.loadings(v[None])[0] for own, v in pairs]
        signs = [1.0 if own[np.argmax(np.abs(own))] >= 0 else -1.0 for own in loadings]
        signs[-1] = float(np.prod(signs[:-1]))
        weights = tuple(s * (own.factor @ v) for s, (own, v) in zip(signs, pairs, strict=True))
        unknown = tuple(np.full(len(v), math.nan) for v in vectors)
        return Direction(weights, tuple(s * own for s, own in zip(signs, loadings, strict=True)), *numbers, unknown)

    def _spread(self, view: int, v: Array) -> float:
        """The standard deviation of the scores along v over all rows."""
        mean = self._sums[view] / max(self._n, 1)
        covariance = (self._squares[view] - self._n * np.multiply.outer(mean, mean)) / max(self._n - 1, 1)
        return math.sqrt(float(v @ covariance @ v))
