"""What solvers share: options, each declared once with its check; and a run from its start to its recovery.

Another option of the race and the mean is one more line of :class:`StreamSolver`, and one of ``APPLIES``
(:mod:`tpca.solvers.options`), which says to which kinds of fit it means something.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

from tpca.engines import Data, open_engine
from tpca.errors import SolverError, StreamError
from tpca.integers import check_integer
from tpca.noise import too_few
from tpca.solvers.claim import Verdict
from tpca.solvers.keeping import keeper_of
from tpca.solvers.loop import Run, drive
from tpca.solvers.memory import default_memory, parse_memory
from tpca.solvers.observing import ObservedRun
from tpca.solvers.order import refuse_torn
from tpca.solvers.projecting import ProjectedData, ProjectedRun, calling, check_center, check_project, projection_for
from tpca.solvers.recovery import Recovery
from tpca.tensors import Projection, SliceCounts

Callback = Callable[[dict[str, Any]], None]
Check = Callable[[str, Any], Any]
CONSTANT = "all samples are the same: there is no noise to tell a signal from; give samples that differ."


@runtime_checkable
class Solver(Protocol):
    """Anything that turns samples into a recovery."""

    def run(self, source: Any) -> Recovery:
        """Recover the vectors from a stream or an engine."""


def option(default: Any, check: Check | None = None, *, setting: bool = True) -> Any:
    """An option of a solver.

    ``check(name, value)`` returns the value to keep, or refuses it; ``None`` may stay where it is the default.  What a
    run depends on besides its data is a ``setting``: a checkpoint with another value of it is refused.
    """
    return dataclasses.field(default=default, metadata={"check": check, "setting": setting})


def check_options(self: Any) -> None:
    """Check all options of a dataclass, each by its own check."""
    own = vars(self)
    for name, check, optional in _checks(type(self)):
        if not (optional and own[name] is None):
            own[name] = check(name, own[name])


def _checks(kind: type[Any]) -> list[tuple[str, Check, bool]]:
    """Options of a class that have a check, each with that, and whether ``None`` may stay; looked up once."""
    if kind not in _KNOWN:
        fields = ((field, field.metadata.get("check")) for field in dataclasses.fields(kind))
        _KNOWN[kind] = [(field.name, check, field.default is None) for field, check in fields if check is not None]
    return _KNOWN[kind]


_KNOWN: dict[type[Any], list[tuple[str, Check, bool]]] = {}


def check_seed(name: str, value: Any) -> int:
    """A whole number from 0 on."""
    return check_integer(name, value, 0)


def check_share(name: str, value: float) -> float:
    """Strictly between 0 and 1."""
    if not 0.0 < value < 1.0:
        raise SolverError(f"{name} must lie strictly between 0 and 1, got {value}.")
    return value


def check_positive(name: str, value: float) -> float:
    """A positive finite number."""
    if not 0 < value < math.inf:
        raise SolverError(f"{name} must be a positive finite number, got {value}.")
    return float(value)


def check_passes(name: str, value: Any) -> int | str:
    """At least 1, or ``"auto"``."""
    return "auto" if value == "auto" else check_integer(name, value, instead=" or 'auto'")


def check_whiten(name: str, value: Any) -> str | None:
    """``"auto"``, ``"modes"`` or ``None``."""
    if value not in ("auto", "modes", None):
        raise SolverError(f"{name} must be 'auto', 'modes' or None, got {value!r}.")
    return None if value is None else str(value)


def check_clip(name: str, value: Any) -> str | float | None:
    """``"auto"``, ``None`` or a bound in standard deviations."""
    if value is None or value == "auto":
        return "auto" if value is not None else None
    if isinstance(value, bool | str) or not 0 < value < math.inf:
        raise SolverError(f"{name} must be 'auto', None or a positive finite number, got {value!r}.")
    return float(value)


def check_memory(_: str, value: str | float) -> int:
    """Bytes."""
    return parse_memory(value)


@dataclass(kw_only=True, eq=False)
class CommonOptions:
    """Options of all solvers."""

    name: ClassVar[str]

    random_state: int = option(0, check_seed)
    callbacks: Sequence[Callback] = option((), lambda _, value: tuple(value), setting=False)
    checkpoint: str | os.PathLike[str] | None = option(None, setting=False)
    checkpoint_every: float = option(60.0, setting=False)
    resume: bool = option(False, setting=False)

    def __post_init__(self) -> None:
        check_options(self)
        if self.resume and self.checkpoint is None:
            raise SolverError("resume=True needs checkpoint=..., the folder to go on from.")

    def run(self, source: Any) -> Recovery:
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

    def run(self, source: Any) -> Recovery:
        """Read a stream (or engine) as far as needed; what was found, or that nothing was."""
        engine = open_engine(source)
        return drive(self.start(engine), engine, keeper_of(self))

    def least_samples(self, data: Data) -> int:
        """Fewer samples than this prove nothing, whatever is in them."""
        raise NotImplementedError


@dataclass(kw_only=True, eq=False)
class StreamSolver(ClaimingSolver):
    """One that looks for what all samples share: the race and the mean."""

    whiten: str | None = option("auto", check_whiten)
    groups: int | None = option(None, check_integer)
    clip: str | float | None = option("auto", check_clip)
    center_modes: Sequence[str | int] = option((), check_center)
    project: Mapping[str | int, Any] | None = option(None, check_project)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.projection: Projection | None = None  # of the samples that a run is made for, where they are projected

    counts_entries: ClassVar[bool] = False
    """Whether a run sees to missing entries itself, entry by entry."""

    def start(self, data: Data) -> Run:
        """A run that asks for its first samples; they are projected where so asked for, and may miss entries."""
        projection = projection_for(tuple(self.center_modes), self.project, data)
        run = self.begin(data) if projection is None else self._projected(data, projection)
        if not data.partial:
            return run
        scaled = projection is not None or not self.counts_entries
        return ObservedRun(run, SliceCounts(data.dims), scaled, data.labels)

    def _projected(self, data: Data, projection: Projection) -> Run:
        callbacks = tuple(calling(callback, projection) for callback in self.callbacks)
        limit = None if self.memory_limit is None else parse_memory(self.memory_limit) - projection.nbytes
        inner = dataclasses.replace(self, center_modes=(), project=None, callbacks=callbacks, memory_limit=limit)
        inner.projection = projection
        return ProjectedRun(inner.begin(ProjectedData.of(data, projection)), projection)

    def begin(self, data: Data) -> Run:
        """A run on samples as they are."""
        raise NotImplementedError

    def run(self, source: Any) -> Recovery:
        """Read a stream (or engine) as far as needed; what was found, or that nothing was."""
        engine = open_engine(source)
        refuse_torn(engine, self.groups)
        return super().run(engine)

    def budget(self, dims: tuple[int, ...], partial: bool = False) -> int:  # noqa: ARG002
        """Bytes that the state may take for samples of shape ``dims``, of which some entries may be missing."""
        return default_memory(dims) if self.memory_limit is None else parse_memory(self.memory_limit)


def run_on_data(solver: Solver, source: Any, unit: str = "samples") -> Recovery:
    """Run a solver on a user's data; samples that all miss entries or are the same are hardly meant to be: refused.

    Where there are too few for any claim the recovery says so; ``unit`` is what they are called then.
    """
    engine = open_engine(source)
    recovery = solver.run(engine)
    if not recovery.n_samples and recovery.n_skipped:
        way = "" if engine.partial else ', or use what was observed: nan_policy="zero" (tpca: --nan-policy zero)'
        raise StreamError(f"all samples were left out, because of NaN or Inf; look at the data{way}.")
    if engine.constant:
        raise StreamError(CONSTANT)
    if recovery.verdict is not Verdict.NO_SIGNAL or not isinstance(solver, ClaimingSolver):
        return recovery
    needed = solver.least_samples(engine)
    if recovery.n_samples >= needed:
        return recovery
    few = too_few(recovery.n_samples, needed, unit, solver.confidence)
    return dataclasses.replace(recovery, checks=(*recovery.checks, few))
