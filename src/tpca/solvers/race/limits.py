r"""What "nothing found" says about the strength: an upper confidence limit by inversion of the race itself.

If a signal of strength λ would have been found in N samples with probability 95 % or more, and none was, then the
strength is below λ with 95 % confidence.  Samples needed scale as σ²/λ² and, measured over many sizes at λ = σ = 1,
95 % of races have proven the signal after at most

.. math:: N_{95} = N_0 + C \prod_n d_n^{1/2}

samples, with C depending on the main strategy and its size.  The limit is :math:`\sigma\sqrt{N_{95}/N}`.

The constants are set above all rows of ``docs/detection.json``, which ``python -m tpca.lab.studies.detection``
measures: Gaussian noise, independent random vectors (the hardest kind), orders 2 to 6.  For sizes far outside that
table the limit is an extrapolation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tpca.solvers.race.strategies.flow import BlockFlow
from tpca.solvers.race.strategies.protocol import Strategy
from tpca.solvers.race.strategies.replicas import PairReplicas
from tpca.solvers.race.strategies.singles import SingleReplicas
from tpca.solvers.race.strategies.whole import WholeSum

START = 95.0  # N_0: what the trial alone takes
WHOLE = 1.7  # C with all the data in memory
PER_COLUMN = 18.0  # a flow of r columns adds this over r
SINGLES = {5: 13.0, 6: 30.0}  # singles add this times (d/replicas)^SHARE, by order
SHARE = 0.65
MIN_SAMPLES = 15


def strength_limit(dims: Sequence[int], strategy: Strategy, samples: int, sigma: float, delta: float) -> float:
    """95 % upper confidence limit on the strength after ``samples`` samples in which nothing was found.

    ``delta`` is the level of the trial.  Infinite below 15 samples: not even the strongest signal is proven by so few.
    """
    if samples < MIN_SAMPLES:
        return math.inf
    return sigma * math.sqrt(samples_to_find(dims, strategy, delta) / samples)


def samples_to_find(dims: Sequence[int], strategy: Strategy, delta: float) -> float:
    """N_95 at strength one in unit noise; a trial at level δ takes ln(6/δ) times as long (measured at δ = 0.05)."""
    constant = WHOLE
    if isinstance(strategy, SingleReplicas):
        constant += SINGLES.get(len(dims), 30.0 * 2.5 ** (len(dims) - 6)) * (max(dims) / strategy.replicas) ** SHARE
    elif isinstance(strategy, PairReplicas):
        constant += SINGLES[6] * (max(dims) / strategy.replicas) ** SHARE
    elif isinstance(strategy, BlockFlow) and not isinstance(strategy, WholeSum):
        constant += PER_COLUMN / strategy.columns
    return START * math.log(6 / delta) / math.log(6 / 0.05) + constant * math.sqrt(math.prod(dims))
