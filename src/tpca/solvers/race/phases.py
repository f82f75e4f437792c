"""One race, for one component: its phases, each an object that asks for samples, is told, and names the next.

==========  ====================================================  ===============================================
phase       the next samples go to                                it ends
==========  ====================================================  ===============================================
scale       the probe                                             after three samples: search
search      all strategies and candidates                         found and accurate: refinement; no more: trial
trial       the candidates only (the held-out part, if any)       found: refinement; else, or not accurate: again
again       the climbs and the main strategy, a pass at once      climbs at rest: trial; else: again
refinement  the refinement                                        accurate as asked, or no more: done
==========  ====================================================  ===============================================

A phase holds what is at work in it; what outlives it, counters above all, is the race's.  A signal that is found in the
first pass with vectors that are not accurate is ``standing``, a refinement that waits, while further passes look for
better vectors; where these prove nothing it goes on.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from scipy.special import ndtri

from tpca.checkpoint import kept
from tpca.errors import SampleError, StreamError
from tpca.solvers.checks import Check, level, steadiness, vanished
from tpca.solvers.estimate import Estimate, StopReason
from tpca.solvers.race.probe import Probe
from tpca.solvers.race.refinement import Refinement
from tpca.solvers.race.rounds import (
    CLAIMS_FROM,
    FEW_SUB_BATCHES,
    HOPE,
    SUB_BATCHES,
    Limits,
    round_size,
    strength_limit,
    sub_batch_edges,
)
from tpca.solvers.race.strategies.choice import Search, refinement_floats, strategies_within, sub_batches_within
from tpca.solvers.race.strategies.replicas import Climbs
from tpca.solvers.race.strategies.strategy import Part, round_bytes
from tpca.solvers.race.whitening import (
    Noise,
    errors_of_data,
    most_of_data,
    query_of_data,
    vectors_of_data,
    whitened_answer,
)
from tpca.solvers.rank_one import positive
from tpca.solvers.run import Ask
from tpca.tensors import Answer, Gradients, Query, RankOne
from tpca.tensors.blocks import Array

# A candidate hands over to the refinement when found and (signal² · samples)/d is at least this: overlap² about 0.9.
ACCURATE = 8.0
# Samples over those at the last look at proposals: making one costs more than a round itself.
LOOK = 1.08
# Share of the data that strategies never see when there are several passes.
HELD_OUT = 0.2
POOR = 0.45  # a root mean squared error above this is worth a warning: overlap below 0.9
WILD = 2.0**200  # rewards in units of the noise: the race forms their fourth powers, times numbers of samples
EQUAL = 1e-9  # relative difference of rewards of sub-batches below which these are the same
MOST = 700.0  # log of the largest e-value that is told


@kept
class Race:
    """The race for one component: the phase it is in, and accounting.

    A race with a ``number`` above 0 is one for a further component: it takes over the ``scale`` of the first, and
    ``begins`` when so many samples of the pass have gone by, or (``None``) with a new pass.  The ``noise`` is shared by
    all races.
    """

    def __init__(
        self,
        limits: Limits,
        noise: Noise,
        rng: np.random.Generator,
        number: int = 0,
        scale: float | None = None,
        begins: int | None = 0,
    ) -> None:
        self.limits, self.noise, self.number = limits, noise, number
        self.sub_batches = sub_batches_within(limits.dims, noise.limit, limits.n_components)
        self.probe = Probe(limits.dims, rng)
        # What fits into the memory that the maps and refining other components leave.
        refining = min(number, limits.n_components - 1)
        left = noise.left(8 * refinement_floats(limits.dims, self.sub_batches) * refining)
        delta = 1 - limits.confidence
        searches = strategies_within(limits.dims, left, limits.partition, delta, rng, noise.whitening is None)
        self.main, self.size = searches[0].strategy.name, searches[0].strategy.size
        self.max_passes = limits.passes_with(self.main)
        for search in searches if self.max_passes > 1 else ():
            search.candidate.delta /= 2  # half of the chance of a false alarm is kept for the passes after the first
        self.phase: Phase = Scale(searches) if scale is None else Searching(searches)
        self.claims_from = 0 if number else int(min(CLAIMS_FROM, limits.per_pass // 2))  # later ones have waited
        # With several passes the last part of the data is kept from the strategies, so that re-use cannot fool a trial.
        self.racing = int((1 - HELD_OUT) * limits.per_pass) if self.max_passes > 1 else limits.per_pass
        self.samples, self.passes, self.held = 0, 1, 0  # held: bytes of state in the last round
        self.scale = 1.0 if scale is None else scale  # everybody sees the samples times this
        self.history: list[dict[str, Any]] = []
        self.begins, self.rewind, self.limit = begins or 0, begins is None, self.racing
        self.before = 0  # samples of the passes before this one
        self.differ: bool | None = None  # whether samples do; None: nobody knows
        self.claimed: tuple[float, float] | None = None  # what the claim rests on, once there is one
        self.standing: Refinement | None = None
        self._asked: list[tuple[Part, tuple[Query, ...]]] = []
        self._sent: tuple[Query, ...] = ()  # what the data were asked, where they are whitened

    def ask(self, others: Sequence[RankOne] = ()) -> Ask[Gradients] | None:
        """What the next samples are needed for; ``None`` when the race is over.

        ``others`` are other components, subtracted from what this race sees.
        """
        while not self.done:
            size = int(max(0, min(self.phase.size(self), self.limit - self.position)))
            if size < 1:
                self.phase = self.phase.end(self)
                continue
            deflate = tuple(RankOne(c.strength * self.scale, c.vectors) for c in others)
            self._asked = [(part, part.queries()) for part in self.phase.parts(self)]
            asked = tuple(dataclasses.replace(q, deflate=deflate) for _, queries in self._asked for q in queries)
            if (whitening := self.noise.whitening) is not None:
                asked = self._sent = tuple(query_of_data(whitening, query) for query in asked)
            return Ask(Gradients(asked, self.scale, self.edges(size)), size, self.rewind)
        return None

    def tell(self, answers: tuple[Answer, ...], n: int) -> None:
        """Take the answers to this race's queries over ``n`` samples; :meth:`go_on` when nobody holds them any more."""
        self.rewind = False
        asked, sent, self._asked, self._sent = self._asked, self._sent, [], ()
        if n == 0:
            return
        if (whitening := self.noise.whitening) is not None:
            answers = tuple(whitened_answer(whitening, q, answer) for q, answer in zip(sent, answers, strict=True))
        for parts in (answer.by_part for answer in answers if answer.by_part is not None):
            largest = float(np.max(np.abs(parts.rewards)))
            if not largest < WILD:
                raise SampleError(
                    f"samples {self.position} to {self.position + n - 1} of this pass hold values so far beyond those "
                    f"before, about {1 / self.scale:.0e}, that products overflow; leave such samples out, or divide "
                    "all of them by some power of ten."
                )
            if not self.differ and len(parts.rewards) > 1:
                self.differ = bool(np.ptp(parts.rewards) > EQUAL * largest)
        self.samples += n
        self.held = round_bytes(asked, answers, sent)
        left = iter(answers)
        for part, queries in asked:
            part.absorb(tuple(itertools.islice(left, len(queries))), n)

    def go_on(self, n: int) -> None:
        """The next phase, or what this one does between rounds; no samples: they have ended."""
        self.phase = self.phase.tell(self) if n else self.phase.end(self)

    def close(self) -> None:
        """There will be no more samples."""
        while not self.done:
            self.phase = self.phase.end(self)

    @property
    def done(self) -> bool:
        """Whether it is over."""
        return isinstance(self.phase, Done)

    @property
    def searches(self) -> list[Search]:
        """The strategies at work, or those that were; none once there is a refinement."""
        return self.phase.searches

    @property
    def refinement(self) -> Refinement | None:
        """The refinement, once there is one."""
        return self.phase.refinement if isinstance(self.phase, Refining | Done) else None

    @property
    def component(self) -> RankOne | None:
        """The signal as it is known now; ``None`` before it is found and accurate."""
        if self.refinement is None:
            return None
        return RankOne(self.refinement.strength / self.scale, self.refinement.vectors)

    @property
    def vectors(self) -> tuple[Array, ...]:
        """The best vectors so far, of the data."""
        known = self.refinement or self.leading().candidate
        return vectors_of_data(self.noise.whitening, known.vectors)[0]

    @property
    def position(self) -> int:
        """Samples of this pass that have gone by."""
        return self.begins + self.samples

    def round_size(self) -> int:
        """Samples of the next round."""
        return round_size(self.samples, self.noise.block, math.prod(self.limits.dims))

    def edges(self, n: int) -> tuple[int, ...]:
        """Where the sub-batches of a round of ``n`` samples begin: known before it, as evidence needs it."""
        if self.refinement is not None:
            return sub_batch_edges(n, self.noise.block, self.sub_batches)
        candidates = [search.candidate for search in self.searches]
        hope = isinstance(self.phase, Trial) or any(candidate.log_evidence > HOPE for candidate in candidates)
        open_ = hope and not any(candidate.found for candidate in candidates)
        return sub_batch_edges(n, self.noise.block, SUB_BATCHES if open_ else FEW_SUB_BATCHES)

    def is_found(self, search: Search) -> bool:
        """Whether a signal is proven, and may be claimed by now."""
        return search.candidate.found and self.position >= self.claims_from

    def leading(self) -> Search:
        """The search with the strongest evidence; of several that have found a signal the one with the largest reward.

        A larger reward is one of better vectors.  The others go on until the refinement begins: a claim may be luck,
        and they must not have been dropped for it.
        """
        if found := [c for c in self.searches if self.is_found(c)]:
            return max(found, key=lambda c: c.candidate.strength)
        return max(self.searches, key=lambda c: c.candidate.log_evidence)

    def vector_error(self, refinement: Refinement) -> float:
        """Root mean squared error of the least certain vector, as one of the data."""
        if self.noise.whitening is None:
            return refinement.error()
        errors, _ = errors_of_data(self.noise.whitening, refinement.vectors, refinement.standard_errors(False))
        return max(float(np.linalg.norm(e)) for e in errors)

    def record(self, best: Search | Refinement) -> None:
        """Keep a record of the round."""
        phase = "search" if self.phase.name == "again" else self.phase.name
        record = {"component": self.number, "phase": phase, "pass": self.passes, "samples": self.samples}
        known = best.candidate if isinstance(best, Search) else best
        if isinstance(best, Search):
            record |= {"candidate": best.strategy.name, "found": self.is_found(best)}
            record |= {"log_evidence": best.candidate.log_evidence, "needed": best.candidate.needed}
        else:
            record |= {"candidate": "refinement", "found": True, "error": self.vector_error(best)}
        unit = vectors_of_data(self.noise.whitening, known.vectors)[1] / self.scale
        record |= {"strength": unit * known.strength, "strength_error": unit * known.strength_error}
        self.history.append(record)

    def claim(self, best: Search) -> Refinement:
        """A signal is found: note what that rests on.

        At the end of the samples of the first pass the candidate has a last look at all of them.
        """
        self.claimed = best.candidate.evidence
        if self.passes == 1 and not isinstance(self.phase, Searching):
            look = best.strategy.read()
            assert look is not None
            best.candidate.refine(look, best.candidate.vectors)
        return Refinement(best.candidate)

    def refine(self, refinement: Refinement) -> Refining:
        """The refinement begins."""
        self.limit = self.limits.per_pass
        return Refining(refinement)

    def conclude(self, best: Search) -> Phase:
        """There will be no more trials."""
        if self.is_found(best):
            return self.refine(self.claim(best))
        return Done(StopReason.NO_SIGNAL, self.searches) if self.standing is None else self.refine(self.standing)

    def read_again(self, search: Search, climbs: Climbs) -> Again:
        """The next pass: one step of the climbs, and one of subspace iteration, on the strategies' part."""
        self.limit, self.before = self.racing, max(self.before, self.position)
        self.passes, self.samples, self.begins, self.rewind = self.passes + 1, 0, 0, True
        search.strategy.restart()
        return Again([search], climbs)

    def estimate(self) -> Estimate:
        """What was found, or that nothing was, in the units of the data.

        Where all samples are the same there is no noise to tell a signal from, and nothing is said; of zeros, that
        there is no signal.
        """
        refined, reason = self.refinement, self.phase.reason
        if refined is not None and self.differ is False:
            raise StreamError(
                "all samples are the same: there is no noise to tell a signal from; give samples that differ."
            )
        known = self.leading().candidate if refined is None else refined
        vectors, factor = vectors_of_data(self.noise.whitening, known.vectors)
        most, needed = self.claimed or self.leading().candidate.evidence
        if refined is not None:
            won = refined.wealth.proof  # bets go on while the vectors are refined
            most = won if refined.slow else max(most, won)
        said: dict[str, Any] = {} if refined is None else self._strength(refined, factor / self.scale)
        if refined is None or refined.failed:
            high = self._hidden() if refined is None else said["strength_interval"][1]
            said, reason = {"strength": 0.0, "strength_interval": (0.0, high)}, StopReason.NO_SIGNAL
        # Bets against "no signal" share one unit among all candidates: attempt k of one of error share δ_l begins with
        # δ_l/(δ k(k + 1)) of it, and has won exp(log E − needed)/δ.  By Ville's inequality the chance that this ever
        # comes to e on pure noise is at most 1/e, which is the p-value.
        log_e = most - needed - math.log(1 - self.limits.confidence)
        return Estimate.of_one(
            solver="race",
            vectors=positive(vectors, refined.strength if refined else 1.0)[0],
            noise_level=known.sigma / self.scale,
            p_value=math.exp(-max(0.0, log_e)),
            e_value=math.exp(min(log_e, MOST)),
            n_samples=max(self.before, self.samples),
            n_passes=self.passes,
            state_bytes=self.held,
            stop_reason=reason,
            checks=self._checks(),
            history=self.history,
            **said,
        )

    def _strength(self, refined: Refinement, unit: float) -> dict[str, Any]:
        """The strength, its intervals, and the errors of the vectors."""
        confidence, strength = self.limits.confidence, abs(refined.strength)
        errors, relative = errors_of_data(self.noise.whitening, refined.vectors, refined.standard_errors())
        slope = float(ndtri(0.5 + confidence / 2)) * relative * strength  # of what is not known of the factor
        ends = []
        for always in (False, True):
            half = math.hypot(refined.reach(confidence, always), slope)
            ends.append((unit * max(0.0, strength - half), unit * (strength + half)))
        errors = tuple(e * min(1.0, math.sqrt(2) / (float(np.linalg.norm(e)) or 1.0)) for e in errors)  # √2: unknown
        said = {"strength": unit * strength, "strength_interval": ends[0], "strength_sequence": ends[1]}
        return {**said, "standard_errors": errors}

    def _hidden(self) -> float:
        """The strength that the search would have found, in the noise that it has met."""
        counted = max(self.before, self.samples) // self.noise.block if self.position >= self.claims_from else 0
        reach = strength_limit(self.limits.dims, self.main, self.size, counted, 1 - self.limits.confidence)
        loudest = max(search.candidate.loudest for search in self.searches)
        return most_of_data(self.noise.whitening) / self.scale * loudest * reach if math.isfinite(reach) else math.inf

    def _checks(self) -> tuple[Check, ...]:
        """Whether the noise is as assumed, as far as that was seen."""
        checks, block = list(self.noise.checks()), self.noise.block
        if self.limits.watched and block > 1:
            told = f"Neighbouring samples are alike: every {block} in a row count as one."
            samples = f"{max(self.before, self.samples):,} samples"
            checks.append(Check("independent samples", "handled", samples, told))
        if self.refinement is not None:
            along, excess = self.refinement.loudness, self.refinement.excess
            checks += [level(along)] if along is not None else []
            checks += [steadiness(excess)] if excess is not None else []
            checks += [vanished()] if self.refinement.vanished else []
        return tuple(checks)


