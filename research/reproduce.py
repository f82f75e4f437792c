"""The paper's claims, measured: ``python -m research reproduce``, ``make reproduce``.

All studies by name, in the order in which they are told; their findings as rows and as Markdown.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markdown import Markdown
from rich.progress import Progress

from research import StudyError, markdown_table
from research.figures import draw_studies
from research.studies.diagram import DIAGRAM
from research.studies.memory import MEMORY
from research.studies.phases import ACCURACY, CHANCES, CONVERGENCE, INITIALISATION, PHASES
from research.studies.scaling import ADAPTIVITY, SYMMETRIC, UNEQUAL, WORST_CASE
from research.studies.schedules import EMPIRICAL_SCHEDULE, ODD_ORDER, PAPER_NOISE, STAGES
from research.studies.store import Store, run_studies
from research.studies.study import Finding, Scale, Study, key
from tpca.files import replacing

BEGIN, END = "<!-- findings: begin -->", "<!-- findings: end -->"
_ALL: tuple[Study, ...] = (
    DIAGRAM, WORST_CASE, SYMMETRIC, ODD_ORDER, ADAPTIVITY, UNEQUAL, PHASES, STAGES, EMPIRICAL_SCHEDULE,
    INITIALISATION, CHANCES, CONVERGENCE, ACCURACY, PAPER_NOISE, MEMORY,
)  # fmt: skip
STUDIES: dict[str, Study] = {study.name: study for study in _ALL}
KEPT = Path(__file__).parent.parent / "docs" / "reproduction"  # whose seconds say how long a study takes


def reproduce(
    studies: Annotated[list[str] | None, typer.Argument(help="Which studies; all of them by default.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A small grid: minutes.")] = False,
    full: Annotated[bool, typer.Option("--full", help="The whole grid: an hour or two on two cores.")] = False,
    show: Annotated[bool, typer.Option("--show", help="Run nothing; table and figures of what is stored.")] = False,
    store: Annotated[Path, typer.Option(help="Folder of the finished trials.")] = Path("reproduction"),
    figures: Annotated[Path | None, typer.Option(help="Folder for the figures; by default inside the store.")] = None,
    processes: Annotated[int | None, typer.Option(min=1, help="Processes; by default one per core.")] = None,
    list_studies: Annotated[bool, typer.Option("--list", help="List the studies and stop.")] = False,
    markdown: Annotated[Path | None, typer.Option(help="Write table and figures into a Markdown file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Measure the claims of the paper on this machine.

    Every finished trial is stored; interrupt or kill it, run it again, and it goes on where it was.
    """
    console = Console(stderr=as_json)
    chosen = choose(studies or [])
    if list_studies:
        _list(console, chosen)
        return
    if quick + full + show > 1:
        raise StudyError("choose one of --quick, --full and --show.")
    if not (quick or full or show or markdown):
        raise StudyError("say how much to run: --quick (minutes) or --full (an hour or two); --show runs nothing.")
    kept = Store(store)
    if quick or full:
        _run(console, chosen, "full" if full else "quick", kept, processes)
    findings = kept.findings(chosen)
    if not findings:
        raise StudyError(
            f"there are no finished trials in {str(store)!r}; run some with --quick, or name another --store."
        )
    if as_json:
        typer.echo(json.dumps(as_rows(findings)))
    else:
        console.print(Markdown(as_markdown(chosen, findings)))
    folder = figures or store / "figures"
    drawn = draw_studies(chosen, kept, folder)
    console.print(f"Figures: {folder}", soft_wrap=True)
    if markdown is not None:
        write_markdown(markdown, chosen, findings, drawn)
        console.print(f"Markdown: {markdown}", soft_wrap=True)


def _list(console: Console, studies: Sequence[Study]) -> None:
    rows = []
    for study in studies:
        took = {key(record.params): record.seconds for record in Store(KEPT).records(study)}
        scales: tuple[Scale, Scale] = ("quick", "full")
        seconds = [sum(took.get(key(params), 0.0) for params in study.grid(scale)) for scale in scales]
        rows.append((study.name, *(f"{max(1, s / 60):.0f} min" for s in seconds), study.title))
    console.print(Markdown(markdown_table(("study", "quick", "full", "what it measures"), rows)))
    console.print("Times are for one core. Run some with: python -m research reproduce NAME ... --quick")


def _run(console: Console, studies: Sequence[Study], scale: Scale, store: Store, processes: int | None) -> None:
    """All trials, a bar for every study."""
    left = {study.name: len(store.pending(study, study.grid(scale))) for study in studies}
    done = sum(len(study.grid(scale)) for study in studies) - sum(left.values())
    console.print(f"{done:,} trials are stored already, {sum(left.values()):,} are left to run.")
    with Progress(console=console, disable=not console.is_terminal) as progress:
        bars = {name: progress.add_task(f"{name:22s}", total=count) for name, count in left.items() if count}
        try:
            run_studies(studies, scale, store, lambda name: progress.advance(bars[name]), processes)
        except KeyboardInterrupt:
            console.print(f"Stopped; every finished trial is in {store.folder}. The same command goes on from there.")
            raise typer.Exit(130) from None


def choose(names: Sequence[str]) -> list[Study]:
    """The studies with these names, all of them if there are none."""
    unknown = [name for name in names if name not in STUDIES]
    if unknown:
        raise StudyError(f"there is no study {unknown[0]!r}; the studies are: {', '.join(STUDIES)}.")
    return [STUDIES[name] for name in names] if names else list(_ALL)


def as_rows(findings: Mapping[str, Sequence[Finding]]) -> list[dict[str, Any]]:
    """One plain dict a finding."""
    return [
        {"study": name, "case": f.label, "predicted": f.predicted, "measured": f.measured, "verdict": f.verdict,
         "reason": f.reason}
        for name, found in findings.items()
        for f in found
    ]  # fmt: skip


def as_markdown(
    studies: Sequence[Study], findings: Mapping[str, Sequence[Finding]], figures: Mapping[str, str] | None = None
) -> str:
    """A section for every study: its claim, its table, its figure if there is one."""
    lines: list[str] = []
    for study in studies:
        if study.name not in findings:
            continue
        lines += [f"### {study.name}: {study.title}", "", study.claim, ""]
        rows = (
            (f.label, f.predicted, f.measured, f"**{f.verdict}**" + (f": {f.reason}" if f.reason else ""))
            for f in findings[study.name]
        )
        lines.append(markdown_table(("case", "predicted", "measured", "verdict"), rows))
        if figures and study.name in figures:
            lines += [f"![{study.title}]({figures[study.name]})", ""]
    return "\n".join(lines)


def write_markdown(
    path: Path, studies: Sequence[Study], findings: Mapping[str, Sequence[Finding]], drawn: Mapping[str, Path]
) -> None:
    """The sections into a Markdown file, between its two marks if it has them; figures as paths relative to it."""
    figures = {name: Path(os.path.relpath(figure, path.parent)).as_posix() for name, figure in drawn.items()}
    text = as_markdown(studies, findings, figures)
    old = path.read_text(encoding="utf-8") if path.exists() else ""
    if BEGIN in old and END in old:
        text = old[: old.index(BEGIN) + len(BEGIN)] + "\n\n" + text + "\n" + old[old.index(END) :]
    with replacing(path) as (draft,):
        draft.write_text(text, encoding="utf-8")
