"""What a run of the benchmarks leaves behind: the table, the JSON, the history and its figure, the page."""

import json
import os
import platform
import subprocess
import time
from dataclasses import asdict
from pathlib import Path

import costs
import numpy as np
from suite import RESULTS, Row

ROOT = Path(__file__).parent.parent
LATEST, HISTORY = RESULTS / "latest.json", RESULTS / "history.jsonl"
# In the order of the table.
FAMILIES = (
    "small",
    "peers",
    "race",
    "files",
    "dask",
    "online",
    "views",
    "arrays",
    "moments",
    "simulate",
    "startup",
    "growth",
)
PAGE, FIGURE = ROOT / "docs" / "performance.md", ROOT / "docs" / "figures" / "bench_history.png"


def machine(threads: int) -> dict[str, object]:
    """Where and with what the figures were measured."""
    from threadpoolctl import threadpool_info

    blas = sorted({f"{i['internal_api']} {i['version']}" for i in threadpool_info() if i["user_api"] == "blas"})
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "blas": ", ".join(blas),
        "blas_threads": threads,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def revision() -> str:
    """The commit, with a + if the sources have changed since."""

    def git(*command: str) -> str:
        done = subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    return (git("rev-parse", "--short", "HEAD") or "unknown") + ("+" if git("status", "--porcelain", "src") else "")


def as_dict(row: Row) -> dict[str, object]:
    known = {name: value for name, value in asdict(row).items() if value not in (None, "") and name != "also"}
    return {**known, "ok": row.ok}


def store(rows: dict[str, list[Row]], tables: dict[str, list[list[str]]], threads: int, only: bool) -> None:
    """latest.json, and one more line of the history; with ``only``, what was not measured now stays as it was.

    A ratio does not need the others: its reference was measured beside it.  Every row says of which revision it is.
    """
    now = revision()
    fresh = [{"family": family, **as_dict(row), "revision": now} for family, some in rows.items() for row in some]
    before = json.loads(LATEST.read_text()) if only else {"rows": [], "costs": {}}
    kept = [row for row in before["rows"] if row["family"] not in rows]
    every = sorted(fresh + kept, key=lambda row: FAMILIES.index(row["family"]))
    stored = {"machine": machine(threads), "revision": now, "rows": every, "costs": tables or before["costs"]}
    RESULTS.mkdir(exist_ok=True)
    LATEST.write_text(json.dumps(stored, indent=1, ensure_ascii=False) + "\n")
    line = {"revision": now, "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
    line["rows"] = [{name: row[name] for name in ("job", "ratio", "target", "ok")} for row in fresh]
    with HISTORY.open("a") as file:
        file.write(json.dumps(line, ensure_ascii=False) + "\n")


def show(stored: dict) -> None:
    """The table on the terminal."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=_caption(stored), title_justify="left", show_lines=False)
    for name, side in (
        ("job", "left"),
        ("floor or peer", "left"),
        ("ratio", "right"),
        ("target", "right"),
        ("", "left"),
    ):
        table.add_column(name, justify=side, overflow="fold")
    for row in stored["rows"]:
        verdict = "[green]pass[/]" if row["ok"] else "[red]short[/]"
        table.add_row(row["job"], row["reference"], f"{row['ratio']:.3g}", target(row), verdict)
    console = Console(width=max(120, Console().width))
    console.print(table)
    for row in stored["rows"]:
        if "note" in row:
            console.print(f"[dim]{row['job']}: {row['note']}[/]", highlight=False)


def target(row: dict) -> str:
    """The target in words."""
    if "within" in row:
        return f"{row['target']:g} ± {row['within']:g}"
    return f"≤ {row['target']:g}"


def _caption(stored: dict) -> str:
    about = stored["machine"]
    threads = f"{about['blas_threads']} BLAS thread" + ("s" if about["blas_threads"] != 1 else "")
    return (
        f"{about['processor']}, {about['cores']} cores, {threads} ({about['blas']}), Python {about['python']}, "
        f"NumPy {about['numpy']}, revision {', '.join(sorted({row['revision'] for row in stored['rows']}))}"
    )


def markdown(stored: dict) -> str:
    """The table of docs/performance.md."""
    lines = [
        _caption(stored) + ".",
        "",
        "| job | floor or peer | ratio (least … most) | target | |",
        "|---|---|---|---|---|",
    ]
    for row in stored["rows"]:
        spread = " ({:.2f} … {:.2f})".format(*row["spread"]) if "spread" in row else ""
        verdict = "pass" if row["ok"] else "**short**"
        lines.append(f"| {row['job']} | {row['reference']} | {row['ratio']:.2f}{spread} | {target(row)} | {verdict} |")
    return "\n".join(lines)


def write_page() -> None:
    """Put the stored table between the marks of the page, and draw the history."""
    page, stored = PAGE.read_text(), json.loads(LATEST.read_text())
    for mark, text in (("bench", markdown(stored)), ("costs", costs.markdown(stored["costs"]))):
        begin, end = f"<!-- {mark}: begin -->", f"<!-- {mark}: end -->"
        before, rest = page.split(begin)
        _, after = rest.split(end)
        page = f"{before}{begin}\n{text}\n{end}{after}"
    PAGE.write_text(page)
    draw_history()


def draw_history() -> None:
    """Ratio ÷ target of every job, the last revision before all others that were measured."""
    measured: dict[str, dict[str, float]] = {}
    for line in map(json.loads, HISTORY.read_text().splitlines()):
        ratios = {row["job"]: row["ratio"] / row["target"] for row in line["rows"]}
        measured[line["revision"]] = measured.pop(line["revision"], {}) | ratios
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    passed = {row["job"]: row["ok"] for row in json.loads(LATEST.read_text())["rows"]}
    jobs = list(passed)
    figure, axes = pyplot.subplots(figsize=(11, 0.26 * len(jobs) + 1.2), layout="constrained")
    for height, job in enumerate(reversed(jobs)):
        *before, now = [ratios[job] for ratios in measured.values() if job in ratios]
        axes.plot(before, [height] * len(before), "o", color="#999999", markersize=4, fillstyle="none")
        marker, colour = ("o", "#0072B2") if passed[job] else ("D", "#D55E00")
        axes.plot([now], [height], marker, color=colour, markersize=7)
    axes.axvline(1.0, color="black", linewidth=1)
    axes.set(xscale="log", xlabel="ratio ÷ target: at most 1 is a pass (diamonds are short; hollow: revisions before)")
    axes.set_yticks(range(len(jobs)), reversed(jobs), fontsize=8)
    axes.grid(axis="x", alpha=0.3)
    figure.savefig(FIGURE, dpi=130)
