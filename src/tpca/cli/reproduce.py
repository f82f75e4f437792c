"""``tpca reproduce``: the paper's claims, measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tpca.cli.applies import refuse_idle
from tpca.cli.cluster import Scheduler, Workers, cluster
from tpca.cli.live import bars
from tpca.cli.outputs import check_file, check_place, put_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from tpca.lab.studies.store import Store
    from tpca.lab.studies.study import Finding, Scale, Study


def reproduce(
    ctx: typer.Context,
    studies: Annotated[list[str] | None, typer.Argument(help="Which studies; all of them by default.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A small grid: minutes.")] = False,
    full: Annotated[bool, typer.Option("--full", help="The whole grid: an hour or two on two cores.")] = False,
    show: Annotated[bool, typer.Option("--show", help="Run nothing; table and figures of what is stored.")] = False,
    store: Annotated[Path, typer.Option(help="Folder of the finished trials.")] = Path("reproduction"),
    figures: Annotated[Path | None, typer.Option(help="Folder for the figures; by default inside the store.")] = None,
    report: Annotated[Path | None, typer.Option(help="Write table and figures into one HTML file.")] = None,
    processes: Annotated[int | None, typer.Option(min=1, help="Processes; by default one per core.")] = None,
    scheduler: Scheduler = None,
    workers: Workers = None,
    list_studies: Annotated[bool, typer.Option("--list", help="List the studies and stop.")] = False,
    markdown: Annotated[Path | None, typer.Option(help="Write table and figures into a Markdown file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Measure the claims of the paper on this machine.

    Every finished trial is stored; interrupt or kill it, run it again, and it goes on where it was.
    """
    from rich.console import Console

    from tpca.errors import StudyError
    from tpca.lab.studies.catalogue import choose
    from tpca.lab.studies.store import Store

    refuse_idle(ctx)
    console = Console(stderr=as_json)
    chosen = choose(studies or [])
    if list_studies:
        _list(console, chosen)
        return
    if quick + full + show > 1:
        raise StudyError("choose one of --quick, --full and --show.")
    if not (quick or full or show or report or markdown):
        raise StudyError("say how much to run: --quick (minutes) or --full (an hour or two); --show runs nothing.")
    for file in filter(None, (markdown, report)):
        check_file(file)
    check_place(figures or store)
    kept = Store(store)
    if quick or full:
        with cluster(scheduler, workers) as client:
            _run(console, chosen, "full" if full else "quick", kept, processes, client)
    findings = kept.findings(chosen)
    if not findings:
        raise StudyError(
            f"there are no finished trials in {str(store)!r}; run some with --quick, or name another --store."
        )
    _print(console, findings, as_json)
    drawn = _draw(console, chosen, kept, figures or store / "figures")
    if markdown is not None:
        from tpca.lab.studies.catalogue import write_markdown

        write_markdown(markdown, chosen, findings, drawn)
        console.print(f"Markdown: {markdown}", soft_wrap=True)
    if report is not None:
        from tpca.lab.pages.reproduction import write_page

        write_page(report, chosen, findings, drawn, kept)
        console.print(f"Report: {report}", soft_wrap=True)


def _list(console: Console, studies: Sequence[Study]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("study", "quick", "full", "what it measures"):
        table.add_column(heading, justify="right" if heading in ("quick", "full") else "left")
    for study in studies:
        seconds = [sum(map(study.cost, study.grid(scale))) for scale in ("quick", "full")]
        table.add_row(study.name, *(f"{max(1, s / 60):.0f} min" for s in seconds), study.title)
    console.print(table)
    console.print("Times are for one core. Run some with: tpca reproduce NAME ... --quick")


def _run(
    console: Console, studies: Sequence[Study], scale: Scale, store: Store, processes: int | None, client: Any
) -> None:
    """All trials under one progress display; a bar for the study at work, one for everything."""
    from tpca.lab.studies.runner import pending_jobs, run_studies

    jobs = pending_jobs(studies, scale, store)
    if not jobs:
        console.print("All of these trials are stored already; nothing is left to run.")
        return
    done = sum(len(study.grid(scale)) for study in studies) - len(jobs)
    if done:
        console.print(f"{done:,} trials are stored already, {len(jobs):,} are left to run.")
    with bars(console) as progress:
        totals = {study.name: sum(study.cost(p) for s, p in jobs if s is study) for study in studies}
        each = {name: progress.add_task(name, total=cost) for name, cost in totals.items() if cost}
        whole = progress.add_task("all", total=sum(totals.values()))

        def finished(study: Study, cost: float) -> None:
            progress.advance(each[study.name], cost)
            progress.advance(whole, cost)

        try:
            run_studies(studies, scale, store, finished, processes, client)
        except KeyboardInterrupt:
            console.print(f"Stopped; every finished trial is in {store.folder}. The same command goes on from there.")
            raise typer.Exit(130) from None


def _print(console: Console, findings: dict[str, list[Finding]], as_json: bool) -> None:
    if as_json:
        from tpca.lab.studies.catalogue import as_rows

        put_json(as_rows(findings))
        return
    from rich.table import Table

    styles = {"agrees": None, "differs": "yellow", "not enough data": "dim"}
    table = Table(title="The paper on a machine", caption="[...]: 95 % interval")
    for heading in ("study", "case", "predicted", "measured", "verdict"):
        table.add_column(heading, overflow="fold")
    for name, found in findings.items():
        for i, f in enumerate(found):
            cells = (name if i == 0 else "", f.label, f.predicted, f.measured, str(f.verdict))
            table.add_row(*cells, style=styles[str(f.verdict)])
        table.add_section()
    console.print(table)
    for name, found in findings.items():  # where something differs, why
        for f in found:
            if str(f.verdict) == "differs":
                console.print(f"[yellow]differs[/] {name}, {f.label}: {f.reason or 'see docs/reproduction.md.'}")


def _draw(console: Console, studies: Sequence[Study], store: Store, folder: Path) -> dict[str, Path]:
    from tpca.lab.pages.reproduction_figures import draw_studies

    drawn = draw_studies(studies, store, folder)
    if drawn:
        console.print(f"Figures: {folder}", soft_wrap=True)
    return drawn
