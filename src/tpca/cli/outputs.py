"""What several commands do with results: look where they go, before the work, and print them.

One rule for all places: missing folders on the way are made; what is in the way is refused.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpca.drafts import check_folder
from tpca.errors import OutputError
from tpca.wording import amount, beside, count, number, percent, printable, shape, within

if TYPE_CHECKING:
    from rich.console import Console

    from tpca.results import StoredResult


# What `tpca fit` ends with, by the verdict.
EXIT_CODES = {"signal": 0, "no signal": 3, "not tested": 4}
STYLES = {"signal": "bold green", "no signal": "bold yellow", "not tested": "bold"}


def put_json(value: Any) -> None:
    """One JSON document on standard output; NaN and infinity become null."""
    from tpca.fields import finite

    sys.stdout.write(json.dumps(finite(value)) + "\n")


def recovery_table(console: Console, stored: StoredResult) -> None:
    """The answer as a table: strengths, and the largest entries of every vector; and what it means in a sentence."""
    from rich.markup import escape
    from rich.table import Table

    from tpca.report.answer import fewer_components, mode_entries, named
    from tpca.report.verdict import confidence_of, effect_of
    from tpca.results import verdict_of
    from tpca.solvers.claim import headline

    summary = stored.summary
    verdict, components = verdict_of(summary), summary["components"]
    against = [check["meaning"] for check in summary["checks"] if check["state"] == "bad"]
    title, style = headline(verdict, against), STYLES["no signal" if against else verdict]
    table = Table(title=escape(printable(f"{title[0].upper()}{title[1:]}")), title_style=style)  # it may name entries
    table.add_column("")
    for i in range(len(components)):
        table.add_column("component" if len(components) == 1 else f"component {i}", justify="right")
    if any("effect" in c for c in components):
        table.add_row("effect", *(escape(printable(effect_of(c).removeprefix("effect "))) for c in components))
    for label in components[0].get("label_amplitudes", {}):
        each = (c.get("label_amplitudes", {}).get(label) for c in components)
        table.add_row(escape(printable(f"amplitude of {label}")), *(number(one, 3) for one in each))
    intervals = [c["strength_interval"] for c in components]
    if verdict == "no signal":
        table.add_row("strength at most", *(number((ends or (None, None))[1], 4) for ends in intervals))
    else:
        pairs = zip(components, intervals, strict=True)
        table.add_row("strength", *(beside(c["strength"], ends) for c, ends in pairs))
    if any(c["p_value"] is not None for c in components):
        table.add_row("p at most", *(number(c["p_value"], 2) for c in components))
    if verdict == "signal":
        table.add_row(f"{percent(confidence_of(summary))} interval", *(within(ends) for ends in intervals))
        if any("variance" in c for c in components):
            table.add_row("variance along it", *(number(c.get("variance"), 4) for c in components))
            table.add_row(
                "of all variance", *(f"{number(100 * (c.get('variance_ratio') or 0.0), 3)} %" for c in components)
            )
    labels = named(stored)
    told = [mode_entries(stored, labels, c) for c in range(len(stored.vectors[0]) if stored.vectors else 0)]
    for mode, length in enumerate(summary["dims"] if told else ()):
        table.add_section()
        largest = (escape("\n".join(map(printable, own[mode][1]))) for own in told)
        table.add_row(escape(printable(f"{labels.modes[mode]} ({length} entries)")), *largest)
    table.caption = "largest entries ± standard error" if stored.errors else None
    console.print(table)
    passes = f" in {summary['n_passes']} passes" if summary["n_passes"] > 1 else ""
    skipped = f", {summary['n_skipped']:,} skipped" if summary["n_skipped"] else ""
    console.print(
        f"{count(summary['n_samples'], 'sample')} of {shape(summary['dims'])}{passes}{skipped}; "
        f"state {amount(summary['state_bytes'])}, buffer {amount(summary['buffer_bytes'])}."
    )
    if fewer := fewer_components(summary):
        console.print(fewer, markup=False, highlight=False)
    for check in summary["checks"]:
        if check["state"] == "handled":
            console.print(printable(check["meaning"]), markup=False)
    console.print(printable(summary["advice"]), markup=False)


def check_place(path: Path) -> None:
    """Refuse a place where a folder cannot be made, or not be written into."""
    _check_above(path, _nearest(path))


def check_file(path: Path, made: Path | None = None) -> None:
    """Refuse a place where a file cannot be written; its folder must be there, or the one that is ``made``."""
    if path.is_dir():
        raise OutputError(f"cannot write {str(path)!r}: it is a folder; give the name of a file.")
    if made is None or path.parent.absolute() != made.absolute():
        check_folder(path)
    _check_above(path, _nearest(path.parent))


def _check_above(path: Path, above: Path) -> None:
    if not above.is_dir():
        raise OutputError(f"cannot write {str(path)!r}: {str(above)!r} is not a folder; choose another place.")
    if not os.access(above, os.W_OK | os.X_OK):
        raise OutputError(f"cannot write {str(path)!r}: no permission in {str(above)!r}; choose another place.")


def room_at(path: Path) -> int:
    """Free bytes of the disk that ``path`` would be on."""
    return shutil.disk_usage(_nearest(path.parent)).free


def check_result(out: Path, data: list[str], identity: str, settings: dict[str, Any], overwrite: bool) -> None:
    """Refuse a folder that cannot be written to, or that holds the result of another fit.

    The same fit once more is no other: its result has the same bytes.
    """
    check_place(out)
    if overwrite or not (out / "recovery.json").exists():
        return
    other = _difference(out, data, identity, settings)
    if other:
        raise OutputError(
            f"{str(out)!r} holds the result of another fit ({other}); name another --out, or give --overwrite."
        )


def places(data: list[str]) -> list[str]:
    """Where data are, wherever the command is run."""
    return [path if "://" in path else os.path.abspath(path) for path in data]


def _difference(out: Path, data: list[str], identity: str, settings: dict[str, Any]) -> str:
    """How the fit in ``out`` differs from this one, as far as the folder tells; nothing if it does not."""
    from tpca.errors import TpcaError
    from tpca.fields import finite
    from tpca.results import read_result, read_run

    try:
        summary, run = read_result(out).summary, read_run(out)
    except TpcaError:
        return "one that cannot be read"
    before, now = summary.get("settings", {}), json.loads(json.dumps(finite(settings)))
    if ("shrinkage" in before) != ("shrinkage" in now):
        return "of samples" if "shrinkage" in now else "of views"
    source = summary["source"]
    fitted = run.get("data") or places(source if isinstance(source, list) else [source])
    if fitted != places(data):
        return f"of {', '.join(fitted)}"
    if run.get("identity", identity) != identity:
        return "the data have changed since"
    changed = [name for name in now if name != "solver_reason" and name in before and before[name] != now[name]]
    return f"{changed[0]} was {before[changed[0]]!r}, now {now[changed[0]]!r}" if changed else ""


def _nearest(path: Path) -> Path:
    """The place itself, or the nearest above it that is there."""
    whole = path.absolute()
    return next((place for place in (whole, *whole.parents) if os.path.lexists(place)), whole)
