r"""What ``whiten="modes"`` costs: ``python -m research.studies.race_whitening --out docs/race-whitening.json``.

The same samples, white and coloured: :math:`X = Z + \lambda\,u_1\otimes\dots` and :math:`X` times a root of the
covariance along every mode.  A race that whitens the second with the covariance itself would see the first.  It has to
learn the maps, and needs so many times the samples until the signal is proven; without whitening it is rarely found.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from research.noise.laws import coloured, outer, random_vectors
from research.studies.runner import table_command
from tpca.solvers.race.run import RaceSolver
from tpca.tensors.blocks import Array
from tpca.wording import markdown_table


def smooth_root(phi: float) -> Callable[[np.random.Generator, int], Array]:
    """A root of the covariance φ^|a − b|."""
    return lambda _, d: np.asarray(np.linalg.cholesky(phi ** np.abs(np.subtract.outer(np.arange(d), np.arange(d)))))


ROOTS: dict[str, Callable[[np.random.Generator, int], Array]] = {
    "smooth0.5": smooth_root(0.5),
    "smooth0.9": smooth_root(0.9),
    "scales": lambda rng, d: np.diag(np.exp(rng.standard_normal(d))),
}
SETTINGS: tuple[tuple[tuple[int, ...], str], ...] = tuple(
    (dims, law) for dims in ((8,) * 3, (12,) * 3, (6,) * 4) for law in ROOTS
)
STRENGTH, MOST = 1.0, 1000


def proven(samples: Any, seed: int, whiten: str | None) -> float:
    """Samples until the signal is proven; infinite if it never is."""
    found = RaceSolver(random_state=seed, whiten=whiten).run(samples)
    return next((float(record["samples"]) for record in found.history if record["found"]), math.inf)


def run_trial(job: tuple[tuple[int, ...], str, int]) -> tuple[float, float, float]:
    """Samples until proven: of white noise, of coloured noise that is whitened, and left as it is."""
    dims, law, seed = job
    rng = np.random.default_rng(seed)
    white = rng.standard_normal((MOST, *dims)) + STRENGTH * outer(random_vectors(rng, dims))
    roots = [np.asarray(ROOTS[law](rng, d)) for d in dims]
    samples = coloured(white, roots)
    return proven(white, seed, None), proven(samples, seed, "modes"), proven(samples, seed, None)


def rows(pool_map: Callable[..., list[Any]], seeds: Sequence[int]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every setting over all seeds."""
    for dims, law in SETTINGS:
        found = np.array(pool_map(run_trial, [(dims, law, seed) for seed in seeds]))
        both = np.isfinite(found[:, :2]).all(axis=1)
        ratios = np.log(found[both, 1] / found[both, 0])
        row: dict[str, Any] = {"dims": dims, "law": law, "runs": len(seeds), "both": int(both.sum())}
        row |= {"white": float(np.median(found[:, 0])), "whitened": float(np.median(found[:, 1]))}
        row |= {"ratio": float(np.exp(ratios.mean())), "unwhitened": int(np.isfinite(found[:, 2]).sum())}
        yield "rows", row


def markdown(content: dict[str, Any]) -> str:
    """The table of docs/race.md, from the stored results."""
    head = ("samples", "noise", "white: median", "whitened: median", "ratio", "found without whitening")
    return markdown_table(
        head,
        (
            (
                "×".join(map(str, row["dims"])),
                row["law"],
                f"{row['white']:.0f}",
                f"{row['whitened']:.0f}",
                f"{row['ratio']:.2f}",
                f"{row['unwhitened']} of {row['runs']}",
            )
            for row in content["rows"]
        ),
    )


if __name__ == "__main__":
    table_command(None, __doc__, rows, seeds=20, markdown=markdown)
