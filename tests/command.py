"""The command ``tpca``, in this process: importing everything anew takes longer than most of what it does."""

import contextlib
import io
import math
import os
import sys
from dataclasses import dataclass
from unittest import mock

from tpca.cli import main


@dataclass(frozen=True)
class Done:
    """What a command left behind, under the names of ``subprocess.CompletedProcess``."""

    returncode: int
    stdout: str
    stderr: str


def run(*arguments, cwd):
    """The entry point of the command as it is called by a shell in ``cwd``; a traceback or a warning is an error here.

    What only a process of its own can show (an import without what others imported, a signal, a full disk) needs one.
    """
    here, out, err, code = os.getcwd(), io.StringIO(), io.StringIO(), 0
    os.chdir(cwd)
    try:
        with (
            mock.patch.object(sys, "argv", ["tpca", *map(str, arguments)]),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            mock.patch.multiple("tpca.cli.progress", FIRST=math.inf, MOST=math.inf),  # a busy machine says no more
        ):
            main()
    except SystemExit as left:
        code = left.code
    finally:
        os.chdir(here)
    assert isinstance(code, int | None), code  # anything else is a text that would be printed, with exit code 1
    return Done(code or 0, out.getvalue(), err.getvalue())


def line(done):
    """The one line that a command writes when it refuses something."""
    assert (done.returncode, done.stdout or "") == (2, ""), done
    assert done.stderr.startswith("tpca: "), done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr
