"""Fits in processes of their own, to be killed, interrupted or starved by tests/test_checkpoint.py.

Every line of the standard input is one job, a JSON object with ``data`` (a path), ``folder`` (of checkpoints),
``result`` (a file), ``solver`` (options of RaceSolver), ``stream`` (options of open_stream), ``pause`` (seconds after
every round), ``kill_after`` (seconds) and ``full_after`` (rounds after which no file may grow: a stand-in for a full
disk).  Each is fitted in a fork, which saves importing everything anew; the fork says ``start`` and its id, what
happens, and its parent ``end`` and how it ended.
"""

import json
import os
import resource
import signal
import sys
import time
import traceback

import numpy as np

from tpca.data import open_stream
from tpca.errors import CheckpointError, RunInterrupted
from tpca.solvers.race.run import RaceSolver


def say(word):
    os.write(1, f"{word}\n".encode())


def write(estimate, path):
    """All of an estimate, as bytes that depend on nothing else; the file appears whole or not at all."""
    arrays, words = {}, []
    for c, part in enumerate(estimate.components):
        arrays |= {f"vector_{c}_{i}": v for i, v in enumerate(part.vectors)}
        arrays |= {f"error_{c}_{i}": e for i, e in enumerate(part.standard_errors or ())}
        words += [part.strength, part.strength_interval, part.p_value, part.evidence]
    words += [estimate.stop_reason.name, estimate.history, estimate.noise_level]
    words += [estimate.n_samples, estimate.n_passes, estimate.n_skipped, estimate.state_bytes, estimate.buffer_bytes]
    np.savez(f"{path}.part.npz", text=np.array(repr(words)), **arrays)
    os.rename(f"{path}.part.npz", path)


def fit(job):
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have had it ignored
    rounds = 0

    def after_round(record):
        nonlocal rounds
        rounds += 1
        if rounds == job.get("full_after"):
            _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, most))
        say(f"round {rounds}")
        time.sleep(job.get("pause", 0.0))

    kept = {"checkpoint": job["folder"], "checkpoint_every": 0, "resume": True}
    solver = RaceSolver(**job["solver"], **kept, callbacks=[after_round])
    stream = open_stream(job["data"], **job["stream"])
    say(f"start {os.getpid()}")
    try:
        write(solver.run(stream), job["result"])
    except RunInterrupted as stopped:
        say(f"RunInterrupted: {stopped}")
    except KeyboardInterrupt:
        say("KeyboardInterrupt")
    except CheckpointError as error:
        say(f"CheckpointError: {error}")


def main():
    for line in sys.stdin:
        job = json.loads(line)
        fork = os.fork()
        if fork == 0:
            try:
                fit(job)
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        if "kill_after" in job:
            time.sleep(job["kill_after"])
            os.kill(fork, signal.SIGKILL)  # still ours, even if it has ended: nobody has waited for it
        _, status = os.waitpid(fork, 0)
        say(f"end {os.waitstatus_to_exitcode(status)}")


if __name__ == "__main__":
    main()
