"""One race of the table (order 4, d = 32, all strategies), for a profiler to look at:

py-spy record --output race_fit.svg -- python benchmarks/one_fit.py
"""

import os

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ[name] = "1"

from jobs_race import PROBLEMS, SAMPLES, windows  # noqa: E402

from tpca import RaceSolver, open_stream  # noqa: E402

dims, memory = PROBLEMS[0]
estimate = RaceSolver(random_state=1, memory_limit=memory).run(open_stream(windows(dims, SAMPLES), items="batches"))
print(estimate.n_samples, "samples:", estimate.stop_reason)
