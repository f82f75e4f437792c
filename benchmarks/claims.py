"""How often TensorCCA claims a component where there is none, at confidence 0.95.

    python benchmarks/claims.py [--out results.json] [--only KIND] [--share 0.05] [--first-seed 0]

Views that share nothing, and views that share one factor where two are asked for; a factor of three views is
exponential, for a symmetric one has no third moment; and unrelated views whose rows are not independent, or fewer than
their columns.
Rates come with an interval of 95 % (Clopper and Pearson).
"""

import argparse
import json
import platform
import sys
import warnings
from pathlib import Path

import numpy as np

import tpca
from research.studies.estimates import rate_interval

VIEWS = (2, 3, 4)
ROWS, COLUMNS, FACTOR, FITS = 500, 6, 2.0, 200


def views(rng, order, strength):
    """Noise, and one factor along a random direction of every view."""
    factor = rng.exponential(size=ROWS) - 1 if order % 2 else rng.standard_normal(ROWS)
    directions = rng.standard_normal((order, COLUMNS))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    return [strength * np.outer(factor, v) + rng.standard_normal((ROWS, COLUMNS)) for v in directions]


def series(rng, r, n=300):
    """Rows that follow each other: AR(r), of variance 1."""
    rows = rng.standard_normal((n + 100, 4))
    for t in range(1, n + 100):
        rows[t] = r * rows[t - 1] + np.sqrt(1 - r * r) * rows[t]
    return rows[100:]


def fives(rows):
    return np.repeat(rows, 5, axis=0)


def grouped(rng):
    return fives(rng.standard_normal((40, 4))) + 0.5 * rng.standard_normal((200, 4))


# Two unrelated views each, and their groups.
DEPENDENT = {
    "2 views of AR(0.5), 300 rows": (lambda rng: [series(rng, 0.5) for _ in "ab"], None),
    "2 views of AR(0.7), 300 rows": (lambda rng: [series(rng, 0.7) for _ in "ab"], None),
    "2 views of AR(0.9), 300 rows": (lambda rng: [series(rng, 0.9) for _ in "ab"], None),
    "2 views, 60 rows, five times each": (lambda rng: [fives(rng.standard_normal((60, 4))) for _ in "ab"], None),
    "2 views, 40 groups of five": (lambda rng: [grouped(rng) for _ in "ab"], np.repeat(np.arange(40), 5)),
    "2 views of 120 and 21 columns, 40 rows": (lambda rng: [rng.standard_normal((40, d)) for d in (120, 21)], None),
}


def cases():
    """Kind, name, number of fits, and whether a fit to a draw claims a component that is not there."""
    for asked, strength, told in ((1, 0.0, "none, one"), (2, FACTOR, "one factor, two")):
        for order in VIEWS:
            yield (
                "views",
                f"{order} views, {told} asked for",
                FITS,
                lambda seed, rng, k=asked, s=strength, n=order: (
                    tpca.TensorCCA(k, random_state=seed).fit(views(rng, n, s)).significant_.all()
                ),
            )
    for name, (make, groups) in DEPENDENT.items():
        yield (
            "dependent",
            name,
            FITS,
            lambda seed, rng, make=make, groups=groups: (
                tpca.TensorCCA(random_state=seed).fit(make(rng), groups=groups).found_
            ),
        )


def counted(first, share, only):
    """A row for every case: of fits to other draws each, those that claim."""
    for of, name, runs, claims in cases():
        if only in (None, of):
            some = max(3, round(share * runs))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                drawn = ((seed, np.random.default_rng([seed, 131])) for seed in range(first, first + some))
                yield {"of": of, "name": name, "runs": some, "claims": sum(bool(claims(*one)) for one in drawn)}


def table(stored, of):
    lines = ["| fits | claims | 95 % interval |", "|---|---|---|"]
    own = [row for row in stored["rows"] if row["of"] == of]
    if of == "views":
        for asked in ("one factor, two", "none, one"):
            both = [row for row in own if asked in row["name"]]
            runs, claims = (sum(row[k] for row in both) for k in ("runs", "claims"))
            own.append({"name": f"all of these, {asked} asked for", "runs": runs, "claims": claims})
    for row in own:
        rate = rate_interval(row["claims"], row["runs"])
        lines.append(
            f"| {row['name']} | {row['claims']} of {row['runs']} | {100 * rate.low:.1f} to {100 * rate.high:.1f} % |"
        )
    return lines


KINDS = ("views", "dependent")
TABLES = {of: (lambda stored, of=of: table(stored, of)) for of in KINDS}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", choices=[*KINDS], help="rows of this kind; others of --out are kept")
    parser.add_argument("--share", type=float, default=1.0, help="of all fits, for a quick look; at least 3 of each")
    parser.add_argument("--first-seed", type=int, default=0)
    options = parser.parse_args()
    stored = {"machine": {"python": platform.python_version(), "numpy": np.__version__}, "rows": []}
    stored |= {"first_seed": options.first_seed}
    if options.only and options.out and options.out.exists():
        kept = json.loads(options.out.read_text())["rows"]
        stored["rows"] = [row for row in kept if row["of"] != options.only]
    for row in counted(options.first_seed, options.share, options.only):
        sys.stderr.write(f"{row['name']}: {row['claims']} of {row['runs']}\n")
        stored["rows"].append(row)
    for of in dict.fromkeys(row["of"] for row in stored["rows"]):
        print("\n".join(TABLES[of](stored)), end="\n\n")
    if options.out:
        options.out.write_text(json.dumps(stored, indent=1) + "\n")


if __name__ == "__main__":
    main()
