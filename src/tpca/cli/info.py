"""``tpca info``: what is in a file or a result."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tpca.cli.applies import refuse_idle
from tpca.cli.data import Missing, Modes, Sample, SampleDim, Value, layout
from tpca.cli.outputs import put_json, recovery_table
from tpca.cli.report import solver_line
from tpca.cli.views import views_table
from tpca.wording import amount, printable, shape

if TYPE_CHECKING:
    from tpca.streams import Stream


def info(
    ctx: typer.Context,
    path: Annotated[str, typer.Argument(help="Data, or a folder that tpca fit wrote.", show_default=False)],
    items: Annotated[str, typer.Option(help="What each file of a folder is: batches, samples, or auto.")] = "auto",
    sample_dim: SampleDim = None,  # noqa: ARG001
    sample: Sample = None,  # noqa: ARG001
    modes: Modes = None,  # noqa: ARG001
    value: Value = None,  # noqa: ARG001
    missing: Missing = "raise",  # noqa: ARG001
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Say what is in a file of samples, or in a result."""
    from tpca.results import read_result
    from tpca.streams import open_stream

    if (Path(path) / "recovery.json").is_file():
        refuse_idle(ctx, "result")
        stored = read_result(Path(path))
        summary = stored.summary
        if as_json:
            put_json({**{name: value for name, value in summary.items() if name != "history"}, "kind": "result"})
        else:
            from rich.console import Console

            console = Console()
            console.print(printable(f"Result of fitting {summary['source']}"), highlight=False, markup=False)
            if summary.get("kind") == "views":
                views_table(stored)
            else:
                recovery_table(console, stored)
            if line := solver_line(summary):
                console.print(line, highlight=False, markup=False)
        return
    found = _describe(open_stream(path, items=items, **layout(ctx.params)), path)  # type: ignore[arg-type]
    if as_json:
        put_json(found)
    else:
        _print(found)


def _describe(stream: Stream, path: str) -> dict[str, Any]:
    from tpca.solvers.choice import choose_for
    from tpca.solvers.mean.memory import default_mean_memory
    from tpca.solvers.memory import default_memory
    from tpca.streams.stored import StoredStream
    from tpca.streams.writing import truth_path

    entries = math.prod(stream.dims)
    stored = stream if isinstance(stream, StoredStream) else None  # a sparse table is not, and has no chunks
    dtype = stream.dtype if stored is None else stored.stored_dtype
    mean = choose_for(stream).solver == "mean"
    memory = default_mean_memory(stream.dims, partial=stream.partial) if mean else default_memory(stream.dims)
    found: dict[str, Any] = {
        "kind": stream.kind,
        "path": path,
        "samples": stream.length,
        "dims": list(stream.dims),
        "labels": None if stream.labels is None else stream.labels.as_json(),
        "dtype": str(dtype),
        "chunks": None if stored is None else stored.chunks,
        "chunk_bytes": None if stored is None else stored.chunk_bytes,
        "reading_bytes": None if stored is None else stored.reading_bytes,
        "sample_bytes": entries * dtype.itemsize,
        "default_memory": memory,
    }
    truth = truth_path(path)
    return found | {"truth": str(truth) if truth.is_file() else None}


def _named(found: dict[str, Any]) -> str:
    """The axis of the samples, and the modes with the first and last of their entries."""
    from tpca.labels import parse_labels

    labels = parse_labels(found["labels"], found["dims"])
    told = []
    for mode, (name, axis) in enumerate(zip(labels.modes, labels.axes, strict=True)):
        ends = f" ({labels.entry(mode, 0)} to {labels.entry(mode, -1)})" if axis.coords is not None else ""
        told.append(f"{name}{ends}")
    return f"{f'samples along {labels.sample}, ' if labels.sample else ''}modes {', '.join(told)}"


def _print(found: dict[str, Any]) -> None:
    total = found["sample_bytes"] * found["samples"]
    print(f"{printable(found['path'])}: {found['kind']}, {found['dtype']}")
    each = amount(found["sample_bytes"])
    print(f"  {found['samples']:,} samples of {shape(found['dims'])}, {each} each, {amount(total)} in all")
    if found["labels"]:
        print(f"  {printable(_named(found))}")
    if found["chunks"]:
        each, needed = amount(found["chunk_bytes"]), amount(found["reading_bytes"])
        print(f"  chunks of {shape(found['chunks'])}, {each} each; reading them takes up to {needed}")
    if found["truth"]:
        print(f"  planted truth in {printable(found['truth'])}")
    print(f"  tpca fit would use a state of up to {amount(found['default_memory'])}; --memory-limit sets another bound")
