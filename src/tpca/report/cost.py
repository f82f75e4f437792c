"""What a fit cost: memory and time."""

from __future__ import annotations

import math
from typing import Any

from tpca.report.document import Figure, Safe, paragraphs, table
from tpca.report.pictures import Axis, bars, line, names_axis
from tpca.wording import amount, duration


def cost_parts(summary: dict[str, Any], run: dict[str, Any]) -> list[Safe | Figure]:
    """State, buffer and samples in bytes; samples over time."""
    entries = math.prod(summary["dims"])
    named = {"state": summary["state_bytes"], "buffer": summary["buffer_bytes"]}
    named |= {"one sample": 8 * entries, "all samples": 8 * entries * max(1, summary["n_samples"])}
    limit = summary.get("settings", {}).get("memory_limit")
    parts: list[Safe | Figure] = [_bytes_figure(named)]
    rows = [(name, amount(nbytes)) for name, nbytes in named.items()]
    if limit is not None:
        rows.append(("bound on the state that was asked for", str(limit)))
    parts.append(
        table(("", "bytes"), rows, "Memory: the state is what the solver keeps, the buffer what waits to be read", 1)
    )
    seconds, trace = run.get("seconds"), run.get("trace") or []
    if seconds is None:
        return parts
    again = " since it was last resumed" if run.get("resumed") else ""
    parts.append(
        paragraphs(
            f"It took {duration(seconds)}{again}, on a machine with "
            f"{(run.get('made_with') or {}).get('processors', '?')} processors."
        )
    )
    if len(trace) > 2:
        xs, ys = [t for _, t in trace], [n for n, _ in trace]
        alt = f"Samples read over time: {ys[-1]:,} in {duration(xs[-1])}."
        note = "Samples read over time, those of all passes."
        axes = (Axis("seconds", zero=True), Axis("samples read", zero=True))
        parts.append(Figure("pace", [line(xs, ys, "samples", 0)], *axes, alt, note, 280, legend=False))
    return parts


def _bytes_figure(named: dict[str, int]) -> Figure:
    sizes = list(named.values())
    return Figure(
        "memory",
        [bars(sizes, [amount(n) for n in sizes])],
        Axis("bytes", log=True, low=min(sizes) / 10, high=3 * max(sizes)),
        names_axis(list(named), down=True),
        "Memory: " + ", ".join(f"{name} {amount(nbytes)}" for name, nbytes in named.items()) + ".",
        "Samples are counted at 8 bytes an entry. The axis is logarithmic.",
        height=60 + 38 * len(named),
        legend=False,
    )
