"""``tpca report``: what is stored in a folder as one HTML file; and what ``tpca fit`` is to show and write."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tpca.cli.applies import refuse_idle
from tpca.cli.outputs import check_file, places
from tpca.wording import amount, duration

if TYPE_CHECKING:
    from tpca.labels import Labels


@dataclass(frozen=True)
class OutputOptions:
    """What ``tpca fit`` is to show and write besides its result."""

    report: Path | None
    labels: Path | None
    checks: bool
    quiet: bool
    as_json: bool
    live: bool
    out: Path | None = None
    """The folder of the result."""

    def check(self, dims: tuple[int, ...], labels: Labels | None = None) -> Labels | None:
        """Refuse, before a long fit, what cannot be done after it; the labels given, and those that the data have."""
        if self.labels is not None:
            from tpca.labels import read_labels

            given = read_labels(self.labels, dims)
            labels = given if labels is None else given.with_others(labels)
        if self.report is not None:
            check_file(self.report, self.out)
        return labels

    def write(self, folder: Path, paths: list[str], identity: str, run: dict[str, Any]) -> str:
        """How the run went, and the report if one was asked for; returns what alarms in that, or nothing."""
        import numpy as np

        from tpca import __version__
        from tpca.results import write_run

        machine: dict[str, Any] = {"tpca": __version__, "numpy": np.__version__, "python": platform.python_version()}
        machine |= {"processors": os.cpu_count()}
        write_run(folder, {**run, "data": places(paths), "identity": identity, "made_with": machine})
        if self.report is None:
            return ""
        from tpca.report.folder import write_report

        return write_report(folder, self.report, checks=self.checks)

    def say(self, folder: Path, alarm: str) -> None:
        """Where everything is, and what alarms in the report."""
        print(f"written to {folder}")
        if self.report is not None:
            print(f"report in {self.report}" + (f"; {alarm[0].lower()}{alarm[1:]}" if alarm else ""))


def solver_line(summary: dict[str, Any]) -> str:
    """Which solver it was, and why; empty where that is not known."""
    settings = summary.get("settings") or {}
    known = "solver" in settings and "solver_reason" in settings
    return f"solver {settings['solver']}: {settings['solver_reason']}" if known else ""


def report(
    ctx: typer.Context,
    folder: Annotated[
        Path, typer.Argument(help="Folder of tpca fit, reproduce or compare.", show_default=False, metavar="DIR")
    ],
    out: Annotated[Path | None, typer.Option(help="The file to write; DIR/report.html by default.")] = None,
    labels: Annotated[Path | None, typer.Option(help='Names, a JSON file: {"0": ["Fz", "Cz", ...]} by mode.')] = None,
    data: Annotated[list[str] | None, typer.Option(help="Where the data are now, if they were moved.")] = None,
    checks: Annotated[bool, typer.Option(help="Read the data once more, to check the noise.")] = True,
) -> None:
    """Make one HTML page of a result or of a comparison."""
    import time

    began = time.monotonic()
    path = out or folder / "report.html"
    if (folder / "recovery.json").is_file():
        from tpca.report.folder import write_report

        refuse_idle(ctx, "fit")
        check_file(path)
        write_report(folder, path, labels, data or (), checks)
    else:
        from tpca.lab.pages import kind_of, write_page

        refuse_idle(ctx, kind_of(folder))
        check_file(path)
        write_page(folder, path)
    print(f"{path}: {amount(os.path.getsize(path))}, {duration(time.monotonic() - began)}")
