"""One race at work, as a state machine (the procedure is at the top of :mod:`tpca.solvers.race.solver`).

==========  ====================================================  ===============================================
phase       the next samples go to                                it ends
==========  ====================================================  ===============================================
scale       the scale estimate                                    after three samples: search
search      all strategies and candidates                         found and accurate: refinement; no more: trial
trial       the candidates only (the held-out part, if any)       found: refinement; else, or not accurate: again
again       the ascent and the main strategy, a pass at once      ascent at rest: trial; else: again
refinement  the refinement                                        accurate as asked, or no more: done
==========  ====================================================  ===============================================
"""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np

from tpca.noise import Whitening
from tpca.solvers.loop import Ask
from tpca.solvers.memory import round_bytes
from tpca.solvers.overflow import WILD, largest, refuse_beyond
from tpca.solvers.race.ascent import Ascent
from tpca.solvers.race.conclusion import conclusion, record_of
from tpca.solvers.race.handover import Handover, Standing, handover
from tpca.solvers.race.refine import Refinement
from tpca.solvers.race.rounds import round_size
from tpca.solvers.race.state import RaceState
from tpca.solvers.race.stopping import is_accurate, why_ended
from tpca.solvers.race.strategies.carrying import carried
from tpca.solvers.race.strategies.choice import Search, again
from tpca.solvers.race.strategies.protocol import Part
from tpca.solvers.recovery import Recovery, StopReason
from tpca.tensors import Answer, Gradients, RankOne

# A candidate hands over to the refinement when found and (signal² · samples)/d is at least this: overlap² about 0.9.
ACCURATE = 8.0


