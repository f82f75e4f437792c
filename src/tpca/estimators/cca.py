"""TensorCCA: directions shared by several views, from moments that are never built."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.exceptions import ConvergenceWarning

from tpca.engines import Engine
from tpca.errors import SampleError, SolverError
from tpca.estimators.amplitudes import Score
from tpca.estimators.asking import seed_from
from tpca.estimators.names import view_labels
from tpca.estimators.opening import Reader, rows_opened
from tpca.estimators.showing import ShowsViews
from tpca.estimators.views_fit import PassingViews, ViewsOptions, fit_stored, views_memory
from tpca.solvers.base import Callback
from tpca.solvers.moments.judge import standardised
from tpca.solvers.moments.relations import check_given
from tpca.solvers.options import refuse_idle
from tpca.streams.views import ViewsStream, open_views
from tpca.tensors import Scores
from tpca.tensors.blocks import Array

NOT_OF_THE_FIT = ("random_state", "nan_policy", "callbacks")


class TensorCCA(ShowsViews, TransformerMixin, BaseEstimator, auto_wrap_output_keys=None):  # type: ignore[misc, call-arg]
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
        Of random starts.  Stored data give the same components whatever it is, and whatever the order of their rows.
    clip : float, optional
        Bound on the influence of a row: rows farther than ``clip`` typical distances from the centre are drawn back,
        and scores of stored data count at most ``clip`` standard deviations.  By default nothing is clipped.  Moments
        of high order have heavy tails: 2 is a good choice for real data.
    validation_fraction : float
        Share of the rows of stored data that are held out at a time, to judge by: with 0.2 there are five folds, and
        every row is judged by a fit that has not seen it.
    confidence : float
        At most ``1 - confidence`` of all fits of unrelated views claim a component.
    refit : bool
        Whether, once something is proven on held-out rows of stored data, the fit is repeated on all rows.  Without,
        one fold alone is held out, and ``correlations_`` are those of the very weights that are reported.
    memory_limit : int or str, optional
        Whitened rows up to this size are kept between passes (default 256 MB); for one-pass data, the bound on the
        solver's state (default 1 to 64 MB).
    nan_policy : {"raise", "omit"}
        What to do about rows with NaN or Inf.
    callbacks : sequence of callables, optional
        Each is called with a dictionary after every pass over stored rows, and after every round of those that pass
        by once.

    Attributes
    ----------
    weights_ : list of arrays ``(n_components_, d_i)``, one per view
        Components as rows.
    loadings_ : list of arrays ``(n_components_, d_i)``
        Correlation of every column with the score of its view, in the covariance that was whitened with: what to look
        at.  Weights of columns that are alike are not determined one by one.  Signs are such that scores of views
        agree, as far as can be.
    means_ : list of arrays ``(d_i,)``
    correlations_ : array ``(n_components_,)``
        Mean product of the standardised scores, on held-out rows (one-pass data: on rows not yet used).  After the
        first, components are proven by what their scores have that those of earlier ones have not.
    correlation_errors_, p_values_ : arrays ``(n_components_,)``
        Standard errors, and chance of as much without any relation.
    moments_ : array ``(n_components_,)``
        The moment that was maximised, on the rows it was fitted to: too good by what was fitted to noise.
    n_components_, n_samples_seen_, n_skipped_ : int
    shape_in_ : tuple of int
        Columns of every view.
    verdict_, found_ : Verdict, bool
        ``"signal"`` or ``"no signal"``, and whether it is the first.
    stop_reason_ : StopReason
    recovery_ : ViewsRecovery
        What the fit gave, in the whitened coordinates.

    If nothing is proven, a ``ConvergenceWarning`` says so, ``verdict_`` is ``"no signal"``, ``n_components_`` is 0, and
    there are no weights; the guess that proves nothing is ``recovery_.guess``.

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
        callbacks: Sequence[Callback] | None = None,
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
        self.callbacks = callbacks

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002
        """Fit a list of views ``(n, d_i)`` (arrays or paths), a DataFrame with levels, or an iterable of batches.

        Dask arrays are worked on where they are, by the workers of the active Dask client, if there is one; give
        ``DaskEngine(client, open_views(paths))`` to have workers read files.
        """
        asked = self._asked()
        stream, reader = _opened(X, self.nan_policy, views_memory(asked))
        if not stream.rereadable:
            self._refuse_idle()
        seed = seed_from(self.random_state)  # before anything is forgotten: what is refused leaves the last fit alone
        self._recovery = self._passing = None
        self.shape_in_, self._labels = stream.dims, view_labels(X)
        if stream.rereadable:
            self._recovery = fit_stored(stream, reader, asked, seed, self.callbacks or ())
        else:
            passing = PassingViews(stream.dims, asked, seed, self.callbacks or ())
            for batch in stream.batches():
                passing.pour(batch)
            self._recovery = passing.recovery()
        self._warn()
        return self

    def partial_fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002
        """Take one more batch of all views; the whitening is learnt from the first rows, then one pass."""
        asked = self._asked()
        self._refuse_idle()
        stream = open_views([tuple(X)], nan_policy=self.nan_policy)
        if self._passing is None:
            seed = seed_from(self.random_state)
            self._passing, self.shape_in_ = PassingViews(stream.dims, asked, seed, self.callbacks or ()), stream.dims
            self._labels = view_labels(list(X))
        if stream.dims != self.shape_in_:
            raise SampleError(f"views must have widths {self.shape_in_} as in the first batch, got {stream.dims}.")
        for batch in stream.batches():
            self._passing.pour(batch)
        self._recovery = None
        return self

    def transform(self, X: Any) -> list[Array]:
        """Scores of every view, a list of arrays ``(n, n_components_)``, maybe without a column.

        ``X`` is whatever :meth:`fit` takes, and read by whom it would be there: also by the workers of a Dask client.
        """
        weights, means = self.weights_, self.means_
        return self._views_reader(X).reduce(Scores([weights], means)).joined()

    def predict(self, X: Sequence[Any]) -> list[NDArray[Any]]:
        """The views, arrays ``(n, d_i)``, with every missing one (``None``) predicted from those that are there.

        The best linear prediction from the scores of the others, learnt from all rows of the fit; the mean of the view
        where nothing shared was proven.  Of stored data only: rows that pass by once are gone when the weights are
        known.
        """
        relations = self.recovery_.relations
        check_given(X, len(self.shape_in_))
        if relations is None:
            raise SolverError("predict needs a fit of stored views, and these passed by once; fit arrays or files.")
        return relations.fill(X)

    def score(self, X: Any, y: Any = None) -> Score:  # noqa: ARG002
        """Correlation of higher order on other views, with its standard error; the sum over components, 0 over none."""
        scores = self.transform(X)
        products = np.zeros(len(scores[0]))
        for c in range(self.n_components_):
            products += np.prod(standardised([s[:, c] for s in scores], self.clip), axis=0)
        spread = float(np.std(products, ddof=1)) if len(products) > 1 else math.nan
        return Score(float(products.mean()), spread / math.sqrt(len(products)))

    def _views_reader(self, X: Any) -> Engine:
        stream, reader = _opened(X, "raise")
        if stream.dims != self.shape_in_:
            raise SampleError(f"views must have the widths that were fitted, {self.shape_in_}, got {stream.dims}.")
        return reader(stream)

    def _asked(self) -> ViewsOptions:
        """The options, checked."""
        own = {name: value for name, value in self.get_params(deep=False).items() if name not in NOT_OF_THE_FIT}
        return ViewsOptions(**own)

    def _refuse_idle(self) -> None:
        refuse_idle(self, "passing", "means nothing to views that pass by once; leave it out, or fit arrays or files")

    def _warn(self) -> None:
        guess = self.recovery_.guess
        if guess is not None:
            told = f"{self.recovery_.advice} (p = {guess.p_value:.3g})"
            warnings.warn(told, ConvergenceWarning, stacklevel=3)


def _opened(X: Any, nan_policy: str, hold: float = 0.0) -> tuple[ViewsStream, Reader]:
    return rows_opened(X, lambda source: open_views(source, nan_policy=nan_policy), hold)
