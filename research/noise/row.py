"""A row of the checks: how a run draws its samples, and what is asked of the fit."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import tpca
from tpca.tensors.blocks import Array

Rng = np.random.Generator
Outcome = dict[str, float]

LEVEL = 0.05


@dataclass(frozen=True)
class Case:
    """Samples of one run, what is given to ``fit`` with them, options of the estimator, and the planted truth.

    ``truth`` has the vectors of every component, ``strengths`` how strong each is; there is none where nothing is
    planted.
    """

    X: Array
    y: Any = None
    given: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    truth: list[list[Array]] = field(default_factory=list)
    strengths: tuple[float, ...] = ()

    def fitted(self, **options: Any) -> tpca.TensorPCA:
        """TensorPCA with its defaults but for what the case, or the study, asks for."""
        target = "mean" if self.y is None else "effect"
        return tpca.TensorPCA(**{"target": target, **options, **self.options}).fit(self.X, self.y, **self.given)

    @property
    def digest(self) -> str:
        """Tells samples from others; rounded, so that the last bits of a machine's algebra do not matter."""
        whole = hashlib.sha256()
        for part in (self.X, self.y, *(self.given[name] for name in sorted(self.given))):
            if part is not None:
                numbers = np.asarray(part)
                if numbers.dtype.kind == "f":
                    numbers = np.round(np.nan_to_num(numbers, nan=1e6) * 1e3).astype(np.int64)
                whole.update(np.ascontiguousarray(numbers).tobytes())
        return whole.hexdigest()[:12]


@dataclass(frozen=True)
class Row:
    """``draw`` makes a case from a generator; ``judge`` fits it and says what came out, as numbers that add up.

    ``about`` is what tables show beside the name, ``excluded`` why no target is set for ``found`` or for ``entries``.
    """

    kind: str
    name: str
    runs: int
    draw: Callable[[Rng], Case]
    judge: Callable[[Case, int], Outcome]
    about: dict[str, Any] = field(default_factory=dict)
    excluded: dict[str, str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The name among all rows."""
        return f"{self.kind}: {self.name}"

    def case(self, seed: int) -> Case:
        """The samples of one run."""
        return self.draw(np.random.default_rng([zlib.crc32(self.key.encode()), seed]))

    @property
    def digest(self) -> str:
        """Tells what the row draws from what it once drew."""
        return hashlib.sha256("".join(self.case(seed).digest for seed in range(4)).encode()).hexdigest()[:12]

    def run(self, seed: int) -> Outcome:
        """What comes out of one run."""
        return self.judge(self.case(seed), seed)


def claims(case: Case, seed: int) -> Outcome:
    """Whether a signal is claimed, whether any entry is, whether it was tested at all."""
    pca = case.fitted(n_resamples=199, random_state=seed)
    entries = pca.entry_p_values_
    assert entries is not None
    tested = str(pca.verdict_) != "not tested"
    return {"found": float(pca.found_), "entries": float((entries <= LEVEL).any()), "tested": float(tested)}
