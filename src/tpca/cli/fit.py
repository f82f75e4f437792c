"""``tpca fit``: recover the signal in a file of samples."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tpca.cli.applies import refuse_idle
from tpca.cli.cluster import Scheduler, Workers, on_cluster
from tpca.cli.data import DATA, PROJECT, Missing, Modes, Sample, SampleDim, Value, bound, centred, layout, projected
from tpca.cli.effects import read_told, run_effects
from tpca.cli.live import display_for
from tpca.cli.outputs import EXIT_CODES, check_place, check_result, put_json, recovery_table
from tpca.cli.progress import ProgressCallback
from tpca.cli.report import OutputOptions, solver_line
from tpca.cli.views import fit_views
from tpca.errors import SolverError
from tpca.solvers.options import CLIP, SOLVERS, TARGETS
from tpca.wording import amount, printable

if TYPE_CHECKING:
    from rich.console import Console

    from tpca.solvers.base import Solver
    from tpca.solvers.recovery import Recovery
    from tpca.streams import Stream

# What the result depends on besides the data: the same values give the same result.
SETTINGS: tuple[str, ...] = ("random_state", "memory_limit", "max_samples", "max_passes", "tol", "confidence")
SETTINGS += ("target", "y", "nuisance", "group_by", "block_size", "n_components", "whiten", "groups", "center_modes")
SETTINGS += ("project", "clip", "strength", "items", "shuffle", "nan_policy")  # and LAYOUT
LARGE_CHUNK = 2**28  # bytes of a chunk of stored data that are worth a word


def fit(
    ctx: typer.Context,
    paths: Annotated[list[str], typer.Argument(help=DATA, show_default=False, metavar="PATH")],
    out: Annotated[Path, typer.Option(help="Folder for the result; needed.", show_default=False)],
    views: Annotated[bool, typer.Option("--views", help="Every PATH is a view: (rows, columns).")] = False,
    shrinkage: Annotated[str, typer.Option(help="With --views: of the covariances, 0 to 1, or auto.")] = "auto",
    clip: Annotated[
        str | None,
        typer.Option(
            help=f"Bound on entries in standard deviations, auto (where tails are heavy, the default) or none; with "
            f"--views on a row's influence, such as {CLIP}; none by default.",
            show_default=False,
        ),
    ] = None,
    solver: Annotated[
        str,
        typer.Option(help="mean: fits the mean, if it can be held; race: one pass in bounded memory; paper; or auto."),
    ] = "auto",
    strength: Annotated[
        float | None, typer.Option(help="With --solver paper: the strength, which that algorithm must be told.")
    ] = None,
    n_components: Annotated[int, typer.Option(help="Components to look for.", min=1)] = 1,
    memory_limit: Annotated[str | None, typer.Option(help="Memory for the solver, such as 64MB.")] = None,
    max_samples: Annotated[int | None, typer.Option(help="Most samples to use.")] = None,
    max_passes: Annotated[str, typer.Option(help="Most passes over the data, or auto.")] = "auto",
    tol: Annotated[  # noqa: ARG001 (options of solvers are taken from ctx)
        float | None, typer.Option(help="Error of a vector at which to stop early.")
    ] = None,
    confidence: Annotated[float, typer.Option(help="1 - confidence is the chance of a false alarm.")] = 0.95,
    random_state: Annotated[int, typer.Option(help="Seed of the solver.")] = 0,
    whiten: Annotated[
        str, typer.Option(help="Noise that is not white is whitened: auto, modes (always), none.")
    ] = "auto",
    groups: Annotated[  # noqa: ARG001
        int | None, typer.Option(help="Samples in a row that belong together; found out by default.", min=1)
    ] = None,
    center_modes: Annotated[
        str | None, typer.Option(help="Modes, as time,channel or 0,2, along which vectors sum to zero.")
    ] = None,
    project: Annotated[str | None, typer.Option(help=f"Vectors that those found are orthogonal to: {PROJECT}.")] = None,
    target: Annotated[
        str, typer.Option(help="mean (all share it), effect (it follows --y) or variance (it varies).")
    ] = "mean",
    y: Annotated[str | None, typer.Option(help="A number or label per sample: y.npy, t.csv::y.")] = None,  # noqa: ARG001
    nuisance: Annotated[str | None, typer.Option(help="Columns whose effect is taken out.")] = None,  # noqa: ARG001
    group_by: Annotated[  # noqa: ARG001
        str | None, typer.Option(help="The group (subject, session) of every sample: a signal must hold across them.")
    ] = None,
    block_size: Annotated[  # noqa: ARG001
        int | None, typer.Option(help="Samples of a block, in which a background cancels.", min=2)
    ] = None,
    shuffle: Annotated[
        bool, typer.Option("--shuffle", help="Read in random order: data that are sorted or drift.")
    ] = False,
    nan_policy: Annotated[str, typer.Option(help="NaN, Inf: raise, omit (the sample), zero (use the rest).")] = "raise",
    items: Annotated[str, typer.Option(help="What each file of a folder is: batches, samples, or auto.")] = "auto",
    sample_dim: SampleDim = None,  # noqa: ARG001
    sample: Sample = None,  # noqa: ARG001
    modes: Modes = None,  # noqa: ARG001
    value: Value = None,  # noqa: ARG001
    missing: Missing = "raise",  # noqa: ARG001
    checkpoint: Annotated[Path | None, typer.Option(help="Folder for checkpoints; OUT/checkpoint by default.")] = None,
    checkpoint_every: Annotated[float, typer.Option(help="Seconds between checkpoints; 0: every round.")] = 60.0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint.")] = False,
    restart: Annotated[bool, typer.Option("--restart", help="Throw the checkpoints away and start afresh.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace another result in OUT.")] = False,
    scheduler: Scheduler = None,
    workers: Workers = None,
    report: Annotated[Path | None, typer.Option(help="Write a report, one HTML file.", show_default=False)] = None,
    labels: Annotated[
        Path | None, typer.Option(help='Names for reports, now or later, a JSON file: {"0": ["Fz", "Cz"]} by mode.')
    ] = None,
    checks: Annotated[bool, typer.Option(help="For the report: read the data once more, to check the noise.")] = True,
    live: Annotated[bool, typer.Option("--live", help="Show evidence, strength, pace and memory as it goes.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but errors; the exit code still says.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Find the pattern that samples share, or say there is none.

    Prints the strength and the largest entries of every vector; OUT gets recovery.json and vectors.npz with all of it.
    Neither strength nor noise need be known. Interrupt with Ctrl-C or SIGTERM and go on with --resume.

    With --target effect the pattern is what follows --y, a condition or a dose; with --target variance, what varies
    from sample to sample. --y, --nuisance and --group-by take a .npy file, or columns of a CSV file with a header,
    as t.csv::dose or t.csv::age,sex. With --views it is what several tables of the same rows share.

    The mean of all samples is fitted where it fits into memory; where not, the race reads them in one pass. With
    --scheduler or --workers the workers of a Dask cluster read the data.

    Exit code 0: signal; 3: no signal; 4: not tested (--solver paper has no test of whether there is a signal); 2: bad
    usage or data; 130 or 143: interrupted by Ctrl-C or SIGTERM.
    """
    from rich.console import Console
    from rich.markup import escape

    from tpca.checkpoint import Checkpoints
    from tpca.errors import RunInterrupted, StreamError
    from tpca.locks import alone_in
    from tpca.solvers.build import build_for
    from tpca.streams import open_stream

    for name, known, given in (("solver", ("auto", *SOLVERS), solver), ("--target", TARGETS, target)):
        if not views and given not in known:
            raise SolverError(f"{name} must be {', '.join(known[:-1])} or {known[-1]}, got {given!r}.")
    refuse_idle(ctx, "views" if views else target if target == "variance" else solver)
    output = OutputOptions(report, labels, checks, quiet, as_json, live, out)
    if views:
        asked = {"n_components": n_components, "memory_limit": memory_limit, "confidence": confidence}
        asked |= {"clip": bound(clip), "random_state": random_state, "nan_policy": nan_policy}
        verdict = fit_views(paths, out, shrinkage, asked, output, overwrite, scheduler, workers)
        raise typer.Exit(EXIT_CODES[verdict])
    if len(paths) > 1:
        raise StreamError(f"one PATH holds the samples, got {len(paths)}; with --views every PATH is a view.")
    (path,) = paths
    reading: dict[str, Any] = {"items": items, "shuffle": shuffle, "nan_policy": nan_policy, **layout(ctx.params)}
    stream = open_stream(path, random_state=random_state, **reading)
    stream.labels = output.check(stream.dims, stream.labels)
    told = read_told(ctx.params, stream)
    kept = Checkpoints(checkpoint or out / "checkpoint", checkpoint_every)
    console = Console(stderr=True)
    if not quiet:
        _mention_chunks(console, path, stream)
    callback = ProgressCallback(display_for(console, live, quiet), f"tpca fit {path}")
    if solver == "paper" and strength is None:
        raise SolverError("--solver paper must be told the strength: give --strength, or use --solver race.")
    passes = int(max_passes) if max_passes.isdecimal() else max_passes
    options = {**ctx.params, "max_passes": passes, "whiten": None if whiten == "none" else whiten}
    options |= {"checkpoint": kept.folder, "callbacks": [callback], "clip": "auto" if clip is None else bound(clip)}
    options |= {"center_modes": centred(center_modes), "project": projected(project)}
    chosen, choice = build_for(target, solver, stream, options)
    settings = {"solver": choice.solver, "solver_reason": choice.reason}
    settings |= {name: ctx.params[name] for name in SETTINGS} | layout(ctx.params)
    # What a fit that is gone on with left half written is its own.
    check_result(out, paths, stream.identity, settings, overwrite or (resume and kept.any()))
    check_place(kept.folder)
    if restart:
        with alone_in(kept.folder):
            kept.clear()
    try:
        with on_cluster(scheduler, workers, stream) as data:
            fit_told = None if told is None else partial(run_effects, data, told, solver, options)
            recovery = _run(chosen, data, callback, max_samples, fit_told)
    except RunInterrupted as stop:
        again = shlex.join(["tpca", *(a for a in sys.argv[1:] if a not in ("--resume", "--restart")), "--resume"])
        console.print(f"[bold]interrupted[/]: {escape(printable(str(stop)))} Go on with:", soft_wrap=True)
        console.print(f"  {again}", soft_wrap=True, highlight=False, markup=False)
        raise typer.Exit(128 + stop.signal) from None
    _keep(out, recovery, path, settings, stream, callback, output, resume)
    kept.clear()
    raise typer.Exit(EXIT_CODES[recovery.verdict])


