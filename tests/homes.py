"""Where samples can live: arrays of several libraries, on the host and on devices."""

import importlib.util
from dataclasses import dataclass

import numpy as np
import pytest


@dataclass(frozen=True)
class Home:
    """A library and a device; ``float64`` says whether it has that, ``examples`` how many a test draws."""

    name: str
    package: str
    float64: bool = True
    examples: int = 10
    cuda: bool = False

    @property
    def dtype(self):
        return np.float64 if self.float64 else np.float32

    @property
    def rtol(self):
        return 1e-10 if self.float64 else 2e-4

    def put(self, array):
        """A NumPy array, there; JAX has float64 only where it was told so."""
        if self.package == "numpy":
            return array
        if self.package == "array_api_strict":
            import array_api_strict as xp

            return xp.asarray(array, device=xp.Device("device1"))  # NumPy cannot read this device in secret
        if self.package == "jax":
            import jax.numpy as jnp

            return jnp.asarray(array)
        if self.package == "torch":
            import torch

            return torch.tensor(np.ascontiguousarray(array)).to("cuda" if self.cuda else "cpu")
        import cupy

        return cupy.asarray(array)

    def __str__(self):
        return self.name


def _why_not(home):
    """Why a home cannot be tested here; empty if it can."""
    if importlib.util.find_spec(home.package) is None:
        return f"{home.package} is not installed: {home} was not tested"
    if home.package == "torch" and home.cuda:
        import torch

        return "" if torch.cuda.is_available() else "torch finds no CUDA device: CUDA was not tested"
    return ""


NUMPY = Home("numpy", "numpy", examples=40)
STRICT = Home("array-api-strict", "array_api_strict")
JAX = Home("jax", "jax", float64=False, examples=2)  # every new shape is compiled
TORCH = Home("torch", "torch", examples=5)
TORCH_CUDA = Home("torch on CUDA", "torch", examples=5, cuda=True)
CUPY = Home("cupy", "cupy", examples=5, cuda=True)
ALL = (NUMPY, STRICT, JAX, TORCH, TORCH_CUDA, CUPY)


def homes(*some):
    """Parameters of a test; those that cannot run here say why."""
    marked = []
    for home in some or ALL:
        why = _why_not(home)
        marked.append(pytest.param(home, id=str(home), marks=[pytest.mark.skip(reason=why)] if why else []))
    return marked


def elsewhere():
    """All homes but NumPy."""
    return homes(*ALL[1:])
