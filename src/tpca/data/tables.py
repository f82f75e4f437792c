"""Long tables: a row for every cell of every sample, with columns for the sample, the modes and the value.

They are read in pieces: Parquet by row groups, of which one is held; a CSV file is loaded whole, as Arrow tables and
data frames are.  A first pass over the columns of samples and modes finds the samples, which in a Parquet file must
have their rows next to each other, and the levels of every mode: sorted where they are numbers or times, in the order
of their first row where they are text.  Levels that are given are taken as they are.  Samples are dense where most
cells have a row, and sparse where few do.

pyarrow is optional and imported where it is used.  Text of a CSV file stays text here: whether it means numbers can
only be told when all of it was seen.
"""

from __future__ import annotations

import csv
import datetime
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from tpca.data.base import Layout, NanPolicy, NumberedStream, Source, spread
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


class Pieces:
    """A table that is read piece by piece, some columns at a time."""

    name: str
    """What messages call it."""
    columns: list[str]
    """Its columns."""
    count: int
    """Number of pieces."""
    shared: bool = True
    """Whether other processes can open it."""
    texts: bool = False
    """Whether numbers come as text."""
    files: tuple[str, ...] = ()
    """Where it is stored."""

    def part(self, number: int, columns: list[str]) -> Any:
        """An Arrow table of these columns of a piece, in their order."""
        raise NotImplementedError

    def read(self, number: int, columns: list[str], value: str, first: int) -> Any:
        """The same with ``value`` as the last column, in float64; ``first`` is the number of the first row."""
        arrow = package("pyarrow", "tables", "reading tables")
        table = self.part(number, [*columns, value])
        column = plain(table.column(value))
        try:
            return table.set_column(len(columns), value, column.cast(arrow.float64(), safe=False))
        except (arrow.ArrowInvalid, arrow.ArrowNotImplementedError):
            values = column.to_pylist()
            at = next((place for place, one in enumerate(values) if not _blank_or_number(one)), 0)
            raise SampleError(
                f"{self.row(first + at)} has {value} {brief(values[at])}, expected a number; convert column {value!r} "
                "first, or name another one as value."
            ) from None

    def row(self, number: int) -> str:
        """How a row is found, from its number."""
        return f"row {number} of {self.name}"

    def check(self, columns: Sequence[str]) -> None:
        """Refuse columns that there are not, or twice."""
        for column in columns:
            if (count := self.columns.count(column)) != 1:
                found = f"{count} columns" if count else "no column"
                raise StreamError(f"{self.name} has {found} {column!r}; its columns are {listed(self.columns)}.")


