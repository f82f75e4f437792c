"""``open_stream``: whatever holds samples, as a stream."""

from __future__ import annotations

import itertools
import os
import re
import urllib.parse
import urllib.request
from collections.abc import Iterable, Sequence
from typing import Any, get_args

import numpy as np

from tpca.errors import StreamError, reading
from tpca.integers import check_integer
from tpca.model import Samples
from tpca.streams.checks import are_samples, as_array, shape_of
from tpca.streams.iterables import IterableStream, OwnStream, SamplesStream, stacked
from tpca.streams.npy import NpyFolder, open_npy
from tpca.streams.protocol import Items, NanPolicy, Source, Stream
from tpca.streams.sparse import SparseStream, is_sparse
from tpca.streams.stored import ArraySource, StoredStream
from tpca.streams.stores import HDF5_SIGNATURE, DaskSource, hdf5_source, open_hdf5, open_zarr, zarr_source

_HDF5_SUFFIXES = (".h5", ".hdf5", ".hdf", ".he5", ".h5py")
_ZARR_FILES = ("zarr.json", ".zarray", ".zgroup")
_SUPPORTED = "a .npy file, a folder of them, a Zarr store (.zarr) or an HDF5 file (.h5, .hdf5)"


def open_stream(
    source: Any,
    *,
    items: Items = "auto",
    shuffle: bool = False,
    random_state: int = 0,
    nan_policy: NanPolicy = "raise",
) -> Stream:
    """A stream over whatever holds samples.

    Parameters
    ----------
    source
        An array ``(n, d_1, ..., d_k)`` of NumPy, Zarr, HDF5 or Dask; the path of a ``.npy`` file, of a folder of such
        files (read in the order of their names), of a Zarr store or of an HDF5 file, with ``::/path/of/array`` for an
        array inside it; the URL of a Zarr store; a list, or an iterable such as a data loader, of samples or of
        batches, also of sparse samples (``scipy.sparse``, or with ``coords``, ``data`` and ``shape``); synthetic
        samples; or a stream, also your own: anything with ``dims`` and ``batches``.
    items
        What the items of a list or iterable, or the files of a folder, are: ``"batches"`` ``(n, d_1, ..., d_k)`` or
        single ``"samples"`` ``(d_1, ..., d_k)``.  ``"auto"`` takes items of two dimensions for samples, and the batches
        of a data loader that has a ``batch_size``, items of different shapes and items that are less than two long for
        batches; all else is refused, because it can be either.  Of an iterable only the first item can be looked at.
        A list of samples is stacked: ``list(X)`` is the same as ``X``.
    shuffle, random_state
        Whether to read batches in random order, samples in random order within each, and the seed of that order, which
        is the same on every pass.  For stored data that are sorted or drift; it does not make samples independent that
        are not.
    nan_policy
        What to do about NaN and Inf: ``"raise"`` an error, ``"omit"`` the sample, or take the missing entries as
        ``"zero"`` and divide the others by the observed fraction, which keeps the mean unbiased if entries are missing
        at random.

    Examples
    --------
    >>> import numpy as np
    >>> stream = open_stream(np.zeros((10, 3, 4)))
    >>> stream.dims, stream.length
    ((3, 4), 10)
    """
    return open_known(source, None, items, shuffle, random_state, nan_policy)


def open_known(
    source: Any,
    dims: tuple[int, ...] | None,
    items: Items = "auto",
    shuffle: bool = False,
    random_state: int = 0,
    nan_policy: NanPolicy = "raise",
) -> Stream:
    """The same for samples whose shape may be known: with ``dims`` the items are never ambiguous."""
    _check_options(items, shuffle, nan_policy)
    if hasattr(source, "batches") and hasattr(source, "dims"):
        stream: Any = source if isinstance(source, Stream) else OwnStream(source)
        check_opened(stream, items, shuffle, random_state, nan_policy)
        opened: Stream = stream
        return opened
    stored = stored_source(source, items, dims)
    if stored is not None:
        return StoredStream(
            stored, check_integer("random_state", random_state, 0, StreamError) if shuffle else None, nan_policy
        )
    if shuffle:
        raise StreamError(
            f"shuffle needs samples that can be sliced, got {type(source).__name__}; shuffle them where they are made, "
            "or store them in an array or file first."
        )
    if isinstance(source, Samples):
        _only_batches(items, "synthetic samples")
        return SamplesStream(source)
    if isinstance(source, Iterable) and not isinstance(source, bytes | dict):
        head, looked_at = _peeked(source)
        if is_sparse(head):
            if nan_policy != "raise":
                raise StreamError(
                    f"nan_policy={nan_policy!r} is for dense samples; take NaN and Inf out of the sparse ones first."
                )
            return SparseStream(looked_at)
        return IterableStream(looked_at, _yields_samples(source, head, items, dims), nan_policy)
    raise StreamError(
        f"cannot read samples from {type(source).__name__}; give an array (n, d_1, ..., d_k), "
        f"an iterable of samples or batches, or {_SUPPORTED}."
    )


def _peeked(source: Iterable[Any]) -> tuple[Any, Iterable[Any]]:
    """The first item, and an iterable that still has it."""
    if isinstance(source, Sequence):
        return (source[0] if source else None), source
    items = iter(source)
    head = next(items, None)
    return head, source if head is None else itertools.chain([head], items)


