"""What is known of every sample is matched with the samples by the labels of both, or refused; never in another order.

A wrong match shows in p: that of the right one is 1/(1 + resamples), that of a random one is not.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import xarray

from tpca import TensorCCA, TensorPCA, load, open_stream
from tpca.errors import SampleError

N = 80
rng = np.random.default_rng(0)
DOSE = rng.standard_normal(N)
AGE = rng.standard_normal(N)
WEIGHTS = rng.uniform(0.5, 2, N)
SUBJECTS = np.array([f"p{i}" for i in np.arange(N) // 4])
DIRECTION = np.array([1.0, -1.0, 2.0, 0.5, 0.0, 1.0])
X = rng.standard_normal((N, 6)) + 0.5 * DOSE[:, None] * DIRECTION + AGE[:, None]
ORDER = rng.permutation(N)
NAMES = np.array([f"s{i:03d}" for i in rng.permutation(N)])

# Labels of the samples, and whether a data frame makes them by itself.
LABELS = {
    "text": pd.Index(NAMES),
    "numbers": pd.Index(rng.permutation(N)),
    "counted": pd.RangeIndex(N),
    "times": pd.Index(np.datetime64("2020-01-01") + rng.permutation(N)),
    "zoned": pd.DatetimeIndex(np.datetime64("2020-01-01") + rng.permutation(N)).tz_localize("Europe/Vienna"),
    "categories": pd.CategoricalIndex(NAMES),
    "levels": pd.MultiIndex.from_arrays([np.arange(N) // 2, np.array(["a", "b"])[np.arange(N) % 2]]),
}


def effect(samples, y, **known):
    return TensorPCA(target="effect", n_resamples=199, random_state=0).fit(samples, y, **known)


def bits(pca):
    return [pca.components_[0].tobytes(), pca.p_values_.tobytes(), pca.strengths_.tobytes()]


EXPECTED = bits(effect(X, DOSE))
FULL = {"nuisance": AGE, "sample_weight": WEIGHTS, "groups": SUBJECTS}
EXPECTED_FULL = bits(effect(X, DOSE, **FULL))


@pytest.mark.parametrize("name", LABELS)
def test_all_that_is_known_of_samples_of_a_frame_is_matched_by_label(name):
    index = LABELS[name]
    frame = pd.DataFrame(X, index)
    y = pd.Series(DOSE, index)
    assert bits(effect(frame, y)) == EXPECTED
    assert bits(effect(frame, y.iloc[ORDER])) == EXPECTED
    known = {keyword: pd.Series(values, index).iloc[ORDER] for keyword, values in FULL.items()}
    assert bits(effect(frame, y, **known)) == EXPECTED_FULL
    assert bits(effect(frame, DOSE, **known)) == EXPECTED_FULL
    both = effect(frame, pd.DataFrame({"dose": DOSE, "age": AGE}, index).iloc[ORDER])
    assert both.effects_ == ["dose", "age"]
    assert bits(both) == bits(effect(X, np.column_stack([DOSE, AGE])))


def test_a_line_says_that_y_stood_in_another_order():
    frame = pd.DataFrame(X, NAMES)
    y = pd.Series(DOSE, NAMES, name="dose")
    swapped = y.iloc[[1, 0, *range(2, N)]]
    (line,) = effect(frame, swapped).result_.advice
    assert "2 of 80" in line
    assert "y.to_numpy()" in line
    assert effect(frame, y).result_.advice == []
    assert effect(frame, swapped).effects_ == ["dose"]


@pytest.mark.parametrize("dim", ["trial", "inner"])
def test_all_that_is_known_of_samples_of_a_data_array_is_matched_by_label(dim):
    trials = np.arange(N) * 5
    samples = xarray.DataArray(X.reshape(N, 2, 3), dims=("trial", "a", "b"), coords={"trial": trials})
    if dim == "inner":
        samples = samples.transpose("a", "trial", "b")
    known = {"dim": "trial"} if dim == "inner" else {}
    expected = bits(effect(X.reshape(N, 2, 3), DOSE))
    y = xarray.DataArray(DOSE, dims="trial", coords={"trial": trials})
    assert bits(effect(samples, y, **known)) == expected
    assert bits(effect(samples, y[::-1], **known)) == expected
    assert bits(effect(samples, pd.Series(DOSE, trials).iloc[ORDER], **known)) == expected
    assert bits(effect(samples, y[ORDER].drop_vars("trial")[np.argsort(ORDER)], **known)) == expected  # no labels
    covariates = xarray.DataArray([DOSE, AGE], dims=("what", "trial"), coords={"trial": trials})
    two = bits(effect(X.reshape(N, 2, 3), np.column_stack([DOSE, AGE])))
    assert bits(effect(samples, covariates[:, ORDER], **known)) == two
    assert bits(effect(samples.drop_vars("trial"), covariates, **known)) == two  # by the name of the axis


def test_stored_data_and_long_tables_have_labels_too(tmp_path):
    cube = xarray.DataArray(
        X.reshape(N, 2, 3),
        dims=("trial", "a", "b"),
        coords={"trial": ORDER * 10, "a": [0, 1], "b": [0, 1, 2]},
        name="x",
    )
    y = pd.Series(DOSE, ORDER * 10)
    expected = bits(effect(X.reshape(N, 2, 3), DOSE))
    cube.to_netcdf(tmp_path / "x.nc", engine="h5netcdf")
    table = cube.to_dataframe().reset_index()
    table.to_parquet(tmp_path / "x.parquet")
    columns = {"sample": "trial", "modes": ["a", "b"], "value": "x"}
    assert bits(effect(tmp_path / "x.nc", y.sort_index())) == expected
    in_order = np.argsort(ORDER)
    expected = bits(effect(X.reshape(N, 2, 3)[in_order], DOSE[in_order]))
    for source in (table, tmp_path / "x.parquet"):
        pca = effect(open_stream(source, **columns), y)
        assert bits(pca) == expected
        assert pca.sample_labels_.tolist() == sorted(ORDER * 10)


def test_a_dictionary_of_frames_is_matched_by_label():
    left = pd.DataFrame(X, NAMES)
    right = pd.DataFrame(X[:, ::-1], NAMES)
    expected = bits(effect({"left": X, "right": X[:, ::-1]}, DOSE))
    y = pd.Series(DOSE, NAMES)
    assert bits(effect({"left": left, "right": right.iloc[ORDER]}, y[::-1])) == expected
    with pytest.raises(SampleError, match=r"'right'.*'s0"):
        effect({"left": left, "right": right.rename(index=str.upper)}, y)


def test_batches_that_are_handed_in_are_matched_by_label():
    frame = pd.DataFrame(X, NAMES)
    y = pd.Series(DOSE, NAMES)
    plain = TensorPCA(target="effect", random_state=0)
    labelled = TensorPCA(target="effect", random_state=0)
    for part in (slice(0, 50), slice(50, N)):
        plain.partial_fit(X[part], DOSE[part])
        labelled.partial_fit(frame.iloc[part], y.iloc[part].sample(frac=1, random_state=0))
    assert bits(labelled) == bits(plain)
    assert labelled.sample_labels_ is None  # no batch has those of all samples


def test_score_and_plot_match_y_by_label():
    frame = pd.DataFrame(X, NAMES)
    y = pd.Series(DOSE, NAMES)
    pca = effect(frame, y)
    expected = pca.score(X, DOSE, nuisance=AGE)
    age = pd.Series(AGE, NAMES)
    assert repr(pca.score(frame, y.iloc[ORDER], nuisance=age[::-1])) == repr(expected)
    with pytest.raises(SampleError, match="y"):
        pca.score(frame, y.rename(index=str.upper))

    def drawn(*arguments, pca=pca):
        figure = pca.plot(*arguments)
        (panel,) = [axes for axes in figure.findobj(plt.Axes) if "score" in axes.get_ylabel()]
        points = panel.lines[0].get_xydata()
        plt.close(figure)
        return points

    np.testing.assert_array_equal(drawn(frame, y.iloc[ORDER]), drawn(X, DOSE))
    cube = xarray.DataArray(X, dims=("trial", "a"), coords={"trial": NAMES})
    np.testing.assert_array_equal(drawn(cube, y.iloc[ORDER], pca=effect(cube, y)), drawn(X, DOSE))


def test_other_labels_are_refused_in_one_sentence_with_a_way_out():
    frame = pd.DataFrame(X, NAMES)
    y = pd.Series(DOSE, NAMES)
    others = {
        "another name": y.rename(index={NAMES[3]: "q"}),
        "fewer": y.iloc[:-1],
        "more": pd.concat([y, pd.Series([0.0], ["q"])]),
        "one twice": y.rename(index={NAMES[3]: NAMES[4]}),
    }
    for other in others.values():
        with pytest.raises(SampleError, match=r"^y must .*; give y.loc\[X.index\].*y.to_numpy\(\)") as refused:
            effect(frame, other)
        assert "\n" not in str(refused.value)
    chosen = others["more"].loc[frame.index]
    assert bits(effect(frame, chosen)) == EXPECTED
    assert bits(effect(frame, others["another name"].to_numpy())) == EXPECTED
    cube = xarray.DataArray(X, dims=("trial", "a"), coords={"trial": np.arange(N)})
    later = xarray.DataArray(DOSE, dims="trial", coords={"trial": np.arange(N) + 1})
    with pytest.raises(SampleError, match=r"'0'.*y.sel\(trial=X.trial\).*y.values"):
        effect(cube, later)
    with pytest.raises(SampleError, match="groups must"):
        effect(frame, y, groups=pd.Series(SUBJECTS, NAMES).rename(index={NAMES[3]: "q"}))


def test_labels_that_occur_twice_must_be_in_the_order_of_the_samples():
    frame = pd.DataFrame(X, SUBJECTS)
    y = pd.Series(DOSE, SUBJECTS)
    assert bits(effect(frame, y)) == EXPECTED
    assert effect(frame, y, groups=y.index).found_
    with pytest.raises(SampleError, match=r"'p0' does; .*y.to_numpy\(\)"):
        effect(frame, y.iloc[ORDER])


def test_without_labels_on_both_sides_values_are_matched_by_position():
    named = pd.Series(DOSE, NAMES)
    counted = pd.Series(DOSE)
    some_rows = pd.Series(DOSE, np.arange(N) + 7)
    for samples, y in (
        (X, named.iloc[ORDER].loc[NAMES]),
        (X, some_rows),
        (pd.DataFrame(X), named),  # the index 0, 1, 2, ... that pandas makes is none beside others
        (pd.DataFrame(X, np.arange(N) + 7), counted.to_numpy()),
        (pd.DataFrame(X, NAMES), counted),
        (pd.DataFrame(X, NAMES), DOSE.tolist()),
        (pd.DataFrame(X, SUBJECTS), counted),
        (xarray.DataArray(X, dims=("trial", "a")), named),
    ):
        pca = effect(samples, y)
        assert bits(pca) == EXPECTED
        assert pca.result_.advice == []


@pytest.mark.parametrize("name", ["y", "groups"])
def test_a_line_says_so_where_only_one_side_counts_and_the_other_has_other_numbers(name):
    some_rows = np.arange(N) + 7
    known = {"y": DOSE, "groups": SUBJECTS}
    for of_samples, of_values in ((some_rows, None), (None, some_rows)):
        values = pd.Series(known[name], of_values)
        pca = effect(pd.DataFrame(X, of_samples), **{**known, name: values})
        assert bits(pca) == bits(effect(X, **known))
        (line,) = [line for line in pca.result_.advice if "by position" in line]
        assert name in line
        assert f"{name}.to_numpy()" in line


def test_rows_of_views_and_groups_are_matched_by_label():
    views_rng = np.random.default_rng(1)
    shared = views_rng.standard_normal(300)
    arrays = [np.outer(shared, views_rng.standard_normal(4)) + views_rng.standard_normal((300, 4)) for _ in range(2)]
    names = np.array([f"r{i}" for i in range(300)])
    groups = np.array([f"g{i // 3}" for i in range(300)])
    order = views_rng.permutation(300)
    frames = [pd.DataFrame(array, names) for array in arrays]
    cubes = [xarray.DataArray(array, dims=("row", "column"), coords={"row": names}) for array in arrays]
    expected = TensorCCA(random_state=0).fit(arrays, groups=groups)
    grouped = pd.Series(groups, names)
    for views in (frames, cubes, [frames[0], cubes[1]]):
        other = views[1].iloc[order] if hasattr(views[1], "iloc") else views[1][order]
        for given in ([views[0], other], {"left": views[0], "right": other}):
            cca = TensorCCA(random_state=0).fit(given, groups=grouped[::-1])
            np.testing.assert_array_equal(cca.weights_[1], expected.weights_[1])
            np.testing.assert_array_equal(cca.p_values_, expected.p_values_)
            assert cca.sample_labels_.tolist() == names.tolist()
            assert sum("another place" in line for line in cca.result_.advice) == 2
            for scores, theirs in zip(cca.transform(given), expected.transform(arrays), strict=True):
                np.testing.assert_array_equal(scores, theirs)
            assert repr(cca.score(given)) == repr(expected.score(arrays))
    plt.close(expected.plot(frames, pd.Series(shared, names)[::-1]))
    with pytest.raises(SampleError, match="y must"):
        expected.plot(frames, pd.Series(shared, names[::-1] + "x"))
    predicted = expected.predict([None, frames[1]])[0]
    np.testing.assert_array_equal(predicted, expected.predict([None, arrays[1]])[0])
    stacked = pd.concat(dict(enumerate(frames)), axis=1)
    whole = TensorCCA(random_state=0).fit(stacked, groups=grouped.iloc[order])
    np.testing.assert_array_equal(whole.weights_[1], expected.weights_[1])
    with pytest.raises(SampleError, match=r"view 1 must have a row for .*'r0'"):
        TensorCCA().fit([frames[0], frames[1].rename(index={"r0": "q"})])
    with pytest.raises(SampleError, match="groups must"):
        TensorCCA().fit(frames, groups=grouped.rename(index={"r0": "q"}))


def test_unlabelled_views_between_labelled_ones_change_nothing():
    views_rng = np.random.default_rng(2)
    arrays = [views_rng.standard_normal((60, 3)) for _ in range(3)]
    names = np.array([f"r{i}" for i in range(60)])
    order = views_rng.permutation(60)
    counted = pd.DataFrame(arrays[0])
    named = pd.DataFrame(arrays[1], names)
    moved = pd.DataFrame(arrays[2], names).iloc[order]
    expected = open_views_of(arrays)
    for first in (arrays[0], counted):
        np.testing.assert_array_equal(open_views_of([first, named, moved]), expected)


def open_views_of(views):
    from tpca.data.rows import open_views

    return np.concatenate([np.concatenate(batch.views, axis=1) for batch in open_views(views).batches()])


# What carries the labels ----------------------------------------------------------------------------------------------


def test_transform_and_the_result_carry_the_labels_of_the_samples(tmp_path):
    frame = pd.DataFrame(X, NAMES)
    y = pd.Series(DOSE, NAMES)
    pca = effect(frame, y)
    assert pca.sample_labels_.tolist() == NAMES.tolist()
    assert isinstance(pca.transform(frame), np.ndarray)  # as transformers of scikit-learn do
    pca.set_output(transform="pandas")
    scores = pca.transform(frame.iloc[ORDER])
    assert scores.index.tolist() == NAMES[ORDER].tolist()
    np.testing.assert_array_equal(scores.loc[NAMES, "tensorpca0"], pca.result_.transform(X)[:, 0])
    pca.save(tmp_path / "r")
    assert load(tmp_path / "r").sample_labels.tolist() == NAMES.tolist()

    days = np.datetime64("2020-01-01") + np.arange(N)
    cube = xarray.DataArray(X, dims=("day", "a"), coords={"day": days, "place": ("day", NAMES)})
    pca = effect(cube, DOSE)
    np.testing.assert_array_equal(pca.sample_labels_, days.astype(pca.sample_labels_.dtype))
    np.testing.assert_array_equal(pca.transform(cube[::-1]).day, days[::-1])
    assert pca.transform(cube).place.values.tolist() == NAMES.tolist()
    pca.save(tmp_path / "days")
    np.testing.assert_array_equal(load(tmp_path / "days").sample_labels, pca.sample_labels_)
    for unlabelled in (X, pd.DataFrame(X)):
        assert effect(unlabelled, DOSE).sample_labels_ is None


def test_fit_transform_aligns_y_and_keeps_the_rows_of_the_samples():
    frame = pd.DataFrame(X, NAMES)
    y = pd.Series(DOSE, NAMES)
    pca = TensorPCA(target="effect", n_resamples=199, random_state=0).set_output(transform="pandas")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scores = pca.fit_transform(frame, y.iloc[ORDER])
    assert bits(pca) == EXPECTED
    assert scores.index.tolist() == NAMES.tolist()
