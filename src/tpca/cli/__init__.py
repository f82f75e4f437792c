"""The command ``tpca``: parse, call, print.  The only place that prints.

Exit codes: 0 done (``fit``: signal), 2 bad usage or data, 3 no signal, 4 not tested (``fit --solver paper``: that
algorithm has no test of whether there is a signal), 130 interrupted.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import MutableMapping
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

# What the list of commands says of each, the first line of its own help, and where it is: importing all of them, to
# print seven lines or to run one, would take longer than the rest of the start.
COMMANDS = {
    "fit": "Find the pattern that samples share, or say there is none.",
    "score": "Try a result on other data: its score, with a standard error.",
    "report": "Make one HTML page of a result.",
    "info": "Say what is in a file of samples, or in a result.",
    "plan": "Estimate samples, memory and time that a fit needs.",
    "generate": "Write noisy samples with a planted signal.",
    "demo": "Plant a signal, find it in two ways, and draw both.",
}
HOMES = {"fit": "tpca.cli.fit", "demo": "tpca.cli.demo"}  # the others are in tpca.cli.commands


class Commands(TyperGroup):
    """The commands, each imported when it is run or its own help is asked for."""

    _listing = False

    @property
    def commands(self) -> MutableMapping[str, Any]:
        """All of them, imported."""
        return {name: self.load(name) for name in COMMANDS}

    @commands.setter
    def commands(self, _: MutableMapping[str, Any]) -> None:
        """There are no others."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Their names, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command; for the list of commands only what is said there."""
        if cmd_name not in COMMANDS:
            return None
        return TyperCommand(cmd_name, help=COMMANDS[cmd_name]) if self._listing else self.load(cmd_name)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """The help of ``tpca`` itself."""
        self._listing = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._listing = False

    @staticmethod
    def load(name: str) -> Any:
        """A command, a function of that name."""
        from tpca.cli.options import Command

        alone = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
        home = importlib.import_module(HOMES.get(name, "tpca.cli.commands"))
        alone.command(name, cls=Command)(getattr(home, name))
        return typer.main.get_command(alone)


ABOUT = "Tensor PCA: find the rank-one pattern in noisy samples that are arrays, with errors and a test."
app = typer.Typer(
    cls=Commands,
    help=ABOUT,
    epilog="Exit codes: 0 done (fit: signal) · 2 bad usage or data · fit: 3 no signal, 4 not tested · 130 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> None:
    if asked:
        from tpca import __version__

        print(f"tpca {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", callback=_version, is_eager=True)
    ] = False,
) -> None: ...


def _warn_in_one_line() -> None:
    """Warnings of tpca are for users, who need no line of its source."""
    import warnings

    from tpca.wording import printable

    usual = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if category.__module__.startswith("tpca."):
            sys.stderr.write(f"tpca: {printable(str(message))}\n")
        else:
            usual(message, category, *where, **more)

    warnings.showwarning = show


def _lose_late_interrupts() -> None:
    """A Ctrl-C that comes while an object is being put away ends nothing any more: nobody needs its traceback."""
    usual = sys.unraisablehook

    def show(lost: Any) -> None:
        if not isinstance(lost.exc_value, KeyboardInterrupt):
            usual(lost)

    sys.unraisablehook = show


def _close_output() -> None:
    """What could not be written is dropped: Python would try again at its end."""
    with contextlib.suppress(OSError, ValueError):  # no file, where it was replaced
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main() -> None:
    """Entry point: errors that tpca raises on purpose become one line and exit code 2, as do the machine's limits."""
    from tpca.errors import TpcaError, one_line
    from tpca.wording import printable

    _warn_in_one_line()
    _lose_late_interrupts()
    try:
        try:
            app()
        finally:
            sys.stdout.flush()  # here, where it can still be said that it cannot be written
    except TpcaError as error:
        sys.stderr.write(f"tpca: {printable(str(error))}\n")
        raise SystemExit(2) from None
    except (MemoryError, RecursionError) as error:
        sys.stderr.write(f"tpca: {one_line(error)}; give smaller or less nested data, or a machine with more memory.\n")
        raise SystemExit(2) from None
    except BrokenPipeError:  # who was reading has seen enough
        _close_output()
        raise SystemExit(1) from None
    except OSError as error:
        _close_output()
        said = f"cannot write to standard output: {error.strerror or error}; make room there"
        sys.stderr.write(f"tpca: {said if error.filename is None else printable(one_line(error))}.\n")
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        sys.stderr.write("tpca: interrupted.\n")
        raise SystemExit(130) from None