def _yields_samples(source: Iterable[Any], head: Any, items: Items, dims: tuple[int, ...] | None) -> bool:
    """Whether an iterable that begins with ``head`` gives single samples; a list of them would have been stacked."""
    says_batches = items == "auto" and isinstance(getattr(source, "batch_size", None), int)  # a data loader
    if head is None or says_batches or isinstance(source, list | tuple):
        return False
    return are_samples([shape_of(head)], items, dims, "items")


def _check_options(items: str, shuffle: Any, nan_policy: str) -> None:
    if items not in get_args(Items):
        raise StreamError(f'items must be "auto", "batches" or "samples", got {items!r}.')
    if nan_policy not in get_args(NanPolicy):
        raise StreamError(f'nan_policy must be "raise", "omit" or "zero", got {nan_policy!r}.')
    if not isinstance(shuffle, bool | np.bool_):
        raise StreamError(f"shuffle must be True or False, got {shuffle!r}; the seed of the order is random_state.")


def check_opened(
    stream: Stream,
    items: Items = "auto",
    shuffle: bool = False,
    random_state: int = 0,  # noqa: ARG001 (that of an open stream has been used)
    nan_policy: NanPolicy = "raise",
) -> None:
    """Refuse options for what is open already, unless it was opened with the same."""
    kept = {
        "items": (items, "auto", "auto"),
        "shuffle": (bool(shuffle), False, stream.shuffle is not None),
        "nan_policy": (nan_policy, "raise", stream.nan_policy),
    }
    for name, (value, usual, own) in kept.items():
        if value not in (usual, own):
            raise StreamError(
                f"{name}={value!r} comes too late: a stream keeps the options it was opened with; "
                "give them to its own open_stream."
            )


def _only_batches(items: Items, what: str) -> None:
    if items == "samples":
        raise StreamError(
            f'items="samples" is for iterables and folders; {what} hold batches (n, d_1, ..., d_k): leave it out.'
        )


def stored_source(source: Any, items: Items = "auto", dims: tuple[int, ...] | None = None) -> Source | None:
    """``source`` as something that can be sliced; ``None`` if it cannot."""
    if isinstance(source, str | os.PathLike):
        return _stored_at(os.fsdecode(source), items, dims)
    if isinstance(source, list | tuple):
        return _listed(source, items, dims)
    package = type(source).__module__.partition(".")[0]
    if package == "zarr" and hasattr(source, "store"):
        _only_batches(items, "Zarr arrays")
        return zarr_source(source, "the Zarr array" if hasattr(source, "shape") else "what was given")
    if package == "h5py" and hasattr(source, "file"):
        _only_batches(items, "HDF5 datasets")
        return hdf5_source(source)
    if package == "dask" and hasattr(source, "chunksize"):
        _only_batches(items, "Dask arrays")
        return DaskSource(source)
    if isinstance(source, np.ndarray) or hasattr(source, "__array__"):
        _only_batches(items, "arrays")
        return ArraySource(as_array(source))
    return None


def _listed(source: Sequence[Any], items: Items, dims: tuple[int, ...] | None) -> Source | None:
    """A list of samples is the array that it makes; one of batches, or of sparse samples, stays a list."""
    if not source or is_sparse(source[0]):
        return None
    single = are_samples(map(shape_of, source), items, dims, "items")
    return ArraySource(stacked(source)) if single else None


def _stored_at(text: str, items: Items, dims: tuple[int, ...] | None) -> Source:
    """What lies at a path or URL, with the path of an array inside it after ``::``."""
    place, inner = _split(text)
    if re.match(r"file://", place):
        place = urllib.request.url2pathname(urllib.parse.urlsplit(place).path)
    if "://" in place:
        if place.endswith((".npy", *_HDF5_SUFFIXES)):
            raise StreamError(f"only Zarr stores are read from URLs, got {place!r}; copy the file here first.")
        _only_batches(items, "Zarr arrays")
        return open_zarr(place, inner)
    if not os.path.exists(place):
        raise StreamError(f"no such file or folder: {place!r}.")
    with reading(f"cannot read {place!r}", "check its permissions and its disk, or write it again"):
        return _folder(place, inner, items, dims) if os.path.isdir(place) else _file(place, inner, items)


def _split(text: str) -> tuple[str, str | None]:
    """Place and inner path; the ``::`` of a chained URL (``simplecache::s3://...``) is part of the place."""
    place, mark, inner = text.rpartition("::")
    return (text, None) if not mark or "://" in inner else (place, inner)


def _folder(place: str, inner: str | None, items: Items, dims: tuple[int, ...] | None) -> Source:
    zarr = place.rstrip("/").endswith(".zarr") or any(os.path.exists(os.path.join(place, f)) for f in _ZARR_FILES)
    if zarr or inner is not None:
        _only_batches(items, "Zarr arrays")
        return open_zarr(place, inner)
    return NpyFolder(place, items, dims)


def _file(place: str, inner: str | None, items: Items) -> Source:
    if place.endswith(".npy"):
        _only_batches(items, ".npy files")
        if inner is not None:
            raise StreamError(f"a .npy file holds one array, got {place + '::' + inner!r}; leave out '::{inner}'.")
        return open_npy(place)
    with open(place, "rb") as file:
        signed = file.read(len(HDF5_SIGNATURE)) == HDF5_SIGNATURE
    if place.endswith(_HDF5_SUFFIXES) or signed:
        _only_batches(items, "HDF5 datasets")
        return open_hdf5(place, inner)
    suffix = os.path.splitext(place)[1] or "no suffix"
    raise StreamError(f"cannot read samples from {place!r} ({suffix}); give {_SUPPORTED}.")
