r"""Bytes of a round on a cluster, by formula.

A round sends P bytes of replicas down and brings parts of G bytes up, whatever the number of samples:

.. math::
    P = \sum_q R_q \sum_m D_{qm} b_q, \qquad
    G = \min\Bigl(b \prod_i d_i,\; 8 \sum_q R_q \sum_{m\ \text{wanted}} D_{qm}\Bigr),

R replicas with blocks of D entries of b bytes each; samples of prod d entries.  P = 0 where the sum of the samples is
what comes back.  Replicas go from the client to the scheduler, to one worker, and on from worker to worker; parts are
merged by workers, eight at a time, and the last ones go to the client by way of the scheduler.
"""

from __future__ import annotations

from dataclasses import dataclass

from tpca.engines.dask.engine import merge_fan, runs_of


@dataclass(frozen=True)
class Traffic:
    """Bytes of one round, by who is at their end."""

    through_scheduler: int
    """Received and sent on: replicas to the first worker, parts to the client."""
    between_workers: int

    @property
    def sent(self) -> int:
        """All bytes that anybody sends."""
        return 2 * self.through_scheduler + self.between_workers


def round_traffic(down: int, up: int, workers: int, leaves: int) -> Traffic:
    """Bytes of a round of ``leaves`` groups, P = ``down``, G = ``up``; what is merged where it is does not travel."""
    runs = runs_of(leaves, workers)
    homes = [run * workers // runs for run in range(runs)]
    busy, levels, moved = len(set(homes)), 0, 0
    while (fan := merge_fan(len(homes), workers, levels)) > 1:
        groups = [homes[i : i + fan] for i in range(0, len(homes), fan)]
        moved += sum(len(group) - group.count(group[0]) for group in groups)
        homes, levels = [group[0] for group in groups], levels + 1
    return Traffic(down + len(homes) * up, down * (busy - 1) + moved * up)
