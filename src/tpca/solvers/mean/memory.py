"""The memory that a fit of the mean takes, and how many groups of samples fit into what is given."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

from tpca.errors import MemoryBudgetError
from tpca.noise.sketch import QUERIES, gradient_bytes, matrix_bytes
from tpca.solvers.mean.climb import WORK
from tpca.solvers.mean.contrasts import contrast_bytes
from tpca.solvers.mean.fit import most_starts, unfoldings
from tpca.solvers.mean.starts import MORE_MIXTURES, RANDOM
from tpca.solvers.mean.test import flips_allowed, flips_at_once
from tpca.solvers.memory import MIN_BYTES, SHARE_OF_MACHINE, machine_memory
from tpca.solvers.rank_one import DENSE_ROWS, LANCZOS

WORTH, MIN_ROOM = 16, 16 * 10**6  # samples' worth that learning the noise may take by default, and bytes in any case
NOISE_SAMPLES = 1024  # that a sketch may last, for dependence over a few hundred
GROUPS = 8  # at least so many where there is memory: errors rest on them


def noise_bytes(dims: Sequence[int]) -> int:
    """Bytes that learning the noise takes: matrices of the modes, and gradients of queries over many samples."""
    return _noise_bytes(tuple(dims))


@functools.lru_cache(256)
def _noise_bytes(dims: tuple[int, ...]) -> int:
    return matrix_bytes(dims) + gradient_bytes(dims, QUERIES, NOISE_SAMPLES)


def groups_wanted(confidence: float) -> int:
    """Groups of which even flips allow the confidence, one flip reaching as far as the mean; 8 at 0.95."""
    return max(GROUPS, 2 + math.ceil(math.log2(flips_allowed(confidence)[0] + 1)))


def groups_needed(confidence: float) -> int:
    """The fewest groups whose flips allow the confidence at all; 6 at 0.95."""
    return 1 + math.ceil(math.log2(flips_allowed(confidence)[1] + 1))


def mean_bytes(dims: Sequence[int], groups: int, partial: bool = False, compact: bool = False) -> int:
    """Peak state: groups in float32, the mean in float64 and, beside them, samples in flight or the work of a fit.

    Of ``partial`` samples, as much again for how often entries were observed, in every group and in all.  Of
    ``compact`` groups the sum of all in float32, and their contrasts.
    """
    counts = (4 * groups + 3 * 8) * math.prod(dims) if partial else 0
    saved = 4 * (groups - 1) * math.prod(dims) - contrast_bytes(dims, groups - 1) if compact else 0
    return _mean_bytes(tuple(dims), groups) + counts - saved


@functools.lru_cache(256)  # a fit asks for a few of these several times
def _mean_bytes(dims: tuple[int, ...], groups: int) -> int:
    entries = math.prod(dims)
    work = max(entries, _fitting(dims), _flipping(dims), _limiting(dims)) + 5 * groups * sum(dims)  # pulls of groups
    return 4 * groups * entries + 8 * (entries + work)


def _fitting(dims: Sequence[int]) -> int:
    """Floats to fit the mean."""
    starts = most_starts(dims) * sum(dims)
    return _spectral(dims) if len(dims) == 2 else max(_spectral(dims) + starts, max(math.prod(dims), WORK) + 4 * starts)


def _flipping(dims: Sequence[int]) -> int:
    """Floats to fit some flips, which are in float32, half as large.

    For each two copies, Gram matrices of a mode and their eigenvectors, and vectors of all starts; for all a climb.
    """
    entries, tensors = math.prod(dims), flips_at_once(math.prod(dims))
    starts = min(most_starts(dims), 1 + MORE_MIXTURES + RANDOM)
    each = entries + 2 * max(d * d for d in dims if d * d <= entries) + 2 * starts * sum(dims)
    return tensors * each + max(entries, WORK) // 2


def _limiting(dims: Sequence[int]) -> int:
    """Floats to limit what was not found: Gram matrices of a mode, and a group in float32."""
    entries = math.prod(dims)
    return 5 * max(d * d for d in dims if d * d <= entries) + entries // 2


def _spectral(dims: Sequence[int]) -> int:
    """Floats to find the starts: an unfolding out of order is a copy; its singular vectors have a few of their own."""
    sizes = [sorted(math.prod(dims[n] for n in side) for side in pair) for pair in unfoldings(dims)]
    rows, columns = max(small for small, _ in sizes), max(large for _, large in sizes)
    copy = math.prod(dims) if len(dims) > 2 else 0
    return copy + 8 * columns + (3 * rows if rows <= DENSE_ROWS else LANCZOS + 3) * rows


def default_mean_memory(dims: Sequence[int], confidence: float = 0.95, partial: bool = False) -> int:
    """What the mean takes, about seven samples in float64, but no more than a tenth of this machine's memory.

    And what learning the noise takes, unless that is far more.
    """
    noise = noise_bytes(dims)
    usual = noise if noise <= max(MIN_ROOM, WORTH * 8 * math.prod(dims)) else 0
    wanted = max(MIN_BYTES, mean_bytes(dims, 1 + groups_wanted(confidence), partial) + usual)
    return int(min(wanted, SHARE_OF_MACHINE * machine_memory()))


def groups_within(
    dims: Sequence[int], nbytes: int, confidence: float = 0.95, spare: int = 0, partial: bool = False
) -> int:
    """The most groups that fit into ``nbytes``, no more than are wanted and ``spare`` ones."""
    least = groups_needed(confidence)
    for groups in range(groups_wanted(confidence) + spare, least - 1, -1):
        if mean_bytes(dims, groups, partial) <= nbytes:
            return groups
    raise MemoryBudgetError(
        f"memory of {nbytes} bytes is too small for the mean of samples of shape {tuple(dims)} and a test at "
        f"confidence {confidence:g}; give at least {mean_bytes(dims, least, partial)} bytes, or use RaceSolver."
    )
