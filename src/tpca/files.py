"""Files that appear whole or not at all, and folders that one run holds at a time.

A file is written under another name, flushed to the disk, and renamed.  The draft of ``d.npy`` is
``.writing-<process>-<host>-d.npy``, beside it.  A process that is killed leaves its drafts behind; who writes there
next removes them, but not those of a process that is still at work.  Processes of another host that shares the folder
cannot be asked: their drafts stay.

What is replaced is looked at first, here and for all writers: it must be a regular file, and one of ours, known by its
beginning; anything else is somebody's, and goes only where that was asked for.

A folder is held by a lock of the operating system on the file ``.lock`` (:mod:`filelock`): that of a process that was
killed is free again.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import shutil
import socket
import stat
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import filelock

from tpca.errors import CheckpointError, OutputError, check_regular

LOCK, PATIENCE = ".lock", 0.2  # seconds: the last owner may be removing it this moment
BEGINNING = 64  # bytes of a file, in which the marks of all kinds are
WAY_OUT = "choose another place, or replace it with overwrite=True (--overwrite in the command)"


@dataclass(frozen=True)
class Kind:
    """A kind of file or folder that is written, and how one that is there is known to be of it.

    Attributes
    ----------
    noun
        What it is called: "a report of tpca".
    mark
        Bytes in the beginning of such a file.
    members
        Of a folder: files of which one at least is in it.  A kind without members is a file.
    """

    noun: str = "a file"
    mark: bytes = b""
    members: tuple[str, ...] = ()

    def is_at(self, path: Path) -> bool:
        """Whether what lies there is of this kind."""
        if self.members:
            inside = os.listdir(path)
            return not inside or any(name in inside for name in self.members)
        with path.open("rb") as file:
            return self.mark in file.read(BEGINNING)


def named_place(text: str | os.PathLike[str]) -> Path:
    """The path that somebody gave to be written to; an empty one, which would be the folder at work, is refused."""
    if not os.fspath(text):
        raise OutputError("the path '' is empty; give the name of a file or folder, or '.' for the folder at work.")
    return Path(text)


def check_replaceable(path: Path, kind: Kind, overwrite: bool = False, data: Iterable[str] = ()) -> None:
    """Refuse to write where something lies that is not a regular file, or that is somebody's.

    Without ``overwrite`` a file must be of the ``kind`` that is written, and not one of the files of ``data``.
    """
    try:
        mode = os.lstat(path).st_mode
        regular = stat.S_ISDIR(mode) if kind.members else stat.S_ISREG(mode)
        if not regular:
            wanted = "folder" if kind.members else "regular file"
            raise _not_written(
                path, f"there is {_noun_of(mode)}, and only a {wanted} is replaced", "choose another place"
            )
        if overwrite:
            return
        if any(os.path.exists(place) and os.path.samefile(path, place) for place in data):
            raise _not_written(path, "it is among the data", WAY_OUT)
        if not kind.is_at(path):
            raise _not_written(path, f"what is there is not {kind.noun}", WAY_OUT)
    except (FileNotFoundError, NotADirectoryError):
        return  # nothing is there to lose
    except OutputError:
        raise
    except OSError as error:
        raise _not_written(path, error.strerror or str(error), "choose another place") from error


def _not_written(path: Path, why: str, way_out: str) -> OutputError:
    return OutputError(f"cannot write {str(path)!r}: {why}; {way_out}.")


def _noun_of(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "a folder"
    if stat.S_ISLNK(mode):
        return "a link"
    if stat.S_ISREG(mode):
        return "a file"
    return "a pipe, socket or device"


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Hold a folder for this run; one that another run holds is refused."""
    lock = filelock.FileLock(folder / LOCK, timeout=PATIENCE, thread_local=False)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(folder / LOCK):
            present = os.lstat(folder / LOCK)
            if not stat.S_ISREG(present.st_mode) or present.st_size:  # a lock is an empty file
                raise OSError(f"{LOCK!r} there is no file of ours")
        lock.acquire()
    except filelock.Timeout:
        raise CheckpointError(
            f"{str(folder)!r} is in use by another run; wait until it has ended, or choose another folder."
        ) from None
    except OSError as error:  # a full disk, a file that is no folder, a link, or gone between two looks at it
        why = error.strerror or str(error)
        raise CheckpointError(f"cannot write a checkpoint to {str(folder)!r}: {why}; choose another folder.") from error
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            (folder / LOCK).unlink()  # while it is held; who waits for this very file sees that it is gone
        lock.release()
        with contextlib.suppress(OSError):
            folder.rmdir()  # only if nothing is left in it


