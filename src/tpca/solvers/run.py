"""A run: a solver says what it needs the next samples for, an engine reads them, and nothing is lost on the way.

A *run* is a solver at work, written as a state machine: :meth:`Run.ask` names an accumulator and how many samples to
add to it, :meth:`Run.tell` takes it back.  :func:`drive` pulls the samples through an engine; :class:`Feed` has them
pushed in, in batches of any size.  Both lead through the same two doors, so the result is the same.  A :class:`Keeper`
leaves checkpoints between two rounds, and lets interrupts wait for the end of a round.
"""

from __future__ import annotations

import abc
import contextlib
import copy
import dataclasses
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np

from tpca.checkpoint import Checkpoints
from tpca.data import Stream
from tpca.engines import Data, Engine, PushEngine, StreamEngine
from tpca.errors import BatchError, CheckpointError, RunInterrupted, StreamError
from tpca.files import alone_in
from tpca.inference.design import LARGEST_SIZE, largest_entry, refuse_extreme_size
from tpca.labels import Labels
from tpca.solvers.estimate import Estimate
from tpca.solvers.interrupts import interrupt_stops, interrupt_waits
from tpca.tensors import Accumulator, Batch, DenseBatch
from tpca.threads import calm_blas

A = TypeVar("A", bound=Accumulator)


@dataclass(frozen=True)
class Ask(Generic[A]):
    """An accumulator for the next ``n`` samples; first ``rewind`` if so said."""

    blank: A
    n: int
    rewind: bool = False


class Kept:
    """A run whose state is the attributes that ``kept`` names: it can go on from a checkpoint."""

    kept: ClassVar[tuple[str, ...]]

    def state(self) -> dict[str, Any]:
        """All that the next step needs; accumulators without what they were asked."""
        found = {name: getattr(self, name) for name in self.kept}
        for name, value in found.items():
            if isinstance(value, Accumulator):
                found[name] = bare = copy.copy(value)
                bare.question = ()
        return found

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        vars(self).update(state)


class Run(Kept, abc.ABC):
    """A solver at work."""

    def __init__(self, solver: Any) -> None:
        self.solver = solver

    @abc.abstractmethod
    def ask(self) -> Ask[Any] | None:
        """What to do next; ``None`` when the run is over.  Asking again without telling changes nothing."""

    @abc.abstractmethod
    def tell(self, part: Any) -> None:
        """Take what was asked for; an accumulator of no samples means that they have ended."""

    @abc.abstractmethod
    def close(self) -> None:
        """There will be no more samples."""

    @abc.abstractmethod
    def estimate(self) -> Estimate:
        """What was found."""

    def call(self, record: dict[str, Any]) -> None:
        """Hand the record of a round to all callbacks."""
        for callback in self.solver.callbacks:
            callback(record)

    def silent_copy(self) -> Self:
        """A copy that calls nobody back."""
        twin = copy.copy(self)
        vars(twin).update(copy.deepcopy({name: vars(self)[name] for name in self.kept}))
        twin.solver = copy.copy(self.solver)
        twin.solver.callbacks = ()
        return twin


def tell_flips(callbacks: Sequence[Callable[[dict[str, Any]], None]], n_samples: int, done: int, total: int) -> None:
    """Tell all callbacks how far a test is; no run is held by what a test is told with."""
    for callback in callbacks:
        callback({"samples": n_samples, "phase": "testing", "flips": done, "flips_in_all": total})


