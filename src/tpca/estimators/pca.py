"""TensorPCA: the solvers with the manners of scikit-learn."""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning

from tpca.engines import Engine
from tpca.errors import SampleError
from tpca.estimators.learnt import LearntComponents
from tpca.estimators.lines import Lines, say
from tpca.estimators.opening import HandedIn, handed, opened
from tpca.estimators.score import Score, reward_score
from tpca.estimators.seeds import seed_from
from tpca.estimators.solver import solver_for
from tpca.solvers.base import Callback, Solver
from tpca.solvers.loop import run_on_data
from tpca.solvers.options import refuse_idle
from tpca.solvers.recovery import StopReason
from tpca.streams import Stream
from tpca.tensors import Rewards
from tpca.tensors.blocks import Array


class TensorPCA(LearntComponents, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Principal components of noisy tensors: the rank-one part that all samples share.

    Every sample ``X[i]`` is taken as ``strength * v_1 ⊗ ... ⊗ v_k + noise``.

    An option that means nothing to the solver, to ``partial_fit`` (``shuffle`` and checkpoints) or to a stream that is
    open already (``shuffle``, ``nan_policy``) is refused.

    Parameters
    ----------
    solver : {"auto", "mean", "race", "paper"} or a solver
        ``"auto"`` fits the mean of all samples where it can be held (:class:`~tpca.MeanSolver`, the most accurate), and
        is the race where it cannot (:class:`~tpca.RaceSolver`); ``"paper"`` is the published algorithm at strength 1
        (give a :class:`~tpca.PaperSolver` for another); anything with ``run(stream) -> Recovery`` will do.
    max_samples : int, optional
        Most samples to use.
    max_passes : int or "auto"
        Most passes of the race over data that can be read again; "auto" allows ten where they can help.
    memory_limit : int or str, optional
        Bound on the solver's state, in bytes or as ``"64MB"``.
    tol : float, optional
        Root mean squared error of a vector at which to stop, which takes the race; by default all samples are used.
    n_components : int
        Rank-one components to look for.
    random_state : int, Generator, RandomState or None
        Seed of the solver; ``None`` takes a new one for every fit.
    callbacks : sequence of callables, optional
        Called after every round with a dict that says how far the solver is.
    verbose : int
        0 is silent, 1 says which solver and why, and writes a line whenever the samples have doubled, 2 every round.
    confidence : float
        At most ``1 - confidence`` of all fits on pure noise claim a signal.  After ``partial_fit`` that holds for one
        look with the mean, for any number of looks with the race.
    whiten : {"auto", "modes", None}
        Whether the noise is whitened, mode by mode: where it is not white, always, or never.
    clip : float, "auto" or None
        Bound on entries in standard deviations of their middle part; where tails are heavy, always, or never.
    groups : int, optional
        So many samples in a row belong together and count as one observation; by default that is found out.
    nan_policy : {"raise", "omit", "zero"}
        What to do about NaN and Inf, see :func:`tpca.open_stream`.
    shuffle : bool
        Read stored data in random order: for data that are sorted.  Refused where neighbouring samples are alike, which
        it would hide.
    items : {"auto", "batches", "samples"}
        What the items of a list or iterable, the files of a folder, and what ``partial_fit`` takes first are; needed
        only where shapes do not tell, see :func:`tpca.open_stream`.
    checkpoint, checkpoint_every, resume
        Folder for checkpoints of ``fit``, seconds between them, and whether to go on from the last one.

    Attributes
    ----------
    components_ : list of arrays ``(n_components_, d_m)``, one per mode
        Unit vectors as rows, the strongest component first.  The largest entry of every vector is positive, except in
        the last mode, whose sign makes the strength positive.
    strengths_ : array ``(n_components_,)``
        λ of every component.
    strength_intervals_ : array ``(n_components_, 2)``
        Confidence intervals of the strengths, at ``confidence``.
    standard_errors_ : list of arrays like ``components_``
        NaN, as the intervals, of a method that has none.
    p_values_ : array ``(n_components_,)``
        At most this share of fits to pure noise come as far; NaN where that is not known.
    noise_variance_ : float
        σ² of one entry of one sample.
    noise_covariances_ : list of arrays ``(d_m, d_m)``
        Covariance of the noise along every mode, of mean variance 1.
    verdict_ : Verdict
        ``"signal"``, ``"no signal"`` or ``"not tested"``: proven, looked for and not proven, or fitted by a method that
        has no test (the paper's algorithm, baselines).
    n_components_, n_samples_seen_, n_skipped_ : int
        Components (proven; without a test the one there is; 0 after ``"no signal"``); samples used; left out.
    shape_in_ : tuple of int
        Shape of one sample.
    solver_, solver_reason_ : str
        The solver that was used, and why.
    stop_reason_, history_ : StopReason, list of dict
    recovery_ : Recovery
        All of this and more; after ``"no signal"`` also a guess, and how strong a signal may be hidden
        (``recovery_.strength_interval``).

    Examples
    --------
    >>> import tpca
    >>> truth = tpca.SpikedTensor.random((6, 5, 4), strength=2.0, random_state=1)
    >>> X = next(iter(truth.stream(random_state=2, batch_size=500)))
    >>> pca = tpca.TensorPCA(random_state=0).fit(X)
    >>> bool(min(truth.overlaps(pca.components_)) > 0.95)
    True
    """

    def __init__(
        self,
        solver: Any = "auto",
        max_samples: int | None = None,
        max_passes: int | str = "auto",
        memory_limit: str | float | None = None,
        tol: float | None = None,
        n_components: int = 1,
        random_state: Any = None,
        callbacks: Sequence[Callback] | None = None,
        verbose: int = 0,
        *,
        confidence: float = 0.95,
        whiten: str | None = "auto",
        groups: int | None = None,
        clip: float | str | None = "auto",
        nan_policy: str = "raise",
        shuffle: bool = False,
        items: str = "auto",
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: float = 60.0,
        resume: bool = False,
    ) -> None:
        self.solver = solver
        self.max_samples = max_samples
        self.max_passes = max_passes
        self.memory_limit = memory_limit
        self.tol = tol
        self.n_components = n_components
        self.random_state = random_state
        self.callbacks = callbacks
        self.verbose = verbose
        self.confidence = confidence
        self.whiten = whiten
        self.groups = groups
        self.clip = clip
        self.nan_policy = nan_policy
        self.shuffle = shuffle
        self.items = items
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every
        self.resume = resume

    def fit(self, X: Any, y: Any = None, *, sample_dim: str | int | None = None) -> Self:  # noqa: ARG002
        """Fit all of ``X``: an array ``(n, d_1, ..., d_k)``, a path, an iterable, a stream, or an engine.

        ``sample_dim`` names the axis of the samples, or gives its number; by default it is the first.
        A Dask array is worked on where it is, by the workers of the active Dask client, if there is one; give
        ``DaskEngine(client, path)`` to have workers read files.
        """
        seed = self._seed()
        options = {"items": self.items, "shuffle": self.shuffle, "nan_policy": self.nan_policy}
        data = opened(X, None, random_state=seed, sample_dim=sample_dim, **options)
        solver = self._solver(data, seed)
        self._recovery = self._handed = None
        self._recovery, self.shape_in_, self._sample_dim = run_on_data(solver, data), data.dims, sample_dim
        self._warn()
        return self

    def partial_fit(self, X: Any, y: Any = None, *, sample_dim: str | int | None = None) -> Self:  # noqa: ARG002
        """Take one more batch ``(n, d_1, ..., d_k)`` of any size, or one sample; one pass, no sample is kept.

        The same as ``fit`` on an iterable of the same batches.  The attributes say what is known so far, worked out
        when they are looked at.  The first ``X`` needs ``items`` if it has three dimensions or more and could be
        either; later ones show by their shape which they are.
        """
        if sample_dim is None and self._handed is not None and self._handed.take_plain(X, self.nan_policy):
            self._recovery = None
            return self
        known = None if self._handed is None else self._handed.dims
        items: Any = self.items if known is None else "auto"
        batches = handed(X, known, items, self.nan_policy, sample_dim)
        if self._handed is None:
            refuse_idle(self, "fed", "means nothing to partial_fit; leave it out, or use fit")
            self._handed, self.shape_in_ = HandedIn(self._solver(batches, self._seed()), batches), batches.dims
        self._handed.take(batches, X)
        self._recovery = None
        return self

    def transform(self, X: Any, *, sample_dim: str | int | None = None) -> Array:
        """Scores ``(n, n_components_)``: the contraction of every sample with the components found, maybe none.

        ``X`` is whatever :meth:`fit` takes, and read by whom it would be there: also by the workers of a Dask client.
        ``sample_dim`` is that of :meth:`fit` if it is not given.  Names that differ from those fitted are refused.
        """
        components = self.components_
        return self._reader(X, sample_dim).reduce(Rewards(components)).rewards

    def inverse_transform(self, X: Any) -> NDArray[Any]:
        """Tensors ``(n, d_1, ..., d_k)`` from scores ``(n, n_components_)``: ``sum_c X[:, c] v_1c ⊗ ... ⊗ v_kc``."""
        scores = np.asarray(X, dtype=np.float64)
        if scores.ndim != 2 or scores.shape[1] != self.n_components_:
            raise SampleError(f"scores must have shape (n, {self.n_components_}), got {scores.shape}.")
        rays = [functools.reduce(np.multiply.outer, vectors) for vectors in zip(*self.components_, strict=True)]
        return np.tensordot(scores, np.reshape(rays, (len(rays), *self.shape_in_)), axes=1)

    def score(self, X: Any, y: Any = None, *, sample_dim: str | int | None = None) -> Score:  # noqa: ARG002
        """Mean reward of samples that were not fitted, with its standard error: the strength that they show.

        With several components, the sum over them; exactly 0 if no component was found.
        """
        components = self.components_
        return reward_score(self._reader(X, sample_dim), components)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        tags.input_tags.allow_nan = self.nan_policy != "raise"
        return tags

    def _solver(self, data: Stream | Engine, seed: int) -> Solver:
        """The solver for these samples; says which, and why."""
        callbacks = (*(self.callbacks or ()), *([Lines(self.verbose)] if self.verbose else []))
        solver, choice = solver_for(self, data, {"random_state": seed, "callbacks": callbacks})
        self.solver_, self.solver_reason_ = choice.solver, choice.reason
        if self.verbose:
            say(f"solver {choice.solver}: {choice.reason}")
        return solver

    def _seed(self) -> int:
        return seed_from(self.random_state, self.checkpoint if self.resume else None)

    def _warn(self) -> None:
        recovery = self.recovery_
        if recovery.stop_reason in (StopReason.NO_SIGNAL, StopReason.NOT_ACCURATE, StopReason.STREAM_ENDED_EARLY):
            warnings.warn(recovery.advice, ConvergenceWarning, stacklevel=3)
