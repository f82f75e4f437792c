"""Options of the commands: those that several have, which of them most need, and which mean something when."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from tpca.errors import SolverError, StreamError, check_regular, reading
from tpca.files import named_place

if TYPE_CHECKING:
    from tpca.result import Result

LAYOUT = ("dim", "sample", "modes", "value", "missing")  # settings of a fit, by which its data are read again

# Declared once --------------------------------------------------------------------------------------------------


def option(text: str, *names: str, **more: Any) -> Any:
    """An option with its line of help."""
    return typer.Option(*names, help=text, **more)


def number_or_word(value: str | None) -> Any:
    """``"12"``, ``"0.5"``, ``"auto"``, ``"none"`` as 12, 0.5, "auto", ``None``."""
    for kind in (int, float):
        with contextlib.suppress(ValueError, TypeError):
            return kind(value)  # type: ignore[arg-type]
    return None if value == "none" else value


def either(text: str) -> Any:
    """An option that is a number or a word."""
    return option(text, callback=number_or_word)


def split_at_commas(value: str | None) -> Any:
    """``"gene, cell"`` as a list."""
    return None if value is None else [one.strip() for one in value.split(",")]


def place(text: str, **more: Any) -> Any:
    """An option that is a path."""
    return option(text, parser=named_place, metavar="PATH", **more)


DATA = "A .npy, .npz, .mat, .zarr, .h5, .nc, .csv or .parquet file or URL (FILE::array picks one), a folder of .npy."
COLUMNS = "a .npy file, an array in another file, as d.npz::y, or columns of a CSV file with a header, as t.csv::dose"

Data = Annotated[list[str], typer.Argument(help=DATA, show_default=False, metavar="DATA")]
Items = Annotated[str, option("What each file of a folder is: batches, samples, or auto.")]
Dim = Annotated[str | None, option("Axis of the samples, by name or number; else the first.")]
Sample = Annotated[str | None, option("Of a table: the column of the sample.")]
Modes = Annotated[
    str | None, option("Of a table: the columns of the axes, such as gene,cell,time.", callback=split_at_commas)
]
Value = Annotated[str | None, option("Of a table: the column of the value.")]
Missing = Annotated[str, option("Of a table: cells without a row are an error (raise), zero, or nan.")]
NanPolicy = Annotated[str, option("NaN or Inf: raise (the default), omit the sample, zero.", show_default=False)]
Y = Annotated[str | None, option("A number or label per sample: y.npy, or t.csv::dose.")]
Nuisance = Annotated[str | None, option("Columns whose effect is taken out: t.csv::age,sex.")]
Names = Annotated[Path | None, place('Names of entries, a JSON file: {"0": ["Fz", "Cz"]} by axis.')]
Scores = Annotated[bool, option("For the report: read the data once more, to draw scores.")]
Cluster = Annotated[str | None, option("Let workers of this Dask scheduler read: tcp://host:8786.")]
Workers = Annotated[int | None, option("Start so many worker processes here, and stop them after.", min=1)]
AsJson = Annotated[bool, option("Print as JSON.", "--json")]
Overwrite = Annotated[bool, option("Replace what is there, whatever it is.", "--overwrite")]
Folder = Annotated[
    Path,
    typer.Argument(help="Folder that tpca fit --out wrote.", show_default=False, metavar="DIR", parser=named_place),
]

# What most need, in the order of the help; the others are shown by --help-all.  A command that is not here shows all.
COMMON = {
    "fit": ["target", "y", "n_components", "out", "report", "dim", "nan_policy", "groups", "memory_limit", "resume"],
    "score": ["y", "truth", "nan_policy", "as_json"],
    "info": ["dim", "as_json"],
    "generate": ["out", "dims", "strength", "samples", "noise", "random_state", "overwrite"],
    "plan": ["order", "dim", "dims", "strength", "samples", "memory_limit"],
}
ALL = "tpca.help-all"  # whether all options are asked for, in the meta of a context


class Command(TyperCommand):
    """A command whose ``--help`` fits on a screen, and whose ``--help-all`` has everything."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """``--help-all`` is ``--help`` with everything."""
        if "--help-all" in args and self.name in COMMON:
            ctx.meta[ALL], args = True, ["--help"]
        return list(super().parse_args(ctx, args))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """``DATA...``, without the braces that Typer puts around what is needed."""
        return [piece.strip("{}").replace("}...", "...") for piece in super().collect_usage_pieces(ctx)]

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        """The first paragraph; all of them with all options."""
        whole = self.name not in COMMON or ALL in ctx.meta
        for paragraph in str(self.help or "").split("\n\n")[: None if whole else 1]:
            formatter.write_paragraph()
            with formatter.indentation():
                formatter.write_text(" ".join(paragraph.split()))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments, common options in the order of the table, and the others if they are asked for."""
        shown = {  # the name of ``--help`` differs between versions of Typer
            "help" if "--help" in one.opts else str(one.name): one
            for one in self.get_params(ctx)
            if one.get_help_record(ctx) is not None
        }
        arguments = [name for name, one in shown.items() if one.param_type_name == "argument"]
        usual = [name for name in COMMON.get(str(self.name), ()) if name in shown]
        rest = [name for name in shown if name not in (*arguments, *usual, "help")]
        sections = {"Arguments": arguments, "Options": [*(usual or rest), "help"]}
        sections |= {"Advanced options": rest} if usual and ALL in ctx.meta else {}
        for title, names in sections.items():
            records = [_record(shown[name], ctx) for name in names]
            records += [("--help-all", "Show all options, and what they do.")] if usual and title == "Options" else []
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


