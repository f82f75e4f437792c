"""What may pass as a sample: shape, dtype, and what to do about missing entries.

Batches or single samples is one rule for the items of lists, iterables, folders and ``partial_fit``.
Items of two dimensions can only be samples: a batch has at least three.  Items of other shapes can only be batches if
their shapes differ, or if there are fewer than two entries along their first axis, as in ``sample[None]``.  Where the
shape of a sample is known already, an item that has it is a sample.  All else can be either: what an iterator gives,
and ``MIN_ALIKE`` items of a list or folder, all of one shape, are taken for samples, and a note says so; the rest is
refused, as is the first array of ``partial_fit``, which can be a batch as well.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.errors import SampleError, StreamError, StreamWarning, one_line
from tpca.streams.protocol import Items, NanPolicy
from tpca.tensors import DenseBatch
from tpca.tensors.blocks import check_dims
from tpca.tensors.namespaces import numpy_dtype

Shape = tuple[int, ...]
MIN_ALIKE = 8  # fewer samples prove nothing, so a list of fewer arrays may well be one of batches
WHERE = "to TensorPCA, open_stream, or tpca with --items"
_OF_A_TABLE = (
    "; if every row is an array written out, give X.reshape({n}, d_1, d_2), and one sample as X[None]; a plain table "
    "is for scikit-learn's PCA, tpca.MomentPCA or, beside others of the same rows, tpca.TensorCCA"
)


def as_array(item: Any, first: int = 0) -> NDArray[Any]:
    """``item`` as an array; tensors of other libraries come through NumPy's own protocol."""
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


def float_dtype(dtype: np.dtype[Any], where: str = "") -> np.dtype[Any]:
    """The dtype in which samples stored as ``dtype`` are worked on: native float32 or float64."""
    if dtype.kind not in "fiub":
        raise SampleError(f"samples must be real numbers, got dtype {dtype}{where}; convert them to float first.")
    if dtype.kind == "f":
        return np.dtype(np.float32 if dtype.itemsize <= 4 else np.float64)
    return np.dtype(np.float32 if dtype.itemsize < 4 else np.float64)


def to_floats(array: NDArray[Any]) -> NDArray[Any]:
    """``array`` as native, C-contiguous floats; itself if it is that already."""
    with np.errstate(over="ignore"):  # a longdouble that does not fit becomes Inf, and is then a missing entry
        return np.ascontiguousarray(array, dtype=float_dtype(array.dtype))


def sample_dims(shape: tuple[int, ...], what: str, way_out: str = "") -> tuple[int, ...]:
    """Dims of the samples of an array of samples."""
    if len(shape) < 3:
        way_out = way_out or (_OF_A_TABLE.format(n=shape[0]) if len(shape) == 2 else "; reshape it to (n, d_1, d_2)")
        raise SampleError(
            f"{what} must have shape (n, d_1, ..., d_k), a first axis of samples and at least two modes (axes of a "
            f"sample), got {shape}{way_out}."
        )
    return check_dims(shape[1:])


def working(array: Any, where: str = "") -> np.dtype[Any]:
    """The dtype in which samples in an array of any library are worked on."""
    return float_dtype(array.dtype, where) if isinstance(array, np.ndarray) else numpy_dtype(array, where)


def check_samples(array: Any, dims: tuple[int, ...], dtype: np.dtype[Any], first: int) -> None:
    """Refuse samples that do not have the shape and float dtype of the stream."""
    if array.shape[1:] != dims:
        raise SampleError(
            f"samples must have shape (n, {', '.join(map(str, dims))}), got {tuple(array.shape)} at sample {first}; "
            "all samples of a stream share one shape."
        )
    found = working(array, f" at sample {first}")
    if found != dtype:
        raise SampleError(
            f"all samples of a stream share one dtype, expected {dtype}, got {array.dtype} at sample {first}; "
            "convert them to one."
        )


def all_finite(block: NDArray[Any]) -> bool:
    """Whether no entry is NaN or Inf: one cheap read of clean data; only a suspect block is looked at closely."""
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(block.sum())) or bool(np.isfinite(block).all())


def usable(
    samples: NDArray[Any], policy: NanPolicy
) -> tuple[NDArray[Any], NDArray[np.bool_] | None, NDArray[np.bool_] | None]:
    """The samples that can be used, which of their entries were observed, and which samples these are; ``None``: all.

    Those with missing entries are skipped, or kept with zeros for these, as long as something of them is there.
    """
    if all_finite(samples):
        return samples, None, None
    finite = np.isfinite(samples)
    flat = finite.reshape(len(samples), -1)
    keep = flat.all(axis=1) if policy == "omit" else flat.any(axis=1)
    kept = samples[keep]  # a copy: what is filled in below is not the caller's
    if policy == "omit":
        return kept, None, keep
    exposure = finite[keep]
    kept[~exposure] = 0
    return kept, exposure, keep


def dense_batch(samples: NDArray[Any], first: int, number: int, policy: NanPolicy) -> DenseBatch:
    """The samples from ``number`` on as the batch at ``first``; an error about missing entries can wait for their use.

    What is to be skipped or filled in cannot.
    """
    if policy == "raise":
        return DenseBatch(samples, first, unchecked=number)
    kept, exposure, _ = usable(samples, policy)
    return DenseBatch(kept, first, len(samples) - len(kept), exposure=exposure)


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


def only_batches(items: Items, what: str) -> None:
    """Refuse single samples where there are none."""
    if items == "samples":
        raise StreamError(
            f'items="samples" is for iterables and folders; {what} hold batches (n, d_1, ..., d_k): leave it out.'
        )
