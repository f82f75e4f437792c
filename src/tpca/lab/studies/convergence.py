"""The end of the climb: error against the samples of Phase III, and of our refinement, beside the Cramér–Rao limit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tpca.engines import LawEngine, open_engine
from tpca.lab.simulate import SimulatedRun
from tpca.lab.studies.climbs import COARSE
from tpca.lab.studies.estimates import PowerLaw, flat, power_law_of, slope_finding
from tpca.lab.studies.store import key
from tpca.lab.studies.study import Finding, Params, Record, Scale, Verdict
from tpca.model import SpikedTensor
from tpca.model.bounds import cramer_rao
from tpca.randomness import generator
from tpca.solvers.paper.run import PaperRun
from tpca.solvers.paper.schedules import Leg
from tpca.solvers.paper.top_vectors import block_vectors
from tpca.solvers.race.solver import RaceSolver
from tpca.tensors.blocks import Array, Partition, unit

START = 0.8  # alignment of every block when Phase III begins
NOISES = ("gaussian", "rademacher", "uniform", "correlated", "student-t")


class Convergence:
    """Squared error against T₃."""

    name = "convergence"
    title = "Squared error against the samples of the last phase"
    claim = (
        "Gaussian noise: at most Õ(d²/(λ²T₃)), slope −1 (times log T₃: the step size is halved log T₃ times). Other "
        "noise: −½ in the theorem, −1 by erratum 18 of docs/paper.md for all noise of the assumption. The refinement: "
        "(d−1)/(λ²T₃), the Cramér–Rao limit."
    )
    version = 1

    def grid(self, scale: Scale) -> list[Params]:
        """Phase III simulated and on real samples of several noise laws, and the refinement."""
        quick = scale == "quick"
        simulated = [2**j for j in (range(15, 22, 2) if quick else range(14, 26))]
        dense = [2**j for j in (range(12, 15) if quick else range(11, 16))]
        refinement = [2.0**j for j in (range(2, 7, 2) if quick else range(2, 8))]
        seeds, few = (4, 2) if quick else (20, 6)
        trials: list[Params] = []
        for dim in (16,) if quick else (16, 32):
            trials += [
                {"kind": "simulated", "dim": dim, "steps": t, "seed": s} for t in simulated for s in range(seeds)
            ]
        for noise in NOISES:
            trials += [{"kind": noise, "dim": 5, "steps": t, "seed": s} for t in dense for s in range(few)]
        trials += [
            {"kind": "refinement", "dim": 12, "factor": f, "seed": s} for f in refinement for s in range(2 * few)
        ]
        return trials

    def cost(self, params: Params) -> float:
        """Real samples cost."""
        return params["steps"] * 1.5e-4 if params["kind"] in NOISES else 0.3

    def run(self, params: Params) -> dict[str, Any]:
        """One error, averaged over the modes."""
        truth = SpikedTensor.random((params["dim"],) * 4, 1.0, random_state=params["seed"])
        rng = generator(params["seed"], key(params))
        if params["kind"] == "refinement":
            return _refinement(truth, params)
        leg = Leg(math.log(params["steps"]) ** 2 / (2 * params["steps"]), params["steps"])
        simulated = params["kind"] == "simulated"
        vectors = last_phase(truth, leg, rng).vectors() if simulated else _sampled(truth, leg, params, rng)
        return {"loss": float(np.mean(truth.loss(vectors))), "samples": params["steps"]}

    def laws(self, records: Sequence[Record]) -> dict[tuple[str, int], PowerLaw]:
        """Median squared error against T₃, from T₃ = 80 entries of a block on: the start must be forgotten."""
        groups: dict[tuple[str, int], dict[float, list[float]]] = {}
        for r in records:
            kind, dim = r.params["kind"], r.params["dim"]
            level = r.params.get("steps") or r.params["factor"] * dim**2
            if kind == "refinement" or level >= 80 * dim**2:
                groups.setdefault((kind, dim), {}).setdefault(level, []).append(r.result["loss"])
        return {
            (kind, dim): power_law_of(values, flat if kind == "refinement" else math.log)
            for (kind, dim), values in sorted(groups.items())
        }

    def findings(self, records: Sequence[Record]) -> list[Finding]:
        """Slopes, how the error grows with d, and the refinement against its limit."""
        found = []
        for (kind, dim), law in self.laws(records).items():
            if kind != "refinement":
                label = f"Phase III, {'Gaussian, simulated' if kind == 'simulated' else kind}, d = {dim}"
                note = "outside the assumption." if kind == "student-t" else ""
                found.append(slope_finding(label, law, -1, note, form="log T₃"))
        found += self._growth(records)
        ratios = [r.result["ratio"] for r in records if r.params["kind"] == "refinement"]
        if ratios:
            mean, error = float(np.mean(ratios)), float(np.std(ratios) / math.sqrt(len(ratios)))
            verdict, text = Verdict.of(mean < 1 + 3 * error), f"{mean:.2f} ± {error:.2f}"
            note = f"{len(ratios)} races; what the candidate learnt before the refinement counts too, hence below 1."
            found.append(Finding("refinement, squared error / Cramér–Rao", "at most 1", text, verdict, note))
        return found

    def _growth(self, records: Sequence[Record]) -> list[Finding]:
        """Median loss at d = 32 over that at d = 16, at every T₃ of both fits: 4 by the paper's d², 2 by d."""
        laws = self.laws(records)
        if ("simulated", 16) not in laws or ("simulated", 32) not in laws:
            return []
        small, large = (laws["simulated", d].points for d in (16, 32))
        ratios = [large[t] / small[t] for t in large if t in small]
        text = f"{min(ratios):.2f} to {max(ratios):.2f}, median {np.median(ratios):.2f}, at {len(ratios)} values of T₃"
        note = "about 2: the vectors' error has d, as the Cramér–Rao limit has; the bound is loose by d (see accuracy)."
        label, agree = "Phase III, loss at d = 32 over d = 16", float(np.median(ratios)) <= 4
        return [Finding(label, "at most 4: Õ(d²/(λ²T₃))", text, Verdict.of(agree), note)]