VALUES = {"int": "N", "float": "X", "path": "PATH", "": "TEXT"}  # how kinds of values begin, as Typer calls them


def _record(parameter: Any, ctx: Any) -> tuple[str, str]:
    """What a parameter is called, and what it is for; the line of usage says what is needed."""
    name, text = map(str, parameter.get_help_record(ctx))
    text = re.sub(r"\s*\[required\]|; x>=\d+|\s*\[x>=\d+\]", "", text)
    if parameter.param_type_name == "argument":
        return str(parameter.metavar or parameter.name).upper(), text
    spelled = re.match(r"-[\w-]+(?:[ ,/]+-[\w-]+)*", name)
    assert spelled is not None
    kind = name[spelled.end() :].strip(" <>").lower()
    value = next(word for begin, word in VALUES.items() if kind.startswith(begin)) if kind else ""
    return f"{spelled[0]} {value}".rstrip(), text


# What applies to what -------------------------------------------------------------------------------------------

READING = ("items", *LAYOUT)
KEEPING = ("checkpoint", "checkpoint_every", "resume", "restart")
OF_ONE = ("tol", "max_passes", "strength")  # options of one solver, which TensorPCA has not
OF_SAMPLES = ("target", "solver", "y", "nuisance", "weights", "groups", *READING, "shuffle", *KEEPING)
Params = Mapping[str, Any]

