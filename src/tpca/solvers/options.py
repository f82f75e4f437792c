"""What solvers share: options, each declared once with its check; memory; a run from its start to its estimate.

Another option is one more line of a solver's class; an estimator or command that has it hands it on.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar

from tpca.engines import Data, open_engine
from tpca.errors import SolverError, check_integer
from tpca.solvers.estimate import Estimate
from tpca.solvers.run import Run, drive
from tpca.tensors.blocks import Array

Callback = Callable[[dict[str, Any]], None]
Check = Callable[[str, Any], Any]

# Parameters of TensorPCA and of the command that are options of some solvers: given to another one, they are refused.
OPTIONS = ("n_components", "confidence", "n_resamples", "whiten", "dependence", "memory_limit", "max_samples")

UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
SHARE_OF_MACHINE = 0.1
SAMPLES_WORTH = 4.0
MIN_BYTES = 10**6


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


# Checks ---------------------------------------------------------------------------------------------------------------


def same(value: Any, other: Any) -> bool:
    """Whether two values of an option are one; an array, which nobody means, is like none."""
    return value is other or (isinstance(value, str | Real) and bool(value == other))


def one_of(*words: str | None, least: int | None = None) -> Check:
    """The check for one of some words; or, with ``least``, for a whole number from there on."""
    *others, last = map(repr, words)
    said = f"{', '.join(others)} or {last}" if others else last

    def check(name: str, value: Any) -> Any:
        for word in words:
            if same(value, word):
                return word
        if least is None:
            raise SolverError(f"{name} must be {said}, got {value!r}.")
        return check_integer(name, value, least, instead=f"{', ' if others else ' or '}{said}")

    return check


def _number(said: str, holds: Callable[[float], bool]) -> Check:
    """The check for a number of some range; ``True``, which is 1 to Python, is hardly meant as one."""

    def check(name: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, Real) or not holds(float(value)):
            raise SolverError(f"{name} must {said}, got {value!r}.")
        return float(value)

    return check


check_seed = functools.partial(check_integer, least=0)
check_share = _number("lie strictly between 0 and 1", lambda value: 0 < value < 1)
check_seconds = _number("be a number of seconds, 0 or more", lambda value: value >= 0)
check_positive = _number("be a positive finite number", lambda value: 0 < value < math.inf)
check_passes = one_of("auto", least=1)
check_components = one_of("auto", least=1)
check_resamples = one_of("auto", least=19)
check_dependence = one_of("auto", None, least=1)
check_whiten = one_of("auto", "modes", None)


def check_folder(name: str, value: Any) -> str | os.PathLike[str]:
    """A path."""
    if not isinstance(value, str | os.PathLike):
        raise SolverError(f"{name} must be a folder, as text or as a path, got {value!r}.")
    return value


def check_callbacks(name: str, value: Any) -> tuple[Callback, ...]:
    """Some functions."""
    some = tuple(value) if isinstance(value, Iterable) else (value, None)
    if not all(map(callable, some)):
        raise SolverError(f"{name} must be a list of functions, each called with a dict, got {value!r}.")
    return some


# Memory ---------------------------------------------------------------------------------------------------------------


def check_memory(name: str, value: Any) -> int:
    """Bytes of ``"64MB"``, ``"1.5GiB"`` or a plain number of bytes."""
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z]*)\s*", str(value))
    if match is None or match[2].upper() not in UNITS:
        raise SolverError(f"{name} must be a number of bytes or text like '64MB' or '1.5GiB', got {value!r}.")
    nbytes = float(match[1]) * UNITS[match[2].upper()]
    if not 0 < nbytes < math.inf:
        raise SolverError(f"{name} must be positive and finite, got {value}.")
    return int(nbytes)


def machine_memory() -> float:
    """Physical memory of this machine in bytes; 4 GB where it cannot be asked."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, OSError, ValueError):
        return 4e9


def budget(limit: int | None) -> int:
    """Bytes that may be held: what was asked for, or a tenth of this machine's memory."""
    return int(SHARE_OF_MACHINE * machine_memory()) if limit is None else limit


def default_memory(dims: Sequence[int]) -> int:
    """The smaller of a tenth of this machine's memory and four samples' size in float64, but at least 1 MB.

    Beyond four samples a method that holds the mean of all samples would be the better choice.
    """
    return int(min(budget(None), max(MIN_BYTES, SAMPLES_WORTH * 8 * math.prod(dims))))


def held_bytes(arrays: Sequence[Array]) -> int:
    """Bytes behind some arrays, views of one array counted once."""
    roots = {id(root): root.nbytes for root in (a if a.base is None else a.base for a in arrays)}
    return sum(roots.values())


# Solvers --------------------------------------------------------------------------------------------------------------


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

    def settings(self) -> dict[str, Any]:
        """What a run depends on besides its data, as plain values."""
        names = (field.name for field in dataclasses.fields(self) if field.metadata.get("setting", True))
        return {"solver": self.name, **{name: vars(self)[name] for name in names}}


@dataclass(kw_only=True, eq=False)
class ClaimingSolver(CommonOptions):
    """A solver with a test, whose run is a state machine: samples may be pulled from data or handed in."""

    memory_limit: Any = option(None, check_memory)
    max_samples: int | None = option(None, check_integer)
    confidence: float = option(0.95, check_share)
    n_components: Any = option(1, check_integer)

    def start(self, data: Data) -> Run:
        """A run that asks for its first samples."""
        raise NotImplementedError

    def run(self, source: Any) -> Estimate:
        """Read a stream (or engine) as far as needed; what was found, or that nothing was."""
        engine = open_engine(source)
        return drive(self.start(engine), engine)
