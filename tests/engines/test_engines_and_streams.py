import itertools

import numpy as np
import pytest

from research.law import LawEngine
from tpca import SpikedTensor, open_stream
from tpca.engines import LocalEngine, open_engine
from tpca.errors import StreamError
from tpca.tensors import Gradients, Query, contract
from tpca.tensors.blocks import Partition

DIMS = (4, 3, 5)
TRUTH = SpikedTensor.random(DIMS, 1.0, random_state=0)


def samples(n):
    return np.concatenate(list(itertools.islice(TRUTH.stream(random_state=1, batch_size=1), n)))


def query(rng, count=3):
    partition = Partition.halves(DIMS)
    return Query(partition, tuple(rng.standard_normal((count, *shape)) for shape in partition.shapes))


@pytest.mark.parametrize("cut", [1, 3, 7, 100])
def test_rounds_take_the_samples_in_order_however_they_are_batched(cut, rng):
    data, ask = samples(20), query(rng)
    batches = [data[i : i + cut] for i in range(0, 20, cut)]
    engine = LocalEngine(open_stream(batches, items="batches"))
    first = 0
    for n in (1, 4, 10, 9):
        answered = engine.reduce(Gradients([ask]), n)
        part = data[first : first + n]
        first += n
        assert answered.n == len(part)
        expected = contract(part.mean(axis=0), ask)
        for m in expected.gradients:
            np.testing.assert_allclose(answered.answers[0].gradients[m], expected.gradients[m], rtol=1e-10, atol=1e-12)
    assert engine.reduce(Gradients([ask]), 1).n == 0


def test_an_array_can_be_read_again_and_an_iterator_cannot(rng):
    data, ask = samples(10), query(rng)
    engine = LocalEngine(data)
    assert engine.rereadable
    assert engine.length == 10
    once = engine.reduce(Gradients([ask]), 10).answers[0].rewards
    engine.rewind()
    np.testing.assert_array_equal(engine.reduce(Gradients([ask]), 10).answers[0].rewards, once)
    assert not LocalEngine(open_stream(iter([data]), items="batches")).rereadable
    assert LocalEngine(TRUTH.stream()).endless
    with pytest.raises(StreamError, match="cannot be read again"):
        LawEngine(TRUTH).rewind()


def test_law_engine_ends_and_counts(rng):
    engine = LawEngine(TRUTH, random_state=1, max_samples=10)
    assert not engine.endless
    assert engine.reduce(Gradients([query(rng)]), 7).n == 7
    assert engine.reduce(Gradients([query(rng)]), 7).n == 3
    assert engine.reduce(Gradients([query(rng)]), 7).n == 0
    assert open_engine(engine) is engine


def test_laws_of_different_signals_are_different_data():
    truths = [
        SpikedTensor.random((4, 4, 4), strength, random_state=seed) for strength, seed in ((1.0, 1), (1.0, 2), (2.0, 1))
    ]
    names = [LawEngine(truth).identity for truth in truths]
    assert len(set(names)) == 3
    assert LawEngine(truths[0]).identity == names[0]
