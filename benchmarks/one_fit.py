"""One race of the table (order 4, d = 32, all racers), for a profiler to look at:

py-spy record --output docs/figures/race_fit.svg -- python benchmarks/one_fit.py
"""

import os

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ[name] = "1"

from jobs_race import PROBLEMS, windows  # noqa: E402

from tpca import RaceSolver  # noqa: E402

dims, memory = PROBLEMS[0]
recovery = RaceSolver(seed=1, memory=memory).run(iter(windows(dims)))
print(recovery.n_samples, "samples:", recovery.stop_reason)
