r"""The constants that the paper hides behind ≍ and ≳, by name.

============================  =====================================================  ==============  =========
field                         where it stands                                        theory          practical
============================  =====================================================  ==============  =========
``delta``                     failure probability δ                                  0.1             0.1
``c0``                        overlap of a random start (Eq. c0-definition)          from δ          1
``c2``                        1/c_2 in every step size; c_2 ≍ k log(k d/δ)            from δ          1
``stage_penalty``             (h*)^p in empirical Phase I step sizes                 2               0
``signal_loss``               the 4 of λ^I = λ ∏ ζ^{h-1} γ/4, and of UB in Case II   4               1
``block_penalty``             k^p in Phase II and odd Case I step sizes (k̄^p, theorem) 1              0
``target_cap``                UB of Phase I never above this                         1/2             1/2
``duration``                  T = duration · (paper's form), Phases I and II         1               1
``kappa``                     decay factor κ of the c_3 search                       1/2             1/2
``search_samples``            N_1 = this · κ^{-2kτ} ∏ d                              32              32
``search_slack``              the c_3 test compares with slack · κ^{kτ}              1/2             1/2
``selection``                 N_0 = this · log(2^k̄/δ) / min(λ, 1)²                   8               8
``estimation``                T^{(3)} = this · form                                  1               100
``estimation_power``          2: form = (k d d')² log⁴ / λ²; 1: form = d d' / λ², ≥ 100  2            1
``estimation_step``           η^{(3)} = this · log²T / (λ T)                         1               1/2
``idle_vector``               odd order: w_1 stands still in Phase I                 no              yes
============================  =====================================================  ==============  =========

``theory`` keeps every factor that the paper prints with its ≍ read as =; the proofs' own constants (8192 c_1, ...) are
larger still.  ``practical`` sets to one what only the proofs need and leaves the vector block of an odd order idle in
Phase I (:mod:`~tpca.solvers.paper.schedules.odd`); ``printed`` has the same constants and the printed Phase I.
Erratum 6 of docs/paper.md is the reason for ``target_cap`` and ``search_slack``: at order 4 the target 2γ^{1-1/(k-1)}
is 2, and the c_3 test a coin flip.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tpca.errors import ScheduleError
from tpca.model.bounds import initial_overlap


@dataclass(frozen=True)
class Constants:
    """Named constants of the schedules; ``None`` takes the paper's formula."""

    delta: float = 0.1
    c0: float | None = None
    c2: float | None = None
    stage_penalty: float = 2.0
    signal_loss: float = 4.0
    block_penalty: float = 1.0
    target_cap: float = 0.5
    duration: float = 1.0
    kappa: float = 0.5
    search_samples: float = 32.0
    search_slack: float = 0.5
    selection: float = 8.0
    estimation: float = 1.0
    estimation_power: int = 2
    estimation_step: float = 1.0
    idle_vector: bool = False

    def start_overlap(self, dims: Sequence[int]) -> float:
        """c_0, given or by Eq. c0-definition."""
        return initial_overlap(dims, self.delta) if self.c0 is None else self.c0

    def __post_init__(self) -> None:
        for name in ("delta", "kappa", "target_cap", "search_slack"):
            if not 0 < getattr(self, name) < 1:
                raise ScheduleError(f"{name} must lie strictly between 0 and 1, got {getattr(self, name)}.")
        positive = ("signal_loss", "duration", "search_samples", "selection", "estimation", "estimation_step")
        for name in (*positive, *(n for n in ("c0", "c2") if getattr(self, n) is not None)):
            if not getattr(self, name) > 0:
                raise ScheduleError(f"{name} must be positive, got {getattr(self, name)}.")
        if self.estimation_power not in (1, 2):
            raise ScheduleError(f"estimation_power must be 1 or 2, got {self.estimation_power}.")

    def step_divisor(self, count: int, dims: Sequence[int]) -> float:
        """c_2, given or count · log(count · d_max / δ): count is k̄ in the theorem, k in the empirical sections."""
        return count * math.log(count * max(dims) / self.delta) if self.c2 is None else self.c2

    def selection_samples(self, order: int, strength: float) -> int:
        """N_0 = selection · log(2^k̄/δ)/λ².  Erratum 9: N_0 ≳ 1 is too few to tell 2^k̄ starts apart."""
        return max(1, math.ceil(self.selection * math.log(2**order / self.delta) / min(strength, 1.0) ** 2))

    def estimation_steps(self, count: int, size: int, dim: int, strength: float) -> int:
        """T^{(3)} for a largest block of ``size`` entries and a longest mode ``dim``; ``count`` as in ``step_divisor``.

        ``theory``: the fixed point of T ≥ max(count, (count · d d')²/λ²) log⁴(count · d T/δ) (Eq. hyper-para-T-even,
        empirical-sample-size-caseI/II).  Erratum 7: at orders 4 and 5 that d⁴ exceeds everything else; ``practical``
        asks for d d'/λ², what the Gaussian rate needs, and at least 100 steps.
        """
        if self.estimation_power == 1:
            return max(100, math.ceil(self.estimation * size / strength**2))
        floor = self.estimation * max(count, (count * size) ** 2 / strength**2)
        steps = floor
        for _ in range(50):
            steps = floor * math.log(count * dim * max(steps, 2.0) / self.delta) ** 4
        return math.ceil(steps)


PRESETS = {
    "theory": Constants(),
    "practical": Constants(
        c0=1.0,
        c2=1.0,
        stage_penalty=0.0,
        signal_loss=1.0,
        block_penalty=0.0,
        estimation=100.0,
        estimation_power=1,
        estimation_step=0.5,
        idle_vector=True,
    ),
}
PRESETS["printed"] = replace(PRESETS["practical"], idle_vector=False)


def preset_constants(preset: str | Constants) -> Constants:
    """Constants by the name of a preset, or as they are."""
    if isinstance(preset, Constants):
        return preset
    if preset not in PRESETS:
        raise ScheduleError(f"preset must be one of {', '.join(PRESETS)} or a Constants, got {preset!r}.")
    return PRESETS[preset]
