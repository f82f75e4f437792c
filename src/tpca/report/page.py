"""A report: one HTML file that needs no network and runs no script.

Templates are Jinja2's, and escape all that comes from data.  Figures are SVG by matplotlib, whose few colours become
those of the page, so that they follow light and dark.
"""

from __future__ import annotations

import functools
import io
import math
import re
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpca.errors import TpcaError
from tpca.files import Kind, check_folder, check_replaceable, replacing
from tpca.report import words
from tpca.report.figures import (
    DRAWN,
    Picture,
    component_pictures,
    evidence_picture,
    figure_settings,
    scores_of,
    where_picture,
)
from tpca.report.style import COLOURS, INK, pyplot
from tpca.solvers.estimate import Verdict
from tpca.wording import amount, count, number, percent, printable, shape

if TYPE_CHECKING:
    from tpca.result import Result

TONES = {Verdict.SIGNAL: ("good", "✓"), Verdict.NO_SIGNAL: ("bad", "✕"), Verdict.NOT_TESTED: ("open", "?")}
# Nothing is loaded from anywhere, and nothing runs: styles are those of the page, and a map is an image inside of it.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'none'; base-uri 'none'"
PAGE = Kind("a report of tpca", b"<!doctype html>\n<!-- tpca report -->")  # as the template begins
PAINTS = {colour.lower(): f"var(--c{i})" for i, colour in enumerate(COLOURS)} | {INK: "currentColor"}


def check_installed() -> None:
    """Say before the work what a page needs and is missing."""
    pyplot()
    _template("page.html")


def write_page(path: Path, result: Result, scores: Any = None, y: Any = None, overwrite: bool = False) -> Path:
    """Write the report, whole or not at all; returns its path.  Another file there goes only with ``overwrite``."""
    check_folder(path)
    check_replaceable(path, PAGE, overwrite)  # before the work, too
    template, plt = _template("page.html"), pyplot()
    each = scores_of(result, scores, y)
    tone, sign = TONES[result.verdict]
    shown = range(min(len(result.components), DRAWN))
    if tone == "good" and not any(c.significant for c in result.components):
        tone, sign = "open", "?"
    with plt.rc_context(figure_settings()), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # of a name: the browser has other fonts
        text = template.render(
            policy=POLICY,
            title=_title(result),
            subject={"samples": "tensor PCA", "views": "tensor CCA"}[result.kind],
            tone=tone,
            sign=sign,
            words=words,
            result=result,
            svg=_svg,
            components=[(c, component_pictures(result, c, each)) for c in shown],
            more=len(result.components) - len(shown),
            evidence=[
                one for one in (evidence_picture(result), *(where_picture(result, c) for c in shown)) if one is not None
            ],
            facts=_facts(result),
            settings={
                name: printable(str(value)) for name, value in result.settings.items() if value not in (None, "", [])
            },
        )
    with replacing(path, kinds=[PAGE], overwrite=overwrite) as (draft,):
        draft.write_text(text, encoding="utf-8", errors="backslashreplace")
    return path


def _title(result: Result) -> str:
    where = result.source if isinstance(result.source, str) else ", ".join(result.source)
    return printable(where) or f"{count(result.n_samples, 'row')} of {shape(result.dims)}"


def _facts(result: Result) -> list[tuple[str, str]]:
    """How the fit was done, in numbers."""
    facts = [("Solver", words.SOLVERS.get(result.solver, result.solver))]
    facts += [("Samples" if result.kind == "samples" else "Rows", f"{result.n_samples:,}")]
    facts += [("Left out", f"{result.n_skipped:,}")] if result.n_skipped else []
    facts += [("Passes over the data", f"{result.n_passes}")] if result.kind == "samples" else []
    facts += [("Independent units", f"{result.n_units:,}")] if result.n_units else []
    facts += [("Resamples", f"{result.n_resamples:,}")] if result.n_resamples else []
    if math.isfinite(result.noise_level):
        facts.append(("Noise of one entry", number(result.noise_level)))
    if result.rank_one_shares:
        shares = ", ".join(percent(round(share, 3)) for share in result.rank_one_shares)
        facts.append(("First component, of the estimate with its noise", shares))
    if len(result.components) == 1 and math.isfinite(agreement := result.components[0].half_agreement):
        facts.append(("Agreement of halves of the samples (0 to 1)", number(agreement, 2)))
    facts += [("Memory of the solver", amount(result.state_bytes))] if result.state_bytes else []
    return facts


def _svg(picture: Picture) -> Any:
    """A picture as an element of a page: colours are the page's, and numbered groups have no ids that repeat."""
    from markupsafe import Markup, escape

    file = io.StringIO()
    picture.figure.savefig(file, format="svg", transparent=True, dpi=150, metadata={"Date": None, "Creator": None})
    text = file.getvalue()
    text = text[text.index("<svg ") :].replace("<svg ", f'<svg role="img" aria-label="{escape(picture.alt)}" ', 1)
    text = re.sub(r"<metadata>.*?</metadata>", "", text, count=1, flags=re.S)
    text = re.sub(r'<g id="[^"]*">', "<g>", text)
    return Markup(re.sub(r"(fill|stroke): (#[0-9a-f]{6})", lambda m: f"{m[1]}: {PAINTS.get(m[2], m[2])}", text))


@functools.cache
def _template(name: str) -> Any:
    pyplot()  # says what is missing
    try:
        import jinja2
    except ImportError as error:
        raise TpcaError('a report needs Jinja2; install it with: pip install "tpca[plots]"') from error
    loader = jinja2.PackageLoader("tpca.report", "templates")
    return jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined).get_template(name)
