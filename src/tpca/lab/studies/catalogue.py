"""All studies by name, in the order in which they are told; their findings as rows and as Markdown."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tpca.drafts import replacing
from tpca.errors import StudyError
from tpca.lab.studies.accuracy import Accuracy
from tpca.lab.studies.block_sizes import BlockSizes
from tpca.lab.studies.convergence import Convergence
from tpca.lab.studies.internet_scale import InternetScale
from tpca.lab.studies.memory import Memory
from tpca.lab.studies.noise import Noise, PaperNoise
from tpca.lab.studies.odd_order import OddOrder
from tpca.lab.studies.race import Race
from tpca.lab.studies.scaling import Parameterisation, Symmetric, WorstCase
from tpca.lab.studies.schedules import EmpiricalSchedule, Stages
from tpca.lab.studies.starts import Chances, Initialisation
from tpca.lab.studies.structure import Adaptivity, Strengths
from tpca.lab.studies.study import Finding, Study
from tpca.lab.studies.unequal import Unequal
from tpca.wording import markdown_table

BEGIN, END = "<!-- findings: begin -->", "<!-- findings: end -->"
_ALL: tuple[Study, ...] = (
    WorstCase(), Symmetric(), OddOrder(), Adaptivity(), Unequal(), Strengths(), Parameterisation(), BlockSizes(),
    Convergence(), Accuracy(), Stages(), Initialisation(), Chances(), Noise(), PaperNoise(), Race(), Memory(),
    EmpiricalSchedule(), InternetScale(),
)  # fmt: skip
STUDIES: dict[str, Study] = {study.name: study for study in _ALL}


def choose(names: Sequence[str]) -> list[Study]:
    """The studies with these names, all of them if there are none."""
    unknown = [name for name in names if name not in STUDIES]
    if unknown:
        raise StudyError(f"there is no study {unknown[0]!r}; the studies are: {', '.join(STUDIES)}.")
    return [STUDIES[name] for name in names] if names else list(_ALL)


def as_rows(findings: Mapping[str, Sequence[Finding]]) -> list[dict[str, Any]]:
    """One plain dict a finding."""
    rows = []
    for name, found in findings.items():
        for f in found:
            told = {**asdict(f), "verdict": str(f.verdict)}
            rows.append({"study": name, "case": told.pop("label"), **told})
    return rows


def as_markdown(
    studies: Sequence[Study], findings: Mapping[str, Sequence[Finding]], figures: Mapping[str, str] | None = None
) -> str:
    """A section for every study: its claim, its table, its figure if there is one."""
    lines: list[str] = []
    for study in studies:
        if study.name not in findings:
            continue
        lines += [f"### {study.name}: {study.title}", "", study.claim, ""]
        rows = (
            (f.label, f.predicted, f.measured, f"**{f.verdict}**" + (f": {f.reason}" if f.reason else ""))
            for f in findings[study.name]
        )
        lines.append(markdown_table(("case", "predicted", "measured", "verdict"), rows))
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
