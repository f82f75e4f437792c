"""Which option means something when.  One that was given where it means nothing is refused, never dropped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import typer

from tpca.errors import OptionError
from tpca.solvers.options import APPLIES, SOLVERS, applies


class Rule(NamedTuple):
    """``options`` mean nothing where ``idle`` is true of the call's parameters; ``why`` says so, with the way out.

    Among the parameters is ``kind``: the kind of fit, or what the command found in a folder.
    """

    options: tuple[str, ...]
    idle: Callable[[Mapping[str, Any]], bool]
    why: str


def _of_fit(option: str) -> Rule:
    """An option by the table of all kinds of fit."""
    solvers = [name for name in SOLVERS if applies(option, name)]
    places = [] if not solvers else ["samples" if len(solvers) == len(SOLVERS) else f"--solver {' or '.join(solvers)}"]
    places += ["--views"] if applies(option, "views") else []
    why = f"is for {' and '.join(places)}, not for {{kind}}; leave it out"
    return Rule((option,), lambda p: not applies(option, p["kind"]), why)


_SIZE = ("order", "dim")
_READING = ("items", "sample_dim", "sample", "modes", "value", "missing")
_RUNS = ("processes", "scheduler", "workers")
_SHOWS = ("quick", "full", "show", "store", "figures", "report", "markdown", "as_json")

RULES: dict[str, tuple[Rule, ...]] = {
    "fit": (
        *map(_of_fit, APPLIES),
        Rule(("checks",), lambda p: p["report"] is None, "is for the report; give --report FILE, or leave it out"),
        Rule(
            ("y", "nuisance", "block_size"),
            lambda p: p["target"] != "effect",
            "is for --target effect; give that, or leave it out",
        ),
        Rule(("live", "as_json"), lambda p: p["quiet"], "prints, and --quiet prints nothing; leave one of them out"),
        Rule(("resume",), lambda p: p["restart"], "needs what --restart throws away; leave one of them out"),
    ),
    "report": (
        Rule(("labels", "data", "checks"), lambda p: p["kind"] != "fit", "is for a fit, not for {kind}; leave it out"),
        Rule(("data",), lambda p: not p["checks"], "is read for the checks, and --no-checks leaves them out; choose"),
    ),
    "score": (
        Rule(("y", "nuisance"), lambda p: p["kind"] != "effects", "is for a fit with --target effect; leave it out"),
        Rule(("truth", *_READING), lambda p: p["kind"] == "views", "is for samples, not for views; leave it out"),
    ),
    "info": (Rule(_READING, lambda p: p["kind"] == "result", "is for data, not for a result; leave it out"),),
    "generate": (
        Rule(_SIZE, lambda p: p["dims"] is not None, "says what --dims says already; leave one of them out"),
        Rule(("correlation",), lambda p: p["strength"] == 0, "is for a signal, and --strength 0 plants none; choose"),
    ),
    "reproduce": (
        Rule((*_RUNS, *_SHOWS), lambda p: p["list_studies"], "does nothing beside --list; leave one of them out"),
        Rule(_RUNS, lambda p: not (p["quick"] or p["full"]), "is for running trials; give --quick or --full"),
        Rule(("processes",), lambda p: p["scheduler"] or p["workers"], "is for this machine; leave it out on workers"),
    ),
}


def refuse_idle(ctx: typer.Context, kind: str = "") -> None:
    """Refuse what the user gave and this call has no use for."""
    params = {**ctx.params, "kind": kind}
    given = _given(ctx)
    for rule in RULES[str(ctx.command.name)]:
        for name in rule.options:
            if name in given and rule.idle(params):
                raise OptionError(f"{given[name]} {rule.why.format(kind=_told(kind))}.")


def _told(kind: str) -> str:
    if kind in ("auto", *SOLVERS):
        return f"--solver {kind}"
    return {"views": "--views", "variance": "--target variance"}.get(kind, kind)


def _given(ctx: typer.Context) -> dict[str, str]:
    """Parameters that the user gave, and how that is spelled."""
    found = {}
    for parameter in ctx.command.params:
        source = ctx.get_parameter_source(str(parameter.name))
        if source is not None and source.name not in ("DEFAULT", "DEFAULT_MAP"):
            negated = parameter.secondary_opts and not ctx.params[str(parameter.name)]
            found[str(parameter.name)] = (parameter.secondary_opts if negated else parameter.opts)[0]
    return found
