"""``tpca generate``: noisy tensors with a planted signal, and the truth beside them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from tpca.cli.applies import refuse_idle
from tpca.cli.live import bars
from tpca.cli.outputs import check_place, put_json, room_at
from tpca.wording import amount, shape


def generate(
    ctx: typer.Context,
    out: Annotated[
        Path, typer.Option(help="File to write; its suffix decides: .npy, .zarr, .h5 or .hdf5.", show_default=False)
    ],
    order: Annotated[int, typer.Option(help="Number of modes.")] = 4,
    dim: Annotated[int, typer.Option(help="Length of every mode.")] = 16,
    dims: Annotated[str | None, typer.Option(help="Lengths of all modes, as in 12,10,8.")] = None,
    strength: Annotated[float, typer.Option(help="Strength of the signal; 0 for nothing but noise.")] = 1.0,
    samples: Annotated[int, typer.Option(help="Number of samples.", min=1)] = 1000,
    noise: Annotated[
        str, typer.Option(help="gaussian, rademacher, uniform, bounded, correlated or student-t; unit variance.")
    ] = "gaussian",
    correlation: Annotated[
        float | None, typer.Option(help="Correlation inside the pairs of vectors, 0 to 1; random if not given.")
    ] = None,
    dtype: Annotated[str, typer.Option(help="float32 or float64.")] = "float64",
    random_state: Annotated[int, typer.Option(help="Seed of signal and noise.")] = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a file that is already there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was written as JSON.")] = False,
) -> None:
    """Write noisy samples with a planted signal.

    The truth is written beside them, in OUT.truth.npz.

    Example: tpca generate --order 4 --dim 16 --strength 2 --samples 3000 --out d.zarr
    """
    from rich.console import Console

    from tpca.errors import OutputError
    from tpca.lab.planning.problem import tensor_dims
    from tpca.model import SpikedTensor
    from tpca.model.sampling import Samples, check_dtype
    from tpca.streams.writing import truth_path, write_samples

    refuse_idle(ctx)
    lengths = tensor_dims(*((order, dim, None) if dims is None else (None, None, dims)))
    beside = truth_path(out)
    check_place(out.parent)
    # Data with a truth beside them were generated, and can be again; anything else is somebody's.
    if out.exists() and not overwrite and not beside.exists():
        raise OutputError(f"{str(out)!r} exists and was not written by tpca generate; --overwrite replaces it.")
    _check_room(out, lengths, samples, check_dtype(dtype).itemsize)
    truth = SpikedTensor.random(lengths, strength, correlation, random_state) if strength else None
    source = (
        truth.stream(noise, random_state, dtype=dtype)
        if truth
        else Samples(lengths, None, noise, random_state, dtype=dtype)
    )
    with bars(Console(stderr=True)) as progress:
        bar = progress.add_task(f"writing {out.name}", total=samples)
        write_samples(out, source, samples, truth, lambda n: progress.update(bar, completed=n))
    written: dict[str, Any] = {"path": str(out), "truth": str(beside) if truth else None, "samples": samples}
    written |= {
        "dims": list(lengths),
        "strength": strength,
        "noise": noise,
        "dtype": dtype,
        "random_state": random_state,
    }
    if as_json:
        put_json(written)
        return
    total = samples * math.prod(lengths) * source.dtype.itemsize
    print(f"{out}: {samples:,} samples of {shape(lengths)}, {amount(total)}, strength {strength:g}")
    print(f"truth: {beside}" if truth else "nothing but noise: no truth")


def _check_room(out: Path, lengths: tuple[int, ...], samples: int, itemsize: int) -> None:
    """Refuse, before anything is written or drawn, what the disk or the memory cannot hold."""
    from tpca.errors import OutputError
    from tpca.solvers.memory import machine_memory

    entries = min(math.prod(lengths), 1e200)  # more does not fit into a float
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
