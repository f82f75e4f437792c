"""TensorCCA: directions shared by several views, from moments that are never built."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from tpca.engines import DaskEngine, Engine, LocalEngine
from tpca.engines.dask.cluster import active_client
from tpca.errors import SampleError, SolverError
from tpca.estimators.pca import Score, seed_from
from tpca.integers import check_integer
from tpca.solvers.loop import Feed
from tpca.solvers.memory import parse_memory
from tpca.solvers.moments.solver import Moment, MomentSolver, standardised
from tpca.solvers.options import refuse_idle
from tpca.solvers.race.components import ComponentsRun
from tpca.solvers.race.solver import RaceSolver
from tpca.solvers.race.strategies.flow import state_floats
from tpca.solvers.recovery import Recovery, StopReason, Verdict
from tpca.streams.views import ViewsStream, open_views
from tpca.streams.whitening import Clipper, FirstRows, RunningMoments, ViewCovariances, WhitenedViews, Whitener, clipped
from tpca.tensors import RankOne, Scores
from tpca.tensors.blocks import Array, Partition
from tpca.tensors.views import ViewsBatch

MEMORY = 256e6
RACE_MEMORY, RACE_COLUMNS = 64e6, 8  # a race on views is given room for so many columns of the flow, if that is less
# Rows from which one-pass data learn their whitening: this many, and this many times the columns of the widest view.
FIRST_ROWS, ROWS_PER_COLUMN = 500, 10


class TensorCCA(BaseEstimator):  # type: ignore[misc]
    """Tensor canonical correlation analysis of two or more views (Luo et al. 2015), without the tensor.

    Finds weights ``w_i`` per view for which the scores ``y_i = (x_i - mean_i) @ w_i`` are as related as can be, all
    views at once: ``E[y_1 y_2 ... y_k]`` is largest, the views being whitened first.  The moment tensor of
    ``d_1 * ... * d_k`` entries never exists; memory is d² per view.

    With an odd number of views only a factor that is skewed shows (odd moments of a symmetric one are zero).

    Parameters
    ----------
    n_components : int
        Components to look for, each in what those before leave of the moment.
    shrinkage : float in [0, 1] or "auto"
        Shrinkage of every view's covariance towards a multiple of the identity: 0 is plain CCA, 1 no whitening.
        ``"auto"`` chooses by the number of rows.
    center : bool
        Whether to subtract the mean of every column.
    random_state : int, Generator, RandomState or None
    clip : float, optional
        Bound on the influence of a row: rows farther than ``clip`` typical distances from the centre are drawn back,
        and scores of stored data count at most ``clip`` standard deviations.  By default nothing is clipped.  Moments
        of high order have heavy tails: 2 is a good choice for real data.
    validation_fraction : float
        Share of the rows of stored data that only judge.
    confidence : float
        At most ``1 - confidence`` of all fits of unrelated views claim a component.
    refit : bool
        Whether, once something is proven on held-out rows of stored data, the fit is repeated on all rows.
    memory : int or str, optional
        Whitened rows up to this size are kept between passes (default 256 MB); for one-pass data, the bound on the
        solver's state (default 1 to 64 MB).
    nan_policy : {"raise", "omit"}
        What to do about rows with NaN or Inf.

    Attributes
    ----------
    weights_ : list of arrays ``(d_i, n_components_)``
    means_ : list of arrays ``(d_i,)``
    correlations_ : array ``(n_components_,)``
        Mean product of the standardised scores, on held-out rows (one-pass data: on rows not yet used).
    correlation_errors_, p_values_ : arrays ``(n_components_,)``
        Standard errors, and chance of as much without any relation.
    moments_ : array ``(n_components_,)``
        The moment that was maximised, on the rows it was fitted to: too good by what was fitted to noise.
    n_components_, n_samples_seen_, n_skipped_ : int
    verdict_ : Verdict
        ``"signal"`` or ``"no signal"``.
    stop_reason_ : StopReason

    If nothing is proven, a ``ConvergenceWarning`` says so, ``verdict_`` is ``"no signal"``, ``n_components_`` is 0,
    and the one component kept in ``weights_`` is a guess, which ``transform`` and ``score`` leave out.

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

    _components: list[Moment] | None = None
    _whiteners: list[Whitener]
    _waiting: list[ViewsBatch] | None = None
    _race: _Race | None

    def __init__(
        self,
        n_components: int = 1,
        shrinkage: float | str = "auto",
        center: bool = True,
        random_state: Any = None,
        *,
        clip: float | None = None,
        validation_fraction: float = 0.2,
        confidence: float = 0.95,
        refit: bool = True,
        memory_limit: str | float | None = None,
        nan_policy: str = "raise",
    ) -> None:
        self.n_components = n_components
        self.shrinkage = shrinkage
        self.center = center
        self.random_state = random_state
        self.clip = clip
        self.validation_fraction = validation_fraction
        self.confidence = confidence
        self.refit = refit
        self.memory_limit = memory_limit
        self.nan_policy = nan_policy

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002
        """Fit a list of views ``(n, d_i)`` (arrays or paths), a DataFrame with levels, or an iterable of batches.

        Dask arrays are worked on where they are, by the workers of the active Dask client, if there is one; give
        ``DaskEngine(client, open_views(paths))`` to have workers read files.
        """
        self._check()
        stream, client = _opened(X, self.nan_policy)
        if not stream.rereadable:
            self._refuse_idle()
        self._forget(stream.dims)
        if stream.rereadable:
            self._fit_stored(stream, client)
        else:
            for batch in stream.batches():
                self._pour(batch)
            self._conclude()
        self._warn()
        return self

    def partial_fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002
        """Take one more batch of all views; the whitening is learnt from the first rows, then one pass."""
        self._check()
        self._refuse_idle()
        stream = open_views([tuple(X)], nan_policy=self.nan_policy)
        if self._waiting is None:
            self._forget(stream.dims)
        if stream.dims != self.dims_:
            raise SampleError(f"views must have widths {self.dims_} as in the first batch, got {stream.dims}.")
        for batch in stream.batches():
            self._pour(batch)
        self._components = None
        return self

    def transform(self, X: Any) -> list[Array]:
        """Scores of every view, a list of arrays ``(n, n_components_)``, maybe without a column.

        ``X`` is whatever :meth:`fit` takes, and read by whom it would be there: also by the workers of a Dask client.
        """
        weights, means = [w[:, : self.n_components_] for w in self.weights_], self.means_
        stream, client = _opened(X, "raise")
        if stream.dims != self.dims_:
            raise SampleError(f"views must have the widths that were fitted, {self.dims_}, got {stream.dims}.")
        engine = LocalEngine(stream) if client is None else DaskEngine(client, stream)
        return engine.reduce(Scores([[w.T for w in weights]], means)).joined()

    def fit_transform(self, X: Any, y: Any = None) -> list[Array]:  # noqa: ARG002
        """Fit, then the scores of the same views."""
        return self.fit(X).transform(X)

    def score(self, X: Any, y: Any = None) -> Score:  # noqa: ARG002
        """Correlation of higher order on other views, with its standard error; the sum over components, 0 over none."""
        scores = self.transform(X)
        products = np.zeros(len(scores[0]))
        for c in range(self.n_components_):
            products += np.prod(standardised([s[:, c] for s in scores], self.clip), axis=0)
        spread = float(np.std(products, ddof=1)) if len(products) > 1 else math.nan
        return Score(float(products.mean()), spread / math.sqrt(len(products)))

    @property
    def weights_(self) -> list[Array]:
        """Weights ``(d_i, n_components_)`` on the columns of every view."""
        found = self._fitted()
        columns = [np.stack(mode, axis=1) for mode in zip(*(m.vectors for m in found), strict=True)]
        return [whitener.weights(v) for whitener, v in zip(self._whiteners, columns, strict=True)]

    @property
    def means_(self) -> list[Array]:
        """What is subtracted from the columns of every view."""
        self._fitted()
        return [whitener.mean for whitener in self._whiteners]

    @property
    def correlations_(self) -> Array:
        """Mean product of the standardised scores on rows that were not fitted."""
        return np.array([m.correlation for m in self._fitted()])

    @property
    def correlation_errors_(self) -> Array:
        """Standard errors of ``correlations_``."""
        return np.array([m.correlation_error for m in self._fitted()])

    @property
    def p_values_(self) -> Array:
        """Chance of such a correlation without any relation."""
        return np.array([m.p_value for m in self._fitted()])

    @property
    def moments_(self) -> Array:
        """The moment that was maximised."""
        return np.array([m.moment for m in self._fitted()])

    @property
    def n_components_(self) -> int:
        """Components that were proven."""
        self._fitted()
        return self._proven

    @property
    def verdict_(self) -> Verdict:
        """Whether a shared direction was proven."""
        return self.stop_reason_.verdict

    @property
    def stop_reason_(self) -> StopReason:
        """How it ended."""
        self._fitted()
        return self._reason

    def __sklearn_is_fitted__(self) -> bool:
        return self._components is not None or bool(getattr(self, "n_samples_seen_", 0))

    def _check(self) -> None:
        share = self.shrinkage
        if share != "auto" and (isinstance(share, str) or not 0 <= share <= 1):
            raise SolverError(f"shrinkage must lie between 0 and 1, or be 'auto', got {share!r}.")
        if self.clip is not None and not self.clip > 0:
            raise SolverError(f"clip must be positive, got {self.clip}.")
        check_integer("n_components", self.n_components)
        if not 0 < self.confidence < 1:
            raise SolverError(f"confidence must lie strictly between 0 and 1, got {self.confidence}.")
        if not 0 < self.validation_fraction < 1:
            raise SolverError(f"validation_fraction must lie strictly between 0 and 1, got {self.validation_fraction}.")
        if self.memory_limit is not None:
            parse_memory(self.memory_limit)

    def _refuse_idle(self) -> None:
        refuse_idle(self, "passing", "means nothing to views that pass by once; leave it out, or fit arrays or files")

    def _forget(self, dims: tuple[int, ...]) -> None:
        self._seed = seed_from(self.random_state)  # first: what is refused here leaves the fit before as it is
        self.dims_ = dims
        self.n_samples_seen_ = self.n_skipped_ = 0
        self._components, self._race = None, None
        self._whiteners, self._waiting = [], []

    # -- stored data: several passes --------------------------------------------------------------------------------

    def _fit_stored(self, stream: ViewsStream, client: Any) -> None:
        self._waiting = None
        memory_limit = MEMORY if self.memory_limit is None else parse_memory(self.memory_limit)

        def engine(views: ViewsStream) -> Engine:
            return LocalEngine(views) if client is None else DaskEngine(client, views, hold=memory_limit)

        read = engine(stream)
        clippers = None
        if self.clip is not None:
            assert stream.layout is not None
            clippers = read.reduce(FirstRows(self.clip), int(stream.layout.bounds[1])).clippers
            read.rewind()
        seen = read.reduce(ViewCovariances(stream.dims, clippers))
        self.n_samples_seen_, self.n_skipped_ = seen.n, read.n_skipped
        self._whiteners = self._learn(seen.moments)
        solver = MomentSolver(
            random_state=self._seed,
            n_components=self.n_components,
            validation_fraction=self.validation_fraction,
            clip=self.clip,
            confidence=self.confidence,
            memory_limit=memory_limit,
            refit=self.refit,
        )
        found = solver.run(engine(WhitenedViews(stream, self._whiteners, clippers)))
        self._keep(found, [m.p_value <= 1 - self.confidence for m in found])

    # -- one pass: whitening from the first rows, then the race ------------------------------------------------------

    def _pour(self, batch: ViewsBatch) -> None:
        self.n_samples_seen_ += len(batch)
        self.n_skipped_ += batch.dropped
        if self._race is not None:
            self._race.pour(batch)
            return
        assert self._waiting is not None
        self._waiting.append(batch)
        if self.n_samples_seen_ >= max(FIRST_ROWS, ROWS_PER_COLUMN * max(self.dims_)):
            self._race, self._waiting = self._start(self._waiting), []

    def _start(self, waiting: Sequence[ViewsBatch]) -> _Race:
        """Learn the whitening from the rows that waited, and race on them and all that follow."""
        rows = [np.concatenate(view) for view in zip(*(batch.views for batch in waiting), strict=True)]
        clippers = self._clippers(rows)
        moments = [RunningMoments(width) for width in self.dims_]
        _add(moments, ViewsBatch(rows), clippers)
        solver = RaceSolver(
            random_state=self._seed,
            memory_limit=_race_memory(self.dims_) if self.memory_limit is None else self.memory_limit,
            n_components=self.n_components,
            confidence=self.confidence,
        )
        race = _Race(solver, self.dims_, self._learn(moments), clippers)
        for batch in waiting:
            race.pour(batch)
        return race

    def _conclude(self) -> None:
        """What is known now; after ``partial_fit`` more may follow."""
        race = self._race if self._race is not None else self._start(copy.copy(self._waiting or []))
        recovery = race.recovery()
        self._whiteners = race.whiteners
        each = [recovery, *recovery.further]
        found = [_as_moment(r, self.confidence, race.spread(r.vectors)) for r in each]
        self._keep(found, [r.found for r in each])

    # -- both ----------------------------------------------------------------------------------------------------------

    def _clippers(self, views: Sequence[NDArray[Any]]) -> list[Clipper] | None:
        return None if self.clip is None else [Clipper(view, self.clip) for view in views]

    def _learn(self, moments: Sequence[RunningMoments]) -> list[Whitener]:
        return [Whitener.learn(m, self.shrinkage, self.center, i) for i, m in enumerate(moments)]

    def _keep(self, found: list[Moment], proven: list[bool]) -> None:
        self._proven = sum(proven)
        self._components = found[: max(1, self._proven)]
        self._reason = StopReason.STREAM_ENDED if self._proven else StopReason.NO_SIGNAL

    def _fitted(self) -> list[Moment]:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError("this TensorCCA is not fitted yet; call fit or partial_fit first.")
        if self._components is None:
            self._conclude()
        assert self._components is not None
        return self._components

    def _warn(self) -> None:
        if self.verdict_ is Verdict.NO_SIGNAL:
            warnings.warn(
                f"no direction shared by the views could be proven (p = {self.p_values_[0]:.3g}); "
                "the weights are a guess: give more rows, or other views.",
                ConvergenceWarning,
                stacklevel=3,
            )


