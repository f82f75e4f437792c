"""The tables and the figure of docs/real.md, and the table of README.md, from docs/real.json.

``reasons.toml`` says why answers differ or surprise.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from research import markdown_table
from research.noise.tables import LEVEL, allowed
from research.real.sets import SETS

Row = dict[str, Any]
Content = dict[str, Any]

REASONS: dict[str, str] = tomllib.loads((Path(__file__).parent / "reasons.toml").read_text(encoding="utf-8"))
TESTS = ("MNE max", "MNE clusters", "scikit-learn", "cca-zoo")
SAME = 1e-6
ALIKE = 0.5  # cosine of halves below which their patterns do not agree


def of(content: Content, *questions: str) -> list[Row]:
    """Rows of these questions; all without any."""
    return [row for row in content["rows"] if not questions or row["question"] in questions]


def p_text(p: float | None) -> str:
    """A p-value; "–" where it is not known."""
    return "–" if p is None else f"{p:.3f}" if p >= 0.001 else f"{p:.4f}"


def between(ends: Sequence[float] | None) -> str:
    """Least and largest p; one number where they are the same."""
    if ends is None:
        return "–"
    low, high = (p_text(end) for end in ends)
    return low if low == high else f"{low} to {high}"


def tiny(value: float) -> str:
    """A distance; rounding may make one negative."""
    return f"{max(value, 0.0):.0e}"


def size(row: Row) -> str:
    """Samples and their shape."""
    dims = (" + " if row["question"] == "views" else "×").join(str(d) for d in row["answer"]["dims"])
    return f"{row['answer']['n']} of {dims}"


def verdict(row: Row, how: str = "") -> str:
    """What is said, with its p; that of the pattern beside it, where only a whitened statistic saw the signal."""
    answer = row["answer"]
    said = {"signal": "yes", "no signal": "no", "not tested": "not tested"}[answer[f"verdict{how}"]]
    p, own = answer[f"signal_p{how}"], answer[f"p{how}"]
    if p is None:
        return said
    return f"{said}, {p_text(p)}" + (f" (pattern {p_text(own)})" if p <= LEVEL < (own or 0.0) else "")


def answers_table(content: Content) -> str:
    """What a fit with defaults says."""
    lines = []
    for row in of(content):
        answer = row["answer"]
        strength = f"{answer['strength']:.3g}"
        if answer.get("interval") and None not in answer["interval"]:
            low, high = answer["interval"]
            strength += f" ({low:.3g} to {high:.3g})"
        where = ", ".join(answer["top"]) if row["question"] != "views" else ""
        data = f"{row['name']} ({row['package']}){' *' if SETS[row['name']].new else ''}"
        lines.append((data, size(row), row["asks"], verdict(row), verdict(row, "_any_order"), strength, where,
                      f"{answer['seconds']:.2f}"))  # fmt: skip
    head = ("data", "samples", "question", "signal? p", "in any order", "strength", "most of it in", "s")
    return markdown_table(head, lines)


def checks_table(content: Content) -> str:
    """Orders, halves, and claims where nothing is."""
    lines = []
    for row in of(content):
        orders, halves, claims = row["orders"], row["halves"], row["claims"]
        free, auto = orders["any_order"], orders["auto"]
        looked = between(auto["p"]) + (f", {auto['not_tested']} not tested" if auto["not_tested"] else "")
        others = [claims["others"].get(name) for name in TESTS[:2]]
        agree = ("–", "–") if halves["median"] is None else (f"{halves['median']:.3f}", str(halves["both_claimed"]))
        lines.append((row["name"], between(free["p"]), between(orders["seeds"]), looked, *agree,
                      _claims(claims["claims"], claims["runs"]), f"{claims['not_tested'] or ''}",
                      *("–" if other is None else _claims(other, claims["runs"]) for other in others)))  # fmt: skip
    head = ("data", "p over ten orders, any order", "over ten seeds", "over ten orders, default", "cosine of halves",
            "both claimed, of 10", "false claims, of 100", "not tested", "MNE, max", "MNE, clusters")  # fmt: skip
    return markdown_table(head, lines)


def _claims(count: int, runs: int) -> str:
    return f"**{count}**" if count > allowed(runs) else str(count)


def peers_table(content: Content) -> str:
    """P-values of peers beside ours, and rank-one fits."""
    lines = []
    for row in of(content, "mean", "labels", "dose"):
        peers, answer = row["peers"], row["answer"]
        cells = [p_text(peers.get(name, {}).get("p")) for name in TESTS[:3]]
        fits = [peers.get(name, {}) for name in ("TensorLy", "pyttb")]
        shares = [f"{fit['length_share']:.4f}" if "length_share" in fit else "–" for fit in fits]
        times = [answer["seconds"], *(peers.get(name, {}).get("seconds") for name in TESTS[:3])]
        spent = " / ".join("–" if one is None else f"{one:.2f}" for one in times)
        lines.append((row["name"], p_text(answer["p_any_order"]), *cells, *shares, spent))
    head = ("data", "tpca, any order", "MNE, max", "MNE, clusters", "scikit-learn", "length by TensorLy", "by pyttb",
            "seconds: tpca / max / clusters / scikit-learn")  # fmt: skip
    return markdown_table(head, lines)


def shares_table(content: Content) -> str:
    """Shares of variance, beside PCA and EOFs."""

    def text(shares: Sequence[float] | None) -> str:
        return "–" if shares is None else ", ".join(f"{100 * share:.1f}" for share in shares)

    lines = []
    for row in of(content, "variation"):
        peers = row["peers"]
        cells = [text(peers.get(name, {}).get("shares")) for name in ("scikit-learn", "eofs", "xeofs")]
        lines.append(
            (row["name"], size(row), text(row["answer"]["shares"]), *cells, p_text(row["answer"]["p_any_order"]))
        )
    head = ("data", "samples", "tpca, rank one, %", "scikit-learn PCA, %", "eofs, %", "xeofs, %", "p, any order")
    return markdown_table(head, lines)


def views_table(content: Content) -> str:
    """Views beside cca-zoo."""
    lines = []
    for row in of(content, "views"):
        answer, peer = row["answer"], row["peers"]["cca-zoo"]
        theirs = f"{peer['model']}: {peer['correlation']:.3f}" if "model" in peer else peer["failed"]
        each = ", ".join(f"{r:.3f}" for r in answer["correlations"])
        lines.append((row["name"], size(row), p_text(answer["p"]), p_text(answer["p_any_order"]), each, theirs,
                      p_text(peer.get("p"))))  # fmt: skip
    head = ("data", "rows and columns", "p", "p, any order", "held-out rows, first three, any order",
            "cca-zoo, held-out rows", "its p")  # fmt: skip
    return markdown_table(head, lines)


def said(row: Row) -> dict[str, str]:
    """The verdict of every tool that tests."""
    answer = row["answer"]
    tools = {"default": answer["verdict"], "any order": answer["verdict_any_order"]}
    tests = {name: row["peers"][name]["p"] for name in TESTS if "p" in row["peers"].get(name, {})}
    return tools | {name: "signal" if p <= LEVEL else "no signal" for name, p in tests.items()}


def differing(content: Content) -> list[str]:
    """Sets whose verdicts differ between tools or by the order, or whose halves do not agree on what is claimed."""
    found = []
    for row in of(content):
        free = row["answer"]["signal_p_any_order"]
        apart = free is not None and free <= LEVEL and (row["halves"]["median"] or 1.0) < ALIKE
        if len(set(said(row).values())) > 1 or 0 < row["orders"]["auto"]["signals"] < 10 or apart:
            found.append(row["name"])
    return found


def reasons_list(content: Content) -> str:
    """Every set that needs a word, its p-values, and the reason."""
    lines = []
    for row in of(content):
        if row["name"] not in REASONS:
            continue
        tests = {"default": verdict(row), "in any order": verdict(row, "_any_order")}
        tests |= {name: p_text(row["peers"][name]["p"]) for name in TESTS if "p" in row["peers"].get(name, {})}
        each = "; ".join(f"{name} {value}" for name, value in tests.items())
        lines.append(f"- **{row['name']}** ({each}). {REASONS[row['name']]}\n")
    return "".join(lines)


def totals(content: Content) -> dict[str, Any]:
    """What all rows come to."""
    tensors = of(content, "mean", "labels", "dose", "variation")
    tested = [row for row in of(content, "mean", "labels") if "MNE max" in row["claims"]["others"]]
    fits = [row["peers"][name] for row in tensors for name in ("TensorLy", "pyttb") if name in row["peers"]]
    ordered = [row["orders"][how] for row in tensors for how in ("any_order", "auto")]
    free = [row["orders"]["any_order"] for row in of(content, "mean", "labels", "dose")]
    varying = [row["orders"]["any_order"]["strength_gap"] for row in of(content, "variation")]
    flipped = [row for row in tested if row["answer"]["p"] is not None]  # the others took no flips
    times = [row["peers"]["MNE clusters"]["seconds"] / row["answer"]["seconds"] for row in flipped]
    return {
        "questions": len(of(content)),
        "tensors": len(tensors),
        "plain": max(max(row["plain"].values()) for row in tensors),
        "orders": max(max(how["cosine_gap"], how["length_gap"]) for how in ordered),
        "strength": max(one["strength_gap"] for one in free),
        "intervals": max(varying, default=0.0),
        "p": max(float(np.ptp(one["p"])) for one in free if one["p"]),
        "seeds": max(float(np.ptp(row["orders"]["seeds"])) for row in of(content, "mean", "labels", "dose")),
        "flipping": [row["name"] for row in tensors if 0 < row["orders"]["auto"]["signals"] < 10],
        "claims": sum(row["claims"]["claims"] for row in of(content)),
        "runs": sum(row["claims"]["runs"] for row in of(content)),
        "worst": max(of(content), key=lambda row: row["claims"]["claims"]),
        "their claims": {name: sum(row["claims"]["others"][name] for row in tested) for name in TESTS[:2]},
        "their runs": sum(row["claims"]["runs"] for row in tested),
        "fits": len(fits),
        "shorter": sum(fit["length_share"] < 1 - SAME for fit in fits),
        "time": float(np.median(times)),
    }


def summary_table(content: Content) -> str:
    """All of it in a few lines."""
    all_of = totals(content)
    worst = all_of["worst"]
    theirs = "; ".join(f"{name} {count} of {all_of['their runs']}" for name, count in all_of["their claims"].items())
    lines = [
        ("least squares or PCA in plain NumPy: largest difference of patterns and lengths", tiny(all_of["plain"])),
        ("ten orders of the samples: largest change of patterns and lengths", tiny(all_of["orders"])),
        ("the same with `dependence=None`, means and effects: strengths and intervals; p",
         f"{tiny(all_of['strength'])}; {all_of['p']:.3f} (over ten seeds {all_of['seeds']:.3f})"),
        ("intervals of variation, relative to the strength", f"{all_of['intervals']:.2f}"),
        ("sets whose verdict depends on the order, default", ", ".join(all_of["flipping"]) or "none"),
        ("false claims at 5 %, the signal taken out", f"{all_of['claims']} of {all_of['runs']}; at most "
         f"{worst['claims']['claims']} of {worst['claims']['runs']} ({worst['name']})"),
        ("the same, of means and labels only", theirs),
        ("rank-one fits of TensorLy and pyttb: as long as ours; shorter",
         f"{all_of['fits'] - all_of['shorter']}; {all_of['shorter']}"),
        ("time of MNE's cluster test over that of a fit, median, 999 flips each", f"{all_of['time']:.1f}"),
    ]  # fmt: skip
    return markdown_table(("measured", ""), lines)


def readme_table(content: Content) -> str:
    """A few lines for README.md, which has few words."""
    all_of = totals(content)
    clusters = f"{all_of['their claims']['MNE clusters']} of {all_of['their runs']}"
    lines = [
        ("farthest from NumPy's answers", tiny(all_of["plain"])),
        ("change over ten shuffles", tiny(all_of["orders"])),
        ("false claims at 5 %", f"{all_of['claims']} of {all_of['runs']}"),
        ("false claims of MNE's cluster test", clusters),
        ("time of MNE's cluster test over ours", f"{all_of['time']:.1f}"),
    ]
    return markdown_table((f"{all_of['questions']} [real questions](docs/real.md)", ""), lines)


def made_line(content: Content) -> str:
    """With what, and how long it took."""
    made, rows = content["made"], of(content)
    machine = f"{made['machine']['processor']}, {made['machine']['cores']} cores"
    versions = ", ".join(f"{name} {value}" for name, value in made["versions"].items())
    return (
        f"{len(rows)} questions in {made['minutes']:.0f} minutes, {made['date']}, revision {made['revision']}, "
        f"{machine}, Python {made['python']}, NumPy {made['numpy']}; {versions}.\n"
    )


TABLES = {
    "summary": summary_table, "readme": readme_table, "answers": answers_table, "checks": checks_table,
    "peers": peers_table, "shares": shares_table, "views": views_table, "reasons": reasons_list, "made": made_line,
}  # fmt: skip


def draw(content: Content, path: Path) -> None:
    """P-values of every question by all tools, and false claims of each."""
    from tpca.report.style import COLOURS, INK, MARKERS, drawing, save

    rows = of(content)
    tools: dict[str, list[float | None]] = {
        "tpca, default": [row["answer"]["signal_p"] for row in rows],
        "tpca, any order": [row["answer"]["signal_p_any_order"] for row in rows],
    }
    tools |= {name: [row["peers"].get(name, {}).get("p") for row in rows] for name in TESTS}
    counts = {"tpca, default": [row["claims"]["claims"] for row in rows]}
    counts |= {name: [row["claims"]["others"].get(name) for row in rows] for name in TESTS[:2]}
    with drawing() as plt:
        figure, panels = plt.subplots(1, 2, figsize=(11, 0.3 * len(rows) + 1.5), layout="constrained", sharey=True)
        for axes, drawn in zip(panels, (tools, counts), strict=True):
            for name, each in drawn.items():
                i = list(tools).index(name)
                places = [(value, y + 0.13 * (i - 2.5)) for y, value in enumerate(each) if value is not None]
                label = name if axes is panels[0] else None
                axes.plot(*zip(*places, strict=True), MARKERS[i], color=COLOURS[i], markersize=4.5, label=label)
        left, right = panels
        left.axvline(LEVEL, color=INK, linestyle="--", linewidth=1.2, label="5 %")
        left.set(xscale="log", xlabel="p of the question as it is (0.001 is the least of 999 flips, 0.01 of 99)")
        left.set_yticks(range(len(rows)), [row["name"] for row in rows], fontsize=9)
        left.set_ylim(len(rows) - 0.4, -0.6)
        right.axvline(5, color=INK, linestyle="--", linewidth=1.2)
        right.axvline(allowed(100), color=INK, linestyle=":", linewidth=1.2, label="exceeded once in 1000 rows")
        right.set(xlabel="claims at 5 % in 100 versions without a signal")
        figure.legend(loc="outside upper center", ncols=4, fontsize=9)
        save(figure, path, overwrite=True)
