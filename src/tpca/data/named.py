"""Arrays that come in objects with names of their own: MNE's epochs, dictionaries of arrays, data frames of numbers.

None of these packages is imported: an object says itself what it is.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tpca.data.base import ArraySource
from tpca.errors import StreamError
from tpca.labels import Axis, as_coords


def is_epochs(source: Any) -> bool:
    """Whether these are epochs of MNE: trials of channel × time, or of channel × frequency × time (``EpochsTFR``)."""
    package = type(source).__module__.partition(".")[0]
    return package == "mne" and hasattr(source, "get_data") and hasattr(source, "events")


def named_source(source: Any) -> ArraySource | None:
    """The samples of such an object, with the names of their axes; ``None`` if it is another one."""
    if is_epochs(source):
        return _epochs(source)
    if isinstance(source, dict):
        return _together(source)
    return None


def frame_source(source: Any) -> ArraySource | None:
    """A data frame of pandas or polars whose columns are all numbers: every row is a sample; ``None`` of any other."""
    if not (hasattr(source, "columns") and hasattr(source, "dtypes") and hasattr(source, "to_numpy")):
        return None
    kinds = [d.is_numeric() if hasattr(d, "is_numeric") else getattr(d, "kind", "O") in "fiu" for d in source.dtypes]
    if not kinds or not all(kinds):
        return None
    index, columns = (getattr(getattr(source, name, None), "name", None) for name in ("index", "columns"))
    axes = (Axis(str(index or "")), Axis(str(columns or "column"), as_coords(list(source.columns))))
    return ArraySource(np.asarray(source.to_numpy(), dtype=np.float64), axes, "the data frame")


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


def _epochs(epochs: Any) -> ArraySource:
    samples = np.asarray(epochs.get_data())
    if samples.dtype.kind == "c":
        raise StreamError(
            "epochs of complex numbers were given; give their power: epochs.compute_tfr(..., output='power')."
        )
    axes = [Axis("epoch"), Axis("channel", as_coords(epochs.ch_names))]
    if samples.ndim == 4:
        axes.append(Axis("frequency", as_coords(epochs.freqs)))
    return ArraySource(samples, (*axes, Axis("time", as_coords(epochs.times))), "the epochs")


def _together(arrays: dict[Any, Any]) -> ArraySource:
    """Arrays ``(n, d_1, ..., d_k)`` of one shape as samples ``(arrays, d_1, ..., d_k)``."""
    found = {str(name): np.asarray(array) for name, array in arrays.items()}
    shapes = {name: array.shape for name, array in found.items()}
    if len(found) < 2 or len(set(shapes.values())) > 1 or not next(iter(shapes.values())):
        raise StreamError(
            f"a dictionary must hold two arrays or more (n, d_1, ..., d_k) of one shape, got {shapes}; for views of "
            "several shapes use TensorCCA."
        )
    samples = np.stack(list(found.values()), axis=1)
    axes = (Axis(), Axis("", as_coords(list(found))), *(Axis() for _ in samples.shape[2:]))
    return ArraySource(samples, axes, "the dictionary")
