r"""The paper's algorithm: SNSGA1, SNSGA2 and MPSNSGA, even and odd order (Algorithms SGA-con-ss … MSANSGA-odd).

==============  ========================================================================================
Phase I         h* cycles of SNSGA1 on all 2^k̄ sign starts, each with fresh samples of its own
Phase II        one more SNSGA1
selection       the start with the largest mean reward over N_0 fresh samples each
Phase III       SNSGA2 (step size halved every T̂ steps) twice from the winner, with +R and with −R;
                per block the end point nearer to the start
estimator       top vectors of every block, with the sign that the mean reward decides (erratum 13)
==============  ========================================================================================

SNSGA runs the blocks m = K, K−1, …, 1; in block m's turn the blocks j > m are already new and i < m still old (Eq.
def-hatR; Section "Block-wise Update Structure" says the reverse — erratum 1, docs/paper.md).  Within a turn the
gradient :math:`\nabla_m R` does not depend on :math:`W_m` (R is linear in it), so an accumulator may hold the gradients
of many steps at once; the steps themselves are taken one sample at a time.

The ``strength`` is the mean reward of the normalised blocks over the second half of the last turn's samples, each
sample judged by the block before its own step, in both runs of Phase III and with the sign that belongs to the vectors
returned: an estimate of :math:`\lambda\prod_m\alpha_m`.  A stream that ends early leaves the start with the largest
mean reward over the latest second half of a turn that was entered, and that reward; NaN before there is one.  At the
end of a schedule that has done its work it is at least 0.8 λ; if it is below λ/2 the climb has failed, or λ was not
what the schedule was told, and the estimate says so.

Deliberately different: blocks are rescaled to unit norm after every chunk of steps, which changes no direction (the
step is scale-free) and keeps long runs from overflowing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tpca.engines import open_engine
from tpca.errors import SolverError
from tpca.model import SpikedTensor, check_strength
from tpca.randomness import generator
from tpca.solvers.estimate import Estimate, StopReason
from tpca.solvers.options import CommonOptions, one_of, option
from tpca.solvers.paper.run import PaperRun, StreamEndedError, block_vectors, pairings_of
from tpca.solvers.paper.schedule import (
    Constants,
    Schedule,
    empirical_schedule,
    preset_constants,
    search_steps,
    theorem_schedule,
)
from tpca.solvers.rank_one import positive
from tpca.solvers.run import Keeper, completed
from tpca.tensors.blocks import Partition
from tpca.threads import calm_blas


@dataclass(kw_only=True, eq=False)
class PaperSolver(CommonOptions):
    """Three-phase, sequentially normalised stochastic gradient ascent.

    Parameters
    ----------
    schedule
        ``"empirical"`` (needs only ``strength``, the paper's known λ), ``"theorem"`` (needs ``truth``; for studies),
        or a :class:`~tpca.solvers.paper.schedule.Schedule` of your own.
    preset
        The constants that the paper leaves open: ``"practical"``, ``"theory"``, or a
        :class:`~tpca.solvers.paper.schedule.Constants`.  ``"idle"`` is ``"practical"`` with the vector block of an odd
        order idle in Phase I: N grows as d^{k̄-2} instead of d^{k̄-1}, but of 200 runs at its own N (order 5, without
        correlation) 181, 153 and 161 succeed at d = 6, 16 and 64, and 200 of the printed schedule
        (:mod:`~tpca.solvers.paper.schedule`).
    pairing
        ``"neighbours"`` as in the paper, or ``"search"``: the c_3 search of the empirical schedule tries all pairings
        on the same samples, twice as many (:mod:`~tpca.solvers.paper.run`).
    estimator
        ``"power"`` or ``"ascent"``: the two estimator steps of the paper.
    callbacks
        Called with the record of every block's turn, of the search, the selection and the end of Phase III;
        ``record["blocks"]`` holds the replicas.
    checkpoint, checkpoint_every, resume
        Folder for checkpoints after a block's turn, least seconds between them, and whether to go on from the last.
    """

    name: ClassVar[str] = "paper"

    schedule: str | Schedule = option("empirical")
    preset: str | Constants = option("practical")
    strength: float = option(1.0, lambda _, value: check_strength(value))
    truth: SpikedTensor | None = option(None)
    pairing: str = option("neighbours", one_of("neighbours", "search"))
    estimator: str = option("power", one_of("power", "ascent"))

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.schedule, str) and self.schedule not in ("empirical", "theorem"):
            raise SolverError(f"schedule must be 'empirical', 'theorem' or a Schedule, got {self.schedule!r}.")
        if self.schedule == "theorem" and self.truth is None:
            raise SolverError("schedule='theorem' needs truth=..., got None; use 'empirical' when it is not known.")
        if self.pairing == "search" and self.schedule != "empirical":
            raise SolverError("pairing='search' is part of the empirical schedule; use schedule='empirical'.")
        self.constants = preset_constants(self.preset)

    def run(self, source: Any) -> Estimate:
        """Recover the vectors from a stream (or engine); a stream that ends early gives what was reached."""
        engine = open_engine(source)
        if engine.partial:
            raise SolverError(
                "the paper's algorithm takes no missing entries; use nan_policy='omit', or least squares."
            )
        rng = generator(self.random_state, "paper")
        run = PaperRun(engine, rng, self.callbacks, spare=self.constants.idle_vector)
        keeper = Keeper(self)
        with calm_blas(), keeper.watch(run, engine):
            try:
                run.multi_phase(self.find_schedule(run), keeper)
                reason = StopReason.SCHEDULE_DONE
            except StreamEndedError:
                reason = StopReason.STREAM_ENDED_EARLY
            keeper.after_reading(run, engine)
        blocks = tuple(block[run.best] for block in run.replicas)
        vectors, strength = positive(block_vectors(run.partition, blocks, self.estimator, run.rng), run.mean_reward)
        found = Estimate.of_one(
            solver=self.name,
            vectors=vectors,
            strength=strength,
            n_samples=run.samples,
            state_bytes=run.state_bytes,
            stop_reason=reason,
            advice=self._misfit(strength) if reason is StopReason.SCHEDULE_DONE else (),
            history=run.history,
        )
        return completed(found, engine)

    def _misfit(self, reward: float) -> tuple[str, ...]:
        """Whether the mean reward at the end does not fit the λ that the schedule was told.

        Its standard error is at most λ/(10√D), D entries of the largest block, so that of a climb that has arrived
        (0.8 λ) it is below λ/2 less often than once in 10⁹ runs.
        """
        if isinstance(self.schedule, Schedule):  # which was told nothing
            return ()
        told = self.truth.strength if self.schedule == "theorem" and self.truth is not None else self.strength
        if reward >= told / 2:
            return ()
        return (
            f"The mean reward at the end is {reward:.2g}, and strength={told:.3g} was given: the climb has failed, or "
            "the strength is smaller than that. Run again on new samples with another random_state, or with the right "
            "strength.",
        )

    def settings(self) -> dict[str, Any]:
        """What a run depends on besides its data, as text."""
        truth = None if self.truth is None else [v.tolist() for v in self.truth.vectors]
        told = {"schedule": repr(self.schedule), "preset": repr(self.constants), "truth": truth}
        return {**super().settings(), **told}

    def find_schedule(self, run: PaperRun) -> Schedule:
        """The schedule to run; the empirical one searches c_3 on fresh samples first."""
        if isinstance(self.schedule, Schedule):
            return self.schedule
        if self.schedule == "theorem" and self.truth is not None:
            if self.truth.dims != run.partition.dims:
                raise SolverError(
                    f"truth has dims {self.truth.dims}, the stream {run.partition.dims}; give its own truth."
                )
            return theorem_schedule(self.truth, self.constants)
        if run.searched is None:  # else a resumed run knows it already
            tried = pairings_of(run.partition.dims) if self.pairing == "search" else ()
            run.searched = (run.search_reference(self.strength, self.constants, tried), run.samples)
        c3, samples = run.searched
        return empirical_schedule(run.partition, self.strength, self.constants, c3, search=samples)


def planned_samples(
    dims: Sequence[int], strength: float = 1.0, preset: str | Constants = "practical"
) -> dict[str, int]:
    """Samples the empirical schedule would ask for, by case, without running it (c_3 = 1 for Case I)."""
    partition = Partition.pairs(tuple(dims))
    constants = preset_constants(preset)
    search = [step.samples for step in search_steps(partition, strength, constants)]
    first = empirical_schedule(partition, strength, constants, 1.0, search=search[0])
    second = empirical_schedule(partition, strength, constants, None, search=sum(search))
    return {"Case I": first.samples(len(dims)), "Case II": second.samples(len(dims))}
