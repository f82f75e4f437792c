"""The command ``tpca``: parse, call, print.  The only place that prints.

Exit codes: 0 done (``fit``: signal), 2 bad usage or data, 3 no signal, 4 not tested (``fit --solver paper``: that
algorithm has no test of whether there is a signal), 130 interrupted.
"""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from typing import Annotated, Any

import typer

import tpca
from tpca.cli import commands, demo, fit
from tpca.cli.options import Command
from tpca.errors import TpcaError, one_line
from tpca.wording import printable

# Modules of commands import what is slow where they need it: the help is there at once.
app = typer.Typer(
    help="Tensor PCA: find the rank-one pattern in noisy samples that are arrays, with errors and a test.",
    epilog="Exit codes: 0 done (fit: signal) · 2 bad usage or data · fit: 3 no signal, 4 not tested · 130 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for command in (
    fit.fit,
    commands.score,
    commands.report,
    commands.info,
    commands.plan,
    commands.generate,
    demo.demo,
):
    app.command(cls=Command)(command)


def _version(asked: bool) -> None:
    if asked:
        print(f"tpca {tpca.__version__}")
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
            sys.stderr.write(f"tpca: {printable(str(message))}\n")
        else:
            warn(message, category, *where, **more)

    warnings.showwarning = show
    sys.unraisablehook = lambda lost: None if isinstance(lost.exc_value, KeyboardInterrupt) else lose(lost)


def main() -> None:
    """Entry point: errors that tpca raises on purpose become one line and exit code 2, as do the machine's limits."""
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
        with contextlib.suppress(OSError, ValueError):  # what could not be written is dropped, not tried again
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):  # who was reading has seen enough
            raise SystemExit(1) from None
        full = f"cannot write to standard output: {error.strerror or error}; make room there"
        said, code = f"{full if error.filename is None else printable(one_line(error))}.", 2
    except KeyboardInterrupt:
        said, code = "interrupted.", 130
    else:
        return
    sys.stderr.write(f"tpca: {said}\n")
    raise SystemExit(code)
