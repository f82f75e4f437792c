"""TensorPCA: the solvers with the manners of scikit-learn."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Self

from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin

from tpca.engines import Engine
from tpca.estimators.asking import Lines, say, seed_from, solver_for
from tpca.estimators.effects import fit_effects
from tpca.estimators.handed import conditions, effect_options
from tpca.estimators.opening import opened
from tpca.estimators.parts import TakesParts
from tpca.estimators.showing import ShowsComponents
from tpca.estimators.units import merged
from tpca.solvers.base import Callback, Solver, run_on_data
from tpca.streams import Stream
from tpca.streams.axes import check_axis


class TensorPCA(ShowsComponents, TakesParts, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Principal components of noisy tensors: the rank-one part that all samples share.

    Every sample ``X[i]`` is taken as ``strength * v_1 ⊗ ... ⊗ v_k + noise``; with ``target="effect"`` as
    ``B + y[i] * strength * v_1 ⊗ ... ⊗ v_k + noise``, with any background ``B``, which cancels; with
    ``target="variance"`` as ``B + a[i] * v_1 ⊗ ... ⊗ v_k + noise`` with unknown amplitudes ``a`` of any sign.

    An option that means nothing to the solver, to ``partial_fit`` or to a stream that is open already is refused.

    Parameters
    ----------
    solver : {"auto", "mean", "race", "paper"} or a solver
        ``"auto"`` fits the mean of all samples where it can be held (:class:`~tpca.MeanSolver`), and is the race where
        it cannot (:class:`~tpca.RaceSolver`); ``"paper"`` is the published algorithm at strength 1 (give a
        :class:`~tpca.PaperSolver` for another); anything with ``run(stream) -> Recovery`` will do.
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
        look with the mean, for any number of looks with the race.  Of several covariates it holds for each by itself.
    whiten : {"auto", "modes", None}
        Whether the noise is whitened, mode by mode: where it is not white, always, or never.
    clip : float, "auto" or None
        Bound on entries in standard deviations of their middle part; where tails are heavy, always, or never.
    groups : int, optional
        So many samples in a row belong together and count as one observation; by default that is found out.
    center_modes : sequence of str or int
        Modes, by name or number, along which all vectors sum to zero: what is constant along them, an offset or a
        reference, is left out of samples, noise and degrees of freedom alike.
    project : dict, optional
        For modes, by name or number, vectors as rows which all vectors of that mode are orthogonal to.
    target : {"mean", "effect", "variance"}
        What is looked for: what all samples share, whatever ``y`` is; what follows ``y``; or what varies from sample to
        sample (:class:`~tpca.solvers.variance.solver.VarianceSolver`), of which the mean says nothing.
    block_size : int, optional
        Samples of a block, within which the background of an effect cancels; by default what leaves enough blocks.
    nan_policy : {"raise", "omit", "zero"}
        What to do about NaN and Inf, see :func:`tpca.open_stream`.
    shuffle : bool
        Read stored data in random order: for sorted data.  Refused where neighbours are alike, which it would hide.
    items : {"auto", "batches", "samples"}
        What items of an iterable or files of a folder are, where shapes do not tell, see :func:`tpca.open_stream`.
    checkpoint, checkpoint_every, resume
        Folder for checkpoints of ``fit``, seconds between them, and whether to go on from the last one.

    Attributes
    ----------
    components_ : list of arrays ``(n_components_, d_m)``, one per mode
        Unit vectors as rows, the strongest component first.  The largest entry of every vector is positive, except in
        the last mode, whose sign makes the strength positive.
    strengths_ : array ``(n_components_,)``
        λ of every component; of variation, the standard deviation of its amplitudes without that of noise.
    strength_intervals_ : array ``(n_components_, 2)``
        Confidence intervals of the strengths, at ``confidence``.
    explained_variance_, explained_variance_ratio_ : array ``(n_components_,)``
        Of ``target="variance"``: variance along every component, noise included, and its share of all there is.
    standard_errors_ : list of arrays like ``components_``
        NaN, as the intervals, of a method that has none.
    p_values_ : array ``(n_components_,)``
        At most this share of fits to pure noise come as far; NaN where that is not known.
    noise_variance_ : float
        σ² of one entry of one sample.
    observed_rates_ : list of arrays ``(d_m,)``
        Share of the entries of every slice that was observed; 0 where nothing is known.
    noise_covariances_ : list of arrays ``(d_m, d_m)``
        Covariance of the noise along every mode, of mean variance 1.
    verdict_, found_ : Verdict, bool
        ``"signal"``, ``"no signal"`` or ``"not tested"``: proven, not proven, or fitted by a method without a test;
        and whether it is the first.
    n_components_, n_samples_seen_, n_skipped_ : int
        Components (proven; without a test the one there is; 0 after ``"no signal"``); samples used; left out.
    shape_in_ : tuple of int, the shape of one sample
    solver_, solver_reason_ : str, the solver that was used, and why
    stop_reason_, history_ : StopReason, list of dict
    effects_ : list of str
        What every component is the effect of; ``recoveries_`` has what was found for every covariate.
    label_amplitudes_ : array ``(n_components_, K)``, of more than two labels
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
        center_modes: Sequence[str | int] = (),
        project: Mapping[str | int, Any] | None = None,
        target: str = "mean",
        block_size: int | None = None,
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
        self.center_modes = center_modes
        self.project = project
        self.target = target
        self.block_size = block_size
        self.nan_policy = nan_policy
        self.shuffle = shuffle
        self.items = items
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every
        self.resume = resume

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        sample_dim: str | int | None = None,
        nuisance: Any = None,
        sample_weight: Any = None,
        groups: Any = None,
    ) -> Self:
        """Fit all of ``X``: an array ``(n, d_1, ..., d_k)``, a path, an iterable, a stream, or an engine.

        ``sample_dim`` names the axis of the samples, or gives its number; by default it is the first.
        A Dask array is worked on where it is, by the workers of the active Dask client, if there is one; give
        ``DaskEngine(client, path)`` to have workers read files.

        Parameters
        ----------
        X
            The samples.
        y
            For ``target="effect"``: a number for every sample (dose, time), two labels (the effect is the second in
            sorted order less the first), more labels (the pattern that separates them most), or columns ``(n, q)``,
            each a covariate with components and a test of its own, the others being nuisances.
        nuisance
            Columns ``(n, p)`` of numbers that the samples may follow, too; their effects are taken out.
        sample_weight
            How much every sample counts.
        groups
            A label for every sample (subject, session): groups, not samples, are then what the evidence is made of.
        """
        seed = self._seed()
        options = {"items": self.items, "shuffle": self.shuffle, "nan_policy": self.nan_policy}
        data = opened(X, None, random_state=seed, sample_dim=sample_dim, **options)
        check_axis(X, data, sample_dim, y=y, nuisance=nuisance, sample_weight=sample_weight, groups=groups)
        asked = effect_options(self)
        told = conditions(self.target, data.length, y, nuisance, sample_weight, groups)
        self._refuse_elsewhere(data, told)
        if told is None:
            effects, recovery = [], run_on_data(self._solver(data, seed), data)
        else:
            effects = fit_effects(data, told, asked, self._solver_of_effects(data, seed))
            recovery = merged([one.recovery for one in effects])
        self._handed, self._effects = None, effects
        self._recovery, self.shape_in_, self._sample_dim = recovery, data.dims, sample_dim
        self._warn()
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        tags.input_tags.allow_nan = self.nan_policy != "raise"
        tags.array_api_support = True
        return tags

    def _solver(self, data: Stream | Engine, seed: int, known: Mapping[str, Any] | None = None) -> Solver:
        """The solver for these samples; says which, and why."""
        callbacks = (*(self.callbacks or ()), *([Lines(self.verbose)] if self.verbose else []))
        solver, choice = solver_for(self, data, {"random_state": seed, "callbacks": callbacks, **(known or {})})
        self.solver_, self.solver_reason_ = choice.solver, choice.reason
        if self.verbose:
            say(f"solver {choice.solver}: {choice.reason}")
        return solver

    def _seed(self) -> int:
        return seed_from(self.random_state, self.checkpoint if self.resume else None)
