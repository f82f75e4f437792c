"""Reports in a real browser: nothing goes wrong, pictures are drawn, tabs work, dark mode and phones are served.

Needs Chromium (Debian: ``apt-get install chromium``); skipped where there is none.
"""

import functools
import json
import re

import numpy as np
import pytest

from browser import find_browser
from tpca import RaceSolver, SpikedTensor
from tpca.report.folder import write_report
from tpca.results import write_result, write_run

pytestmark = pytest.mark.skipif(find_browser() is None, reason="no Chromium here; on Debian: apt-get install chromium")

EVIL = ["</script><script>window.broken = 1</script>", '"><img src=x onerror="window.broken = 2">', "<b>b</b>", "%{x}"]
PHONE = {"width": 390, "height": 740, "phone": True}
DRAWN = """[...document.querySelectorAll('.plot')].filter(p => p.offsetParent).map(p => ({
    name: p.dataset.figure,
    drawn: p.querySelectorAll('svg').length > 0,
    marks: [...p.querySelectorAll('.series')].map(s => s.getAttribute('d') || s.getAttribute('href') || '')
        .filter(drawn => drawn.length > 9).length,
    whole: [...p.querySelectorAll('text')].every(t => {
        const [own, room] = [t.getBoundingClientRect(), p.getBoundingClientRect()];
        return own.left >= room.left - 1 && own.right <= room.right + 1 && own.bottom <= room.bottom + 1; }),
}))"""
OVER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The report on two components, with names that would break a careless page, and a sample that stands out."""
    folder = tmp_path_factory.mktemp("browser")
    truth = SpikedTensor.random((4, 30, 600), 5.0, random_state=1)
    other = SpikedTensor.random(truth.dims, 4.0, random_state=2).vectors
    noisy = next(iter(truth.stream(random_state=3, batch_size=150, dtype=np.float32)))
    samples = noisy + (4.0 * functools.reduce(np.multiply.outer, other)).astype(np.float32)
    samples[77] *= 8
    np.save(folder / "<script>d.npy", samples)
    recovery = RaceSolver(random_state=0, n_components=2).run(folder / "<script>d.npy")
    assert recovery.found
    settings = {"solver": "race", "solver_reason": "asked for", "confidence": 0.95}
    write_result(folder / "r", recovery, str(folder / "<script>d.npy"), settings)
    write_run(folder / "r", {"seconds": 2.0, "trace": [(i, i / 100) for i in range(1, 200, 20)], "made_with": {}})
    labels = folder / "labels.json"
    labels.write_text(json.dumps({"0": {"name": EVIL[1], "entries": EVIL}}))
    write_report(folder / "r", folder / "report.html", labels)
    return (folder / "report.html").as_uri()


def tabs(browser):
    return browser.run("[...document.querySelectorAll('[role=tab]')].map(t => t.getAttribute('aria-controls'))")


def show(browser, name):
    browser.run(f"document.getElementById('tab-{name}').click()")
    browser.until(f"document.documentElement.dataset.shown === '{name}'")


def test_every_tab_draws_its_pictures_without_a_word_on_the_console(browser, page):
    browser.open(page)
    names = tabs(browser)
    assert names == ["components", "finding", "noise", "cost", "numbers"]
    seen = set()
    for name in names:
        show(browser, name)
        visible = browser.run(
            "[...document.querySelectorAll('[role=tabpanel]')].filter(p => p.offsetParent).map(p => p.id)"
        )
        assert visible == [name]
        for plot in browser.run(DRAWN):
            assert plot["drawn"], plot
            assert plot["marks"] > 0, plot
            assert plot["whole"], plot
            seen.add(plot["name"])
    drawn = ["map-0", "map-1", "scores", "evidence-0", "evidence-1", "mode-0", "mode-1", "mode-2"]
    assert {*drawn, "quantiles", "stream", "memory", "pace"} <= seen
    assert browser.troubles == []
    elsewhere = [one for one in browser.requests if not one.startswith("data:")]  # a map is an image of its own
    assert elsewhere == [page], "the page asked for something from elsewhere"


def test_names_from_the_data_are_text(browser, page):
    browser.open(page)
    show(browser, "components")
    ticks = browser.run("[...document.querySelectorAll('#plot-mode-0 .xtick')].map(t => t.textContent)")
    assert ticks == ["</script>…/script>", '"><img sr…en = 2">', "<b>b</b>", "%{x}"]
    assert browser.run("window.broken") is None
    assert browser.run("document.querySelectorAll('img').length") == 0
    assert "<script>d.npy" in browser.run("document.querySelector('h1').textContent")


TIP = "(tip => tip && !tip.hidden ? tip.textContent : '')(document.querySelector('#plot-{} .tip'))"


def pointer(browser, figure, across, kind="mouseMoved", **more):
    """The mouse at a share of the width of a picture, half way down."""
    place = f"document.querySelector('#plot-{figure} > svg')"
    browser.run(f"{place}.scrollIntoView({{block: 'center'}})")
    box = browser.run(f"(b => [b.left, b.top, b.width, b.height])({place}.getBoundingClientRect())")
    at = {"x": box[0] + across * box[2], "y": box[1] + 0.5 * box[3]}
    browser.call("Input.dispatchMouseEvent", type=kind, **at, **more)


def test_values_show_under_the_pointer_and_a_drag_zooms_in(browser, page):
    browser.open(page)
    first = "document.querySelectorAll('#plot-mode-1 .series').length"
    for figure, says in (("mode-1", r"\d+: −?0\.\d+ ± 0\.\d+\ncomponent [01]"), ("map-0", r"\d+, \d+: −?\d")):
        for across in (0.3, 0.4, 0.5, 0.6, 0.7):
            pointer(browser, figure, across)
            if browser.run(TIP.format(figure)):
                break
        assert re.match(says, browser.run(TIP.format(figure))), figure
    ticks = "[...document.querySelectorAll('#plot-mode-1 .xtick')].map(t => Number(t.textContent))"
    before, drawn = browser.run(ticks), browser.run(first)
    pointer(browser, "mode-1", 0.4, "mousePressed", button="left", clickCount=1)
    pointer(browser, "mode-1", 0.6, "mouseReleased", button="left", clickCount=1)
    near = browser.run(ticks)
    assert min(before) < min(near) < max(near) < max(before)
    for count in (1, 2):
        pointer(browser, "mode-1", 0.5, "mousePressed", button="left", clickCount=count)
        pointer(browser, "mode-1", 0.5, "mouseReleased", button="left", clickCount=count)
    assert (browser.run(ticks), browser.run(first)) == (before, drawn)
    assert browser.troubles == []


def test_the_page_may_load_nothing_from_elsewhere(browser, page):
    browser.open(page)
    browser.run("document.addEventListener('securitypolicyviolation', e => { window.refused = e.effectiveDirective })")
    browser.run("document.body.append(Object.assign(new Image(), {src: 'http://127.0.0.1:9/x.png'})), 0")
    browser.until("window.refused === 'img-src'")


def test_tabs_follow_the_keyboard(browser, page):
    browser.open(page)
    browser.run("document.getElementById('tab-components').focus()")
    for key, expected in (
        ("ArrowRight", "finding"),
        ("End", "numbers"),
        ("ArrowRight", "components"),
        ("ArrowLeft", "numbers"),
    ):
        browser.press(key)
        browser.until(f"document.documentElement.dataset.shown === '{expected}'")
        state = "[document.activeElement.id, document.querySelector('[aria-selected=true]').id]"
        assert browser.run(state) == [f"tab-{expected}"] * 2
    assert browser.run("document.querySelectorAll('[role=tab][tabindex=\"0\"]').length") == 1


def test_dark_mode_is_followed_by_page_and_pictures(browser, page):
    look = """(() => { const tick = document.querySelector('#plot-mode-1 .xtick');
        const luma = c => { const [r, g, b] = c.match(/[0-9.]+/g).map(Number); return 0.3 * r + 0.6 * g + 0.1 * b; };
        return [luma(getComputedStyle(document.body).backgroundColor), luma(getComputedStyle(tick).fill)]; })()"""
    browser.open(page)
    ground, ink = browser.run(look)
    assert ground > 200 > 100 > ink
    browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    browser.until(f"({look})[1] > 150")  # while it is open
    browser.open(page, dark=True)
    ground, ink = browser.run(look)
    assert ground < 60 < 150 < ink
    assert browser.troubles == []


def test_a_phone_has_no_sideways_scrolling(browser, page, tmp_path):
    browser.open(page, **PHONE)
    for name in tabs(browser):
        show(browser, name)
        assert browser.run(OVER) <= 0, name
        for plot in browser.run(DRAWN):
            assert plot["marks"] > 0, plot
            assert plot["whole"], plot
    assert browser.troubles == []
    browser.picture(tmp_path / "phone.png")
    assert (tmp_path / "phone.png").stat().st_size > 10_000


def test_without_scripts_everything_is_there(browser, page):
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.call("Page.navigate", url=page)
        browser.until("document.readyState === 'complete' && document.querySelector('footer')")
        assert browser.run("[...document.querySelectorAll('[role=tabpanel]')].every(p => p.offsetParent)")
        assert not browser.run("document.querySelector('[role=tablist]').offsetParent")
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)
