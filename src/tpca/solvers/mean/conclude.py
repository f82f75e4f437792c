"""A component that is proven, told in the units and axes of the data."""

from __future__ import annotations

from dataclasses import dataclass

from tpca.solvers.mean.errors import entry_errors, projected
from tpca.solvers.mean.judge import Found
from tpca.solvers.rank_one import oriented
from tpca.solvers.recovery import Claim
from tpca.tensors.blocks import Array


@dataclass(frozen=True)
class Told:
    """What is said of a component: its vectors, strength and errors, and the error of the least certain vector."""

    vectors: tuple[Array, ...]
    claim: Claim
    error: float


def told(found: Found, confidence: float) -> Told:
    """A component in the units of the groups."""
    scatter = found.scatter
    reading = scatter.reading
    vectors = oriented(scatter.fit.vectors)
    pairs = zip(scatter.spreads(), vectors, strict=True)
    errors = tuple(entry_errors(projected(spread, v), v) for spread, v in pairs)
    return Told(vectors, Claim(reading.strength, scatter.interval(confidence), errors), reading.error)
