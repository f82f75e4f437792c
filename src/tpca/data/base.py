"""A stream yields batches; it may be endless, and may be read again if it says so.  A source is what can be sliced.

Along which axis the samples lie; what may pass as a sample: shape, dtype, missing entries; and whether the items of
lists, iterables and folders are batches or single samples (docs/data.md has the rule; an array is always a batch).
"""

from __future__ import annotations

import itertools
import math
import threading
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from tpca.errors import SampleError, StreamError, StreamWarning, one_line
from tpca.labels import Axis, Labels
from tpca.tensors import Batch, DenseBatch
from tpca.tensors.blocks import check_dims
from tpca.tensors.namespaces import home_of, namespace, numpy_dtype, permuted, rows_of, to_host

KINDS = ("array", "npy", "folder", "zarr", "hdf5", "dask", "xarray", "table", "iterable", "synthetic")
Items = Literal["auto", "batches", "samples"]
NanPolicy = Literal["raise", "omit", "zero"]
NAN_POLICIES: tuple[NanPolicy, ...] = get_args(NanPolicy)
SampleDim = str | int | None
Shape = tuple[int, ...]

AnyBatch = TypeVar("AnyBatch", bound=Batch)

# What tells data apart is a look at some samples spread over a store, that costs no more than a few reads.
MAX_LOOKS = 8
MAX_LOOK_BYTES = 2**26  # read for them, unless two samples are more
FEW, LONG, TIMES = 8, 30, 4  # samples, beside an axis so long, and so many times as long: they may lie along that one
MIN_ALIKE = 8  # fewer samples prove nothing, so a list of fewer arrays may well be one of batches
WHERE = "to open_stream, or tpca with --items"
# Bytes that are read ahead, where a batch is not larger: what a core reads from the system's cache during a short look.
AHEAD_BYTES = 2**26
MAX_AHEAD = 16
READER = "tpca-prefetch"  # what the threads that read are called

Item = TypeVar("Item")


@dataclass(frozen=True)
class Layout:
    """How a stream that can be read at any place is cut into batches."""

    bounds: NDArray[np.int64]
    """Place of the first sample of every batch, and of the end."""
    certain: bool
    """Whether every batch has all its samples; if not, some may be left out when it is read."""
    entries: int
    """Numbers that have to be read for one sample."""
    summable: bool
    """Whether samples come whole, as arrays that can be added up."""
    alone: bool = False
    """Whether every batch stays by itself, wherever it is (the blocks of a Dask array)."""
    private: bool = False
    """Whether it is in the memory of this process, which nobody else can read."""

    @property
    def count(self) -> int:
        """Number of batches."""
        return len(self.bounds) - 1


class Stream:
    """Samples of one shape, batch by batch; they pass by once, unless a stream says otherwise."""

    dims: tuple[int, ...]
    """Shape of one sample."""
    dtype: np.dtype[Any]
    """Type of the entries as they are worked on."""
    kind: str
    """Which sort of data."""
    length: int | None = None
    """Number of samples; ``None`` if unknown or endless."""
    endless: bool = False
    """Whether the samples are known never to end."""
    rereadable: bool = False
    """Whether :meth:`batches` may be called again for another pass over the same finite data."""
    layout: Layout | None = None
    """Where the batches begin; ``None`` where they cannot be read at any place."""
    ahead: int = 0
    """Batches that may be in memory beside the one that is worked on."""
    readable_elsewhere: bool = False
    """Whether another machine can read the samples."""
    whole: bool = True
    """Whether samples come as arrays that are held in full: neither sparse, nor products of views, nor in slabs."""
    nan_policy: NanPolicy = "raise"
    """What is done about NaN and Inf."""
    shuffle: int | None = None
    """Seed of the order of the samples, if that is a random one."""
    labels: Labels | None = None
    """Names of the axes and of their entries, where the data have them."""
    like: Any = None
    """Of samples on a device: an array there; ``None`` of those of the host."""
    files: tuple[str, ...] = ()
    """Where the samples are stored: files, folders or URLs, to notice that they change."""

    @property
    def partial(self) -> bool:
        """Whether entries of samples may be missing, those that are there being used."""
        return self.nan_policy == "zero"

    @property
    def identity(self) -> str:
        """Says which data these are, the same in every process; a checkpoint compares it."""
        raise NotImplementedError

    def batches(self, start: int = 0) -> Iterator[Batch]:
        """The batches from the one whose ``first`` is ``start``, with the same bounds and contents every time."""
        raise NotImplementedError

    def reading_ahead_within(self, nbytes: int) -> Stream:  # noqa: ARG002
        """The same stream, of which no more than so many bytes are read ahead."""
        return self


