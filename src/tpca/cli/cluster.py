"""``--cluster`` and ``--workers``: the same command on the workers of a Dask cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SECONDS = 30  # to reach a scheduler
CLOSING = 5  # to take leave of one, which may be gone


@contextmanager
def cluster(scheduler: str | None, workers: int | None) -> Iterator[Any]:
    """A Dask client for what was asked for; ``None`` if nothing was."""
    from tpca.errors import ClusterError, one_line

    if scheduler is not None and workers is not None:
        raise ClusterError("give --cluster for workers that run already, or --workers to start some, not both.")
    if scheduler is None and workers is None:
        yield None
        return
    try:
        from distributed import Client
    except ImportError:
        raise ClusterError("--cluster and --workers need the dask package; install tpca[dask].") from None
    _silence()
    if scheduler is not None:
        try:
            _check_address(scheduler)
            client = Client(scheduler, timeout=SECONDS, set_as_default=False)  # type: ignore[no-untyped-call]
        except (OSError, ValueError) as cause:
            told = f"no Dask scheduler answers at {scheduler!r}: {one_line(cause)}"
            raise ClusterError(f"{told}; check the address, such as tcp://host:8786.") from cause
        try:
            yield client
        finally:
            client.close(timeout=CLOSING)  # type: ignore[no-untyped-call]
        return
    with _local(workers or 1) as here, Client(here, set_as_default=False) as client:  # type: ignore[no-untyped-call]
        yield client


def _check_address(address: str) -> None:
    """Refuse at once what can never be reached; the client would try it again and again."""
    import socket

    from distributed.comm.addressing import get_address_host_port, parse_address
    from distributed.comm.registry import get_backend

    scheme, _ = parse_address(address, strict=True)
    get_backend(scheme)  # raises a ValueError that names those that there are
    if scheme in ("tcp", "tls"):
        socket.getaddrinfo(*get_address_host_port(address, strict=True))


def _silence() -> None:
    """What Dask logs of a lost cluster is many lines of its own code; what it means is said in one of ours."""
    import logging

    for name in ("distributed", "distributed.client", "tornado", "tornado.application"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def _local(workers: int) -> Any:
    """Processes of one thread each, that say nothing and serve no pages."""
    import logging
    import signal
    import threading

    from distributed import LocalCluster

    options = {"threads_per_worker": 1, "processes": True, "dashboard_address": ":0", "host": "127.0.0.1"}
    options |= {"silence_logs": logging.CRITICAL}
    if threading.current_thread() is not threading.main_thread():
        return LocalCluster(n_workers=workers, **options)  # type: ignore[no-untyped-call]
    # Ctrl-C is meant for the command, which ends its round first; children ignore what their parent ignores now.
    usual = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return LocalCluster(n_workers=workers, **options)  # type: ignore[no-untyped-call]
    finally:
        signal.signal(signal.SIGINT, usual)


@contextmanager
def on_cluster(scheduler: str | None, workers: int | None, stream: Any) -> Iterator[Any]:
    """An engine over ``stream`` on the cluster that was asked for; the stream itself if none was."""
    with cluster(scheduler, workers) as client:
        if client is None:
            yield stream
        else:
            from tpca.engines import DaskEngine

            yield DaskEngine(client, stream)