class _Race:
    """One-pass views, whitened and fed to a race."""

    def __init__(
        self, solver: RaceSolver, dims: tuple[int, ...], whiteners: list[Whitener], clippers: list[Clipper] | None
    ) -> None:
        self.whiteners, self._clippers = whiteners, clippers
        self._feed = Feed(dims)
        self._run = ComponentsRun(solver, self._feed.engine)
        self._moments = [RunningMoments(width) for width in dims]

    def pour(self, batch: ViewsBatch) -> None:
        rows = clipped(batch.views, self._clippers)
        white = [whitener(view) for whitener, view in zip(self.whiteners, rows, strict=True)]
        _add(self._moments, ViewsBatch(white), None)
        self._feed.pour(self._run, ViewsBatch(white))

    def recovery(self) -> Recovery:
        return self._feed.recovery(self._run)

    def spread(self, vectors: Sequence[Array]) -> float:
        """Product of the standard deviations of the scores over all rows; the whitening knew only the first ones."""
        pairs = zip(self._moments, vectors, strict=True)
        return math.prod(math.sqrt(v @ moments.covariance() @ v) for moments, v in pairs)


def _opened(X: Any, nan_policy: str) -> tuple[ViewsStream, Any]:
    """Views as a stream, and the Dask client whose workers read it, if any do."""
    if isinstance(X, DaskEngine):
        return open_views(X.stream, nan_policy=nan_policy), X.cluster.client
    stream = open_views(X.stream if isinstance(X, LocalEngine) else X, nan_policy=nan_policy)
    in_place = stream.readable_elsewhere and stream.lazy_parts(0) is not None
    return stream, active_client() if in_place else None


