"""The trials of ``make noise-checks``: claims on noise, claims on real data without a signal, power, coverage.

A trial is a chunk of runs of one setting.  Solvers see it through their public doors alone, with the options that users
have.  Every run draws its own data from ``(seed, law)``, so that the race and the mean see the same ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tpca.lab.studies.noise_laws import LAWS
from tpca.lab.studies.noise_planted import Planted, planted
from tpca.lab.studies.noise_summary import summarised, targets
from tpca.lab.studies.real_nulls import SETS, null_of
from tpca.lab.studies.study import Finding, Params, Record, Scale
from tpca.model import SpikedTensor
from tpca.randomness import generator
from tpca.solvers.mean.solver import MeanSolver
from tpca.solvers.race.solver import RaceSolver
from tpca.solvers.recovery import Recovery
from tpca.streams import open_stream
from tpca.tensors.blocks import Array

SOLVERS: dict[str, type[RaceSolver] | type[MeanSolver]] = {"race": RaceSolver, "mean": MeanSolver}
CHUNK = 10  # runs in a trial
RIGHT = 0.5  # overlap of every vector with the truth from which on a claim is right
PROVEN = 1e3  # a tolerance that is reached as soon as a signal is proven

SMALL: dict[str, Any] = {"dims": [8, 8, 8], "samples": 400}
LARGE: dict[str, Any] = {"dims": [10, 10, 10, 10], "samples": 400, "memory_limit": "100kB"}
LARGE_LAWS = ("white", "dir8", "resonances", "smooth0.9", "scales", "serial0.9")
# Power: strength 1 in the whitened space for the race, which says when it was proven; for the mean, which looks once, a
# strength that its test finds in about nine of ten runs in white noise.
RACE_POWER: tuple[dict[str, Any], ...] = (
    {"dims": [12, 12, 12], "samples": 600, "memory_limit": "200kB", "strength": 1.0},
    {"dims": [10, 10, 10, 10], "samples": 800, "memory_limit": "200kB", "strength": 1.0},
)
MEAN_POWER: dict[str, Any] = {"dims": [8, 8, 8], "samples": 300, "strength": 0.41}
PLANTED = (
    ("white", "rough"),
    ("smooth0.9", "rough"),
    ("smooth0.9", "smooth"),
    ("scales", "rough"),
    ("t2.5-entries", "rough"),
)
# Coverage: λ' = 1 for noise with a whitened space; the others as much stronger as their noise is along a signal
# (factors: variance 1 + 3/4, and directions that pull; serial 0.5: √3, as three samples are worth one).
COVERAGE = (
    ("white", "rough", 1.0),
    ("smooth0.9", "rough", 1.0),
    ("smooth0.9", "smooth", 1.0),
    ("scales", "rough", 1.0),
    ("factors", "rough", 2.0),
    ("t3", "rough", 1.0),
    ("serial0.5", "rough", 3**0.5),
)
# (runs in full, runs in the quick form), whole chunks
RUNS = {"claims": (200, 20), "claims, order 4": (60, 10), "real": (100, 20), "power": (40, 10), "coverage": (400, 20)}
SECONDS = {"race": 0.3, "mean": 0.05}  # of a run, about


def solver_for(params: Params, seed: int, **options: Any) -> RaceSolver | MeanSolver:
    """The solver as a user would make it."""
    if "whiten" in params:
        options["whiten"] = params["whiten"]
    return SOLVERS[params["solver"]](random_state=seed, memory_limit=params.get("memory_limit"), **options)


class NoiseChecks:
    """All settings, with seeds from ``first`` on."""

    name = "noise-checks"
    title = "Noise as real data have it"
    claim = "At most 5 % of runs without a signal claim one, whatever the noise; intervals cover what they say."
    version = 1

    def __init__(self, first: int) -> None:
        self.first = first

    def grid(self, scale: Scale) -> list[Params]:
        """Every setting, in chunks of runs."""
        trials: list[Params] = []
        for kind, settings in self.settings().items():
            runs = RUNS[kind][scale == "quick"]
            for setting in settings:
                trials += [{**setting, "first": self.first, "chunk": c} for c in range(runs // CHUNK)]
        return trials

    @staticmethod
    def settings() -> dict[str, list[Params]]:
        """What is run, kind by kind."""
        both = ("race", "mean")
        claims = [{"kind": "claims", "law": law, "solver": s, **SMALL} for law in LAWS for s in both]
        large = [{"kind": "claims", "law": law, "solver": "race", **LARGE} for law in LARGE_LAWS]
        real = [
            {"kind": "real", "set": name, "form": form, "solver": s}
            for name, data in SETS.items() for form in data.forms for s in both
        ]  # fmt: skip
        places = [{"solver": "race", **place} for place in RACE_POWER] + [{"solver": "mean", **MEAN_POWER}]
        power = [
            {"kind": "power", "law": law, "vectors": vectors, "whiten": whiten, **place}
            for place in places for law, vectors in PLANTED for whiten in (None, "auto")
        ]  # fmt: skip
        coverage = [
            {"kind": "coverage", "law": law, "vectors": vectors, "strength": strength, "solver": s, **SMALL}
            for law, vectors, strength in COVERAGE for s in both
        ]  # fmt: skip
        return {"claims": claims, "claims, order 4": large, "real": real, "power": power, "coverage": coverage}

    def cost(self, params: Params) -> float:
        """Seconds, roughly."""
        return CHUNK * SECONDS[params["solver"]] * (2.0 if len(params.get("dims", ())) > 3 else 1.0)

    def run(self, params: Params) -> dict[str, Any]:
        """A chunk of runs of one setting."""
        first = params["first"] + CHUNK * params["chunk"]
        results = [RUN[params["kind"]](params, seed) for seed in range(first, first + CHUNK)]
        return {name: [result[name] for result in results] for name in results[0]}

    def findings(self, records: Sequence[Record]) -> list[Finding]:
        """Every target, against what was measured."""
        return targets(summarised(records))


def run_claims(params: Params, seed: int) -> dict[str, Any]:
    """Whether a run on noise of a law claims a signal."""
    noise = LAWS[params["law"]](generator(seed, f"noise {params['law']}"), params["samples"], tuple(params["dims"]))
    return {"found": solver_for(params, seed).run(open_stream(noise)).found}


def run_real(params: Params, seed: int) -> dict[str, Any]:
    """Whether a run on real samples with random signs claims a signal."""
    samples = null_of(params["set"], params["form"], generator(seed, f"signs {params['set']}"))
    return {"found": solver_for(params, seed).run(open_stream(samples)).found, "samples": len(samples)}


def run_power(params: Params, seed: int) -> dict[str, Any]:
    """When a planted signal was proven, whether it is the right one, and whether the limit on what it may be held."""
    plant = _planted(params, seed)
    until = {"tol": PROVEN} if params["solver"] == "race" else {}
    recovery = solver_for(params, seed, **until).run(open_stream(plant.samples))
    proven = [record["samples"] for record in recovery.history if record["found"]]
    limit = (recovery.strength_interval or (0.0, math.inf))[1]
    right = _right(recovery, plant)
    return {
        "proven": proven[0] if recovery.found and proven else None,
        "right": right,
        "limit_held": right or bool(limit >= plant.truth.strength),
    }


def run_coverage(params: Params, seed: int) -> dict[str, Any]:
    """How many entries, and whether the strength, lie inside their nominal 95 % intervals."""
    plant = _planted(params, seed)
    recovery, truth = solver_for(params, seed).run(open_stream(plant.samples)), plant.truth
    right = _right(recovery, plant)
    if not right or recovery.standard_errors is None:
        return {"right": right, "inside": None, "strength_inside": None, "ratio": None}
    low, high = recovery.strength_interval or (math.nan, math.nan)
    distances = _distances(recovery, truth)
    return {
        "right": True,
        "inside": float(np.mean(np.abs(distances) <= 1.96)),
        "strength_inside": bool(low <= truth.strength <= high),
        "ratio": float(np.mean(distances**2)),
    }


def _planted(params: Params, seed: int) -> Planted:
    rng = generator(seed, f"planted {params['law']} {params['vectors']}")
    return planted(params["law"], params["vectors"], params["strength"], rng, params["samples"], tuple(params["dims"]))


def _right(recovery: Recovery, plant: Planted) -> bool:
    """Whether a signal was claimed, and the one that is there."""
    return recovery.found and bool(plant.overlaps(recovery.vectors).min() > RIGHT)


def _distances(recovery: Recovery, truth: SpikedTensor) -> Array:
    """(v̂ − v)/standard error of all entries, every vector with the sign of the truth."""
    triples = zip(recovery.vectors, truth.vectors, recovery.standard_errors or (), strict=True)
    return np.concatenate([(np.sign(v @ w) * v - w) / error for v, w, error in triples])


RUN: dict[str, Callable[[Params, int], dict[str, Any]]] = {
    "claims": run_claims,
    "real": run_real,
    "power": run_power,
    "coverage": run_coverage,
}
