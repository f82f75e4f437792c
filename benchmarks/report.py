"""What a run of the benchmarks leaves behind: results/report.json, and from it the table and the figure of the page.

``docs/_site/fill.py`` puts ``TABLES`` into docs/performance.md.
"""

import datetime
import json
import os
import platform
import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent
STORED, FIGURE = ROOT / "benchmarks" / "results" / "report.json", ROOT / "docs" / "figures" / "bench.png"
# In the order of the table, with their headings.
FAMILIES = {
    "peers": "The work of others",
    "race": "Race, in memory",
    "files": "From files and on a cluster",
    "online": "One sample at a time",
    "threads": "Both cores",
    "startup": "Start-up",
}


def about(threads: int) -> dict[str, object]:
    """Where, when and with what the figures were measured."""
    from importlib.metadata import version
    from importlib.util import find_spec

    from threadpoolctl import threadpool_info

    from research.studies.store import processor

    def git(*command: str) -> str:
        done = subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    changed = "+" if git("status", "--porcelain", "src", "benchmarks/*.py") else ""
    blas = sorted({f"{i['internal_api']} {i['version']}" for i in threadpool_info() if i["user_api"] == "blas"})
    packages = [
        name for name in ("numpy", "tensorly", "pyttb", "mne", "xeofs", "zarr", "distributed") if find_spec(name)
    ]
    return {
        "revision": (git("rev-parse", "--short=10", "HEAD") or "unknown") + changed,
        "date": datetime.date.today().isoformat(),
        "machine": f"{processor()}, {os.cpu_count()} cores, {threads} thread of {', '.join(blas)}",
        "load": round(os.getloadavg()[0], 1),
        "versions": {"Python": platform.python_version(), **{name: version(name) for name in packages}},
    }


def passes(row: dict) -> bool | None:
    """Whether the target is reached; None where there is none, or no figure."""
    return None if None in (row["ratio"], row["target"]) else row["ratio"] <= row["target"]


def table(stored: dict) -> list[str]:
    """Every row, family by family."""
    versions = ", ".join(f"{name} {value}" for name, value in stored["versions"].items())
    head = f"{stored['machine']}, {stored['date']}, revision {stored['revision']}, load {stored['load']}; {versions}."
    lines = [head, "", "| job | over | ratio (least … most) | target | |", "|---|---|---|---|---|"]
    for family, title in FAMILIES.items():
        lines.append(f"| **{title}** | | | | |")
        for row in (row for row in stored["rows"] if row["family"] == family):
            spread = " ({:.2g} … {:.2g})".format(*row["spread"]) if row["spread"] else ""
            ratio = "not measured" if row["ratio"] is None else f"{row['ratio']:.2g}{spread}"
            target = "" if row["target"] is None else f"≤ {row['target']:g}"
            said = {True: "pass", False: "**short**", None: ""}[passes(row)]
            lines.append(f"| {row['job']} | {row['reference']} | {ratio} | {target} | {said} |")
    return lines


def notes(stored: dict) -> list[str]:
    """What belongs to rows."""
    return [f"- {row['job']}, over {row['reference']}: {row['note']}." for row in stored["rows"] if row["note"]]


TABLES = {"table": table, "notes": notes}


def draw(stored: dict) -> None:
    """Ratios with their spread, and targets, on one logarithmic axis."""
    from tpca.report.style import COLOURS, INK, drawing, save

    rows = [row for family in FAMILIES for row in stored["rows"] if row["family"] == family and row["ratio"]]
    with drawing() as plt:
        figure, axes = plt.subplots(figsize=(11, 0.32 * len(rows) + 1.3), layout="constrained")
        for y, row in enumerate(rows):
            colour = {True: COLOURS[0], False: COLOURS[1], None: INK}[passes(row)]
            if row["spread"]:
                axes.plot(row["spread"], [y, y], color=colour, linewidth=2, solid_capstyle="round")
            axes.plot(row["ratio"], y, {True: "o", False: "D", None: "s"}[passes(row)], color=colour, markersize=7)
            if row["target"] is not None:
                axes.plot(row["target"], y, "|", color=INK, markersize=14, markeredgewidth=2)
        for marker, colour, label in (
            ("o", COLOURS[0], "within its target"),
            ("D", COLOURS[1], "short of it"),
            ("s", INK, "for orientation"),
            ("|", INK, "target"),
        ):
            axes.plot([], [], marker, color=colour, label=label)
        axes.axvline(1.0, color=INK, linewidth=1)
        axes.set(xscale="log", xlabel="ratio to the floor or the peer")
        axes.set_yticks(range(len(rows)), [f"{row['job']}\nover {row['reference']}" for row in rows], fontsize=7)
        axes.set_ylim(len(rows) - 0.4, -0.6)
        figure.legend(loc="outside upper right", ncols=4, fontsize=9)
        save(figure, FIGURE, overwrite=True)


def store(rows: list[dict], threads: int) -> dict:
    """One whole run, with its figure."""
    stored = {**about(threads), "rows": rows}
    STORED.write_text(json.dumps(stored, indent=1, ensure_ascii=False) + "\n")
    draw(stored)
    return stored
