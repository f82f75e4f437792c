"""``open_stream``: whatever holds samples, as a stream; what lies at a path or URL, as something that can be sliced.

Epochs of MNE-Python and dictionaries of arrays are arrays that name their axes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

import numpy as np

from tpca.data.alignment import aligned_views
from tpca.data.base import (
    MIN_ALIKE,
    NAN_POLICIES,
    ArraySource,
    Items,
    NanPolicy,
    SampleDim,
    Source,
    Stream,
    along,
    are_samples,
    as_array,
    shape_of,
    untracked,
)
from tpca.data.iterables import OwnStream, SamplesStream, is_sparse, open_iterable, stacked
from tpca.data.numpy_files import NpyFile, NpyFolder, open_mat, open_npz
from tpca.data.places import is_url, split_place
from tpca.data.stored import StoredStream
from tpca.data.stores import (
    HDF5_SIGNATURE,
    DaskSource,
    ZarrSource,
    hdf5_source,
    labelled_source,
    open_hdf5,
    open_zarr,
    package,
)
from tpca.data.tables import TABLES, Missing, columns_of, number_table, open_table
from tpca.errors import StreamError, check_integer, check_regular, reading
from tpca.labels import Axis, as_coords
from tpca.model import Samples
from tpca.tensors.namespaces import is_device_array, library

_HDF5_SUFFIXES = (".h5", ".hdf5", ".hdf", ".he5", ".h5py", ".nc", ".nc4")
_FILES = (".npy", ".npz", ".mat", *_HDF5_SUFFIXES)
_ZARR_FILES = ("zarr.json", ".zarray", ".zgroup")
SUPPORTED = (
    "a .npy or .npz file, a folder of .npy files, a Zarr store (.zarr), an HDF5 or NetCDF 4 file (.h5, .nc), "
    "a .mat file, or a table (.csv, .parquet)"
)


def stored_at(text: str, items: Items, dims: tuple[int, ...] | None) -> Source:
    """What lies at a path or URL, with the path of an array inside it after ``::``."""
    place, inner = split_place(text)
    if is_url(place):
        if place.endswith((*_FILES, *TABLES)):
            raise StreamError(f"only Zarr stores are read from URLs, got {place!r}; copy the file here first.")
        package("fsspec", "remote", "reading URLs")
        source, known = open_zarr(place, inner), f"{place}/{inner or ''}"
    elif not os.path.exists(place):
        raise StreamError(f"no such file or folder: {place!r}.")
    else:
        with reading(f"cannot read {place!r}", "check its permissions and its disk, or write it again"):
            if os.path.isdir(place):
                named = any(os.path.exists(os.path.join(place, file)) for file in _ZARR_FILES)
                zarr = named or inner is not None or place.rstrip("/").endswith(".zarr")
                source = open_zarr(place, inner) if zarr else NpyFolder(place, items, dims)
                known = os.path.join(place, (inner or "").strip("/"))
            else:
                source, known = _file(place, inner), place
    source.files = source.files or (known.rstrip("/"),)
    return source


def _file(place: str, inner: str | None) -> Source:
    check_regular(place)
    with open(place, "rb") as file:
        head = file.read(len(HDF5_SIGNATURE))
    suffix = os.path.splitext(place)[1].lower()
    if not head:
        raise StreamError(f"{place!r} is empty (0 bytes); write it again.")
    if suffix in (".npy", *TABLES):
        if inner is not None:
            raise StreamError(f"a {suffix} file holds one array, got {place + '::' + inner!r}; leave out '::{inner}'.")
        return NpyFile(place) if suffix == ".npy" else number_table(place)
    if suffix in (".npz", ".mat"):
        return (open_npz if suffix == ".npz" else open_mat)(place, inner)
    if head.startswith(b"CDF") and suffix in (".nc", ".cdf"):
        raise StreamError(
            f"{place!r} is a NetCDF 3 file; open it with xarray.open_dataset and give one of its variables, or write "
            "it again as NetCDF 4."
        )
    if suffix in _HDF5_SUFFIXES or head == HDF5_SIGNATURE:
        return open_hdf5(place, inner)
    raise StreamError(f"cannot read samples from {place!r} ({suffix or 'no suffix'}); give {SUPPORTED}.")


def open_stream(
    source: Any,
    *,
    items: Items = "auto",
    shuffle: bool = False,
    random_state: int = 0,
    nan_policy: NanPolicy = "raise",
    dim: SampleDim = None,
    sample: str | None = None,
    modes: Sequence[str] | Mapping[str, Sequence[Any] | None] | None = None,
    value: str | None = None,
    missing: Missing = "raise",
) -> Stream:
    """A stream over whatever holds samples.

    Names of axes and coordinates that the data have are in ``labels``, and go on to the estimate.

    Parameters
    ----------
    source
        An array ``(n, d_1, ..., d_k)`` of NumPy, xarray, Zarr, HDF5 or Dask, or of PyTorch, JAX, CuPy and others with
        the array API, whose samples stay on their device; the path of a ``.npy``, ``.npz`` or
        ``.mat`` file, of a folder of ``.npy`` files (read in the order of their names), of a Zarr store or of an HDF5
        or NetCDF 4 file, with ``::/path/of/array`` for an array inside it; the URL of a Zarr store; a table of numbers
        (a data frame, a ``.csv`` or ``.parquet`` file whose columns have names), a sample in every row; a long table
        (see ``sample``); a list, or an iterable such as a data loader, of
        samples or of batches, also of sparse samples (``scipy.sparse``, or with ``coords``, ``data`` and ``shape``);
        synthetic samples; or a stream, also your own: anything with ``dims`` and ``batches``.
    items
        What the items of a list or iterable, or the files of a folder, are: ``"batches"`` ``(n, d_1, ..., d_k)`` or
        single ``"samples"`` ``(d_1, ..., d_k)``.  ``"auto"`` takes items of one or two dimensions for samples.  It
        takes the batches of a data loader that has a ``batch_size``, items of different shapes and items that are less
        than two long for batches.  All else can be either: eight or more of one shape are taken for samples, as is what
        an iterator gives, with a :class:`~tpca.errors.StreamWarning`; fewer are refused.
        A list of samples is stacked: ``list(X)`` is the same as ``X``, as is ``X.tolist()``.
    shuffle, random_state
        Whether to read batches in random order, samples in random order within each, and the seed of that order, which
        is the same on every pass.  For stored data that are sorted or drift; it does not make samples independent that
        are not.
    nan_policy
        What to do about NaN and Inf: ``"raise"`` an error, ``"omit"`` the sample, or ``"zero"``: missing entries count
        for nothing, and what was observed by how often it was, entry by entry (the mean) or slice by slice (other
        solvers); right where what is missing does not depend on the values.
    dim
        The axis along which the samples lie, by its name or number; by default the first.
    sample, modes, value
        Of a long table, a row for every cell (a data frame, an Arrow table, a ``.csv`` or ``.parquet`` file): the
        columns that hold the sample, the axes, in their order, and the value.  ``modes`` may be a dict of the levels
        of every axis; ``None`` finds them.  Samples and levels that are numbers or times are sorted, text comes in the
        order of its first row; ``labels.samples`` are the samples.  In a Parquet file the rows of a sample stand next
        to each other.
    missing
        What a cell of a table without a row is: an error (``"raise"``), ``"zero"``, as of counts, or ``"nan"``, which
        ``nan_policy`` then deals with.  With ``"zero"`` samples are sparse if less than a twentieth of their cells have
        a row.

    Examples
    --------
    >>> import numpy as np
    >>> stream = open_stream(np.zeros((10, 3, 4)))
    >>> stream.dims, stream.length
    ((3, 4), 10)
    """
    table = {"sample": sample, "modes": modes, "value": value, "missing": missing}
    return open_known(source, None, items, shuffle, random_state, nan_policy, dim, table)


def open_known(
    source: Any,
    dims: tuple[int, ...] | None,
    items: Items = "auto",
    shuffle: bool = False,
    random_state: int = 0,
    nan_policy: NanPolicy = "raise",
    dim: SampleDim = None,
    table: Mapping[str, Any] | None = None,
) -> Stream:
    """The same for samples whose shape may be known: with ``dims`` the items are never ambiguous."""
    refuse_class(source)
    if items not in get_args(Items):
        raise StreamError(f'items must be "auto", "batches" or "samples", got {items!r}.')
    if nan_policy not in NAN_POLICIES:
        raise StreamError(f'nan_policy must be "raise", "omit" or "zero", got {nan_policy!r}.')
    if not isinstance(shuffle, bool | np.bool_):
        raise StreamError(f"shuffle must be True or False, got {shuffle!r}; the seed of the order is random_state.")
    columns = columns_of(**table) if table else None
    tabular, kind = _is_table(source), type(source).__name__
    if not tabular and library(source) != "xarray" and hasattr(source, "batches") and hasattr(source, "dims"):
        stream: Stream = source if isinstance(source, Stream) else OwnStream(source)
        check_opened(stream, items, shuffle, nan_policy, dim)
        return stream
    seed = check_integer("random_state", random_state, 0, StreamError) if shuffle else None
    if columns is not None:
        if dim is not None:
            raise StreamError(f"dim={dim!r} is for arrays; the samples of a table are in sample=.")
        if not tabular:
            raise StreamError(
                f"sample=, modes= and value= are for long tables (.csv, .parquet, a data frame), got {kind}; leave "
                "them out."
            )
        return open_table(source, columns, seed, nan_policy)
    if tabular:
        stored: Source | None = number_table(source)
    else:
        stored = ArraySource(untracked(source)) if is_device_array(source) else stored_source(source, items, dims)
    holds_items = isinstance(source, list | tuple) or (stored is not None and stored.kind == "folder")
    if items == "samples" and not holds_items and (stored is not None or isinstance(source, Samples)):
        raise StreamError(
            'items="samples" is for iterables and folders; arrays hold batches (n, d_1, ..., d_k): leave it out.'
        )
    if stored is not None:
        return StoredStream(along(stored, dim), seed, nan_policy)
    if dim is not None:
        raise StreamError(f"dim={dim!r} needs an array or a file, got {kind}.")
    if shuffle:
        raise StreamError(
            f"shuffle needs samples that can be sliced, got {kind}; shuffle them where they are made, or store them in "
            "an array or file first."
        )
    if isinstance(source, Samples):
        return SamplesStream(source)
    if not isinstance(source, Iterable) or isinstance(source, bytes | dict):
        raise StreamError(
            f"cannot read samples from {kind}; give an array (n, d_1, ..., d_k), an iterable of samples or batches, or "
            f"{SUPPORTED}."
        )
    return open_iterable(source, items, dims, nan_policy)


def refuse_class(source: Any) -> None:
    """Say so where a class is given: it has the methods of data, and holds none."""
    if isinstance(source, type):
        raise StreamError(
            f"cannot read samples from the class {source.__name__}; give an object of it, such as "
            f"{source.__name__}(...)."
        )


def _is_table(source: Any) -> bool:
    """Whether it is a data frame, an Arrow table, or the path of a file that holds one; a single column is none."""
    if isinstance(source, str | os.PathLike):
        return os.path.splitext(os.fsdecode(source))[1].lower() in TABLES
    # What can be read as an Arrow table (of pandas, polars, DuckDB); an array of xarray can, too, and is none.
    is_column = hasattr(source, "__array__") and not any(hasattr(source, n) for n in ("columns", "column_names"))
    return hasattr(source, "__arrow_c_stream__") and library(source) != "xarray" and not is_column


def check_opened(
    stream: Stream,
    items: Items = "auto",
    shuffle: bool = False,
    nan_policy: NanPolicy = "raise",
    dim: SampleDim = None,
) -> None:
    """Refuse options for what is open already, unless it was opened with the same."""
    kept = {
        "items": (items, "auto", "auto"),
        "shuffle": (bool(shuffle), False, stream.shuffle is not None),
        "nan_policy": (nan_policy, "raise", stream.nan_policy),
        "dim": (dim, None, stream.labels.sample if stream.labels else None),
    }
    for name, (value, usual, own) in kept.items():
        if value not in (usual, own):
            raise StreamError(
                f"{name}={value!r} comes too late: a stream keeps the options it was opened with; "
                "give them to its own open_stream."
            )


def stored_source(source: Any, items: Items = "auto", dims: tuple[int, ...] | None = None) -> Source | None:
    """``source`` as something that can be sliced; ``None`` if it cannot."""
    if isinstance(source, np.ndarray):
        return ArraySource(as_array(source))
    if isinstance(source, str | os.PathLike):
        return stored_at(os.fsdecode(source), items, dims)
    if isinstance(source, list | tuple):
        return _listed(source, items, dims)
    if isinstance(source, dict):
        return _dict_source(source)
    if is_epochs(source):
        return _epochs_source(source)
    package = library(source)
    if package == "xarray":
        return labelled_source(source)
    if package == "zarr" and hasattr(source, "store"):
        name = "the Zarr array" if hasattr(source, "shape") else "what was given"
        with reading(f"cannot use {name}", "write it again"):
            return ZarrSource(source, name)
    if package == "h5py" and hasattr(source, "file"):
        return hdf5_source(source)
    if package == "dask" and hasattr(source, "chunksize"):
        return DaskSource(source)
    return ArraySource(as_array(source)) if hasattr(source, "__array__") else None


def _listed(source: Sequence[Any], items: Items, dims: tuple[int, ...] | None) -> Source | None:
    """A list of samples is the array that it makes; one of batches, or of sparse samples, stays a list."""
    if not source or is_sparse(source[0]):
        return None
    inmost: Any = source
    while isinstance(inmost, list | tuple) and inmost:
        inmost = inmost[0]
    written_out = items == "auto" and isinstance(inmost, int | float | np.number)  # lists of lists of numbers
    if written_out or are_samples(map(shape_of, source), items, dims, "items", MIN_ALIKE):
        return ArraySource(stacked(source))
    return None


def _dict_source(arrays: dict[Any, Any]) -> ArraySource:
    """Arrays ``(n, d_1, ..., d_k)`` of one shape as samples ``(arrays, d_1, ..., d_k)``."""
    in_order, labels, _ = aligned_views(arrays)
    found = {str(name): np.asarray(array) for name, array in zip(arrays, in_order, strict=True)}
    shapes = {name: array.shape for name, array in found.items()}
    if len(found) < 2 or len(set(shapes.values())) > 1 or not next(iter(shapes.values())):
        raise StreamError(
            f"a dictionary must hold two arrays or more (n, d_1, ..., d_k) of one shape, got {shapes}; for views of "
            "several shapes use TensorCCA."
        )
    samples = np.stack(list(found.values()), axis=1)
    sample_axis = Axis() if labels is None else Axis(labels.dim, labels.values)
    axes = (sample_axis, Axis("", as_coords(list(found))), *(Axis() for _ in samples.shape[2:]))
    return ArraySource(samples, axes, "the dictionary")


def is_epochs(source: Any) -> bool:
    """Whether these are epochs of MNE: trials of channel × time, or of channel × frequency × time (``EpochsTFR``)."""
    return library(source) == "mne" and hasattr(source, "get_data") and hasattr(source, "events")


def _epochs_source(epochs: Any) -> ArraySource:
    """The trials of epochs, as samples."""
    samples = np.asarray(epochs.get_data())
    if samples.dtype.kind == "c":
        raise StreamError(
            "epochs of complex numbers were given; give their power: epochs.compute_tfr(..., output='power')."
        )
    axes = [Axis("epoch"), Axis("channel", as_coords(epochs.ch_names))]
    if samples.ndim == 4:
        axes.append(Axis("frequency", as_coords(epochs.freqs)))
    return ArraySource(samples, (*axes, Axis("time", as_coords(epochs.times))), "the epochs")


def labels_of_epochs(epochs: Any, y: Any = None) -> Any:
    """What is asked about epochs: a column of their metadata, by its name; the names of their events; or what is given.

    Events are called as ``event_id`` has it, by their number where it has no name.
    """
    if y is None:
        names = {code: name for name, code in (epochs.event_id or {}).items()}
        return [names.get(int(code), str(code)) for code in epochs.events[:, 2]]
    if not isinstance(y, str):
        return y
    columns = [] if epochs.metadata is None else list(epochs.metadata)
    if y not in columns:
        raise StreamError(f"y={y!r} is no column of the epochs' metadata; these are {columns}.")
    return epochs.metadata[y].to_numpy()
