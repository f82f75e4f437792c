"""Checkpoints: a run's state as a folder, to go on from after any interruption.

A checkpoint is a folder with two files, ``tpca-state.json`` and ``tpca-arrays.npz``.  Their names are its mark: a
folder with anything else in it is not one, and is never removed.  It appears whole or not at all (:mod:`tpca.files`).
The one before is kept until the next, so that a damaged one (checksums tell) costs no more than a little time.

The state is a tree of plain values and arrays; nothing is pickled.  It may hold numbers, text, lists, tuples, dicts,
arrays, random generators, and objects of classes marked :func:`kept`, which are stored by their attributes.  What is
shared stays shared (two strategies with one generator).
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import hashlib
import json
import os
import time
import warnings
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tpca import __version__
from tpca.errors import JSON_BYTES, CheckpointError, OutputError, check_regular
from tpca.files import Kind, checksum, clear_drafts, discard, named_place, replacing

VERSION = 18  # raised whenever the attributes of a kept class, or a position, change their meaning
KEEP = 2
STATE, ARRAYS = "tpca-state.json", "tpca-arrays.npz"
CHECKPOINT = Kind("a checkpoint of tpca", members=(STATE, ARRAYS))
_KEPT: dict[str, type] = {}
T = TypeVar("T", bound=type)


def kept(cls: T) -> T:
    """Mark a class whose objects are part of a run's state: stored by their attributes, made again without a call."""
    _KEPT[cls.__name__] = cls
    return cls


def _encode(state: Any) -> tuple[Any, list[NDArray[Any]]]:
    """A tree of state as JSON values, and its arrays."""
    arrays: list[NDArray[Any]] = []
    places: dict[int, int] = {}  # id -> number, of everything that may be shared
    held: list[Any] = []  # keeps those ids from being used again

    def put(value: Any) -> Any:
        if value is None or isinstance(value, bool | str) or type(value) in (int, float):
            return value  # json writes floats so that they are read back exactly, also inf and nan
        if isinstance(value, list):
            return [put(v) for v in value]
        if isinstance(value, tuple):
            return {"tuple": [put(v) for v in value]}
        if isinstance(value, dict):
            return {"dict": [[put(k), put(v)] for k, v in value.items()]}
        name = type(value).__name__
        if isinstance(value, enum.Enum) and name in _KEPT:
            return {"enum": name, "name": value.name}
        if isinstance(value, np.generic):
            arrays.append(np.asarray(value))
            return {"scalar": len(arrays) - 1}
        if id(value) in places:
            return {"same": places[id(value)]}
        places[id(value)] = len(places)
        held.append(value)
        if isinstance(value, np.ndarray):
            # BLAS may round a strided array differently from a contiguous one: a resumed run would not be the same.
            if not value.flags.c_contiguous or value.dtype.hasobject:
                raise TypeError(f"state arrays must be C-contiguous numbers, got strides {value.strides}.")
            arrays.append(value)
            return {"array": len(arrays) - 1}
        if isinstance(value, np.random.Generator):
            return {"rng": value.bit_generator.state}
        if _KEPT.get(name) is not type(value):
            raise TypeError(f"objects of class {name} cannot be part of a checkpoint.")
        fields = [f.name for f in dataclasses.fields(value)] if dataclasses.is_dataclass(value) else list(vars(value))
        return {"object": name, "fields": {n: put(getattr(value, n)) for n in fields}}

    return put(state), arrays


def _decode(tree: Any, arrays: list[NDArray[Any]]) -> Any:
    """What a tree stands for."""
    shared: list[Any] = []

    def get(tree: Any) -> Any:
        if isinstance(tree, list):
            return [get(t) for t in tree]
        if not isinstance(tree, dict):
            return tree
        if "tuple" in tree:
            return tuple(get(t) for t in tree["tuple"])
        if "dict" in tree:
            return {get(k): get(v) for k, v in tree["dict"]}
        if "enum" in tree:
            return _KEPT[tree["enum"]][tree["name"]]  # type: ignore[index]
        if "scalar" in tree:
            return arrays[tree["scalar"]][()]
        if "same" in tree:
            return shared[tree["same"]]
        place = len(shared)
        shared.append(None)
        if "array" in tree:
            shared[place] = arrays[tree["array"]]
        elif "rng" in tree:
            shared[place] = rng = np.random.default_rng()
            rng.bit_generator.state = tree["rng"]  # refuses that of another kind
        else:
            made: Any = object.__new__(_KEPT[tree["object"]])
            shared[place] = made  # before its fields, which may lead back to it
            for name, field in tree["fields"].items():
                object.__setattr__(made, name, get(field))
        return shared[place]

    return get(tree)


class CheckpointWarning(UserWarning):
    """A damaged checkpoint was passed over."""


