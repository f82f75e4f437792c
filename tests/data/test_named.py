"""Objects that bring names of their own: MNE's epochs, dictionaries of arrays, data frames."""

import numpy as np
import pytest

from tpca import TensorPCA, open_stream
from tpca.errors import StreamError

CHANNELS, EVENTS = ["Fz", "Cz", "Pz", "Oz"], {"standard": 1, "target": 2}


@pytest.fixture
def epochs(rng):
    """40 epochs of 4 channels and 12 moments; targets have more at Pz."""
    mne = pytest.importorskip("mne")
    codes = rng.permutation(np.repeat([1, 2], 20))
    data = rng.standard_normal((40, 4, 12))
    data[codes == 2, 2, 4:9] += 3
    events = np.c_[100 * np.arange(40), np.zeros(40, int), codes]
    info = mne.create_info(CHANNELS, 100.0, "eeg")
    return mne.EpochsArray(data, info, events, event_id=EVENTS, verbose="error")


def same(one, other):
    for a, b in zip(one.components_, other.components_, strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(one.p_values_, other.p_values_)


def test_epochs_are_arrays_with_names_and_their_events_are_labels(epochs):
    pca = TensorPCA(target="effect", random_state=0).fit(epochs)
    assert pca.effects_ == ["target - standard"]
    found = pca.result_.to_xarray()
    assert list(found["channel"].values) == CHANNELS
    np.testing.assert_allclose(found["time"].values, epochs.times)
    assert CHANNELS[int(np.argmax(np.abs(pca.components_[0][0])))] == "Pz"
    labels = np.where(epochs.events[:, 2] == 2, "target", "standard")
    same(pca, TensorPCA(target="effect", random_state=0).fit(epochs.get_data(), labels))
    assert pca.transform(epochs).shape == (40, 1)
    mne = pytest.importorskip("mne")
    pattern = pca.inverse_transform(pca.strengths_[None])[0]
    evoked = mne.EvokedArray(pattern, epochs.info, epochs.tmin, verbose="error")
    assert evoked.get_peak(mode="abs", ch_type="eeg")[0] == "Pz"
    power = epochs.compute_tfr("morlet", freqs=[30.0, 40.0], n_cycles=1, return_itc=False, verbose="error")
    stream = open_stream(power)
    assert (stream.dims, stream.length) == ((4, 2, 12), 40)
    assert stream.labels.modes == ("channel", "frequency", "time")
    dose = np.linspace(0, 1, 40)
    epochs.metadata = pytest.importorskip("pandas").DataFrame({"dose": dose})  # y may name a column of it
    pca = TensorPCA(target="effect", random_state=0).fit(epochs, "dose")
    same(pca, TensorPCA(target="effect", random_state=0).fit(epochs.get_data(), dose))
    with pytest.raises(StreamError, match=r"'speed' is no column .*'dose'"):
        TensorPCA(target="effect").fit(epochs, "speed")


def test_an_iterable_that_is_its_own_iterator_gives_every_sample_once(rng):
    """To begin it again, as ``iter`` does with some, must not give the first sample twice."""

    class Again:
        def __init__(self, samples):
            self.samples, self.at = samples, 0

        def __iter__(self):
            self.at = 0
            return self

        def __next__(self):
            if self.at == len(self.samples):
                raise StopIteration
            self.at += 1
            return self.samples[self.at - 1]

    samples = rng.standard_normal((20, 3, 4))
    read = np.concatenate([batch.samples for batch in open_stream(Again(samples)).batches()])
    np.testing.assert_array_equal(read, samples)


def test_a_dictionary_of_arrays_of_one_shape_has_one_more_axis(rng):
    arrays = {"left": rng.standard_normal((30, 5)), "right": rng.standard_normal((30, 5))}
    pca = TensorPCA(random_state=0).fit(arrays)
    assert [row.shape for row in pca.components_] == [(1, 2), (1, 5)]
    assert "left" in pca.summary()
    same(pca, TensorPCA(random_state=0).fit(np.stack(list(arrays.values()), axis=1)))
    for other in ({}, {"a": np.zeros((5, 3))}, {"a": np.zeros((5, 3)), "b": np.zeros((5, 4))}):
        with pytest.raises(StreamError, match=r"two arrays or more .* of one shape"):
            open_stream(other)


def test_every_row_of_a_data_frame_of_numbers_is_a_sample_and_columns_have_names(rng):
    pd = pytest.importorskip("pandas")
    X, dose = rng.standard_normal((40, 3)), np.linspace(0, 1, 40)
    X[:, 1] += 3 * dose
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).rename_axis("plant")
    pca = TensorPCA(target="effect", random_state=0).fit(frame, pd.Series(dose, name="dose"))
    same(pca, TensorPCA(target="effect", random_state=0).fit(X, dose))
    assert pca.effects_ == ["dose"]
    assert pca.result_.labels.modes == ("column",)
    assert "b: " in str(pca.summary())
    np.testing.assert_array_equal(pca.transform(frame), pca.transform(X))


def test_columns_of_y_keep_their_names_and_scores_their_order(rng):
    pd = pytest.importorskip("pandas")
    y = rng.standard_normal((60, 2))
    X = rng.standard_normal((60, 4, 3)) + np.multiply.outer(y[:, 1], np.outer(np.arange(4.0), np.ones(3)))
    pca = TensorPCA(target="effect", random_state=0).fit(X, pd.DataFrame(y, columns=["age", "dose"]))
    assert pca.effects_ == ["age", "dose"]
    plain = TensorPCA(target="effect", random_state=0).fit(X, y)
    assert plain.effects_ == ["y[0]", "y[1]"]
    assert pca.score(X, y) == plain.score(X, y)
    for unused in (y[:, 0], None):  # which is said
        advice = TensorPCA().fit(X, unused).result_.advice
        assert any("does not use it" in line for line in advice) is (unused is not None)
