"""The small commands: ``score``, ``report``, ``info``, ``generate`` and ``plan``."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tpca.cli import options
from tpca.cli.options import option, place
from tpca.cli.output import check_page, check_place, put, put_json, room_at, using_result, write_report
from tpca.cli.progress import bars
from tpca.errors import OutputError, StreamError
from tpca.wording import amount, approximately, count, duration, shape, with_error

if TYPE_CHECKING:
    from tpca.data import Stream

# score ----------------------------------------------------------------------------------------------------------

SAID = {"mean": "mean score", "variance": "variance of the scores", "effect": "slope of the scores on y"}
SAID |= {"views": "correlation of the scores"}


def score(
    ctx: typer.Context,
    data: options.Data,
    folder: options.Folder,
    y: options.Y = None,
    nuisance: options.Nuisance = None,
    truth: Annotated[bool, option("Compare with the truth beside the data.", "--truth")] = False,
    nan_policy: Annotated[str | None, option("NaN or Inf: raise, omit or zero; as in the fit by default.")] = None,
    dim: options.Dim = None,
    items: options.Items = "auto",
    sample: options.Sample = None,
    modes: options.Modes = None,
    value: options.Value = None,
    missing: options.Missing = "raise",
    as_json: options.AsJson = False,
) -> None:
    """Try a result on other data: its score, with a standard error.

    That is the mean score of the samples; of a fit with --y, the slope of the scores on --y; of a fit with --target
    variance, their variance; each summed over the components. Of views it is the correlation; give DATA for each.

    With --truth also the overlap of every vector with the planted one (1 is perfect).

    Axes and columns are those of the fit, unless they are given.
    """
    from tpca.data.write import read_truth, truth_path
    from tpca.result import load

    result = load(folder)
    kind = "views" if result.kind == "views" else result.target
    options.refuse_idle(ctx, kind)
    if kind == "effect" and y is None:
        raise StreamError("the score of an effect is the slope on --y; give the same column as for the fit.")
    if kind != "views" and len(data) > 1:
        raise StreamError(f"one DATA holds the samples, got {len(data)}; several are for a fit of views.")
    with using_result(folder):
        stream = options.opened_as_fitted(result, data, ctx.params)
        found = result.score(stream, options.read_columns(y), nuisance=options.read_columns(nuisance))
        told: dict[str, Any] = {"score": float(found), "standard_error": found.standard_error}
        told |= {"samples": found.n_samples, "left_out": found.n_skipped}
        if truth:  # the component that is nearest to what is beside the data
            known = read_truth(truth_path(data[0]))
            each = [known.overlaps([v[c] for v in result.vectors]).tolist() for c in range(len(result.components))]
            best = max(range(len(each)), key=lambda c: min(each[c]))
            told |= {"component": best, "overlaps": each[best], "axes": list(result.labels.modes)}
            told |= {"strength": known.strength}
    if as_json:
        put_json(told)
        return
    summed = f", summed over {len(result.components)} components" if len(result.components) > 1 else ""
    rows = f", {count(found.n_samples, 'row' if result.kind == 'views' else 'sample')}"
    left_out = f", {found.n_skipped:,} left out" if found.n_skipped else ""
    put(f"{SAID[kind]} {with_error(float(found), found.standard_error)}{summed}{rows}{left_out}")
    if truth:
        put(f"component {told['component'] + 1} against the truth of strength {told['strength']:g}:")
        width = max(map(len, told["axes"]))
        for name, overlap in zip(told["axes"], told["overlaps"], strict=True):
            put(f"  {name:{width}}  overlap {overlap:.4f}")


# report ---------------------------------------------------------------------------------------------------------


def report(
    ctx: typer.Context,
    folder: options.Folder,
    out: Annotated[Path | None, place("The file to write; DIR/report.html by default.")] = None,
    data: Annotated[list[str] | None, option("Where the data are now: moved, or at a URL.")] = None,
    y: options.Y = None,
    scores: options.Scores = True,
    overwrite: options.Overwrite = False,
) -> None:
    """Make one HTML page of a result.

    The data, and --y of the fit, are read once more, to draw the scores of the samples; if they cannot be, the page
    goes without. What the result says of them is followed to paths of this machine; a URL must be given here.
    """
    from tpca.result import load

    path = out or folder / "report.html"
    result = load(folder)
    options.refuse_idle(ctx, "views" if result.kind == "views" else result.target)
    stored = [result.source] if isinstance(result.source, str) else result.source
    source = data or stored
    stored_y = result.settings.get("y")
    check_page(path, overwrite, data=[*source, y or stored_y])

    def read() -> tuple[Any, Any]:
        if not data:
            options.check_stored_places(stored, "--data")
        if y is None and stored_y is not None:
            options.check_stored_places([stored_y], "--y")
        samples = options.opened_as_fitted(result, source, {})
        return result.transform(samples), options.read_columns(y or stored_y)

    with using_result(folder):
        write_report(result, path, read if scores else None, overwrite)
    put(f"{path}: {amount(os.path.getsize(path))}")


# info -----------------------------------------------------------------------------------------------------------


def info(
    ctx: typer.Context,
    path: Annotated[str, typer.Argument(help="Data, or a folder that tpca fit wrote.", show_default=False)],
    dim: options.Dim = None,
    items: options.Items = "auto",
    sample: options.Sample = None,
    modes: options.Modes = None,
    value: options.Value = None,
    missing: options.Missing = "raise",
    as_json: options.AsJson = False,
) -> None:
    """Say what is in a file of samples, or in a result."""
    if path and (Path(path) / "result.json").is_file():
        from tpca.result import load

        options.refuse_idle(ctx, "result")
        result = load(Path(path))
        with using_result(Path(path)):
            if as_json:
                put_json(json.loads(result.to_json()))
            else:
                source = ", ".join(result.source) if isinstance(result.source, list) else result.source
                put(f"Result of fitting {source}\n{result.summary()}")
        return
    stream = options.opened(path, ctx.params, items=items)
    found = _described(stream, path)
    if as_json:
        put_json(found)
        return
    each, total = found["sample_bytes"], found["sample_bytes"] * (found["samples"] or 0)
    count = "samples" if found["samples"] is None else f"{found['samples']:,} samples"
    put(f"{path}: {found['kind']}, {found['dtype']}")
    put(f"  {count} of {shape(found['dims'])}, {amount(each)} each, {amount(total)} in all")
    if (labels := stream.labels) is not None:
        named = []
        for mode, (name, axis) in enumerate(zip(labels.modes, labels.axes, strict=True)):
            ends = f" ({labels.entry(mode, 0)} to {labels.entry(mode, -1)})" if axis.coords is not None else ""
            named.append(f"{name}{ends}")
        put(f"  {f'samples along {labels.sample}; ' if labels.sample else ''}axes {', '.join(named)}")
    if found["chunks"]:
        each, needed = amount(found["chunk_bytes"]), amount(found["reading_bytes"])
        put(f"  chunks of {shape(found['chunks'])}, {each} each; reading them takes up to {needed}")
    if found["truth"]:
        put(f"  planted truth in {found['truth']}")
    put(f"  tpca fit would take {found['solver'].replace('_', ' ')}: {found['solver_reason']}")
    put(f"  and hold {amount(found['memory'])}; --memory-limit sets a bound")


def _described(stream: Stream, path: str) -> dict[str, Any]:
    """What is known of data without reading all of them, and what a fit would do."""
    from tpca.data.write import truth_path
    from tpca.inference.design import Design
    from tpca.solvers.build import build_solver
    from tpca.solvers.least_squares.solver import LeastSquares

    choice = build_solver("auto", "mean", stream, Design(), {"whiten": "auto"}, frozenset(), {})
    solver = choice.solver
    if isinstance(solver, LeastSquares):
        memory = solver.plan(stream, Design()).nbytes
    else:
        memory = solver.budget(stream.dims)
    dtype = getattr(stream, "stored_dtype", stream.dtype)
    truth = truth_path(path)
    return {
        "kind": stream.kind,
        "path": path,
        "samples": stream.length,
        "dims": list(stream.dims),
        "labels": None if stream.labels is None else stream.labels.as_json(),
        "dtype": str(dtype),
        **{name: getattr(stream, name, None) for name in ("chunks", "chunk_bytes", "reading_bytes")},
        "sample_bytes": math.prod(stream.dims) * dtype.itemsize,
        "truth": str(truth) if truth.is_file() else None,
        "solver": solver.name,
        "solver_reason": choice.reason,
        "memory": memory,
    }


# generate -------------------------------------------------------------------------------------------------------


def generate(
    ctx: typer.Context,
    out: Annotated[Path, place("File to write: .npy or .zarr.", show_default=False)],
    order: Annotated[int, option("Number of axes of a sample.")] = 4,
    dim: Annotated[int, option("Length of every axis.")] = 16,
    dims: Annotated[str | None, option("Lengths of all axes instead, such as 12,10,8.")] = None,
    strength: Annotated[float, option("Strength of the signal; 0 for nothing but noise.")] = 1.0,
    samples: Annotated[int, option("Number of samples.", min=1)] = 1000,
    noise: Annotated[
        str, option("gaussian, rademacher, uniform, bounded, correlated or student-t; unit variance.")
    ] = "gaussian",
    correlation: Annotated[
        float | None, option("Correlation inside the pairs of vectors, 0 to 1; random if not given.")
    ] = None,
    dtype: Annotated[str, option("float32 or float64.")] = "float64",
    random_state: Annotated[int, option("Seed of signal and noise.")] = 0,
    overwrite: options.Overwrite = False,
    as_json: options.AsJson = False,
) -> None:
    """Write noisy samples with a planted signal.

    The truth is written beside them, in OUT.truth.npz.

    Example: tpca generate --order 4 --dim 16 --strength 2 --samples 3000 --out d.zarr
    """
    from rich.console import Console

    from tpca.data.write import check_samples_place, truth_path, write_samples
    from tpca.model import Samples, SpikedTensor, check_dtype
    from tpca.planning import tensor_dims
    from tpca.solvers.options import machine_memory

    options.refuse_idle(ctx)
    lengths = tensor_dims(*((order, dim, None) if dims is None else (None, None, dims)))
    beside = truth_path(out)
    check_place(out.parent)
    check_samples_place(out, overwrite)
    entries, itemsize = min(math.prod(lengths), 1e200), check_dtype(dtype).itemsize  # more does not fit into a float
    needed, room = samples * entries * itemsize, room_at(out)
    if needed > room:
        raise OutputError(
            f"cannot write {str(out)!r}: {samples:,} samples of order {len(lengths)} take {amount(needed)}, and the "
            f"disk has {amount(room)} left; ask for fewer or smaller samples, or choose another place."
        )
    drawn, memory = entries * (8 + itemsize), machine_memory()  # the signal in float64, and one sample
    if drawn > memory:
        raise OutputError(
            f"cannot draw samples of order {len(lengths)}: one takes {amount(drawn)} of memory, and this machine has "
            f"{amount(memory)}; ask for smaller samples."
        )
    truth = SpikedTensor.random(lengths, strength, correlation, random_state) if strength else None
    source = (
        truth.stream(noise, random_state, dtype=dtype)
        if truth
        else Samples(lengths, None, noise, random_state, dtype=dtype)
    )
    with bars(Console(stderr=True)) as progress:
        bar = progress.add_task(f"writing {out.name}", total=samples)
        write_samples(out, source, samples, truth, lambda n: progress.update(bar, completed=n), overwrite)
    if as_json:
        told = {"path": str(out), "truth": str(beside) if truth else None, "samples": samples, "dims": list(lengths)}
        put_json({**told, "strength": strength, "noise": noise, "dtype": dtype, "random_state": random_state})
        return
    put(f"{out}: {samples:,} samples of {shape(lengths)}, {amount(needed)}, strength {strength:g}")
    put(f"truth: {beside}" if truth else "nothing but noise: no truth")


# plan -----------------------------------------------------------------------------------------------------------

BASIS = {"measured": "m", "extrapolated": "m*", "theory": "t", "": ""}


def plan(
    order: Annotated[int | None, option("Number of axes of a sample.")] = None,
    dim: Annotated[int | None, option("Length of every axis.")] = None,
    dims: Annotated[str | None, option("Lengths of all axes instead, such as 10,20,30.")] = None,
    strength: Annotated[float, option("Strength of the signal.")] = 1.0,
    noise: Annotated[float, option("Standard deviation of an entry's noise.")] = 1.0,
    samples: Annotated[str | None, option("Samples at hand: a number, or as 4d^2.")] = None,
    memory_limit: Annotated[str | None, option("Memory for the fit, such as 2GB.")] = None,
    rate: Annotated[float | None, option("Samples a second that arrive.")] = None,
    workers: Annotated[int, option("Workers that share the samples.")] = 1,
    as_json: options.AsJson = False,
) -> None:
    """Estimate samples, memory and time that a fit needs.

    Nothing is run: the constants were measured, by the study of memory in the repository.
    """
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    from tpca.planning import Problem, make_plan, tensor_dims

    problem = Problem(tensor_dims(order, dim, dims), strength, noise)
    made = make_plan(problem, samples=samples, memory_limit=memory_limit, rate=rate, workers=workers)
    if as_json:
        put_json(made)
        return
    console = Console()
    console.print(made.recommendation, style="bold", highlight=False)
    about = [shape(problem.dims), f"strength {problem.strength:g}", f"noise {problem.noise:g}"]
    title = ", ".join([*about, f"memory {amount(made.memory_limit)}"])
    table = Table(title=title, title_style="", title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    time = "time" if made.workers == 1 else f"time, {made.workers} workers"
    heads = ["solver", "samples", "from", "state", time, "S·N / bound"]
    heads += [f"{made.samples:,} are"] if made.samples is not None else []
    for head in heads:
        table.add_column(head, justify="left" if head in ("solver", "from") else "right", no_wrap=head != "solver")
    shown = sorted((r for r in made.rows if not r.obstacle), key=lambda r: r.samples)
    for row in shown:
        mark = "→ " if row.name == made.recommended else "  "
        cells = [mark + row.title, _count(row.samples), BASIS[row.basis], amount(row.state_bytes)]
        cells += [duration(row.seconds), _count(row.product)]
        table.add_row(*cells, *([row.suffices] if made.samples is not None else []))
    if shown:
        console.print(table)
    for row in made.rows:
        if row not in shown:
            console.print(f"Not possible: {row.title}: {row.obstacle}\n", highlight=False)
    speed = f"{made.rate:g} samples a second" if made.rate else "as fast as memory delivers them"
    notes = Table.grid(padding=(0, 2))
    notes.add_row("samples", "for every overlap above 0.9 in half of all runs; twice that is enough")
    notes.add_row("from", "m: constant measured at such sizes; m*: at others, and extrapolated; t: theory, constant 1")
    notes.add_row("time", f"of reading dense samples that come {speed} ({made.bandwidth / 1e9:.1f} GB/s here)")
    notes.add_row(
        "S·N / bound",
        "state times samples, over the least that vectors which differ from axis to axis allow: "
        f"{_count(made.least_product)}, up to constants (Dudeja & Hsu 2024)",
    )
    console.print(notes, highlight=False)


def _count(value: float) -> str:
    if not math.isfinite(value):
        return "—"
    return approximately(value) if value >= 10 else f"{value:.2g}"
