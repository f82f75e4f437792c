"""The cursor: where in a numbered stream the next sample is, and which parts of which batches come next.

It knows what :class:`~tpca.engines.LocalEngine` knows from reading, without reading: a position taken from one is good
for the other.  Batches with all samples left out are part of the next, as in :func:`tpca.data.base.without_empty`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tpca.data.base import Layout

Count = Callable[[int, int], dict[int, int]]


@dataclass(frozen=True)
class Fragment:
    """Samples ``start`` to ``stop`` of batch ``number``; ``place`` is the first of the empty ones before it, if any."""

    number: int
    start: int
    stop: int
    place: int


class Cursor:
    """Walks through the batches; ``count(first, stop)`` tells how many samples some have, where that is not certain."""

    def __init__(self, layout: Layout, count: Count) -> None:
        self._layout, self._count = layout, count
        self._nominal = np.diff(layout.bounds)
        self._lengths = self._nominal.copy() if layout.certain else np.full(layout.count, -1)
        self.skipped, self._skipped_before = 0, 0
        self.ended = False
        self._next = 0  # number of the batch that comes into the hand next
        self._hand: tuple[int, int] | None = None  # the batch in hand: its place, its number
        self._offset = 0

    @property
    def n_skipped(self) -> int:
        """Samples that were left out, those of later passes not counted again."""
        return max(self.skipped, self._skipped_before)

    @property
    def place(self) -> int:
        """Where in the stream the next sample is, as if none had been left out of the batch in hand."""
        bounds = self._layout.bounds
        return int(bounds[self._next]) if self._hand is None else int(bounds[self._hand[0]]) + self._offset

    def rewind(self) -> None:
        """Start the next pass."""
        self.skipped, self._skipped_before = 0, self.n_skipped
        self._hand, self._offset, self._next, self.ended = None, 0, 0, False

    def position(self) -> dict[str, Any]:
        """The part of an engine's position that says where it is."""
        place = self._next if self._hand is None else self._hand[0]
        counted_again = 0 if self._hand is None else self._dropped(*self._hand)
        return {
            "first": int(self._layout.bounds[place]),
            "offset": self._offset,
            "ended": self.ended,
            "skipped": [self.skipped - counted_again, self._skipped_before],
        }

    def seek(self, position: dict[str, Any]) -> None:
        """Go on from there."""
        self.skipped, self._skipped_before = position["skipped"]
        self._next = int(np.searchsorted(self._layout.bounds, int(position["first"])))
        self._hand, self._offset = None, 0
        if position["offset"] or position["ended"]:
            self._advance(int(position["offset"]))
            self._offset = int(position["offset"])
        self.ended = bool(position["ended"])

    def take(self, n: int | None) -> list[Fragment]:
        """The next ``n`` samples, or all there are; fewer at the end of the stream."""
        fragments = []
        n = int(self._layout.bounds[-1]) if n is None else n
        while n > 0:
            if self._hand is not None and (left := self._length(self._hand[1], n) - self._offset) > 0:
                place, number = self._hand
                fragments.append(Fragment(number, self._offset, self._offset + min(n, left), place))
                self._offset += min(n, left)
                n -= min(n, left)
            elif self.ended or not self._advance(n):
                break
        return fragments

    def _advance(self, wanted: int) -> bool:
        """Take the next batch that has samples in hand; false at the end of the stream."""
        if self._next >= self._layout.count:
            self.ended = True
            return False
        place = number = self._next
        while number < self._layout.count - 1 and self._length(number, wanted) == 0:
            number += 1
        self._hand, self._offset, self._next = (place, number), 0, number + 1
        self.skipped += self._dropped(place, number)
        return True

    def _length(self, number: int, wanted: int) -> int:
        if self._lengths[number] < 0:
            stop = int(np.searchsorted(self._layout.bounds, self._layout.bounds[number] + wanted))
            known = self._count(number, min(max(stop, number) + 1, self._layout.count))
            for one, length in known.items():
                self._lengths[one] = length
        return int(self._lengths[number])

    def _dropped(self, place: int, number: int) -> int:
        some = slice(place, number + 1)
        if self._layout.certain:
            return 0
        self._length(number, 0)
        return int(np.sum(self._nominal[some] - self._lengths[some]))
