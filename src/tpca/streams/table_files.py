"""Long tables in pieces: Arrow tables and data frames in memory, Parquet by row groups, CSV by blocks of lines.

pyarrow is optional and imported where it is used.  Text of a CSV file stays text here: whether it means numbers can
only be told when all of it was seen.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from tpca.errors import SampleError, StreamError, reading
from tpca.streams.store_looks import listed
from tpca.streams.stores import absolute, package

BLOCK_BYTES = 2**24  # of a CSV file that are parsed at a time
LONGEST = 60  # letters of a value that messages show
PIECE_ROWS = 2**19  # of a table in memory


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

    def read(self, number: int, columns: Sequence[str], value: str | None = None, first: int = 0) -> Any:
        """An Arrow table of these columns of a piece, in their order, ``value`` last and as float64.

        ``first`` is the number of its first row, for messages.
        """
        raise NotImplementedError

    def row(self, number: int) -> str:
        """How a row is found, from its number."""
        return f"row {number} of {self.name}"

    def check(self, columns: Sequence[str]) -> None:
        """Refuse columns that there are not."""
        for column in columns:
            if column not in self.columns:
                raise StreamError(f"{self.name} has no column {column!r}; its columns are {listed(self.columns)}.")


class MemoryPieces(Pieces):
    """An Arrow table, or a data frame, with the rows of a sample put next to each other where they are not."""

    shared = False

    def __init__(self, table: Any, sample: str) -> None:
        arrow = package("pyarrow", "tables", "reading tables")
        if type(table).__module__.partition(".")[0] == "pandas":
            table = arrow.Table.from_pandas(table, preserve_index=False)
        self.name, self.columns = "the table", list(map(str, table.column_names))
        self.check([sample])
        codes = coded(plain(table.column(sample)))[0]
        runs = 1 + np.count_nonzero(np.diff(codes))
        self._order = None if runs == len(np.unique(codes)) else np.argsort(codes, kind="stable")
        self._table = table if self._order is None else table.take(self._order)
        self.count = max(1, -(-table.num_rows // PIECE_ROWS))

    def read(self, number: int, columns: Sequence[str], value: str | None = None, first: int = 0) -> Any:
        """Some rows."""
        wanted = [*columns, *([] if value is None else [value])]
        return as_floats(self._table.select(wanted).slice(number * PIECE_ROWS, PIECE_ROWS), value, self, first)

    def row(self, number: int) -> str:
        """As it was before rows were put next to each other."""
        return super().row(number if self._order is None else int(self._order[number]))


class ParquetPieces(Pieces):
    """A Parquet file, row group by row group."""

    def __init__(self, path: str) -> None:
        self.path, self.name = absolute(path), repr(path)
        with reading(f"cannot open {path!r} as a Parquet file", "write it again"):
            file = self._open()
            self.columns, self.count = list(file.schema_arrow.names), file.num_row_groups

    def _open(self) -> Any:
        return package("pyarrow.parquet", "tables", "reading tables").ParquetFile(self.path)

    def read(self, number: int, columns: Sequence[str], value: str | None = None, first: int = 0) -> Any:
        """A row group."""
        wanted = [*columns, *([] if value is None else [value])]
        with reading(f"cannot read row group {number} of {self.name}", "the file is damaged: write it again"):
            return as_floats(self._open().read_row_group(number, columns=wanted).select(wanted), value, self, first)


class CsvPieces(Pieces):
    """A CSV file, or one with tabs or semicolons, in blocks of whole lines."""

    texts = True

    def __init__(self, path: str) -> None:
        self.path, self.name = absolute(path), repr(path)
        with reading(f"cannot read {path!r}", "write it again, as text in UTF-8"), open(self.path, "rb") as file:
            head = file.readline().decode("utf-8-sig")
            self._delimiter = max(",;\t", key=head.count)
            self.columns = next(csv.reader(io.StringIO(head), delimiter=self._delimiter), [])
            self._bounds = _line_blocks(file, file.tell(), os.path.getsize(self.path))
        if not self.columns:
            raise StreamError(f"{path!r} is empty; its first line must name the columns.")
        self.count = len(self._bounds) - 1

    def read(self, number: int, columns: Sequence[str], value: str | None = None, first: int = 0) -> Any:
        """A block of lines."""
        arrow = package("pyarrow", "tables", "reading tables")
        types = {column: arrow.string() for column in columns}
        wanted = types | ({} if value is None else {value: arrow.float64()})
        with reading(f"cannot read {self.name} as a table", "write it again, as text in UTF-8"):
            try:
                return self._parsed(number, wanted)
            except arrow.ArrowInvalid:
                if value is None:
                    raise
            texts = self._parsed(number, types | {value: arrow.string()})
        return as_floats(texts, value, self, first)  # says where there is no number

    def _parsed(self, number: int, types: dict[str, Any]) -> Any:
        parser = package("pyarrow.csv", "tables", "reading tables")
        start, stop = self._bounds[number : number + 2]
        with open(self.path, "rb") as file:
            file.seek(start)
            lines = file.read(stop - start)
        return parser.read_csv(
            io.BytesIO(lines),
            read_options=parser.ReadOptions(column_names=self.columns, use_threads=False, block_size=len(lines) + 1),
            parse_options=parser.ParseOptions(delimiter=self._delimiter, newlines_in_values=b'"' in lines),
            convert_options=parser.ConvertOptions(
                include_columns=list(types), column_types=types, strings_can_be_null=False
            ),
        )

    def row(self, number: int) -> str:
        """With its line, where no field has a line break."""
        return f"row {number} of {self.name} (line {number + 2})"


def _line_blocks(file: Any, start: int, stop: int) -> list[int]:
    """Where blocks of whole lines begin, and the end; a line break between quotes ends no line."""
    bounds = [start]
    while bounds[-1] < stop:
        file.seek(bounds[-1])
        block, cut = b"", 0
        while not cut:
            more = file.read(BLOCK_BYTES)
            block += more
            cut = len(block) if not more or bounds[-1] + len(block) >= stop else block.rfind(b"\n") + 1
            while cut < len(block) and cut and block.count(b'"', 0, cut) % 2:
                cut = block.rfind(b"\n", 0, cut - 1) + 1
        bounds.append(bounds[-1] + cut)
    return bounds


def as_floats(table: Any, value: str | None, pieces: Pieces, first: int) -> Any:
    """The table with its last column, if that holds values, as float64; a value that is no number is named."""
    if value is None:
        return table
    arrow = package("pyarrow", "tables", "reading tables")
    column = plain(table.column(value))
    try:
        return table.set_column(table.num_columns - 1, value, column.cast(arrow.float64(), safe=False))
    except (arrow.ArrowInvalid, arrow.ArrowNotImplementedError):
        values = column.to_pylist()
        at = next((place for place, one in enumerate(values) if not _is_number(one)), 0)
        raise SampleError(
            f"{pieces.row(first + at)} has {value} {brief(values[at])}, expected a number; convert column {value!r} "
            "first, or name another one as value."
        ) from None


def brief(one: Any) -> str:
    """A value of a table as messages show it."""
    text = repr(one)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."


def _is_number(one: Any) -> bool:
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
