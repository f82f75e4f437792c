"""What a page, a summary and a figure say, per question: signs, decimals, names, and what was asked for."""

import numpy as np
import pandas
import pytest
import xarray
from sklearn.exceptions import NotFittedError

from browser import Browser, BrowserEndedError, find_browser
from tpca import MomentPCA, SpikedTensor, TensorCCA, TensorPCA
from tpca.errors import SampleError
from tpca.report.race_pictures import mean_figure, proofs_figure, strength_figure
from tpca.wording import beside, with_error, within

LABELS = np.array(["badminton", "running", "standing", "walking"])[np.arange(320) % 4]
MOVED = np.random.default_rng(5).standard_normal((320, 6, 7)) + 3.0
MOVED[LABELS == "walking", 1:3, 4] += 2.0  # eight standard errors of a cell's difference: found whatever the seed


@pytest.fixture(scope="module")
def moved():
    return TensorPCA(target="effect", random_state=0).fit(MOVED, LABELS)


def test_ends_of_an_interval_and_its_middle_have_the_same_decimals():
    assert within((0.851, 1.2)) == "0.85 to 1.20"
    assert within((19.941, 20.123)) == "19.94 to 20.12"
    assert beside(20.0, (19.941, 20.123)) == "20.00"
    assert within((-0.2, 0.31)) == "−0.20 to 0.31"
    assert within((3e7, 4e7)) == "3·10⁷ to 4·10⁷"
    assert within((1.0, None)) == "1 to —"
    assert within(None) == beside(None, None) == "—"
    assert with_error(0.9, None) == "0.900"


def test_the_labels_take_the_sign_that_is_left(moved):
    vectors = [own[0] for own in moved.components_]
    assert all(v[np.argmax(np.abs(v))] > 0 for v in vectors)
    amplitudes = dict(zip(np.unique(LABELS), moved.label_amplitudes_[0], strict=True))
    assert max(amplitudes, key=amplitudes.get) == "walking"
    scores = moved.transform(MOVED)[:, 0]
    assert scores[LABELS == "walking"].mean() > scores[LABELS == "running"].mean()


def test_a_page_of_an_effect_shows_scores_by_label(moved, tmp_path):
    page = moved.report(tmp_path / "r.html", MOVED, LABELS).read_text()
    assert "The effect between 4 labels has strength" in page
    assert "mean of the contrasts of samples" in page
    assert "adds to a sample" not in page
    assert "Mean scores: badminton" in page
    with pytest.raises(SampleError, match=r"y must have a number or label for every sample, 320, got shape \(3,\)"):
        moved.report(tmp_path / "s.html", MOVED, [1, 2, 3])


def test_names_of_labels_do_not_run_into_each_other(moved):
    last = [axis for axis in moved.plot(MOVED, LABELS).axes if axis.get_ylabel() == "score of a sample"][-1]
    assert {tick.get_rotation() for tick in last.get_xticklabels()} == {90.0}


def test_no_effect_says_what_was_looked_for():
    noise = np.random.default_rng(5).standard_normal((40, 4, 5))
    twice = np.stack([noise, -noise], axis=1).reshape(80, 4, 5)  # with one y for both there is no effect at all
    with pytest.warns(match="No signal was found"):
        pca = TensorPCA(target="effect", random_state=0).fit(twice, np.repeat(np.arange(40) % 4, 2))
    assert "looked for: effect of y, per unit" in str(pca.summary())
    assert "memory" not in pca.recovery_.advice


def test_fewer_components_than_asked_for_are_told(moved):
    three = TensorPCA(target="effect", n_components=3, random_state=0).fit(MOVED, LABELS)
    assert three.n_components_ < 3
    assert "3 components were looked for, and no more than" in str(three.summary())
    assert "looked for, and no more" not in str(moved.summary())


def test_many_components_are_not_told_one_by_one(tmp_path):
    rng = np.random.default_rng(5)
    pairs = [np.linalg.qr(rng.standard_normal((16, 16)))[0] for _ in range(2)]
    X = np.einsum("c,ci,cj->ij", 40.0 - np.arange(12), *(q[:12] for q in pairs)) + rng.standard_normal((40, 16, 16))
    pca = TensorPCA(n_components=12, random_state=0).fit(X)
    assert pca.n_components_ == 12
    told = str(pca.summary())
    assert "component 9:" in told
    assert "component 10:" not in told
    assert "These are the 10 strongest of 12 components." in told
    assert "The strengths go from" in pca.report(tmp_path / "r.html").read_text()


