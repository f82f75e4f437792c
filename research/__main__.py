"""``python -m research``: methods compared, the paper's claims and the race measured, the rooms counted."""

from __future__ import annotations

import sys

import typer

from research.compare import compare
from research.race_tables import table
from research.reproduce import reproduce
from research.rooms import rooms
from tpca.errors import TpcaError
from tpca.wording import printable

app = typer.Typer(
    help="Experiments about tpca.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command("compare")(compare)
app.command("reproduce")(reproduce)
app.command("table")(table)
app.command("rooms")(rooms)


def main() -> None:
    """Errors that are raised on purpose become one line and exit code 2."""
    try:
        app()
    except TpcaError as error:
        sys.stderr.write(f"research: {printable(str(error))}\n")
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
