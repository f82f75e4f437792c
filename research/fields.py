"""JSON files that others may have touched: what every field must be, checked once, when the file is read.

A shape is a :class:`Field`, a list of one shape (any number of these), or a dict of shapes by name, where ``"name?"``
may be missing and names that are not in the shape do not matter.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tpca.errors import check_regular

LONGEST = 2**28  # bytes of a JSON file
_MAX_NUMBER = 1e100  # no number of ours is larger, and squares of larger ones overflow


@dataclass(frozen=True)
class Field:
    """What a value must be: in words, and how to tell."""

    words: str
    fits: Callable[[Any], bool]


def _number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) <= _MAX_NUMBER  # false for NaN, too


def _whole(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


NUMBER = Field("a number", _number)
POSITIVE = Field("a number, 0 or more", lambda value: _number(value) and value >= 0)
SHARE = Field("a number between 0 and 1", lambda value: _number(value) and 0 < value < 1)
COUNT = Field("a whole number, 0 or more", _whole)
LENGTH = Field("a whole number, 1 or more", lambda value: _whole(value) and value > 0)
TEXT = Field("text", lambda value: isinstance(value, str))
FLAG = Field("true or false", lambda value: isinstance(value, bool))


def maybe(shape: Any) -> Field:
    """The shape, or null."""
    words = shape.words if isinstance(shape, Field) else "a list" if isinstance(shape, list) else "an object"
    return Field(f"{words} or null", lambda value: value is None or fits(value, shape))


def pair(shape: Any) -> Field:
    """A list of two."""
    return Field("a list of two", lambda value: fits(value, [shape]) and len(value) == 2)


def named(shape: Any) -> Field:
    """A dict with any names."""
    return Field("an object", lambda value: isinstance(value, dict) and fits(list(value.values()), [shape]))


def fits(value: Any, shape: Any) -> bool:
    """Whether a value has a shape."""
    try:
        check(value, shape, "")
    except ValueError:
        return False
    return True


def check(value: Any, shape: Any, where: str) -> None:
    """Raise a ``ValueError`` that names the first value that does not have its shape."""
    if isinstance(shape, Field):
        if not shape.fits(value):
            raise ValueError(f"{where} must be {shape.words}, got {_brief(value)}")
    elif isinstance(shape, list):
        if not isinstance(value, list):
            raise ValueError(f"{where} must be a list, got {_brief(value)}")
        for number, item in enumerate(value):
            check(item, shape[0], f"{where}[{number}]")
    else:
        _check_names(value, shape, where)


def _check_names(value: Any, shape: dict[str, Any], where: str) -> None:
    if not isinstance(value, dict):
        raise ValueError(f"{where} must be an object, got {_brief(value)}")
    for name, inner in shape.items():
        key = name.removesuffix("?")
        if key in value:
            check(value[key], inner, f"{where}.{key}" if where else key)
        elif key == name:
            raise ValueError(f"{where or 'it'} has no {key!r}")


def read_json(path: Path, shape: Any, form: str | None = None) -> Any:
    """What a file holds, of that shape and, if given, with ``form`` as its ``"format"``."""
    check_regular(path, LONGEST)
    found = json.loads(path.read_text(encoding="utf-8"))
    if form is not None and (not isinstance(found, dict) or found.get("format") != form):
        raise ValueError(f"{path.name} is not one of tpca's")
    check(found, shape, path.name)
    return found


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:40] + " ..."


def finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: they become null."""
    if isinstance(value, dict):
        return {k: finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