class NumberedStream(Stream):
    """A stream whose batches can be read in any order, by any process, where it has a layout."""

    layout: Layout
    readers: int = 1
    """Threads that read batches at the same time."""

    def batches(self, start: int = 0) -> Iterator[Any]:
        """The batches from the one whose ``first`` is ``start``; some are read ahead, where the stream says so."""
        number = int(np.searchsorted(self.layout.bounds, start))
        if number > self.layout.count or self.layout.bounds[number] != start:
            raise StreamError(
                f"no batch starts at sample {start}; go on with the data and the options that the run was started with."
            )
        numbers = range(number, self.layout.count)
        ahead = read_ahead(self.batch, numbers, self.ahead, self.readers) if self.ahead else map(self.batch, numbers)
        return without_empty(ahead)

    def batch(self, number: int, parts: Sequence[NDArray[Any]] | None = None) -> Any:
        """Batch ``number``, which may be empty; from ``parts``, what :meth:`lazy_parts` gave, if these are given."""
        raise NotImplementedError

    def lazy_parts(self, number: int) -> list[Any] | None:  # noqa: ARG002
        """The Dask arrays that batch ``number`` consists of; ``None`` where it is read from a file."""
        return None

    def for_workers(self) -> Self:
        """What a worker needs of it: all but a Dask array, whose blocks come by themselves."""
        return self

    def _range(self, number: int) -> tuple[int, int]:
        """The places of batch ``number``."""
        first, stop = self.layout.bounds[number : number + 2]
        return int(first), int(stop)


def without_empty(batches: Iterable[AnyBatch]) -> Iterator[AnyBatch]:
    """The batches, an empty one made part of the next, so that its dropped samples are counted there.

    If nothing is left at the very end, a last empty batch carries the count.
    """
    waiting: AnyBatch | None = None
    for batch in batches:
        if waiting is not None:
            batch.first, batch.dropped = waiting.first, waiting.dropped + batch.dropped
        waiting = None if len(batch) else batch
        if waiting is None:
            yield batch
    if waiting is not None:
        yield waiting


