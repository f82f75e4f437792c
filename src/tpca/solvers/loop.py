"""The loop: a run says what it needs the next samples for, an engine reads them, and nothing is lost on the way.

A *run* is a solver at work, written as a state machine: :meth:`Run.ask` names an accumulator and how many samples to
add to it, :meth:`Run.tell` takes it back.  :func:`drive` pulls the samples through an engine; :class:`Feed` has them
pushed in, in batches of any size.  Both lead through the same two doors, so the result is the same.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, Self, TypeVar

from tpca.engines import Data, Engine, PushEngine
from tpca.labels import Labels
from tpca.solvers.keeping import Keeper, Kept
from tpca.solvers.recovery import Recovery
from tpca.streams import Stream
from tpca.tensors import Accumulator, Batch
from tpca.threads import calm_blas

A = TypeVar("A", bound=Accumulator)


@dataclass(frozen=True)
class Ask(Generic[A]):
    """An accumulator for the next ``n`` samples; first ``rewind`` if so said."""

    blank: A
    n: int
    rewind: bool = False


class Run(Kept, Protocol):
    """A solver at work."""

    def ask(self) -> Ask[Any] | None:
        """What to do next; ``None`` when the run is over.  Asking again without telling changes nothing."""

    def tell(self, part: Any) -> None:
        """Take what was asked for; an accumulator of no samples means that they have ended."""

    def close(self) -> None:
        """There will be no more samples."""

    def recovery(self) -> Recovery:
        """What was found."""

    def silent_copy(self) -> Self:
        """A copy that calls nobody back."""


def drive(run: Run, engine: Engine, keeper: Keeper | None = None) -> Recovery:
    """Run to the end; with a ``keeper``, leave checkpoints on the way and go on from the last."""
    watched = contextlib.nullcontext() if keeper is None else keeper.watch(run, engine)
    with calm_blas(math.prod(engine.dims)):
        with watched:
            while (ask := run.ask()) is not None:
                if ask.rewind:
                    engine.rewind()
                run.tell(engine.reduce(ask.blank, ask.n))
                if keeper is not None:
                    keeper.after_round(run, engine)
        return _told(run.recovery(), engine)


def _told(recovery: Recovery, engine: Engine | PushEngine[Any]) -> Recovery:
    """The recovery with what only the engine knows."""
    known: dict[str, Any] = {
        "buffer_bytes": engine.buffer_bytes,
        "n_skipped": engine.n_skipped,
        "labels": engine.labels,
    }
    return dataclasses.replace(recovery, **known)


class Feed:
    """A run whose samples, of shape ``dims``, are pushed in, batch after batch; ``start`` makes it."""

    def __init__(
        self,
        start: Callable[[Data], Run],
        dims: tuple[int, ...],
        labels: Labels | None = None,
        partial: bool = False,
    ) -> None:
        self.engine: PushEngine[Any] = PushEngine(dims, labels, partial)
        self._run = start(self.engine)
        # What the pending samples are for: asking anew costs more than adding one sample.
        self._ask: Ask[Any] | None = None

    def pour(self, batch: Batch) -> None:
        """Hand the samples of a batch to the run, round after round."""
        self.engine.accept(batch)
        taken = 0
        while taken < len(batch) and (ask := self._ask or self._run.ask()) is not None:
            some = batch[taken : taken + ask.n - self.engine.waiting]
            part = self.engine.push(some, ask.blank, ask.n)
            taken += len(some)
            self._ask = ask if part is None else None
            if part is not None:
                with calm_blas(math.prod(self.engine.dims)):
                    self._run.tell(part)

    def take(self, stream: Stream) -> None:
        """Hand all samples of a stream that is handed in to the run."""
        for batch in stream.batches():
            self.pour(batch)

    def recovery(self, last: Batch | None = None) -> Recovery:
        """What the run would say if the samples ended here, or after ``last``; the run itself goes on."""
        if last is not None:
            twin = copy.copy(self)
            twin.engine, twin._run, twin._ask = copy.deepcopy(self.engine), self._run.silent_copy(), None
            twin.pour(last)
            return twin.recovery()
        ending, pending = self._run.silent_copy(), copy.deepcopy(self.engine.pending)
        with calm_blas(math.prod(self.engine.dims)):
            if pending is not None and ending.ask() is not None:
                pending.finish()
                ending.tell(pending)
            ending.close()
            said = ending.recovery()
        return _told(said, self.engine)
