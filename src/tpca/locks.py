"""One run at a time in a folder: a lock that its process gives back whatever ends it.

The lock is the operating system's (``flock``) on the file ``.lock``, which names the process and host that hold it:
that of a process that was killed is free again, and who comes next takes it over.  Systems without ``flock`` have none.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from tpca.errors import CheckpointError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

NAME = ".lock"


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Hold a folder for this run; one that another run holds is refused."""
    if fcntl is None:
        yield
        return
    handle = _taken(folder)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            (folder / NAME).unlink()  # while it is held: who waits for this very file looks whether it is still there
        os.close(handle)
        with contextlib.suppress(OSError):
            folder.rmdir()  # only if nothing is left in it


def _taken(folder: Path) -> int:
    """The handle of the lock file, held; opened again if its last owner removed it in between."""
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            handle = os.open(folder / NAME, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)  # no link to something else
        except FileNotFoundError:  # removed by its last owner between the two
            continue
        except OSError as error:
            raise _unwritable(folder, error) from error
        try:
            _hold(handle, folder)
            if _same(handle, folder / NAME):
                os.ftruncate(handle, 0)
                os.write(handle, json.dumps({"process": os.getpid(), "host": socket.gethostname()}).encode())
                return handle
        except OSError as error:  # a full disk, or a file that is none
            os.close(handle)
            raise _unwritable(folder, error) from error
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _unwritable(folder: Path, error: OSError) -> CheckpointError:
    return CheckpointError(f"cannot write a checkpoint to {str(folder)!r}: {error.strerror}; choose another folder.")


def _hold(handle: int, folder: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise CheckpointError(
            f"{str(folder)!r} is in use by {_owner(handle)}; wait until it has ended, or choose another folder."
        ) from None
    except OSError:  # a file system that has no locks: as good as it gets
        return


def _owner(handle: int) -> str:
    """Who holds the lock, as far as the file says."""
    try:
        told = json.loads(os.pread(handle, 1000, 0))
        return f"process {int(told['process'])} on {str(told['host'])!r}"
    except (OSError, ValueError, KeyError, TypeError):  # it was made this moment
        return "another process"


def _same(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except OSError:
        return False
