"""A tree of state as plain values and arrays, and back; nothing is pickled.

The tree may hold numbers, text, lists, tuples, dicts, arrays, random generators, and objects of classes marked
:func:`kept`, which are stored by their attributes.  What is shared stays shared (two strategies with one generator).
"""

from __future__ import annotations

import dataclasses
import enum
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

_KEPT: dict[str, type] = {}
T = TypeVar("T", bound=type)


def kept(cls: T) -> T:
    """Mark a class whose objects are part of a run's state: stored by their attributes, made again without a call."""
    _KEPT[cls.__name__] = cls
    return cls


class Writer:
    """A tree of state as JSON values and a list of arrays."""

    def __init__(self) -> None:
        self.arrays: list[NDArray[Any]] = []
        self._places: dict[int, int] = {}  # id -> number, of everything that may be shared
        self._held: list[Any] = []  # keeps those ids from being used again

    def encode(self, value: Any) -> Any:
        """A value as JSON, its arrays put into the list."""
        if value is None or isinstance(value, bool | str) or type(value) in (int, float):
            return value  # json writes floats so that they are read back exactly, also inf and nan
        if isinstance(value, list):
            return [self.encode(v) for v in value]
        if isinstance(value, tuple):
            return {"tuple": [self.encode(v) for v in value]}
        if isinstance(value, dict):
            return {"dict": [[self.encode(k), self.encode(v)] for k, v in value.items()]}
        if isinstance(value, enum.Enum) and type(value).__name__ in _KEPT:
            return {"enum": type(value).__name__, "name": value.name}
        if isinstance(value, np.generic):
            self.arrays.append(np.asarray(value))
            return {"scalar": len(self.arrays) - 1}
        if id(value) in self._places:
            return {"same": self._places[id(value)]}
        self._places[id(value)] = len(self._places)
        self._held.append(value)
        return self._encode_shared(value)

    def _encode_shared(self, value: Any) -> dict[str, Any]:
        if isinstance(value, np.ndarray):
            # BLAS may round a strided array differently from a contiguous one: a resumed run would not be the same.
            if not value.flags.c_contiguous or value.dtype.hasobject:
                raise TypeError(f"state arrays must be C-contiguous numbers, got strides {value.strides}.")
            self.arrays.append(value)
            return {"array": len(self.arrays) - 1}
        if isinstance(value, np.random.Generator):
            return {"rng": _plain(value.bit_generator.state)}
        name = type(value).__name__
        if _KEPT.get(name) is not type(value):
            raise TypeError(f"objects of class {name} cannot be part of a checkpoint.")
        names = [f.name for f in dataclasses.fields(value)] if dataclasses.is_dataclass(value) else list(vars(value))
        return {"object": name, "fields": {n: self.encode(getattr(value, n)) for n in names}}


class Reader:
    """The way back."""

    def __init__(self, arrays: list[NDArray[Any]]) -> None:
        self._arrays = arrays
        self._shared: list[Any] = []

    def decode(self, tree: Any) -> Any:
        """What a tree stands for."""
        if isinstance(tree, list):
            return [self.decode(t) for t in tree]
        if not isinstance(tree, dict):
            return tree
        if "tuple" in tree:
            return tuple(self.decode(t) for t in tree["tuple"])
        if "dict" in tree:
            return {self.decode(k): self.decode(v) for k, v in tree["dict"]}
        if "enum" in tree:
            return _KEPT[tree["enum"]][tree["name"]]  # type: ignore[index]
        if "scalar" in tree:
            return self._arrays[tree["scalar"]][()]
        if "same" in tree:
            return self._shared[tree["same"]]
        return self._decode_shared(tree)

    def _decode_shared(self, tree: dict[str, Any]) -> Any:
        place = len(self._shared)
        self._shared.append(None)
        if "array" in tree:
            self._shared[place] = self._arrays[tree["array"]]
        elif "rng" in tree:
            self._shared[place] = _generator(tree["rng"])
        else:
            cls = _KEPT[tree["object"]]
            made: Any = object.__new__(cls)
            self._shared[place] = made
            for name, field in tree["fields"].items():
                object.__setattr__(made, name, self.decode(field))
        return self._shared[place]


def _plain(state: Any) -> Any:
    """A bit generator's state as JSON values."""
    if isinstance(state, dict):
        return {k: _plain(v) for k, v in state.items()}
    return state.tolist() if isinstance(state, np.ndarray | np.generic) else state


def _generator(state: dict[str, Any]) -> np.random.Generator:
    if state["bit_generator"] != "PCG64":
        raise ValueError(f"random generator {state['bit_generator']} is not one of tpca's")
    rng = np.random.Generator(np.random.PCG64())
    rng.bit_generator.state = state
    return rng
