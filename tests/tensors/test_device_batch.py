"""What accumulators make of samples on a device is what they make of the same samples on the host; none crosses."""

from unittest import mock

import numpy as np
import pytest

from homes import ALL, CUPY, JAX, NUMPY, STRICT, TORCH, TORCH_CUDA, elsewhere, homes
from tpca import open_stream
from tpca.data import stored as device
from tpca.engines import LocalEngine, PushEngine
from tpca.errors import DeviceMemoryError, SampleError, TpcaError
from tpca.solvers.race.noise import ModeMoments
from tpca.tensors import DenseBatch, Gradients, Query, RankOne, Rewards, SampleGradients, TensorSum
from tpca.tensors.accumulators import gradient_bytes
from tpca.tensors.blocks import Partition
from tpca.tensors.namespaces import crossed

DIMS, N = (3, 4, 5), 37
RNG = np.random.default_rng(0)
SAMPLES = RNG.standard_normal((N, *DIMS)).astype(np.float32)
VECTORS = [RNG.standard_normal((2, d)) for d in DIMS]
KNOWN = RankOne(0.7, tuple(RNG.standard_normal(d) for d in DIMS))
SINGLES, PAIR = Partition.singles(DIMS), Partition(DIMS, ((2, 0), (1,)))


def query_of(partition, count=2, **more):
    return Query(partition, tuple(RNG.standard_normal((count, *s)) for s in partition.shapes), **more)


QUERIES = (
    query_of(SINGLES, 3),
    query_of(PAIR, deflate=(KNOWN,), gradients_of=(1,)),
    query_of(SINGLES, 1, by_part=(0, 1)),
)
EDGES = (0, 4, 9, 20, 33)


def answered(part):
    found = [array for answer in part.answers for array in (*answer.gradients.values(), answer.rewards)]
    parts = [answer.by_part for answer in part.answers if answer.by_part is not None]
    return found + [array for one in parts for array in (*one.gradients.values(), one.rewards)]


def told(part):
    """All numbers that an accumulator has found."""
    if isinstance(part, Gradients):
        return answered(part)
    if isinstance(part, ModeMoments):
        return list(part.moments.values())
    names = ("total", "rewards", "gradients")
    return [np.asarray(getattr(part, name)) for name in names if hasattr(part, name)]


ASKED = {
    "sum": TensorSum,
    "rewards": lambda: Rewards(VECTORS),
    "gradients": lambda: Gradients(QUERIES, 0.3, EDGES),
    "sample gradients": lambda: SampleGradients(query_of(SINGLES, 3, gradients_of=(2,))),
    "noise": lambda: ModeMoments(DIMS, (0, 2), 2**16),
    "a part of the noise": lambda: ModeMoments(DIMS, (0, 1, 2), 30),
}


def slow_jax(names):
    """Every operation is compiled by JAX: in `make test`, one accumulator says what all do."""
    quick = ("gradients",)
    for home in elsewhere():
        for name in names:
            marks = [*home.marks, *([pytest.mark.slow] if home.values[0] == JAX and name not in quick else [])]
            yield pytest.param(home.values[0], name, id=f"{home.id}-{name}", marks=marks)


@pytest.fixture
def short_batches(monkeypatch):
    monkeypatch.setattr(device, "DEVICE_BATCH_ENTRIES", 10 * int(np.prod(DIMS)))


@pytest.mark.parametrize(("home", "name"), list(slow_jax(ASKED)))
def test_accumulators_find_on_a_device_what_they_find_on_the_host(home, name, short_batches):
    blank = ASKED[name]()
    expected = LocalEngine(SAMPLES).reduce(blank, 33)
    found = LocalEngine(home.put(SAMPLES)).reduce(blank, 33)
    assert found.n == expected.n == 33
    for own, other in zip(told(found), told(expected), strict=True):
        assert isinstance(own, np.ndarray)  # float32 on both sides: sums of 33 numbers differ by rounding
        np.testing.assert_allclose(own, other, rtol=2e-4, atol=2e-5 * max(1.0, np.abs(other).max()))


def test_there_are_homes_that_are_always_tested():
    assert {str(home) for home in ALL} >= {"numpy", "array-api-strict", "jax", "torch", "torch on CUDA", "cupy"}
    assert not any(one.marks for one in homes(NUMPY, STRICT, JAX))


@pytest.mark.parametrize("home", elsewhere())
def test_a_round_brings_gradients_to_the_host_and_no_sample(home):
    """Samples of 8⁴, 50 of them; what crosses is no more than the gradients (float32 at most) and a kilobyte."""
    dims = (8, 8, 8, 8)
    samples = home.put(RNG.standard_normal((50, *dims)).astype(np.float32))
    partition = Partition.singles(dims)
    queries = (Query(partition, tuple(RNG.standard_normal((10, d)).astype(np.float32) for d in dims)),)
    engine = LocalEngine(samples)
    engine.reduce(Gradients(queries), 10)  # what is looked at once, whether samples differ, is behind
    before = crossed.nbytes
    engine.reduce(Gradients(queries), 40)
    assert crossed.nbytes - before <= gradient_bytes(queries) + 1024
    assert gradient_bytes(queries) + 1024 < 8**4 * 4  # less than a single sample


