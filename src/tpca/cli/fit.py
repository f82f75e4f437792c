"""``tpca fit``: recover the signal in a file of samples."""

from __future__ import annotations

import math
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tpca.cli.screens import duration, number, put_json, recovery_table
from tpca.cli.views import fit_views

if TYPE_CHECKING:
    from rich.console import Console

    from tpca.planning.choice import Choice
    from tpca.solvers.recovery import Recovery
    from tpca.streams import Stream

DATA = "A .npy file or a folder of them, a Zarr store or URL, or an HDF5 file; ::/path picks an array inside."


def fit(
    paths: Annotated[list[str], typer.Argument(help=DATA, show_default=False, metavar="PATH...")],
    out: Annotated[Path, typer.Option(help="Folder for recovery.json and vectors.npz.", show_default=False)],
    views: Annotated[
        bool, typer.Option("--views", help="Every PATH is a view (rows, columns) of the same rows.")
    ] = False,
    shrinkage: Annotated[str, typer.Option(help="With --views: of the covariances, 0 to 1, or auto.")] = "auto",
    clip: Annotated[float | None, typer.Option(help="With --views: bound on a row's influence, such as 2.")] = None,
    solver: Annotated[
        str, typer.Option(help="mean: fits the mean, if it can be held; race: one pass in bounded memory; or auto.")
    ] = "auto",
    components: Annotated[int, typer.Option(help="Components to look for.", min=1)] = 1,
    memory: Annotated[str | None, typer.Option(help="Bound on the solver's state, such as 64MB.")] = None,
    max_samples: Annotated[int | None, typer.Option(help="Most samples to use.")] = None,
    max_passes: Annotated[str, typer.Option(help="Most passes over the data, or auto.")] = "auto",
    tolerance: Annotated[float | None, typer.Option(help="Error of a vector at which to stop early.")] = None,
    confidence: Annotated[float, typer.Option(help="1 - confidence is the chance of a false alarm.")] = 0.95,
    seed: Annotated[int, typer.Option(help="Seed of the solver.")] = 0,
    shuffle: Annotated[int | None, typer.Option(help="Seed for reading the samples in random order.")] = None,
    nan_policy: Annotated[str, typer.Option(help="NaN and Inf: raise, skip the sample, or zero.")] = "raise",
    items: Annotated[str, typer.Option(help="What the files of a folder hold: batches or samples.")] = "batches",
    checkpoint: Annotated[Path | None, typer.Option(help="Folder for checkpoints; OUT/checkpoint by default.")] = None,
    checkpoint_every: Annotated[float, typer.Option(help="Seconds between checkpoints; 0: every round.")] = 60.0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint.")] = False,
    restart: Annotated[bool, typer.Option("--restart", help="Throw the checkpoints away and start afresh.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Recover the signal in a file of noisy tensors, or say that there is none.

    Nothing needs to be known of strength or noise. Interrupt with Ctrl-C and go on with --resume.

    Where the mean of all samples fits into memory it is fitted; where not, the race runs. It is said which, and why.

    With --views the samples are outer products of the rows of several files: tensor canonical correlation.

    Exit code 0: recovered; 3: no signal; 2: bad usage or data; 130: interrupted.
    """
    from rich.console import Console

    from tpca.checkpoint import Checkpoints
    from tpca.errors import RunInterrupted, StreamError
    from tpca.results import write_result
    from tpca.streams import open_stream

    if views:
        found = fit_views(paths, out, components, shrinkage, clip, memory, confidence, seed, nan_policy, as_json)
        raise typer.Exit(0 if found else 3)
    if len(paths) > 1:
        raise StreamError(f"one PATH holds the samples, got {len(paths)}; with --views every PATH is a view.")
    (path,) = paths
    stream = open_stream(path, items=items, shuffle=shuffle, nan_policy=nan_policy)  # type: ignore[arg-type]
    kept = Checkpoints(checkpoint or out / "checkpoint", checkpoint_every)
    if restart:
        kept.clear()
    console = Console(stderr=True)
    watcher = _Watcher()
    common: dict[str, Any] = {"seed": seed, "memory": memory, "max_samples": max_samples, "confidence": confidence}
    common |= {"n_components": components, "callbacks": [watcher]}
    common |= {"checkpoint": kept.folder, "checkpoint_every": checkpoint_every, "resume": resume}
    chosen, choice = _solver(solver, stream, common, max_passes, tolerance)
    try:
        recovery = _run(console, chosen, stream, watcher)
    except RunInterrupted as stop:
        again = shlex.join(["tpca", *(a for a in sys.argv[1:] if a not in ("--resume", "--restart")), "--resume"])
        console.print(f"[bold]interrupted[/]: {stop} Go on with:", soft_wrap=True)
        console.print(f"  {again}", soft_wrap=True, highlight=False, markup=False)
        raise typer.Exit(130) from None
    summary = write_result(out, recovery, path)
    kept.clear()
    if as_json:
        known = {name: value for name, value in summary.items() if name != "history"}
        put_json({**known, "solver": choice.solver, "solver_reason": choice.reason})
    else:
        recovery_table(Console(), summary)
        print(f"solver {choice.solver}: {choice.reason}")
        print(f"written to {out}")
    raise typer.Exit(0 if recovery.found else 3)


def _solver(
    name: str, stream: Stream, common: dict[str, Any], max_passes: str, tolerance: float | None
) -> tuple[Any, Choice]:
    """The solver by its name, which it is and why."""
    from tpca.errors import SolverError
    from tpca.planning.choice import Choice, choose_for
    from tpca.solvers.mean import MeanSolver
    from tpca.solvers.race import RaceSolver

    if name not in ("auto", "mean", "race"):
        raise SolverError(f"solver must be auto, mean or race, got {name!r}.")
    choice = Choice(name, "asked for")
    if name == "auto":
        choice = choose_for(stream, common["memory"], max_samples=common["max_samples"], tolerance=tolerance)
    passes = int(max_passes) if max_passes.isdigit() else max_passes
    race = RaceSolver(max_passes=passes, tolerance=tolerance, **common)  # checks all options, needed or not
    if choice.solver == "race":
        return race, choice
    if tolerance is not None:
        raise SolverError(f"tolerance={tolerance} needs --solver race or auto, got {name!r}.")
    return MeanSolver(**common), choice


class _Watcher:
    """Turns the solver's records into a progress bar; silent before :meth:`show`."""

    def __init__(self) -> None:
        self._progress: Any = None
        self._first = 0
        self._pace = _Pace()

    def show(self, progress: Any, bar: Any, total: int | None) -> None:
        self._progress, self._bar, self._total = progress, bar, total
        self._pace = _Pace()

    def __call__(self, record: dict[str, Any]) -> None:
        if self._progress is None:
            return
        done = record["position"]
        self._pace.note(done)
        phase = record["phase"] if record["pass"] == 1 else f"{record['phase']}, pass {record['pass']}"
        which = f" {record['component']}" if record["component"] else ""
        found = "found" if record["found"] else "not yet proven"
        known = ""
        if "strength" in record:
            known = f"strength {number(record['strength'], 3)} ± {number(record['strength_error'], 2)} ({found})"
        self._progress.update(
            self._bar,
            completed=done,
            description=f"{phase}{which}",
            rate=f"{self._pace.rate:,.0f} samples/s",
            known=known,
            left="" if self._total is None else f"{duration(self._pace.left(self._total))} left",
        )


class _Pace:
    """How fast it goes, and how long it will take: a round costs a little, and each of its samples a little."""

    def __init__(self) -> None:
        self._started = self._last = time.monotonic()
        self._first: int | None = None
        self._done, self._rounds = 0, 0
        self._each = math.inf  # seconds a sample: the best round so far, for rounds have a cost of their own

    def note(self, done: int) -> None:
        now = time.monotonic()
        if self._first is None or done < self._done:  # the start, a resumed run, a new pass
            self._first, self._started, self._rounds = done, now, 0
        elif done > self._done:
            self._each = min(self._each, (now - self._last) / (done - self._done))
            self._rounds += 1
        self._done, self._last = done, now

    @property
    def rate(self) -> float:
        """Samples a second since the start."""
        return (self._done - (self._first or 0)) / max(self._last - self._started, 1e-9)

    def left(self, total: int) -> float:
        """Seconds to the end of the pass; rounds grow with the samples so far."""
        from tpca.solvers.race_run import GROWTH

        if not self._rounds or self._done >= total:
            return 0.0
        seen = self._done - (self._first or 0)
        each_round = max(0.0, self._last - self._started - seen * self._each) / self._rounds
        rounds = math.log(total / self._done) / math.log1p(GROWTH)
        return (total - self._done) * self._each + rounds * each_round


def _run(console: Console, solver: Any, stream: Stream, watcher: _Watcher) -> Recovery:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from tpca.solvers.drive import run_on_data

    columns = (
        TextColumn("{task.description:14s}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TextColumn("{task.fields[known]}"),
        TextColumn("{task.fields[left]}"),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        limits = [limit for limit in (stream.length, solver.max_samples) if limit is not None]
        total = min(limits, default=None)
        bar = progress.add_task("reading", total=total, rate="", known="", left="")
        watcher.show(progress, bar, total)
        return run_on_data(solver, stream)
