"""Arrays of any library that follows the array API standard: their functions, their device, and the way to the host.

What touches samples is written over a namespace ``xp``, theirs: NumPy's own, or that of PyTorch, JAX, CuPy, ...
Whatever comes from a device to the host goes through :func:`to_host`, which counts the bytes in :data:`crossed`:
gradients, rewards and sums do, samples never.

====================  =====================================================================
namespace             comes from
====================  =====================================================================
``jax.Array``, ...    ``__array_namespace__`` of the array
``torch.Tensor``,     the package ``array_api_compat``, or the copy that scikit-learn brings
``cupy.ndarray``
====================  =====================================================================
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.errors import SampleError

COMPAT = ("array_api_compat", "sklearn.externals.array_api_compat")  # where the namespaces of some libraries come from
WITHOUT_NAMESPACE = ("torch", "cupy")  # libraries whose arrays have none of their own
HALF = ("float16", "bfloat16")  # added up in float32
NARROW = ("bool", "int8", "uint8", "int16", "uint16")  # exact in float32


crossed = SimpleNamespace(nbytes=0)  # what came from a device to the host


def is_device_array(item: Any) -> bool:
    """Whether this is an array of another library than NumPy that follows the array API standard."""
    if isinstance(item, np.ndarray | np.generic) or not hasattr(item, "__dlpack__"):
        return False
    return hasattr(item, "__array_namespace__") or library(item) in WITHOUT_NAMESPACE


def library(array: Any) -> str:
    """The name of the package that an array comes from."""
    return type(array).__module__.partition(".")[0]


def namespace(array: Any) -> Any:
    """The functions for an array: ``numpy``, or those of its library."""
    if isinstance(array, np.ndarray):
        return np
    if hasattr(array, "__array_namespace__"):
        return array.__array_namespace__()
    for name in COMPAT:
        try:
            return importlib.import_module(name).array_namespace(array)
        except ImportError:
            continue
    raise SampleError(
        f"arrays of {library(array)} need the package array-api-compat, which is not installed; "
        "install tpca[arrays], or give NumPy arrays."
    )


def home_of(array: Any) -> str:
    """Library and device of an array, in words; empty for NumPy."""
    if array is None or isinstance(array, np.ndarray):
        return ""
    return f"{library(array).removesuffix('lib')} {array.device}"


def name_of(dtype: Any) -> str:
    """``float32`` of that dtype in any library."""
    return str(dtype).rpartition(".")[2]


def working_dtype(array: Any, where: str = "") -> Any:
    """The dtype, of the array's library, in which samples are added up: float32 or float64.

    float32 for float16, bfloat16, float32 and integers of up to two bytes.  JAX has float64 only if it was told so.
    """
    xp, name = namespace(array), name_of(array.dtype)
    if name in ("float32", "float64"):
        return array.dtype
    if name in HALF or name in NARROW or name.startswith(("int", "uint")):
        known: Any = xp.__array_namespace_info__().dtypes(kind="real floating")
        wide = name not in (*HALF, *NARROW) and "float64" in known
        return known["float64" if wide else "float32"]
    raise SampleError(f"samples must be real numbers, got dtype {name}{where}; convert them to float first.")


def working_like(array: Any) -> Any:
    """An empty array where ``array`` is, in the dtype its samples are worked on in."""
    return namespace(array).zeros((0,), dtype=working_dtype(array), device=array.device)


def numpy_dtype(array: Any, where: str = "") -> np.dtype[Any]:
    """The working dtype as NumPy knows it."""
    return array.dtype if isinstance(array, np.ndarray) else np.dtype(name_of(working_dtype(array, where)))


def cast(array: Any, dtype: Any) -> Any:
    """An array in another dtype of its library; itself if it has it."""
    return array if array.dtype == dtype else namespace(array).astype(array, dtype)


def permuted(array: Any, axes: Sequence[int]) -> Any:
    """An array with its axes in another order."""
    return namespace(array).permute_dims(array, tuple(int(axis) for axis in axes))


def rows_of(array: Any, places: NDArray[Any]) -> Any:
    """Some entries along the first axis, copied where they are."""
    xp = namespace(array)
    return xp.take(array, xp.asarray(np.array(places), device=array.device), axis=0)


def to_device(host: Any, like: Any) -> Any:
    """A small array of the host where ``like`` is, and in its dtype; of NumPy, itself in that dtype."""
    if isinstance(like, np.ndarray):
        return np.asarray(host).astype(like.dtype, copy=False)
    ready = np.array(host, dtype=name_of(like.dtype), order="C")  # a copy: some libraries share what they are given
    return namespace(like).asarray(ready, device=like.device)


def to_host(array: Any) -> NDArray[Any]:
    """A copy of a device's array in the memory of the host, counted; of NumPy, itself.  Not for samples."""
    if isinstance(array, np.ndarray | np.generic):
        return np.asarray(array)
    if library(array) == "torch":
        array = array.detach().cpu().numpy()
    elif library(array) == "cupy":
        array = array.get()
    elif library(array) == "array_api_strict":  # its devices are there to find out who copies in secret
        array = array.to_device(namespace(array).__array_namespace_info__().default_device())
    host = np.array(array)
    crossed.nbytes += host.nbytes
    return host


def entries(array: Any) -> int:
    """Number of entries."""
    return math.prod(array.shape)


def bytes_of(array: Any) -> int:
    """Bytes of an array."""
    known = getattr(array, "nbytes", None)
    return entries(array) * np.dtype(name_of(array.dtype)).itemsize if known is None else int(known)
