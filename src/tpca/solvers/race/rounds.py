r"""How many samples the rounds of a race have, how much it may read, and what "nothing found" says.

**Rounds** are known in advance, so that a cluster can be planned for.

**The limit** is an upper confidence limit on the strength by inversion of the race itself.  If a signal of strength λ
would have been found in N samples with probability 95 % or more, and none was, then the strength is below λ with 95 %
confidence.  Samples needed scale as σ²/λ² and, measured over many sizes at λ = σ = 1, 95 % of races have proven the
signal after at most

.. math:: N_{95} = N_0 + C \prod_n d_n^{1/2}

samples, with C depending on the main strategy and its size.  The limit is :math:`\sigma\sqrt{N_{95}/N}`.

The constants are set above all rows of ``docs/detection.json``, which ``python -m research table detection``
measures: Gaussian noise, independent random vectors (the hardest kind), orders 2 to 6.  For sizes far outside that
table the limit is an extrapolation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

GROWTH = 0.06  # of all samples so far
# A round costs the same however few samples it has: about as much as reading this many entries.  Rounds of fewer are
# larger, up to an eighth of all samples so far: what is found then is found an eighth later at most.
ROUND_ENTRIES = 2**20
EARLY = 4  # samples of a round that may be a quarter, however large they are
SUB_BATCHES = 32  # of a round, at most: none can win more than a factor of two, and each takes time and memory
FEW_SUB_BATCHES = 4  # where nobody has evidence worth a look at more
GRADIENT_SUB_BATCHES = 8  # of which the refinement keeps gradients, for errors: these take memory

START = 95.0  # N_0: what the trial alone takes
WHOLE = 1.7  # C with all the data in memory
PER_COLUMN = 18.0  # a flow of r columns adds this over r
SINGLES, SHARE = {5: 13.0, 6: 30.0}, 0.65  # singles add this, by order, times (d/replicas)^SHARE
MIN_SAMPLES = 15  # fewer do not prove even the strongest signal


def round_size(done: int, block: int = 1, entries: int = ROUND_ENTRIES) -> int:
    """Samples of the round after ``done`` samples of so many ``entries``: whole blocks of ``block`` samples."""
    cheap = max(EARLY, ROUND_ENTRIES // entries)
    size = max(1, int(GROWTH * done), min(cheap, max(done // 8, min(EARLY, done // 4))))
    return max(block, size // block * block)


def round_sizes(samples: int, entries: int = ROUND_ENTRIES) -> list[int]:
    """Samples of all rounds of one pass over ``samples`` of so many ``entries``; the last takes what is left."""
    sizes, done = [], 0
    while done < samples:
        sizes.append(min(round_size(done, 1, entries), samples - done))
        done += sizes[-1]
    return sizes


def sub_batch_edges(n: int, block: int = 1, most: int = SUB_BATCHES) -> tuple[int, ...]:
    """Where the sub-batches of a round of ``n`` samples begin: about equal, of whole blocks, the last with the rest."""
    blocks = max(1, n // block)
    count = min(blocks, most)
    return tuple(block * (blocks * j // count) for j in range(count))


def samples_factor(dims: Sequence[int], main: str, size: int) -> float:
    """C of a main strategy of so many columns or replicas."""
    if main == "whole":
        return WHOLE
    if main == "flow":
        return WHOLE + PER_COLUMN / size
    return float(WHOLE + SINGLES.get(len(dims), 30.0 * 2.5 ** (len(dims) - 6)) * (max(dims) / size) ** SHARE)


def strength_limit(dims: Sequence[int], main: str, size: int, samples: int, delta: float) -> float:
    """95 % upper confidence limit, in noise levels, after ``samples`` samples in which nothing was found.

    A trial at level ``delta`` takes ln(6/δ) times as long (measured at δ = 0.05).
    """
    if samples < MIN_SAMPLES:
        return math.inf
    trial = START * math.log(6 / delta) / math.log(6 / 0.05)
    return math.sqrt((trial + samples_factor(dims, main, size) * math.sqrt(math.prod(dims))) / samples)
