"""One vector a mode against the paper's matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from tpca.lab.simulate import simulate_online
from tpca.lab.studies.climbs import COARSE, GOOD, SEEDS, cells, climb, climb_cost, curves, ladder
from tpca.lab.studies.estimates import PowerLaw, power_law
from tpca.lab.studies.findings import slope_finding
from tpca.lab.studies.scaling import Dims, logarithm
from tpca.lab.studies.store import key
from tpca.lab.studies.study import Finding, Params, Record, Scale
from tpca.randomness import generator


class Parameterisation:
    """One vector a mode against the paper's matrices."""

    name = "parameterisation"
    title = "Exact vectors against matrix blocks"
    claim = (
        "Online SGD on one vector a mode needs d^(k̄−1) (Ben Arous et al. 2021), matrix blocks d^(k̄−2) "
        "(times log d at order 4)."
    )
    version = 1
    vector_dims: ClassVar[Dims] = {
        3: ((16, 64, 256), (16, 32, 64, 128, 256, 512, 1024)),
        4: ((16, 64, 256), (16, 32, 64, 128, 256, 512, 1024)),
        6: ((8, 32, 128), (8, 16, 32, 64, 128, 256)),
    }

    def grid(self, scale: Scale) -> list[Params]:
        """Vectors at factors of d^(k̄−1), matrices at budgets."""
        trials = []
        for order, (quick, full) in self.vector_dims.items():
            dims, seeds = (quick, (50,)) if scale == "quick" else (full, (50, 200))
            factors = ladder(-8, 12, fine=scale == "full")
            for params in cells(dims, factors, seeds, order=order, kind="vector"):
                trials.append(params)
        for order, dims in ((4, (16, 64, 256, 1024)), (6, (16, 32, 64, 128))):
            low = -6 if order == 4 else -8
            trials += cells(
                dims, ladder(low, 0, scale == "full"), SEEDS[:1], order=order, correlation=0.0, kind="matrix"
            )
        return trials

    def cost(self, params: Params) -> float:
        """Vectors cost next to nothing."""
        return climb_cost(params) if params["kind"] == "matrix" else 0.1

    def run(self, params: Params) -> dict[str, Any]:
        """A climb of either kind."""
        return climb(params) if params["kind"] == "matrix" else _online(params)

    def laws(self, records: Sequence[Record]) -> dict[tuple[str, int], PowerLaw]:
        """N₅₀ against d for both kinds."""
        found = {("vector", o): power_law(curves(records, order=o, kind="vector")) for o in self.vector_dims}
        for order in (4, 6):
            law = power_law(curves(records, order=order, kind="matrix"), logarithm(order, 0.0))
            found["matrix", order] = law
        return found

    def findings(self, records: Sequence[Record]) -> list[Finding]:
        """Slopes of both."""
        found = []
        for (kind, order), law in self.laws(records).items():
            predicted = order - 1 if kind == "vector" else order - 2
            form = "log d" if (kind, order) == ("matrix", 4) else ""
            found.append(slope_finding(f"order {order}, {kind}", law, predicted, form=form))
        return found


def _online(params: Params) -> dict[str, Any]:
    """Simulated online SGD at N = budget · d^(k̄−1)."""
    order, dim = params["order"], params["dim"]
    samples = params["budget"] * dim ** (order - 1)
    cell = {name: value for name, value in params.items() if name not in ("first", "count")}
    wins = 0
    for i in range(params["count"]):
        rng = generator(params["first"] + i, key(cell))
        aligned = simulate_online((dim,) * order, 1.0, samples, rng, coarse=COARSE)
        wins += bool(np.abs(aligned).min() > GOOD)
    return {"wins": wins, "runs": params["count"], "samples": samples}
