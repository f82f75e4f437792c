"""What an estimator shows of its fit: the same numbers as its attributes, with the names of the data."""

import re

import matplotlib
import numpy as np
import pytest
import xarray
from sklearn.exceptions import NotFittedError

from tpca import SpikedTensor, TensorCCA, TensorPCA
from tpca.errors import SampleError, TpcaError
from tpca.report.answer import largest
from tpca.report.component_pictures import at_peak
from tpca.wording import with_error

matplotlib.use("Agg")
from matplotlib import pyplot as plt

CHANNELS = ["Fz", "Cz", "<b>Pz</b>", "Oz"]
TRUTH = SpikedTensor.random((4, 70, 5), 4.0, random_state=1)
PLAIN = next(iter(TRUTH.stream(random_state=2, batch_size=120)))
NAMED = xarray.DataArray(PLAIN, dims=("trial", "channel", "time", "band"), coords={"channel": CHANNELS})


@pytest.fixture(scope="module")
def named():
    return TensorPCA(random_state=0).fit(NAMED)


@pytest.fixture(scope="module")
def nothing():
    with pytest.warns(UserWarning, match="No signal"):
        return TensorPCA(random_state=0).fit(PLAIN - PLAIN.mean(axis=0) + 1e-3 * PLAIN[::-1])


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def test_the_summary_has_the_largest_entries_by_name_and_the_strength(named):
    text, strength = str(named.summary()), named.strengths_[0]
    assert named.found_
    assert repr(named.summary()) == text
    assert text.splitlines()[0] == "Signal"
    assert text.splitlines()[1] == "120 samples of channel 4 × time 70 × band 5"
    low, high = named.strength_intervals_[0]
    assert f"strength {strength:.3g} (95 % interval {low:.3g} to {high:.3g})" in text
    best = int(np.argmax(np.abs(named.components_[0][0])))
    told = with_error(named.components_[0][0][best], named.standard_errors_[0][0][best])
    assert re.search(rf"^  channel +{re.escape(CHANNELS[best])}: {re.escape(told)},", text, re.M)
    assert "… 65 more" in text  # of 70 times, five are told
    assert named.summary()._repr_html_().count("<table>") == 1
    assert "<b>" not in named.summary()._repr_html_()  # a name of the data is text, not markup


def test_nothing_found_is_said_and_not_drawn(nothing, tmp_path):
    text = str(nothing.summary())
    assert not nothing.found_
    assert text.startswith("No signal\n120 samples of 4 × 70 × 5; a signal, if there is one, has a strength below ")
    figure = nothing.plot()
    assert "No signal" in figure.axes[0].texts[0].get_text()
    assert not figure.axes[0].lines
    assert "No signal was found" in nothing.report(tmp_path / "r.html").read_text()


def panels(figure):
    return [axis for axis in figure.axes if axis.get_label() != "<colorbar>" and axis.get_visible()]


def test_the_figure_shows_vectors_errors_names_map_and_scores(named):
    figure = named.plot(NAMED)
    channel, time, band, cells, scores = panels(figure)
    assert [tick.get_text() for tick in channel.get_xticklabels()] == CHANNELS
    (bars,) = channel.containers
    np.testing.assert_allclose(bars.lines[0].get_ydata(), named.components_[0][0])
    ends = np.array([np.ptp(part[:, 1]) for part in bars.lines[2][0].get_segments()])
    np.testing.assert_allclose(ends, 4 * named.standard_errors_[0][0])  # two errors to either side
    np.testing.assert_allclose(time.lines[-1].get_ydata(), named.components_[1][0])  # too many for bars: a band
    assert len(time.collections) == 1
    assert (band.get_xlabel(), cells.get_xlabel(), cells.get_ylabel()) == ("band", "band", "time")
    np.testing.assert_allclose(scores.lines[0].get_ydata(), named.transform(NAMED)[:, 0])


def test_the_map_is_in_the_units_of_the_samples(named):
    values, where = at_peak(named._result(), 0, named.recovery_.labels, (1, 2))
    vectors = [c[0] for c in named.components_]
    whole = named.strengths_[0] * np.einsum("i,j,k->ijk", *vectors)
    best = int(np.argmax(np.abs(vectors[0])))
    np.testing.assert_allclose(values, whole[best])
    assert where == f"at channel = {CHANNELS[best]}"
    cells = named.plot(pair=("band", 0)).axes[3]
    assert (cells.get_xlabel(), cells.get_ylabel()) == ("channel", "band")
    with pytest.raises(SampleError, match=r"pair must name two of the modes 'channel', 'time', 'band', got \('x', 0\)"):
        named.plot(pair=("x", 0))


def test_scores_over_labels_and_over_numbers(named):
    labels = np.where(np.arange(120) % 2, "b", "a")
    over = panels(named.plot(NAMED, labels))[-1]
    assert [tick.get_text() for tick in over.get_xticklabels()] == ["a", "b"]
    np.testing.assert_allclose(
        over.lines[1].get_ydata(), [named.transform(NAMED)[labels == one].mean() for one in ("a", "b")]
    )
    doses = np.linspace(0, 1, 120)
    np.testing.assert_array_equal(panels(named.plot(NAMED, doses))[-1].lines[0].get_xdata(), doses)
    with pytest.raises(SampleError, match=r"y must have a number or label for every sample, \(120,\), got \(3,\)"):
        named.plot(NAMED, [1, 2, 3])


