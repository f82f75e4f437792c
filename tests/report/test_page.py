"""The report: one file without a script, whose figures, tables and words are those of the result, escaped."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest
import xarray

from tpca import SpikedTensor, TensorCCA, TensorPCA, load
from tpca.errors import TpcaError
from tpca.wording import number

EVIL = ["</style><script>alert(1)</script>", '"><img src=x onerror="alert(2)">', "<b>b</b>", "a & b"]
TRUTH = SpikedTensor.random((4, 30, 5), 6.0, random_state=1)
X = next(iter(TRUTH.stream(random_state=2, batch_size=100)))
COORDS = {"<i>site": EVIL, "time": np.arange(30.0)}
NAMED = xarray.DataArray(X, dims=("trial", "<i>site", "time", "band"), coords=COORDS)


class Page(HTMLParser):
    """All tags, texts by tag, and whether every element is closed where it should be."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.text, self.open, self.inside = [], {}, [], {}
        self.feed(text)
        assert not self.open, self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        for tag in set(self.open):
            self.text[tag] = self.text.get(tag, "") + data

    def count(self, tag):
        return sum(name == tag for name, _ in self.tags)


@pytest.fixture(scope="module")
def named():
    return TensorPCA(2, random_state=0, n_resamples=199).fit(NAMED)


@pytest.fixture(scope="module")
def page(named, tmp_path_factory):
    path = named.report(tmp_path_factory.mktemp("page") / "r.html", NAMED)
    return Page(path.read_text(encoding="utf-8"))


def test_nothing_runs_nothing_is_loaded_and_names_are_text(page):
    assert page.count("script") == 0
    assert page.count("link") == page.count("iframe") == page.count("img") == 0
    policy = next(a["content"] for tag, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in policy
    assert "script-src" not in policy
    for tag, attributes in page.tags:
        assert not any(name.startswith("on") for name in attributes), (tag, attributes)
        for name in ("href", "src", "xlink:href"):
            assert attributes.get(name, "#").startswith(("#", "data:image/png;base64,")), (tag, attributes)
    assert page.count("b") == page.count("i") == 0
    for name in EVIL:
        assert name in page.text["dd"] or name in page.text["th"]
    assert "<i>site" in page.text["h3"]


def test_words_are_those_of_the_summary_and_every_figure_has_a_name_and_a_table(named, page):
    summary = named.summary()
    assert summary.headline in page.text["h2"]
    assert summary.about in page.text["p"]
    for remark in named.result_.advice:
        assert remark in page.text["li"]
    assert named.result_.methods() in page.text["p"]
    pictures = page.count("figure")
    assert pictures == 2 * (3 + 1 + 1) + 2  # axes, map and scores of both; how many; p of every entry
    svg = [attributes for tag, attributes in page.tags if tag == "svg"]
    assert len(svg) == pictures
    assert all(one["role"] == "img" and one["aria-label"] for one in svg)
    assert page.count("details") == pictures + 1  # and the settings
    for mode, vectors in enumerate(named.components_):
        top = int(np.argmax(np.abs(vectors[0])))
        assert number(float(vectors[0][top]), 4) in page.text["td"]
        assert number(float(named.standard_errors_[mode][0][top]), 2) in page.text["td"]


def test_colours_are_those_of_the_page_and_ids_do_not_repeat(page):
    styles = " ".join(attributes.get("style") or "" for _, attributes in page.tags)
    colours = {"var(--c0)": True, "currentColor": True, "#7f7f7f": False, "#0072b2": False}
    assert {colour: colour in styles for colour in colours} == colours
    assert not [a["id"] for _, a in page.tags if re.match(r"(figure|axes|text|patch)_\d", a.get("id") or "")]
    assert "prefers-color-scheme: dark" in page.text["style"]
    assert "@media print" in page.text["style"]


def test_scores_are_there_if_samples_were_given(named, tmp_path):
    assert Page(named.report(tmp_path / "r.html").read_text()).count("figure") == 2 * (3 + 1) + 2
    labels = np.where(np.arange(100) % 2, "odd", "even")
    over = Page(named.report(tmp_path / "s.html", NAMED, labels).read_text())
    mean = float(np.asarray(named.transform(NAMED))[labels == "odd", 0].mean())
    assert number(mean, 4) in over.text["td"]
    assert "odd" in over.text["th"]
    (tmp_path / "f").write_text("")
    with pytest.raises(TpcaError, match="cannot write"):
        named.report(tmp_path / "f" / "r.html")


@pytest.mark.slow
def test_a_loaded_result_gives_the_same_page(named, tmp_path):
    result = load(named.save(tmp_path / "r"))
    one, other = named.report(tmp_path / "a.html"), result.report(tmp_path / "b.html")
    assert one.read_bytes() == other.read_bytes()


def test_no_signal_and_no_test_have_pages_that_say_so(tmp_path):
    noise = X - X.mean(axis=0)
    for samples, kind, says in (
        (np.concatenate([noise, -noise]), "bad", "No signal: p = "),
        (X[:4, :, :3, :3], "open", "Not tested"),
    ):
        text = TensorPCA(random_state=0, n_resamples=199).fit(samples).report(tmp_path / "r.html").read_text()
        assert f'class="verdict {kind}"' in text
        assert says in text


def test_views_have_pages(tmp_path):
    rng = np.random.default_rng(0)
    shared = rng.standard_normal(400)
    views = [np.outer(shared, rng.standard_normal(d)) + rng.standard_normal((400, d)) for d in (4, 5)]
    cca = TensorCCA(2, random_state=0).fit(views)
    page = Page(cca.report(tmp_path / "v.html", views).read_text())
    assert page.count("figure") == 2 * (2 + 1) + 1  # loadings, scores; correlations
    assert number(float(cca.loadings_[0][0][0]), 4) in page.text["td"]
