"""TensorPCA: the solvers with the manners of scikit-learn."""

from __future__ import annotations

import functools
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from tpca.checkpoint import Checkpoints
from tpca.engines import (
    DaskEngine,
    Engine,
    LocalEngine,
    is_engine,
    mean_and_error,
    on_active_cluster,
    open_engine,
    reward_pieces,
)
from tpca.errors import SampleError, SolverError
from tpca.integers import check_integer
from tpca.solvers.choice import Choice, choose_for
from tpca.solvers.loop import Feed, Run, run_on_data
from tpca.solvers.mean.run import MeanRun
from tpca.solvers.mean.solver import MeanSolver
from tpca.solvers.options import SOLVERS, refuse_idle
from tpca.solvers.paper.solver import PaperSolver
from tpca.solvers.race.components import ComponentsRun
from tpca.solvers.race.solver import RaceSolver
from tpca.solvers.rank_one import oriented
from tpca.solvers.recovery import Recovery, StopReason, Verdict
from tpca.streams import Stream
from tpca.streams.protocol import Passing
from tpca.streams.sources import check_opened, open_known
from tpca.tensors import Rewards
from tpca.tensors.blocks import Array

Callback = Callable[[dict[str, Any]], None]


class Score(float):
    """A mean reward, with its standard error: a float that also has ``standard_error``."""

    standard_error: float

    def __new__(cls, value: float, standard_error: float) -> Self:
        """The mean ``value`` and its ``standard_error``."""
        score = super().__new__(cls, value)
        score.standard_error = standard_error
        return score

    def __repr__(self) -> str:
        return f"{float(self):.6g} ± {self.standard_error:.2g}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (Score, (float(self), self.standard_error))


def seed_from(random_state: Any) -> int:
    """A seed from whatever scikit-learn calls a random state; ``None`` gives a new one every time."""
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31))
    if random_state is None or isinstance(random_state, np.random.Generator):
        return int(np.random.default_rng(random_state).integers(2**31))
    return check_integer("random_state", random_state, 0, instead=", a random generator or None")


class TensorPCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Principal component of noisy tensors: the rank-one part that all samples share.

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
        Most passes over data that can be read again; "auto" allows ten where they can help.  For the race, and for
        ``"auto"``, whose choice may be the mean, which needs one.
    memory : int or str, optional
        Bound on the solver's state, in bytes or as ``"64MB"``.
    tolerance : float, optional
        Root mean squared error of a component at which to stop, which takes the race; by default all of a finite stream
        is used.
    n_components : int
        Rank-one components to look for.
    random_state : int, Generator, RandomState or None
        Seed of the solver; ``None`` takes a new one for every fit.
    callbacks : sequence of callables, optional
        Called after every round with a dict that says how far the solver is.
    verbose : int
        0 is silent, 1 says which solver and why, and writes a line whenever the samples have doubled, 2 after every
        round.
    confidence : float
        At most ``1 - confidence`` of all fits on pure noise claim a signal.  After ``partial_fit`` that holds for one
        look with the mean, for any number of looks with the race.
    nan_policy : {"raise", "omit", "zero"}
        What to do about NaN and Inf, see :func:`tpca.open_stream`.
    shuffle : bool
        Read stored data in random order: for data that are sorted or drift.
    items : {"auto", "batches", "samples"}
        What the items of a list or iterable, the files of a folder, and what ``partial_fit`` takes first are; needed
        only where shapes do not tell, see :func:`tpca.open_stream`.
    checkpoint, checkpoint_every, resume
        Folder for checkpoints of ``fit``, seconds between them, and whether to go on from the last one.

    Attributes
    ----------
    components_ : list of arrays, one per mode
        Unit vectors: ``components_[i]`` has shape ``(d_i,)``, with ``n_components > 1`` ``(n_components_, d_i)``,
        strongest first.  The largest entry of every vector is positive, except in the last mode, whose sign makes the
        strength positive.
    strength_ : float, or array with ``n_components > 1``
        λ; NaN if no signal was found, and then the components are a guess that proves nothing.
    standard_errors_ : list of arrays like ``components_``, or None
    verdict_ : Verdict
        ``"signal"``, ``"no signal"`` or ``"not tested"``: proven, looked for and not proven, or fitted by a method that
        has no test (the paper's algorithm, baselines).
    n_components_, n_samples_seen_, n_skipped_ : int
        Components (those proven; without a test the one there is; 0 after ``"no signal"``); samples used; samples left
        out.
    shape_in_ : tuple of int
        Shape of one sample.
    solver_, solver_reason_ : str
        The solver that was used, and why.
    stop_reason_ : StopReason
    history_ : list of dict
    recovery_ : Recovery
        All of the above and more, as the solver gave it.

    Examples
    --------
    >>> import tpca
    >>> truth = tpca.SpikedTensor.random((6, 5, 4), strength=2.0, seed=1)
    >>> X = next(iter(truth.stream(seed=2, batch_size=500)))
    >>> pca = tpca.TensorPCA(random_state=0).fit(X)
    >>> bool(min(truth.overlaps(pca.components_)) > 0.95)
    True
    """

    _recovery: Recovery | None = None
    _feed: Feed | None = None
    _run: Run | None = None
    _form: tuple[str, Any]

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
        self.nan_policy = nan_policy
        self.shuffle = shuffle
        self.items = items
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every
        self.resume = resume

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002
        """Fit all of ``X``: an array ``(n, d_1, ..., d_k)``, a path, an iterable, a stream, or an engine.

        A Dask array is worked on where it is, by the workers of the active Dask client, if there is one; give
        ``DaskEngine(client, path)`` to have workers read files.
        """
        seed = self._seed()
        data = self._open(X, seed)
        solver = self._solver(data, seed, partial=False)
        self._forget()
        self._recovery, self.shape_in_ = run_on_data(solver, data), data.dims
        self._warn()
        return self

    def partial_fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002
        """Take one more batch ``(n, d_1, ..., d_k)`` of any size, or one sample; one pass, no sample is kept.

        The same as ``fit`` on an iterable of the same batches.  The attributes say what is known so far, worked out
        when they are looked at.  The first ``X`` needs ``items`` if it has three dimensions or more and could be
        either; later ones show by their shape which they are.
        """
        feed, run = self._feed, self._run
        known = None if feed is None else self.shape_in_
        items: Any = self.items if known is None else "auto"
        batches = open_known(iter([X]), known, items, nan_policy=self.nan_policy)  # type: ignore[arg-type]
        form = (type(batches).__name__, batches.dtype)
        if feed is None or run is None:
            feed, run = self._start(batches)
            self._form = form
        if batches.dims != self.shape_in_:
            raise SampleError(
                f"samples must have shape (n, {', '.join(map(str, self.shape_in_))}) as in the first batch, "
                f"got {np.shape(X)}; call fit to start afresh."
            )
        if form != self._form:
            raise SampleError(
                f"all batches share one dtype and one form, expected {' '.join(map(str, self._form))}, "
                f"got {' '.join(map(str, form))}; "
                "convert them to one."
            )
        feed.take(run, batches)
        self._recovery = None
        return self

    def transform(self, X: Any) -> Array:
        """Scores ``(n, n_components_)``: the contraction of every sample with the components found, maybe none.

        ``X`` is whatever :meth:`fit` takes, and read by whom it would be there: also by the workers of a Dask client.
        """
        found = self._proven()
        return self._reader(X).reduce(Rewards(found)).rewards

    def inverse_transform(self, X: Any) -> NDArray[Any]:
        """Tensors ``(n, d_1, ..., d_k)`` from scores ``(n, n_components_)``: ``sum_c X[:, c] v_1c ⊗ ... ⊗ v_kc``."""
        scores = np.asarray(X, dtype=np.float64)
        if scores.ndim != 2 or scores.shape[1] != self.n_components_:
            raise SampleError(f"scores must have shape (n, {self.n_components_}), got {scores.shape}.")
        rays = [functools.reduce(np.multiply.outer, vectors) for vectors in zip(*self._proven(), strict=True)]
        return np.tensordot(scores, np.reshape(rays, (len(rays), *self.shape_in_)), axes=1)

    def score(self, X: Any, y: Any = None) -> Score:  # noqa: ARG002
        """Mean reward of samples that were not fitted, with its standard error: the strength that they show.

        With several components, the sum over them; exactly 0 if no component was found.
        """
        pieces = reward_pieces(self._reader(X), self._proven())
        mean, error, _ = mean_and_error((piece.sum(axis=1, keepdims=True) for piece in pieces), 1)
        return Score(float(mean[0]), float(error[0]))

    @property
    def recovery_(self) -> Recovery:
        """What the solver gave; after ``partial_fit``, what it would give if the samples ended now."""
        if not self.__sklearn_is_fitted__():
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet; call fit or partial_fit first.")
        if self._recovery is None:
            assert self._feed is not None
            assert self._run is not None
            self._recovery = self._feed.recovery(self._run)
        return self._recovery

    @property
    def components_(self) -> list[Array]:
        """Unit vectors, one array per mode."""
        stacked = self._stacked()
        return stacked if self.n_components > 1 else [vectors[0] for vectors in stacked]

    @property
    def strength_(self) -> Any:
        """λ, one for every component."""
        found = [r.strength for r in self._found()]
        return np.array(found) if self.n_components > 1 else found[0]

    @property
    def standard_errors_(self) -> list[Array] | None:
        """Standard error of every entry of ``components_``; ``None`` unless a signal was proven."""
        each = [r.standard_errors for r in self._found()]
        if any(errors is None for errors in each):
            return None
        stacked = [np.stack(mode) for mode in zip(*each, strict=True)]
        return stacked if self.n_components > 1 else [errors[0] for errors in stacked]

    @property
    def n_components_(self) -> int:
        """Components proven; without a test, those there are; none after "no signal"."""
        return sum(r.verdict is not Verdict.NO_SIGNAL for r in self._found())

    @property
    def n_samples_seen_(self) -> int:
        """Samples used."""
        return max(r.n_samples for r in self._found())

    @property
    def n_skipped_(self) -> int:
        """Samples left out."""
        return self.recovery_.n_skipped

    @property
    def verdict_(self) -> Verdict:
        """Whether a signal was proven, was not, or was never tested for."""
        return self.recovery_.verdict

    @property
    def stop_reason_(self) -> StopReason:
        """Why the fit ended."""
        return self.recovery_.stop_reason

    @property
    def history_(self) -> list[dict[str, Any]]:
        """What happened, round by round."""
        return self.recovery_.history

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    def __sklearn_is_fitted__(self) -> bool:
        return self._recovery is not None or self._feed is not None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        tags.input_tags.allow_nan = self.nan_policy != "raise"
        return tags

    def _found(self) -> tuple[Recovery, ...]:
        return (self.recovery_, *self.recovery_.further)

    def _stacked(self) -> list[Array]:
        """Components of every mode as rows; a single row that is a guess if none was found."""
        each = [oriented(r.vectors) for r in self._found()]
        return [np.stack(mode) for mode in zip(*each, strict=True)]

    def _proven(self) -> list[Array]:
        """The components found, as rows ``(n_components_, d_i)``."""
        return [vectors[: self.n_components_] for vectors in self._stacked()]

    def _reader(self, X: Any) -> Engine:
        """New samples from the first on, which must look like the fitted ones; rows stay aligned: none is skipped."""
        shape: Any = self.shape_in_ if self.__sklearn_is_fitted__() else self.recovery_
        data = _opened(X, shape, nan_policy="zero" if self.nan_policy == "zero" else "raise")
        if data.dims != shape:
            raise SampleError(
                f"samples must have the shape that was fitted, {shape}, got {data.dims}; give one sample as x[None]."
            )
        engine = open_engine(data)
        if is_engine(X) and engine.rereadable:
            engine.rewind()
        return engine

    def _open(self, X: Any, seed: int) -> Stream | Engine:
        options = {"items": self.items, "shuffle": self.shuffle, "nan_policy": self.nan_policy}
        return _opened(X, None, random_state=seed, **options)

    def _solver(self, stream: Stream | Engine, seed: int, partial: bool) -> Any:
        """The solver for these samples; says which, and why."""
        choice = self._choice(stream)
        makers = {"mean": self._mean, "race": self._race, "paper": self._paper}
        solver = makers[choice.solver](seed, partial) if isinstance(self.solver, str) else self.solver
        self.solver_, self.solver_reason_ = choice.solver, choice.reason
        if self.verbose:
            sys.stdout.write(f"[TensorPCA] solver {choice.solver}: {choice.reason}\n")
        return solver

    def _choice(self, stream: Stream | Engine) -> Choice:
        """Which solver, and why; refuses what it cannot do."""
        if isinstance(self.solver, str) and self.solver == "auto":
            return choose_for(stream, self.memory_limit, max_samples=self.max_samples, tol=self.tol)
        if isinstance(self.solver, str) and self.solver in SOLVERS:
            refuse_idle(self, self.solver, f"means nothing to solver={self.solver!r}; leave it out, or use 'race'")
            return Choice(self.solver, "asked for")
        if isinstance(self.solver, type):
            name = self.solver.__name__
            raise SolverError(f"solver must be a solver, got the class {name}; make one of it: {name}().")
        if hasattr(self.solver, "run"):
            name = type(self.solver).__name__
            refuse_idle(self, "given", f"means nothing beside a solver that is given; give it to that {name}")
            return Choice(name, "given")
        raise SolverError(
            f"solver must be 'auto', 'mean', 'race', 'paper' or an object with run(stream), got {self.solver!r}."
        )

    def _start(self, stream: Stream) -> tuple[Feed, Run]:
        """A run that will be fed."""
        solver = self._solver(stream, self._seed(), partial=True)
        refuse_idle(self, "fed", "means nothing to partial_fit; leave it out, or use fit")
        if not isinstance(solver, RaceSolver | MeanSolver):
            raise SolverError(f"partial_fit needs solver='race', 'mean' or 'auto', got {self.solver!r}; use fit.")
        self._forget()
        self._feed, self.shape_in_ = Feed(stream.dims), stream.dims
        data = self._feed.engine
        fed: Run = MeanRun(solver, data) if isinstance(solver, MeanSolver) else ComponentsRun(solver, data)
        self._run = fed
        return self._feed, fed

    def _mean(self, seed: int, partial: bool) -> MeanSolver:
        self._race(seed, partial)  # checks all options, needed here or not
        return MeanSolver(**self._common(seed, partial))

    def _race(self, seed: int, partial: bool) -> RaceSolver:
        passes = 1 if partial and self.max_passes == "auto" else self.max_passes
        return RaceSolver(max_passes=passes, tol=self.tol, **self._common(seed, partial))

    def _paper(self, seed: int, partial: bool) -> PaperSolver:
        return PaperSolver(random_state=seed, callbacks=self._callbacks(), **({} if partial else self._keeping()))

    def _common(self, seed: int, partial: bool) -> dict[str, Any]:
        """What the mean and the race both take."""
        names = ("memory_limit", "max_samples", "confidence", "n_components")
        asked = {"random_state": seed, "callbacks": self._callbacks(), **{name: getattr(self, name) for name in names}}
        return asked if partial else asked | self._keeping()

    def _keeping(self) -> dict[str, Any]:
        return {"checkpoint": self.checkpoint, "checkpoint_every": self.checkpoint_every, "resume": self.resume}

    def _seed(self) -> int:
        state = self.random_state
        if state is None and self.resume and self.checkpoint is not None:
            with warnings.catch_warnings():  # the run itself will say what is wrong with a checkpoint
                warnings.simplefilter("ignore")
                stored = Checkpoints(self.checkpoint).load()
            if stored is not None:
                return int(stored["settings"]["random_state"])
        return seed_from(state)

    def _forget(self) -> None:
        self._recovery = self._feed = self._run = None

    def _callbacks(self) -> tuple[Callback, ...]:
        own = tuple(self.callbacks or ())
        return (*own, _Lines(self.verbose)) if self.verbose else own

    def _warn(self) -> None:
        recovery = self.recovery_
        if recovery.stop_reason in (StopReason.NO_SIGNAL, StopReason.NOT_ACCURATE, StopReason.STREAM_ENDED_EARLY):
            warnings.warn(recovery.advice, ConvergenceWarning, stacklevel=3)


def _opened(X: Any, dims: tuple[int, ...] | None, **options: Any) -> Stream | Engine:
    """An engine as it is; anything else as a stream, or on the active Dask client if it is a Dask array."""
    if not is_engine(X):
        return on_active_cluster(open_known(X, dims, **options))
    check_opened(X.stream if isinstance(X, LocalEngine | DaskEngine) else Passing(), **options)
    return X


class _Lines:
    """A line on standard output whenever the samples have doubled, or after every round."""

    def __init__(self, verbose: int) -> None:
        self._every = 2.0 if verbose == 1 else 1.0
        self._next = 0.0

    def __call__(self, record: dict[str, Any]) -> None:
        samples = int(record["samples"])
        if samples < self._next:
            return
        self._next = self._every * samples
        known = ("strength", "error", "log_evidence", "reward")
        numbers = "  ".join(f"{name} {record[name]:.4g}" for name in known if name in record)
        line = f"[TensorPCA] {samples:,} sample{'s' if samples != 1 else ''}  {record['phase']}  {numbers}"
        sys.stdout.write(line.rstrip() + "\n")
