r"""What a cluster is worth: bytes and seconds of every round, from a handful of measured constants.

A round sends P bytes of replicas down and brings parts of G bytes up, whatever the number of samples:

.. math::
    P = \sum_q R_q \sum_m D_{qm} b_q, \qquad
    G = \min\Bigl(b \prod_i d_i,\; 8 \sum_q R_q \sum_{m\ \text{wanted}} D_{qm}\Bigr),

R replicas with blocks of D entries of b bytes each; samples of prod d entries.  P = 0 where the sum of the samples is
what comes back.  Replicas go from the client to the scheduler, to one worker, and on from worker to worker; parts are
merged by workers, eight at a time, and the last ones go to the client by way of the scheduler.

:func:`simulate` plays a fit round by round: rounds are those of a race (:mod:`tpca.solvers.race.rounds`), workers
finish when they have read their share (a share is a whole number of groups), the slowest of them ends the round, and
every transfer takes its time on its line.

=====================  ============================================================
symbol                 code
=====================  ============================================================
P, G                   ``down``, ``up``
=====================  ============================================================
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tpca.engines.dask.engine import FAN, merge_fan, runs_of
from tpca.solvers.race.rounds import round_sizes


@dataclass(frozen=True)
class Traffic:
    """Bytes of one round, by who is at their end, and its tasks."""

    through_scheduler: int
    """Received and sent on: replicas to the first worker, parts to the client."""
    between_workers: int
    tasks: int
    levels: int
    """Of the tree in which parts are merged on workers."""

    @property
    def sent(self) -> int:
        """All bytes that anybody sends."""
        return 2 * self.through_scheduler + self.between_workers


def round_traffic(down: int, up: int, workers: int, leaves: int) -> Traffic:
    """Bytes of a round of ``leaves`` groups; what is merged on the worker that has it does not travel."""
    runs = runs_of(leaves, workers)
    homes = [run * workers // runs for run in range(runs)]
    busy = len(set(homes))
    tasks, levels, moved = runs + (1 if down and runs > 1 else 0), 0, 0
    while (fan := merge_fan(len(homes), workers, levels)) > 1:
        groups = [homes[i : i + fan] for i in range(0, len(homes), fan)]
        moved += sum(len(group) - group.count(group[0]) for group in groups)
        homes = [group[0] for group in groups]
        tasks, levels = tasks + len(homes), levels + 1
    return Traffic(down + len(homes) * up, down * (busy - 1) + moved * up, tasks, levels)


@dataclass(frozen=True)
class Machine:
    """What a cluster is made of, as measured (benchmarks/dask_scaling.py), or as promised."""

    samples_per_second: float
    """That one worker reads and adds up."""
    bytes_per_second: float
    """Of one machine's line to the network."""
    task_seconds: float = 0.5e-3
    """Of the scheduler, for every task."""
    round_seconds: float = 15e-3
    """Of a round with nothing to do."""
    solver_seconds: float = 0.0
    """Of the solver, between two rounds."""


@dataclass(frozen=True)
class Fit:
    """Seconds of a fit, and where they go."""

    rounds: int
    total: float
    reading: float
    network: float
    scheduler: float
    solver: float
    alone: float
    """Seconds of one process that has no cluster."""

    @property
    def speedup(self) -> float:
        """How many times as fast as one process."""
        return self.alone / self.total

    def efficiency(self, workers: int) -> float:
        """The speed-up as a share of the workers."""
        return self.speedup / workers


def simulate(samples: int, group: int, down: int, up: int, workers: int, machine: Machine) -> Fit:
    """A fit of ``samples`` samples, groups of at least ``group`` samples, on so many workers."""
    reading = network = scheduler = 0.0
    sizes = round_sizes(samples)
    for n in sizes:
        leaves = 2 ** max(0, int(math.log2(max(1, n // group))))
        runs = runs_of(leaves, workers)
        traffic = round_traffic(down, up, workers, leaves)
        largest = -(-runs // workers) * -(-n // runs)  # samples of the worker that has most
        reading += largest / machine.samples_per_second
        network += _line_seconds(traffic, down, up, min(workers, runs), machine)
        scheduler += machine.round_seconds + traffic.tasks * machine.task_seconds
    solver = len(sizes) * machine.solver_seconds
    alone = samples / machine.samples_per_second + solver
    return Fit(len(sizes), reading + network + scheduler + solver, reading, network, scheduler, solver, alone)


def _line_seconds(traffic: Traffic, down: int, up: int, workers: int, machine: Machine) -> float:
    """Seconds on the longest way: through the scheduler, down from worker to worker, and up the tree."""
    hops = math.ceil(math.log(workers, FAN)) if workers > 1 else 0
    spread = min(workers - 1, FAN) * hops * down  # whoever has the replicas serves up to eight at a time
    merged = traffic.levels * (FAN - 1) * up
    return (2 * traffic.through_scheduler + spread + merged) / machine.bytes_per_second
