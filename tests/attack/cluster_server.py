"""A Dask cluster in a process of its own: ``python -m attack.cluster_server`` answers one line with one line.

It says its address; then ``pids`` those of its workers, ``pause`` and ``unpause`` with numbers of workers do that, by
the worker's own look at its memory, and whatever else ends it.
"""

import contextlib
import json
import logging
import os
import sys

WORKERS = 3
NEVER, USUAL = 1e-9, 0.8  # share of its memory above which a worker pauses


def set_pause(share, dask_worker=None):
    dask_worker.memory_manager.memory_pause_fraction = share


def main():
    from distributed import Client, LocalCluster

    options = {"processes": True, "threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": logging.CRITICAL}
    with LocalCluster(n_workers=WORKERS, host="127.0.0.1", **options) as cluster, Client(cluster) as client:
        say(cluster.scheduler_address)
        for line in sys.stdin:
            word, *numbers = line.split()
            if word == "pids":
                with contextlib.suppress(TimeoutError):  # Dask may have failed to start one again; others do
                    client.wait_for_workers(WORKERS, timeout=20)
                say(json.dumps(sorted(client.run(os.getpid, on_error="ignore").values())))
            else:
                everyone = sorted(client.nthreads())
                some = [everyone[int(number) % len(everyone)] for number in numbers]
                client.run(set_pause, NEVER if word == "pause" else USUAL, workers=some, on_error="ignore")
                say("done")


def say(text):
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
