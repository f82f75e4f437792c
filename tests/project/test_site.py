"""The documentation read from a folder: search works, nothing is fetched, figures can be read on a phone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from browser import find_browser

ROOT = Path(__file__).parent.parent.parent
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_browser() is None, reason="no Chromium here; on Debian: apt-get install chromium"),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})
    return folder


def opened(browser, page, width, phone=False):
    browser.troubles.clear()
    browser.requests.clear()
    browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=phone)
    browser.call("Page.navigate", url=page.as_uri())
    browser.until("document.readyState === 'complete' && document.querySelector('.md-footer')")


def test_search_works_from_a_folder_and_nothing_is_fetched(browser, site):
    opened(browser, site / "guides" / "arrays.html", 1200)
    browser.run("document.querySelector('[data-md-toggle=search]').click()")
    browser.run("document.querySelector('.md-search__input').focus()")
    browser.call("Input.insertText", text="nuisance")
    links = "[...document.querySelectorAll('.md-search-result__link')].map(a => a.getAttribute('href'))"
    browser.until(f"{links}.length > 0")
    assert any("guides/conditions.html" in link for link in browser.run(links))
    assert [one for one in browser.requests if not one.startswith(("file:", "data:", "about:"))] == []
    assert browser.troubles == []


def test_figures_can_be_read_on_a_phone(browser, site):
    for page in ("index.html", "how.html", "gallery/oddball_contrast.html"):
        opened(browser, site / page, 390, phone=True)
        shown = "[...document.querySelectorAll('.md-content p > img')].map(i => [i.clientWidth, i.naturalWidth])"
        widths = browser.run(shown)
        assert widths
        assert all(width >= 0.45 * natural or width >= 800 for width, natural in widths), (page, widths)
        assert browser.run("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0, page


def test_tables_have_no_empty_heading_and_break_no_name(browser, site):
    opened(browser, site / "start.html", 390, phone=True)
    heads = "[...document.querySelectorAll('.md-content thead')].filter(h => !h.textContent.trim() && h.offsetHeight)"
    assert browser.run(f"{heads}.length") == 0
    lines = "[...document.querySelectorAll('.md-content td code')].map(c => [c.textContent, c.getClientRects().length])"
    assert [text for text, count in browser.run(lines) if count > 1 and " " not in text] == []
