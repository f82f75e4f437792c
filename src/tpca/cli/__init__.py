"""The command ``tpca``: parse, call, print.  The only place that prints.

Exit codes: 0 done (``fit``: a signal was recovered), 2 bad usage or data, 3 no signal, 130 interrupted.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from tpca.cli.compare import compare
from tpca.cli.demo import demo
from tpca.cli.fit import fit
from tpca.cli.generate import generate
from tpca.cli.info import info
from tpca.cli.plan import plan
from tpca.cli.report import report
from tpca.cli.reproduce import reproduce
from tpca.cli.score import score

app = typer.Typer(
    help="Tensor PCA on streams: recover a rank-one signal from noisy tensors in one pass.",
    epilog="Exit codes: 0 done (fit: a signal was recovered) · 2 bad usage or data · 3 no signal · 130 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
for command in (fit, report, score, info, generate, demo, plan, compare, reproduce):
    app.command()(command)


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
) -> None:
    """Tensor PCA on streams: recover a rank-one signal from noisy tensors in one pass."""


def main() -> None:
    """Entry point: errors that tpca raises on purpose become one line and exit code 2."""
    from tpca.errors import TpcaError

    try:
        app()
    except TpcaError as error:
        sys.stderr.write(f"tpca: {error}\n")
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        sys.stderr.write("tpca: interrupted.\n")
        raise SystemExit(130) from None
