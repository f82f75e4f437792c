"""Nothing of a run is lost: checkpoints while it is at work, and interrupts that wait for the end of a round."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any, Protocol

from tpca.checkpoint import Checkpoints
from tpca.engines import Engine
from tpca.errors import CheckpointError, RunInterrupted
from tpca.locks import alone_in


class Kept(Protocol):
    """A run that can be kept in a checkpoint."""

    def state(self) -> dict[str, Any]:
        """All that the next step needs."""

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from there."""


class Keeper:
    """Keeps a run from being lost: checkpoints, and an interrupt that waits for the end of the round.

    One run at a time may use the folder (:mod:`tpca.locks`).

    ``settings`` say what the run was asked to do; a checkpoint of other settings or other data is refused.
    """

    def __init__(self, folder: Any, every: float, resume: bool, settings: dict[str, Any]) -> None:
        self.checkpoints = Checkpoints(folder, every)
        self._resume, self._settings = resume, settings
        self._interrupted: int | None = None  # the signal that did
        self._data = ""

    def _go_on(self, run: Kept, engine: Engine) -> None:
        """Go on from the newest checkpoint, if that is wanted and there is one."""
        stored = self.checkpoints.load() if self._resume or self.checkpoints.any() else None
        if stored is None:
            return
        if not self._resume:
            if not stored["finished"]:
                raise CheckpointError(
                    f"{str(self.checkpoints.folder)!r} holds the checkpoint of an unfinished run; "
                    "go on with it (resume=True, --resume), throw it away (--restart) or choose another folder."
                )
            self.checkpoints.clear()
            return
        self._check(stored)
        run.restore(stored["run"])
        engine.seek(stored["engine"])

    def after_round(self, run: Kept, engine: Engine) -> None:
        """Leave a checkpoint when it is time or the user wants to stop."""
        if self._interrupted is not None or self.checkpoints.due():
            self._save(run, engine, finished=False)
        if self._interrupted is not None:
            where = str(self.checkpoints.folder)
            raise RunInterrupted(f"stopped; everything so far is in {where!r}.", self._interrupted)

    @contextlib.contextmanager
    def watch(self, run: Kept, engine: Engine) -> Iterator[None]:
        """Go on from the last checkpoint, if so wanted, and leave one at the end, for the result at once.

        Meanwhile the first Ctrl-C, or SIGTERM, only asks to stop after the round; the second is one as usual.
        """
        with alone_in(self.checkpoints.folder), self._patient():
            self._data = engine.identity  # now: what cannot be read is better known before a long run
            self._go_on(run, engine)
            yield
            if not engine.constant:  # what will be refused is not worth keeping
                self._save(run, engine, finished=True)

    @contextlib.contextmanager
    def _patient(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        usual = {asking: signal.getsignal(asking) for asking in (signal.SIGINT, signal.SIGTERM)}

        def restore() -> None:
            for asking, handler in usual.items():
                signal.signal(asking, handler)

        def note(asked: int, _: object) -> None:
            self._interrupted = asked
            restore()

        for asking in usual:
            signal.signal(asking, note)
        try:
            yield
        finally:
            restore()

    def _save(self, run: Kept, engine: Engine, finished: bool) -> None:
        known = {"settings": self._settings, "data": self._data, "finished": finished}
        self.checkpoints.save({**known, "run": run.state(), "engine": engine.position()})

    def _check(self, stored: dict[str, Any]) -> None:
        where = f"the checkpoint in {str(self.checkpoints.folder)!r}"
        for name, value in self._settings.items():
            before = stored["settings"].get(name)
            if before != value:
                raise CheckpointError(
                    f"{where} was made with {name}={before!r}, now it is {value!r}; "
                    "resume with the same settings, or start afresh in another folder."
                )
        if stored["data"] != self._data:
            raise CheckpointError(
                f"{where} was made on other data ({stored['data']}; now {self._data}); "
                "resume with the same data, or start afresh (--restart)."
            )


def keeper_of(solver: Any) -> Keeper | None:
    """The keeper that a solver's options ask for, if any."""
    if solver.checkpoint is None:
        return None
    return Keeper(solver.checkpoint, solver.checkpoint_every, solver.resume, solver.settings())
