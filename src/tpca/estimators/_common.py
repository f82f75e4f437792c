"""What estimators share: the face of a result, seeds, lines of progress, names of columns."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from tpca.checkpoint import Checkpoints
from tpca.data.rows import KEPT_BYTES
from tpca.engines.local import rows_opened
from tpca.errors import check_integer
from tpca.labels import Axis, Coords, Labels
from tpca.result import Result
from tpca.solvers.estimate import Verdict
from tpca.solvers.folds import MEMORY
from tpca.solvers.options import check_folder
from tpca.tensors.blocks import Array
from tpca.wording import count

if TYPE_CHECKING:
    from tpca.report.words import Summary

KNOWN = ("strength", "error", "log_evidence", "reward")  # numbers of a record that a line tells

F = TypeVar("F")


def of_result(name: str) -> Any:
    """An attribute of an estimator that is one of its result."""
    return property(lambda self: getattr(self.result_, name))


def of_components(name: str) -> Any:
    """An attribute of an estimator that has a number of every component."""
    return property(lambda self: np.array([getattr(c, name) for c in self.result_.components]))


class Fitted:
    """What all estimators say of a fit: ``result_``, and what is read from it."""

    @property
    def result_(self) -> Result:
        """All that is known, to save, show and draw."""
        raise NotImplementedError

    @property
    def p_values_(self) -> Array:
        """The p-value of every component; NaN where it is not known."""
        return np.array([c.p_value for c in self.result_.components])

    significant_: NDArray[np.bool_] = of_components("significant")
    """Which components are proven."""
    verdict_: Verdict = of_result("verdict")
    """``"signal"``, ``"no signal"`` or ``"not tested"``."""
    found_: bool = of_result("found")
    """Whether a signal was proven."""
    n_samples_seen_: int = of_result("n_samples")
    """Samples, or rows, that were used."""
    n_skipped_: int = of_result("n_skipped")
    """Those left out."""
    sample_labels_: Coords | None = of_result("sample_labels")
    """Labels of the samples, or rows, of the fit, where these have any."""

    def summary(self) -> Summary:
        """What was found, in a few lines; ``print`` gives text, a notebook shows a table."""
        return self.result_.summary()

    def plot(self, X: Any = None, y: Any = None, *, pair: Sequence[str | int] | None = None) -> Any:
        """Draw the components, and with ``X`` the scores of samples, over ``y``; a ``matplotlib`` figure.

        ``pair`` names the two axes of the map, by name or number.
        """
        scores, in_order = self._scores(X, y)
        return self.result_.plot(scores, in_order, pair)

    def report(self, path: str | os.PathLike[str], X: Any = None, y: Any = None, *, overwrite: bool = False) -> Path:
        """Write a report, one HTML file that needs no network; returns its path.

        A report that is there is replaced, any other file only with ``overwrite``.
        """
        scores, in_order = self._scores(X, y)
        return self.result_.report(path, scores, in_order, overwrite=overwrite)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Save the result to a folder; :func:`tpca.load` reads it.

        A result that is there is replaced, other files of its names only with ``overwrite``.
        """
        return self.result_.save(path, overwrite=overwrite)

    def _scores(self, X: Any, y: Any) -> tuple[Any, Any]:
        """Scores of the samples ``X``, and ``y`` in their order."""
        if X is None:
            return None, y
        return self.result_.transform_with(X, y)


