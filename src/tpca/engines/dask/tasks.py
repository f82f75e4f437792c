"""What a worker does: read some batches, reduce them group by group, hand back what is left of them.

All functions here are pure: run again, on this worker or another, they give the same bits.  That is all that is needed
when a worker dies, so nothing is lost or counted twice.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tpca.engines.cursor import Fragment
from tpca.engines.dask.cache import shelf
from tpca.engines.dask.pages import keep_freed_pages
from tpca.engines.dask.payload import unpack_queries
from tpca.engines.groups import Tree, merge_all
from tpca.engines.local import each_answer
from tpca.engines.looks import Looks
from tpca.engines.receipt import batch_digest
from tpca.errors import ClusterError, TpcaError
from tpca.prefetch import prefetch
from tpca.streams.protocol import NumberedStream
from tpca.tensors import Answer, Batch, Query, Reduction, reduction


@dataclass(frozen=True)
class Work:
    """Some neighbouring groups of a round: their fragments, each with its leaf in the tree over these groups."""

    token: str
    fragments: tuple[tuple[Fragment, int], ...]
    leaves: int
    contracts: bool
    concludes: bool
    """Whether these are all groups, and the answers are smaller than the sums."""
    scale: float
    watch: bool
    ahead: int | None
    """The batch that this worker will probably need next."""


@dataclass
class Outcome:
    """What is left of some groups, and what was seen on the way."""

    part: Reduction | tuple[Answer, ...] | None
    buffer_bytes: int
    varied: bool
    digests: tuple[bytes, ...]


def unpacked(packed: bytes) -> Any:
    """What was sent as bytes, so that nobody on the way has to understand it."""
    return pickle.loads(packed)


def relayed(payload: Any) -> Any:
    """The same again: a worker that has it can pass it on to others."""
    return payload


def reduce_groups(
    stream: NumberedStream, work: Work, queries: tuple[Query, ...] | bytes, parts: dict[int, Any]
) -> Outcome:
    """Reduce the groups of ``work``, and merge what is left of them."""
    if isinstance(queries, bytes):  # for this task alone
        queries = unpack_queries(queries)
    reader = Reader(stream, work.token, parts)
    looks = Looks(work.watch)
    tree: Tree[Reduction] = Tree(work.leaves)
    kept: Reduction | None = None
    group, most = 0, 0
    batches = reader.batches(dict.fromkeys(fragment.number for fragment, _ in work.fragments))
    number, batch = -1, None
    for fragment, leaf in work.fragments:
        if fragment.number != number:
            number, batch = fragment.number, next(batches)
            looks.at(batch)
        assert batch is not None
        some = batch[fragment.start : fragment.stop]
        if leaf != group and kept is not None:
            tree.put(group, kept.contracted(work.scale) if work.contracts else kept)
            kept = None
        group = leaf
        kept = reduction(some, queries, work.scale) if kept is None else kept
        reader.attempt(fragment, kept.add, some)
        most = max(most, 2 * batch.nbytes + kept.nbytes + sum(part.nbytes for part in tree.waiting()))
    batches.close()
    shelf.keep(work.token, number, batch)
    if work.ahead is not None:
        shelf.read_ahead(work.token, stream, work.ahead)
    assert kept is not None
    return Outcome(_left(work, tree, kept, group), most, looks.varied, tuple(looks.digests))


def _left(work: Work, tree: Tree[Reduction], kept: Reduction, group: int) -> Reduction | tuple[Answer, ...] | None:
    """What the groups come to: answers, or something to be merged with that of other groups."""
    if work.concludes:
        return kept.answers(work.scale)
    tree.put(group, kept.contracted(work.scale) if work.contracts else kept)
    root = tree.root()
    if root is not None:
        root.queries = ()  # whoever asks for the answers has them
    return root


def merge_outcomes(outcomes: Sequence[Outcome | None]) -> Outcome:
    """The outcome over the groups of some neighbours."""
    some = [outcome for outcome in outcomes if outcome is not None]
    digests = tuple(dict.fromkeys(digest for outcome in some for digest in outcome.digests))
    buffer_bytes = max(outcome.buffer_bytes for outcome in some)
    parts: list[Any] = [None if outcome is None else outcome.part for outcome in outcomes]
    root: Any = merge_all(parts, lambda part: part.copy())
    return Outcome(root, buffer_bytes, any(outcome.varied for outcome in some), digests)


def each_sample(
    stream: NumberedStream, work: Work, packed: bytes, parts: dict[int, Any]
) -> tuple[Answer | None, int, Outcome]:
    """Gradients with a fresh sample for every replica and step, the samples used, and what was seen."""
    numbers = [fragment.number for fragment, _ in work.fragments]
    reader, looks, some = Reader(stream, work.token, parts), Looks(work.watch), []
    batch: Batch | None = None
    for (fragment, _), batch in zip(work.fragments, reader.batches(numbers), strict=True):
        looks.at(batch)
        some.append(batch[fragment.start : fragment.stop])
    shelf.keep(work.token, numbers[-1], batch)
    (query,) = unpack_queries(packed)
    answer, n, nbytes = reader.attempt(work.fragments[0][0], each_answer, some, query)
    return answer, n, Outcome(None, nbytes, looks.varied, tuple(looks.digests))


def count_samples(stream: NumberedStream, numbers: Sequence[int], parts: dict[int, Any]) -> dict[int, int]:
    """How many samples some batches have."""
    reader = Reader(stream, "", parts)
    return {number: len(reader.read(number)) for number in numbers}


def digest_of(stream: NumberedStream, token: str, number: int, parts: dict[int, Any]) -> str | None:
    """A digest of a batch, which stays on the shelf if it is there."""
    (batch,) = Reader(stream, token, parts).batches([number])
    shelf.keep(token, number, batch)
    return batch_digest(batch)


class Reader:
    """Reads batches on a worker; what goes wrong is said with the samples, and the worker, that it went wrong with."""

    def __init__(self, stream: NumberedStream, token: str, parts: dict[int, Any]) -> None:
        self._stream, self._token, self._parts = stream, token, parts
        self._worker = _worker()
        keep_freed_pages()

    def batches(self, numbers: Iterable[int]) -> Generator[Batch]:
        """The batches, the next one read while one is in use."""
        yield from prefetch(self._taken_or_read(number) for number in numbers)

    def read(self, number: int) -> Batch:
        """Batch ``number``."""
        first, stop = self._stream.layout.bounds[number : number + 2]
        fragment = Fragment(number, 0, int(stop - first), number)
        batch: Batch = self.attempt(fragment, self._stream.batch, number, self._parts.get(number))
        return batch

    def attempt(self, fragment: Fragment, work: Callable[..., Any], *arguments: Any) -> Any:
        """Do some work on some samples."""
        first = int(self._stream.layout.bounds[fragment.number])
        where = f"samples {first + fragment.start} to {first + fragment.stop - 1} of the stream"
        try:
            return work(*arguments)
        except TpcaError as error:
            raise type(error)(f"{error} ({where}, on worker {self._worker})") from error
        except Exception as error:
            raise ClusterError(f"worker {self._worker} failed on {where}: {error!r}.") from error

    def _taken_or_read(self, number: int) -> Batch:
        kept = shelf.take(self._token, number)
        return self.read(number) if kept is None else kept


def _worker() -> str:
    from distributed import get_worker

    try:
        return str(get_worker().address)
    except ValueError:  # not on a worker
        return "of this process"
