"""What solvers share: options, each declared once with its check; and a run from its start to its estimate.

Another option is one more line of a solver's class; an estimator or command that has it hands it on.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar, Protocol, runtime_checkable

from tpca.engines import Data, open_engine
from tpca.errors import SolverError, check_integer
from tpca.solvers.estimate import Estimate
from tpca.solvers.memory import parse_memory
from tpca.solvers.run import Run, drive, keeper_of

Callback = Callable[[dict[str, Any]], None]
Check = Callable[[str, Any], Any]

# Parameters of TensorPCA and of the command that are options of some solvers: given to another one, they are refused.
OPTIONS = ("n_components", "confidence", "n_resamples", "whiten", "dependence", "memory_limit", "max_samples")


@runtime_checkable
class Solver(Protocol):
    """Anything that turns samples into an estimate."""

    def run(self, source: Any) -> Estimate:
        """Recover the vectors from a stream or an engine."""


def option(default: Any, check: Check | None = None, *, setting: bool = True) -> Any:
    """An option of a solver.

    ``check(name, value)`` returns the value to keep, or refuses it; ``None`` may stay where it is the default.  What a
    run depends on besides its data is a ``setting``: a checkpoint with another value of it is refused.
    """
    return dataclasses.field(default=default, metadata={"check": check, "setting": setting})


def check_options(self: Any) -> None:
    """Check all options of a dataclass, each by its own check."""
    for field in dataclasses.fields(self):
        check, value = field.metadata.get("check"), getattr(self, field.name)
        if check is not None and not (value is None and field.default is None):
            vars(self)[field.name] = check(field.name, value)  # also of one that is frozen


def check_seed(name: str, value: Any) -> int:
    """A whole number from 0 on."""
    return check_integer(name, value, 0)


def check_share(name: str, value: float) -> float:
    """Strictly between 0 and 1."""
    if not _is_number(value) or not 0.0 < value < 1.0:
        raise SolverError(f"{name} must lie strictly between 0 and 1, got {value!r}.")
    return value


def check_folder(name: str, value: Any) -> str | os.PathLike[str]:
    """A path."""
    if not isinstance(value, str | os.PathLike):
        raise SolverError(f"{name} must be a folder, as text or as a path, got {value!r}.")
    return value


def _is_number(value: Any) -> bool:
    """Whether it can be compared with numbers; ``True`` would be 1, which is hardly meant."""
    return isinstance(value, Real) and not isinstance(value, bool)


def same(value: Any, other: Any) -> bool:
    """Whether two values of an option are one; an array, which nobody means, is like none."""
    return value is other or (isinstance(value, str | Real) and bool(value == other))


def check_seconds(name: str, value: Any) -> float:
    """A time, 0 or more."""
    if not _is_number(value) or not value >= 0:
        raise SolverError(f"{name} must be a number of seconds, 0 or more, got {value!r}.")
    return float(value)


def check_callbacks(name: str, value: Any) -> tuple[Callback, ...]:
    """Some functions."""
    some = tuple(value) if isinstance(value, Iterable) else (value, None)
    if not all(map(callable, some)):
        raise SolverError(f"{name} must be a list of functions, each called with a dict, got {value!r}.")
    return some


def check_positive(name: str, value: float) -> float:
    """A positive finite number."""
    if not _is_number(value) or not 0 < value < math.inf:
        raise SolverError(f"{name} must be a positive finite number, got {value!r}.")
    return float(value)


def check_passes(name: str, value: Any) -> int | str:
    """At least 1, or ``"auto"``."""
    return "auto" if same(value, "auto") else check_integer(name, value, instead=" or 'auto'")


def check_whiten(name: str, value: Any) -> str | None:
    """``"auto"``, ``"modes"`` or ``None``."""
    if not any(same(value, known) for known in ("auto", "modes", None)):
        raise SolverError(f"{name} must be 'auto', 'modes' or None, got {value!r}.")
    return None if value is None else str(value)


def check_dependence(name: str, value: Any) -> str | int | None:
    """``"auto"``, ``None`` or so many neighbours."""
    if value is None or same(value, "auto"):
        return None if value is None else "auto"
    return check_integer(name, value, instead=", 'auto' or None")


def check_resamples(name: str, value: Any) -> int | str:
    """``"auto"`` or so many flips."""
    return "auto" if same(value, "auto") else check_integer(name, value, 19, instead=" or 'auto'")


def check_memory(_: str, value: str | float) -> int:
    """Bytes."""
    return parse_memory(value)


@dataclass(kw_only=True, eq=False)
class CommonOptions:
    """Options of all solvers."""

    name: ClassVar[str]

    random_state: int = option(0, check_seed)
    callbacks: Sequence[Callback] = option((), check_callbacks, setting=False)
    checkpoint: str | os.PathLike[str] | None = option(None, check_folder, setting=False)
    checkpoint_every: float = option(60.0, check_seconds, setting=False)
    resume: bool | str = option(False, setting=False)

    def __post_init__(self) -> None:
        check_options(self)
        if self.resume and self.checkpoint is None:
            raise SolverError("resume=True needs checkpoint=..., the folder to go on from.")

    def run(self, source: Any) -> Estimate:
        """Recover the vectors from a stream or an engine."""
        raise NotImplementedError

    def settings(self) -> dict[str, Any]:
        """What a run depends on besides its data, as plain values."""
        names = (field.name for field in dataclasses.fields(self) if field.metadata.get("setting", True))
        return {"solver": self.name, **{name: vars(self)[name] for name in names}}


@dataclass(kw_only=True, eq=False)
class ClaimingSolver(CommonOptions):
    """A solver with a test, whose run is a state machine: samples may be pulled from data or handed in."""

    memory_limit: str | float | None = option(None, check_memory)
    max_samples: int | None = option(None, check_integer)
    confidence: float = option(0.95, check_share)
    n_components: int = option(1, check_integer)

    def start(self, data: Data) -> Run:
        """A run that asks for its first samples."""
        raise NotImplementedError

    def run(self, source: Any) -> Estimate:
        """Read a stream (or engine) as far as needed; what was found, or that nothing was."""
        engine = open_engine(source)
        return drive(self.start(engine), engine, keeper_of(self))
