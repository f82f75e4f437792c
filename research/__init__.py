"""Experiments about tpca: baselines, the exact-law simulation, studies, tables.  Not in the wheel; needs a checkout.

Nothing in ``src/`` imports it.  ``python -m research`` from the root of the repository lists its commands.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tpca.errors import TpcaError


class StudyError(TpcaError, ValueError):
    """A study does not exist, or its store cannot be used."""


def markdown_table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [f"| {' | '.join(cells)} |\n" for cells in (heading, *rows)]
    return "".join([lines[0], "|" + "---|" * len(heading) + "\n", *lines[1:]])
