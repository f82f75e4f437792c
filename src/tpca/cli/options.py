"""Options of the commands: those that several have, which of them most need, and which mean something when."""

from __future__ import annotations

import csv
import dataclasses
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand

from tpca.errors import OptionError, SolverError, StreamError, check_regular, reading

if TYPE_CHECKING:
    from tpca.labels import Labels

# Declared once --------------------------------------------------------------------------------------------------


def option(text: str, *names: str, **more: Any) -> Any:
    """An option with its line of help."""
    return typer.Option(*names, help=text, **more)


DATA = "A .npy, .npz, .mat, .zarr, .h5, .nc, .csv or .parquet file or URL (FILE::array picks one), a folder of .npy."
COLUMNS = "a .npy file, an array in another file, as d.npz::y, or columns of a CSV file with a header, as t.csv::dose"

Data = Annotated[list[str], typer.Argument(help=DATA, show_default=False, metavar="DATA")]
Items = Annotated[str, option("What each file of a folder is: batches, samples, or auto.")]
Dim = Annotated[str | None, option("Axis of the samples, by name or number; else the first.")]
Sample = Annotated[str | None, option("Of a table: the column of the sample.")]
Modes = Annotated[str | None, option("Of a table: the columns of the axes, such as gene,cell,time.")]
Value = Annotated[str | None, option("Of a table: the column of the value.")]
Missing = Annotated[str, option("Of a table: cells without a row are an error (raise), zero, or nan.")]
NanPolicy = Annotated[str, option("NaN or Inf: raise (the default), omit the sample, zero.", show_default=False)]
Y = Annotated[str | None, option("A number or label per sample: y.npy, or t.csv::dose.")]
Nuisance = Annotated[str | None, option("Columns whose effect is taken out: t.csv::age,sex.")]
Names = Annotated[Path | None, option('Names of entries, a JSON file: {"0": ["Fz", "Cz"]} by axis.')]
Scores = Annotated[bool, option("For the report: read the data once more, to draw scores.")]
Cluster = Annotated[str | None, option("Let workers of this Dask scheduler read: tcp://host:8786.")]
Workers = Annotated[int | None, option("Start so many worker processes here, and stop them after.", min=1)]
AsJson = Annotated[bool, option("Print as JSON.", "--json")]
Overwrite = Annotated[bool, option("Replace what is there.", "--overwrite")]

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
        shown = {_name(one): one for one in self.get_params(ctx) if one.get_help_record(ctx) is not None}
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


def _name(parameter: Any) -> str:
    """The name of a parameter; that of ``--help`` differs between versions of Typer."""
    return "help" if "--help" in parameter.opts else str(parameter.name)


VALUES = {
    "int": "N",
    "float": "X",
    "path": "PATH",
    "str": "TEXT",
    "text": "TEXT",
    "list": "TEXT",
}  # as Typer calls them, or did


def _record(parameter: Any, ctx: Any) -> tuple[str, str]:
    """What a parameter is called, and what it is for; the line of usage says what is needed."""
    name, text = map(str, parameter.get_help_record(ctx))
    text = re.sub(r"\s*\[required\]|; x>=\d+|\s*\[x>=\d+\]", "", text)
    if parameter.param_type_name == "argument":
        return str(parameter.metavar or parameter.name).upper(), text
    spelled = re.match(r"-[\w-]+(?:[ ,/]+-[\w-]+)*", name)
    assert spelled is not None
    kind = name[spelled.end() :].strip(" <>").lower()
    value = next((word for begin, word in VALUES.items() if kind.startswith(begin)), kind.upper())
    return f"{spelled[0]} {value}".rstrip(), text


# What applies to what -------------------------------------------------------------------------------------------


class Rule(NamedTuple):
    """``options`` mean nothing where ``idle`` is true of the parameters of a call; ``why`` says so, with the way out.

    Among the parameters is ``kind``: of a fit, the solver, "variance" or "views"; else what was found in a folder.
    """

    options: tuple[str, ...]
    idle: Callable[[Mapping[str, Any]], bool]
    why: str