def last_phase(truth: SpikedTensor, leg: Leg, rng: np.random.Generator) -> SimulatedRun:
    """Phase III on the reduced chain."""
    run = SimulatedRun(truth, rng, coarse=COARSE)
    run.coordinates = [np.array([[START, math.sqrt(1 - START**2), 0.0]]) for _ in run.coordinates]
    run.estimate([leg] * len(run.partition))
    return run


def _sampled(truth: SpikedTensor, leg: Leg, params: Params, rng: np.random.Generator) -> tuple[Array, ...]:
    """Phase III on real samples."""
    stream = truth.stream(noise=params["kind"], random_state=params["seed"])
    run = PaperRun(open_engine(stream), rng)
    partition = Partition.pairs(truth.dims)
    begin = []
    for block in partition.outer(truth.vectors):
        beside = rng.standard_normal(block.shape)
        beside = unit(beside - np.vdot(beside, block) * block)
        begin.append((START * block + math.sqrt(1 - START**2) * beside)[None])
    run.replicas = tuple(begin)
    run.estimate([leg] * len(partition))
    return block_vectors(partition, tuple(block[0] for block in run.replicas), "power", rng)


def _refinement(truth: SpikedTensor, params: Params) -> dict[str, Any]:
    """A race, its refinement compared with (d−1)/(λ²T₃)."""
    dim = params["dim"]
    solver = RaceSolver(
        random_state=params["seed"], max_samples=int((2 + params["factor"]) * dim**2), memory_limit=8 * 20 * dim**2
    )
    recovery = solver.run(LawEngine(truth, random_state=params["seed"]))
    searched = [h["samples"] for h in recovery.history if h["phase"] == "search"][-1]
    refined = max(recovery.n_samples - searched, 1)
    loss = float(np.mean(truth.loss(recovery.vectors)))
    return {"loss": loss, "samples": refined, "ratio": loss / cramer_rao(dim, truth.strength, refined)}
