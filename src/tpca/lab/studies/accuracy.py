"""The error at growing d: Phase III, ALS and the refinement at the same N, beside the Cramér–Rao limit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tpca.engines import LawEngine
from tpca.lab.baselines import ALS
from tpca.lab.studies.convergence import last_phase
from tpca.lab.studies.estimates import PowerLaw, power_law_of, slope_finding
from tpca.lab.studies.store import key
from tpca.lab.studies.study import Finding, Params, Record, Scale, Verdict
from tpca.model import SpikedTensor
from tpca.model.bounds import cramer_rao, gaussian_error
from tpca.randomness import generator
from tpca.solvers.paper.schedules import Leg
from tpca.solvers.race.solver import RaceSolver

KINDS = {"Phase III": ((12, 16, 24, 32, 64, 128), 10), "ALS": ((12, 16, 24), 6), "refinement": ((12, 16, 24), 6)}
FACTORS = (256, 1024, 4096)  # T₃ in d²; N = 4·T₃: two blocks, two signs


class Accuracy:
    """Loss of the vectors and of the blocks against d, order 4."""

    name = "accuracy"
    title = "Squared error at growing d: Phase III, ALS, the refinement"
    claim = (
        "Order 4, λ = 1. The paper bounds the loss of every vector by Õ(d²/(λ²T₃)) (Corollary "
        "main-result-gaussian-ass-even). No unbiased estimate is better than (d−1)/(λ²N). Ours: the blocks' 1 − α has "
        "d², the top vectors of the blocks d: the bound is loose by d."
    )
    version = 1

    def grid(self, scale: Scale) -> list[Params]:
        """Every method at N = 4·f·d²."""
        quick, trials = scale == "quick", []
        for kind, (dims, seeds) in KINDS.items():
            for dim in dims[:3] if kind == "Phase III" and quick else dims[:2] if quick else dims:
                for factor in FACTORS[:2] if quick else FACTORS:
                    trials += [
                        {"kind": kind, "dim": dim, "factor": factor, "seed": s} for s in range(2 if quick else seeds)
                    ]
        return trials

    def cost(self, params: Params) -> float:
        """Draws of d⁴ numbers."""
        seconds = {"Phase III": 0.3, "ALS": 4e-7 * params["dim"] ** 4, "refinement": 3e-6 * params["dim"] ** 4}[
            params["kind"]
        ]
        return float(seconds)

    def run(self, params: Params) -> dict[str, Any]:
        """One error, averaged over the modes."""
        dim, seed = params["dim"], params["seed"]
        truth = SpikedTensor.random((dim,) * 4, 1.0, random_state=1000 + seed)
        steps = params["factor"] * dim**2
        if params["kind"] == "Phase III":
            return _phase_three(truth, steps, generator(seed, key(params)))
        engine = LawEngine(truth, random_state=1000 + seed, max_samples=4 * steps)
        if params["kind"] == "ALS":
            found = ALS(random_state=seed).run(engine)
        else:
            memory = 8 * 20 * dim**2
            found = RaceSolver(random_state=seed, max_samples=4 * steps, memory_limit=memory, tol=1e-9).run(engine)
        return {"loss": float(np.mean(truth.loss(found.vectors))), "samples": found.n_samples}

    def laws(self, records: Sequence[Record]) -> dict[str, PowerLaw]:
        """Error over log(T)/T (Phase III) or over 1/N against d."""
        values: dict[str, dict[float, list[float]]] = {}
        for r in records:
            dim, kind = r.params["dim"], r.params["kind"]
            steps = r.params["factor"] * dim**2
            unit = math.log(steps) / steps if kind == "Phase III" else 1 / (4 * steps)
            values.setdefault(f"{kind}, vectors", {}).setdefault(dim, []).append(r.result["loss"] / unit)
            if kind == "Phase III":
                values.setdefault(f"{kind}, 1 − α of the blocks", {}).setdefault(dim, []).append(
                    r.result["beside"] / unit
                )
        return {name: power_law_of(each) for name, each in values.items()}

    def findings(self, records: Sequence[Record]) -> list[Finding]:
        """Slopes in d, their constants, and every method over the Cramér–Rao limit at the same N."""
        found = []
        for name, law in self.laws(records).items():
            power = 1 if name.endswith("vectors") else 2
            shares = [y / x**power for x, y in law.points.items()]
            unit = "log T/T" if name.startswith("Phase III") else "1/N"
            note = f"{np.mean(shares):.3f}·d{'²' if power == 2 else ''}·{unit} on average."
            bound = 2 if name.startswith("Phase III") else 1
            found.append(slope_finding(f"{name}, against d", law, bound, note))
        for kind in KINDS:
            mine = [r for r in records if r.params["kind"] == kind]
            if not mine:
                continue
            ratios = [r.result["loss"] / cramer_rao(r.params["dim"], 1.0, r.result["samples"]) for r in mine]
            error = float(np.std(ratios) / math.sqrt(len(ratios)))
            text = f"{np.mean(ratios):.2f} ± {error:.2f}"
            verdict = Verdict.of(float(np.mean(ratios)) > 1 - 3 * error)
            note = (
                "log T times as much, and both signs and every block have samples of their own."
                if kind == "Phase III"
                else ""
            )
            found.append(Finding(f"{kind}, loss over Cramér–Rao at the same N", "at least 1", text, verdict, note))
        worst = [r for r in records if r.params["kind"] == "Phase III"]
        if worst:
            shares = [r.result["loss"] / _bound(r.params) for r in worst]
            text = f"largest {max(shares):.1e} of it"
            found.append(
                Finding(
                    "Phase III, loss over the paper's bound, δ = 0.1", "at most 1", text, Verdict.of(max(shares) <= 1)
                )
            )
        return found


def _bound(params: Params) -> float:
    return gaussian_error(4, params["dim"], 1.0, params["factor"] * params["dim"] ** 2, 0.1)


def _phase_three(truth: SpikedTensor, steps: int, rng: np.random.Generator) -> dict[str, Any]:
    """Phase III, final blocks drawn."""
    run = last_phase(truth, Leg(math.log(steps) ** 2 / (2 * steps), steps), rng)
    loss = float(np.mean(truth.loss(run.vectors())))
    return {"loss": loss, "beside": float(np.mean(1 - np.abs(run.alignments))), "samples": 4 * steps}
