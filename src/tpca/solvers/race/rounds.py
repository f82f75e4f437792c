"""How many samples the rounds of a race have: known in advance, so that a cluster can be planned for."""

from __future__ import annotations

GROWTH = 0.06  # of all samples so far
# A round costs the same however few samples it has: about as much as reading this many entries.  Rounds of fewer are
# larger, up to an eighth of all samples so far: what is found then is found an eighth later at most.
ROUND_ENTRIES = 2**20
EARLY = 4  # samples of a round that may be a quarter, however large they are
LARGE = ROUND_ENTRIES  # entries of samples for which nothing else is done


# Sub-batches of a round: none can win more than a factor of two, and each costs a look at the sum of the samples.
# Many where some candidate has evidence above HOPE and nothing is proven, for there a round may say much (of z²/2 = 3
# nats 4 sub-batches win 1.7, 16 2.5, 32 2.7); few in all other rounds, which are most, and as good for what says little
# (z²/2 = 0.5: 0.45).
SUB_BATCHES, FEW_SUB_BATCHES, HOPE = 32, 4, 0.5
GRADIENT_SUB_BATCHES = 8  # of which the refinement keeps gradients, for errors: these take memory


def round_size(done: int, block: int = 1, entries: int = LARGE) -> int:
    """Samples of the round after ``done`` samples of so many ``entries``: whole blocks of ``block`` samples."""
    cheap = max(EARLY, ROUND_ENTRIES // entries)
    size = max(1, int(GROWTH * done), min(cheap, max(done // 8, min(EARLY, done // 4))))
    return max(block, size // block * block)


def sub_batch_edges(n: int, block: int = 1, most: int = SUB_BATCHES) -> tuple[int, ...]:
    """Where the sub-batches of a round of ``n`` samples begin: about equal, of whole blocks, the last with the rest."""
    blocks = max(1, n // block)
    count = min(blocks, most)
    return tuple(block * (blocks * j // count) for j in range(count))


def round_sizes(samples: int, entries: int = LARGE) -> list[int]:
    """Samples of all rounds of one pass over ``samples`` of so many ``entries``; the last takes what is left."""
    sizes, done = [], 0
    while done < samples:
        sizes.append(min(round_size(done, 1, entries), samples - done))
        done += sizes[-1]
    return sizes
