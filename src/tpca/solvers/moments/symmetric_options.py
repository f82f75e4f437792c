"""What a fit of a table is asked for, and what it gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tpca.errors import MemoryBudgetError, SolverError
from tpca.integers import check_integer
from tpca.solvers.base import check_memory, check_options, check_share, option
from tpca.solvers.claim import Verdict
from tpca.solvers.moments.symmetric_models import Mixture, Model, Sources, Topics
from tpca.solvers.moments.symmetric_sums import MAX_POWER
from tpca.solvers.moments.symmetric_whitening import EXTRA
from tpca.solvers.recovery import StopReason
from tpca.tensors.blocks import Array

BLOCKS = 32  # sub-batches for errors, which are known to 1/sqrt(2 (K - 1)) = 13 %
MODELS = ("sources", "mixture", "topics")


def check_order(name: str, value: Any) -> int:
    """3 or 4."""
    if isinstance(value, bool) or value not in (3, 4):
        raise SolverError(f"{name} must be 3 or 4, got {value!r}; moments of order 2 are those of PCA.")
    return int(value)


def check_model(name: str, value: Any) -> str:
    """One of three."""
    if value not in MODELS:
        raise SolverError(f"{name} must be one of {', '.join(MODELS)}, got {value!r}.")
    return str(value)


def check_closed_share(name: str, value: float) -> float:
    """From 0 on, less than 1."""
    if isinstance(value, str) or not 0 <= value < 1:
        raise SolverError(f"{name} must be at least 0 and less than 1, got {value!r}.")
    return float(value)


@dataclass(kw_only=True, frozen=True)
class TableOptions:
    """What a fit of a table is asked for."""

    order: int = option(3, check_order)
    n_components: int = option(1, check_integer)
    model: str = option("sources", check_model)
    whiten: bool = option(True)
    whiten_rank: int | None = option(None, check_integer)
    shrinkage: float = option(0.0, check_closed_share)
    validation_fraction: float = option(0.2, check_closed_share)
    confidence: float = option(0.95, check_share)
    memory_limit: Any = option(None, check_memory)
    random_state: int = option(0)

    def __post_init__(self) -> None:
        check_options(self)
        idle = {"whiten_rank": self.whiten_rank is not None, "shrinkage": self.shrinkage > 0}
        for name in [name for name, given in idle.items() if given]:
            if not self.whiten:
                raise SolverError(f"{name}={vars(self)[name]} means nothing without whitening; leave it out.")
            if self.model != "sources":
                raise SolverError(f"{name}={vars(self)[name]} is for model='sources'; leave it out.")
        if self.model != "sources" and (self.order != 3 or not self.whiten):
            raise SolverError(f"model={self.model!r} needs order=3 and whiten=True, got {self.order}, {self.whiten}.")

    @property
    def moment(self) -> Model:
        """What the moment is."""
        models: dict[str, Model] = {"sources": Sources(self.order), "mixture": Mixture(), "topics": Topics()}
        return models[self.model]

    def directions(self, d: int) -> int:
        """q, the directions that rows of d columns are whitened in; refuses what does not fit."""
        q = self.n_components if self.model != "sources" else (self.whiten_rank or d)
        if self.n_components > d or q > d:
            name = "n_components" if self.n_components > d else "whiten_rank"
            raise SolverError(f"{name} must be at most the {d} columns of the rows, got {vars(self)[name]}.")
        if self.n_components > q:
            raise SolverError(f"n_components must be at most whiten_rank={q}, got {self.n_components}.")
        return q

    def whole(self) -> bool:
        """Whether the whole covariance is held, d² numbers."""
        return self.model == "sources" and self.whiten and self.whiten_rank is None

    def state_floats(self, d: int, q: int | None) -> int:
        """Numbers held at most: to learn the whitening in q directions (all: ``None``), and for the last sums."""
        last = BLOCKS * self.n_components * (self.order * d + MAX_POWER + 1) + d
        if q is None:  # two scatters, one of them shrunk, its eigenvectors, and W twice
            return max(6 * d * d, 4 * d * d + last)
        return max(4 * d * (q + EXTRA), 2 * d * q + last)

    def check_memory(self, d: int) -> None:
        """Refuse what takes more than ``memory_limit``."""
        limit, q = self.memory_limit, self.directions(d)
        needed = 8 * self.state_floats(d, None if self.whole() else q)
        if limit is None or needed <= limit:
            return
        fitting = [less for less in range(self.n_components, d) if 8 * self.state_floats(d, less) <= limit]
        way = f"give whiten_rank={fitting[-1]} or less, or " if self.whole() and fitting else ""
        raise MemoryBudgetError(
            f"{d} columns whitened in {q} directions take {needed / 1e6:.3g} MB, memory_limit is "
            f"{limit / 1e6:.3g} MB; {way}raise it."
        )


@dataclass(frozen=True)
class TableRecovery:
    """What a fit of a table gave; ``weights``, ``directions`` and ``errors`` are ``(c, d)``.

    ``proven`` says how many are; if none, what is there is a guess that proves nothing.
    """

    centre: Array
    weights: Array
    directions: Array
    errors: Array
    strengths: Array
    p_values: Array
    noise_variance: float
    proven: int
    tested: bool
    n_samples: int
    n_skipped: int
    state_bytes: int

    @classmethod
    def of(cls, centre: Array, told: Told, p_values: Array, noise_variance: float, *counts: Any) -> TableRecovery:
        """From what is told of every component, the strongest first."""
        order = np.argsort(-np.abs(told[3]), kind="stable")
        weights, directions, errors, strengths = (array[order] for array in told)
        return cls(centre, weights, directions, errors, strengths, p_values[order], noise_variance, *counts)

    @property
    def stop_reason(self) -> StopReason:
        """How it ended."""
        if not self.tested:
            return StopReason.ITERATED
        return StopReason.STREAM_ENDED if self.proven else StopReason.NO_SIGNAL

    @property
    def verdict(self) -> Verdict:
        """Whether a component was proven."""
        return self.stop_reason.verdict


Told = tuple[Array, Array, Array, Array]


def oriented_parts(model: Model, weights: Array, whole: Array, parts: Array) -> Told:
    """Weights, directions, their errors and strengths, from gradients of all rows and ``(K, c, d)`` of sub-batches."""
    strengths = np.sum(weights * whole, axis=1)
    directions, errors = _scaled(model, weights, whole, parts)
    if not isinstance(model, Sources):  # scores are then about 1 for what belongs to the component, else 0
        return weights / np.where(strengths == 0, 1.0, strengths)[:, None], directions, errors, np.abs(strengths)
    signs = np.where(strengths < 0, -1.0, 1.0) if model.order == 3 else _signs(directions)
    oriented = np.abs(strengths) if model.order == 3 else strengths
    return weights * signs[:, None], directions * signs[:, None], errors, oriented


def _scaled(model: Model, weights: Array, whole: Array, parts: Array) -> tuple[Array, Array]:
    """Directions and their errors, from gradients ``(c, d)`` of all rows and ``(K, c, d)`` of sub-batches."""
    across = np.ones_like(weights) if isinstance(model, Topics) else weights
    lengths = np.sum(across * whole, axis=1)[:, None]
    lengths = np.where(lengths == 0, 1.0, lengths)
    unit = whole / lengths
    scatter = (parts - unit * np.sum(across * parts, axis=2)[..., None]) / lengths
    errors = np.std(scatter, axis=0, ddof=1) / np.sqrt(len(parts))
    scale = lengths if isinstance(model, Mixture) else np.ones_like(lengths)
    return unit * scale, errors * np.abs(scale)


def _signs(directions: Array) -> Array:
    """Signs that make the largest entry of every row positive."""
    largest = np.argmax(np.abs(directions), axis=1)
    return np.where(np.take_along_axis(directions, largest[:, None], axis=1)[:, 0] < 0, -1.0, 1.0)


def holm(p_values: Array) -> Array:
    """Adjusted p-values: the least level at which each is claimed, with any false claim as rare as that (Holm 1979)."""
    order = np.argsort(p_values, kind="stable")
    adjusted = np.maximum.accumulate(p_values[order] * np.arange(len(p_values), 0, -1))
    found = np.empty_like(adjusted)
    found[order] = np.minimum(adjusted, 1.0)
    return found
