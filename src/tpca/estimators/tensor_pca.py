"""TensorPCA: rank-one patterns that samples share, that follow a condition, or that vary."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin

from tpca.data import Stream
from tpca.data.alignment import aligned_with, labels_of_samples, samples_first, without_samples
from tpca.data.base import check_axis
from tpca.data.open import is_epochs, labels_of_epochs
from tpca.engines import Data, Engine
from tpca.engines.local import check_labels, form_of, handed, opened
from tpca.errors import SampleError, SolverError
from tpca.estimators._common import Fitted, Lines, not_fitted, of_components, of_result, print_line, seed_from
from tpca.inference.design import Design, read_design
from tpca.result import Result, Score, preprocessed_data
from tpca.solvers.build import build_solver
from tpca.solvers.estimate import Component, Estimate, Verdict
from tpca.solvers.least_squares.solver import LeastSquares
from tpca.solvers.options import OPTIONS, same
from tpca.solvers.race.run import RaceSolver
from tpca.solvers.run import Feed, checked_batches
from tpca.tensors.blocks import Array
from tpca.tensors.namespaces import is_device_array, namespace, to_device


class TensorPCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Fitted, BaseEstimator):  # type: ignore[misc]
    """Rank-one patterns ``strength * v_1 ⊗ ... ⊗ v_k`` in samples ``(n, d_1, ..., d_k)``, with tests and errors.

    The answer is the least-squares fit of what was asked, in the units of the data, from all samples, whatever their
    order.  Tests and errors come from resampling independent units of samples.

    Parameters
    ----------
    n_components : int or "auto"
        Rank-one components, fitted together.  There are always so many rows; ``n_proven_`` says how many are proven.
        ``"auto"`` (least squares): as many as are proven, of every effect, at least one and at most ten.
    target : {"mean", "effect", "variance"}
        What is looked for: what all samples share; what follows ``y``; or what varies from sample to sample.
    solver : {"auto", "least_squares", "race", "paper"} or a solver
        ``"auto"`` is least squares where its sums fit into memory, and else the race (:class:`~tpca.RaceSolver`), which
        a line of ``result_.advice`` then says.
        ``"paper"`` is the published algorithm; an object is anything with ``run(stream)``.
    confidence : float
        Level of intervals.  At most ``1 - confidence`` of all fits to noise say "signal".
    n_resamples : int or "auto"
        Flips of the test.  "auto": 999 up to 10⁴ entries of a sample, then fewer, 199 at least; 99 for variation.
    whiten : {"auto", "modes", None}
        "auto" uses whitened statistics in the test only.  ``None``: the plain one only.  "modes": everything is done
        in whitened coordinates.
    dependence : {"auto", None} or int
        Whether neighbouring samples may be dependent.  "auto" finds out and allows for it; ``None`` takes all samples
        as independent; an integer m takes m neighbours as one unit.
    memory_limit : int or str, optional
        Bound on what is held, in bytes or as ``"64MB"``; by default a tenth of the machine's memory.
    max_samples : int, optional
        Most samples to use.
    nan_policy : {"raise", "omit", "zero"}
        What to do about NaN and Inf: an error, leave the sample out, or use the entries that were observed.
    preprocess : callable, optional
        A function of a batch ``(n, d_1, ..., d_k)`` that gives a batch of the same shape, applied to all samples.
    random_state : int, Generator, RandomState or None
        Seed of the flips; the estimate of least squares does not depend on it.
    verbose : int
        0 is silent, 1 says which solver and why, 2 every round.

    Attributes
    ----------
    components_ : list of arrays ``(rows, d_m)``, one per axis
        Unit vectors, the strongest component first; of q covariates, ``n_components`` rows for each (``effects_``).
        The largest entry of every vector is positive, but for the last axis, which takes the sign that is left.
    strengths_, strength_intervals_ : arrays ``(rows,)``, ``(rows, 2)``
        Strength of every component, without the bias of a fit, and its confidence interval.
    standard_errors_ : list of arrays like ``components_``, of every entry; NaN where a method has none
    p_values_, significant_ : arrays ``(rows,)``
        ``p_values_[c]`` is that of there being at least c + 1 components (of an effect); and whether it is at most
        ``1 - confidence``.
    n_proven_ : int
        How many rows are proven.
    entry_p_values_ : array ``(d_1, ..., d_k)``
        Family-wise p of every entry; with q covariates, ``(q, d_1, ..., d_k)``; of more than two labels, the least of
        their contrasts.  ``None`` where it is not known.
    null_distribution_ : array ``(rows, n_resamples)``
        What flips gave for the statistic of every component.
    verdict_, found_ : Verdict, bool
        "signal", "no signal" or "not tested"; and whether it is the first.  A signal may be seen by a whitened
        statistic alone: then no row of ``significant_`` is true.
    rank_one_share_ : float
        Share of the whole estimate, its noise included, that its components are together.
    explained_variance_, explained_variance_ratio_ : arrays ``(rows,)``
        Of ``target="variance"``, as in scikit-learn's PCA; else NaN.
    effects_ : list of str, what every row is the effect of
    label_amplitudes_ : array ``(rows, K)``, of more than two labels
    observed_rates_ : list of arrays ``(d_m,)``, share of every slice that was observed
    n_samples_seen_, n_skipped_ : int
    sample_labels_ : array ``(n,)`` or None
        Labels of the samples that ``fit`` was given: the index of a frame, the coordinate of a ``DataArray``, the
        samples of a long table.
    n_features_in_, shape_in_ : int, tuple of int
        Entries of a sample, and its shape.
    solver_, solver_reason_ : str
    result_ : Result
        All of this and more: ``save``, ``summary``, ``plot``, ``report``, ``to_xarray``, ``methods``.

    Examples
    --------
    >>> import tpca
    >>> truth = tpca.SpikedTensor.random((6, 5, 4), strength=2.0, random_state=1)
    >>> X = next(iter(truth.stream(random_state=2, batch_size=500)))
    >>> pca = tpca.TensorPCA(random_state=0).fit(X)
    >>> bool(min(truth.overlaps(pca.components_)) > 0.95)
    True
    """

    shape_in_: tuple[int, ...]
    solver_: str
    solver_reason_: str
    _feed: Feed | None
    _looks: int  # how often the test of samples that are handed in was looked at
    _result: Result | None
    _solver_advice: str  # why it is not the usual solver, in a line

    def __init__(
        self,
        n_components: int | str = 1,
        *,
        target: str = "mean",
        solver: Any = "auto",
        confidence: float = 0.95,
        n_resamples: int | str = "auto",
        whiten: str | bool | None = "auto",
        dependence: str | int | None = "auto",
        memory_limit: str | float | None = None,
        max_samples: int | None = None,
        nan_policy: str = "raise",
        preprocess: Callable[[Any], Any] | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.target = target
        self.solver = solver
        self.confidence = confidence
        self.n_resamples = n_resamples
        self.whiten = whiten
        self.dependence = dependence
        self.memory_limit = memory_limit
        self.max_samples = max_samples
        self.nan_policy = nan_policy
        self.preprocess = preprocess
        self.random_state = random_state
        self.verbose = verbose

    # Fitting ----------------------------------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        nuisance: Any = None,
        sample_weight: Any = None,
        groups: Any = None,
        dim: str | int | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Fit all samples of ``X``.

        Parameters
        ----------
        X
            An array ``(n, d_1, ..., d_k)``, a path, an iterable, a stream, or an engine.  A Dask array is worked on by
            the workers of the active Dask client, if there is one.
        y
            For ``target="effect"``: a number for every sample (dose, time), two labels (the effect is the second in
            sorted order less the first), more labels (the pattern that separates them most), or columns ``(n, q)``,
            each a covariate with components and a test of its own, the others being nuisances.  Of MNE's epochs: the
            name of a column of their metadata; if nothing is given, the names of their events.
        nuisance
            Columns ``(n, p)`` of numbers that the samples may follow, too; their effects are taken out.
        sample_weight
            How much every sample counts; only ratios matter.
        groups
            A label for every sample (subject, session): groups, not samples, are then the independent units.

            Where the samples have labels, as the index of a frame or a coordinate along their axis, and ``y``,
            ``nuisance``, ``sample_weight`` or ``groups`` have such labels, too, these are matched by label: the same
            labels in another order are put in the order of the samples, and other labels are refused.
        dim
            The axis along which the samples lie, by name or number; by default the first.
        checkpoint
            A folder.  A fit that was stopped goes on from what is there, if data and options are the same.
        """
        seed = seed_from(self.random_state, checkpoint)
        data = opened(X, None, nan_policy=self.nan_policy, dim=dim)
        if is_epochs(X) and self.target == "effect":
            y = labels_of_epochs(X, y)
        known = {"y": y, "nuisance": nuisance, "sample_weight": sample_weight, "groups": groups}
        if data.labels is not None:
            known = {name: samples_first(values, data.labels.sample) for name, values in known.items()}
        check_axis(X, data, dim, **known)
        known, advice = aligned_with(labels_of_samples(X, data.labels), **known)
        self._fit(data, seed, tuple(known.values()), dim, {"checkpoint": checkpoint})
        self.result_.advice.extend(advice)
        return self

    def _fit(
        self,
        data: Stream | Engine,
        seed: int,
        given: tuple[Any, ...],
        dim: str | int | None = None,
        keeping: dict[str, Any] | None = None,
        callbacks: Sequence[Any] = (),
    ) -> Self:
        """Fit data that are open; ``keeping`` are the options of checkpoints."""
        data = data if self.preprocess is None else preprocessed_data(data, self.preprocess)
        ignored = given[0] is not None and self.target == "mean"
        design = read_design(self.target, data.length, None if ignored else given[0], *given[1:])
        kept = {name: value for name, value in (keeping or {}).items() if value is not None}
        if "checkpoint" in kept:
            kept.setdefault("resume", "auto")
        solver = self._solver(data, design, {"random_state": seed, "callbacks": callbacks, **kept})
        estimate = solver.run(data) if design.plain else solver.run(data, design)
        self._feed, self._dim, self._design = None, dim, design
        self.shape_in_ = tuple(data.dims)
        self.n_features_in_ = math.prod(self.shape_in_)
        self._result = self._result_of(estimate)
        if ignored:
            told = "y was given, and target='mean' does not use it. For what follows y, use target='effect'."
            self._result.advice.append(told)
        return self

    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        *,
        classes: Sequence[Any] | None = None,
        nuisance: Any = None,
        sample_weight: Any = None,
        groups: Any = None,
    ) -> Self:
        """Take one more batch ``(n, d_1, ..., d_k)``; one pass, no sample is kept.

        The attributes say what is known so far, worked out when they are looked at.  Look once: each further look at a
        test is another chance of a false alarm (``solver="race"`` may be looked at after every batch).  Labels need
        ``classes`` in the first call, as in scikit-learn.

        A batch counts whole or not at all.  Ctrl-C waits for the end of a batch and is then a
        :class:`~tpca.errors.RunInterrupted` that says so.  After an error in the middle of one, or a second Ctrl-C, the
        estimator refuses to go on; ``fit`` starts afresh.
        """
        feed: Feed | None = getattr(self, "_feed", None)
        dims = None if feed is None else feed.engine.dims
        if feed is not None:
            feed.check_whole()
        stream = handed(X, dims, self.nan_policy)
        stream = stream if self.preprocess is None else preprocessed_data(stream, self.preprocess)
        if feed is not None:
            self._check_like_before(feed, stream)
        batches = checked_batches(stream)
        n_samples = sum(len(batch) + batch.dropped for batch in batches)
        before: Design | None = getattr(self, "_design", None) if feed is not None else None
        labels = tuple(sorted(str(one) for one in classes)) if classes is not None else ()
        known = {"y": y if self.target == "effect" else None, "nuisance": nuisance}
        known |= {"sample_weight": sample_weight, "groups": groups}
        known, _ = aligned_with(labels_of_samples(X, stream.labels), **known)
        design = read_design(self.target, n_samples, **known, like=before, labels=labels, part=True)
        design = design if before is None else before.followed_by(design)
        is_first = feed is None
        if feed is None:
            feed = self._new_feed(stream, design)
        with feed.whole_batch():
            if not is_first:
                feed.know(design)
            feed.take(batches)
            self._feed = feed
            self._design = design
            self._result = None
            self._dim = None
            self.shape_in_ = stream.dims
            self.n_features_in_ = math.prod(stream.dims)
        return self

    def _new_feed(self, stream: Stream, design: Design) -> Feed:
        """A run that takes batches like those of the stream, the first ones."""
        solver = self._solver(stream, design, {"random_state": seed_from(self.random_state)}, pushed=True)
        if not hasattr(solver, "start"):
            raise SolverError(f"partial_fit needs solver='least_squares', 'race' or 'auto', got {self.solver!r}.")
        start = solver.start
        if isinstance(solver, LeastSquares):
            start = functools.partial(start, design=design, pushed=True)
        self._form = form_of(stream)
        self._looks = 0
        return Feed(start, stream.dims, without_samples(stream.labels), stream.partial)

    def _check_like_before(self, feed: Feed, stream: Stream) -> None:
        """Refuse batches that are not like those before."""
        if stream.dims != feed.engine.dims:
            raise SampleError(
                f"samples must have shape {feed.engine.dims} as in the first batch, got {stream.dims}; call fit "
                "to start afresh."
            )
        check_labels(feed.engine.labels, stream.labels, "as in the first batch")
        if form_of(stream) != self._form:
            raise SampleError(
                f"all batches share one dtype and one form, expected {self._form}, got {form_of(stream)}; convert "
                "them to one."
            )

    def _solver(self, data: Data, design: Design, known: dict[str, Any], pushed: bool = False) -> Any:
        """The solver for these samples, which takes what is known of them; says which, and why."""
        given = {name: getattr(self, name) for name in OPTIONS}
        given["whiten"] = None if self.whiten is False else self.whiten
        defaults = {name: type(self)().get_params()[name] for name in OPTIONS}
        asked = {name for name in OPTIONS if not same(given[name], defaults[name])}
        if self.verbose:
            known = {**known, "callbacks": (*known.get("callbacks", ()), Lines(self.verbose))}
        choice = build_solver(self.solver, self.target, data, design, given, asked, known, pushed)
        solver = choice.solver
        self.solver_ = getattr(solver, "name", type(solver).__name__)
        self.solver_reason_ = choice.reason
        self._solver_advice = choice.advice
        count = getattr(solver, "n_components", 1)
        self._wanted = 1 if count == "auto" else int(count)
        if self.verbose:
            print_line(f"solver {self.solver_}: {choice.reason}")
        effect = isinstance(solver, RaceSolver) and design.columns is not None and not pushed
        if not (design.plain or effect or isinstance(solver, LeastSquares)):
            raise SolverError(
                f"y, sample_weight and groups need least squares, and the solver is {self.solver_!r} "
                f"({choice.reason}); use solver='least_squares'."
            )
        return solver

    # What was found ---------------------------------------------------------------------------------------------------

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "shape_in_")

    @property
    def result_(self) -> Result:
        """All that is known, to save, show and draw; of samples that are handed in, worked out when it is looked at."""
        if not hasattr(self, "shape_in_"):
            raise not_fitted(self)
        if self._feed is not None:
            self._feed.check_whole()
        if self._result is None:
            assert self._feed is not None
            self._result = self._result_of(self._feed.estimate())
            self._looks += 1
            if self._looks > 1 and self.solver_ == LeastSquares.name:
                level = (1 - self.confidence) / self._looks
                self._result.advice.append(
                    f"Tested {self._looks} times while samples came in, and p is for one look: believe p ≤ {level:.2g} "
                    "(Bonferroni), or use solver='race', whose evidence holds however often you look."
                )
        return self._result

    def _result_of(self, estimate: Estimate) -> Result:
        """With as many components as were asked for: those that a solver has not found are zeros."""
        zeros = tuple(np.zeros(d) for d in self.shape_in_)
        p = math.nan if estimate.verdict is Verdict.NOT_TESTED else 1.0
        nothing = Component(zeros, 0.0, strength_interval=(0.0, 0.0), standard_errors=zeros, p_value=p)
        missing = max(0, self._wanted - len(estimate.components))
        filled = dataclasses.replace(estimate, components=(*estimate.components, *[nothing] * missing))
        settings: dict[str, Any] = {name: getattr(self, name) for name in (*OPTIONS, "nan_policy", "preprocess")}
        settings |= {"solver": self.solver_, "solver_reason": self.solver_reason_, "target": self.target}
        settings |= {"dim": self._dim, "classes": list(self._design.labels)}
        result = Result.of(filled, f"{estimate.n_samples:,} samples", settings)
        result.preprocess = self.preprocess
        if self._solver_advice:
            result.advice.append(self._solver_advice)
        return result

    components_: list[Array] = of_result("vectors")
    standard_errors_: list[Array] = of_result("errors")
    strengths_: Array = of_components("strength")
    entry_p_values_: Array | None = of_result("entry_p_values")
    null_distribution_: Array | None = of_result("null_distribution")
    explained_variance_: Array = of_components("variance")
    explained_variance_ratio_: Array = of_components("variance_ratio")

    n_proven_: int = of_result("n_proven")

    @property
    def strength_intervals_(self) -> Array:
        """Lower and upper end of the confidence interval of every strength; NaN where the method has none."""
        return np.array([c.strength_interval or (math.nan, math.nan) for c in self.result_.components])

    @property
    def e_value_(self) -> float:
        """Evidence of the race, at its largest; NaN of other solvers."""
        return self.result_.components[0].e_value

    @property
    def effects_(self) -> list[str]:
        """What every component is the effect of: a covariate, one label less another, or labels; empty for the mean."""
        return [c.effect for c in self.result_.components]

    @property
    def label_amplitudes_(self) -> Array | None:
        """Amplitude ``(rows, K)`` of every label, in sorted order, of more than two; they average to zero."""
        each = [list(c.label_amplitudes.values()) for c in self.result_.components if c.label_amplitudes is not None]
        return np.array(each) if each else None

    @property
    def rank_one_share_(self) -> float:
        """Share 1 - |D - fit|²/|D|² of the whole estimate that its components are; NaN where it is not known."""
        return next(iter(self.result_.rank_one_shares), math.nan)

    @property
    def observed_rates_(self) -> list[Array]:
        """Share of the entries of every slice that was observed, ``(d_m,)`` for every axis m."""
        return self.result_.observed or [np.ones(d) for d in self.shape_in_]

    # What samples show ------------------------------------------------------------------------------------------------

    def transform(self, X: Any) -> Any:
        """Scores ``(n, rows)``: every sample contracted with its one component; of several, least squares.

        Several components of the mean, or of an effect, explain a sample together: its scores minimise
        ``|T - sum_c s_c v_1c ⊗ ... ⊗ v_kc|`` over the entries that were observed.  Of variation every sample is
        contracted with each component by itself.

        There is a row for every sample, of NaN where ``nan_policy="omit"`` leaves the sample out.  Of samples on a
        device the scores are an array of the same library there; of a ``DataArray``, a ``DataArray`` with the
        coordinates of its samples.  Of a data frame they are an array, or after ``set_output(transform="pandas")`` a
        frame with its index.
        """
        return self.result_.transform(X)

    def inverse_transform(self, X: Any) -> Any:
        """Tensors ``(n, d_1, ..., d_k)`` from scores ``(n, rows)``: ``sum_c X[:, c] v_1c ⊗ ... ⊗ v_kc``."""
        count = self._n_features_out
        scores = X if is_device_array(X) else np.asarray(X, dtype=np.float64)
        if scores.ndim != 2 or scores.shape[1] != count:
            raise SampleError(f"scores must have shape (n, {count}), got {tuple(scores.shape)}.")
        rays = [functools.reduce(np.multiply.outer, vectors) for vectors in zip(*self.components_, strict=True)]
        whole = np.reshape(rays, (len(rays), *self.shape_in_))
        return namespace(scores).tensordot(scores, to_device(whole, scores), axes=1)

    def score(self, X: Any, y: Any = None, *, nuisance: Any = None) -> Score:
        """What samples show of the components, summed over these, with its standard error.

        Of the mean, the mean score; of an effect, the slope of scores on ``y`` beside ``nuisance``; of variation, the
        variance of the scores.  Its ``n_samples`` counts the samples used, ``n_skipped`` those left out.
        """
        return self.result_.score(X, y, nuisance=nuisance)

    @property
    def _n_features_out(self) -> int:
        return len(self.result_.components)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = True
        tags.input_tags.three_d_array = True
        tags.input_tags.allow_nan = self.nan_policy != "raise"
        tags.array_api_support = True
        return tags
