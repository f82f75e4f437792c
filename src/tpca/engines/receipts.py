"""Whether data are still those that were read: since a checkpoint, and while a fit went on.

Files are told apart by their names, sizes and times of last change, a store by those of its chunks: their *stamp*.
Nothing of files with the same stamp is compared.  Where names or sizes differ the data are others.  Where only times do
(a copy), or there are no files (arrays, iterables), what was read before is read again, and digests are compared: the
*receipt* of a run is the sum of those of all batches that it has read, each counted once however many passes there are.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
import warnings
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tpca.checkpoint import CheckpointWarning
from tpca.errors import CheckpointError, StreamError
from tpca.tensors import Batch

MODULUS = 2**64
Stamp = dict[str, Any]
BatchDigest = tuple[int, int | None]  # where a batch ends, and its digest


class Receipt:
    """The digest of everything that was read from place ``begin`` to ``end``; of samples that never end, of the last.

    ``None`` once there was a batch of a user's own that does not say what it holds.
    """

    def __init__(self, endless: bool = False, begin: int = 0, end: int = 0, digest: int | None = 0) -> None:
        self.endless, self.begin, self.end, self.digest = endless, begin, end, digest

    def take(self, batch: Batch) -> None:
        """A batch was read; one that was read before does not count."""
        if (found := batch_digest(batch, self.end)) is not None:
            if self.endless:
                self.begin, self.digest = batch.first, 0
            self.add([found])

    def add(self, found: Sequence[BatchDigest]) -> None:
        """Some batches were read."""
        for stop, own in found:
            self.end = max(self.end, stop)
            self.digest = None if self.digest is None or own is None else (self.digest + own) % MODULUS

    def position(self) -> dict[str, Any]:
        """As plain values."""
        return {"begin": self.begin, "end": self.end, "digest": None if self.digest is None else f"{self.digest:016x}"}

    @classmethod
    def of(cls, position: dict[str, Any], endless: bool) -> Receipt:
        """The receipt at a position."""
        known = position["digest"]
        return cls(endless, int(position["begin"]), int(position["end"]), None if known is None else int(known, 16))

    def compare(self, now: Receipt) -> None:
        """Refuse to go on with samples that are not those of this receipt."""
        if self.digest is None or now.digest is None:
            warnings.warn(
                "the data cannot be compared with those of the checkpoint: their batches have no content(); make sure "
                "that they are the same.",
                CheckpointWarning,
                stacklevel=2,
            )
        elif (self.end, self.digest) != (now.end, now.digest):
            raise changed(f"samples {self.begin} to {self.end - 1} differ")


def batch_digest(batch: Batch, after: int) -> BatchDigest | None:
    """Where a batch ends, and its digest; ``None`` of an empty one, and of one that is not behind place ``after``."""
    stop = batch.first + len(batch) + batch.dropped
    if not len(batch) or stop <= after:
        return None
    content = batch.content()
    if content is None:
        return stop, None
    found = hashlib.blake2b(str(stop).encode(), digest_size=8)
    for array in content:
        # A checksum of all entries takes a sixth of the time of a cryptographic digest: nobody forges here.
        found.update(f" {array.dtype.str} {array.shape} {zlib.crc32(np.ascontiguousarray(array).data)}".encode())
    return stop, int.from_bytes(found.digest())


def changed(how: str) -> CheckpointError:
    """The error for data that are not those of the checkpoint."""
    return CheckpointError(
        f"the data have changed since the checkpoint: {how}; resume with the same data, or start afresh (--restart)."
    )


def stamp(places: Sequence[str]) -> Stamp | None:
    """Of files, folders and URLs, by names inside of these; ``None`` where there are none, or they cannot be listed."""
    count, size, last = 0, 0, ("", "")
    sizes, times = hashlib.sha256(), hashlib.sha256()
    try:
        for number, place in enumerate(places):
            for name, length, when in sorted(_listed(place)):
                count, size, last = count + 1, size + length, max(last, (when, name))
                sizes.update(f"{number}/{name} {length}\n".encode())
                times.update(f"{when}\n".encode())
    except Exception:  # file systems of all sorts
        return None
    if not places:
        return None
    named = f"{places[0]!r}{f' and {len(places) - 1} more' if len(places) > 1 else ''}"
    told = {"place": named, "files": count, "bytes": size, "last": list(last)}
    return {**told, "sizes": sizes.hexdigest(), "times": times.hexdigest()}


def _listed(place: str) -> Iterator[tuple[str, int, str]]:
    """Name, size and time of last change of every file."""
    if "://" in place:
        import fsspec  # type: ignore[import-untyped]

        system, root = fsspec.core.url_to_fs(place)
        for name, about in system.find(root, detail=True).items():
            when = next((about[key] for key in ("ETag", "LastModified", "mtime", "created") if key in about), "")
            yield name.removeprefix(root), int(about["size"]), str(when)
        return
    names = [place]
    if os.path.isdir(place):
        names = [os.path.join(folder, name) for folder, _, inside in os.walk(place) for name in inside]
    for name in names:
        with contextlib.suppress(FileNotFoundError):  # gone: it is missing in the list
            found = os.stat(name)
            yield os.path.relpath(name, place), found.st_size, f"{found.st_mtime_ns:020d}"


def same_files(before: Stamp | None, now: Stamp | None) -> bool:
    """Whether nothing need be read again; other names or sizes are refused."""
    if before is None or now is None:
        return False
    if before["sizes"] != now["sizes"]:
        raise changed(_other_sizes(before, now))
    return bool(before["times"] == now["times"])


def check_unchanged(before: Stamp | None, now: Stamp | None, failure: Exception | None = None) -> None:
    """Refuse files that were written to while they were read, which may be the cause of a ``failure``."""
    if before is None or now is None or (before["sizes"], before["times"]) == (now["sizes"], now["times"]):
        return
    how = _other_sizes(before, now) if before["sizes"] != now["sizes"] else _written(now)
    raise StreamError(
        f"the data have changed while they were read: {how}; what was found belongs to neither the old nor the new "
        "ones. Fit again when nobody writes to them (--restart)."
    ) from failure


def _other_sizes(before: Stamp, now: Stamp) -> str:
    def told(one: Stamp) -> str:
        return f"{one['bytes']:,} bytes in {one['files']:,} file{'' if one['files'] == 1 else 's'}"

    same = told(before) == told(now)
    return f"{now['place']} {'has other files' if same else f'has {told(now)}, it had {told(before)}'}"


def _written(now: Stamp) -> str:
    when, name = now["last"]
    at = f" at {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(int(when) / 1e9))}" if when.isdigit() else ""
    return f"{now['place']} was written to{at}{'' if name in ('', '.') else f' ({name})'}"
