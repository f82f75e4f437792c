"""Figures hold the numbers of the result: bars of names, lines with bands, maps with outlines, scores, null bands."""

import builtins

import matplotlib
import numpy as np
import pytest
import xarray

from tpca import SpikedTensor, TensorCCA, TensorPCA
from tpca.errors import SampleError, TpcaError
from tpca.labels import Axis, Labels
from tpca.report.figures import BARS, FEW

matplotlib.use("Agg")
from matplotlib import pyplot as plt

CHANNELS = [f"channel {i} $x_{i}" for i in range(16)]
TIMES = np.linspace(-0.2, 0.8, 30)
TRUTH = SpikedTensor.random((16, 30, 5), 12.0, random_state=1)
PLAIN = next(iter(TRUTH.stream(random_state=2, batch_size=120)))
NAMED = xarray.DataArray(PLAIN, dims=("trial", "channel", "time", "band"), coords={"channel": CHANNELS, "time": TIMES})


@pytest.fixture(scope="module")
def named():
    return TensorPCA(2, random_state=0, n_resamples=199).fit(NAMED)


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def panels(figure):
    figure.canvas.draw()  # names, ticks and layout are worked out here
    return [axis for axis in figure.axes if axis.get_label() != "<colorbar>"]


def outlined(axes, mask):
    """Whether a map has lines around the entries of a mask, and there are some."""
    (lines,), padded = axes.collections, np.pad(mask, 1).astype(int)
    borders = np.abs(np.diff(padded, axis=0)).sum() + np.abs(np.diff(padded, axis=1)).sum()
    return len(lines.get_segments()) == borders > 0


def test_names_are_bars_with_two_errors_and_numbers_a_line_with_a_band(named):
    channel, time, *_ = panels(named.plot())
    vector, errors = named.components_[0][0], named.standard_errors_[0][0]
    order = np.argsort(-np.abs(vector))[:FEW]
    np.testing.assert_allclose([bar.get_width() for bar in channel.patches], vector[order])
    assert [tick.get_text() for tick in channel.get_yticklabels()] == [CHANNELS[i] for i in order]
    (bars,) = (c for c in channel.containers if hasattr(c, "has_xerr"))
    ends = np.array([np.ptp(part[:, 0]) for part in bars.lines[2][0].get_segments()])
    np.testing.assert_allclose(ends, 4 * errors[order])
    vector, errors = named.components_[1][0], named.standard_errors_[1][0]
    np.testing.assert_allclose(time.lines[-1].get_xdata(), TIMES)
    np.testing.assert_allclose(time.lines[-1].get_ydata(), vector)
    (band,) = time.collections
    corners = band.get_paths()[0].vertices[:, 1]
    assert corners.max() == pytest.approx((vector + 2 * errors).max())
    assert corners.min() == pytest.approx((vector - 2 * errors).min())


def test_a_map_is_in_the_units_of_the_samples_with_significant_entries_outlined(named):
    drawn, vectors = panels(named.plot()), [c[0] for c in named.components_]
    best = int(np.argmax(np.abs(vectors[2])))
    whole = named.strengths_[0] * np.einsum("i,j,k->ijk", *vectors)
    np.testing.assert_allclose(drawn[3].images[0].get_array(), whole[..., best])
    assert drawn[3].get_title(loc="left").startswith(f"at band = {best}")
    assert outlined(drawn[3], named.entry_p_values_[..., best] <= 0.05)
    assert not drawn[7].collections  # p are those of the whole estimate, not of what the first leaves
    cells = panels(named.plot(pair=("band", 0)))[3]
    assert (cells.get_xlabel(), cells.get_ylabel()) == ("channel", "band")
    with pytest.raises(SampleError, match=r"pair must name two of the axes 'channel', 'time', 'band', got \('x', 0\)"):
        named.plot(pair=("x", 0))


def test_scores_over_samples_labels_and_numbers(named):
    scores = np.asarray(named.transform(NAMED))
    plain = panels(named.plot(NAMED))[4]
    np.testing.assert_allclose(plain.lines[0].get_ydata(), scores[:, 0])
    labels = np.where(np.arange(120) % 2, "b", "a")
    over = panels(named.plot(NAMED, labels))[4]
    assert [tick.get_text() for tick in over.get_xticklabels()] == ["a", "b"]
    means = [scores[labels == one, 0].mean() for one in ("a", "b")]
    np.testing.assert_allclose(over.lines[1].get_ydata().astype(float), means)
    doses = np.linspace(0, 1, 120)
    np.testing.assert_array_equal(panels(named.plot(NAMED, doses))[4].lines[0].get_xdata(), doses)
    with pytest.raises(SampleError, match=r"y must have a number or label for every sample, \(120,\), got \(3,\)"):
        named.plot(NAMED, [1, 2, 3])
    with pytest.raises(SampleError, match="give the samples"):
        named.plot(None, labels)


def test_how_many_components_shows_p_shares_and_agreement_of_halves(named):
    p_values, shares, agreements = panels(named.plot())[-3:]
    components = named.result_.components
    assert p_values.yaxis.get_inverted()  # what is proven stands above
    assert p_values.get_yscale() == "log"
    by_name = {line.get_label(): line for line in p_values.lines}
    proven = by_name["proven"]
    np.testing.assert_array_equal(proven.get_xdata(), [1])
    np.testing.assert_allclose(proven.get_ydata(), named.p_values_[:1])
    unproven = by_name["not proven"]
    np.testing.assert_array_equal(unproven.get_xdata(), [2])
    np.testing.assert_allclose(unproven.get_ydata(), named.p_values_[1:])
    level = p_values.lines[-1]
    np.testing.assert_allclose(level.get_ydata(), 0.05)
    np.testing.assert_allclose(shares.lines[0].get_ydata(), [100 * component.joint_share for component in components])
    np.testing.assert_allclose(agreements.lines[-1].get_ydata(), [component.half_agreement for component in components])