class Checkpoints:
    """The checkpoints of one run in ``folder``, at most one every ``every`` seconds (0: after every round)."""

    def __init__(self, folder: str | os.PathLike[str], every: float = 60.0) -> None:
        if not every >= 0:
            raise CheckpointError(f"checkpoint_every must be a number of seconds, 0 or more, got {every}.")
        self.folder, self.every = named_place(folder), float(every)
        self._last = time.monotonic()
        # A link, and what is numbered as a checkpoint but is none, are somebody's, who may lose by it.
        if self.folder.is_symlink():
            raise CheckpointError(
                f"{str(self.folder)!r} is a symbolic link, and checkpoints are not removed through links; "
                f"name the folder itself: {os.path.realpath(self.folder)!r}."
            )
        for path in sorted(self.folder.iterdir()) if self.folder.is_dir() else ():
            if path.name.isdigit() and not _is_checkpoint(path) and os.path.lexists(path):
                raise CheckpointError(
                    f"{str(path)!r} has the name of a checkpoint, but something else is in it; "
                    "choose another folder for checkpoints, such as a new one."
                )

    def due(self) -> bool:
        """Whether it is time for another one."""
        return time.monotonic() - self._last >= self.every

    def save(self, state: dict[str, Any]) -> None:
        """Write a checkpoint; either the whole of it appears or nothing does."""
        numbers = self._numbers()
        number = numbers[-1] + 1 if numbers else 1
        try:
            with replacing(self.folder / f"{number:08d}", kinds=[CHECKPOINT]) as (draft,):
                draft.mkdir()
                _fill(draft, state)
        except OutputError as error:
            raise CheckpointError(
                f"cannot write a checkpoint to {str(self.folder)!r}: {error.__cause__ or error}; "
                "make room there or choose another folder, and resume from the last one."
            ) from error
        for old in numbers[: len(numbers) + 1 - KEEP]:
            discard(self.folder / f"{old:08d}")
        self._last = time.monotonic()

    def any(self) -> bool:
        """Whether there is one, good or not."""
        return bool(self._numbers())

    def load(self) -> dict[str, Any] | None:
        """The newest checkpoint that is whole, or ``None`` if there is none at all."""
        problems = []
        for number in reversed(self._numbers()):
            try:
                state = _read(self.folder / f"{number:08d}")
            except Exception as error:  # a damaged file may raise anything
                said = str(error) if isinstance(error, CheckpointError) else f"is damaged ({error})"
                problems.append(f"checkpoint {number} in {str(self.folder)!r} {said}")
                continue
            for problem in problems:
                warnings.warn(f"{problem}; going on from checkpoint {number}.", CheckpointWarning, stacklevel=2)
            return state
        if problems:
            raise CheckpointError(
                f"{'; '.join(problems)}; start again without resume and in an empty folder (--restart)."
            )
        return None

    def clear(self) -> None:
        """Remove all checkpoints, and the folder if nothing else is in it."""
        for number in self._numbers():
            discard(self.folder / f"{number:08d}")
        clear_drafts(self.folder)
        if self.folder.is_dir() and not any(self.folder.iterdir()):
            self.folder.rmdir()

    def _numbers(self) -> list[int]:
        if not self.folder.is_dir():
            return []
        return sorted(int(path.name) for path in self.folder.iterdir() if _is_checkpoint(path))


def _is_checkpoint(path: Path) -> bool:
    """Whether a path is a folder of ours: numbered, with our own files in it and no others."""
    if not path.name.isdigit() or path.is_symlink() or not path.is_dir():
        return False
    with contextlib.suppress(FileNotFoundError):  # removed this moment by the run that wrote it
        names = {inner.name for inner in path.iterdir()}
        return bool(names) and names <= {STATE, ARRAYS}
    return False


def _fill(folder: Path, state: dict[str, Any]) -> None:
    """Write both files; the head of the state knows the checksums of its body and of the arrays."""
    tree, arrays = _encode(state)
    body = json.dumps(tree, separators=(",", ":"))
    packed = folder / ARRAYS
    np.savez(packed, **{f"a{i}": array for i, array in enumerate(arrays)})  # type: ignore[arg-type]
    head = {"format": "tpca checkpoint", "version": VERSION, "tpca": __version__}
    head |= {"arrays": checksum(packed), "body": hashlib.sha256(body.encode()).hexdigest()}
    (folder / STATE).write_text(f"{json.dumps(head)}\n{body}\n")


def _read(folder: Path) -> dict[str, Any]:
    check_regular(folder / STATE, JSON_BYTES)
    head_line, _, body = (folder / STATE).read_text().partition("\n")
    head, body = json.loads(head_line), body.rstrip("\n")
    if not isinstance(head, dict) or head.get("format") != "tpca checkpoint":
        raise ValueError(f"{STATE} is not one of tpca's")
    if head["version"] != VERSION:
        writer = f"tpca {head['tpca']}" if isinstance(head.get("tpca"), str) else "another tpca"
        raise CheckpointError(f"is of {writer}: it has version {head['version']}, this tpca reads version {VERSION}")
    if hashlib.sha256(body.encode()).hexdigest() != head["body"]:
        raise ValueError(f"the checksum of {STATE} does not match")
    if checksum(folder / ARRAYS) != head["arrays"]:
        raise ValueError(f"the checksum of {ARRAYS} does not match")
    with np.load(folder / ARRAYS, allow_pickle=False) as stored:
        arrays = [stored[f"a{i}"] for i in range(len(stored.files))]
    state = _decode(json.loads(body), arrays)
    if not isinstance(state, dict):
        raise ValueError(f"{STATE} holds a {type(state).__name__} instead of a state")
    return state