def depth(nbytes: int, count: int) -> int:
    """Items of so many bytes to read ahead, of ``count`` in all; one at least, if there is a second."""
    return min(max(1, min(AHEAD_BYTES // max(1, nbytes), MAX_AHEAD)), count - 1)


def read_ahead(
    read: Callable[[int], Item], numbers: Iterable[int], ahead: int = 1, readers: int = 1
) -> Generator[Item]:
    """``read(number)`` of all numbers, in their order, ``ahead`` of them begun while one is in use.

    A solver that works between two rounds takes nothing meanwhile, and finds the beginning of the next round read.
    At most ``ahead`` + 1 items are in memory; ``readers`` threads read them, each one at a time.  An error arrives
    where its item would have, whoever met it first.  The threads start with the first item and are gone when the
    iterator is exhausted, closed or garbage collected; what they are reading then is read to its end and dropped.
    """
    pool = ThreadPoolExecutor(max(1, min(readers, ahead)), thread_name_prefix=READER)
    rest = iter(numbers)
    begun = deque(pool.submit(read, number) for number in itertools.islice(rest, ahead + 1))  # nothing is in use yet
    try:
        while begun:
            item = begun.popleft().result()
            begun.extend(pool.submit(read, number) for number in itertools.islice(rest, ahead - len(begun)))
            yield item
            del item  # else the consumed item would stay in memory while the next one is waited for
    finally:  # a reader whose garbage collector gets here cannot wait for itself
        pool.shutdown(wait=not threading.current_thread().name.startswith(READER), cancel_futures=True)


class Source:
    """Samples that are stored and can be sliced: what a stored stream reads."""

    kind: str
    """Which sort of store."""
    name: str
    """What messages call it."""
    shape: tuple[int, ...]
    """Shape ``(n, d_1, ..., d_k̄)`` of the whole."""
    dtype: np.dtype[Any]
    """Type of the entries as they are stored."""
    chunks: tuple[int, ...] | None = None
    """Length, along every axis, of the pieces it is stored in; ``None`` if it is stored in one."""
    shared: bool = True
    """Whether other processes can open it."""
    edges: NDArray[np.int64] | None = None
    """Of a Dask array: the first sample of every block, and the end; ``None`` of what is read from a store."""
    axes: tuple[Axis, ...] = ()
    """Names and coordinates of all axes; empty where the store gives none."""
    files: tuple[str, ...] = ()
    """Where it is stored: files, folders or URLs."""
    parallel: bool = False
    """Whether several threads may read at once, and gain by it; not where a library has one lock for all of them."""
    like: Any = None
    """Of samples on a device: the array there."""

    def transposed(self, order: tuple[int, ...]) -> Source:
        """The same with its axes in another order."""
        return Turned(self, order)

    def part(self, start: int, stop: int) -> Any:  # noqa: ARG002
        """Of a Dask array: some samples, as one block that stays where it is; ``None`` of all else."""
        return None

    def for_workers(self) -> Source:
        """What a worker needs of it."""
        return self

    def read(self, key: tuple[slice, ...]) -> NDArray[Any]:
        """The entries in these ranges of the leading axes."""
        raise NotImplementedError


class ArraySource(Source):
    """An array in memory, or on a device."""

    kind = "array"
    shared = False

    def __init__(self, array: Any, axes: tuple[Axis, ...] = (), name: str = "the array") -> None:
        self.shape, self.axes, self.name = tuple(array.shape), axes, name
        self.dtype = numpy_dtype(array)
        self.like = None if isinstance(array, np.ndarray) else array
        self._array = array

    def read(self, key: tuple[slice, ...]) -> Any:
        """A view of the entries."""
        return self._array[(*key, ...)]


class Turned(Source):
    """A source with its axes in another order: what is read is turned, a batch at a time."""

    def __init__(self, source: Source, order: Sequence[int]) -> None:
        for name in Source.__annotations__:
            setattr(self, name, getattr(source, name))
        self._source, self._order = source, tuple(order)
        self.shape = tuple(source.shape[i] for i in order)
        self.chunks = None if source.chunks is None else tuple(source.chunks[i] for i in order)
        self.axes = tuple(source.axes[i] for i in order) if source.axes else ()
        self.like = None if source.like is None else permuted(source.like, order)

    def read(self, key: tuple[slice, ...]) -> NDArray[Any]:
        """The entries in these ranges of the leading axes."""
        own = [slice(None)] * len(self._order)
        for place, part in zip(self._order, key, strict=False):
            own[place] = part
        return np.transpose(self._source.read(tuple(own)), self._order)


def spread(length: int, cost: int) -> list[int]:
    """The samples to look at, where one costs so many bytes to read: the first, the last, and others between."""
    count = min(max(2, MAX_LOOK_BYTES // max(1, cost)), MAX_LOOKS, length)
    return [place * (length - 1) // max(1, count - 1) for place in range(count)]


def read_cost(source: Source, lengths: tuple[int, ...]) -> int:
    """Bytes that are read for the first ``lengths`` entries of one sample: no less than whole chunks."""
    chunks = source.chunks or (1,) * len(source.shape)
    whole = (-(-length // chunk) * chunk for chunk, length in zip(chunks, (1, *lengths), strict=True))
    return math.prod(whole) * source.dtype.itemsize


def turned(source: Source, order: Sequence[int]) -> Source:
    """The source with its axes in another order."""
    return source if list(order) == sorted(order) else source.transposed(tuple(order))


def along(source: Source, dim: SampleDim) -> Source:
    """The source with the samples along its first axis, the others in their order behind it."""
    if dim is None:
        return source
    names, count = [axis.name for axis in source.axes], len(source.shape)
    try:  # the command gives numbers as text
        named = isinstance(dim, str) and names.count(dim) == 1
        number = names.index(str(dim)) if named else count if isinstance(dim, bool) else int(dim)
    except (TypeError, ValueError):
        number = count
    if not -count <= number < count:
        known = ", ".join(repr(name) for name in names if name) or "which have no names"
        raise StreamError(
            f"dim (tpca: --dim) must be an axis of {source.name}, by its name ({known}) or its number, 0 to "
            f"{count - 1}; got {dim!r}."
        )
    return turned(source, [number % count, *(i for i in range(count) if i != number % count)])


def check_axis(source: Any, data: Any, dim: SampleDim, **told: Any) -> None:
    """Say so where samples seem to lie along another axis than the first, and nobody named one.

    Refused if what is ``told`` of them, by name, has as many rows as another axis is long; a note if there are next to
    none of them beside a long axis.  ``data`` are the samples as they were opened; of a ``source`` that was open
    already nobody knows what the axes were.
    """
    n, dims = data.length, tuple(data.dims)
    if dim is not None or n is None or source is data:
        return
    for name, values in told.items():
        # Also of what only has __array__, and of rows of different lengths.
        shape = () if values is None or isinstance(values, str) else np.asarray(values, dtype=object).shape
        rows = shape[0] if shape else n
        if rows != n and rows in dims:
            raise SampleError(
                f"{name} must have a row for every sample, got {rows}, and the samples, along the first axis, are {n}; "
                f"{_way_out(data, dims.index(rows))}."
            )
    long = [mode for mode, d in enumerate(dims) if d >= max(LONG, TIMES * n)]
    if n < FEW and long:
        warnings.warn(
            f"the samples, along the first axis, are {n}, of shape {dims}; {_way_out(data, long[-1])}.",
            StreamWarning,
            stacklevel=3,
        )


def _way_out(data: Any, mode: int) -> str:
    name = data.labels.axes[mode].name if data.labels is not None else ""
    given = repr(name) if name else mode + 1
    return (
        f"axis {given} is {data.dims[mode]} long: if the samples lie along it, give dim={given} "
        f"(tpca: --dim {name or given})"
    )


def as_array(item: Any, first: int = 0) -> NDArray[Any]:
    """``item`` as an array of NumPy; tensors of other libraries come through its own protocol."""
    if isinstance(item, np.ma.MaskedArray):
        raise SampleError(
            f"masked arrays would lose their mask, got one at sample {first}; "
            'give array.filled(np.nan) with nan_policy="omit" or "zero".'
        )
    try:
        return np.asarray(item)
    except Exception as cause:  # whatever another library's __array__ raises
        raise SampleError(
            f"cannot make an array of a {type(item).__name__} at sample {first}: {one_line(cause)}; "
            "give NumPy arrays, all samples of one shape."
        ) from cause


def untracked(array: Any) -> Any:
    """An array on a device whose operations nobody records for derivatives (PyTorch); sparse ones are refused."""
    if getattr(array, "is_sparse", False):
        raise SampleError(
            f"sparse tensors of {home_of(array)} are not read; give scipy.sparse or sparse.COO samples, or to_dense()."
        )
    return array.detach() if hasattr(array, "detach") else array


def float_dtype(dtype: np.dtype[Any], where: str = "") -> np.dtype[Any]:
    """The dtype in which samples stored as ``dtype`` are worked on: native float32 or float64."""
    if dtype.kind not in "fiub":
        raise SampleError(f"samples must be real numbers, got dtype {dtype}{where}; convert them to float first.")
    if dtype.kind == "f":
        return np.dtype(np.float32 if dtype.itemsize <= 4 else np.float64)
    return np.dtype(np.float32 if dtype.itemsize < 4 else np.float64)


def to_floats(array: NDArray[Any]) -> NDArray[Any]:
    """``array`` as native, C-contiguous floats; itself if it is that already."""
    dtype = float_dtype(array.dtype)
    if array.dtype == dtype:
        return np.ascontiguousarray(array)
    with np.errstate(over="ignore"):  # a longdouble that does not fit becomes Inf, and is then a missing entry
        return np.ascontiguousarray(array, dtype=dtype)


def sample_dims(shape: tuple[int, ...], what: str, way_out: str = "") -> tuple[int, ...]:
    """Dims of the samples of an array of samples."""
    if len(shape) < 2:
        raise SampleError(
            f"{what} must have shape (n, d_1, ..., d_k), a first axis of samples and at least one more, got "
            f"{shape}{way_out or '; reshape it'}."
        )
    return check_dims(shape[1:], 1)


def all_finite(block: NDArray[Any]) -> bool:
    """Whether no entry is NaN or Inf: one cheap read of clean data; only a suspect block is looked at closely."""
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(block.sum())) or bool(np.isfinite(block).all())


def as_batch(samples: Any, first: int, number: int, policy: NanPolicy) -> DenseBatch:
    """The samples from ``number`` on, of the host or a device, as the batch at ``first``.

    An error about missing entries can wait for their use.  Samples to be skipped, or entries to be filled in, cannot:
    which samples these are is told to the host, one number a sample, and only where a sum shows that there are any.
    """
    samples = to_floats(samples) if isinstance(samples, np.ndarray) else samples
    batch = DenseBatch(samples, first, unchecked=number if policy == "raise" else None)
    if number != first:
        batch.moved(number - first)
    if policy == "raise" or batch.complete:
        return batch
    samples = batch.samples
    xp = namespace(samples)
    finite = xp.isfinite(samples)
    flat = xp.reshape(finite, (len(batch), -1))
    keep = np.flatnonzero(to_host(xp.all(flat, axis=1) if policy == "omit" else xp.any(flat, axis=1)))
    kept, exposure = rows_of(samples, keep), None
    if policy == "zero":
        exposure = rows_of(finite, keep)
        kept = xp.where(exposure, kept, xp.zeros_like(kept))
    return DenseBatch(kept, first, len(batch) - len(keep), exposure=exposure, places=number + keep)


def are_samples(
    shapes: Iterable[Shape | None], items: Items, dims: Shape | None, what: str, alike: int | None = None
) -> bool:
    """Whether items of these shapes are single samples; an error if nobody can know.

    ``shapes`` are those that can be seen before anything is read: of the whole of a list or folder, of the first item
    of an iterator.  So many of one shape that are ``alike`` are taken for samples, with a note.
    """
    if items != "auto":
        return items == "samples"
    rest = iter(shapes)
    first = next(rest, None)
    if dims is not None or first is None:
        return first is not None and first == dims
    if len(first) < 3:
        return True
    same = [shape == first for shape in rest] if first[0] >= 2 else [False]
    if not all(same):
        return False
    if alike is not None and 1 + len(same) >= alike:
        warnings.warn(
            f"{what} of shape {first} are taken for single samples of that shape, one each; if they are batches of "
            f'samples {first[1:]}, say items="batches", and items="samples" to have no note ({WHERE}).',
            StreamWarning,
            stacklevel=2,
        )
        return True
    raise StreamError(
        f"{what} of shape {first} can be batches of samples {first[1:]}, or single samples {first}; say "
        f'items="batches" or items="samples" ({WHERE}).'
    )


def shape_of(item: Any) -> Shape | None:
    """Shape of the array in an item, which is not loaded for it; ``None`` where reading it will fail, and say why."""
    try:
        part = unwrapped(item, 0)
        shape = getattr(part, "shape", None)
        return np.shape(part) if shape is None else tuple(shape)
    except Exception:
        return None


def unwrapped(item: Any, first: int) -> Any:
    """The array of a data loader's item: loaders wrap it into a tuple or list of one."""
    if isinstance(item, Mapping):
        raise SampleError(
            f"an item must be one array of samples, got a mapping at sample {first}; "
            "yield only the samples, e.g. (item['x'] for item in loader)."
        )
    if not isinstance(item, tuple | list) or not any(len(getattr(part, "shape", None) or ()) for part in item):
        return item
    if len(item) > 1:
        raise SampleError(
            f"an item must be one array of samples, got a {type(item).__name__} of {len(item)} at sample {first}; "
            "yield only the samples, e.g. (x for x, _ in loader), or one array, e.g. np.stack(item)."
        )
    return item[0]
