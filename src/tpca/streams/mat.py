"""``.mat`` files of MATLAB: version 7.3 is HDF5 and read in batches, older ones are loaded by SciPy.

Axes are counted as MATLAB does: ``size(X, 1)`` is the length of the first.  HDF5 lists those of a version 7.3 file the
other way round, and they are turned back.  Samples that lie along the last axis (channels × times × trials) need
``sample_dim=-1``.
"""

from __future__ import annotations

import numpy as np

from tpca.errors import StreamError, reading
from tpca.streams.axes import turned
from tpca.streams.hdf5 import HDF5_SIGNATURE, open_hdf5
from tpca.streams.npz import the_only
from tpca.streams.protocol import ArraySource, Source
from tpca.streams.store_looks import listed

_USER_BLOCK = 512  # bytes that MATLAB puts before the HDF5 file


def open_mat(path: str, inner: str | None) -> Source:
    """The variable ``inner``; without it the only one with enough axes."""
    with open(path, "rb") as file:
        head = file.read(_USER_BLOCK + len(HDF5_SIGNATURE))
    if not head:
        raise StreamError(f"{path!r} is empty (0 bytes); save it again.")
    if head.startswith(HDF5_SIGNATURE):  # not written by MATLAB
        return open_hdf5(path, inner)
    if head[_USER_BLOCK:] == HDF5_SIGNATURE:
        source = open_hdf5(path, inner)
        return turned(source, range(len(source.shape))[::-1])
    return _older(path, inner)


def _older(path: str, inner: str | None) -> Source:
    from scipy.io import loadmat, whosmat

    with reading(f"cannot open {path!r} as a .mat file", "save it again, with save(..., '-v7.3') if it is large"):
        shapes = {name: tuple(shape) for name, shape, _ in whosmat(path)}
        name = the_only(path, shapes) if inner is None else inner.strip("/")
        if name not in shapes:
            raise StreamError(f"{path!r} has no variable {inner!r}; it holds {listed(list(shapes))}.")
        array = loadmat(path, variable_names=[name])[name]
        if not isinstance(array, np.ndarray) or array.dtype.kind in "OV":
            raise StreamError(f"variable {name!r} of {path!r} must be an array of numbers; save it as full(double(X)).")
        return ArraySource(array, (), repr(f"{path}::{name}"))
