"""Options that say how data are read: along which axis samples lie, and what the columns of a table are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from tpca.labels import Labels

DATA = "A .npy, .npz, .mat, .zarr, .h5, .nc, .csv or .parquet file or URL (FILE::array picks one), a folder of .npy."
SampleDim = Annotated[str | None, typer.Option(help="Axis of the samples, if it is not the first.", show_default=False)]
Sample = Annotated[str | None, typer.Option(help="Of a table: the column of the sample.", show_default=False)]
Modes = Annotated[
    str | None, typer.Option(help="Of a table: the columns of the modes, such as gene,cell,time.", show_default=False)
]
Value = Annotated[str | None, typer.Option(help="Of a table: the column of the value.", show_default=False)]
Missing = Annotated[str, typer.Option(help="Of a table: cells without a row are an error (raise), zero, or nan.")]

PROJECT = "a .npz file of vectors as rows under the names or numbers of their modes, or channel=P.npy,time=Q.npy"

LAYOUT = ("sample_dim", "sample", "modes", "value", "missing")  # settings of a fit, by which its data are read again


def layout(params: Mapping[str, Any]) -> dict[str, Any]:
    """How data are laid out, from the options of a command."""
    given = {name: params[name] for name in LAYOUT}
    return given | {"modes": None if given["modes"] is None else [one.strip() for one in given["modes"].split(",")]}


def bound(clip: str | None) -> float | str | None:
    """The number of ``--clip``; ``"auto"`` and what is no number stay as they are, for the solver to judge."""
    if clip in (None, "none"):
        return None
    try:
        return float(clip)
    except ValueError:
        return clip


def centred(modes: str | None) -> tuple[str, ...]:
    """The modes of ``--center-modes``."""
    return () if modes is None else tuple(mode.strip() for mode in modes.split(","))


def projected(place: str | None) -> dict[str, Any] | None:
    """The vectors of ``--project``, by mode."""
    import numpy as np

    from tpca.errors import OptionError, reading
    from tpca.streams.npy import read_npz

    if place is None:
        return None
    if place.endswith(".npz") and "=" not in place:
        with reading(f"cannot read {place!r}", f"give {PROJECT}"):
            return dict(read_npz(place))
    found: dict[str, Any] = {}
    for one in place.split(","):
        mode, _, path = one.partition("=")
        if not path.endswith(".npy"):
            raise OptionError(f"--project must be {PROJECT}, got {one!r}.")
        with reading(f"cannot read {path!r}", f"give {PROJECT}"):
            found[mode.strip()] = np.load(path, allow_pickle=False)
    return found


def layout_as_fitted(params: Mapping[str, Any], settings: Mapping[str, Any], labels: Labels | None) -> dict[str, Any]:
    """The same for data to be compared with a fit: what was not given is as it was there, with the levels it found."""
    given = layout(params)
    usual = {"missing": "raise"}
    asked = {name: settings.get(name, one) if one == usual.get(name) else one for name, one in given.items()}
    if isinstance(asked["modes"], list) and labels is not None and len(asked["modes"]) == len(labels.axes):
        asked["modes"] = {axis.name: axis.coords for axis in labels.axes}
    return asked
