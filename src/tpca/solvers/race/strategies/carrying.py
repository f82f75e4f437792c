"""What a strategy knows, carried over when data are seen whitened otherwise, or to a larger one."""

from __future__ import annotations

import math

from tpca.noise import Whitening
from tpca.solvers.race.strategies.flow import BlockFlow
from tpca.solvers.race.strategies.protocol import Strategy
from tpca.solvers.race.strategies.singles import SingleReplicas
from tpca.solvers.race.strategies.whole import WholeSum

# Bytes per entry while a sum of samples is whitened: two sums in half precision, two copies in single.
CARRIED = 16


def carried(old: Strategy, new: Strategy, before: Whitening | None, after: Whitening, room: int) -> Strategy:
    """The strategy that goes on: ``new``, which is empty, with the sums of ``old`` as far as they are of use.

    The sum of all samples, where it is kept, is whitened and stays, as far as ``room``, in bytes, allows; so do the
    sums of a flow, unless they are of data that were not whitened at all: loud noise is all that they hold.
    """
    if not isinstance(old, BlockFlow) or not old.count:
        return new
    if isinstance(old, WholeSum):
        if isinstance(new, WholeSum) and CARRIED * math.prod(old.partition.dims) <= room:
            modes = [mode for group in old.partition.groups for mode in group]
            mean = old.mean() if before is None else before.undone.tensor(old.mean(), modes)
            new.take_mean(after.tensor(mean, modes), old.count)
        return new
    if before is not None and isinstance(new, BlockFlow) and new.columns == old.columns:
        old.rewhiten(before, after)
        return old
    return new


def enlarged(old: Strategy, new: Strategy) -> bool:
    """Let ``new``, the same strategy in more memory, go on where ``old`` is; tell whether it can."""
    if isinstance(old, WholeSum) or isinstance(new, WholeSum):
        return False
    if isinstance(old, BlockFlow) and isinstance(new, BlockFlow) and old.columns <= new.columns:
        new.take_over(old)
        return True
    if isinstance(old, SingleReplicas) and isinstance(new, SingleReplicas) and old.replicas <= new.replicas:
        new.take_over(old)
        return True
    return False
