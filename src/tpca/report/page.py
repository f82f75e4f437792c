"""The reproduction as one self-contained HTML file."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path

from tpca.errors import OutputError
from tpca.studies.store import Store, made
from tpca.studies.study import Finding, Study

STYLE = """
:root { color-scheme: light dark; --ink: #222; --ground: #fff; --line: #ccc; --good: #1a7f4b; --bad: #b3541e; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #ddd; --ground: #16181c; --line: #444; --good: #5fd39a; --bad: #f0a36b; }
}
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--ground); max-width: 60rem;
  margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top; }
.agrees { color: var(--good); font-weight: 600; } .differs { color: var(--bad); font-weight: 600; }
figure { margin: 1rem 0 2.5rem; } figure svg { max-width: 100%; height: auto; } nav a { margin-right: .8rem; }
small { opacity: .75; }
"""


def write_page(
    path: Path,
    studies: Sequence[Study],
    findings: Mapping[str, Sequence[Finding]],
    figures: Mapping[str, Path],
    store: Store,
) -> None:
    """Table and figure of every study; nothing is loaded from elsewhere."""
    told = [study for study in studies if study.name in findings]
    links = "".join(f'<a href="#{s.name}">{html.escape(s.name)}</a>' for s in told)
    sections = "\n".join(_section(s, findings[s.name], figures.get(s.name), len(store.records(s))) for s in told)
    versions = ", ".join(f"{name} {value}" for name, value in made().items() if value)
    page = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>tpca: the paper on a machine</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}</style></head><body>\n<h1>The paper on a machine</h1>\n"
        "<p>What <em>Mild Over-Parameterization Benefits Asymmetric Tensor PCA</em> predicts, and what was measured. "
        "Intervals are 95 %.</p>\n"
        f"<nav>{links}</nav>\n{sections}\n<p><small>Written with {html.escape(versions)}.</small></p>\n</body></html>\n"
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise OutputError(f"cannot write the report {str(path)!r}: {error}; choose another place.") from error


def _section(study: Study, findings: Sequence[Finding], figure: Path | None, trials: int) -> str:
    rows = "\n".join(map(_row, findings))
    picture = ""
    if figure is not None:
        svg = figure.with_suffix(".svg").read_text(encoding="utf-8")
        picture = f'<figure role="img" aria-label="{html.escape(study.title)}">{svg[svg.index("<svg") :]}</figure>'
    return (
        f'<h2 id="{study.name}">{html.escape(study.name)}: {html.escape(study.title)}</h2>\n'
        f"<p>{html.escape(study.claim)} <small>({trials:,} trials)</small></p>\n"
        f"<table><tr><th>case</th><th>predicted</th><th>measured</th><th>verdict</th></tr>\n{rows}</table>\n{picture}"
    )


def _row(finding: Finding) -> str:
    cells = [html.escape(text) for text in (finding.label, finding.predicted, finding.measured)]
    kind = finding.verdict.value.split()[0]
    verdict = f'<span class="{kind}">{finding.verdict}</span><br><small>{html.escape(finding.reason)}</small>'
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in (*cells, verdict)) + "</tr>"
