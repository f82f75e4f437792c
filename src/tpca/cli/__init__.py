"""The command ``tpca``: parse, call, print.  The only place that prints.

Exit codes: 0 done (``fit``: signal), 2 bad usage or data, 3 no signal, 4 not tested (``fit --solver paper``: that
algorithm has no test of whether there is a signal), 130 interrupted.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from tpca import __version__
from tpca.cli.streams import drop, prepare_streams, say
from tpca.errors import TpcaError, one_line
from tpca.wording import printable

# What the list of commands says of each, the first line of its own help.  To import all of them, for seven lines or to
# run one, would double the time of the start.
COMMANDS = {
    "fit": "Find the pattern that samples share, or say there is none.",
    "score": "Try a result on other data: its score, with a standard error.",
    "report": "Make one HTML page of a result.",
    "info": "Say what is in a file of samples, or in a result.",
    "plan": "Estimate samples, memory and time that a fit needs.",
    "generate": "Write noisy samples with a planted signal.",
    "demo": "Plant a signal, find it in two ways, and draw both.",
}


class Commands(TyperGroup):
    """The commands, each imported when it is run or its own help is asked for."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given | {"commands": dict.fromkeys(COMMANDS)})

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command: the function of that name."""
        if cmd_name not in COMMANDS:
            return None
        from tpca.cli.options import Command

        home = importlib.import_module(f"tpca.cli.{cmd_name if cmd_name in ('fit', 'demo') else 'commands'}")
        alone = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
        alone.command(cmd_name, cls=Command)(getattr(home, cmd_name))
        return typer.main.get_command(alone)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The list in the help, for which none of them is imported."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


app = typer.Typer(
    cls=Commands,
    help="Tensor PCA: find the rank-one pattern in noisy samples that are arrays, with errors and a test.",
    epilog="Exit codes: 0 done (fit: signal) · 2 bad usage or data · fit: 3 no signal, 4 not tested · 130 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> None:
    if asked:
        print(f"tpca {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", callback=_version, is_eager=True)
    ] = False,
) -> None: ...


def _say_no_more_than_needed() -> None:
    """Users need no line of our source beside a warning, and no traceback of a Ctrl-C that ends nothing any more."""
    warn, lose = warnings.showwarning, sys.unraisablehook

    def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if category.__module__.startswith("tpca."):
            say(f"tpca: {printable(str(message))}\n")
        else:
            warn(message, category, *where, **more)

    warnings.showwarning = show
    sys.unraisablehook = lambda lost: None if isinstance(lost.exc_value, KeyboardInterrupt) else lose(lost)


def main() -> None:
    """Entry point: errors that tpca raises on purpose become one line and exit code 2, as do the machine's limits."""
    prepare_streams()
    _say_no_more_than_needed()
    try:
        try:
            app()
        finally:
            sys.stdout.flush()  # here, where it can still be said that it cannot be written
    except TpcaError as error:
        said, code = printable(str(error)), 2
    except (MemoryError, RecursionError) as error:
        said, code = f"{one_line(error)}; give smaller or less nested data, or a machine with more memory.", 2
    except OSError as error:
        drop(sys.stdout)
        if isinstance(error, BrokenPipeError):  # who was reading has seen enough
            raise SystemExit(1) from None
        full = f"cannot write to standard output: {error.strerror or error}; send it to a place with room"
        said, code = f"{full if error.filename is None else printable(one_line(error))}.", 2
    except KeyboardInterrupt:
        said, code = "interrupted.", 130
    else:
        return
    say(f"tpca: {said}\n")
    raise SystemExit(code)