class RowsEstimator(Fitted, Generic[F]):
    """A fit of rows, ``fit_``, and what ``FITTED`` names of it as attributes with an underscore."""

    FITTED: ClassVar[tuple[str, ...]]
    fit_: F
    random_state: Any

    def __getattr__(self, name: str) -> Any:
        if name.endswith("_") and not name.startswith("_") and "fit_" not in vars(self):
            raise not_fitted(self)
        return object.__getattribute__(self, name)  # says what is missing

    def _opened(self, X: Any, open_stream: Callable[..., Any], options: Callable[..., Any]) -> Any:
        """The rows as a stream, what reads it, and what is asked for."""
        own = self._settings()
        policy, asked = own.pop("nan_policy"), options(**own, random_state=seed_from(self.random_state))
        limit = asked.memory_limit
        opened = partial(open_stream, nan_policy=policy, memory_limit=KEPT_BYTES if limit is None else limit)
        return *rows_opened(X, opened, MEMORY if limit is None else limit), asked

    def _keep(self, fit: F) -> None:
        """A fit that came to its end; what is refused leaves the last one alone."""
        self.fit_ = fit
        for name in self.FITTED:
            setattr(self, f"{name}_", getattr(fit, name))
        if self.verdict_ is Verdict.NO_SIGNAL:
            told = f"{self.result_.advice[0]} (p = {float(np.min(self.p_values_)):.3g})"
            warnings.warn(told, ConvergenceWarning, stacklevel=3)

    def _settings(self) -> dict[str, Any]:
        left_out = ("callbacks", "random_state")
        return {name: value for name, value in self.get_params(deep=False).items() if name not in left_out}


def not_fitted(estimator: object) -> NotFittedError:
    """What is said where there is nothing to tell yet."""
    first = "fit or partial_fit" if hasattr(estimator, "partial_fit") else "fit"
    return NotFittedError(f"this {type(estimator).__name__} is not fitted yet; call {first} first.")


def seed_from(random_state: Any, resumed: str | os.PathLike[str] | None = None) -> int:
    """A seed from a whole number, a generator, or ``None``, which gives a new one every time.

    A fit that is ``resumed`` from a folder takes, if none is given, that of its last checkpoint there.
    """
    if random_state is None and resumed is not None:
        with warnings.catch_warnings():  # the run itself will say what is wrong with a checkpoint
            warnings.simplefilter("ignore")
            stored = Checkpoints(check_folder("checkpoint", resumed)).load()
        if stored is not None:
            return int(stored["settings"]["random_state"])
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31))
    if random_state is None or isinstance(random_state, np.random.Generator):
        return int(np.random.default_rng(random_state).integers(2**31))
    return check_integer("random_state", random_state, 0, instead=", a random generator or None")


class Lines:
    """A line on standard output whenever the samples have doubled, or (``verbose`` above 1) after every round."""

    def __init__(self, verbose: int) -> None:
        self._every = 2.0 if verbose == 1 else 1.0
        self._next = 0.0

    def __call__(self, record: dict[str, Any]) -> None:
        """Tell what the record of a round says."""
        if "flips" in record:
            return
        samples = int(record["samples"])
        if samples < self._next:
            return
        self._next = self._every * samples
        numbers = "  ".join(f"{name} {record[name]:.4g}" for name in KNOWN if name in record)
        print_line(f"{count(samples, 'sample')}  {record['phase']}  {numbers}")


def print_line(text: str) -> None:
    """One line."""
    sys.stdout.write(f"[TensorPCA] {text}".rstrip() + "\n")


def view_labels(X: Any) -> Labels | None:
    """Names of views and of their columns, where a list of DataFrames or of DataArrays, or one DataFrame, has any."""
    if hasattr(X, "columns") and getattr(X.columns, "nlevels", 1) > 1:  # the first level names the views
        parts = [(str(name), X[name]) for name in dict.fromkeys(X.columns.get_level_values(0))]
    elif isinstance(X, Mapping):
        parts = [(str(name), view) for name, view in X.items()]
    elif isinstance(X, list | tuple):
        parts = [(str(getattr(view, "name", None) or f"view {i}"), view) for i, view in enumerate(X)]
    else:
        return None
    axes = tuple(Axis(name, _columns(view)) for name, view in parts)
    return None if all(axis.coords is None for axis in axes) else Labels(axes)


def _columns(view: Any) -> Coords | None:
    """What the columns of a view are called: those of a DataFrame, or coordinates along the second axis."""
    if hasattr(view, "columns"):
        return np.array([str(name) for name in view.columns])
    dims, coords = tuple(getattr(view, "dims", ())), getattr(view, "coords", {})
    return np.asarray(coords[dims[1]]) if len(dims) == 2 and dims[1] in coords else None
