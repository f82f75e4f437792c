"""Standard output and standard error as they may be: closed, full, or of an encoding that lacks letters of ours."""

from __future__ import annotations

import codecs
import contextlib
import errno
import io
import os
import sys

from tpca.errors import OutputError

# What stands for letters that an encoding lacks; any other is written as an escape.
PLAIN = {"×": "x", "⊗": "x", "−": "-", "–": "-", "—": "-", "±": "+/-", "·": "*", "→": "->", "≤": "<=", "≥": ">="}
PLAIN |= {"²": "^2", "³": "^3", "…": "...", "’": "'", "“": '"', "”": '"', "⁻": "^-", "λ": "lambda", "σ": "sigma"}


class ClosedOutput(io.TextIOBase):
    """Stands for a standard output that was closed before the command began: nothing can be written to it."""

    def write(self, text: str) -> int:
        """Fail as the system does."""
        raise OSError(errno.EBADF, "it is closed")


class Unread(io.TextIOBase):
    """Stands for a standard error that was closed: what is written is lost."""

    def write(self, text: str) -> int:
        """Take the text."""
        return len(text)


def prepare_streams() -> None:
    """Make standard output and standard error streams that can be written to, or say that they cannot."""
    if sys.stdout is None:
        os.open(os.devnull, os.O_RDONLY)  # takes the number of standard output, which no file of data may get
        sys.stdout = ClosedOutput()
    if sys.stderr is None:
        os.open(os.devnull, os.O_WRONLY)
        sys.stderr = Unread()
    codecs.register_error("tpca.plain", plain_letters)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="tpca.plain")


def plain_letters(error: UnicodeError) -> tuple[str, int]:
    """Handler of encoding errors: letters that look alike, or escapes."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    letters = error.object[error.start : error.end]
    plain = "".join(PLAIN.get(letter) or ascii(letter)[1:-1] for letter in letters)
    return plain, error.end


def check_output_is_open() -> None:
    """Refuse to begin work whose answer nobody can read."""
    if isinstance(sys.stdout, ClosedOutput):
        raise OutputError("standard output is closed, and the answer is printed there; open it, or give --quiet.")


def say(text: str) -> None:
    """Write to standard error, if that is possible: who cannot be told cannot be told so."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (OSError, ValueError):
        drop(sys.stderr)


def drop(stream: io.TextIOBase | io.TextIOWrapper | object) -> None:
    """Let what a stream still has, and whatever follows, go nowhere; Python would try it again at the end."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # type: ignore[union-attr]
