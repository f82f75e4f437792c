"""``tpca generate``: noisy tensors with a planted signal, and the truth beside them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from tpca.cli.screens import put_json, shape, size


def generate(
    out: Annotated[
        Path, typer.Option(help="File to write; its suffix decides: .npy, .zarr, .h5 or .hdf5.", show_default=False)
    ],
    order: Annotated[int, typer.Option(help="Number of modes.")] = 4,
    dim: Annotated[int, typer.Option(help="Length of every mode.")] = 16,
    dims: Annotated[str | None, typer.Option(help="Lengths of all modes, as in 12,10,8 (instead of both).")] = None,
    strength: Annotated[float, typer.Option(help="Strength of the signal; 0 for nothing but noise.")] = 1.0,
    samples: Annotated[int, typer.Option(help="Number of samples.", min=1)] = 1000,
    noise: Annotated[
        str, typer.Option(help="gaussian, rademacher, uniform, bounded, correlated or student-t; unit variance.")
    ] = "gaussian",
    correlation: Annotated[
        float | None, typer.Option(help="Correlation inside the pairs of vectors, 0 to 1; random if not given.")
    ] = None,
    dtype: Annotated[str, typer.Option(help="float32 or float64.")] = "float64",
    seed: Annotated[int, typer.Option(help="Seed of signal and noise.")] = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a file that is already there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was written as JSON.")] = False,
) -> None:
    """Plant a signal in noise and write the samples, with the truth beside them in OUT.truth.npz.

    Example: [bold]tpca generate --order 4 --dim 16 --strength 2 --samples 3000 --out d.zarr[/]
    """
    from rich.console import Console
    from rich.progress import Progress

    from tpca.model import SpikedTensor
    from tpca.model.sampling import Samples
    from tpca.results import replacing
    from tpca.streams.writing import truth_path, write_samples, write_truth

    lengths = _lengths(dims, order, dim)
    truth = SpikedTensor.random(lengths, strength, correlation, seed) if strength else None
    source = truth.stream(noise, seed, dtype=dtype) if truth else Samples(lengths, None, noise, seed, dtype=dtype)
    beside = truth_path(out)
    _check_free(out, beside, overwrite)
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task(f"writing {out.name}", total=samples)
        write_samples(out, source, samples, lambda n: progress.update(bar, completed=n))
    beside.unlink(missing_ok=True)
    if truth:
        with replacing(beside) as draft, draft.open("wb") as file:
            write_truth(file, truth)
    written: dict[str, Any] = {"path": str(out), "truth": str(beside) if truth else None, "samples": samples}
    written |= {"dims": list(lengths), "strength": strength, "noise": noise, "dtype": dtype, "seed": seed}
    if as_json:
        put_json(written)
        return
    total = samples * math.prod(lengths) * source.dtype.itemsize
    print(f"{out}: {samples:,} samples of {shape(lengths)}, {size(total)}, strength {strength:g}")
    print(f"truth: {beside}" if truth else "nothing but noise: no truth")


def _lengths(dims: str | None, order: int, dim: int) -> tuple[int, ...]:
    from tpca.blocks import check_dims
    from tpca.errors import ModelError

    if dims is None:
        return check_dims((dim,) * order)
    try:
        return check_dims(int(length) for length in dims.replace("x", ",").split(","))
    except ValueError as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(f"dims must be lengths like 12,10,8, got {dims!r}.") from None


def _check_free(out: Path, beside: Path, overwrite: bool) -> None:
    """Data with a truth beside them were generated, and can be again; anything else is somebody's."""
    from tpca.errors import OutputError

    if out.exists() and not overwrite and not beside.exists():
        raise OutputError(f"{str(out)!r} exists and was not written by tpca generate; --overwrite replaces it.")
