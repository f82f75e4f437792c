"""Experiments about solvers: baselines, the exact-law simulation, studies, planning.  Only the command imports it."""

import importlib
from types import ModuleType

__all__ = ["baselines", "planning", "simulate", "studies"]


def __getattr__(name: str) -> ModuleType:
    """A part of the lab, imported when it is first asked for."""
    if name not in __all__:
        raise AttributeError(f"module 'tpca.lab' has no attribute {name!r}")
    return importlib.import_module(f"tpca.lab.{name}")
