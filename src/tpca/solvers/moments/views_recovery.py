"""What a fit of views gave: directions that they share, or that none could be proven, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import solve_triangular

from tpca.solvers.claim import Verdict
from tpca.solvers.moments.relations import Relations
from tpca.solvers.moments.solver import Moment
from tpca.solvers.recovery import StopReason
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
        """The first ``proven`` of the components that were tested, or the first of them as a guess.

        Of every view the largest loading is positive, but for the last, which takes the sign that is left; until it
        is known how scores are related.
        """
        told = []
        for one in tested[: max(1, proven)]:
            each = [loadings(w, v[:, None])[:, 0] for w, v in zip(whiteners, one.vectors, strict=True)]
            signs = [1.0 if own[np.argmax(np.abs(own))] >= 0 else -1.0 for own in each]
            signs[-1] = float(np.prod(signs[:-1]))
            told.append(replace(one, vectors=tuple(s * v for s, v in zip(signs, one.vectors, strict=True))))
        return cls(whiteners, tuple(told[:proven]), None if proven else told[0], n, n_skipped)

    def with_relations(self, relations: Relations) -> ViewsRecovery:
        """The same with what scores and columns have to do with each other; signs are those for which scores agree."""
        signs = relations.signs()
        turned = [
            replace(one, vectors=tuple(s * v for s, v in zip(own, one.vectors, strict=True)))
            for own, one in zip(signs, self.components, strict=True)
        ]
        return replace(self, components=tuple(turned), relations=relations.turned(signs))

    @property
    def weights(self) -> list[Array]:
        """Weights ``(C, d_i)`` of the proven components on the columns of every view."""
        pairs = zip(self.whiteners, self._stacked, strict=True)
        return [np.ascontiguousarray(whitener.weights(own.T).T) for whitener, own in pairs]

    @property
    def loadings(self) -> list[Array]:
        """Correlations ``(C, d_i)`` of the columns of every view with its scores, shrunk as the covariance was."""
        pairs = zip(self.whiteners, self._stacked, strict=True)
        return [np.ascontiguousarray(loadings(whitener, own.T).T) for whitener, own in pairs]

    @property
    def _stacked(self) -> list[Array]:
        """Directions ``(C, d_i)`` of the proven components in the whitened columns of every view."""
        found = self.components
        shapes = [(len(found), len(w.mean)) for w in self.whiteners]
        return [np.reshape(np.array([m.vectors[i] for m in found]), shape) for i, shape in enumerate(shapes)]

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


def loadings(whitener: Whitener, vectors: Array) -> Array:
    """Correlations of the columns of a view with scores along directions ``(d, c)``, of unit length when whitened.

    In the covariance C_s = L L^T that was whitened with: cov(x, y) = C_s w = L u, where w = L^-T u, and y has
    variance 1.
    """
    lower = solve_triangular(whitener.factor, np.eye(len(whitener.factor)), check_finite=False).T
    return np.asarray((lower @ vectors) / np.linalg.norm(lower, axis=1)[:, None])
