"""What the columns of a long table mean, and the levels of its modes."""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from tpca.errors import StreamError
from tpca.labels import Axis, as_coords, as_text

Missing = Literal["raise", "zero", "nan"]


@dataclass(frozen=True)
class Columns:
    """Which columns of a table say what; ``modes`` are names with their levels, ``None`` where these are to be found.

    ``missing`` is what a cell without a row is.
    """

    sample: str
    modes: Mapping[str, Sequence[Any] | None]
    value: str
    missing: Missing = "raise"

    @property
    def keys(self) -> list[str]:
        """The columns that say which cell of which sample a row is."""
        return [self.sample, *self.modes]


def columns_of(sample: Any, modes: Any, value: Any, missing: Any) -> Columns | None:
    """What was said of the columns of a table, checked; ``None`` if nothing was."""
    if missing not in get_args(Missing):
        raise StreamError(f'missing must be "raise", "zero" or "nan", got {missing!r}.')
    given = {"sample": sample, "modes": modes, "value": value}
    if all(one is None for one in given.values()):
        if missing != "raise":
            raise StreamError(f"missing={missing!r} is for long tables; give sample, modes and value, or leave it out.")
        return None
    if lacking := [name for name, one in given.items() if one is None]:
        raise StreamError(f"a long table needs sample, modes and value; {', '.join(lacking)} was not given.")
    if isinstance(modes, str):
        raise StreamError(f"modes must be a list of columns, or a dict of their levels, got {modes!r}; give a list.")
    named = dict(modes) if isinstance(modes, Mapping) else dict.fromkeys(modes)
    if len(named) < 2 or len({sample, value, *named}) != len(list(modes)) + 2:
        raise StreamError(
            f"sample, value and at least two modes must be different columns, got sample={sample!r}, "
            f"modes={list(modes)!r}, value={value!r}."
        )
    return Columns(str(sample), named, str(value), missing)


class Levels:
    """The levels of one mode, and their numbers; with ``given`` ones no other may come."""

    def __init__(self, name: str, given: Sequence[Any] | None) -> None:
        self.name, self.given = name, given is not None
        self.raw: list[Any] = [] if given is None else list(given)
        self._numbers = self.given and all(_is_number(one) for one in self.raw)
        self._places = {self._key(one): i for i, one in enumerate(self.raw)}
        if len(self._places) < len(self.raw):
            raise StreamError(
                f"levels of {name!r} must differ, got {len(self.raw)} with {len(self._places)} different."
            )

    def _key(self, one: Any) -> Any:
        if not self._numbers:
            return as_text(one) if self.given else one
        try:
            return float(one)
        except (TypeError, ValueError):
            return one

    def learn(self, values: Sequence[Any]) -> None:
        """Take up what a piece of the table has, unless all levels are given."""
        if not self.given:
            for one in values:
                if self._places.setdefault(one, len(self.raw)) == len(self.raw):
                    self.raw.append(one)

    def settle(self, texts: bool) -> None:
        """All were seen: numbers and times are put in order; text of a CSV file may be numbers, too."""
        numbers = _numbers(self.raw) if texts and not self.given else None
        keys = self.raw if numbers is None else numbers
        if not self.given and keys and (numbers is not None or all(_is_number(k) or _is_time(k) for k in keys)):
            order = sorted(range(len(keys)), key=lambda i: keys[i])
            self.raw, keys = [self.raw[i] for i in order], [keys[i] for i in order]
            self._places = {one: i for i, one in enumerate(self.raw)}
        dated = [np.datetime64(k) for k in keys] if keys and all(map(_is_time, keys)) else keys
        self.axis = Axis(self.name, as_coords(dated))

    def places(self, values: Sequence[Any]) -> NDArray[np.int64]:
        """The numbers of some values; −1 of one that is no level."""
        return np.array([self._places.get(self._key(one), -1) for one in values], dtype=np.int64)


def _is_number(one: Any) -> bool:
    return isinstance(one, int | float | np.number) and not isinstance(one, bool)


def _is_time(one: Any) -> bool:
    return isinstance(one, datetime.date | np.datetime64)


def _numbers(texts: Sequence[str]) -> list[Any] | None:
    """The numbers that some texts mean, all of them different; ``None`` if they mean none."""
    try:
        found: list[Any] = [float(text) for text in texts]
    except ValueError:
        return None
    whole = all(text.removeprefix("-").isdecimal() for text in texts)
    distinct = len(set(found)) == len(found) and not any(map(math.isnan, found))
    return ([int(text) for text in texts] if whole else found) if distinct else None
