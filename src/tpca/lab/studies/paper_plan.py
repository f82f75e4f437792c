"""What the empirical schedule would ask for: the table of docs/paper.md, as Markdown."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from tpca.solvers.paper.solver import planned_samples

SIZES = ((4, 8), (4, 16), (5, 8), (6, 8))


def rows() -> Iterator[str]:
    """One Markdown row per size: samples of Case I, Case II, and Case II with the theory preset."""
    for order, dim in SIZES:
        dims = (dim,) * order
        practical, theory = planned_samples(dims), planned_samples(dims, preset="theory")
        yield f"| {order}, {dim} | {practical['Case I']:.1e} | {practical['Case II']:.1e} | {theory['Case II']:.1e} |"


if __name__ == "__main__":
    sys.stdout.write("\n".join(rows()) + "\n")
