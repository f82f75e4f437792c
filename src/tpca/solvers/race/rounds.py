"""How many samples the rounds of a race have: known in advance, so that a cluster can be planned for."""

from __future__ import annotations

GROWTH = 0.06  # of all samples so far
# At first rounds grow faster, up to this many samples: a round costs the same however few samples it has, and signals
# strong enough to be found by then are found a quarter later at most.
EARLY = 4


# Sub-batches of a round; each costs a look at the sum of the samples.  Samples until proven over those of evidence that
# knows the noise to be Gaussian (90 runs at orders 3 to 5, the same rewards): 16 1.02, 8 1.05, 4 1.15.
SUB_BATCHES = 16
GRADIENT_SUB_BATCHES = 8  # of which the refinement keeps gradients, for errors: these take memory


def round_size(done: int, block: int = 1) -> int:
    """Samples of the round after ``done`` samples: whole blocks of ``block`` samples."""
    size = max(1, int(GROWTH * done), min(EARLY, done // EARLY))
    return max(block, size // block * block)


def sub_batch_edges(n: int, block: int = 1, most: int = SUB_BATCHES) -> tuple[int, ...]:
    """Where the sub-batches of a round of ``n`` samples begin: about equal, of whole blocks, the last with the rest."""
    blocks = max(1, n // block)
    count = min(blocks, most)
    return tuple(block * (blocks * j // count) for j in range(count))


def round_sizes(samples: int) -> list[int]:
    """Samples of all rounds of one pass over ``samples``; the last takes what is left."""
    sizes, done = [], 0
    while done < samples:
        sizes.append(min(round_size(done), samples - done))
        done += sizes[-1]
    return sizes
