"""Batches or single samples: whatever form the same samples come in, the answer is that of the array, or an error."""

import re
import warnings

import numpy as np
import pytest

import command
from stream_suite import Tensor
from tpca import RaceSolver, SpikedTensor, TensorPCA, open_stream
from tpca.errors import SampleError, StreamError, StreamWarning

ALL_DIMS = {2: (6, 5), 3: (5, 4, 3), 4: (4, 3, 2, 3)}
N = 36
EITHER = r'of shape (\(.*\)) can be batches of samples .*, or single samples \1; say items="batches" or items="samples"'


class Loader:
    """What can be seen of torch's DataLoader over a TensorDataset: every item is a list of one tensor."""

    def __init__(self, data, size, says=True):
        self.items = data if size is None else np.split(data, len(data) // size)
        self.batch_size = size if says else None  # torch says None with a batch_sampler, too

    def __iter__(self):
        return ([Tensor(x)] for x in self.items)


def samples_of(order):
    truth = SpikedTensor.random(ALL_DIMS[order], 3.0, random_state=order)
    return next(iter(truth.stream(random_state=1, batch_size=N)))


@pytest.fixture(scope="module", params=ALL_DIMS, ids="order {}".format)
def data(request):
    return samples_of(request.param)


def folder_of(path, arrays):
    path.mkdir()
    for i, array in enumerate(arrays):
        np.save(path / f"{i:03d}.npy", array)
    return path


def whole(X, items=None, max_passes=None, **options):
    """The fit of X; how to read it is said to ``open_stream``, how often to the solver."""
    if items is not None:
        X = open_stream(X, items=items)
    if max_passes is not None and options["solver"] == "race":
        options["solver"] = RaceSolver(random_state=0, max_passes=max_passes)
    return TensorPCA(random_state=0, **options).fit(X)


def passing(X, **options):
    """The fit of an iterable that gives all at once: how many samples there will be is not known before the end."""
    return whole(iter([X]), items="batches", **options)


def same(one, other, bits=True):
    """The same fit; without ``bits``, up to the order in which samples are added up (cut into other batches)."""
    assert one.shape_in_ == other.shape_in_
    assert one.n_samples_seen_ == other.n_samples_seen_
    for a, b in zip([one.strengths_, *one.components_], [other.strengths_, *other.components_], strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=0 if bits else 1e-9)


ALIKE = r"(items|files in \'.*\') of shape (\(.*\)) are taken for single samples of that shape, one each; if they are "
ALIKE += r'batches of samples \(.*\), say items="batches"'


def noted(make, either):
    """``make()``, with a note where it could be two things."""
    if not either:
        return make()
    with pytest.warns(StreamWarning, match=ALIKE):
        return make()


def same_or_refused(make, expected, refused, bits=True):
    """``make()`` is the fit that is expected; or, where it could be two things, an error with both ways out."""
    if refused:
        with pytest.raises(StreamError, match=EITHER):
            make()
    else:
        same(make(), expected, bits)


SAMPLES = {
    "list": list,
    "tuple": tuple,
    "nested lists": lambda X: X.tolist(),
    "list of nested lists": lambda X: [x.tolist() for x in X],
    "list of wrapped tensors": lambda X: [(Tensor(x),) for x in X],
    "generator": lambda X: (x for x in X),
    "loader without batches": lambda X: Loader(X, None),
}
BATCHES = {
    "list": lambda X: np.split(X, 4),
    "list of one": lambda X: [X],
    "loader that does not say": lambda X: Loader(X, 9, says=False),
}


@pytest.mark.parametrize("form", SAMPLES)
@pytest.mark.parametrize("solver", ["auto", "race"])
def test_samples_in_any_form_are_the_array(data, form, solver):
    """Of order 2, or written out as numbers, they can only be samples; from order 3 on arrays could be batches, too."""
    stored = form not in ("generator", "loader without batches")  # or an iterable, which is read once
    options = {"solver": solver} if stored else {"solver": solver, "max_passes": 1}
    expected = whole(data, **options) if stored else passing(data, **options)
    either = data.ndim > 3 and "nested" not in form
    if form == "loader without batches":  # one that does not say how many it puts together
        same_or_refused(lambda: whole(SAMPLES[form](data), **options), expected, either, bits=stored)
    else:
        same(noted(lambda: whole(SAMPLES[form](data), **options), either), expected, bits=stored)
    same(whole(SAMPLES[form](data), items="samples", **options), expected, bits=stored)


@pytest.mark.parametrize("form", BATCHES)
def test_batches_of_one_length_could_be_samples(data, form):
    same_or_refused(lambda: whole(BATCHES[form](data)), None, refused=True)
    same(whole(BATCHES[form](data), items="batches"), passing(data), bits=False)
    if form == "list":  # nobody sees how long a generator is: its items are samples, and a note says so
        same(whole(iter(np.split(data, 4)), items="batches"), passing(data), bits=False)
        with pytest.warns(StreamWarning, match=ALIKE):
            stream = open_stream(iter([*np.split(data, 4), data[:5]]))
        assert stream.dims == (9, *data.shape[1:])
        with pytest.raises(SampleError, match="all samples of a stream share one shape"):
            whole(stream)


def test_what_can_only_be_batches_needs_no_word(data):
    expected = passing(data)
    for batches in (np.array_split(data, 5), tuple(np.split(data, [1, 20])), Loader(data, 9), Loader(data, 1)):
        same(whole(batches), expected, bits=False)
    same(whole(iter(data[:, None])), expected, bits=False)  # sample[None]: no mode of a sample has length one
    same(whole(iter([data[:0], data])), expected, bits=False)


def test_a_folder(data, tmp_path):
    samples, expected = folder_of(tmp_path / "f", data), whole(data)
    same(noted(lambda: whole(samples), data.ndim > 3), expected, bits=False)
    same(whole(samples, items="samples"), expected, bits=False)
    for batches in (folder_of(tmp_path / "three", np.split(data, 3)), folder_of(tmp_path / "one", [data])):
        same_or_refused(lambda batches=batches: whole(batches), None, refused=True)
        same(whole(batches, items="batches"), expected, bits=False)
    same(whole(folder_of(tmp_path / "uneven", np.array_split(data, 5))), expected, bits=False)


def fed(pieces, **options):
    pca = TensorPCA(random_state=0, **options)
    for piece in pieces:
        pca.partial_fit(piece)
    return pca


@pytest.mark.parametrize("solver", ["auto", "race"])
def test_partial_fit_takes_batches_of_any_length(data, solver):
    same(fed(data[:, None], solver=solver), whole(iter(data[:, None]), solver=solver))
    mixed = [data[:7], *data[7:20, None], data[20:].tolist()]
    same(fed(mixed, solver=solver), whole(iter(mixed), items="batches", solver=solver))
    with pytest.raises(SampleError, match=rf"{re.escape(str(data.shape[1:]))} as in the first batch"):
        fed([data[:7], data[7]], solver=solver)  # a sample is given as sample[None]
    pca = TensorPCA(random_state=0, solver=solver)
    with pytest.raises(SampleError, match="real numbers"):
        pca.partial_fit(data.astype(complex))  # which leaves no trace
    same(pca.partial_fit(data[:1]).partial_fit(data[1:]), passing(data, solver=solver), bits=False)


def test_a_fitted_estimator_knows_the_shape_of_a_sample(data, tmp_path):
    pca = whole(data)
    scores = pca.transform(data)
    forms = [*(make(data) for make in SAMPLES.values()), *(make(data) for make in BATCHES.values())]
    forms += [folder_of(tmp_path / "s", data), folder_of(tmp_path / "b", np.split(data, 3))]
    for form in forms:
        np.testing.assert_allclose(pca.transform(form), scores, rtol=1e-12)
    with pytest.raises(SampleError, match=r"give one sample as x\[None\]"):
        pca.transform(data[0])  # an array holds all samples


def test_a_list_of_samples_is_checked_and_can_be_shuffled_and_read_again():
    X = samples_of(2)
    stream = open_stream(list(X), shuffle=True, random_state=3)
    assert (stream.kind, stream.rereadable, stream.length) == ("array", True, N)
    assert stream.identity == open_stream(X, shuffle=True, random_state=3).identity
    with pytest.raises(SampleError, match=r"got \(1, 5, 6\) at sample 36; all samples of a stream share one shape"):
        open_stream([*X, X[0].T])
    with pytest.raises(SampleError, match="one dtype, expected float64, got float32 at sample 36"):
        open_stream([*X, X[0].astype(np.float32)])
    X[5, 0, 0] = np.nan
    assert whole(list(X), nan_policy="omit").n_skipped_ == 1


def test_rows_are_those_of_a_table(tmp_path):
    X = samples_of(2)[:, 0]
    expected = whole(X)
    assert expected.shape_in_ == (5,)
    for rows in (X.tolist(), list(X), folder_of(tmp_path / "rows", X)):
        same(whole(rows), expected, bits=False)
    same(whole(iter(X)), passing(X), bits=False)
    same(whole(iter([X[:20], X[20:]]), items="batches"), passing(X), bits=False)


def test_the_command_line_has_the_same_rule(tmp_path):
    folder, out = folder_of(tmp_path / "f", samples_of(3)), tmp_path / "r"
    few = folder_of(tmp_path / "few", np.split(samples_of(3), 4))
    for words in (("info",), ("fit", "--out", out, "--quiet")):
        refused = command.run(*words, few, cwd=tmp_path)
        assert refused.returncode == 2
        assert re.match(f"tpca: .*{EITHER}.*--items.*\n$", refused.stderr)
        assert not out.exists()
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            noted = command.run(*words, folder, cwd=tmp_path)
        assert noted.returncode == 0
        assert re.match(f"tpca: {ALIKE}", noted.stderr)
        again = ["--overwrite"] if "fit" in words else []
        assert command.run(*words, folder, "--items", "samples", *again, cwd=tmp_path).returncode == 0
