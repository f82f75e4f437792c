"""Workers that are killed, stopped for a while or paused, and schedulers that die: the bytes of one process."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from attack.cases import CASES, Part, emptied, result_of
from attack.forks import Fork, command

CASE = ("race zarr", "least squares npy", "least squares hdf5", "race npy")
ATTACKS = ("killed", "stopped", "paused", "killed", "stopped", "paused", "all paused", "scheduler", "command")
LATEST = 1.0  # seconds until something happens: a fit does not take much longer
SECONDS = 300.0  # of a fit: as long as Dask itself waits for a worker that says nothing


class Clusters(Part):
    """A trial is one fit on a cluster of three workers, to some of which something happens."""

    attacks = ATTACKS

    def __init__(self, undisturbed):
        super().__init__(undisturbed)
        self._server = None

    def __exit__(self, *_):
        self._end()

    def trial(self, number, rng):
        case, attack = CASE[number % len(CASE)], self.attacks[number % len(self.attacks)]
        out = self.folder / f"cluster {number}"
        address = self._begin()
        words = ("fit", *CASES[case], "--out", out, "--checkpoint-every", "0")
        with emptied(out):
            fork = Fork(command(*words, "--cluster", address), self.folder, capped=False)
            fork.wait(rng.uniform(0, LATEST))
            if attack == "command":  # gone on with on the cluster, which has lost its client
                fork.send(signal.SIGKILL)
                done = "commands killed" if fork.end().killed else "commands that had ended"
                fork = Fork(command(*words, "--resume", "--cluster", address), self.folder, capped=False)
            else:
                late = fork.ended
                done = getattr(self, f"_{attack.replace(' ', '_')}")(rng)
                if late or ("killed" in attack and fork.ended):  # while the cluster said who its workers are
                    done = "fits that had ended"
            ended = fork.end(SECONDS)
            if attack == "scheduler" and ended.outcome == "error":  # gone on with here, with the same bytes
                ended = Fork(command(*words, "--resume"), self.folder).end()
            outcome = ended.outcome
            if outcome == "done":
                outcome = "right" if without_buffer(out) == self._expected(case) else "wrong"
            return f"{attack}, {case}", [(outcome, ended.output)], {done: 1}

    def _expected(self, case):
        """Of one process, where nobody disturbs."""
        self.undisturbed(case)
        return without_buffer(self.folder / f"undisturbed {case}")

    # -- what happens --------------------------------------------------------------------------------------------------

    def _killed(self, rng):
        os.kill(self._worker(rng), signal.SIGKILL)
        return "workers killed"

    def _all_killed(self, _):
        for worker in json.loads(self._tell("pids")):
            os.kill(worker, signal.SIGKILL)
        return "clusters replaced"

    def _stopped(self, rng):
        worker = self._worker(rng)
        os.kill(worker, signal.SIGSTOP)
        time.sleep(rng.uniform(0.2, 3))
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGCONT)
        return "workers stopped"

    def _paused(self, rng, workers=1):
        some = " ".join(map(str, rng.permutation(3)[:workers]))
        self._tell(f"pause {some}")
        time.sleep(rng.uniform(0.2, 3))
        self._tell(f"unpause {some}")
        return "workers paused"

    def _all_paused(self, rng):
        self._paused(rng, 3)
        return "all workers paused"

    def _scheduler(self, _):
        self._end()
        return "schedulers killed"

    # -- the cluster ---------------------------------------------------------------------------------------------------

    def _begin(self):
        if self._server is None:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
            words = [sys.executable, "-m", "attack.cluster_server"]
            self._server = subprocess.Popen(words, text=True, start_new_session=True, **pipes)
            self.address = self._server.stdout.readline().strip()
        return self.address

    def _tell(self, line):
        self._server.stdin.write(f"{line}\n")
        self._server.stdin.flush()
        return self._server.stdout.readline()

    def _worker(self, rng):
        return int(rng.choice(json.loads(self._tell("pids"))))

    def _end(self):
        if self._server is not None:
            os.killpg(self._server.pid, signal.SIGKILL)
            self._server.wait()
            self._server = None


class Replaced(Clusters):
    """All workers are killed at once; others come, with other addresses.  Dask may not start any a second time."""

    attacks = ("all killed",)

    def trial(self, number, rng):
        self._end()
        return super().trial(number, rng)


def without_buffer(folder):
    """A result; what was held where, while samples were read, is not part of it."""
    summary, vectors = result_of(Path(folder))
    told = json.loads(summary)
    del told["buffer_bytes"]
    return json.dumps(told), vectors
