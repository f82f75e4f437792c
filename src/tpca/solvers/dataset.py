"""A recovery as an ``xarray.Dataset``: vectors with the names and coordinates that the data had.

For every mode m there are ``vector_m`` and ``standard_error_m`` along ``component`` and the mode, and ``interval_m``
with a lower and an upper end: an entry and z standard errors to either side, z the normal quantile of the confidence.
Strengths, evidence and how they were come by are attributes, in a form that NetCDF and Zarr can store.
"""

from __future__ import annotations

import importlib
import math
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri

from tpca.errors import SolverError
from tpca.labels import Labels, plain_labels
from tpca.streams.stores import package
from tpca.tensors.blocks import Array

if TYPE_CHECKING:
    from tpca.solvers.recovery import Component, Recovery

RESERVED = ("component", "bound")


def dataset_of(recovery: Recovery, confidence: float = 0.95) -> Any:
    """The components of a recovery, none of them where there is no signal."""
    if not 0 < confidence < 1:
        raise SolverError(f"confidence must be between 0 and 1, got {confidence!r}.")
    xarray = package("xarray", "xarray", "to_xarray")
    dims = [len(v) for v in recovery.vectors]
    labels = recovery.labels or plain_labels(dims)
    z = float(ndtri(0.5 + confidence / 2))
    variables: dict[str, Any] = {}
    for mode, name in enumerate(_names(labels)):
        vectors, errors = _rows(recovery.components, mode, dims[mode])
        variables[f"vector_{name}"] = (("component", name), vectors)
        variables[f"standard_error_{name}"] = (("component", name), errors)
        ends = np.stack([vectors - z * errors, vectors + z * errors], axis=-1)
        variables[f"interval_{name}"] = (("component", name, "bound"), ends, {"confidence": confidence})
    named = zip(_names(labels), labels.axes, strict=True)
    coords: dict[str, Any] = {name: axis.coords for name, axis in named if axis.coords is not None}
    coords |= {"component": np.arange(len(recovery.components)), "bound": ["low", "high"]}
    return xarray.Dataset(variables, coords, _attributes(recovery, labels))


def _names(labels: Labels) -> list[str]:
    """Names of the modes that no other axis of the dataset has."""
    names = (
        name if axis.name else f"mode_{i}" for i, (name, axis) in enumerate(zip(labels.modes, labels.axes, strict=True))
    )
    return [f"{name}_mode" if name in RESERVED else name.replace(" ", "_") for name in names]


def _rows(components: tuple[Component, ...], mode: int, length: int) -> tuple[Array, Array]:
    """Vectors of one mode as rows, and their standard errors; NaN where the method has none."""
    unknown = np.full(length, math.nan)
    vectors = [c.vectors[mode] for c in components]
    errors = [unknown if c.standard_errors is None else c.standard_errors[mode] for c in components]
    return np.reshape(np.array(vectors), (-1, length)), np.reshape(np.array(errors), (-1, length))


def _attributes(recovery: Recovery, labels: Labels) -> dict[str, Any]:
    """What was found, and how it was come by."""
    known = recovery.components or (recovery.first,)
    ends = [c.strength_interval or (math.nan, math.nan) for c in known]
    proofs = [c.evidence for c in known]
    told: dict[str, Any] = {
        "verdict": str(recovery.verdict),
        "advice": recovery.advice,
        "strength": [c.strength for c in known],
        "strength_low": [low for low, _ in ends],
        "strength_high": [high for _, high in ends],
        "p_value": [c.p_value for c in known],
        "evidence": [math.nan if proof is None else proof.value for proof in proofs],
        "evidence_needed": [math.nan if proof is None else proof.needed for proof in proofs],
        "evidence_kind": "" if proofs[0] is None else proofs[0].kind,
        "noise_level": recovery.noise_level,
        "solver": recovery.solver,
        "stop_reason": recovery.stop_reason.name,
        "n_samples": recovery.n_samples,
        "n_passes": recovery.n_passes,
        "n_skipped": recovery.n_skipped,
        "tpca_version": importlib.import_module("tpca").__version__,  # the package, which imports all rooms
    }
    by_label = known[0].label_amplitudes
    if by_label is not None:
        told["label"] = list(by_label)
        told["label_amplitude"] = list(by_label.values())
    if any(c.effect for c in known):
        told["effect"] = [c.effect for c in known]
    return told | ({"sample_dim": labels.sample} if labels.sample else {})
