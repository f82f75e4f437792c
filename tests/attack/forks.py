"""Work in forks of this process, which has imported everything: a fit begins at once, and may be killed."""

import contextlib
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

SECONDS = 60.0  # a guard against hangs, some hundred times what a fit takes
ROOM = 2**31  # bytes of memory that a fork may take beside what this process has
INTERRUPTED = (128 + signal.SIGINT, 128 + signal.SIGTERM)


@dataclass(frozen=True)
class Ended:
    """How a fork ended: its exit code (minus the signal that killed it), what it wrote, whether it took too long.

    ``peak`` is the most memory it had, in bytes, beside what this process had when it began.
    """

    code: int
    output: str
    hung: bool = False
    peak: int = 0

    @property
    def killed(self):
        return self.code == -signal.SIGKILL and not self.hung

    @property
    def outcome(self):
        """``done``, or one of the words of this package."""
        if self.hung:
            return "hang"
        if self.code < 0:
            return "crash"
        if "Traceback" in self.output or self.code not in (0, 2, 3, 4, *INTERRUPTED):
            return "traceback"
        if self.code in (0, 3, 4):
            return "done"
        clear = self.code in INTERRUPTED or sum(line.startswith("tpca: ") for line in self.output.splitlines()) == 1
        return "error" if clear else "traceback"


class Fork:
    """A fork that is doing ``work()``, in little memory if ``capped``; ``end`` waits for it."""

    def __init__(self, work, folder=".", capped=True):
        self.output = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `end`)
        sys.stdout.flush()
        sys.stderr.flush()
        self._before = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
        self.pid = os.fork()
        if self.pid == 0:
            _become(work, folder, self.output.fileno(), capped)

    def send(self, number):
        """A signal; it is still ours, even if it has ended: nobody has waited for it."""
        os.kill(self.pid, number)

    def end(self, seconds=SECONDS):
        """Wait, no longer than some seconds."""
        deadline, hung = time.monotonic() + seconds, False
        while not (found := os.wait4(self.pid, os.WNOHANG))[0]:
            if time.monotonic() > deadline and not hung:
                hung = True
                self.send(signal.SIGKILL)
            time.sleep(0.002)
        with self.output as file:
            file.seek(0)
            told = file.read().decode(errors="replace")
        return Ended(os.waitstatus_to_exitcode(found[1]), told, hung, 1024 * found[2].ru_maxrss - self._before)

    def wait(self, seconds):
        """Let it work for some seconds, or until it has ended, which is left for ``end`` to find."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self.ended:
            time.sleep(0.002)

    @property
    def ended(self):
        """Whether it has ended; that is still there for ``end`` to find."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _become(work, folder, output, capped):
    """The life of the child."""
    code = 1
    try:
        os.dup2(output, 1)
        os.dup2(output, 2)
        for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
            signal.signal(number, usual)
        os.chdir(folder)
        if capped:
            _cap_memory()
        code = work() or 0
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
    except KeyboardInterrupt:  # before the command had begun
        code = 128 + signal.SIGINT
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _cap_memory():
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + ROOM, most))


def command(*words):
    """The work of ``tpca`` with some words."""

    def work():
        from tpca.cli import main

        sys.argv = ["tpca", *map(str, words)]
        main()

    return work


def tpca(*words, folder):
    """The command in a fork, from beginning to end."""
    return Fork(command(*words), folder).end()


def import_all():
    """What a fit may import, so that forks need not."""
    import h5py  # noqa: F401
    import pandas  # noqa: F401
    import pyarrow.parquet  # noqa: F401
    import zarr  # noqa: F401
    from distributed import Client, LocalCluster  # noqa: F401

    from tpca.cli import app  # noqa: F401
