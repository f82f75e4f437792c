"""``tpca fit --target effect``: what is told of the samples, from files; and the fit."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpca.errors import SolverError, StreamError, reading

if TYPE_CHECKING:
    from tpca.engines import Engine
    from tpca.solvers.recovery import Recovery
    from tpca.streams import Stream
    from tpca.streams.conditions import Conditions

COLUMNS = "a .npy file, an array in another file, as d.npz::y, or columns of a CSV file with a header, as t.csv::dose"
ARRAYS = (".npz", ".mat", ".zarr", ".h5", ".hdf5", ".nc")  # files of several arrays


def read_told(given: Mapping[str, Any], stream: Stream) -> Conditions | None:
    """What the options of the command tell of the samples; ``None`` where that is nothing."""
    from tpca.estimators.handed import conditions
    from tpca.streams.axes import check_axis

    if given["target"] == "effect" and given["y"] is None:
        raise SolverError(
            f"--target effect needs --y, a number or a label for every sample: give {COLUMNS}; or use --target mean."
        )
    y, nuisance, groups = (read_columns(given[name]) for name in ("y", "nuisance", "group_by"))
    if given["sample"] is None:  # a table has no axes
        told = {"--y": y, "--nuisance": nuisance, "--group-by": groups}
        check_axis(None, stream, given["sample_dim"], **told)
    return conditions(given["target"], stream.length, y, nuisance, None, groups)


def read_columns(place: str | None) -> Any:
    """An array, or columns of a table as numbers, or as labels where they are no numbers."""
    import numpy as np

    if place is None:
        return None
    path, _, names = place.partition("::")
    with reading(f"cannot read {path!r}", f"give {COLUMNS}"):
        if path.endswith(".npy"):
            return np.load(path, allow_pickle=False)
        if path.endswith(ARRAYS):
            return _array_in(place)
        with Path(path).open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    header = list(rows[0]) if rows else []
    wanted = names.split(",") if names else header
    for name in wanted:
        if name not in header:
            raise StreamError(f"{path!r} has no column {name!r}, only {', '.join(header)}; give {COLUMNS}.")
    if len(wanted) != 1 and not names:
        raise StreamError(f"{path!r} has {len(header)} columns, {', '.join(header)}; say which: {path}::{header[0]}.")
    cells = np.array([[row[name] for name in wanted] for row in rows])
    columns = cells[:, 0] if len(wanted) == 1 else cells
    try:
        return columns.astype(np.float64)
    except ValueError:
        return columns


def _array_in(place: str) -> Any:
    """An array in a file of several, which must be named."""
    from tpca.streams.paths import stored_at

    if "::" not in place:
        raise StreamError(f"{place!r} may hold several arrays; say which: {place}::y.")
    found = stored_at(place, "auto", None).read((slice(None),))
    return found.astype(str) if found.dtype.kind == "S" else found  # HDF5 has text in bytes


def run_effects(data: Stream | Engine, told: Conditions, solver: str, options: Mapping[str, Any]) -> Recovery:
    """The fit; options of the solver among those of the command."""
    from tpca.estimators.effects import fit_effects
    from tpca.estimators.handed import EffectOptions, for_derived
    from tpca.estimators.units import merged
    from tpca.solvers.build import applicable, build_solver

    asked = EffectOptions(**{name: options[name] for name in EffectOptions.__annotations__})

    def make(derived: Any, known: dict[str, Any]) -> Any:
        return build_solver(solver, derived, applicable({**options, **known}, solver))[0]

    make_solver = for_derived(data, options["center_modes"], options["project"], make)
    return merged([one.recovery for one in fit_effects(data, told, asked, make_solver)])
