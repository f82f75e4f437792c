"""Pairs that are not alike: unequal correlations, unequal dims, and vectors that are alike across pairs."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tpca.lab.simulate import SimulatedRun
from tpca.lab.studies.climbs import COARSE, GOOD, cell_of, cells, climb, climb_cost, constants_of, curves, ladder
from tpca.lab.studies.estimates import PowerLaw, power_law, slope_finding
from tpca.lab.studies.study import Finding, Params, Record, Scale, Verdict
from tpca.model import SpikedTensor
from tpca.model.bounds import adaptive_samples, gauge
from tpca.randomness import generator
from tpca.solvers.paper.pairing import MARGIN, pairings_of
from tpca.solvers.paper.schedules import (
    PRESETS,
    Constants,
    Schedule,
    empirical_schedule,
    gauged_schedule,
    search_steps,
    theorem_schedule,
)
from tpca.tensors.blocks import Array, Partition

PATTERNS = ([0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [1.0, 1.0, 1.0])
HIDDEN = ((0, 2), (1, 4), (3, 5))  # which modes have the same vector
SHAPE = (1, 1, 2, 2, 4, 4)  # unequal dims, in units of the shortest


class Unequal:
    """The corollary's min, unequal dims, and the choice of pairing, order 6."""

    name = "unequal"
    title = "Unequal correlations, unequal dims, and which modes make a pair"
    claim = (
        "Order 6. Of the theorem's schedule and Case II the smaller is taken (Corollary cor-equal-dim): where one pair "
        "of three is correlated max γ⁴ makes the first far too large. Unequal dims: N₅₀ ~ max D γ⁴ ∏γ⁻². Ours: where "
        "equal vectors are not neighbours (v₁ = v₃, v₂ = v₅, v₄ = v₆) the c₃ score of all 15 pairings on the same "
        "samples finds the pairing, and N ~ d³ instead of d⁴."
    )
    version = 1

    def grid(self, scale: Scale) -> list[Params]:
        """Patterns at one d, both schedules; a shape at growing size; hidden pairs with and without the search."""
        quick, full = scale == "quick", scale == "full"
        seeds, trials = (10,) if quick else (10, 10), []
        for pattern in PATTERNS[1:3] if quick else PATTERNS:
            for schedule in ("gauged", "case II"):
                fixed = {"kind": "pattern", "order": 6, "correlation": pattern, "schedule": schedule}
                low = -12 if schedule == "gauged" else -8
                trials += cells((256,), ladder(low, 0, full), seeds, **fixed)
        for correlation in (0.0, 1.0):
            for dim in (16, 64, 256) if quick else (8, 16, 32, 64, 128, 256):
                fixed = {"kind": "dims", "order": 6, "lengths": [dim * n for n in SHAPE], "correlation": correlation}
                trials += cells((dim,), ladder(-8, 4 if correlation else 0, full), seeds, **fixed)
        for choice in ("neighbours", "search"):
            dims = (64, 128, 512) if quick else (64, 128, 256, 512)
            if full and choice == "search":
                dims = (*dims, 1024, 2048)
            fixed = {"kind": "hidden", "order": 6, "correlation": 1.0, "choice": choice}
            trials += cells(dims, ladder(-8, 2, full), seeds, **fixed)
        return trials

    def cost(self, params: Params) -> float:
        """As a climb."""
        return climb_cost(params)

    def run(self, params: Params) -> dict[str, Any]:
        """A climb, or one that chooses its pairing first."""
        return _hidden(params) if params["kind"] == "hidden" else climb(params)

    def laws(self, records: Sequence[Record]) -> dict[str, PowerLaw]:
        """N₅₀ against the form of unequal dims, and against d for hidden pairs."""
        found = {}
        for correlation, name in ((0.0, "uncorrelated"), (1.0, "identical in pairs")):
            each = curves(records, kind="dims", correlation=correlation)
            forms = {shape_form(int(d), correlation): curve for d, curve in each.items()}
            found[f"dims d·{SHAPE}, {name}"] = power_law(forms)
        for choice in ("neighbours", "search"):
            each = curves(records, kind="hidden", choice=choice)
            found[f"hidden pairs, {choice}"] = power_law({d: c for d, c in each.items() if d >= 64})
        return found

    def findings(self, records: Sequence[Record]) -> list[Finding]:
        """What both schedules ask for and what they need; slopes."""
        found = [f for pattern in PATTERNS for f in self._pattern(records, pattern)]
        for name, law in self.laws(records).items():
            if name.startswith("dims"):
                found.append(slope_finding(f"{name}, N₅₀ against max D γ⁴ ∏γ⁻²", law, 1))
                continue
            if "neighbours" in name:
                found.append(slope_finding(name, law, 4, "neighbours are uncorrelated: nothing is gained."))
                continue
            note = "the search's 64·d³ included; Case I needs up to twice the theorem's samples (empirical-schedule)."
            found.append(slope_finding(name, law, 3, note))
        return found

    def _pattern(self, records: Sequence[Record], pattern: list[float]) -> list[Finding]:
        """One pattern of correlations at d = 256."""
        half, asked = {}, {}
        truth = SpikedTensor.random((256,) * 6, 1.0, correlations=pattern, random_state=0)
        for name in ("gauged", "case II"):
            each = curves(records, kind="pattern", correlation=pattern, schedule=name)
            if 256.0 not in each:
                return []
            half[name] = each[256.0].half()
            asked[name] = 2.0**6 * _asked(truth, name).climb()
        smaller = min(asked, key=lambda name: asked[name])
        taken = 2.0**6 * theorem_schedule(truth, PRESETS["practical"]).climb()
        label = f"d = 256, Cor = {', '.join(f'{c:g}' for c in pattern)}"
        told = f"the smaller is taken and succeeds: the theorem's {asked['gauged']:.1e}, Case II {asked['case II']:.1e}"
        text = f"N₅₀ {half['gauged']:.1e} and {half['case II']:.1e}; taken {taken:.1e}"
        agree = math.isclose(taken, asked[smaller], rel_tol=1e-3) and half[smaller] <= taken
        return [Finding(label, told, text, Verdict.of(agree), "at a budget of 1, all 2⁶ starts.")]