@pytest.mark.parametrize("home", homes(JAX, TORCH, TORCH_CUDA, CUPY))  # the standard has no float16
def test_samples_in_half_precision_are_added_up_in_float32(home):
    samples = 1 + RNG.random((3000 if home != JAX else 300, 2, 3))
    narrow = samples.astype(np.float16)
    total = LocalEngine(home.put(narrow)).reduce(TensorSum()).total
    assert total.dtype == np.float32
    np.testing.assert_allclose(total, narrow.sum(axis=0, dtype=np.float64), rtol=1e-5)  # float16 ends at 2048
    if home in (JAX, TORCH):
        brief = home.put(SAMPLES)
        stream = open_stream(brief.astype("bfloat16") if home == JAX else brief.bfloat16())
        assert stream.dtype == np.float32
        found = LocalEngine(stream).reduce(TensorSum()).total
        np.testing.assert_allclose(found, SAMPLES.sum(axis=0), atol=0.15)  # 37 numbers of size 1, each to 1/512


@pytest.mark.parametrize("home", homes(STRICT, TORCH))
def test_float64_stays_float64(home):
    samples = SAMPLES.astype(np.float64) + 1e-9
    total = LocalEngine(home.put(samples)).reduce(TensorSum()).total
    np.testing.assert_allclose(total, samples.sum(axis=0), rtol=1e-13, atol=1e-13)


def test_float64_of_jax_where_it_was_switched_on():
    import jax

    with jax.enable_x64(True):
        test_float64_stays_float64(JAX)
    assert JAX.put(SAMPLES.astype(np.float64)).dtype == np.float32


@pytest.mark.parametrize("home", homes(STRICT, TORCH))
def test_what_identifies_samples_is_a_few_numbers(home):
    before = crossed.nbytes
    stream = open_stream(home.put(SAMPLES))
    one, other = stream.identity, open_stream(home.put(SAMPLES + 1)).identity
    assert one != other
    assert one == open_stream(home.put(SAMPLES)).identity
    assert crossed.nbytes - before <= 3 * 64


@pytest.mark.parametrize("home", homes(STRICT, TORCH))
@pytest.mark.parametrize("policy", ["omit", "zero"])
def test_samples_with_missing_entries_are_left_out_or_filled_in_there(home, policy):
    holes = SAMPLES.copy()
    holes[3, 1, 1, 1], holes[5] = np.nan, np.inf
    expected = LocalEngine(open_stream(holes, nan_policy=policy)).reduce(TensorSum())
    engine = LocalEngine(open_stream(home.put(holes), nan_policy=policy))
    found = engine.reduce(TensorSum())
    assert (found.n, engine.n_skipped) == (expected.n, 2 if policy == "omit" else 1)
    np.testing.assert_allclose(found.total, expected.total, rtol=1e-5, atol=1e-5)


class OutOfMemoryError(RuntimeError):
    """As PyTorch says it."""


@pytest.mark.parametrize(
    ("cause", "raised", "says"),
    [
        (OutOfMemoryError("CUDA out of memory."), DeviceMemoryError, r"37 samples, 8,880 bytes, .* at most 18 samples"),
        (ZeroDivisionError(), ZeroDivisionError, "^$"),
    ],
)
def test_a_device_without_memory_says_how_many_samples_would_fit(cause, raised, says, monkeypatch):
    assert issubclass(DeviceMemoryError, TpcaError)
    assert issubclass(DeviceMemoryError, MemoryError)
    batch = DenseBatch(STRICT.put(SAMPLES))
    monkeypatch.setattr(batch, "add_to", mock.Mock(side_effect=cause))
    with pytest.raises(raised, match=says):
        PushEngine(DIMS).push(batch, TensorSum(), 37)


def test_a_missing_package_is_named(monkeypatch):
    class Tensor:
        __module__ = "torch"
        shape, ndim, device, dtype = (3, 2, 2), 3, "cpu", "torch.float16"

        def __dlpack__(self): ...

    monkeypatch.setattr("tpca.tensors.namespaces.COMPAT", ("no_such_package",))
    with pytest.raises(SampleError, match=r"torch need the package array-api-compat.*tpca\[arrays\]"):
        open_stream(Tensor())


def test_samples_that_are_no_real_numbers_are_refused():
    import array_api_strict as xp

    with pytest.raises(SampleError, match="real numbers, got dtype complex64"):
        open_stream(xp.zeros((3, 2, 2), dtype=xp.complex64))


@pytest.mark.parametrize("home", homes(NUMPY, STRICT))
def test_what_learns_the_noise_names_the_sample_that_misses_entries(home):
    holes = SAMPLES.copy()
    holes[17, 0, 1, 2] = np.nan
    with pytest.raises(SampleError, match="sample 17 contains NaN or Inf"):
        LocalEngine(home.put(holes)).reduce(ModeMoments(DIMS, (0, 1), 2**16), N)