class Keeper:
    """Keeps a run from being lost: checkpoints in the folder that a solver's options name, if any.

    A checkpoint of other data, of other settings, or of another of what else is ``known`` is refused.
    One run at a time may use the folder (:mod:`tpca.files`).
    """

    def __init__(self, solver: Any, **known: str) -> None:
        wanted = solver.checkpoint is not None
        self.checkpoints = Checkpoints(solver.checkpoint, solver.checkpoint_every) if wanted else None
        self._resume, self._settings = solver.resume, {**solver.settings(), **known}
        self._interrupted: int | None = None  # the signal that did
        self._data = ""

    @contextlib.contextmanager
    def watch(self, run: Kept, engine: Engine) -> Iterator[None]:
        """Go on from the last checkpoint, if so wanted.

        Meanwhile the first Ctrl-C, or SIGTERM, only asks to stop after the round; the second is one as usual.  If the
        round may last, as one that waits for workers, it comes by itself (``stops_within`` of the engine).
        """
        if self.checkpoints is None:
            yield
            return
        with alone_in(self.checkpoints.folder), self._patient(self.checkpoints, engine.stops_within):
            self._data = engine.identity  # now: what cannot be read is better known before a long run
            engine.keep()
            self._go_on(self.checkpoints, run, engine)
            yield

    def after_round(self, run: Kept, engine: Engine) -> None:
        """Leave a checkpoint when it is time or the user wants to stop."""
        if self.checkpoints is None:
            return
        if self._interrupted is not None or self.checkpoints.due():
            self._save(self.checkpoints, run, engine, finished=False)
        if self._interrupted is not None:
            raise self._stopped(self.checkpoints)

    def after_reading(self, run: Kept, engine: Engine) -> None:
        """Leave a checkpoint of all that was read, from which the result can be had at once."""
        engine.check_unchanged()
        if self.checkpoints is None:
            return
        self._save(self.checkpoints, run, engine, finished=self._interrupted is None)
        if self._interrupted is not None:
            raise self._stopped(self.checkpoints)

    @contextlib.contextmanager
    def concluding(self, run: Kept, engine: Engine) -> Iterator[None]:
        """Open while the result is worked out of what was read, and tested: to stop then loses nothing of that."""
        if self.checkpoints is None:
            yield
            return
        read = self._checkpoint_of(run, engine, finished=False)  # who begins anew is asked first
        try:
            with interrupt_stops(self._note_signal):
                yield
        except KeyboardInterrupt:
            self.checkpoints.save(read)
            raise self._stopped(self.checkpoints) from None

    def _note_signal(self, number: int) -> None:
        self._interrupted = number

    def _stopped(self, checkpoints: Checkpoints) -> RunInterrupted:
        """What a run is stopped with, once its checkpoint is written."""
        where = str(checkpoints.folder)
        return RunInterrupted(f"stopped; everything so far is in {where!r}.", self._interrupted or signal.SIGINT)

    def _save(self, checkpoints: Checkpoints, run: Kept, engine: Engine, finished: bool) -> None:
        checkpoints.save(self._checkpoint_of(run, engine, finished))

    def _checkpoint_of(self, run: Kept, engine: Engine, finished: bool) -> dict[str, Any]:
        known = {"settings": self._settings, "data": self._data, "finished": finished}
        return {**known, "run": run.state(), "engine": engine.position()}

    def _go_on(self, checkpoints: Checkpoints, run: Kept, engine: Engine) -> None:
        """Go on from the newest checkpoint, if that is wanted and there is one."""
        stored = checkpoints.load()
        if stored is None:
            return
        where = f"the checkpoint in {str(checkpoints.folder)!r}"
        if not self._resume:
            if not stored["finished"]:
                raise CheckpointError(
                    f"{where} is of an unfinished run; go on with it (resume=True, --resume), throw it away "
                    "(--restart) or choose another folder."
                )
            checkpoints.clear()
            return
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
        run.restore(stored["run"])
        engine.seek(stored["engine"])

    @contextlib.contextmanager
    def _patient(self, checkpoints: Checkpoints, seconds: float | None) -> Iterator[None]:
        main = threading.main_thread()
        if threading.current_thread() is not main:
            yield
            return
        usual = {asking: signal.getsignal(asking) for asking in (signal.SIGINT, signal.SIGTERM)}
        given_up = False

        def give_up() -> None:
            nonlocal given_up
            given_up = True
            signal.pthread_kill(main.ident or 0, signal.SIGINT)

        second = threading.Timer(seconds or 0.0, give_up)
        second.daemon = True

        def restore() -> None:
            for asking, handler in usual.items():
                signal.signal(asking, handler)

        def note(asked: int, _: object) -> None:
            self._interrupted = asked
            restore()
            if seconds is not None and hasattr(signal, "pthread_kill"):
                signal.signal(signal.SIGINT, signal.default_int_handler)  # in a job of a shell it may be ignored
                second.start()

        for asking in usual:
            signal.signal(asking, note)
        try:
            yield
        except RunInterrupted:
            raise
        except KeyboardInterrupt:
            if not given_up:  # the user's own
                raise
            where = str(checkpoints.folder)
            raise RunInterrupted(
                f"stopped before the round was done; what was kept before it is in {where!r}.", self._interrupted or 0
            ) from None
        finally:
            second.cancel()
            restore()


def drive(run: Run, engine: Engine, **known: str) -> Estimate:
    """Run to the end; where its solver has a folder for checkpoints, leave them there, and go on from the last.

    What is ``known`` beside the solver's settings must be the same then.
    """
    keeper = Keeper(run.solver, **known)
    limit = getattr(run.solver, "memory_limit", None)
    if limit is not None and isinstance(engine, StreamEngine):
        engine.read_ahead_within(limit)
    with calm_blas():
        with keeper.watch(run, engine):
            while (ask := run.ask()) is not None:
                if ask.rewind:
                    engine.rewind()
                run.tell(engine.reduce(ask.blank, ask.n))
                keeper.after_round(run, engine)
            keeper.after_reading(run, engine)
            with keeper.concluding(run, engine):
                estimate = run.estimate()
        refuse_all_left_out(estimate.n_samples, engine)
        return completed(estimate, engine)


