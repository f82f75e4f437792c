"""All studies by name, in the order in which they are told; their findings as rows and as Markdown."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from research.studies.accuracy import ACCURACY, CONVERGENCE
from research.studies.memory import MEMORY
from research.studies.noise_laws import Noise, PaperNoise
from research.studies.odd_order import ODD_ORDER
from research.studies.race import RACE
from research.studies.scaling import BLOCK_SIZES, INTERNET_SCALE, PARAMETERISATION, SYMMETRIC, WORST_CASE
from research.studies.schedules import EMPIRICAL_SCHEDULE, STAGES
from research.studies.starts import CHANCES, INITIALISATION
from research.studies.structure import ADAPTIVITY, STRENGTH, UNEQUAL
from research.studies.study import AnyStudy, Finding
from tpca.errors import StudyError
from tpca.files import replacing
from tpca.wording import markdown_table

BEGIN, END = "<!-- findings: begin -->", "<!-- findings: end -->"
_ALL: tuple[AnyStudy, ...] = (
    WORST_CASE, SYMMETRIC, ODD_ORDER, ADAPTIVITY, UNEQUAL, STRENGTH, PARAMETERISATION, BLOCK_SIZES, CONVERGENCE,
    ACCURACY, STAGES, INITIALISATION, CHANCES, Noise(), PaperNoise(), RACE, MEMORY, EMPIRICAL_SCHEDULE, INTERNET_SCALE,
)  # fmt: skip
STUDIES: dict[str, AnyStudy] = {study.name: study for study in _ALL}


def choose(names: Sequence[str]) -> list[AnyStudy]:
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
    studies: Sequence[AnyStudy], findings: Mapping[str, Sequence[Finding]], figures: Mapping[str, str] | None = None
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
    path: Path, studies: Sequence[AnyStudy], findings: Mapping[str, Sequence[Finding]], drawn: Mapping[str, Path]
) -> None:
    """The sections into a Markdown file, between its two marks if it has them; figures as paths relative to it."""
    figures = {name: Path(os.path.relpath(figure, path.parent)).as_posix() for name, figure in drawn.items()}
    text = as_markdown(studies, findings, figures)
    old = path.read_text(encoding="utf-8") if path.exists() else ""
    if BEGIN in old and END in old:
        text = old[: old.index(BEGIN) + len(BEGIN)] + "\n\n" + text + "\n" + old[old.index(END) :]
    with replacing(path) as (draft,):
        draft.write_text(text, encoding="utf-8")