# Options of a command that mean nothing where something is true of the parameters of a call, and why, with the way out.
# Among the parameters is ``kind``: of a fit, the solver, "variance" or "views"; else what was found in a folder.
RULES: dict[str, list[tuple[tuple[str, ...], Callable[[Params], bool], str]]] = {
    "fit": [
        (OF_SAMPLES, lambda p: p["kind"] == "views", "is for samples, and several DATA are views; leave it out"),
        (("shrinkage",), lambda p: p["kind"] != "views", "is for views, two or more DATA; leave it out"),
        (("y", "nuisance"), lambda p: p["target"] != "effect", "is for --target effect; give that, or leave it out"),
        (("nuisance",), lambda p: p["y"] is None, "is taken out of the effect of --y; give that, or leave it out"),
        (("solver", "weights", "groups"), lambda p: p["kind"] == "variance", "is not for --target variance; drop it"),
        (
            ("nuisance", "weights", "groups"),
            lambda p: p["kind"] in ("race", "paper"),
            "needs --solver least_squares; give that, or leave it out",
        ),
        (("y",), lambda p: p["kind"] == "paper", "is nothing that --solver paper knows; choose another, or none"),
        (
            KEEPING[1:],
            lambda p: p["out"] is None and p["checkpoint"] is None,
            "is about checkpoints, which are in the folder --out; give that, or leave it out",
        ),
        (
            ("overwrite",),
            lambda p: p["out"] is None and p["report"] is None,
            "is about --out and --report; give one of them, or leave it out",
        ),
        (("resume",), lambda p: p["restart"], "needs what --restart throws away; leave one of them out"),
        (("scores",), lambda p: p["report"] is None, "is for the report; give --report FILE, or leave it out"),
        (("as_json",), lambda p: p["quiet"], "prints, and --quiet prints nothing; leave one of them out"),
        (("tol", "max_passes"), lambda p: p["kind"] != "race", "is for --solver race; give that, or leave it out"),
        (("strength",), lambda p: p["kind"] != "paper", "is for --solver paper; give that, or leave it out"),
    ],
    "report": [
        (("data", "y"), lambda p: not p["scores"], "is read for scores, and --no-scores draws none; choose"),
        (("y",), lambda p: p["kind"] != "effect", "is for a fit with --target effect; leave it out"),
    ],
    "score": [
        (("y", "nuisance"), lambda p: p["kind"] != "effect", "is for a fit with --target effect; leave it out"),
        (("truth", *READING), lambda p: p["kind"] == "views", "is for samples, not for views; leave it out"),
    ],
    "info": [(READING, lambda p: p["kind"] == "result", "is for data, not for a result; leave it out")],
    "generate": [
        (("order", "dim"), lambda p: p["dims"] is not None, "says what --dims says already; leave one of them out"),
        (("correlation",), lambda p: p["strength"] == 0, "is for a signal, and --strength 0 plants none; choose"),
    ],
}


def refuse_idle(ctx: typer.Context, kind: str = "") -> None:
    """Refuse, by name, what the user gave and this call has no use for."""
    given, params = {}, {**ctx.params, "kind": kind}
    for parameter in ctx.command.params:
        name, source = str(parameter.name), ctx.get_parameter_source(str(parameter.name))
        if source is not None and source.name not in ("DEFAULT", "DEFAULT_MAP"):
            negated = parameter.secondary_opts and not ctx.params[name]
            given[name] = (parameter.secondary_opts if negated else parameter.opts)[0]
    for options, idle, why in RULES[str(ctx.command.name)]:
        for name in options:
            if name in given and idle(params):
                raise SolverError(f"{given[name]} {why}.")
    if ctx.command.name != "fit":
        return
    from tpca.solvers.build import SOLVERS
    from tpca.solvers.options import OPTIONS
    from tpca.solvers.variation import Variation

    known, asked = {"n_components", "confidence", "memory_limit"}, "views"
    if kind != "views":  # of ``auto``, those of least squares, which it tries first
        solver = Variation if kind == "variance" else SOLVERS["least_squares" if kind == "auto" else kind]
        known = {field.name for field in dataclasses.fields(solver)}
        asked = "--target variance" if kind == "variance" else f"--solver {kind}"
    for name in OPTIONS:
        if name in given and name not in known:
            raise SolverError(f"{given[name]} means nothing to {asked}; leave it out.")


def check_word(name: str, given: str, known: tuple[str, ...]) -> None:
    """Refuse a word that an option does not know."""
    if given not in known:
        raise SolverError(f"{name} must be {', '.join(known[:-1])} or {known[-1]}, got {given!r}.")


# Data and columns -----------------------------------------------------------------------------------------------


def opened(path: str, params: Params, **more: Any) -> Any:
    """A stream over a file that is laid out as some options say."""
    from tpca.data import open_stream

    how = {name: params[name] for name in LAYOUT}
    return open_stream(path, **how, **more)