class MemoryPieces(Pieces):
    """An Arrow table, or a data frame, with the rows of a sample put next to each other where they are not."""

    shared = False

    def __init__(self, table: Any, sample: str, file: str = "") -> None:
        arrow = package("pyarrow", "tables", "reading tables")
        if library(table) == "pandas":
            table = arrow.Table.from_pandas(table, preserve_index=False)
        elif not isinstance(table, arrow.Table):
            table = arrow.table(table)
        self.texts, self.files = bool(file), (file,) if file else ()
        self.name, self.columns = repr(file) if file else "the table", list(map(str, table.column_names))
        self.check([sample])
        codes = coded(plain(table.column(sample)))[0]
        runs = 1 + np.count_nonzero(np.diff(codes))
        self._order = None if runs == len(np.unique(codes)) else np.argsort(codes, kind="stable")
        self._table = table if self._order is None else table.take(self._order)
        self.count = max(1, -(-table.num_rows // PIECE_ROWS))

    def part(self, number: int, columns: list[str]) -> Any:
        """Some rows."""
        return self._table.select(columns).slice(number * PIECE_ROWS, PIECE_ROWS)

    def row(self, number: int) -> str:
        """As it was before rows were put together; of a file also its line, where no field has a line break."""
        number = number if self._order is None else int(self._order[number])
        return f"{super().row(number)}{f' (line {number + 2})' if self.files else ''}"


class ParquetPieces(Pieces):
    """A Parquet file, row group by row group."""

    def __init__(self, path: str) -> None:
        self.path, self.name, self.files = absolute(path), repr(path), (path,)
        with reading(f"cannot open {path!r} as a Parquet file", "write it again"):
            file = self._open()
            self.columns, self.count = list(file.schema_arrow.names), file.num_row_groups

    def _open(self) -> Any:
        return package("pyarrow.parquet", "tables", "reading tables").ParquetFile(self.path)

    def part(self, number: int, columns: list[str]) -> Any:
        """A row group."""
        with reading(f"cannot read row group {number} of {self.name}", "the file is damaged: write it again"):
            return self._open().read_row_group(number, columns=columns).select(columns)


def csv_columns(path: str) -> tuple[list[str], str]:
    """Names of the columns of a CSV file, which are in its first line, and what parts them."""
    with reading(f"cannot read {path!r}", "write it again, as text in UTF-8"):
        with open(path, encoding="utf-8-sig", newline="") as file:
            head = file.readline()
        delimiter = max(",;\t", key=head.count)
        names = next(csv.reader([head], delimiter=delimiter), [])
    if not names:
        raise StreamError(f"{path!r} is empty; its first line must name the columns.")
    return names, delimiter


def read_csv(path: str, number: str = "") -> Any:
    """A CSV file, or one with tabs or semicolons, as an Arrow table of text; one column may be of ``number``."""
    arrow = package("pyarrow", "tables", "reading tables")
    parser = package("pyarrow.csv", "tables", "reading tables")
    with reading(f"cannot read {path!r} as a table", "write it again, as text in UTF-8"):
        names, delimiter = csv_columns(path)
        types = {name: arrow.float64() if name == number else arrow.string() for name in names}
        return parser.read_csv(
            path,
            read_options=parser.ReadOptions(use_threads=False),  # which would not live on in a forked process
            parse_options=parser.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            convert_options=parser.ConvertOptions(column_types=types, strings_can_be_null=False),
        )


def brief(one: Any) -> str:
    """A value of a table as messages show it."""
    text = repr(one)
    return text if len(text) <= LETTERS else f"{text[:LETTERS]} ..."


def _blank_or_number(one: Any) -> bool:
    try:
        return one is None or one == "" or float(one) is not None
    except (TypeError, ValueError):
        return False


def plain(column: Any) -> Any:
    """A column in one piece, categories as what they stand for."""
    arrow = package("pyarrow", "tables", "reading tables")
    whole = arrow.concat_arrays(column.chunks) if column.num_chunks != 1 else column.chunk(0)
    return whole.cast(whole.type.value_type) if arrow.types.is_dictionary(whole.type) else whole


def coded(column: Any) -> tuple[np.ndarray[Any, Any], list[Any]]:
    """Numbers of the values of a column, −1 where there is none, and the values."""
    encoded = column.dictionary_encode()
    return encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False), encoded.dictionary.to_pylist()


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
            part = self.pieces.part(number, self.columns.keys)
            codes, values = self._codes(part, 0, rows)
            for place, levels in enumerate(self.levels):
                levels.learn(self._codes(part, place + 1, rows)[1])
            for at in (0, *(np.flatnonzero(np.diff(codes)) + 1).tolist()) if len(codes) else ():
                own = values[codes[at]]
                if starts and own == last:
                    continue
                if own in seen:
                    raise StreamError(
                        f"{self.pieces.row(rows + at)} goes on with {self.columns.sample} {brief(own)} after rows of "
                        f"others; sort the table by {self.columns.sample!r}, or give it as a data frame, which is "
                        "sorted here."
                    )
                starts.append(rows + at)
                seen.add(own)
                last = own
            rows += part.num_rows
            pieces.append(rows)
        return np.array([*starts, rows]), np.array(pieces)

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
                at = int(np.argmin(own))
                known = ", ".join(map(brief, levels.raw[:SHOWN])) + (", ..." if len(levels.raw) > SHOWN else "")
                raise SampleError(
                    f"{self.pieces.row(first + at)} has {levels.name} {brief(values[codes[at]])}, which is none of its "
                    f"{len(levels.raw)} levels ({known}); add it to modes={{{levels.name!r}: ...}}, or leave it out."
                )
            cells = cells * self.dims[place] + own
        numbers = plain(part.column(len(self.levels) + 1)).to_numpy(zero_copy_only=False).astype(np.float64)
        self._held = (number, cells, numbers)
        return cells, numbers

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
        order = np.lexsort((cells, sample))
        same = (np.diff(sample[order]) == 0) & (np.diff(cells[order]) == 0)
        if same.any():
            row = int(order[1:][same].min())
            raise SampleError(
                f"{self.pieces.row(first + row)} gives {self.cell(first + row, int(cells[row]))} a second time; add "
                "such rows up first, or take one out."
            )
        return sample, cells, values

    def cell(self, row: int, cell: int) -> str:
        """A cell of the sample of a row, in words."""
        number = int(np.searchsorted(self._piece_starts, row, side="right")) - 1
        column = self.pieces.part(number, [self.columns.sample]).column(0)
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


class TableSource(Source):
    """A long table as dense samples."""

    kind = "table"

    def __init__(self, table: Table) -> None:
        self.name, self.shape, self.dtype = table.name, (len(table), *table.dims), np.dtype(np.float64)
        self.axes, self.shared = table.axes, table.pieces.shared
        self._table, self.files = table, table.pieces.files

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
        self.readable_elsewhere = table.pieces.shared
        self._table, self.files = table, table.pieces.files
        entries = max(1, int(table.starts[-1]) // self.length)
        self.layout = Layout(_bounds(table.starts), True, entries, False, private=not table.pieces.shared)

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
            row = int(self._table.starts[start]) + int(np.argmin(np.isfinite(values)))
            raise SampleError(f"{self._table.pieces.row(row)} has no finite value; fill it in, or take the row out.")
        coords = np.stack(np.unravel_index(cells, self.dims))
        return SparseBatch(coords, values, sample, stop - start, self.dims, start)


def _bounds(starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Batches of whole samples, each of about so many rows."""
    bounds = [0]
    while bounds[-1] < len(starts) - 1:
        end = int(np.searchsorted(starts, starts[bounds[-1]] + BATCH_ENTRIES, side="right")) - 1
        bounds.append(max(bounds[-1] + 1, end))
    return np.array(bounds)


def open_table(source: Any, columns: Columns | None, shuffle: int | None, nan_policy: NanPolicy) -> NumberedStream:
    """A table as a stream of samples."""
    if columns is None:
        raise StreamError(_what_to_do(source))
    table = Table(_pieces(source, columns), columns)
    if not len(table):
        raise StreamError(f"{table.name} has no rows; give at least one sample.")
    if columns.missing == "zero" and table.starts[-1] < DENSE_SHARE * table.size * len(table):
        if shuffle is not None or nan_policy != "raise":
            raise StreamError("shuffle and nan_policy are for dense samples, and this table is sparse; leave them out.")
        return SparseTableStream(table)
    return StoredStream(TableSource(table), shuffle, nan_policy)


def _pieces(source: Any, columns: Columns) -> Pieces:
    if not isinstance(source, str | os.PathLike):
        return MemoryPieces(source, columns.sample)
    path = _checked(source)
    if path.lower().endswith((".parquet", ".pq")):
        return ParquetPieces(path)
    try:
        table = read_csv(path, columns.value)
    except StreamError:  # if not all values are numbers, text tells which is none
        table = read_csv(path)
    return MemoryPieces(table, columns.sample, path)


def _checked(source: Any) -> str:
    path = os.fsdecode(source)
    if not os.path.exists(path):
        raise StreamError(f"no such file or folder: {path!r}.")
    check_regular(path)
    return path


def _what_to_do(source: Any) -> str:
    """Of a table that nothing was said of, maybe a matrix of numbers: what it is, and what to do."""
    if isinstance(source, str | os.PathLike):
        path, what = _checked(source), repr(os.fsdecode(source))
        is_parquet = path.lower().endswith((".parquet", ".pq"))
        columns = ParquetPieces(path).columns if is_parquet else csv_columns(path)[0]
        name, matrix, command = (
            what,
            "numpy.loadtxt(path, delimiter=',', skiprows=1)",
            " (tpca: --sample, --modes, --value)",
        )
    else:
        columns = list(map(str, getattr(source, "column_names", None) or source.columns))
        what, name, command = f"a {type(source).__name__}", "df", ""
        matrix = "df.to_numpy()" if hasattr(source, "to_numpy") else "df.to_pandas().to_numpy()"  # an Arrow table
    shown = ", ".join(map(brief, columns[:SHOWN])) + (", ..." if len(columns) > SHOWN else "")
    return (
        f"{what} is a table with columns {shown}, and a sample is an array: say which columns are the sample, the "
        "modes (axes of a sample) and the value, "
        f"tpca.open_stream({name}, sample=..., modes=[..., ...], value=...){command}, and fit that. "
        "A frame of numbers alone is taken as one sample a row (df.select_dtypes('number')); samples with several "
        f"axes are given as an array: {matrix}.reshape(n, d_1, ..., d_k)"
        f"{', saved with numpy.save for the command' if command else ''}."
    )
