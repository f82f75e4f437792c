"""A fit in a process of its own; writes the most memory that it had in use, in bytes.

Arguments: the path of the data, and options of RaceSolver as JSON.
"""

import json
import resource
import sys
from pathlib import Path

from tpca.solvers.race.run import RaceSolver


def main():
    estimate = RaceSolver(**json.loads(sys.argv[2])).run(sys.argv[1])
    # Of this process alone: getrusage would count the one it was forked from.
    status = Path("/proc/self/status")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    if status.exists():
        peak = 1024 * int(next(line for line in status.read_text().splitlines() if line.startswith("VmHWM")).split()[1])
    known = {"n_samples": estimate.n_samples, "buffer_bytes": estimate.buffer_bytes}
    sys.stdout.write(json.dumps({"peak": peak, "state_bytes": estimate.state_bytes, **known}))


if __name__ == "__main__":
    main()
