"""Dask clusters within this process, started when they are first asked for."""

import contextlib
import logging


@contextlib.contextmanager
def clusters():
    """A function that gives a client of a cluster of so many workers, always the same one."""
    with contextlib.ExitStack() as stack:
        clients = {}

        def client_of(workers):
            from distributed import Client, LocalCluster

            if workers not in clients:
                cluster = LocalCluster(
                    n_workers=workers,
                    threads_per_worker=1,
                    processes=False,
                    dashboard_address=":0",
                    silence_logs=logging.CRITICAL,
                )
                stack.enter_context(cluster)
                clients[workers] = stack.enter_context(Client(cluster, set_as_default=False))
            return clients[workers]

        yield client_of
