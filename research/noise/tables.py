"""The tables and the figure of docs/noise.md, from docs/noise-checks.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scipy.stats import binom

from research import markdown_table
from research.studies.estimates import rate_interval

Record = dict[str, Any]
Content = dict[str, Any]

LEVEL = 0.05
RARELY = 0.001  # a test of exactly 5 % exceeds the bound of a row so rarely
POOLED = 0.055
POWER_LOST = 0.10
COVERED = (0.93, 0.97)


def allowed(runs: int) -> int:
    """Claims of so many runs that a test of exactly 5 % exceeds once in a thousand rows."""
    return int(binom.ppf(1 - RARELY, runs, LEVEL))


def rows(content: Content, kind: str, **wanted: Any) -> list[Record]:
    """Records of a kind, with these values."""
    chosen = [row for row in content["rows"] if row["kind"] == kind]
    return [row for row in chosen if all(row.get(name) == value for name, value in wanted.items())]


def missed(record: Record, what: str) -> bool:
    """Whether there are too many claims for a test of 5 %, and none may be expected."""
    return bool(what not in record["excluded"] and record[what] > allowed(record["runs"]))


def count(record: Record, what: str) -> str:
    """Claims in per cent; bold if too many, in brackets where no target is set."""
    rate = f"{100 * record[what] / record['runs']:.1f}"
    return f"({rate})" if what in record["excluded"] else f"**{rate}**" if missed(record, what) else rate


def untested(record: Record) -> str:
    """Share of runs that were not tested; empty if none."""
    share = 1 - record["tested"] / record["runs"]
    return f"{100 * share:.0f}" if share > 0.004 else ""


def uncovered(record: Record, what: str) -> bool:
    """Whether a share is outside of what is asked for by more than chance, at one row in a thousand."""
    held, runs = round(record[what]), record["runs"]
    return bool(binom.cdf(held, runs, COVERED[0]) < RARELY / 2 or binom.sf(held - 1, runs, COVERED[1]) < RARELY / 2)


def targets(content: Content) -> list[tuple[str, str, str, bool]]:
    """What is asked for, what came out, and whether that is enough."""
    found = []
    for what, name in (("found", "a signal"), ("entries", "any entry")):
        if not (records := [row for row in rows(content, "claims") if what not in row["excluded"]]):
            continue
        over = [row["name"] for row in records if missed(row, what)]
        most, runs = max(allowed(row["runs"]) for row in records), max(row["runs"] for row in records)
        said = f"{len(over)} of {len(records)} over" + (f": {'; '.join(over)}" if over else "")
        found.append((f"claims of {name}, each row", f"at most {most} of {runs}", said, not over))
        claimed, all_runs = int(sum(row[what] for row in records)), sum(row["runs"] for row in records)
        rate = claimed / all_runs
        target, said = f"at most {POOLED:.1%}", f"{rate:.1%} ({claimed} of {all_runs})"
        found.append((f"claims of {name}, pooled", target, said, rate <= POOLED))
    for row in rows(content, "power"):
        if row["name"].startswith("t₃ entries"):
            continue
        best, rate = max(row["before"], row["prototype"]), row[row["counted"]] / row["runs"]
        if rate < best - POWER_LOST:
            found.append((f"power, {row['name']}", f"at least {best - POWER_LOST:.0%}", f"{rate:.0%}", False))
    for what, name in (("strength", "strengths"), ("entries", "entries")):
        records = rows(content, "coverage")
        for form in ("one", "two", "30 % missing"):
            some = [row for row in records if row["form"] == form]
            if some:
                held, runs = sum(row[what] for row in some), sum(row["runs"] for row in some)
                target = f"{COVERED[0]:.0%} to {COVERED[1]:.0%}"
                good = COVERED[0] <= held / runs <= COVERED[1]
                found.append((f"coverage of {name}, {form}, pooled", target, f"{held / runs:.1%}", good))
        if records:
            out = [f"{row['name']} ({row[what] / row['runs']:.0%})" for row in records if uncovered(row, what)]
            said = f"{len(out)} of {len(records)} out" + (f": {'; '.join(out)}" if out else "")
            found.append((f"coverage of {name}, each row", "the same, but for chance", said, not out))
    return found


def targets_table(content: Content) -> str:
    """All targets."""
    lines = [(what, target, said, "yes" if good else "**no**") for what, target, said, good in targets(content)]
    return markdown_table(("what", "target", "measured", "met"), lines)


def claims_table(content: Content) -> str:
    """Laws of noise, as mean and as effect."""
    lines: dict[str, list[str]] = {}
    for row in rows(content, "claims"):
        if "law" in row:
            own = lines.setdefault(row["law"], [row["law"], *[""] * 6])
            start = 1 if row["question"] == "mean" else 4
            own[start : start + 3] = [count(row, "found"), count(row, "entries"), untested(row)]
    head = ("law", "mean: signal", "any entry", "not tested", "effect: signal", "any entry", "not tested")
    return markdown_table(head, list(lines.values()))


def designs_table(content: Content) -> str:
    """Designs that invite false claims."""
    found = rows(content, "claims", question="design")
    lines = [(row["name"], count(row, "found"), count(row, "entries"), untested(row)) for row in found]
    return markdown_table(("samples", "signal", "any entry", "not tested"), lines)


def power_table(content: Content) -> str:
    """Shares of runs that find the signal."""
    lines = []
    for row in rows(content, "power"):
        rate = rate_interval(round(row[row["counted"]]), row["runs"])
        now = f"{rate.value:.0%} ({rate.low:.0%}–{rate.high:.0%})"
        lines.append((row["name"], f"{row['before']:.0%}", f"{row['prototype']:.0%}", now))
    return markdown_table(("signal", "before", "prototype", "now"), lines)


def coverage_table(content: Content) -> str:
    """Strengths and entries that lie in their intervals, in per cent."""
    lines = []
    for one in rows(content, "coverage", form="one"):
        same = {name: one[name] for name in ("law", "dims", "n")}
        cells = []
        for form in ("one", "two", "30 % missing"):
            row = next(iter(rows(content, "coverage", form=form, **same)), None)
            for what in ("strength", "entries"):
                share = f"{100 * row[what] / row['runs']:.1f}" if row else ""
                cells.append(f"**{share}**" if row and uncovered(row, what) else share)
        lines.append((f"{one['law']}, {one['dims']}", str(one["n"]), *cells))
    head = ("noise, sample", "n", "one: strength", "entries", "two: strengths", "entries", "30 % missing: strength",
            "entries")  # fmt: skip
    return markdown_table(head, lines)


def made_line(content: Content) -> str:
    """How many runs, with what."""
    runs, made = sum(row["runs"] for row in content["rows"]), content["made"]
    revisions = sorted({one for row in content["rows"] for one in row["revisions"]})
    versions = f"Python {made['python']}, NumPy {made['numpy']}"
    each = []
    for kind in dict.fromkeys(row["kind"] for row in content["rows"]):
        sizes = [row["runs"] for row in rows(content, kind)]
        each.append(f"{kind} {min(sizes)}" + (f" to {max(sizes)}" if max(sizes) > min(sizes) else ""))
    said = f"Runs of a row: {', '.join(each)}."
    return f"{said} {runs} fits, {versions}, revision {', '.join(revisions)}.\n"


TABLES = {
    "made": made_line, "targets": targets_table, "claims": claims_table, "designs": designs_table,
    "power": power_table, "coverage": coverage_table,
}  # fmt: skip


def draw(content: Content, path: Path) -> None:
    """Claims by law, power beside what was, coverage."""
    from tpca.report.style import COLOURS, INK, drawing, save

    with drawing() as plt:
        figure = plt.figure(figsize=(11, 9), layout="constrained")
        grid = figure.add_gridspec(2, 2, width_ratios=(1, 1.1))
        left, top, bottom = (figure.add_subplot(place) for place in (grid[:, 0], grid[0, 1], grid[1, 1]))
        laws = list(dict.fromkeys(row["law"] for row in rows(content, "claims") if "law" in row))
        for shift, (question, marker) in enumerate((("mean", "o"), ("effect", "s"))):
            for row in rows(content, "claims", question=question):
                y = laws.index(row["law"]) + 0.3 * shift - 0.15
                rate = rate_interval(round(row["found"]), row["runs"])
                left.plot([100 * rate.low, 100 * rate.high], [y, y], color=COLOURS[shift], linewidth=1.2)
                label = question if row["law"] == laws[0] else None
                left.plot(100 * rate.value, y, marker, color=COLOURS[shift], markersize=5, label=label)
        left.axvline(100 * LEVEL, color=INK, linestyle="--", linewidth=1.2, label="5 %, what is promised")
        left.set_yticks(range(len(laws)), laws, fontsize=9)
        left.set(xlim=(0, None), ylim=(len(laws) - 0.4, -0.6), xlabel="runs without a signal that claim one, %")
        left.set_title("False claims, 100 × (6, 5, 4)")
        left.legend(fontsize=9, loc="lower right")
        power = rows(content, "power")
        for i, (name, marker) in enumerate((("before", "x"), ("prototype", "+"), ("now", "o"))):
            shares = [row[row["counted"]] / row["runs"] if name == "now" else row[name] for row in power]
            top.plot([100 * share for share in shares], range(len(power)), marker, color=COLOURS[i], label=name)
        top.set_yticks(range(len(power)), [row["name"] for row in power], fontsize=8)
        top.set(xlim=(-2, 102), ylim=(max(len(power), 1) - 0.5, -0.5), xlabel="runs that find the signal, %")
        top.set_title("Power")
        top.legend(fontsize=8)
        forms = ("one", "two", "30 % missing")
        for i, what in enumerate(("strength", "entries")):
            for j, form in enumerate(forms):
                shares = [100 * row[what] / row["runs"] for row in rows(content, "coverage", form=form)]
                label = {"strength": "strengths", "entries": "entries"}[what] if j == 0 else None
                spread = [j + 0.3 * i - 0.15 + 0.006 * k for k in range(len(shares))]
                bottom.plot(spread, shares, "os"[i], color=COLOURS[i], markersize=4, label=label)
        bottom.axhspan(100 * COVERED[0], 100 * COVERED[1], color=INK, alpha=0.15, linewidth=0)
        bottom.set_xticks(range(len(forms)), ["one component", "two components", "30 % missing"])
        bottom.set(ylabel="intervals that hold the truth, %")
        bottom.set_title("Nominal 95 % intervals, all settings")
        bottom.legend(fontsize=8)
        save(figure, path, overwrite=True)
