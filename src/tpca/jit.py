"""Compiled loops: one place that knows how."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


@functools.cache
def compiled(loop: Callable[..., Any]) -> Any:
    """``loop`` compiled by numba, kept beside the source where that can be written; it holds no lock while it runs.

    Numba takes a third of a second to import, so it is asked for only when a loop is first needed.
    """
    import numba

    try:
        return numba.njit(cache=True, nogil=True)(loop)
    except RuntimeError:  # nowhere to keep it
        return numba.njit(nogil=True)(loop)