LAYOUT = ("dim", "sample", "modes", "value", "missing")  # settings of a fit, by which its data are read again
READING = ("items", *LAYOUT)
KEEPING = ("checkpoint", "checkpoint_every", "resume", "restart")
# Options of one solver: who has which is read from their classes.
OF_ONE = ("tol", "max_passes", "strength")
_OF_SAMPLES = ("target", "solver", "y", "nuisance", "weights", "groups", *READING, "shuffle", *KEEPING)

RULES: dict[str, tuple[Rule, ...]] = {
    "fit": (
        Rule(_OF_SAMPLES, lambda p: p["kind"] == "views", "is for samples, and several DATA are views; leave it out"),
        Rule(("shrinkage",), lambda p: p["kind"] != "views", "is for views, two or more DATA; leave it out"),
        Rule(
            ("y", "nuisance"),
            lambda p: p["target"] not in ("effect", None),
            "is for --target effect; give that, or leave it out",
        ),
        Rule(("nuisance",), lambda p: p["y"] is None, "is taken out of the effect of --y; give that, or leave it out"),
        Rule(
            ("solver",), lambda p: p["kind"] == "variance", "means nothing to --target variance, which has one solver"
        ),
        Rule(("weights", "groups"), lambda p: p["kind"] == "variance", "is not for --target variance; leave it out"),
        Rule(
            ("nuisance", "weights", "groups"),
            lambda p: p["kind"] in ("race", "paper"),
            "needs --solver least_squares; give that, or leave it out",
        ),
        Rule(("y",), lambda p: p["kind"] == "paper", "is nothing that --solver paper knows; choose another, or none"),
        Rule(
            KEEPING[1:],
            lambda p: p["out"] is None and p["checkpoint"] is None,
            "is about checkpoints, which are in the folder --out; give that, or leave it out",
        ),
        Rule(("overwrite",), lambda p: p["out"] is None, "is about the folder --out; give that, or leave it out"),
        Rule(("resume",), lambda p: p["restart"], "needs what --restart throws away; leave one of them out"),
        Rule(("scores",), lambda p: p["report"] is None, "is for the report; give --report FILE, or leave it out"),
        Rule(("as_json",), lambda p: p["quiet"], "prints, and --quiet prints nothing; leave one of them out"),
    ),
    "report": (Rule(("data",), lambda p: not p["scores"], "is read for scores, and --no-scores draws none; choose"),),
    "score": (
        Rule(("y", "nuisance"), lambda p: p["kind"] != "effect", "is for a fit with --target effect; leave it out"),
        Rule(("truth", *READING), lambda p: p["kind"] == "views", "is for samples, not for views; leave it out"),
    ),
    "info": (Rule(READING, lambda p: p["kind"] == "result", "is for data, not for a result; leave it out"),),
    "generate": (
        Rule(("order", "dim"), lambda p: p["dims"] is not None, "says what --dims says already; leave one of them out"),
        Rule(("correlation",), lambda p: p["strength"] == 0, "is for a signal, and --strength 0 plants none; choose"),
    ),
}


def refuse_idle(ctx: typer.Context, kind: str = "") -> None:
    """Refuse, by name, what the user gave and this call has no use for."""
    command, given, params = str(ctx.command.name), given_in(ctx), {**ctx.params, "kind": kind}
    for rule in RULES[command]:
        for name in rule.options:
            if name in given and rule.idle(params):
                raise OptionError(f"{given[name]} {rule.why}.")
    if command == "fit":
        from tpca.solvers.options import OPTIONS

        for name in (*OPTIONS, *OF_ONE):
            if name in given and name not in _options_of(kind):
                raise OptionError(f"{given[name]} {_home_of(name, kind)}.")


