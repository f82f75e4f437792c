"""``tpca info``: what is in a file or a result."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tpca.cli.applies import refuse_idle
from tpca.cli.outputs import put_json, recovery_table
from tpca.cli.report import solver_line
from tpca.cli.views import views_table
from tpca.wording import amount, shape

if TYPE_CHECKING:
    from tpca.streams import Stream


def info(
    ctx: typer.Context,
    path: Annotated[str, typer.Argument(help="Data, or a folder that tpca fit wrote.", show_default=False)],
    items: Annotated[str, typer.Option(help="What each file of a folder is: batches, samples, or auto.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Say what is in a file of samples or in a result, without reading the samples."""
    from tpca.results import read_result
    from tpca.streams import open_stream

    if (Path(path) / "recovery.json").is_file():
        refuse_idle(ctx, "result")
        summary = read_result(Path(path)).summary
        if as_json:
            put_json({**{name: value for name, value in summary.items() if name != "history"}, "kind": "result"})
        else:
            from rich.console import Console

            console = Console()
            console.print(f"Result of fitting {summary['source']}", highlight=False, markup=False)
            if summary.get("kind") == "views":
                views_table(summary)
            else:
                recovery_table(console, summary)
            if line := solver_line(summary):
                console.print(line, highlight=False, markup=False)
        return
    found = _describe(open_stream(path, items=items), path)  # type: ignore[arg-type]
    if as_json:
        put_json(found)
    else:
        _print(found)


def _describe(stream: Stream, path: str) -> dict[str, Any]:
    from tpca.solvers.memory import default_memory
    from tpca.streams.stored import StoredStream
    from tpca.streams.writing import truth_path

    assert isinstance(stream, StoredStream)  # what lies at a path is
    entries = math.prod(stream.dims)
    found: dict[str, Any] = {
        "kind": stream.kind,
        "path": path,
        "samples": stream.length,
        "dims": list(stream.dims),
        "dtype": str(stream.stored_dtype),
        "chunks": stream.chunks,
        "chunk_bytes": stream.chunk_bytes,
        "reading_bytes": stream.reading_bytes,
        "sample_bytes": entries * stream.stored_dtype.itemsize,
        "default_memory": default_memory(stream.dims),
    }
    truth = truth_path(path)
    return found | {"truth": str(truth) if truth.is_file() else None}


def _print(found: dict[str, Any]) -> None:
    total = found["sample_bytes"] * found["samples"]
    print(f"{found['path']}: {found['kind']}, {found['dtype']}")
    each = amount(found["sample_bytes"])
    print(f"  {found['samples']:,} samples of {shape(found['dims'])}, {each} each, {amount(total)} in all")
    if found["chunks"]:
        each, needed = amount(found["chunk_bytes"]), amount(found["reading_bytes"])
        print(f"  chunks of {shape(found['chunks'])}, {each} each; reading them takes up to {needed}")
    if found["truth"]:
        print(f"  planted truth in {found['truth']}")
    print(f"  tpca fit would use a state of up to {amount(found['default_memory'])}; --memory-limit sets another bound")
