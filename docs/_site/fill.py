"""Fills in what pages quote: printed answers of the gallery, figures from stored JSON.  Nothing is copied by hand.

A page has ``<!-- fill: NAME -->`` and ``<!-- end -->``; what stands between is replaced.

    python docs/_site/fill.py [--check]
"""

import argparse
import importlib.util
import json
import re
import sys
from functools import partial
from pathlib import Path
from typing import Any

from tpca.solvers.paper.solver import planned_samples

ROOT = Path(__file__).parent.parent.parent
MARK = re.compile(r"(<!-- fill: ([^>]*?) -->\n).*?(<!-- end -->)", re.S)


def printed(name: str) -> str:
    """What an example of the gallery said."""
    return f"```text\n{(ROOT / 'docs' / 'figures' / 'gallery' / f'{name}.txt').read_text().strip()}\n```\n"


def measured(_: str) -> str:
    """The first table of docs/performance.md."""
    targets = json.loads((ROOT / "docs" / "race-targets.json").read_text())
    checks = json.loads((ROOT / "docs" / "race-checks.json").read_text())
    views = json.loads((ROOT / "benchmarks" / "results" / "tensor_cca.json").read_text())["rows"]
    race = next(r for r in targets["rows"] if (r["order"], r["dim"], r["kind"], r["source"]) == (4, 24, "weak", "law"))
    claims, runs = (sum(r[k] for r in checks["false_alarms"]) for k in ("claims", "runs"))
    covered = [r["components"] for r in checks["coverage"]]
    refinement = [r["ratio"] for r in targets["refinement"]]
    both = max((r for r in views if "cca-zoo" in r), key=lambda r: r["entries"])
    huge = max(views, key=lambda r: r["entries"])
    rows = [
        (
            f"signal proven, order 4, d = {race['dim']}, λ = σ = 1, {race['trials']} runs",
            f"{race['proven']} of them, half by {race['proven_median']:.2f}·d² of the {race['factor']:g}·d² samples",
            "make race-targets",
        ),
        (
            "squared error of the vectors, once proven, over the Cramér–Rao limit",
            f"{min(refinement):.2f} to {max(refinement):.2f} (below 1: samples of the search help, too)",
            "make race-targets",
        ),
        ("claims on pure noise, at any time, confidence 0.95", f"{claims} of {runs} runs", "make race-checks"),
        (
            "nominal 95 % intervals of vector entries that hold the truth",
            f"{min(covered):.1%} to {max(covered):.1%}",
            "make race-checks",
        ),
        (
            f"four views, {both['entries'] / 1e6:.0f} million entries if built, against cca-zoo",
            f"{both['faster']:.0f}× faster, {both['less_memory']:.0f}× less memory, same answer",
            "python benchmarks/tensor_cca.py",
        ),
        (
            f"four views, {huge['entries']:.1e} entries if built",
            f"{huge['tpca']['seconds']:.0f} s, {huge['tpca']['peak_mb']:.0f} MB",
            "python benchmarks/tensor_cca.py",
        ),
    ]
    lines = [f"| {what} | {value} | `{command}` |" for what, value, command in rows]
    return "\n".join(["| measured | | command |", "|---|---|---|", *lines]) + "\n"


def cluster(name: str) -> str:
    """A table of benchmarks/dask_scaling.py, from its stored result."""
    module, stored = benchmark("dask_scaling")
    return "\n".join(getattr(module, name)(stored)) + "\n"


def benchmark(name: str) -> tuple[Any, Any]:
    """A program of benchmarks/, and its stored result."""
    place = ROOT / "benchmarks" / f"{name}.py"
    return program(place), json.loads((place.parent / "results" / f"{name}.json").read_text())


def program(place: Path) -> Any:
    """A program that is not part of the package."""
    spec = importlib.util.spec_from_file_location(place.stem, place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def noise(name: str) -> str:
    """A part of docs/noise.md, from what ``make noise-checks`` has written."""
    from research.noise.tables import TABLES

    return TABLES[name](json.loads((ROOT / "docs" / "noise-checks.json").read_text()))


def real(name: str) -> str:
    """A part of docs/real.md, from what ``make real`` has written."""
    from research.real.tables import TABLES

    return TABLES[name](json.loads((ROOT / "docs" / "real.json").read_text()))


def components(kind: str) -> str:
    """A table of docs/components.md, from what ``make components`` has written."""
    from research.components import TABLES

    stored = json.loads((ROOT / "docs" / "components.json").read_text())
    if kind == "made":
        about, count = stored["made"], sum(len(line["records"]) for line in stored["lines"])
        return f"{count:,} fits; revision {about['revision']}, NumPy {about['numpy']}, Python {about['python']}.\n"
    return TABLES[kind]([line for line in stored["lines"] if line["kind"] == kind]) + "\n"


def race(name: str) -> str:
    """A table of docs/race.md, from what ``python -m research table`` has written."""
    from research.race_tables import TABLES

    file, shown = next((file, table.shown[name]) for file, table in TABLES.items() if name in table.shown)
    return shown(json.loads((ROOT / "docs" / f"{file}.json").read_text()))


def schedule(_: str) -> str:
    """What the paper's empirical schedule would ask for: Case I, Case II, and Case II with the theory preset."""
    lines = ["| order, d | Case I (c₃ = 1) | Case II (worst case) | Case II, `theory` constants |", "|---|---|---|---|"]
    for order, dim in ((4, 8), (4, 16), (5, 8), (6, 8)):
        usual, theory = planned_samples((dim,) * order), planned_samples((dim,) * order, preset="theory")
        lines.append(f"| {order}, {dim} | {usual['Case I']:.1e} | {usual['Case II']:.1e} | {theory['Case II']:.1e} |")
    return "\n".join(lines) + "\n"


def measured_by(program: str, name: str) -> str:
    """A table of a program of benchmarks/, from its stored result."""
    module, stored = benchmark(program)
    return "\n".join(module.TABLES[name](stored)) + "\n"


def reliability(name: str) -> str:
    """A table of docs/reliability.md, from what ``make attack`` has written."""
    module = program(ROOT / "tests" / "attack" / "table.py")
    text: str = module.TABLES[name](json.loads((ROOT / "docs" / "reliability.json").read_text()))
    return text


FILLS = {"printed": printed, "measured": measured, "cluster": cluster, "noise": noise, "schedule": schedule}
FILLS |= {"race": race, "claims": partial(measured_by, "claims"), "bench": partial(measured_by, "report")}
FILLS |= {"reliability": reliability, "cca": partial(measured_by, "tensor_cca"), "real": real}
FILLS |= {"components": components}


def filled(text: str) -> str:
    """The page as it should be."""

    def fresh(match: re.Match[str]) -> str:
        kind, _, argument = match[2].partition(" ")
        return match[1] + FILLS[kind](argument) + match[3]

    return MARK.sub(fresh, text)


def pages() -> list[Path]:
    """Every page that may quote."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def main() -> int:
    """Write, or with --check only say which pages are out of date."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    stale = [page for page in pages() if filled(page.read_text()) != page.read_text()]
    for page in stale:
        sys.stdout.write(f"{page.relative_to(ROOT)}\n")
        if not check:
            page.write_text(filled(page.read_text()))
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