class RaceRun(RaceState):
    """One race at work."""

    def ask(self) -> Ask[Gradients] | None:
        """What the next samples are needed for; ``None`` when the race is over."""
        while self.phase != "done":
            if self.refinement is not None and is_accurate(self.refinement, self.tol, self.noise.whitening):
                self._finish(StopReason.ACCURATE)
                continue
            size = min(self._round_size(), self._limit - self.position)
            if size >= 1:
                deflate = tuple(RankOne(c.strength * self.scale, c.vectors) for c in self.others)
                self._asked = [(part, part.queries()) for part in self._parts()]
                queries = (query for _, queries in self._asked for query in queries)
                asked = tuple(dataclasses.replace(q, deflate=deflate) for q in queries) if deflate else tuple(queries)
                if (whitening := self.noise.whitening) is not None:
                    asked = self._sent = tuple(whitening.query(query) for query in asked)
                return Ask(Gradients(asked, self.scale, self.edges(int(size))), int(size), self._rewind)
            self.end()
        return None

    def tell(self, part: Gradients) -> None:
        """Take what was asked for; an accumulator of no samples means that they have ended."""
        self.take(part.answers, part.n)

    def take(self, answers: tuple[Answer, ...], n: int) -> None:
        """The same, as the answers to this race's own queries."""
        self._rewind = False
        if n == 0:
            self.end()
            return
        if (whitening := self.noise.whitening) is not None:
            answers = tuple(whitening.answer(query, a) for query, a in zip(self._sent, answers, strict=True))
        self._check_sizes(answers, n)
        self.samples += n
        self.held_now = round_bytes(self._asked, answers, self._sent)
        self._sent = ()
        self.state_bytes = max(self.state_bytes, self.held_now)
        left = iter(answers)
        for part, queries in self._asked:
            part.absorb(tuple(itertools.islice(left, len(queries))), n)
        {
            "scale": self._after_scale,
            "search": self._after_search,
            "trial": self._after_trial,
            "again": self._after_again,
            "refinement": self._after_refinement,
        }[self.phase]()

    def _check_sizes(self, answers: tuple[Answer, ...], n: int) -> None:
        """Candidates and the refinement square float64 answers; strategies pass over what does not fit."""
        if self.phase != "scale":
            each = [g for answer in answers for g in answer.gradients.values() if g.dtype == np.float64]
            each += [answer.by_part.rewards for answer in answers if answer.by_part is not None]
            refuse_beyond(WILD, largest(each), self.scale, self.position, n)

    def whiten(self, before: Whitening | None) -> None:
        """Search afresh, in data whitened otherwise than ``before``, with what can be carried over."""
        old = self.searches[0].strategy
        self.search_afresh()
        if (after := self.noise.whitening) is not None:
            self.searches[0].strategy = carried(old, self.searches[0].strategy, before, after, self.noise.left())
        if self.phase == "trial":  # what is tried from now on
            for search in self.searches:
                search.candidate.adopt(search.strategy)

    def end(self) -> None:
        """The samples of this phase have ended."""
        if self.phase == "scale":
            self._enter_search()
        elif self.phase == "search":
            if self.samples and not self._look:  # they have ended while it was waiting
                self.look()
            self.phase, self._limit = "trial", self.per_pass
        elif self.phase == "trial":
            self._judge(self.leading())
        elif self.phase == "again":
            self._conclude(self.searches[0])
        else:
            assert self.refinement is not None
            limited = self.solver.max_samples is not None and self.position >= self.solver.max_samples
            self._finish(why_ended(self.refinement, self.tol, limited, self.noise.whitening))

    def close(self) -> None:
        """There will be no more samples."""
        while self.phase != "done":
            self.end()

    def recovery(self) -> Recovery:
        """What was found, or that nothing was."""
        return conclusion(self)

    def _parts(self) -> list[Part]:
        """Who gets the next samples."""
        if self.phase == "scale":
            return [self.scale_estimate]
        if self.phase == "search":
            return [part for c in self.searches for part in (c.candidate, c.strategy)]
        if self.phase == "trial":
            return [c.candidate for c in self.searches]
        if self.phase == "again":
            return [part for part in (self.ascent, self.searches[0].strategy) if part is not None]
        assert self.refinement is not None
        return [self.refinement]

    def _round_size(self) -> float:
        if self.phase == "again":
            return self.racing
        return self.noise.round_of(round_size(self.samples, self.noise.block, math.prod(self.data.dims)))

    def _after_scale(self) -> None:
        self.scale = self.scale_estimate.looking
        if self.scale_estimate.done:
            self._enter_search()

    def _enter_search(self) -> None:
        self.phase, self.scale = "search", self.scale_estimate.scale

    def _after_search(self) -> None:
        best = self.leading()
        self._record(best)
        if self.is_found(best) and best.candidate.accuracy >= ACCURATE:
            self._proof = best.evidence
            self._enter_refinement(handover(best.candidate))
        elif self.samples >= self._look and not self.waits:
            self.look()

    def _after_trial(self) -> None:
        self._record(self.leading())

    def _judge(self, best: Search) -> None:
        """All samples have been tried on: a signal, none, or another pass."""
        found, last = self.is_found(best), self._rested or self.passes >= self.max_passes
        if last or (found and best.candidate.accuracy >= ACCURATE):
            return self._conclude(best)
        # None of this may depend on samples of the held-out part, on which what comes of it will be tried.
        self.ascent = Ascent(best.candidate.vectors, self.searches[0].strategy.read().propose().vectors)
        main = again(self.searches[0], (1 - self.solver.confidence) / 2)
        if found:
            self.note_reach()
            self._proof = best.evidence
            main.strategy = Standing(best.name, self._known(best))
        self.searches = [main]
        return self._enter_again()

    def _conclude(self, best: Search) -> None:
        """There will be no more trials."""
        if self.is_found(best):
            self._proof = best.evidence
            self._enter_refinement(self._known(best))
        elif isinstance(best.strategy, Standing):
            self._enter_refinement(best.strategy.claim)
        else:
            self._finish(StopReason.NO_SIGNAL)

    def _known(self, winner: Search) -> Handover:
        """What is known of a signal at the end of the samples: after the first pass with a last look at all of them."""
        if self.passes == 1:
            winner.candidate.refine(winner.strategy.read(), winner.candidate.vectors)
        return handover(winner.candidate)

    def _enter_again(self) -> None:
        """The next pass: one step of the ascent, and one of subspace iteration, on the strategies' part."""
        self.phase, self._limit, self._before = "again", self.racing, max(self._before, self.position)
        self.passes, self.samples, self.begins, self._rewind = self.passes + 1, 0, 0, True
        self.searches[0].strategy.restart()

    def _after_again(self) -> None:
        """What has come to rest, or the last pass left, is tried on the held-out part.

        Every trial raises the bar for the next, so there is none of what still moves, nor a second one of the same.
        """
        (search,) = self.searches
        assert self.ascent is not None
        done = self.ascent.challenge(search.strategy.read().propose().vectors)
        if not (done or self.passes == self.max_passes):
            self._enter_again()
            return
        search.candidate.install(self.ascent.vectors)
        self._record(search)
        self.phase, self._limit, self._rested = "trial", self.per_pass, True

    def _enter_refinement(self, known: Handover) -> None:
        self.note_reach()
        self.phase, self._limit = "refinement", self.per_pass
        self.searches, self.refinement = [], Refinement(known, self.noise.whitening is not None, self.noise.block > 1)

    def _after_refinement(self) -> None:
        assert self.refinement is not None
        self._record(self.refinement)

    def _finish(self, reason: StopReason) -> None:
        self.phase, self.reason = "done", reason

    def _record(self, best: Search | Refinement) -> None:
        record, vectors = record_of(self, best)
        self.history.append(record)
        for callback in self.solver.callbacks:
            callback({**record, "position": self.position, "vectors": vectors, "state_bytes": self.state_bytes})