def test_how_many_components_of_variation_shows_shares_of_variance():
    rng = np.random.default_rng(0)
    varying = rng.standard_normal((60, 6, 5)) + rng.standard_normal((60, 1, 1)) * np.outer(np.arange(6), np.ones(5))
    pca = TensorPCA(2, target="variance", random_state=0, n_resamples=19).fit(varying)
    _, shares, agreements = panels(pca.plot())[-3:]
    np.testing.assert_allclose([bar.get_height() for bar in shares.patches], 100 * pca.explained_variance_ratio_)
    first, second = agreements.lines[-1].get_ydata()
    assert first > 0.9 > second >= 0


def test_how_many_components_keeps_effects_apart():
    rng = np.random.default_rng(0)
    y = rng.standard_normal((120, 2))
    pca = TensorPCA(2, target="effect", random_state=0, n_resamples=19).fit(PLAIN, y)
    tests, shares, _ = panels(pca.plot())[-3:]
    assert [tick.get_text() for tick in tests.get_xticklabels()] == ["1", "2", "1", "2"]
    assert [text.get_text() for text in tests.texts] == ["y[0]", "y[1]"]
    assert [line.get_xdata().tolist() for line in shares.lines[:2]] == [[1, 2], [3, 4]]
    titles = [axes.get_title(loc="left") for axes in panels(pca.plot())]
    assert sum("component 2, effect of y[1]" in title.replace("\n", " ") for title in titles) == 1


def test_covariates_have_their_own_scores_and_maps_and_views_and_tables_their_loadings():
    rng = np.random.default_rng(0)
    y = rng.standard_normal((120, 2))
    moved = PLAIN - TRUTH.signal() + np.multiply.outer(y[:, 1], TRUTH.signal())
    pca = TensorPCA(target="effect", random_state=0, n_resamples=199).fit(moved, y)
    drawn = panels(pca.plot(moved, y))
    np.testing.assert_array_equal(drawn[4].lines[0].get_xdata(), y[:, 0])
    np.testing.assert_array_equal(drawn[9].lines[0].get_xdata(), y[:, 1])
    best = int(np.argmax(np.abs(pca.components_[2][1])))
    assert outlined(drawn[8], pca.entry_p_values_[1][..., best] <= 0.05)
    rng = np.random.default_rng(0)
    shared = rng.standard_normal(400)
    views = [np.outer(shared, rng.standard_normal(d)) + rng.standard_normal((400, d)) for d in (4, 5)]
    cca = TensorCCA(random_state=0).fit(views)
    first, second, scores = panels(cca.plot(views))
    np.testing.assert_allclose(first.lines[-1].get_ydata(), cca.loadings_[0][0])
    np.testing.assert_allclose(second.lines[-1].get_ydata(), cca.loadings_[1][0])
    np.testing.assert_allclose(scores.lines[0].get_ydata(), cca.transform(views)[1][:, 0])


def test_many_names_are_few_bars_and_rows_and_long_axes_one_axis_and_strange_dates_are_drawn():
    rng = np.random.default_rng(0)
    genes = [f"gene {i}" for i in range(270)]
    strong = np.where(np.arange(270) % 50 == 0, 3.0, 0.0)
    cells = rng.standard_normal((30, 270, 8)) + strong[:, None]
    X = xarray.DataArray(cells, dims=("cell", "gene", "hour"), coords={"gene": genes, "cell": np.arange(30) / 2})
    pca = TensorPCA(random_state=0, n_resamples=199).fit(X)
    bars, _, cells, scores = panels(pca.plot(X))
    assert len(bars.patches) == FEW
    rows = [tick.get_text() for tick in cells.get_yticklabels()]
    assert len(rows) == len(cells.images[0].get_array()) == BARS
    assert {f"gene {i}" for i in range(0, 270, 50)} <= set(rows)
    assert scores.get_xlabel() == "cell"  # over the coordinate of the samples
    np.testing.assert_array_equal(scores.lines[0].get_xdata(), np.arange(30) / 2)
    rng = np.random.default_rng(0)
    long = rng.standard_normal((12, 5000, 2)) + np.sin(np.arange(5000) / 300)[:, None]
    drawn = panels(TensorPCA(random_state=0, n_resamples=199).fit(long).plot())
    assert len(drawn) == 3
    flat = rng.standard_normal((40, 6)) + np.arange(6)
    assert len(panels(TensorPCA(random_state=0, n_resamples=199).fit(flat).plot())) == 1
    years = np.arange(-600, 600, 40)
    dates = Labels((Axis("time", (years - 1970).astype("M8[Y]")),))
    result = TensorPCA(random_state=0, n_resamples=19).fit(PLAIN[:, 0, :, 0]).result_
    result.names = dates.as_json()
    (axes,) = panels(result.plot())
    np.testing.assert_allclose(axes.lines[-1].get_xdata(), years, atol=0.01)


def test_a_package_that_is_missing_is_named(named, monkeypatch, tmp_path):
    found = builtins.__import__

    def without(name, *rest):
        if name.partition(".")[0] in missing:
            raise ImportError(name)
        return found(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    missing = {"matplotlib"}
    with pytest.raises(TpcaError, match=r'needs matplotlib; install it with: pip install "tpca\[plots\]"'):
        named.plot()
    from tpca.report import page

    page._template.cache_clear()
    missing = {"jinja2"}
    with pytest.raises(TpcaError, match=r'needs Jinja2; install it with: pip install "tpca\[plots\]"'):
        named.report(tmp_path / "r.html")
    assert str(named.summary())
