"""Over-parameterisation inside one algorithm: the same climb with blocks of one, two and three modes."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from tpca.lab.simulate import SimulatedRun
from tpca.lab.studies.climbs import COARSE, GOOD, cells, climb_cost, constants_of, curves, drawn_runs, ladder
from tpca.lab.studies.estimates import PowerLaw, power_law, slope_finding
from tpca.lab.studies.study import Finding, Params, Record, Scale
from tpca.solvers.paper.schedules import PRESETS, empirical_schedule
from tpca.tensors.blocks import Partition

# Order and modes a block: the values of d of the quick run and of the full one.
CASES = {
    (4, 1): ((16, 64, 256), (16, 32, 64, 128, 256)),
    (4, 2): ((16, 64, 256), (16, 32, 64, 128, 256)),
    (6, 1): ((8, 16, 32), (8, 12, 16, 24, 32, 48, 64, 96)),
    (6, 2): ((16, 64, 256), (16, 32, 64, 128, 256)),
    (6, 3): ((16, 64, 256), (16, 32, 64, 128, 256)),
}


class BlockSizes:
    """Case II with blocks of any size, every block begun at a random rank-one array."""

    name = "block-sizes"
    title = "Blocks of one, two and three modes in the same algorithm"
    claim = (
        "Case II with blocks of b modes: a turn's samples are ∏ of the other blocks' entries, N ~ d^(k̄−b) with d^b of "
        "state (times log d for two blocks, where all stages cost the same): every mode that joins a block saves a "
        "factor d. The paper has b = 2."
    )
    version = 1

    def grid(self, scale: Scale) -> list[Params]:
        """Every order and block size."""
        trials, full = [], scale == "full"
        for (order, size), dims in CASES.items():
            fixed = {"order": order, "modes": size, "correlation": 0.0}
            trials += cells(dims[full], ladder(-8, 2, fine=full), (10, 10) if full else (10,), **fixed)
        return trials

    def cost(self, params: Params) -> float:
        """Fewer blocks, fewer starts."""
        return climb_cost(params) / 4

    def run(self, params: Params) -> dict[str, Any]:
        """``count`` simulated climbs."""
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

    def laws(self, records: Sequence[Record]) -> dict[tuple[int, int], PowerLaw]:
        """N₅₀ against d, the schedule's own log d divided out where there are two blocks."""
        found = {}
        for order, size in CASES:
            correction = functools.partial(stages_beyond, order, size)
            found[order, size] = power_law(curves(records, order=order, modes=size), correction)
        return found

    def findings(self, records: Sequence[Record]) -> list[Finding]:
        """Slopes."""
        found = []
        for (order, size), law in self.laws(records).items():
            form = "log d" if order == 2 * size else ""
            label = f"order {order}, blocks of {size}"
            found.append(slope_finding(label, law, order - size, form=form, bound=False))
        return found


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
