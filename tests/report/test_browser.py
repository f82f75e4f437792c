"""Reports in a real browser: nothing goes wrong or is loaded, all fits, dark mode and phones are served.

Needs Chromium (Debian: ``apt-get install chromium``); skipped where there is none.
"""

import numpy as np
import pytest
import xarray

from browser import find_browser
from tpca import SpikedTensor, TensorPCA

pytestmark = pytest.mark.skipif(find_browser() is None, reason="no Chromium here; on Debian: apt-get install chromium")

EVIL = ["</style><script>window.broken = 1</script>", '"><img src=x onerror="window.broken = 2">', "<b>b</b>", "%{x}"]
OVER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
LUMA = """(() => { const luma = c => { const [r, g, b] = c.match(/[0-9.]+/g).map(Number); return .3*r + .6*g + .1*b; };
    return [luma(getComputedStyle(document.body).backgroundColor),
            luma(getComputedStyle(document.querySelector('figure svg text')).fill)]; })()"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    truth = SpikedTensor.random((4, 30, 40), 8.0, random_state=1)
    samples = next(iter(truth.stream(random_state=3, batch_size=100)))
    named = xarray.DataArray(samples, dims=("n", "site", "time", "band"), coords={"site": EVIL})
    pca = TensorPCA(2, random_state=0, n_resamples=199).fit(named)
    labels = np.where(np.arange(100) % 2, "odd", "even")
    return pca.report(tmp_path_factory.mktemp("browser") / "r.html", named, labels).as_uri()


@pytest.mark.parametrize("width", [390, 1200])
def test_all_fits_and_nothing_goes_wrong(width, browser, page):
    browser.open(page, width=width, phone=width < 500)
    assert browser.run(OVER) == 0
    shown = browser.run("[...document.querySelectorAll('figure svg')].map(s => s.getBoundingClientRect().width)")
    assert shown
    assert all(200 < one <= width for one in shown)
    assert browser.troubles == []
    assert [one for one in browser.requests if not one.startswith("data:")] == [page]


def test_names_from_the_data_are_text_and_dark_mode_is_followed(browser, page):
    browser.open(page)
    assert browser.run("window.broken") is None
    assert browser.run("document.querySelectorAll('img, script, b').length") == 0
    ground, ink = browser.run(LUMA)
    assert ground > 200 > 130 > ink
    browser.open(page, dark=True)
    ground, ink = browser.run(LUMA)
    assert ground < 50 < 120 < ink