def test_the_report_is_that_of_the_command_with_scores_and_checks(named, tmp_path):
    page = named.report(tmp_path / "r.html", NAMED).read_text()
    assert "one more pass over the 120 samples that were fitted" in page
    assert '"scores"' in page
    assert '"map-0"' in page
    assert page.index('id="tab-components"') < page.index('id="tab-finding"')
    without = named.report(tmp_path / "s.html").read_text()
    assert "the samples were not given; give those of the fit, report(path, X)" in without
    assert '"scores"' not in without


def test_effects_are_named_and_their_scores_shown(tmp_path):
    y = np.arange(120) % 2
    shifted = PLAIN + y[:, None, None, None] * TRUTH.signal()
    pca = TensorPCA(target="effect", random_state=0).fit(shifted, y)
    assert f"effect of {pca.effects_[0]}, per unit: strength" in str(pca.summary())
    labels = np.array(["a", "b", "c"])[np.arange(120) % 3]
    one = PLAIN + (labels == "b")[:, None, None, None] * TRUTH.signal()
    three = TensorPCA(target="effect", random_state=0).fit(one, labels)
    assert "effect between 3 labels: strength" in str(three.summary())
    page = pca.report(tmp_path / "r.html", shifted).read_text()
    assert "the fit is of contrasts of samples" in page
    assert '"scores"' in page


def test_entries_are_told_largest_first_with_as_many_decimals_as_the_error_has():
    labels = named_labels()
    vector, errors = np.array([0.1, -0.9, 0.4]), np.array([0.004, 0.02, np.inf])
    assert largest(vector, errors, labels, 0, 2) == ["b: −0.90 ± 0.02", "c: 0.400", "… 1 more"]
    assert largest(vector, None, labels, 0) == ["b: −0.900", "c: 0.400", "a: 0.100"]
    assert with_error(0.1, 0.004) == "0.100 ± 0.004"
    assert with_error(3e7, 2e6) == "3·10⁷ ± 2·10⁶"
    assert with_error(None, None) == "—"


def named_labels():
    from tpca.labels import parse_labels

    return parse_labels({"0": ["a", "b", "c"]}, [3])


def test_before_a_fit_there_is_nothing_to_show():
    for show in (TensorPCA().summary, TensorPCA().plot, lambda: TensorPCA().report("r.html"), TensorCCA().summary):
        with pytest.raises(NotFittedError):
            show()


def test_views_are_summed_up_and_reported(tmp_path):
    rng = np.random.default_rng(0)
    shared = rng.standard_normal(400)
    views = [np.outer(shared, rng.standard_normal(d)) + rng.standard_normal((400, d)) for d in (4, 5)]
    cca = TensorCCA(random_state=0).fit(views)
    text = str(cca.summary())
    assert cca.found_
    assert text.startswith("Signal\n400 rows of 2 views, 4 × 5\n")
    assert f"correlation {with_error(cca.correlations_[0], cca.correlation_errors_[0])} on held-out rows" in text
    page = cca.report(tmp_path / "r.html", views).read_text()
    assert "400 rows were read again" in page
    assert "the rows were not given" in cca.report(tmp_path / "s.html").read_text()


def test_a_report_that_cannot_be_written_says_so(named, tmp_path):
    (tmp_path / "f").write_text("")
    with pytest.raises(TpcaError, match="cannot write"):
        named.report(tmp_path / "f" / "r.html")


@pytest.mark.parametrize("count", [2, 3, 4])
def test_loadings_are_correlations_and_scores_agree(count):
    """With little shrinkage (10⁻³ or so), loadings are the correlations of columns with scores to 0.02."""
    rng = np.random.default_rng(count)
    shared = rng.exponential(size=3000) - 1
    views = [np.outer(shared, rng.standard_normal(5)) + rng.standard_normal((3000, 5)) for _ in range(count)]
    cca = TensorCCA(random_state=0).fit(views)
    scores = [view[:, 0] for view in cca.transform(views)]
    for view, score, loadings in zip(views, scores, cca.loadings_, strict=True):
        measured = [np.corrcoef(column, score)[0, 1] for column in view.T]
        np.testing.assert_allclose(loadings[0], measured, atol=0.02)
    assert np.corrcoef(scores).min() > 0.5  # all follow the factor, and in one direction
    others = np.stack(scores[1:], axis=1)  # what a missing view is predicted from has the same signs
    best = others @ np.linalg.lstsq(others, views[0] - cca.means_[0])[0] + cca.means_[0]
    np.testing.assert_allclose(cca.predict([None, *views[1:]])[0], best, atol=1e-6)
    assert np.prod([y / y.std() for y in scores], axis=0).mean() > 0