_at_work: set[Path] = set()  # the drafts of this process


@contextlib.contextmanager
def replacing(
    *paths: Path,
    kinds: Sequence[Kind] = (),
    overwrite: bool = False,
    data: Iterable[str] = (),
    removing: Sequence[Path] = (),
) -> Iterator[list[Path]]:
    """Drafts to write, of files or folders that belong together; all are renamed if all go well, none if one does not.

    They are renamed in the order given.  Just before, the files of ``removing`` are removed: those that belong to the
    old ones and would be wrong beside the new ones.  What goes wrong is an :class:`~tpca.errors.OutputError`; so is
    what must not be replaced (:func:`check_replaceable`), by the ``kinds`` of the paths and files.
    """
    for path, kind in zip(paths, kinds or [Kind()] * len(paths), strict=True):
        check_replaceable(path, kind, overwrite, data)
    some, folders = [_beside(path) for path in paths], {path.parent for path in paths}
    try:
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
            clear_drafts(folder)
        _at_work.update(some)
        yield some
        for draft in some:
            for path in (*(draft.rglob("*") if draft.is_dir() else ()), draft):
                _flush(path)
        for path in removing:
            path.unlink(missing_ok=True)
        for draft, path in zip(some, paths, strict=True):
            _rename(draft, path)
        for folder in folders:
            _flush(folder)
    except OSError as error:
        why = error.strerror or error
        raise OutputError(f"cannot write {str(paths[0])!r}: {why}; choose another place.") from error
    finally:
        _at_work.difference_update(some)
        for draft in some:
            _remove(draft)


def check_folder(path: Path) -> None:
    """Refuse a file in a folder that is not there, which may be a slip of the pen."""
    if not path.parent.exists():
        raise OutputError(f"cannot write {str(path)!r}: there is no folder {str(path.parent)!r}; make it first.")


def checksum(path: Path) -> str:
    """Of a whole ``.npz`` file: whether it is still the one that was written."""
    check_regular(path)
    if not zipfile.is_zipfile(path):  # only its end is looked at: it may have become as long as it likes
        return ""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def clear_drafts(folder: Path) -> None:
    """Remove what was not written to its end by processes that are gone; what may still be at work is left alone."""
    for draft in folder.glob(".writing-*"):
        _, process, *rest = draft.name.split("-")
        if not process.isdigit() or rest[:1] != [_host()]:
            continue  # none of ours, or it cannot be asked
        if int(process) == os.getpid():  # or of one before: in containers the number is the same every time
            if draft.absolute() not in _at_work:
                _remove(draft)
        elif os.name == "posix":  # elsewhere it cannot be asked
            with contextlib.suppress(PermissionError):  # somebody else's
                try:
                    os.kill(int(process), 0)
                except (ProcessLookupError, OverflowError):
                    _remove(draft)


def discard(folder: Path) -> None:
    """Remove a folder, if it can be; it has the name of a draft before anything in it goes: nobody finds half of it."""
    aside = _beside(folder, "old-")
    try:
        os.replace(folder, aside)
    except OSError:
        aside = folder
    _remove(aside)


def _beside(path: Path, prefix: str = "") -> Path:
    return path.absolute().with_name(f".writing-{os.getpid()}-{_host()}-{prefix}{path.name}")


@functools.cache
def _host() -> str:
    """The name of the host as a word without a hyphen."""
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]


def _rename(draft: Path, path: Path) -> None:
    """Put a draft in its place; what was in the place of a folder must be moved out of the way before."""
    aside = _beside(path, "old-")
    _at_work.add(aside)  # another thread must not clear it: it may have to come back
    try:
        if draft.is_dir() and path.exists():
            os.replace(path, aside)
        os.replace(draft, path)
    except OSError:
        if aside.exists():
            os.replace(aside, path)
        raise
    finally:
        _at_work.discard(aside)
    _remove(aside)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():  # of a link only itself goes
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def _flush(path: Path) -> None:
    """Bring a file, or the names in a folder, safely to the disk."""
    if path.is_dir() and not hasattr(os, "O_DIRECTORY"):
        return  # a system that cannot
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
