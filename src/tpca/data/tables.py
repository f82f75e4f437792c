"""Tables: long ones, a row for every cell of every sample, and those of numbers alone, a sample in every row.

A long table has columns for the sample, the modes and the value.  It is read in pieces: Parquet by row groups, of which
one is held; a CSV file is loaded whole, as Arrow tables and data frames are.  A first pass over the columns of samples
and modes finds the samples, which in a Parquet file must have their rows next to each other, and the levels of every
mode.  Samples and levels are sorted where they are numbers or times, and in the order of their first row where they are
text.  Levels that are given are taken as they are.  Samples are dense where most cells have a row, and sparse where few
do.

pyarrow is optional and imported where it is used; it tells what a column of a CSV file holds from all of it.
"""

from __future__ import annotations

import datetime
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from tpca.data.alignment import index_values, is_counted
from tpca.data.base import ArraySource, Layout, NanPolicy, NumberedStream, Source, spread
from tpca.data.stored import StoredStream
from tpca.data.stores import absolute, listed, package
from tpca.errors import SampleError, StreamError, check_regular, reading
from tpca.labels import Axis, as_coords, as_text, labels_of
from tpca.model import BATCH_ENTRIES
from tpca.tensors import Batch
from tpca.tensors.accumulators import digest
from tpca.tensors.blocks import check_dims
from tpca.tensors.namespaces import library
from tpca.tensors.sparse import SparseBatch

TABLES = (".csv", ".tsv", ".parquet", ".pq")
PIECE_ROWS = 2**19  # of a table in memory
LARGEST = 2**62  # cells of a sample that can be numbered
DENSE_SHARE = 0.05  # of cells with a row, from which on samples are dense: adding up costs far less than contracting
SORTED_KINDS = "fiumM"  # of values that are sorted: numbers, durations and times; text stays in the order of its rows
LETTERS, SHOWN = 60, 8  # of a value, and columns or levels, that messages show

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
            raise StreamError(
                f"missing={missing!r} is for long tables; give sample=, modes= and value=, or leave it out."
            )
        return None
    if lacking := [name for name, one in given.items() if one is None]:
        raise StreamError(f"a long table needs sample=, modes= and value=; {', '.join(lacking)} was not given.")
    if isinstance(modes, str):
        raise StreamError(f"modes= must be a list of columns, or a dict of their levels, got {modes!r}; give a list.")
    named = dict(modes) if isinstance(modes, Mapping) else dict.fromkeys(modes)
    if len(named) < 2 or len({sample, value, *named}) != len(list(modes)) + 2:
        raise StreamError(
            f"sample=, value= and the columns of two or more axes, modes=, must differ, got sample={sample!r}, "
            f"modes={list(modes)!r}, value={value!r}."
        )
    return Columns(str(sample), named, str(value), missing)


# ---------------------------------------------------------------------------------------------------------------------
# Where tables are.


def arrow_package(part: str = "") -> Any:
    """pyarrow, or a part of it."""
    return package(f"pyarrow{part}", "tables", "reading tables")


def _is_parquet(path: str) -> bool:
    return path.lower().endswith((".parquet", ".pq"))


def _loaded(source: Any) -> Any:
    """A table, or what lies at a path, as an Arrow table."""
    arrow = arrow_package()
    if not isinstance(source, str | os.PathLike):
        if library(source) == "pandas":
            return arrow.Table.from_pandas(source, preserve_index=False)
        return source if isinstance(source, arrow.Table) else arrow.table(source)
    path, parser = os.fsdecode(source), arrow_package(".csv")
    with reading(f"cannot read {path!r} as a table", "write it again, a CSV file as text in UTF-8"):
        if _is_parquet(path):
            return arrow_package(".parquet").ParquetFile(path).read()
        with open(path, encoding="utf-8-sig", newline="") as file:
            head = file.readline(2**20)  # names the columns
        if not head.strip():
            raise StreamError(f"{path!r} is empty; its first line must name the columns.")
        block = min(max(os.path.getsize(path), 2**20), 2**31 - 1)  # all of it, from which types are told
        return parser.read_csv(
            path,
            read_options=parser.ReadOptions(use_threads=False, block_size=block),  # threads do not survive a fork
            parse_options=parser.ParseOptions(delimiter=max(",;\t", key=head.count), newlines_in_values=True),
            convert_options=parser.ConvertOptions(strings_can_be_null=False),
        )


