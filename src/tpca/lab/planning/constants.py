"""What was measured: the constants of all methods, and in a moment the machine at hand.

The constants are data with their provenance, made by ``python -m tpca.lab.studies.constants``.
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np

from tpca.threads import cores

ADDED = (8, 2**19)  # entries: 32 MB, more than most caches hold
SQUARE = 384


@dataclass(frozen=True)
class Constant:
    """N₅₀ in units of a method's form, with its 95 % interval; the passes it took; the sizes that it was measured at.

    ``measured`` is false where nothing was: the exponent is theory and the constant is one.
    """

    value: float
    low: float
    high: float
    passes: float
    dims: tuple[int, ...]
    measured: bool

    def basis(self, dim: float) -> str:
        """What a number of samples at dims of about ``dim`` rests on."""
        if not self.measured:
            return "theory"
        return "measured" if min(self.dims) / 1.5 <= dim <= 1.5 * max(self.dims) else "extrapolated"


THEORY = Constant(1.0, 1.0, 1.0, 1.0, (), measured=False)


@functools.cache
def stored() -> dict[str, Any]:
    """The file as it is."""
    content: dict[str, Any] = json.loads((files("tpca.lab.planning") / "constants.json").read_text(encoding="utf-8"))
    return content


def constant(method: str, order: int) -> Constant:
    """The constant of a method at an order."""
    entry = stored()["methods"].get(method, {}).get(str(order))
    if entry is None:
        return THEORY
    low, high = entry["interval"]
    return Constant(entry["constant"], low, high, entry["passes"], tuple(entry["dims"]), measured=True)


def frontier() -> float:
    """The smallest S·K·N in units of the lower bound that any method without structure was seen to need."""
    return float(stored()["frontier"])


def provenance() -> str:
    """Where the constants come from, in a line."""
    made = stored()["provenance"]
    return f"study {made['study']!r}, {made['trials']} trials, {made['store']}, revision {', '.join(made['revisions'])}"


@dataclass(frozen=True)
class Machine:
    """Bytes of samples added up a second and floating-point operations a second, by one worker; and its cores."""

    bandwidth: float
    flops: float
    cores: int

    def seconds(self, nbytes: float, flops: float, workers: int = 1) -> float:
        """Time to read and add up ``nbytes`` of samples and to compute ``flops``, shared by ``workers``."""
        return (nbytes / self.bandwidth + flops / self.flops) / workers


@functools.cache
def this_machine() -> Machine:
    """Measured once a process, the best of a few tries, in well under a second."""
    samples, square = np.ones(ADDED), np.ones((SQUARE, SQUARE))
    adding = min(_timed(lambda: samples.sum(axis=0)) for _ in range(4))
    multiplying = min(_timed(lambda: square @ square) for _ in range(4))
    return Machine(samples.nbytes / adding, 2 * SQUARE**3 / multiplying, cores())


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return max(time.perf_counter() - began, 1e-6)
