"""Ctrl-C that waits for the end of what must be done whole, and Ctrl-C that need not wait."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tpca.errors import RunInterrupted


@contextmanager
def interrupt_waits(message: Callable[[], str]) -> Iterator[None]:
    """Let the first Ctrl-C wait until what is done inside has ended; the second one acts at once.

    After the end a :class:`~tpca.errors.RunInterrupted` with this message takes its place, or the user's own handler is
    called.  Python hands signals to the main thread only: in other threads there is nothing to wait for.
    """
    usual: Any = signal.getsignal(signal.SIGINT)
    if not callable(usual) or threading.current_thread() is not threading.main_thread():
        yield
        return
    waiting: list[tuple[int, Any]] = []

    def note(number: int, frame: Any) -> None:
        waiting.append((number, frame))
        signal.signal(signal.SIGINT, usual)

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
    if not waiting:
        return
    if usual is signal.default_int_handler:
        raise RunInterrupted(message(), signal.SIGINT)
    usual(*waiting[0])


@contextmanager
def interrupt_stops(note: Callable[[int], None]) -> Iterator[None]:
    """Let Ctrl-C and SIGTERM be a ``KeyboardInterrupt`` at once, whatever they do outside; ``note`` is told which."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, _: Any) -> None:
        note(number)
        raise KeyboardInterrupt

    outside = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in outside.items():
            signal.signal(number, handler)