class Phase:
    """What happens to the next samples."""

    name: ClassVar[str]
    searches: list[Search]
    reason: StopReason

    def size(self, race: Race) -> float:
        """Samples of the next round; 0: none."""
        return race.round_size()

    def parts(self, race: Race) -> list[Part]:
        """Who gets them."""
        raise NotImplementedError

    def tell(self, race: Race) -> Phase:
        """They have; the phase of the next round."""
        raise NotImplementedError

    def end(self, race: Race) -> Phase:
        """The samples of this phase have ended; the phase after it."""
        raise NotImplementedError


@kept
@dataclass
class Scale(Phase):
    """The first three samples tell in what units the data come."""

    name = "scale"
    searches: list[Search]

    def parts(self, race: Race) -> list[Part]:
        """The probe alone."""
        return [race.probe]

    def tell(self, race: Race) -> Phase:
        """On, until the scale is known."""
        return self.end(race) if race.probe.done else self

    def end(self, race: Race) -> Phase:
        """The scale is what it is."""
        race.scale = race.probe.scale
        return Searching(self.searches)


@kept
@dataclass
class Searching(Phase):
    """Strategies search, candidates are on trial; now and then these look at what the strategies propose."""

    name = "search"
    searches: list[Search]
    next_look: float = 0.0

    def parts(self, race: Race) -> list[Part]:
        """Everybody, the probe, too, where nobody has said how alike neighbouring samples are."""
        parts: list[Part] = [part for c in self.searches for part in (c.candidate, c.strategy)]
        return [*parts, race.probe] if race.probe.done and race.limits.watched else parts

    def tell(self, race: Race) -> Phase:
        """Hand over to the refinement as soon as a signal is found and accurate."""
        if block := race.probe.block():
            race.noise.block = block
            for search in self.searches:
                search.candidate.forget_evidence()
        best = race.leading()
        race.record(best)
        if race.is_found(best) and best.candidate.accuracy >= ACCURATE:
            return race.refine(race.claim(best))
        if race.samples >= self.next_look:
            self.next_look = max(race.samples + 1, LOOK * race.samples)
            for search in self.searches:
                search.candidate.consider(search.strategy)
        return self

    def end(self, race: Race) -> Phase:
        """What is left of the data, if some was held out, is for the candidates."""
        race.limit = race.limits.per_pass
        return Trial(self.searches)