def test_what_varies_is_told_as_that(tmp_path):
    truth = SpikedTensor.random((8, 7, 6), strength=1.0, random_state=1)
    rng = np.random.default_rng(5)
    X = rng.standard_normal((300, 8, 7, 6)) + 5 * rng.standard_normal(300)[:, None, None, None] * truth.signal()
    page = TensorPCA(target="variance", random_state=0).fit(X).report(tmp_path / "r.html", X).read_text()
    assert "standard deviation of its amplitude from sample to sample" in page
    assert '"proofs"' in page
    assert '"strength-0"' not in page  # all of its rounds are at the last sample
    assert "has one solver" not in page


def test_pictures_reach_as_far_as_what_is_in_them():
    evidence = {"kind": "length", "value": 0.3, "needed": 0.5, "noise": [0.4, 0.9]}
    assert mean_figure(evidence, 0.95).x.high > 0.9
    proof = {"kind": "log evidence", "value": 1.5, "needed": 3.0, "noise": []}
    assert proofs_figure([{"evidence": proof}], 0.95).x.high > 3.0
    assert proofs_figure([{"evidence": None}], 0.95) is None
    records = [{"samples": 9, "strength": 1.0, "strength_error": 0.1}] * 3
    assert strength_figure(records, 0, (0.9, 1.1)) is None


def test_columns_of_views_keep_their_names(tmp_path):
    rng = np.random.default_rng(5)
    shared = rng.exponential(size=900) - 1
    views = [
        pandas.DataFrame(
            np.outer(shared, np.ones(3)) + 0.3 * rng.standard_normal((900, 3)), columns=[f"{name}{i}" for i in range(3)]
        )
        for name in ("gene ", "protein ")
    ]
    cca = TensorCCA(random_state=0).fit(views)
    assert "view 1  protein " in str(cca.summary())
    assert "loadings: correlations with the score of their view" in str(cca.summary())
    assert [axis.get_ylabel() for axis in cca.plot().axes] == ["loading", ""]
    assert "<h1>Fit of 2 views</h1>" in cca.report(tmp_path / "r.html").read_text()
    named = TensorCCA(random_state=0).fit(pandas.concat({"left": views[0], "right": views[1]}, axis=1))
    assert "  left   gene " in str(named.summary())
    arrays = [xarray.DataArray(v.to_numpy(), dims=("row", "band"), coords={"band": [4, 8, 16]}) for v in views]
    assert "view 0  " in (told := str(TensorCCA(random_state=0).fit(arrays).summary()))
    assert "16: " in told


def test_a_fit_of_a_table_is_summed_up():
    rng = np.random.default_rng(5)
    rows = pandas.DataFrame(rng.exponential(size=(3000, 3)) @ rng.standard_normal((3, 3)), columns=["x", "y", "z"])
    told = str(MomentPCA(n_components=2, random_state=0).fit(rows).summary())
    assert told.startswith("Signal\n3,000 rows of 3 columns\n\nsource 0: skewness ")
    assert "columns of the mixing matrix" in told
    twice = np.vstack([rows, 2 * rows.mean() - rows])  # symmetric about its mean: no skewness at all
    with pytest.warns(match="no component could be proven"):
        none = MomentPCA(random_state=0).fit(twice)
    assert "No component could be proven" in str(none.summary())
    with pytest.raises(NotFittedError):
        MomentPCA().summary()


def test_years_are_years_and_minus_is_a_minus(tmp_path):
    path = find_browser()
    if path is None:
        pytest.skip("no browser")
    years = xarray.DataArray(
        np.random.default_rng(5).standard_normal((60, 70, 5)),
        dims=("n", "year", "site"),
        coords={"year": np.arange(1936, 2006)},
    )
    years[:, 20:40, 1:3] += 2.0
    page = TensorPCA(random_state=0).fit(years).report(tmp_path / "r.html", years)
    try:
        with Browser(path) as browser:
            browser.open(page.as_uri())
            ticks = browser.run("[...document.querySelectorAll('#plot-mode-0 .xtick')].map(t => t.textContent)")
            shown = browser.run("[...document.querySelectorAll('#plot-map-0 text')].map(t => t.textContent).join(' ')")
    except BrowserEndedError:
        pytest.skip("the browser does not run here")
    assert "1960" in ticks
    assert not any("k" in tick for tick in ticks)
    assert "−" in shown
    assert "-" not in shown