def opened_as_fitted(result: Result, data: list[str], given: Params) -> Any:
    """Data like those of a fit: what is not ``given`` is as it was there, with the levels that it found."""
    from tpca.data.rows import open_views

    settings, axes = result.settings, result.labels.axes
    usual = {"nan_policy": "raise", "items": "auto", "missing": "raise", **dict.fromkeys(LAYOUT[:-1])}
    how: dict[str, Any] = {
        name: one if (one := given.get(name)) not in (None, default) else settings.get(name, default)
        for name, default in usual.items()
    }
    if result.kind == "views":
        return open_views(data, nan_policy=how["nan_policy"])
    if isinstance(how["modes"], list) and len(how["modes"]) == len(axes):
        how["modes"] = {axis.name: axis.coords for axis in axes}
    return opened(data[0], how, items=how["items"], nan_policy=how["nan_policy"])


def check_stored_places(places: Sequence[Any], option: str) -> None:
    """Refuse what a result says of places if it is anything but paths of this machine.

    A result may come from anybody, and to open a URL is to connect to a machine, or to run what lies there.
    """
    from tpca.data.places import is_plain_path

    for name in places:
        if not isinstance(name, str) or not is_plain_path(name):
            raise StreamError(
                f"the result names {name!r}, and only a path of this machine is read unasked; if you trust it, give "
                f"it with {option}."
            )


ARRAYS = (".npz", ".mat", ".zarr", ".h5", ".hdf5", ".nc")  # files of several arrays


@dataclasses.dataclass
class Columns:
    """Values of columns, which keep their names."""

    values: Any
    columns: list[str]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        import numpy as np

        return np.asarray(self.values, dtype)


def read_columns(place: str | None, labels: bool = False) -> Any:
    """What is known of every sample: an array, or columns of a table, as numbers if they are, and no ``labels``."""
    import numpy as np

    from tpca.data.open import stored_at

    if place is None:
        return None
    path, _, names = place.partition("::")
    with reading(f"cannot read {path!r}", f"give {COLUMNS}"):
        if path.endswith(ARRAYS):
            if not names:
                raise StreamError(f"{place!r} may hold several arrays; say which: {place}::y.")
            found = stored_at(place, "auto", None).read((slice(None),))
            found = found.astype(str) if found.dtype.kind == "S" else found  # HDF5 has text in bytes
            return Columns(found, [names.rpartition("/")[2]])
        check_regular(path)
        if path.endswith(".npy"):
            if names:
                raise StreamError(f"{path!r} holds one array, which has no name; leave out ::{names}.")
            return np.load(path, allow_pickle=False)
        header, rows = _table(path)
    wanted = names.split(",") if names else header
    for name in wanted:
        if name not in header:
            raise StreamError(f"{path!r} has no column {name!r}, only {', '.join(header)}; give {COLUMNS}.")
    if len(wanted) != 1 and not names:
        raise StreamError(f"{path!r} has {len(header)} columns, {', '.join(header)}; say which: {path}::{header[0]}.")
    cells = np.array([[row[header.index(name)] for name in wanted] for row in rows])
    cells = cells[:, 0] if len(wanted) == 1 else cells
    with contextlib.suppress(ValueError):
        cells = cells if labels else cells.astype(np.float64)
    return Columns(cells, wanted)


def _table(path: str) -> tuple[list[str], list[list[str]]]:
    """Names of the columns of a CSV file, and its rows, which must be as long."""
    with Path(path).open(newline="", encoding="utf-8") as file:
        reader = csv.reader(file)
        header, rows = next(reader, []), []
        for row in reader:
            if row and len(row) != len(header):
                raise StreamError(
                    f"line {reader.line_num} of {path!r} has {len(row)} cells, and its header has {len(header)}; "
                    "write as many in every line."
                )
            rows += [row] if row else []
    return header, rows