def plain(column: Any) -> Any:
    """A column in one piece, categories as what they stand for, UUIDs as text, other named types as what they store."""
    arrow = arrow_package()
    whole = arrow.concat_arrays(column.chunks) if column.num_chunks != 1 else column.chunk(0)
    if arrow.types.is_dictionary(whole.type):
        whole = whole.cast(whole.type.value_type)
    extension = getattr(whole.type, "extension_name", "")
    if extension == "arrow.uuid":
        return arrow.array([None if one is None else str(one) for one in whole.to_pylist()], arrow.string())
    return whole.storage if extension else whole


def coded(column: Any, name: str) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Numbers of the values of the column ``name``, −1 where there is none, and the values."""
    arrow = arrow_package()
    try:
        encoded = plain(column).dictionary_encode()
    except (arrow.ArrowInvalid, arrow.ArrowNotImplementedError):
        raise StreamError(
            f"column {name!r} holds {column.type}, expected text, numbers or times, one in every row; convert it "
            "first, or name another column."
        ) from None
    values = encoded.dictionary.to_numpy(zero_copy_only=False)
    if not all(isinstance(one, str) for one in values[:1]):  # texts stay as they are: one may be long
        values = as_coords(values)
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    empty = np.array([*(one == "" or one != one for one in values.tolist()), True])  # the last is that of -1
    return np.where(empty[codes], -1, codes), values


def brief(one: Any) -> str:
    """A value of a table as messages show it."""
    text = repr(str(one)) if isinstance(one, str) else as_text(one)
    return text if len(text) <= LETTERS else f"{text[:LETTERS]} ..."


def _several(values: Sequence[Any] | NDArray[Any]) -> str:
    return ", ".join(map(brief, values[:SHOWN])) + (", ..." if len(values) > SHOWN else "")


def _checked(source: Any) -> str:
    path = os.fsdecode(source)
    if not os.path.exists(path):
        raise StreamError(f"no such file or folder: {path!r}.")
    check_regular(path)
    return path


# ---------------------------------------------------------------------------------------------------------------------
# Long tables.


class Table:
    """A long table as samples that can be read at any place.

    It is read piece by piece, some columns at a time: row groups of a Parquet file, or rows in memory, which are put in
    order where those of a sample are not next to each other.
    """

    def __init__(self, source: Any, columns: Columns) -> None:
        path = _checked(source) if isinstance(source, str | os.PathLike) else ""
        self.name, self.files = repr(path) if path else "the table", (path,) if path else ()
        self.columns, self.shared, self._path = columns, _is_parquet(path), absolute(path)
        self._table: Any = None
        self._order: NDArray[np.int64] | None = None
        if self.shared:
            with reading(f"cannot open {self.name} as a Parquet file", "write it again"):
                names, self._count = self._parquet().schema_arrow.names, self._parquet().num_row_groups
        else:
            self._table = _loaded(source)
            names, self._count = self._table.column_names, max(1, -(-self._table.num_rows // PIECE_ROWS))
        for column in (*columns.keys, columns.value):
            if (count := names.count(column)) != 1:
                found = f"{count} columns" if count else "no column"
                raise StreamError(f"{self.name} has {found} {column!r}; its columns are {listed(names)}.")
        if not self.shared:
            codes, values = coded(self._table.column(columns.sample), columns.sample)
            if values.dtype.kind in SORTED_KINDS and len(values):
                rank = np.argsort(np.argsort(values, kind="stable"))
                codes = np.where(codes < 0, codes, rank[codes])
            if (np.diff(codes) < 0).any():
                self._order = np.argsort(codes, kind="stable")
                self._table = self._table.take(self._order)
        self._starts, self._piece_starts, samples, parts = self._index()
        if not len(self):
            raise StreamError(f"{self.name} has no rows; give at least one sample.")
        modes = zip(columns.modes.items(), parts, strict=True)
        self.levels = {name: _levels(name, given, some) for (name, given), some in modes}
        # Where in the table every sample is: of a Parquet file, whose samples may stand in any order.
        self._file_places = np.arange(len(self))
        if samples.dtype.kind in SORTED_KINDS:
            self._file_places = np.argsort(samples, kind="stable")
        self.ends = np.cumsum(np.diff(self._starts)[self._file_places])
        self.axes = (
            Axis(columns.sample, samples[self._file_places]),
            *(Axis(name, levels) for name, levels in self.levels.items()),
        )
        self.dims = tuple(map(len, self.levels.values()))
        self.size = math.prod(self.dims)
        if self.size > LARGEST:
            raise StreamError(
                f"{self.name} has {self.dims} levels, more cells than there are numbers; leave an axis out."
            )
        self._held: tuple[int, NDArray[np.int64], NDArray[np.float64]] | None = None

    def _parquet(self) -> Any:
        return arrow_package(".parquet").ParquetFile(self._path)

    def _part(self, number: int, columns: list[str]) -> Any:
        """An Arrow table of these columns of a piece, in their order."""
        if self._table is not None:
            return self._table.select(columns).slice(number * PIECE_ROWS, PIECE_ROWS)
        with reading(f"cannot read row group {number} of {self.name}", "the file is damaged: write it again"):
            return self._parquet().read_row_group(number, columns=columns).select(columns)

    def row(self, number: int) -> str:
        """How a row is found: as it was before rows were put in order, of a CSV file also its line."""
        number = number if self._order is None else int(self._order[number])
        line = f" (line {number + 2})" if self.files and not self.shared else ""
        return f"row {number} of {self.name}{line}"

    def __len__(self) -> int:
        return len(self._starts) - 1

    def _index(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[Any], list[list[NDArray[Any]]]]:
        """The first row of every sample, and of every piece, and the end of both; the samples; the levels, by pieces.

        Samples are in the order of the table here.
        """
        starts: list[int] = []
        samples: list[Any] = []
        found: list[list[NDArray[Any]]] = [[] for _ in self.columns.modes]
        pieces, rows, seen, last = [0], 0, set[Any](), None
        for number in range(self._count):
            part = self._part(number, self.columns.keys)
            codes, values = self._codes(part, 0, rows)
            for place, levels in enumerate(found):
                levels.append(self._codes(part, place + 1, rows)[1])
            for at in (0, *(np.flatnonzero(np.diff(codes)) + 1).tolist()) if len(codes) else ():
                own = values[codes[at]]
                if starts and own == last:
                    continue
                if own in seen:
                    raise StreamError(
                        f"{self.row(rows + at)} goes on with {self.columns.sample} {brief(own)} after rows of "
                        f"others; sort the table by {self.columns.sample!r}, or give it as a data frame, which is "
                        "sorted here."
                    )
                starts.append(rows + at)
                samples.append(own)
                seen.add(own)
                last = own
            rows += part.num_rows
            pieces.append(rows)
        return np.array([*starts, rows]), np.array(pieces), as_coords(samples), found

    def _codes(self, part: Any, place: int, first: int) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Numbers and values of a column of a piece, whose first row is number ``first``."""
        name = self.columns.keys[place]
        codes, values = coded(part.column(place), name)
        if len(codes) and codes.min() < 0:
            raise SampleError(
                f"{self.row(first + int(np.argmin(codes)))} has no {name}; fill column {name!r}, or take such rows out."
            )
        return codes, values

    def _piece(self, number: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Cells, numbered within their sample, and values of the rows of a piece; the last one is held."""
        held = self._held
        if held is not None and held[0] == number:
            return held[1:]
        first = int(self._piece_starts[number])
        part = self._part(number, [*self.columns.keys, self.columns.value])
        cells = np.zeros(part.num_rows, np.int64)
        for place, (name, levels) in enumerate(self.levels.items()):
            codes, values = self._codes(part, place + 1, first)
            own = _places(levels, values)[codes]
            if len(own) and own.min() < 0:
                at = int(np.argmin(own))
                raise SampleError(
                    f"{self.row(first + at)} has {name} {brief(values[codes[at]])}, which is none of its "
                    f"{len(levels)} levels ({_several(levels)}); add it to modes={{{name!r}: ...}}, or leave it out."
                )
            cells = cells * len(levels) + own
        self._held = (number, cells, self._numbers(plain(part.column(len(self.axes))), first))
        return self._held[1:]

    def _numbers(self, column: Any, first: int) -> NDArray[np.float64]:
        """The values of a piece, whose first row is number ``first``."""
        arrow, name = arrow_package(), self.columns.value
        try:
            numbers: NDArray[np.float64] = column.cast(arrow.float64(), safe=False).to_numpy(zero_copy_only=False)
            return numbers
        except (arrow.ArrowInvalid, arrow.ArrowNotImplementedError):
            values = column.to_pylist()
            at = next((place for place, one in enumerate(values) if one and not _is_number(one)), 0)
            raise SampleError(
                f"{self.row(first + at)} has {name} {brief(values[at])}, expected a number; convert column "
                f"{name!r} first, or name another one as value."
            ) from None

    def row_numbers(self, start: int, stop: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Of samples ``start`` to ``stop``: the sample of every row, counted from 0, and the number of the row."""
        places = self._file_places[start:stop]
        first_rows = self._starts[places]
        lengths = self._starts[places + 1] - first_rows
        sample = np.repeat(np.arange(stop - start), lengths)
        rows_before = np.cumsum(lengths) - lengths
        numbers = np.arange(len(sample)) + np.repeat(first_rows - rows_before, lengths)
        return sample, numbers

    def rows(self, start: int, stop: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """Of samples ``start`` to ``stop``: the sample of every row, counted from 0, its cell, and its value."""
        sample, numbers = self.row_numbers(start, stop)
        cells = np.empty(len(numbers), np.int64)
        values = np.empty(len(numbers))
        pieces = np.searchsorted(self._piece_starts, numbers, side="right") - 1
        for piece in np.unique(pieces).tolist():
            here = pieces == piece
            inside = numbers[here] - self._piece_starts[piece]
            piece_cells, piece_values = self._piece(piece)
            cells[here] = piece_cells[inside]
            values[here] = piece_values[inside]
        order = np.lexsort((cells, sample))
        same = (np.diff(sample[order]) == 0) & (np.diff(cells[order]) == 0)
        if same.any():
            row = int(order[1:][same].min())
            number = int(numbers[row])
            raise SampleError(
                f"{self.row(number)} gives {self._cell(number, int(cells[row]))} a second time; add "
                "such rows up first, or take one out."
            )
        return sample, cells, values

    def _cell(self, row: int, cell: int) -> str:
        """A cell of the sample of a row, in words."""
        number = int(np.searchsorted(self._piece_starts, row, side="right")) - 1
        column = self._part(number, [self.columns.sample]).column(0)
        own = column[row - int(self._piece_starts[number])].as_py()
        places = np.unravel_index(cell, self.dims)
        told = (f"{axis.name} {axis.entry(int(i))!r}" for axis, i in zip(self.axes[1:], places, strict=True))
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
            first_row = int(self._starts[self._file_places[start + absent]])
            raise SampleError(
                f"{self.name} has no row for {self._cell(first_row, cell)}; every cell of every "
                'sample needs one: give missing="zero" if cells without a row are zeros, as of counts, or "nan" if '
                "they are not known."
            )
        return block.reshape(stop - start, *self.dims)


def _is_number(one: Any) -> bool:
    try:
        return float(one) is not None
    except (TypeError, ValueError):
        return False


def _levels(name: str, given: Sequence[Any] | None, parts: list[NDArray[Any]]) -> NDArray[Any]:
    """The levels of a mode: those that are given, or else all that its column has."""
    if given is None:
        found = np.concatenate(parts)
        return np.unique(found) if found.dtype.kind in SORTED_KINDS else as_coords(list(dict.fromkeys(found.tolist())))
    dates = all(isinstance(one, datetime.date) for one in given)
    coords = as_coords([np.datetime64(one) for one in given] if dates else list(given))
    if (different := len(np.unique(coords))) < len(coords):
        raise StreamError(f"levels of {name!r} must differ, got {len(coords)} with {different} different.")
    return coords


def _places(levels: NDArray[Any], values: NDArray[Any]) -> NDArray[np.int64]:
    """Which levels some values are, −1 if none: numbers as they are, words and times by their text."""
    numbers = levels.dtype.kind in "fiu" and values.dtype.kind in "fiu"
    keys, own = (one.tolist() if numbers else list(map(as_text, one)) for one in (levels, values))
    known = {key: place for place, key in enumerate(keys)}
    return np.array([known.get(key, -1) for key in own], dtype=np.int64)


class TableSource(Source):
    """A long table as dense samples."""

    kind = "table"

    def __init__(self, table: Table) -> None:
        self.name, self.shape, self.dtype = table.name, (len(table), *table.dims), np.dtype(np.float64)
        self.axes, self.shared = table.axes, table.shared
        self._table, self.files = table, table.files

    def read(self, key: tuple[slice, ...]) -> NDArray[Any]:
        """The entries in these ranges of the leading axes."""
        start, stop, _ = key[0].indices(len(self._table))
        return self._table.dense(start, stop)[(slice(None), *key[1:])]


class SparseTableStream(NumberedStream):
    """A long table as sparse samples: cells without a row are zeros."""

    kind = "table"
    dtype = np.dtype(np.float64)
    rereadable, whole, ahead = True, False, 1

    def __init__(self, table: Table) -> None:
        self.dims, self.length = check_dims(table.dims), len(table)
        self.labels = labels_of(table.axes, table.name)
        self.readable_elsewhere = table.shared
        self._table, self.files = table, table.files
        bounds = [0]  # batches of whole samples, each of about so many rows
        while bounds[-1] < self.length:
            rows_before = int(table.ends[bounds[-1] - 1]) if bounds[-1] else 0
            end = int(np.searchsorted(table.ends, rows_before + BATCH_ENTRIES, side="right"))
            bounds.append(max(bounds[-1] + 1, end))
        entries = max(1, int(table.ends[-1]) // self.length)
        self.layout = Layout(np.array(bounds), True, entries, False, private=not table.shared)

    @property
    def identity(self) -> str:
        """Dims and length, and a digest of some samples."""
        some = (self._table.rows(place, place + 1) for place in spread(self.length or 0, cost=0))
        return f"table {self.dims} {self.length} {digest(array for rows in some for array in rows)}"

    def batch(self, number: int, parts: Sequence[NDArray[Any]] | None = None) -> Batch:  # noqa: ARG002
        """Some samples."""
        start, stop = self._range(number)
        sample, cells, values = self._table.rows(start, stop)
        if not np.isfinite(values).all():
            _, numbers = self._table.row_numbers(start, stop)
            row = int(numbers[np.argmin(np.isfinite(values))])
            raise SampleError(f"{self._table.row(row)} has no finite value; fill it in, or take the row out.")
        coords = np.stack(np.unravel_index(cells, self.dims))
        return SparseBatch(coords, values, sample, stop - start, self.dims, start)


def open_table(source: Any, columns: Columns, shuffle: int | None, nan_policy: NanPolicy) -> NumberedStream:
    """A long table as a stream of samples."""
    table = Table(source, columns)
    if columns.missing == "zero" and table.ends[-1] < DENSE_SHARE * table.size * len(table):
        if shuffle is not None or nan_policy != "raise":
            raise StreamError("shuffle and nan_policy are for dense samples, and this table is sparse; leave them out.")
        return SparseTableStream(table)
    return StoredStream(TableSource(table), shuffle, nan_policy)


# ---------------------------------------------------------------------------------------------------------------------
# Tables of numbers.


def number_table(source: Any) -> Source:
    """A table whose columns are all numbers, a sample in every row; what to do about any other."""
    path = _checked(source) if isinstance(source, str | os.PathLike) else None
    if path is None and hasattr(source, "to_numpy") and hasattr(source, "dtypes"):  # of pandas or polars
        names = list(source.columns)
        numbers = all(d.is_numeric() if hasattr(d, "is_numeric") else d.kind in "fiu" for d in source.dtypes)
        if names and numbers:
            index, columns = (getattr(getattr(source, name, None), "name", None) for name in ("index", "columns"))
            labels = None
            if library(source) == "pandas" and not is_counted(source.index):
                labels = index_values(source.index)
            axes = (Axis(str(index or ""), labels), Axis(str(columns or "column"), as_coords(names)))
            return ArraySource(np.asarray(source.to_numpy(), dtype=np.float64), axes, "the data frame")
    else:
        table, types = _loaded(source), arrow_package().types
        names = table.column_names
        if path is not None and (wrong := [name for name in names if not name.strip() or _is_number(name)]):
            raise StreamError(  # a sample, or the index of pandas
                f"the first line of {path!r} must name the columns, and {brief(wrong[0])} is no name: write it again, "
                "from pandas with df.to_csv(path, index=False), or give numpy.loadtxt(path, delimiter=','), saved with "
                "numpy.save for the command."
            )
        if names and all(types.is_integer(kind) or types.is_floating(kind) for kind in table.schema.types):
            columns = [plain(column).to_numpy(zero_copy_only=False) for column in table.columns]
            axes = (Axis(), Axis("column", as_coords(names)))
            found = ArraySource(np.column_stack(columns).astype(np.float64), axes, repr(path) if path else "the table")
            found.files = (path,) if path else ()
            return found
    what, name, command = repr(path), repr(path), " (tpca: --sample, --modes, --value)"
    if path is None:
        what, name, command = f"a {type(source).__name__}", "df", ""
    raise StreamError(
        f"{what} is a table with columns {_several(list(map(str, names)))}, and a sample is an array: say which "
        "columns are the sample, its axes and the value, "
        f"tpca.open_stream({name}, sample=..., modes=[..., ...], value=...){command}, and fit that. A table of numbers "
        "alone is taken as one sample a row (df.select_dtypes('number')); samples with several axes are given as an "
        "array: df.to_numpy().reshape(n, d_1, ..., d_k)."
    )
