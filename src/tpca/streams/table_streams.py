"""Streams of long tables: dense samples where most cells have a row, sparse ones where few do."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.errors import SampleError, StreamError, TpcaError, check_regular
from tpca.labels import labels_of
from tpca.model.sampling import BATCH_ENTRIES
from tpca.streams.paths import TABLES
from tpca.streams.protocol import Kind, Layout, NanPolicy, NumberedStream, Source, spread
from tpca.streams.stored import StoredStream
from tpca.streams.table_columns import Columns
from tpca.streams.table_files import CsvPieces, MemoryPieces, ParquetPieces, Pieces, brief
from tpca.streams.tables import Table
from tpca.tensors import Batch
from tpca.tensors.blocks import check_dims
from tpca.tensors.digest import digest
from tpca.tensors.sparse import SparseBatch

DENSE_SHARE = 0.05  # of cells with a row, from which on samples are dense: adding up costs far less than contracting
SHOWN = 8  # columns that a message names


class TableSource(Source):
    """A long table as dense samples."""

    kind: Kind = "table"

    def __init__(self, table: Table) -> None:
        self.name, self.shape, self.dtype = table.name, (len(table), *table.dims), np.dtype(np.float64)
        self.axes, self.shared = table.axes, table.pieces.shared
        self._table = table

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
        self._table = table
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


def is_table(source: Any) -> bool:
    """Whether it is a data frame, an Arrow table, or the path of a file that holds one."""
    if isinstance(source, str | os.PathLike):
        return os.path.splitext(os.fsdecode(source))[1].lower() in TABLES
    return type(source).__module__.partition(".")[0] in ("pandas", "pyarrow") and type(source).__name__ in (
        "DataFrame",
        "Table",
    )


def open_table(source: Any, columns: Columns | None, shuffle: int | None, nan_policy: NanPolicy) -> NumberedStream:
    """A table as a stream of samples."""
    if columns is None:
        raise StreamError(_what_to_do(source))
    if not is_table(source):
        raise StreamError(
            f"sample, modes and value are for long tables (.csv, .parquet, a data frame), got {type(source).__name__}; "
            "leave them out."
        )
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
    path = os.fsdecode(source)
    _check_file(path)
    return _file_pieces(path)


def _check_file(path: str) -> None:
    if not os.path.exists(path):
        raise StreamError(f"no such file or folder: {path!r}.")
    check_regular(path)


def _file_pieces(path: str) -> Pieces:
    return ParquetPieces(path) if path.lower().endswith((".parquet", ".pq")) else CsvPieces(path)


def _what_to_do(source: Any) -> str:
    """Of a table that nothing was said of, maybe a matrix of numbers: what it is, and what to do."""
    file = isinstance(source, str | os.PathLike)
    name = repr(os.fsdecode(source)) if file else "df"
    matrix = "numpy.loadtxt(path, delimiter=',')" if file else "df.to_numpy()"
    matrix = matrix if file or hasattr(source, "to_numpy") else "df.to_pandas().to_numpy()"  # an Arrow table
    command = " (tpca: --sample, --modes, --value)" if file else ""
    return (
        f"{name if file else f'a {type(source).__name__}'} is a table{_columns(source)}, and a sample is an array: say "
        "which columns are the sample, the modes (axes of a sample) and the value, "
        f"tpca.open_stream({name}, sample=..., modes=[..., ...], value=...){command}, and fit that. A matrix, one "
        f"sample a row, is given as an array: {matrix}.reshape(n, d_1, ..., d_k)"
        f"{', saved with numpy.save for the command' if file else ''}."
    )


def _columns(source: Any) -> str:
    """The columns of a table; none of a file that cannot be parsed, or begins with numbers."""
    if isinstance(source, str | os.PathLike):
        names = _file_columns(os.fsdecode(source))
    else:
        names = list(map(str, getattr(source, "column_names", None) or source.columns))
    shown = ", ".join(map(brief, names[:SHOWN])) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
    return f" with columns {shown}" if names else ""


def _file_columns(path: str) -> list[str]:
    _check_file(path)
    try:
        names = _file_pieces(path).columns
    except TpcaError:
        return []
    return [] if any(map(_is_number, names)) else names


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
