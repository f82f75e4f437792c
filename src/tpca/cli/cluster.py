"""``--cluster`` and ``--workers``: the same command on the workers of a Dask cluster."""

from __future__ import annotations

import logging
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from tpca.errors import ClusterError, one_line

SECONDS = 30  # to reach a scheduler
CLOSING = 5  # to take leave of one, which may be gone


@contextmanager
def cluster(scheduler: str | None, workers: int | None, stream: Any = None) -> Iterator[Any]:
    """An engine over ``stream`` on the workers of ``scheduler``, or on new ones; the stream itself if none are asked.

    New workers are processes of one thread each, that say nothing and serve no pages.
    """
    if scheduler is not None and workers is not None:
        raise ClusterError("give --cluster for workers that run already, or --workers to start some, not both.")
    if scheduler is None and workers is None:
        yield stream
        return
    try:
        from distributed import Client, LocalCluster
    except ImportError:
        raise ClusterError("--cluster and --workers need the dask package; install tpca[dask].") from None
    from tpca.engines import DaskEngine

    # What Dask logs of a lost cluster is many lines of its own code; what it means is said in one of ours.
    for name in ("distributed", "distributed.client", "tornado", "tornado.application"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    with ExitStack() as closing:
        if scheduler is not None:
            try:
                _check_address(scheduler)
                client = Client(scheduler, timeout=SECONDS, set_as_default=False)  # type: ignore[no-untyped-call]
            except (OSError, ValueError) as cause:
                told = f"no Dask scheduler answers at {scheduler!r}: {one_line(cause)}"
                raise ClusterError(f"{told}; check the address, such as tcp://host:8786.") from cause
            closing.callback(client.close, timeout=CLOSING)
        else:
            options = {"threads_per_worker": 1, "processes": True, "dashboard_address": ":0", "host": "127.0.0.1"}
            # Ctrl-C is meant for the command, which ends its round first; children ignore what their parent ignores.
            usual = signal.signal(signal.SIGINT, signal.SIG_IGN)
            try:
                here = LocalCluster(n_workers=workers, silence_logs=logging.CRITICAL, **options)  # type: ignore[no-untyped-call]
            finally:
                signal.signal(signal.SIGINT, usual)
            client = closing.enter_context(Client(closing.enter_context(here), set_as_default=False))  # type: ignore[no-untyped-call]
        yield DaskEngine(client, stream)


def _check_address(address: str) -> None:
    """Refuse at once what can never be reached; the client would try it again and again."""
    from distributed.comm.addressing import get_address_host_port, parse_address
    from distributed.comm.registry import get_backend

    scheme, _ = parse_address(address, strict=True)
    get_backend(scheme)  # raises a ValueError that names those that there are
    if scheme in ("tcp", "tls"):
        socket.getaddrinfo(*get_address_host_port(address, strict=True))
