"""What a fit of views gave: directions that they share, or that none could be proven, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tpca.solvers.moments.relations import Relations
from tpca.solvers.moments.solver import Moment
from tpca.solvers.recovery import StopReason, Verdict
from tpca.streams.whitening import Whitener
from tpca.tensors.blocks import Array

PAIRED = 0.05  # p at which views that share nothing in an odd moment are said to be related in pairs


@dataclass(frozen=True)
class ViewsRecovery:
    """Directions that views share: proven ``components``, or a ``guess`` that proves nothing."""

    whiteners: list[Whitener]
    components: tuple[Moment, ...]
    guess: Moment | None
    n_samples: int
    n_skipped: int
    relations: Relations | None = None
    """Of scores and columns, to predict a missing view; not known of views that passed by once."""

    @classmethod
    def of(
        cls, whiteners: list[Whitener], tested: Sequence[Moment], proven: int, n: int, n_skipped: int
    ) -> ViewsRecovery:
        """The first ``proven`` of the components that were tested, or the first of them as a guess."""
        return cls(whiteners, tuple(tested[:proven]), None if proven else tested[0], n, n_skipped)

    @property
    def weights(self) -> list[Array]:
        """Weights ``(C, d_i)`` of the proven components on the columns of every view."""
        found = self.components
        shapes = [(len(found), len(w.mean)) for w in self.whiteners]
        rows = [np.reshape(np.array([m.vectors[i] for m in found]), shape) for i, shape in enumerate(shapes)]
        return [np.ascontiguousarray(w.weights(own.T).T) for w, own in zip(self.whiteners, rows, strict=True)]

    @property
    def advice(self) -> str:
        """What came of it, and what to do if nothing did."""
        if self.guess is None:
            return "Proven on rows that were held out."
        nothing, views = "No direction shared by all views was proven", len(self.whiteners)
        if views % 2 == 0:
            return f"{nothing}: give more rows, or other views."
        why = f"the moment of an odd number of views ({views}) is zero for a factor of a symmetric law"
        if self.guess.pairs_p_value <= PAIRED:
            return (
                f"{nothing}, though they are related in pairs (p = {self.guess.pairs_p_value:.2g}): {why}, and more "
                "rows do not help. Give an even number of views, as two of them (canonical correlation of a pair)."
            )
        return f"{nothing}: give more rows, or other views; {why}, so try an even number, too."

    @property
    def tested(self) -> tuple[Moment, ...]:
        """What was proven, or the guess."""
        return self.components if self.guess is None else (self.guess,)

    @property
    def stop_reason(self) -> StopReason:
        """How it ended."""
        return StopReason.STREAM_ENDED if self.components else StopReason.NO_SIGNAL

    @property
    def verdict(self) -> Verdict:
        """Whether a shared direction was proven."""
        return self.stop_reason.verdict
