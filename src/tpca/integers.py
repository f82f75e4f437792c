"""Whole numbers among options: one check for all of them."""

from __future__ import annotations

import operator
from typing import Any

from tpca.errors import SolverError, TpcaError


def check_integer(
    name: str, value: Any, least: int = 1, error: type[TpcaError] = SolverError, instead: str = ""
) -> int:
    """``value`` as an int of at least ``least``.

    Integers of numpy are integers; ``True``, ``2.0``, ``2.5`` and ``"2"`` are not: what they would silently become is
    hardly what was meant.  ``instead`` names what else the option takes, as ``" or 'auto'"``.
    """
    try:
        number = least - 1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = least - 1
    if number < least:
        raise error(f"{name} must be a whole number of at least {least}{instead}, got {value!r}.")
    return number
