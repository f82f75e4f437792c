"""The measured constants of all methods: data with its provenance, made by ``python -m tpca.lab.studies.constants``."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from importlib.resources import files
from typing import Any


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