def _race_memory(dims: tuple[int, ...]) -> float:
    """Enough for a search, little enough to be quick: rows are cheap, and more columns cost time."""
    return min(RACE_MEMORY, max(1e6, 8.0 * state_floats(Partition.halves(dims), RACE_COLUMNS)))


def _add(moments: Sequence[RunningMoments], batch: ViewsBatch, clippers: Sequence[Clipper] | None) -> None:
    for own, rows in zip(moments, clipped(batch.views, clippers), strict=True):
        own.add(rows)


def _as_moment(recovery: Recovery, confidence: float, spread: float) -> Moment:
    """What a race found, in the words of moments; its strength was measured on rows that its vectors had not seen.

    Divided by the spread of the scores, it is their correlation.
    """
    if not recovery.found or recovery.strength_interval is None:
        return Moment(recovery.vectors, math.nan, math.nan, math.nan, 1.0, RankOne(0.0, recovery.vectors))
    _, high = recovery.strength_interval
    error = (high - recovery.strength) / float(ndtri(0.5 + confidence / 2))
    p_value = float(ndtr(-recovery.strength / error)) if error > 0 else 0.0
    known = RankOne(recovery.strength, recovery.vectors)
    return Moment(recovery.vectors, recovery.strength, recovery.strength / spread, error / spread, p_value, known)