def given_in(ctx: typer.Context) -> dict[str, str]:
    """Parameters that the user gave, and how that is spelled."""
    found = {}
    for parameter in ctx.command.params:
        source = ctx.get_parameter_source(str(parameter.name))
        if source is not None and source.name not in ("DEFAULT", "DEFAULT_MAP"):
            negated = parameter.secondary_opts and not ctx.params[str(parameter.name)]
            found[str(parameter.name)] = (parameter.secondary_opts if negated else parameter.opts)[0]
    return found


def _options_of(kind: str) -> set[str]:
    """Options of a kind of fit; of ``auto``, those of least squares, which it tries first."""
    from tpca.solvers.build import SOLVERS
    from tpca.solvers.variation import Variation

    if kind == "views":
        return {"n_components", "confidence", "memory_limit"}
    solver = Variation if kind == "variance" else SOLVERS["least_squares" if kind == "auto" else kind]
    return {field.name for field in dataclasses.fields(solver)}


def _home_of(name: str, kind: str) -> str:
    """What an option is for that means nothing here."""
    if name in OF_ONE:
        return f"is for --solver {'paper' if name == 'strength' else 'race'}; give that, or leave it out"
    asked = {"views": "views", "variance": "--target variance"}.get(kind, f"--solver {kind}")
    return f"means nothing to {asked}; leave it out"


# What their values mean -----------------------------------------------------------------------------------------


def layout(params: Mapping[str, Any]) -> dict[str, Any]:
    """How data are laid out, from the options of a command."""
    given = {name: params[name] for name in LAYOUT}
    return given | {"modes": None if given["modes"] is None else [one.strip() for one in given["modes"].split(",")]}


def layout_as_fitted(given: Mapping[str, Any], settings: Mapping[str, Any], labels: Labels) -> dict[str, Any]:
    """The same for data like those of a fit: what was not given is as it was there, with the levels it found."""
    asked = layout({"missing": "raise", **dict.fromkeys(LAYOUT[:-1]), **given})
    asked = {name: settings.get(name, one) if one in (None, "raise") else one for name, one in asked.items()}
    if isinstance(asked["modes"], list) and len(asked["modes"]) == len(labels.axes):
        asked["modes"] = {axis.name: axis.coords for axis in labels.axes}
    return asked


def opened(path: str, how: Mapping[str, Any], **more: Any) -> Any:
    """A stream over a file that is laid out like this."""
    from tpca.data import open_stream

    return open_stream(path, **{("sample_dim" if name == "dim" else name): one for name, one in how.items()}, **more)


def number_or_word(text: str) -> int | str | None:
    """``"12"``, ``"auto"``, ``"none"`` as 12, "auto", ``None``."""
    return int(text) if text.isdecimal() else None if text == "none" else text


def check_word(name: str, given: str, known: tuple[str, ...]) -> None:
    """Refuse a word that an option does not know."""
    if given not in known:
        raise SolverError(f"{name} must be {', '.join(known[:-1])} or {known[-1]}, got {given!r}.")


ARRAYS = (".npz", ".mat", ".zarr", ".h5", ".hdf5", ".nc")  # files of several arrays


def read_columns(place: str | None, labels: bool = False) -> Any:
    """What is known of every sample: an array, or columns of a table, as numbers if they are, and no ``labels``."""
    import numpy as np

    if place is None:
        return None
    path, _, names = place.partition("::")
    with reading(f"cannot read {path!r}", f"give {COLUMNS}"):
        if path.endswith(ARRAYS):
            return _array_in(place)
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
    columns = cells[:, 0] if len(wanted) == 1 else cells
    try:
        return columns if labels else columns.astype(np.float64)
    except ValueError:
        return columns


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


def _array_in(place: str) -> Any:
    """An array in a file of several, which must be named."""
    from tpca.data.open import stored_at

    if "::" not in place:
        raise StreamError(f"{place!r} may hold several arrays; say which: {place}::y.")
    found = stored_at(place, "auto", None).read((slice(None),))
    return found.astype(str) if found.dtype.kind == "S" else found  # HDF5 has text in bytes
