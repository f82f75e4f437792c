"""How N at 50 % success grows with d: the worst case, equal vectors, the size of blocks.

The budget of a climb multiplies the paper's own T: a slope tests whether its schedule suffices uniformly in d, not what
the algorithm needs at least.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from research.simulate import SimulatedRun
from research.studies.climbs import (
    COARSE,
    GOOD,
    SEEDS,
    Cells,
    climb,
    climb_cost,
    constants_of,
    drawn_runs,
    half_law,
    planned_climb,
    theorem_climb,
    together,
)
from research.studies.estimates import PowerLaw, flat, spread
from research.studies.study import Finding, Line, Params, Records, Scale, Slope, Study, Verdict
from tpca.solvers.paper.schedule import PRESETS, empirical_schedule
from tpca.tensors.blocks import Partition

Dims = tuple[int, ...]


def logarithm(order: int, correlation: float) -> Callable[[float], float]:
    """What the theorem's sum of stages has beyond d² at order 4, where all h* of them cost the same; else nothing."""
    return (lambda dim: theorem_climb(4, int(dim), correlation) / dim**2) if order == 4 else flat


# ---- the worst case, and equal vectors


@dataclass(frozen=True)
class Family:
    """Climbs of one correlation: by order the exponent, quick and all values of d, and the ladder of budgets."""

    correlation: float
    since: int
    """Smaller sizes are in the store, but not in the slope."""
    orders: dict[int, tuple[int, Dims, Dims, tuple[int, int]]]
    notes: dict[int, str] = field(default_factory=dict)

    def law(self, order: int, count: str = "samples") -> Callable[[Records], PowerLaw]:
        """N₅₀ against d, the logarithm of order 4 divided out."""
        correction = logarithm(order, self.correlation)
        return half_law(count=count, since=self.since, correction=correction, order=order)

    def grid(self) -> Callable[[Scale], list[Params]]:
        """Every order, d and budget."""
        parts = []
        for order, (_, quick, full, rungs) in self.orders.items():
            seeds = SEEDS if order < 8 else (10, 10)
            fixed = {"order": order, "correlation": self.correlation}
            parts.append(Cells(quick, full, rungs, seeds, fixed, fine=order < 8))
        return together(*parts)

    def lines(self) -> list[Line]:
        """The slope of every order."""
        found: list[Line] = []
        for order, (slope, *_) in self.orders.items():
            note: Any = f"d ≥ {self.since}{self.notes.get(order, '')}."
            form = "log d" if order == 4 else ""
            if order == 4:
                plain = half_law(since=self.since, order=4)
                note = _divided(plain)
            found.append(Slope(f"order {order}", slope, self.law(order), note, form, line=f"order {order}"))
        return found

    def collapse(self) -> list[Line]:
        """Whether N₅₀ over the form is one number for all d, order by order."""
        return [functools.partial(self._collapsed, order) for order in self.orders]

    def _collapsed(self, order: int, records: Records) -> list[Finding]:
        """Within the ladder's √2 to both sides."""
        slope = self.orders[order][0]
        low, high = spread(self.law(order)(records), slope, self.since)
        form = f"d^{slope}" + (" log d" if order == 4 else "")
        told = f"curves of all d ≥ {self.since} collapse against N/({form}), within a factor 2"
        verdict = Verdict.of(high / low <= 2) if math.isfinite(high / low) else Verdict.OPEN
        note = "the matrix blocks' d³ is a part of N at small d." if order == 5 and self.correlation == 0 else ""
        return [Finding(f"order {order}, collapse", told, f"N₅₀/({form}) from {low:.3g} to {high:.3g}", verdict, note)]


def _divided(plain: Callable[[Records], PowerLaw]) -> Callable[[PowerLaw, Records], str]:
    return lambda _, records: f"the theorem's sum of stages divided out; else {plain(records).slope.text()}."


UNCORRELATED = Family(
    0.0,
    16,
    {
        4: (2, (16, 64, 256, 1024), (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 10_000), (-6, 0)),
        5: (4, (16, 32, 64, 128), (8, 16, 24, 32, 48, 64, 96, 128, 192, 256), (-6, 2)),
        6: (4, (16, 32, 64, 128), (8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1000), (-8, 0)),
        8: (6, (16, 32, 64), (8, 16, 24, 32, 48, 64, 96, 128), (-12, 0)),
    },
    {
        5: "; the printed schedule: with the vector block idle the slope is 3 (odd-order); what the paper bounds is "
        "Σ N_m S_m"
    },
)
IDENTICAL = Family(
    1.0,
    64,
    {
        4: (2, (64, 256, 1024, 4096), (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192), (-6, 0)),
        5: (3, (64, 128, 512, 2048), (8, 16, 32, 64, 128, 256, 512, 1024, 2048), (-4, 6)),
        6: (3, (64, 256, 1024, 4096), (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096), (-6, 4)),
        8: (4, (64, 96, 128), (8, 16, 32, 64, 96, 128, 192, 256, 512), (-4, 8)),
    },
)
WEIGHTED = Slope(
    "order 5, Σ N_m S_m",
    5,
    half_law(count="weighted", since=UNCORRELATED.since, order=5),
    "every block's samples times its entries; plain.",
)

