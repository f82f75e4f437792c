"""Help on one screen: ``--help`` has the options that most need, ``--help-all`` has all of them."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand

# Options that most need, by command; the others are advanced.  A command that is not here has few, and shows all.
_FIT = ["memory_limit", "views", "overwrite", "resume"]
COMMON = {
    "fit": ["out", "report", "target", "y", "n_components", "sample_dim", "nan_policy", *_FIT],
    "score": ["y", "truth", "nan_policy", "as_json"],
    "info": ["sample_dim", "as_json"],
    "generate": ["out", "dims", "strength", "samples", "noise", "random_state", "overwrite"],
    "plan": ["order", "dim", "dims", "strength", "samples", "memory_limit", "plot"],
    "compare": ["order", "dim", "dims", "strength", "samples", "trials", "methods", "out", "report"],
    "reproduce": ["quick", "full", "show", "list_studies", "store", "report"],
}
ALL = "tpca.help-all"  # whether all options are asked for, in the meta of a context


class Command(TyperCommand):
    """A command that shows the options that most need, and all if asked for."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """``--help-all`` is ``--help`` with everything."""
        if "--help-all" in args and self.name in COMMON:
            ctx.meta[ALL], args = True, ["--help"]
        return list(super().parse_args(ctx, args))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """``PATH...``, without the braces that Typer puts around what is needed."""
        return [piece.strip("{}").replace("}...", "...") for piece in super().collect_usage_pieces(ctx)]

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        """The first paragraph; all of them with all options."""
        whole = self.name not in COMMON or ALL in ctx.meta
        for paragraph in str(self.help or "").split("\n\n")[: None if whole else 1]:
            formatter.write_paragraph()
            with formatter.indentation():
                formatter.write_text(" ".join(paragraph.split()))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments, common options in the order of the table, and the advanced ones if these are asked for."""
        common = COMMON.get(str(self.name), ())
        told = {_name(one): one for one in self.get_params(ctx) if one.get_help_record(ctx) is not None}
        given = [name for name, one in told.items() if one.param_type_name == "argument"]
        usual = [name for name in common if name in told and name not in given]
        rest = [name for name in told if name not in (*given, *usual, "help")]
        sections = {"Arguments": given, "Options": [*(usual or rest), "help"]}
        sections |= {"Advanced options": rest} if usual and ALL in ctx.meta else {}
        more = [("--help-all", "Show all options, and what they do.")] if usual else []
        for title, names in sections.items():
            records = [_record(told[name], ctx) for name in names]
            if records:
                with formatter.section(title):
                    formatter.write_dl([*records, *(more if title == "Options" else [])])


def _name(parameter: Any) -> str:
    """The name of a parameter; that of ``--help`` differs between versions of Typer."""
    return "help" if "--help" in parameter.opts else str(parameter.name)


def _record(parameter: Any, ctx: Any) -> tuple[str, str]:
    """What a parameter is called, and what it is for."""
    name, text = parameter.get_help_record(ctx)
    return str(name), str(text).removesuffix("[required]").rstrip()  # the line of usage says so