@kept
@dataclass
class Trial(Phase):
    """Candidates are tried on samples that no strategy has seen; ``rested``: what was tried would not get better."""

    name = "trial"
    searches: list[Search]
    rested: bool = False

    def parts(self, race: Race) -> list[Part]:  # noqa: ARG002
        """The candidates."""
        return [search.candidate for search in self.searches]

    def tell(self, race: Race) -> Phase:
        """On, to the end of the data."""
        race.record(race.leading())
        return self

    def end(self, race: Race) -> Phase:
        """All samples have been tried on: a signal, none, or another pass."""
        best = race.leading()
        main, found, last = self.searches[0], race.is_found(best), self.rested or race.passes >= race.max_passes
        look = None if last else main.strategy.read()
        if look is None or (found and best.candidate.accuracy >= ACCURATE):
            return race.conclude(best)
        # None of this may depend on samples of the held-out part, on which what comes of it will be tried.
        climbs = Climbs([best.candidate.vectors, look.propose()])
        race.standing = race.claim(best) if found else None
        fresh = main.candidate.again((1 - race.limits.confidence) / 2)
        return race.read_again(Search(main.strategy, fresh), climbs)


@kept
@dataclass
class Again(Phase):
    """Another pass over the strategies' part, at once."""

    name = "again"
    searches: list[Search]
    climbs: Climbs

    def size(self, race: Race) -> float:
        """All of it."""
        return race.racing

    def parts(self, race: Race) -> list[Part]:
        """The climbs, and the main strategy, unless a signal stands."""
        return [self.climbs] if race.standing is not None else [self.climbs, self.searches[0].strategy]

    def tell(self, race: Race) -> Phase:
        """What has come to rest, or the last pass left, is tried on the held-out part.

        Every trial raises the bar for the next, so there is none of what still moves, nor a second one of the same.
        """
        (search,) = self.searches
        best = self.climbs.propose()
        if race.standing is None and (look := search.strategy.read()) is not None:
            self.climbs.challenge(look.propose())
        if not self.climbs.rest and race.passes < race.max_passes:
            return race.read_again(search, self.climbs)
        search.candidate.install(best)
        race.record(search)
        race.limit = race.limits.per_pass
        return Trial(self.searches, rested=True)

    def end(self, race: Race) -> Phase:
        """There will be no trial."""
        return race.conclude(self.searches[0])