WORST_CASE = Study(
    "worst-case",
    "Samples at 50 % success, uncorrelated pairs",
    "Even order: λ²N ~ d^(k̄−2) times logs (Corollary cor-equal-dim; at order 4 all h* ≈ log 4d stages cost the "
    "same: d² log d). Odd order, the printed schedule: the vector block's turn takes d^(k̄−1), the matrix blocks' "
    "d^(k̄−2); what the paper bounds is Σ N_m S_m ~ d^k̄ (Corollary cor-equal-dim-odd). These are upper bounds. "
    "Every success curve against N over that form is the same: they collapse. A budget multiplies the T of the paper, "
    "so the slopes test whether its schedule suffices uniformly in d, not what the algorithm needs.",
    UNCORRELATED.grid(),
    climb,
    climb_cost,
    [*UNCORRELATED.lines(), WEIGHTED, *UNCORRELATED.collapse()],
    planned=planned_climb,
)
SYMMETRIC = Study(
    "symmetric",
    "Samples at 50 % success, identical vectors",
    "Even order: λ²N ~ d^(k̄/2), times log d at order 4 (d² max γ⁴ ∏γ⁻² with γ = d^(-1/2) + c₀/d, whose second term "
    "bends the lines below d = 64). Order 5: d³, set by the matrix blocks.",
    IDENTICAL.grid(),
    climb,
    climb_cost,
    [*IDENTICAL.lines(), *IDENTICAL.collapse()],
    planned=planned_climb,
)

# ---- blocks of one, two and three modes


def blocks_of(order: int, dim: int, size: int) -> Partition:
    """Neighbouring modes in blocks of ``size``."""
    return Partition((dim,) * order, tuple(tuple(range(n, n + size)) for n in range(0, order, size)))


@functools.cache
def stages_beyond(order: int, size: int, dim: float) -> float:
    """What the schedule's sum of stages has beyond d^(k̄−b): a logarithm for two blocks, else nothing."""
    if order != 2 * size:
        return 1.0
    schedule = empirical_schedule(blocks_of(order, int(dim), size), 1.0, PRESETS["practical"], c3=None)
    return schedule.climb() / dim ** (order - size)


def _block_climb(params: Params) -> dict[str, Any]:
    """``count`` simulated climbs, every block begun at a random rank-one array."""
    wins, samples = 0, 0.0
    partition = blocks_of(params["order"], params["dim"], params["modes"])
    schedule = empirical_schedule(partition, 1.0, constants_of(params), c3=None)
    for rng, truth in drawn_runs(params):
        run = SimulatedRun(truth, rng, partition, starts="random", coarse=COARSE)
        run.climb(schedule)
        samples = float(run.samples)
        run.select(schedule.selection)
        wins += bool(np.abs(run.alignments).min() > GOOD)
    return {"wins": wins, "runs": params["count"], "samples": samples}


def _planned_blocks(params: Params) -> dict[str, float]:
    partition = blocks_of(params["order"], params["dim"], params["modes"])
    schedule = empirical_schedule(partition, 1.0, constants_of(params), c3=None)
    return {"samples": float(2 ** len(partition) * schedule.climb())}


# Order and modes a block: the values of d of the quick run and of the full one.
_BLOCKS: dict[tuple[int, int], tuple[Dims, Dims]] = {
    (4, 1): ((16, 64, 256), (16, 32, 64, 128, 256)),
    (4, 2): ((16, 64, 256), (16, 32, 64, 128, 256)),
    (6, 1): ((8, 16, 32), (8, 12, 16, 24, 32, 48, 64, 96)),
    (6, 2): ((16, 64, 256), (16, 32, 64, 128, 256)),
    (6, 3): ((16, 64, 256), (16, 32, 64, 128, 256)),
}
BLOCK_SIZES = Study(
    "block-sizes",
    "Blocks of one, two and three modes in the same algorithm",
    "Case II with blocks of b modes: a turn's samples are ∏ of the other blocks' entries, N ~ d^(k̄−b) with d^b of "
    "state (times log d for two blocks, where all stages cost the same): every mode that joins a block saves a "
    "factor d. The paper has b = 2; b = 1 are exact vectors, d^(k̄−1) as of online SGD (Ben Arous et al. 2021).",
    together(
        *(
            Cells(*dims, (-8, 2), (10, 10), {"order": order, "modes": size, "correlation": 0.0})
            for (order, size), dims in _BLOCKS.items()
        )
    ),
    _block_climb,
    lambda params: climb_cost(params) / 4,
    [
        Slope(
            f"order {order}, blocks of {size}",
            order - size,
            half_law(correction=functools.partial(stages_beyond, order, size), order=order, modes=size),
            form="log d" if order == 2 * size else "",
            bound=False,
            line=f"order {order}, blocks of {size}",
        )
        for order, size in _BLOCKS
    ],
    planned=_planned_blocks,
)