def refuse_all_left_out(n: int, data: Data) -> None:
    """Say so where NaN or Inf left none of the samples to judge by."""
    left_out = getattr(data, "n_skipped", 0)
    if left_out and not n:
        raise StreamError(
            f"all samples, {left_out} of them, were left out because of NaN or Inf; look at the data. "
            "nan_policy='zero' (tpca: --nan-policy zero) uses those entries of a sample that are finite."
        )


def completed(estimate: Estimate, engine: Engine | PushEngine[Any]) -> Estimate:
    """The estimate with what only the engine knows."""
    return dataclasses.replace(
        estimate, buffer_bytes=engine.buffer_bytes, n_skipped=engine.n_skipped, labels=engine.labels
    )


def checked_batches(stream: Stream) -> list[Batch]:
    """All batches of a stream, looked at before any of them is used: what is refused leaves no trace in sums."""
    batches = list(stream.batches())
    for batch in batches:
        if isinstance(batch, DenseBatch):
            batch.check()
            refuse_large(batch)
    return batches


def refuse_large(batch: DenseBatch) -> None:
    """Refuse samples whose squares are no floats, before any is added."""
    samples = batch.samples
    if len(batch) and isinstance(samples, np.ndarray) and samples.dtype == np.float64:
        largest = largest_entry(samples)
        if largest > LARGEST_SIZE:
            refuse_extreme_size("samples", largest)


class Feed:
    """A run whose samples, of shape ``dims``, are pushed in, batch after batch; ``start`` makes it.

    A batch counts whole.  If an exception stops it half way, nothing more can be said: :meth:`check_whole` refuses.
    """

    def __init__(
        self, start: Callable[[Data], Run], dims: tuple[int, ...], labels: Labels | None = None, partial: bool = False
    ) -> None:
        self.engine: PushEngine[Any] = PushEngine(dims, labels, partial)
        self._run = start(self.engine)
        # What the pending samples are for: asking anew costs more than adding one sample.
        self._ask: Ask[Any] | None = None
        self._seen = 0  # samples so far, those left out counted
        self._stopped_by = ""  # the exception that left half a batch
        self._design: Any = None  # the last one that the run was told

    @contextlib.contextmanager
    def whole_batch(self) -> Iterator[None]:
        """Open while a batch is taken.  The first Ctrl-C waits for its end; whatever else ends it leaves half of it."""
        with interrupt_waits(self._whole_message):
            self._stopped_by = "KeyboardInterrupt"  # until it is known better
            try:
                yield
            except BaseException as error:
                self._stopped_by = type(error).__name__
                raise
            self._stopped_by = ""

    def _whole_message(self) -> str:
        return f"stopped after the batch was added whole, {self._seen:,} samples so far; go on with the next batch."

    def check_whole(self) -> None:
        """Refuse to go on with half a batch."""
        if self._stopped_by:
            raise BatchError(
                f"{self._stopped_by} stopped partial_fit in the middle of a batch, of which a part is in the sums; "
                "start afresh with fit, or with partial_fit of sklearn.base.clone(estimator)."
            )

    def know(self, design: Any) -> None:
        """What is known of all samples so far and of those that come next."""
        if design is not self._design and hasattr(self._run, "extend"):
            self._design = design
            self._run.extend(design)
            if self.engine.pending is not None and self._ask is not None:  # the question of what waits, too
                fresh = self._run.ask()
                assert fresh is not None
                self.engine.pending.question = fresh.blank.question
            self._ask = None

    def take(self, batches: Iterable[Batch]) -> None:
        """Give all samples of some batches, which were checked, to the run, round after round."""
        before = self._seen
        with calm_blas():
            for batch in batches:
                if hasattr(batch, "moved"):
                    batch.moved(before)
                self.engine.n_skipped += batch.dropped
                self._seen += len(batch) + batch.dropped
                self._take(batch)

    def _take(self, batch: Batch) -> None:
        taken = 0
        while taken < len(batch) and (ask := self._ask or self._run.ask()) is not None:
            missing = ask.n - self.engine.waiting
            is_whole = not taken and len(batch) <= missing
            some = batch if is_whole else batch[taken : taken + missing]
            part = self.engine.push(some, ask.blank, ask.n)
            taken += len(some)
            self._ask = ask if part is None else None
            if part is not None:
                self._run.tell(part)

    def estimate(self) -> Estimate:
        """What the run would say if the samples ended here; the run itself goes on."""
        ending = self._run.silent_copy()
        pending = self.engine.pending
        with calm_blas():
            # What goes on is the run's own, and in the copy already.
            if pending is not None and not pending.goes_on and ending.ask() is not None:
                pending = copy.deepcopy(pending)
                pending.finish()
                ending.tell(pending)
            ending.close()
            said = ending.estimate()
        return completed(said, self.engine)
