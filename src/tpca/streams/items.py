"""Batches or single samples: one rule for the items of lists, iterables, folders and ``partial_fit``.

Items of two dimensions can only be samples: a batch has at least three.  Items of other shapes can only be batches if
their shapes differ, or if there are fewer than two entries along their first axis, as in ``sample[None]``.  Where the
shape of a sample is known already, an item that has it is a sample.  All else can be either, and is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from tpca.errors import SampleError, StreamError
from tpca.streams.protocol import Items

Shape = tuple[int, ...]


def are_samples(shapes: Iterable[Shape | None], items: Items, dims: Shape | None, what: str) -> bool:
    """Whether items of these shapes are single samples; an error if nobody can know.

    ``shapes`` are those that can be seen before anything is read: of the whole of a list or folder, of the first item
    of an iterator.
    """
    if items != "auto":
        return items == "samples"
    rest = iter(shapes)
    first = next(rest, None)
    if dims is not None or first is None:
        return first is not None and first == dims
    if len(first) < 3:
        return True
    if first[0] < 2 or any(shape != first for shape in rest):
        return False
    raise StreamError(
        f"{what} of shape {first} can be batches of samples {first[1:]}, or single samples {first}; say "
        'items="batches" or items="samples" (to TensorPCA, open_stream, or tpca with --items).'
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
