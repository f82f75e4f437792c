"""The report on a reproduction: what the paper predicts, what was measured, a figure each."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tpca.errors import StudyError
from tpca.lab.pages.reproduction_figures import draw_studies
from tpca.lab.studies.catalogue import choose
from tpca.lab.studies.store import Store, made
from tpca.lab.studies.study import Finding, Study
from tpca.lab.studies.study import Verdict as Judgement
from tpca.report.document import Document, Safe, Section, Verdict, paragraphs, table, tag, write_document
from tpca.wording import count

MARKS = {"agrees": ("good", "✓"), "differs": ("bad", "✕"), "not enough data": ("open", "?")}


def write_page(
    path: Path,
    studies: Sequence[Study],
    findings: Mapping[str, Sequence[Finding]],
    figures: Mapping[str, Path],
    store: Store,
) -> None:
    """Table and figure of every study; nothing is loaded from elsewhere."""
    write_document(path, _document(studies, findings, figures, store))


def studies_document(folder: Path) -> Document:
    """The report on all studies that have trials in a store."""
    store, studies = Store(folder), choose([])
    findings = store.findings(studies)
    if not findings:
        raise StudyError(
            f"there are no finished trials of today's studies in {str(folder)!r}; run tpca reproduce --quick."
        )
    with tempfile.TemporaryDirectory() as drawn:
        return _document(studies, findings, draw_studies(studies, store, Path(drawn)), store)


def _document(
    studies: Sequence[Study], findings: Mapping[str, Sequence[Finding]], figures: Mapping[str, Path], store: Store
) -> Document:
    told = [study for study in studies if study.name in findings]
    versions = ", ".join(f"{name} {value}" for name, value in made().items() if value)
    sections = [Section("overview", "Overview", [_overview(told, findings)])]
    sections += [_section(s, findings[s.name], figures.get(s.name), len(store.records(s))) for s in told]
    verdict = _verdict([f for s in told for f in findings[s.name]])
    return Document(
        "The paper on a machine", "tpca report · reproduction", verdict, sections, f"Written with {versions}."
    )


def _verdict(findings: Sequence[Finding]) -> Verdict:
    numbers = {judgement: sum(f.verdict is judgement for f in findings) for judgement in Judgement}
    agree, differ, few = (numbers[j] for j in (Judgement.AGREES, Judgement.DIFFERS, Judgement.OPEN))
    headline = f"{agree} of {count(len(findings), 'prediction')} agree with what was measured"
    sentences = [
        "What Mild Over-Parameterization Benefits Asymmetric Tensor PCA (Ding, Lin, Fang) predicts, and what was "
        "measured; intervals are 95 %.",
    ]
    if differ:
        sentences.append(
            f"{count(differ, 'prediction differs', 'predictions differ')}; the tables say why, where that is known."
        )
    if few:
        sentences.append(f"For {count(few, 'prediction')} there are not enough trials yet.")
    tone = "open" if differ or few or not findings else "good"
    return Verdict(tone, headline, sentences)


def _overview(studies: Sequence[Study], findings: Mapping[str, Sequence[Finding]]) -> Safe:
    rows = []
    for study in studies:
        numbers = [(sum(f.verdict is judgement for f in findings[study.name]), judgement) for judgement in Judgement]
        rows.append((study.name, study.title, ", ".join(f"{n} {judgement}" for n, judgement in numbers if n)))
    return table(("study", "what it measures", "predictions"), rows, "Predictions by study")


def _section(study: Study, findings: Sequence[Finding], figure: Path | None, trials: int) -> Section:
    rows = [(f.label, f.predicted, f.measured, _mark(f)) for f in findings]
    parts = [
        tag("h3", f"{study.name}: {study.title}"),
        paragraphs(f"{study.claim} ({trials:,} trials)"),
        table(("case", "predicted", "measured", "verdict"), rows, f"{study.title}: predicted and measured"),
    ]
    if figure is not None:
        svg = figure.with_suffix(".svg").read_text(encoding="utf-8")
        parts.append(tag("figure", Safe(svg[svg.index("<svg") :]), role="img", aria_label=study.title))
    return Section(study.name, study.name, parts)


def _mark(finding: Finding) -> Safe:
    tone, sign = MARKS[str(finding.verdict)]
    reason = tag("br") + tag("small", finding.reason) if finding.reason else ""
    return Safe(tag("span", f"{sign} {finding.verdict}", class_=f"mark {tone}") + reason)
