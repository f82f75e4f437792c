"""Which option means something to which kind of fit; checks of their values are in :mod:`tpca.solvers.base`."""

from __future__ import annotations

import functools
import inspect
from typing import Any

from tpca.errors import SolverError

SOLVERS = ("mean", "race", "paper")
TARGETS = ("mean", "effect", "variance")
# Kinds of fit to which an option means something, by its name in Python; an option that is not listed always does.
# Besides the solvers: "given", an object with options of its own; "fed", a race or mean that is fed by partial_fit;
# "views", stored ones; "passing", views that pass by once;
# "variance", a fit with target="variance", which has a solver of its own.
APPLIES: dict[str, tuple[str, ...]] = {
    "solver": (*SOLVERS, "given", "fed"),
    "strength": ("paper",),
    "n_components": ("mean", "race", "fed", "views", "passing", "variance"),
    "memory_limit": ("mean", "race", "fed", "views", "passing", "variance"),
    "max_samples": ("mean", "race", "fed", "variance"),
    "max_passes": ("race", "fed", "variance"),  # fed with samples that pass by once, solvers refuse more than one
    "whiten": ("mean", "race", "fed"),
    "groups": ("mean", "race", "fed"),
    "center_modes": ("mean", "race", "fed"),
    "project": ("mean", "race", "fed"),
    "target": (*SOLVERS, "given", "fed", "variance"),
    "y": SOLVERS,
    "nuisance": SOLVERS,
    "group_by": SOLVERS,
    "block_size": (*SOLVERS, "given", "fed"),
    "tol": ("race", "fed"),
    "confidence": ("mean", "race", "fed", "views", "passing", "variance"),
    "random_state": (*SOLVERS, "fed", "views", "passing", "variance"),
    "callbacks": (*SOLVERS, "fed", "views", "passing", "variance"),
    "items": (*SOLVERS, "given", "fed", "variance"),
    "sample_dim": (*SOLVERS, "given", "fed", "variance"),
    "sample": (*SOLVERS, "variance"),
    "modes": (*SOLVERS, "variance"),
    "value": (*SOLVERS, "variance"),
    "missing": (*SOLVERS, "variance"),
    "shuffle": (*SOLVERS, "given", "variance"),
    "checkpoint": (*SOLVERS, "variance"),
    "checkpoint_every": (*SOLVERS, "variance"),
    "resume": (*SOLVERS, "variance"),
    "restart": (*SOLVERS, "variance"),
    "shrinkage": ("views", "passing"),
    "clip": ("mean", "race", "fed", "views", "passing"),
    "validation_fraction": ("views",),
    "refit": ("views",),
}

# A good bound on the influence of rows of views (``clip``; by default there is none).  Of 40 fits each of 4 and 6 views
# with one gross row in a hundred, all were proven at 2, with a mean overlap of 0.96 to 0.99; at 3 it was 0.87 to 0.96.
# On clean rows both cost nothing (record of development).
CLIP = 2


@functools.cache
def applies(option: str, kind: str) -> bool:
    """Whether an option means something to a kind of fit; to ``"auto"``, if it does to what may be chosen."""
    kinds = APPLIES.get(option)
    return kinds is None or any(one in kinds for one in (("mean", "race") if kind == "auto" else (kind,)))


def refuse_idle(estimator: Any, kind: str, why: str) -> None:
    """Refuse options of an estimator that mean nothing to a kind of fit; given are those that differ from the default.

    ``why`` ends the sentence that begins with the option: what it is not for, and the way out.
    """
    for name, default in _parameters(type(estimator)).items():
        if default is inspect.Parameter.empty or applies(name, kind):
            continue
        value = getattr(estimator, name)
        if value is not default and value != default:
            raise SolverError(f"{name}={value!r} {why}.")


def parameters_of(estimator: Any) -> dict[str, Any]:
    """All parameters of an estimator."""
    return {name: getattr(estimator, name) for name in _parameters(type(estimator))}


def _parameters(kind: type) -> dict[str, Any]:
    """Parameters of a kind of estimator, with their defaults; to look them up takes as long as a small fit."""
    if kind not in _KNOWN:
        _KNOWN[kind] = {name: one.default for name, one in inspect.signature(kind).parameters.items()}
    return _KNOWN[kind]


_KNOWN: dict[type, dict[str, Any]] = {}
