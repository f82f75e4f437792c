"""Every form in which samples can come to ``open_stream``: the members of the conformance suite."""

import itertools
import uuid
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import dask.array
import h5py
import numpy as np
import xarray
import zarr
from xarray.backends import BackendArray
from xarray.core import indexing

from tpca import SpikedTensor, open_stream


@dataclass
class Workspace:
    """A folder, and what must be closed after use."""

    path: Path
    stack: ExitStack = field(default_factory=ExitStack)

    def fresh(self, suffix):
        return self.path / f"{uuid.uuid4().hex}{suffix}"


class Tensor:
    """What NumPy sees of another library's tensor."""

    def __init__(self, array):
        self._array = array
        self.shape, self.ndim = array.shape, array.ndim

    def __array__(self, dtype=None, copy=None):
        return self._array


def pieces(data, size=5):
    return [data[i : i + size] for i in range(0, len(data), size)]


def take(truth, n, seed=1):
    """The first n samples of a stream as one array."""
    return np.concatenate(list(itertools.islice(truth.stream(random_state=seed, batch_size=1), n)))


def npy(data, work, order="C"):
    path = work.fresh(".npy")
    np.save(path, np.asarray(data, order=order))
    return path


def folder(data, work, size=5):
    path = work.fresh("")
    path.mkdir()
    (path / "notes.txt").write_text("not a sample")
    for i, piece in enumerate(pieces(data, size) if size else data):
        np.save(path / f"{i:04d}.npy", piece)
    return path


def zarr_array(data, work, place=None, chunks=None, **options):
    place = str(work.fresh(".zarr")) if place is None else place
    chunks = chunks or (5, *[max(1, d // 2) for d in data.shape[1:]])
    every = {"write_empty_chunks": True}  # also one that happens to hold nothing but zeros
    array = zarr.create_array(place, shape=data.shape, dtype=data.dtype, chunks=chunks, config=every, **options)
    array[:] = data
    return place


def zarr_in_memory(data, work):
    return zarr_array(data, work, f"memory://{uuid.uuid4().hex}/x")


def zarr_in_group(data, work):
    place = work.fresh(".zarr")
    zarr_array(data, work, str(place), name="other/one")
    zarr_array(data + data, work, str(place), name="two")
    return f"{place}::/other/one"


def hdf5(data, work, inner="", **options):
    path = work.fresh(".h5")
    with h5py.File(path, "w") as file:
        file.create_dataset("group/x", data=data, **options)
        file.create_dataset("labels", data=np.arange(len(data)))
    return f"{path}{inner}"


def hdf5_chunked(data, work):
    inner = data.shape[1:]
    return hdf5(data, work, "::/group/x", chunks=(3, *inner), maxshape=(None, *inner))


def hdf5_object(data, work):
    file = work.stack.enter_context(h5py.File(hdf5(data, work), "r"))
    return file["group/x"]


def dask_array(data, work):
    return dask.array.from_array(data, chunks=(4, *data.shape[1:]))


def strided(data, work):
    return np.repeat(data, 2, axis=-1)[..., ::2]


def npz(data, work):
    path = work.fresh(".npz")
    np.savez_compressed(path, other=np.arange(3), x=data)
    return path


def names(data):
    return ("trial", *(f"axis {i}" for i in range(1, data.ndim)))


def labelled(data, work):
    return xarray.DataArray(data, dims=names(data))


def turned(data, work):
    return labelled(data, work).transpose(*names(data)[::-1]).transpose(*names(data)[1:], "trial")


def lazy(data, work):
    """A DataArray that reads when it is asked, as those that xarray opens from files."""

    class Stored(BackendArray):
        shape, dtype = data.shape, data.dtype

        def __getitem__(self, key):
            support = indexing.IndexingSupport.OUTER
            return indexing.explicit_indexing_adapter(key, self.shape, support, lambda own: data[own].copy())

    return xarray.DataArray(xarray.Variable(names(data), indexing.LazilyIndexedArray(Stored())))


@dataclass(frozen=True)
class Member:
    """One way to hold samples; ``make(data, workspace)`` gives a fresh source of ``data``."""

    name: str
    kind: str
    make: callable
    options: dict = field(default_factory=dict)
    native: bool = True  # whether it also holds dtypes that only NumPy knows

    def open(self, data, work, **options):
        return open_stream(self.make(data, work), **self.options, **options)

    @property
    def stored(self):
        return self.kind not in ("iterable", "synthetic")

    def __str__(self):
        return self.name


SINGLE, BATCHES = {"items": "samples"}, {"items": "batches"}
MEMBERS = [
    Member("array", "array", lambda data, work: data),
    Member("strided array", "array", strided),
    Member("tensor", "array", lambda data, work: Tensor(data)),
    Member("npy", "npy", npy),
    Member("npy path as text", "npy", lambda data, work: str(npy(data, work))),
    Member("npy in Fortran order", "npy", lambda data, work: npy(data, work, order="F")),
    Member("folder of batches", "folder", folder, BATCHES),
    Member("folder of samples", "folder", lambda data, work: folder(data, work, size=None), SINGLE),
    Member("zarr 2", "zarr", lambda data, work: zarr_array(data, work, zarr_format=2), native=False),
    Member("zarr 3", "zarr", lambda data, work: zarr_array(data, work, zarr_format=3), native=False),
    Member("zarr in a group", "zarr", zarr_in_group, native=False),
    Member("zarr object", "zarr", lambda data, work: zarr.open(zarr_array(data, work), mode="r"), native=False),
    Member("zarr at a file URL", "zarr", lambda data, work: Path(zarr_array(data, work)).as_uri(), native=False),
    Member("zarr at a memory URL", "zarr", zarr_in_memory, native=False),
    Member("hdf5", "hdf5", hdf5),
    Member("hdf5 chunked", "hdf5", hdf5_chunked),
    Member("hdf5 object", "hdf5", hdf5_object),
    Member("dask", "dask", dask_array),
    Member("npz", "npy", npz),
    Member("data array", "array", labelled),
    Member("data array, samples last", "array", turned, {"dim": "trial"}),
    Member("data array in a file", "xarray", lazy),
    Member("list of samples", "array", lambda data, work: list(data), SINGLE),
    Member("list of batches", "iterable", lambda data, work: pieces(data), BATCHES),
    Member("generator of batches", "iterable", lambda data, work: (x for x in [data[:0], *pieces(data)]), BATCHES),
    Member("generator of samples", "iterable", lambda data, work: (x for x in data), SINGLE),
    Member("loader of tuples", "iterable", lambda data, work: [(x,) for x in pieces(data)], BATCHES),
    Member("loader of lists of tensors", "iterable", lambda data, work: ([Tensor(x)] for x in pieces(data)), BATCHES),
    Member("loader of samples", "iterable", lambda data, work: ((Tensor(x),) for x in data), SINGLE),
]

DIMS = (3, 4)
SPIKED = SpikedTensor.random(DIMS, 1.0, random_state=0)
SYNTHETIC = Member("synthetic", "synthetic", lambda data, work: SPIKED.stream(random_state=1, batch_size=5))


def synthetic_data(n):
    return take(SPIKED, n)
