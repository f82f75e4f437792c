"""Checkpoints: a run's state as a folder, to go on from after any interruption.

A checkpoint is a folder with two files, ``state.json`` (a tree of plain values, :mod:`tpca.codec`) and ``arrays.npz``.

A checkpoint appears whole or not at all (:mod:`tpca.drafts`).  The one before is kept until the next, so that a damaged
one (checksums tell) costs no more than a little time.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import time
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from tpca.codec import Reader, Writer, kept
from tpca.drafts import checksum, clear_drafts, discard, drafts
from tpca.errors import CheckpointError, check_regular
from tpca.fields import LONGEST

__all__ = ["VERSION", "CheckpointWarning", "Checkpoints", "kept"]

VERSION = 10  # raised whenever the attributes of a kept class, or a position, change their meaning
KEEP = 2


class CheckpointWarning(UserWarning):
    """A damaged checkpoint was passed over."""


class Checkpoints:
    """The checkpoints of one run in ``folder``, at most one every ``every`` seconds (0: after every round)."""

    def __init__(self, folder: str | os.PathLike[str], every: float = 60.0) -> None:
        if not every >= 0:
            raise CheckpointError(f"checkpoint_every must be a number of seconds, 0 or more, got {every}.")
        self.folder, self.every = Path(folder), every
        self._last = time.monotonic()

    def due(self) -> bool:
        """Whether it is time for another one."""
        return time.monotonic() - self._last >= self.every

    def save(self, state: dict[str, Any]) -> None:
        """Write a checkpoint; either the whole of it appears or nothing does."""
        numbers = self._numbers()
        number = numbers[-1] + 1 if numbers else 1
        try:
            with drafts(self.folder / f"{number:08d}") as (draft,):
                draft.mkdir()
                _fill(draft, state)
        except OSError as error:
            raise CheckpointError(
                f"cannot write a checkpoint to {str(self.folder)!r}: {error}; "
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
            except CheckpointError as error:
                problems.append(f"checkpoint {number} in {str(self.folder)!r} {error}")
                continue
            except Exception as error:  # a damaged file may raise anything
                problems.append(f"checkpoint {number} in {str(self.folder)!r} is damaged ({error})")
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
        return sorted(int(path.name) for path in self.folder.iterdir() if path.name.isdigit() and path.is_dir())


def _fill(folder: Path, state: dict[str, Any]) -> None:
    """Write both files; the head of ``state.json`` knows the checksums of its body and of the arrays."""
    writer = Writer()
    body = json.dumps(writer.encode(state), separators=(",", ":"))
    packed = folder / "arrays.npz"
    np.savez(packed, **{f"a{i}": array for i, array in enumerate(writer.arrays)})  # type: ignore[arg-type]
    head = {"format": "tpca checkpoint", "version": VERSION, "tpca": _writer()}
    head |= {"arrays": checksum(packed), "body": _digest(body)}
    (folder / "state.json").write_text(f"{json.dumps(head)}\n{body}\n")


@functools.cache
def _writer() -> str:
    """The version of the package, which stands in its metadata: read once, not for every checkpoint."""
    return version("tpca")


def _read(folder: Path) -> dict[str, Any]:
    check_regular(folder / "state.json", LONGEST)
    head_line, _, body = (folder / "state.json").read_text().partition("\n")
    head, body = json.loads(head_line), body.rstrip("\n")
    if not isinstance(head, dict) or head.get("format") != "tpca checkpoint":
        raise ValueError("state.json is not one of tpca's")
    if head["version"] != VERSION:
        writer = f"tpca {head['tpca']}" if isinstance(head.get("tpca"), str) else "another tpca"
        raise CheckpointError(f"is of {writer}: it has version {head['version']}, this tpca reads version {VERSION}")
    if _digest(body) != head["body"]:
        raise ValueError("the checksum of state.json does not match")
    if checksum(folder / "arrays.npz") != head["arrays"]:
        raise ValueError("the checksum of arrays.npz does not match")
    with np.load(folder / "arrays.npz", allow_pickle=False) as stored:
        arrays = [stored[f"a{i}"] for i in range(len(stored.files))]
    state = Reader(arrays).decode(json.loads(body))
    if not isinstance(state, dict):
        raise ValueError(f"state.json holds a {type(state).__name__} instead of a state")
    return state


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