def _mention_chunks(console: Console, path: str, stream: Stream) -> None:
    """Say so if reading takes much more memory than the solver, which nobody would expect."""
    from tpca.streams.stored import StoredStream

    chunk = stream.chunk_bytes if isinstance(stream, StoredStream) else None
    if isinstance(stream, StoredStream) and chunk is not None and chunk > LARGE_CHUNK:
        needed = stream.reading_bytes
        note = f"note: {printable(path)} is stored in chunks of {amount(chunk)}: reading takes up to {amount(needed)},"
        console.print(
            f"{note} whatever --memory-limit is. Store it in smaller chunks to need less.", soft_wrap=True, markup=False
        )


def _keep(
    out: Path,
    recovery: Recovery,
    path: str,
    settings: dict[str, Any],
    stream: Stream,
    callback: ProgressCallback,
    output: OutputOptions,
    resume: bool,
) -> None:
    """Write the result and the report, and print what was asked for."""
    from rich.console import Console

    from tpca.results import as_result, write_result

    seconds = callback.seconds
    summary = write_result(out, recovery, path, settings)
    run = {"seconds": seconds, "resumed": resume, "trace": callback.trace}
    alarm = output.write(out, [path], stream.identity, run)
    if output.as_json:
        told = {name: value for name, value in summary.items() if name not in ("history", "settings")}
        put_json({**told, "solver": settings["solver"], "solver_reason": settings["solver_reason"]})
    elif not output.quiet:
        recovery_table(Console(), as_result(recovery, path, settings))
        print(solver_line(summary))
        output.say(out, alarm)


def _run(
    solver: Solver, stream: Stream, callback: ProgressCallback, limit: int | None, other: Callable[[], Recovery] | None
) -> Recovery:
    """Run the solver, or another fit."""
    from tpca.engines import open_engine
    from tpca.solvers.base import run_on_data

    limits = [one for one in (stream.length, limit) if one is not None]
    callback.engine = open_engine(stream)
    with callback.watching(min(limits, default=None) if other is None else None):
        return run_on_data(solver, callback.engine) if other is None else other()
