r"""Constants of the planner from the stored study of memory.

``python -m tpca.lab.studies.constants --store docs/reproduction --out src/tpca/lab/planning/constants.json``

For every method and order: the geometric mean over the sizes of N₅₀ divided by the method's form
(:mod:`tpca.lab.planning.methods`; of the race at its state), with the interval that the sizes' own intervals span, the
passes, the sizes and the runs.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tpca.errors import StudyError
from tpca.lab.planning.methods import METHODS, race_size
from tpca.lab.planning.problem import Problem
from tpca.lab.studies.memory import Memory
from tpca.lab.studies.memory_findings import Point
from tpca.lab.studies.store import Store

FORMS = {method.name: method.form for method in METHODS}


def unit_of(point: Point) -> float:
    """What N₅₀ of a point is divided by; NaN where it has no form."""
    problem = Problem((point.dim,) * point.order, symmetric=point.symmetric)
    if point.method == "race":
        size = race_size(problem.dims, 8 * (point.memory or 0) * point.dim**2)
        return math.nan if size is None else size.form(problem.dims) * problem.unit
    if point.method == "race, equal":
        return problem.unit
    return FORMS[point.method](problem) if point.method in FORMS else math.nan


def measured(points: Sequence[Point]) -> dict[str, Any]:
    """One method at one order."""
    units = [unit_of(p) for p in points]
    logs = [
        [math.log(x / u) for x in (p.samples.value, p.samples.low, p.samples.high)]
        for p, u in zip(points, units, strict=True)
    ]
    value, low, high = (math.exp(statistics.fmean(column)) for column in zip(*logs, strict=True))
    return {
        "constant": float(f"{value:.3g}"),
        "interval": [float(f"{low:.3g}"), float(f"{high:.3g}")],
        "spread": float(f"{math.exp(max(row[0] for row in logs) - min(row[0] for row in logs)):.3g}"),
        "passes": statistics.median(p.passes for p in points),
        "dims": sorted({p.dim for p in points}),
        "runs": sum(p.runs for p in points),
    }


def constants(store: Store) -> dict[str, Any]:
    """All constants that the store has data for."""
    study = Memory()
    records = store.records(study)
    if not records:
        raise StudyError(f"there is nothing in {store.path(study)}; run the study 'memory' first.")
    groups: dict[tuple[str, int], list[Point]] = {}
    for point in study.points(records):
        if math.isfinite(point.samples.high) and math.isfinite(unit_of(point)):
            groups.setdefault((point.method, point.order), []).append(point)
    general = [p for points in groups.values() for p in points if not p.symmetric]
    frontier = min((p.product for p in general), default=1.0)
    methods: dict[str, dict[str, Any]] = {}
    for (name, order), points in sorted(groups.items()):
        methods.setdefault(name, {})[str(order)] = measured(points)
    made = {
        "study": study.name,
        "version": study.version,
        "store": store.path(study).as_posix(),
        "trials": len(records),
        "revisions": revisions(store.path(study)),
        "meaning": "samples at 50 % success divided by the method's form, in units of (noise/strength)²",
    }
    return {"provenance": made, "frontier": float(f"{frontier:.3g}"), "methods": methods}


def revisions(path: Path) -> list[str]:
    """The revisions of the source that the trials were made with."""
    return sorted({json.loads(line)["revision"] for line in path.read_text(encoding="utf-8").splitlines() if line})


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the store, write the constants."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, default=Path("docs/reproduction"))
    parser.add_argument("--out", type=Path, default=Path("src/tpca/lab/planning/constants.json"))
    options = parser.parse_args(arguments)
    options.out.write_text(json.dumps(constants(Store(options.store)), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
