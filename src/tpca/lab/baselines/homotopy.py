r"""Homotopy: power iteration from the partial trace, for the symmetric model.

.. math:: x^0 = \begin{cases} \text{leading eigenvector of the partial trace } M & \bar k \text{ even} \\
          \mathrm{unit}(t),\ t \text{ the trace vector} & \bar k \text{ odd} \end{cases}
          \qquad
          x^{t+1} = \mathrm{unit}\Big(s \sum_n \bar T \text{ contracted with } x^t \text{ in all modes but } n\Big) .

The start is the maximiser of the objective smoothed by infinite noise, and the rest follows it back to no smoothing:
of the whole path only the two ends are needed.  Order 3 needs λ√N ≳ d^{3/4}σ after one iteration, although t itself
knows little of v; even orders need λ²N ≳ d^{k̄/2}σ².

Symbols: M and t as in :mod:`tpca.lab.baselines.partial_trace`; ``sign`` is s, that of M's leading eigenvalue (1 at odd
order).

References: A. Anandkumar, Y. Deng, R. Ge, H. Mobahi, *Homotopy analysis for tensor PCA*, COLT 2017 (order 3);
G. Biroli, C. Cammarota, F. Ricci-Tersenghi, *How to iron out rough landscapes and get optimal performances*, J. Phys. A
2020 (any order).
Different on purpose: data need not be symmetric, so all pairings and all modes are averaged; every sample serves both
the start and the iterations, without the noise that the first of these papers injects for its proof.

State: the mean and some vectors; with ``method="passes"`` no mean, O(d²) for the start, and a pass per iteration.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tpca.engines import open_engine
from tpca.integers import check_integer
from tpca.lab.baselines.all_samples import AllSamples
from tpca.lab.baselines.options import check_choice
from tpca.lab.baselines.partial_trace import check_symmetric, trace_matrix, trace_vector
from tpca.solvers.options import check_max_samples
from tpca.solvers.rank_one import leading
from tpca.solvers.recovery import Recovery
from tpca.tensors import Query
from tpca.tensors.blocks import Array, unit

MOVE_TOL = 1e-7  # change of x at which iterating stops


class Homotopy:
    """Power iteration on the mean from its partial trace; symmetric model, any order from 3.

    Parameters
    ----------
    max_iterations
        Most power iterations; it ends earlier when x stands still.
    method
        ``"mean"`` holds the mean, ``"passes"`` reads a re-readable source once per iteration instead.
    seed
        Not used: the method has nothing random.
    max_samples
        Use no more than this many; needed for samples that never end.
    """

    def __init__(
        self, *, max_iterations: int = 100, method: str = "mean", random_state: int = 0, max_samples: int | None = None
    ) -> None:
        self.max_iterations = check_integer("max_iterations", max_iterations)
        self.method = check_choice("method", method, ("mean", "passes"))
        self.random_state = random_state
        self.max_samples = check_max_samples(max_samples)

    def run(self, source: Any) -> Recovery:
        """Recover the vector of all modes from all samples of ``source``."""
        engine = open_engine(source)
        check_symmetric("Homotopy", engine.dims)
        samples = AllSamples(engine, self.max_samples, hold=self.method == "mean")
        x, sign = start(samples)
        history = []
        for iteration in range(self.max_iterations):
            (answer,) = samples.ask(Query(samples.singles, (x[None],) * len(samples.dims)))
            value = sign * float(answer.rewards[0])
            before, x = x, unit(sign * sum(answer.gradients[n][0] for n in range(len(samples.dims))))
            moved = float(np.linalg.norm(x - before))
            history.append({"iteration": iteration, "value": value, "moved": moved})
            if moved < MOVE_TOL:
                break
        return samples.recovery([sign * x, *[x] * (len(samples.dims) - 1)], history=history)


def start(samples: AllSamples) -> tuple[Array, float]:
    """x^0 and s."""
    if len(samples.dims) % 2:
        return unit(trace_vector(samples)), 1.0
    (value,), (vector,) = leading(trace_matrix(samples, None))
    return vector, math.copysign(1.0, value)
