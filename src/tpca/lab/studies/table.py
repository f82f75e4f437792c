"""The findings of all studies as rows and as Markdown."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tpca.drafts import replacing
from tpca.lab.studies.study import Finding, Study

BEGIN, END = "<!-- findings: begin -->", "<!-- findings: end -->"


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


def as_markdown(
    studies: Sequence[Study], findings: Mapping[str, Sequence[Finding]], figures: Mapping[str, str] | None = None
) -> str:
    """A section for every study: its claim, its table, its figure if there is one."""
    lines: list[str] = []
    for study in studies:
        if study.name not in findings:
            continue
        lines += [f"### {study.name}: {study.title}", "", study.claim, ""]
        lines += ["| case | predicted | measured | verdict |", "|---|---|---|---|"]
        for f in findings[study.name]:
            note = f": {f.reason}" if f.reason else ""
            lines.append(f"| {f.label} | {f.predicted} | {f.measured} | **{f.verdict}**{note} |")
        lines.append("")
        if figures and study.name in figures:
            lines += [f"![{study.title}]({figures[study.name]})", ""]
    return "\n".join(lines)


def write_markdown(
    path: Path, studies: Sequence[Study], findings: Mapping[str, Sequence[Finding]], drawn: Mapping[str, Path]
) -> None:
    """The sections into a Markdown file, between its two marks if it has them; figures as paths relative to it."""
    figures = {name: Path(os.path.relpath(figure, path.parent)).as_posix() for name, figure in drawn.items()}
    text = as_markdown(studies, findings, figures)
    old = path.read_text(encoding="utf-8") if path.exists() else ""
    if BEGIN in old and END in old:
        text = old[: old.index(BEGIN) + len(BEGIN)] + "\n\n" + text + "\n" + old[old.index(END) :]
    with replacing(path) as (draft,):
        draft.write_text(text, encoding="utf-8")