def shape_form(dim: int, correlation: float) -> float:
    """The form max D γ⁴ ∏γ⁻² of the unequal dims, c₀ = 1."""
    dims = [dim * n for n in SHAPE]
    return adaptive_samples(dims, gauge(dims, [correlation] * 3, 1.0))


def _asked(truth: SpikedTensor, name: str) -> Schedule:
    if name == "gauged":
        return gauged_schedule(truth, PRESETS["practical"])
    return empirical_schedule(Partition.pairs(truth.dims), truth.strength, PRESETS["practical"], c3=None)


def _hidden(params: Params) -> dict[str, Any]:
    """``count`` climbs on vectors that are alike across pairs."""
    wins, logs = 0, []
    for i in range(params["count"]):
        rng = generator(params["first"] + i, cell_of(params))
        drawn = SpikedTensor.random((params["dim"],) * 6, 1.0, random_state=int(rng.integers(2**31))).vectors
        source = {b: a for a, b in HIDDEN}
        truth = SpikedTensor(tuple(drawn[source.get(n, n)] for n in range(6)), 1.0)
        run = _paired_climb(truth, constants_of(params), rng, params["choice"] == "search")
        wins += bool(np.abs(run.alignments).min() > GOOD)
        logs.append(math.log(run.samples))
    return {"wins": wins, "runs": params["count"], "samples": float(np.exp(np.mean(logs)))}


def _paired_climb(truth: SpikedTensor, constants: Constants, rng: np.random.Generator, search: bool) -> SimulatedRun:
    """Neighbours and Case II; or the pairing with the largest score and Case I, if any passes the test of c₃ = 1."""
    taken, c3 = 0, None
    if search:
        test = search_steps(Partition.pairs(truth.dims), truth.strength, constants)[0]
        taken = round(MARGIN * test.samples)
        groups, score = best_pairing(truth, taken, rng)
        if abs(score) >= test.threshold:
            c3, truth = test.c3, SpikedTensor(tuple(truth.vectors[n] for g in groups for n in g), truth.strength)
    run = SimulatedRun(truth, rng, coarse=COARSE)
    schedule = empirical_schedule(run.partition, truth.strength, constants, c3)
    run.samples += taken
    run.climb(schedule)
    run.select(schedule.selection)
    return run


def best_pairing(
    truth: SpikedTensor, samples: int, rng: np.random.Generator
) -> tuple[tuple[tuple[int, ...], ...], float]:
    """The pairing of equal modes with the largest |mean score| over ``samples``, from the scores' exact joint law.

    The score of a pairing is ⟨⊗I, T⟩: mean λ∏Cor, and covariance d^c between two pairings whose edges together form c
    cycles.
    """
    every = [partition.groups for partition in pairings_of(truth.dims)]
    means = [truth.strength * math.prod(float(truth.vectors[a] @ truth.vectors[b]) for a, b in g) for g in every]
    noise = _root(truth.order, truth.dims[0]) @ rng.standard_normal(len(every)) / math.sqrt(samples)
    scores = np.array(means) + noise
    best = int(np.argmax(np.abs(scores)))
    return every[best], float(scores[best])


@functools.cache
def _root(order: int, dim: int) -> Array:
    """A square root of the covariance of all scores of one sample."""
    every = [partition.groups for partition in pairings_of((dim,) * order)]
    covariance = np.array([[float(dim) ** _cycles(p, q) for q in every] for p in every])
    values, vectors = np.linalg.eigh(covariance)
    root: Array = vectors * np.sqrt(np.maximum(values, 0.0))
    return root


def _cycles(p: tuple[tuple[int, ...], ...], q: tuple[tuple[int, ...], ...]) -> int:
    """Cycles of the union of two perfect matchings."""
    across = {a: b for pair in q for a, b in (pair, pair[::-1])}
    along = {a: b for pair in p for a, b in (pair, pair[::-1])}
    left, count = set(along), 0
    while left:
        at, count = min(left), count + 1
        while at in left:
            left -= {at, along[at]}
            at = across[along[at]]
    return count
