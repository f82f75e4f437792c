"""How many samples the rounds of a race have: known in advance, so that a cluster can be planned for."""

from __future__ import annotations

GROWTH = 0.06  # of all samples so far
# At first rounds grow faster, up to this many samples: a round costs the same however few samples it has, and signals
# strong enough to be found by then are found a quarter later at most.
EARLY = 4


def round_size(done: int) -> int:
    """Samples of the round after ``done`` samples."""
    return max(1, int(GROWTH * done), min(EARLY, done // EARLY))


def round_sizes(samples: int) -> list[int]:
    """Samples of all rounds of one pass over ``samples``; the last takes what is left."""
    sizes, done = [], 0
    while done < samples:
        sizes.append(min(round_size(done), samples - done))
        done += sizes[-1]
    return sizes
