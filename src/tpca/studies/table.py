"""The findings of all studies as rows and as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tpca.studies.study import Finding, Study


def as_rows(findings: Mapping[str, Sequence[Finding]]) -> list[dict[str, Any]]:
    """One plain dict a finding."""
    return [
        {
            "study": name,
            "case": f.label,
            "predicted": f.predicted,
            "measured": f.measured,
            "verdict": str(f.verdict),
            "reason": f.reason,
        }
        for name, found in findings.items()
        for f in found
    ]


def as_markdown(studies: Sequence[Study], findings: Mapping[str, Sequence[Finding]]) -> str:
    """A section for every study: its claim, its table, its figure."""
    lines: list[str] = []
    for study in studies:
        if study.name not in findings:
            continue
        lines += [f"### {study.name}: {study.title}", "", study.claim, ""]
        lines += ["| case | predicted | measured | verdict |", "|---|---|---|---|"]
        for f in findings[study.name]:
            note = f" ({f.reason.rstrip('.')})" if f.reason else ""
            lines.append(f"| {f.label} | {f.predicted} | {f.measured} | **{f.verdict}**{note} |")
        lines += ["", f"![{study.title}](figures/{study.name}.png)", ""]
    return "\n".join(lines)
