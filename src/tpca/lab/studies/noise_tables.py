"""The tables of docs/noise.md, from the stored summary: ``before`` is kept, ``now`` is what the last run came to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tpca.lab.studies.estimates import rate_interval
from tpca.lab.studies.noise_laws import LAWS
from tpca.lab.studies.noise_summary import Row, Summary, allowed, targets
from tpca.lab.studies.noise_trials import COVERAGE, LARGE_LAWS, MEAN_POWER, PLANTED, RACE_POWER
from tpca.lab.studies.real_nulls import SETS
from tpca.wording import markdown_table

Content = dict[str, Any]
TIMES = ("before", "now")
NAMES = {"single": "as they are", "centred": "differences", "groups": "differences, by groups"}


def rows_of(content: Content, when: str, kind: str) -> list[Row]:
    """The rows of a kind; none where nothing was run."""
    rows: list[Row] = content.get(when, {}).get(kind, [])
    return rows


def pick(rows: Sequence[Row], **wanted: Any) -> Row | None:
    """The row of a setting, if it was run."""
    return next((row for row in rows if all(row.get(name) == value for name, value in wanted.items())), None)


def claims_cell(row: Row | None) -> str:
    """``3 of 200``, bold where it is too many for 5 %."""
    if row is None:
        return "—"
    text = f"{row['claims']} of {row['runs']}"
    return f"**{text}**" if row["claims"] > allowed(row["runs"]) else text


def with_interval(row: Row | None) -> str:
    """The count, and the 95 % interval of the rate."""
    if row is None:
        return "—"
    rate = rate_interval(row["claims"], row["runs"])
    return f"{claims_cell(row)}, {100 * rate.low:.1f}–{100 * rate.high:.1f} %"


def claims(content: Content) -> str:
    """Claims on noise: laws × solvers, before and now."""
    small = [(law, 3) for law in LAWS]
    rows = []
    for law, order in [*small, *[(law, 4) for law in LARGE_LAWS]]:
        line = [law if order == 3 else f"{law}, order 4"]
        for solver in ("race", "mean") if order == 3 else ("race",):
            line += [cell(_claim(content, when, law, solver, order)) for when, cell in _CELLS]
        rows.append(line + ["—"] * (5 - len(line)))
    pooled = ["**all**"]
    for solver in ("race", "mean"):
        for when, cell in _CELLS:
            pooled.append(cell(_sum([r for r in rows_of(content, when, "claims") if r["solver"] == solver])))
    return markdown_table(("noise", "race, before", "race", "mean, before", "mean"), [*rows, pooled])


_CELLS: tuple[tuple[str, Callable[[Row | None], str]], ...] = (("before", claims_cell), ("now", with_interval))


def _claim(content: Content, when: str, law: str, solver: str, order: int) -> Row | None:
    chosen = [row for row in rows_of(content, when, "claims") if len(row["dims"]) == order]
    return pick(chosen, law=law, solver=solver)


def _sum(rows: Sequence[Row]) -> Row | None:
    if not rows:
        return None
    return {"claims": sum(row["claims"] for row in rows), "runs": sum(row["runs"] for row in rows)}


def real(content: Content) -> str:
    """Claims on sign-flipped real data: sets and forms × solvers."""
    rows = []
    for name, data in SETS.items():
        for form in data.forms:
            line = [f"{name} ({data.package})", data.sample, NAMES[form], "—"]
            for solver in ("race", "mean"):
                for when, cell in _CELLS:
                    row = pick(rows_of(content, when, "real"), set=name, form=form, solver=solver)
                    line[3] = str(row["samples"]) if row else line[3]
                    line.append(cell(row))
            rows.append(line)
    for form, label in NAMES.items():
        pooled = ["**all**", "", label, ""]
        for solver in ("race", "mean"):
            for when, cell in _CELLS:
                chosen = [r for r in rows_of(content, when, "real") if r["form"] == form and r["solver"] == solver]
                pooled.append(cell(_sum(chosen)))
        rows.append(pooled)
    heading = ("data", "a sample is", "signs on", "samples", "race, before", "race", "mean, before", "mean")
    return markdown_table(heading, rows)


def power(content: Content) -> str:
    """Planted signals: proven, right, samples until proven and their ratio; before, without and with whitening."""
    rows = []
    for place in [{"solver": "race", **place} for place in RACE_POWER] + [{"solver": "mean", **MEAN_POWER}]:
        for law, vectors in PLANTED:
            chosen = {"law": law, "vectors": vectors, "solver": place["solver"], "dims": place["dims"]}
            line = [f"{place['solver']}, {_shape(place['dims'])}", f"{law}, {vectors}", f"{place['strength']:g}"]
            for when, whiten in (("before", None), ("now", None), ("now", "auto")):
                line.append(_power_cell(pick(rows_of(content, when, "power"), **chosen, whiten=whiten)))
            line.append(_ratio_cell(pick(rows_of(content, "now", "power"), **chosen, whiten="auto")))
            rows.append(line)
    heading = ("solver, sample", "noise, signal", "λ'", "before", "`whiten=None`", '`whiten="auto"`', "samples / white")
    return markdown_table(heading, rows)


def _power_cell(row: Row | None) -> str:
    if row is None:
        return "—"
    when = f", at {row['median']:g}" if row["solver"] == "race" and row["median"] else ""
    return f"{row['claims']} claims, {row['right']} right of {row['runs']}{when}"


def _ratio_cell(row: Row | None) -> str:
    if row is None or "ratio" not in row:
        return "—"
    value, low, high = ("∞" if x is None else f"{x:.2f}" for x in (row["ratio"], *row["ratio_interval"]))
    return f"{value} [{low}, {high}]"


def limits(content: Content) -> str:
    """How often the upper limit of a run without a claim lay above the planted strength."""
    rows = []
    for law, vectors in PLANTED:
        line = [f"{law}, {vectors}"]
        for when, whiten in (("before", None), ("now", "auto")):
            found = [r for r in rows_of(content, when, "power") if r["whiten"] == whiten]
            found = [r for r in found if (r["law"], r["vectors"]) == (law, vectors)]
            held, runs = sum(r["limits_held"] for r in found), sum(r["runs"] for r in found)
            line.append(f"{held} of {runs}" if runs else "—")
        rows.append(line)
    return markdown_table(("noise, signal", "held, before", "held"), rows)


def coverage(content: Content) -> str:
    """Coverage of nominal 95 % intervals: entries and strength × solvers, before and now."""
    rows = []
    for law, vectors, strength in COVERAGE:
        for solver in ("race", "mean"):
            line = [f"{law}, {vectors}, λ' = {strength:.3g}", solver]
            for when in TIMES:
                line += _coverage_cells(
                    pick(rows_of(content, when, "coverage"), law=law, vectors=vectors, solver=solver)
                )
            rows.append(line)
    names = ("right", "entries", "strength")
    return markdown_table(("noise, signal", "solver", *[f"{name}, before" for name in names], *names), rows)


def _coverage_cells(row: Row | None) -> list[str]:
    if row is None:
        return ["—"] * 3
    right = f"{row['right']} of {row['runs']}"
    if not row["judged"]:
        return [right, "—", "—"]
    rate = rate_interval(row["strength_held"], row["judged"])
    entries = f"{row['entries']:.3f} ± {1.96 * row['entries_error']:.3f}"
    return [right, entries, f"{rate.value:.2f} [{rate.low:.2f}, {rate.high:.2f}]"]


def goals(content: Content) -> str:
    """Every target, before and now."""
    found = {when: {f.label: f for f in targets(_whole(content, when))} for when in TIMES}
    labels = list(dict.fromkeys([*found["now"], *found["before"]]))
    rows = []
    for label in labels:
        line = [label, next(found[when][label].predicted for when in ("now", "before") if label in found[when])]
        for when in TIMES:
            finding = found[when].get(label)
            line.append("—" if finding is None else f"{finding.measured}: **{_WORDS[str(finding.verdict)]}**")
        rows.append(line)
    return markdown_table(("what", "target", *TIMES), rows)


_WORDS = {"agrees": "met", "differs": "missed", "not enough data": "open"}


def _whole(content: Content, when: str) -> Summary:
    return {kind: rows_of(content, when, kind) for kind in ("claims", "real", "power", "coverage")}


def _shape(dims: Sequence[int]) -> str:
    return "×".join(map(str, dims))


TABLES: dict[str, Callable[[Content], str]] = {
    "targets": goals,
    "claims": claims,
    "real": real,
    "power": power,
    "limits": limits,
    "coverage": coverage,
}
