"""Fits of samples with missing entries: slices of modes are counted, and what was never observed is said.

The mean counts every entry (:mod:`tpca.solvers.mean.observed`).  All other runs, which hold no number for every entry,
are told samples scaled by the rates of slices (:mod:`tpca.tensors.observed`), whoever reads them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tpca.labels import Labels, plain_labels
from tpca.noise import Check
from tpca.solvers.loop import Ask, Run
from tpca.solvers.recovery import Component, Recovery
from tpca.tensors import Observed, SliceCounts
from tpca.tensors.blocks import Array

NAME = "missing entries"
LISTED = 6  # slices that a sentence names


class ObservedRun:
    """A run on samples of which entries may be missing; ``scaled``: it is told samples scaled by the rates of these."""

    def __init__(self, run: Run, counts: SliceCounts, scaled: bool, labels: Labels | None = None) -> None:
        self._run, self._counts, self._scaled, self._labels = run, counts, scaled, labels

    def ask(self) -> Ask[Observed] | None:
        """What the run asks for, and how much of every slice is there."""
        ask = self._run.ask()
        return None if ask is None else Ask(Observed([ask.blank], self._counts, self._scaled), ask.n, ask.rewind)

    def tell(self, part: Observed) -> None:
        """Hand it on."""
        self._counts = self._counts.plus(part.counts)
        self._run.tell(part.parts[0])

    def close(self) -> None:
        """There will be no more samples."""
        self._run.close()

    def recovery(self) -> Recovery:
        """What was found, and what was never observed; σ is that of an entry of a sample as it was measured."""
        found = self._run.recovery()
        if self._scaled and self._counts.n:
            louder = math.prod(float(np.mean(own)) for own in self._counts.factors()) or 1.0
            found = dataclasses.replace(found, noise_level=found.noise_level / math.sqrt(louder))
        return with_observed(found, self._counts, self._labels)

    def state(self) -> dict[str, Any]:
        """That of the run, and the counts."""
        return {"run": self._run.state(), "counts": self._counts}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self._run.restore(state["run"])
        self._counts = state["counts"]

    def silent_copy(self) -> ObservedRun:
        """A copy that calls nobody back."""
        return ObservedRun(self._run.silent_copy(), self._counts, self._scaled, self._labels)


def with_observed(found: Recovery, counts: SliceCounts, labels: Labels | None = None) -> Recovery:
    """A recovery that says what share of every slice was observed, in words, too.

    Of an entry of a vector whose slice never was, nothing is known: it is 0, and its standard error infinite.
    """
    if counts.complete or not counts.n:
        return found
    return dataclasses.replace(
        found,
        components=tuple(_component(one, counts.rates) for one in found.components),
        guess=None if found.guess is None else _component(found.guess, counts.rates),
        observed=counts.rates,
        checks=(*found.checks, observed_check(counts.rates, labels)),
        state_bytes=found.state_bytes + counts.nbytes,
    )


def observed_check(rates: Sequence[Array], labels: Labels | None = None) -> Check:
    """Which share was observed, and whether some slice never was, by its name if it has one."""
    share = float(np.mean(rates[0]))
    known_as = labels or plain_labels([len(own) for own in rates])
    places = [(m, int(j)) for m, own in enumerate(rates) for j in np.flatnonzero(own == 0)]
    words = ["entry " if axis.coords is None else "" for axis in known_as.axes]
    never = [f"{words[m]}{known_as.entry(m, j)} of {known_as.modes[m]}" for m, j in places]
    known = np.concatenate([own[own > 0] for own in rates])
    spread = f", of slices {known.min():.0%} to {known.max():.0%}" if known.size and np.ptp(known) > 0.005 else ""
    measured = f"{share:.1%} of entries observed{spread}"
    if not never:
        return Check(NAME, "handled", measured, "Every entry counts by how often it was observed.")
    listed = ", ".join(never[:LISTED]) + (f" and {len(never) - LISTED} more" if len(never) > LISTED else "")
    return Check(NAME, "bad", measured, f"nothing is known of what was never observed: {listed}")


def _component(one: Component, rates: Sequence[Array]) -> Component:
    vectors = tuple(_known(v, rate) for v, rate in zip(one.vectors, rates, strict=True))
    errors = one.standard_errors
    if errors is not None:
        errors = tuple(np.where(rate > 0, e, math.inf) for e, rate in zip(errors, rates, strict=True))
    return dataclasses.replace(one, vectors=vectors, standard_errors=errors)


def _known(vector: Array, rate: Array) -> Array:
    """A unit vector with nothing where nothing was observed."""
    if (rate > 0).all():
        return vector
    own = np.where(rate > 0, vector, 0.0)
    length = float(np.linalg.norm(own))
    return own / length if length > 0 else vector