@kept
@dataclass
class Refining(Phase):
    """A signal is found: every further sample makes its vectors better."""

    name = "refinement"
    refinement: Refinement
    searches: list[Search] = field(default_factory=list)

    def size(self, race: Race) -> float:
        """None, once the vectors are as accurate as asked and the strength has settled."""
        return 0 if self._accurate(race) else race.round_size()

    def parts(self, race: Race) -> list[Part]:  # noqa: ARG002
        """The refinement."""
        return [self.refinement]

    def tell(self, race: Race) -> Phase:
        """On."""
        race.record(self.refinement)
        return self

    def end(self, race: Race) -> Phase:
        """Why it ends."""
        limits = race.limits
        limited = limits.max_samples is not None and race.position >= limits.max_samples
        reason = StopReason.MAX_SAMPLES if limited else StopReason.STREAM_ENDED
        if self._accurate(race):
            reason = StopReason.ACCURATE
        elif race.vector_error(self.refinement) > (limits.tol or POOR):
            reason = StopReason.NOT_ACCURATE
        return Done(reason, [], self.refinement)

    def _accurate(self, race: Race) -> bool:
        tol = race.limits.tol
        return tol is not None and self.refinement.settled and race.vector_error(self.refinement) <= tol


@kept
@dataclass
class Done(Phase):
    """The race is over."""

    name = "done"
    reason: StopReason
    searches: list[Search]
    refinement: Refinement | None = None
