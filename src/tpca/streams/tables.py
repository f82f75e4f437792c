"""Long tables: a row for every cell of every sample, with columns for the sample, the modes and the value.

A first pass over the columns of samples and modes finds the samples, which must have their rows next to each other,
and the levels of every mode: sorted where they are numbers or times, in the order of their first row where they are
text.  Levels that are given are taken as they are.  Nothing of the values is held but the piece in hand.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.errors import SampleError, StreamError
from tpca.labels import Axis
from tpca.streams.table_columns import Columns, Levels
from tpca.streams.table_files import Pieces, brief, coded, plain

LARGEST = 2**62  # cells of a sample that can be numbered


class Table:
    """A long table as samples that can be read at any place."""

    def __init__(self, pieces: Pieces, columns: Columns) -> None:
        pieces.check([*columns.keys, columns.value])
        self.pieces, self.columns, self.name = pieces, columns, pieces.name
        self.levels = [Levels(name, given) for name, given in columns.modes.items()]
        self.starts, self._piece_starts = self._index()
        for levels in self.levels:
            levels.settle(pieces.texts)
        self.dims = tuple(len(levels.raw) for levels in self.levels)
        self.size = math.prod(self.dims)
        if self.size > LARGEST:
            raise StreamError(f"{self.name} has {self.dims} levels, more cells than can be numbered; leave a mode out.")
        self.axes = (Axis(columns.sample), *(levels.axis for levels in self.levels))
        self._held: tuple[int, NDArray[np.int64], NDArray[np.float64]] | None = None

    def __len__(self) -> int:
        return len(self.starts) - 1

    def _index(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The first row of every sample, and of every piece, and the end of both."""
        starts: list[int] = []
        pieces, rows, seen, last = [0], 0, set[Any](), None
        for number in range(self.pieces.count):
            part = self.pieces.read(number, self.columns.keys)
            codes, values = self._codes(part, 0, rows)
            for place, levels in enumerate(self.levels):
                levels.learn(self._codes(part, place + 1, rows)[1])
            for at in (0, *(np.flatnonzero(np.diff(codes)) + 1).tolist()) if len(codes) else ():
                own = values[codes[at]]
                if not starts or own != last:
                    self._refuse_again(own, own in seen, rows + at)
                    starts.append(rows + at)
                    seen.add(own)
                    last = own
            rows += part.num_rows
            pieces.append(rows)
        return np.array([*starts, rows]), np.array(pieces)

    def _refuse_again(self, sample: Any, again: bool, row: int) -> None:
        if again:
            raise StreamError(
                f"{self.pieces.row(row)} goes on with {self.columns.sample} {brief(sample)} after rows of others; sort "
                f"the table by {self.columns.sample!r}, or give it as a data frame, which is sorted here."
            )

    def _codes(self, part: Any, place: int, first: int) -> tuple[NDArray[Any], list[Any]]:
        """Numbers and values of a column of a piece, whose first row is number ``first``."""
        codes, values = coded(plain(part.column(place)))
        empty = {i for i, one in enumerate(values) if one is None or one == "" or one != one} | {-1}
        if len(codes) and (wrong := np.isin(codes, list(empty))).any():
            name = self.columns.keys[place]
            raise SampleError(
                f"{self.pieces.row(first + int(np.argmax(wrong)))} has no {name}; fill column {name!r}, or take such "
                "rows out."
            )
        return codes, values

    def _piece(self, number: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Cells, numbered within their sample, and values of the rows of a piece; the last one is held."""
        held = self._held
        if held is not None and held[0] == number:
            return held[1:]
        first = int(self._piece_starts[number])
        part = self.pieces.read(number, self.columns.keys, self.columns.value, first)
        cells = np.zeros(part.num_rows, np.int64)
        for place, levels in enumerate(self.levels):
            codes, values = self._codes(part, place + 1, first)
            own = levels.places(values)[codes] if len(codes) else codes
            if len(own) and own.min() < 0:
                self._refuse_level(levels, values, codes, first + int(np.argmin(own)), int(np.argmin(own)))
            cells = cells * self.dims[place] + own
        numbers = plain(part.column(len(self.levels) + 1)).to_numpy(zero_copy_only=False).astype(np.float64)
        self._held = (number, cells, numbers)
        return cells, numbers

    def _refuse_level(self, levels: Levels, values: list[Any], codes: NDArray[Any], row: int, at: int) -> None:
        known = ", ".join(brief(one) for one in levels.raw[:8]) + (", ..." if len(levels.raw) > 8 else "")
        raise SampleError(
            f"{self.pieces.row(row)} has {levels.name} {brief(values[codes[at]])}, which is none of its "
            f"{len(levels.raw)} levels ({known}); add it to modes={{{levels.name!r}: ...}}, or take the row out."
        )

    def rows(self, start: int, stop: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """Of samples ``start`` to ``stop``: the sample of every row, counted from 0, its cell, and its value."""
        first, end = int(self.starts[start]), int(self.starts[stop])
        parts = []
        for number in range(int(np.searchsorted(self._piece_starts, first, side="right")) - 1, self.pieces.count):
            begin = int(self._piece_starts[number])
            if begin >= end:
                break
            cells, values = self._piece(number)
            some = slice(max(0, first - begin), end - begin)
            parts.append((cells[some], values[some]))
        sample = np.repeat(np.arange(stop - start), np.diff(self.starts[start : stop + 1]))
        cells, values = (np.concatenate(each) for each in zip(*parts, strict=True))
        self._refuse_twice(sample, cells, first)
        return sample, cells, values

    def _refuse_twice(self, sample: NDArray[np.int64], cells: NDArray[np.int64], first: int) -> None:
        order = np.lexsort((cells, sample))
        same = (np.diff(sample[order]) == 0) & (np.diff(cells[order]) == 0)
        if same.any():
            row = int(order[1:][same].min())
            raise SampleError(
                f"{self.pieces.row(first + row)} gives {self.cell(first + row, int(cells[row]))} a second time; add "
                "such rows up first, or take one out."
            )

    def cell(self, row: int, cell: int) -> str:
        """A cell of the sample of a row, in words."""
        number = int(np.searchsorted(self._piece_starts, row, side="right")) - 1
        column = self.pieces.read(number, [self.columns.sample]).column(0)
        own = column[row - int(self._piece_starts[number])].as_py()
        places = np.unravel_index(cell, self.dims)
        told = (f"{one.name} {brief(one.axis.entry(int(i)))}" for one, i in zip(self.levels, places, strict=True))
        return f"{', '.join(told)} of {self.columns.sample} {brief(own)}"

    def dense(self, start: int, stop: int) -> NDArray[np.float64]:
        """Some samples as an array; cells without a row are what ``missing`` says."""
        sample, cells, values = self.rows(start, stop)
        count = (stop - start) * self.size
        block = np.full(count, 0.0 if self.columns.missing == "zero" else np.nan)
        block[sample * self.size + cells] = values
        if self.columns.missing == "raise" and len(cells) < count:
            present = np.zeros(count, bool)
            present[sample * self.size + cells] = True
            absent, cell = divmod(int(np.argmin(present)), self.size)
            raise SampleError(
                f"{self.name} has no row for {self.cell(int(self.starts[start + absent]), cell)}; every cell of every "
                'sample needs one: give missing="zero" if cells without a row are zeros, as of counts, or "nan" if '
                "they are not known."
            )
        return block.reshape(stop - start, *self.dims)
