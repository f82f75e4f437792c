"""One suite for batches of every kind: what they answer is what the samples, built one by one, say."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import naive
from homes import JAX, NUMPY, STRICT, homes
from tpca.errors import StreamError
from tpca.tensors import DenseBatch, Gradients, Query, RankOne, SlabBatch, SparseBatch, TensorSum
from tpca.tensors.blocks import Partition

# Rounding of sums of up to a few thousand terms of size about 1 each; half precision is that of the replicas.
TOLERANCE = {np.float16: 2e-2, np.float32: 2e-4, np.float64: 1e-9}


def dense(rng, dims, n, dtype):
    samples = rng.standard_normal((n, *dims)).astype(dtype)
    return DenseBatch(samples), samples


def device(rng, dims, n, dtype):
    samples = rng.standard_normal((n, *dims)).astype(dtype)
    return DenseBatch(STRICT.put(samples)), samples


def slabs(rng, dims, n, dtype):
    samples = rng.standard_normal((n, *dims)).astype(dtype)
    mode = int(rng.integers(len(dims)))
    cuts = sorted({0, int(rng.integers(1, dims[mode])), dims[mode]})
    parts = [slice(a, b) for a, b in itertools.pairwise(cuts)]
    return slabs_of(samples, mode, parts), samples


def slabs_of(samples, mode, parts, reads=None):
    """Samples in memory as if they were read slab by slab."""

    def read(index, part):
        if reads is not None:
            reads.append((index, part.start, part.stop))
        return np.ascontiguousarray(samples[index][(slice(None),) * mode + (part,)])

    return SlabBatch(samples.shape[1:], mode, parts, np.arange(len(samples)), read)


def sparse(rng, dims, n, dtype):
    entries = int(rng.integers(0, 12 * n))  # some fall on the same place
    coords = np.stack([rng.integers(0, d, entries) for d in dims])
    parts = coords, rng.standard_normal(entries).astype(dtype), np.sort(rng.integers(0, n, entries)), n, dims
    return SparseBatch(*parts), naive.dense_samples(*parts)


KINDS = (dense, device, slabs, sparse)
every_kind = pytest.mark.parametrize("kind", KINDS)
shapes = st.lists(st.integers(2, 5), min_size=2, max_size=4).map(tuple)


@st.composite
def questions(draw, dims, rng):
    """A partition of any kind, replicas of any dtype, known components, some of the blocks."""
    modes = draw(st.permutations(range(len(dims))))
    cuts = sorted(draw(st.sets(st.integers(1, len(dims) - 1), max_size=len(dims) - 1)))
    groups = tuple(tuple(modes[a:b]) for a, b in itertools.pairwise([0, *cuts, len(dims)]))
    partition, count = Partition(dims, groups), draw(st.integers(1, 4))
    store = draw(st.sampled_from([np.float16, np.float32, np.float64]))
    replicas = tuple((rng.standard_normal((count, *shape)) / 2).astype(store) for shape in partition.shapes)
    wanted = draw(st.none() | st.sets(st.integers(0, len(partition) - 1), min_size=1).map(sorted).map(tuple))
    known = [
        RankOne(float(rng.uniform(-3, 3)), tuple(rng.standard_normal(d) for d in dims))
        for _ in range(draw(st.integers(0, 2)))
    ]
    return Query(partition, replicas, wanted, tuple(known))


@every_kind
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_gradients_and_rewards_are_those_of_the_mean_however_the_samples_are_cut(kind, data):
    dims, n = data.draw(shapes), data.draw(st.integers(1, 5))
    dtype, scale = data.draw(st.sampled_from([np.float32, np.float64])), data.draw(st.sampled_from([1.0, 0.25, -3.0]))
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    batch, samples = kind(rng, dims, n, dtype)
    queries = [data.draw(questions(dims, rng)) for _ in range(data.draw(st.integers(1, 3)))]
    cut = data.draw(st.integers(0, n))
    kept = Gradients(queries, scale)
    for part in (batch[:cut], batch[cut:]):
        if len(part):
            kept.add(part)
    assert kept.n == n
    kept.finish()
    for query, answer in zip(queries, kept.answers, strict=True):
        mean = scale * samples.astype(np.float64).mean(axis=0)
        for known in query.deflate:
            mean = mean - known.strength * naive.outer_product(known.vectors)
        assert list(answer.gradients) == list(query.blocks)
        assert answer.rewards.dtype == np.float64
        for r, m in itertools.product(range(len(query.replicas[0])), query.blocks):
            blocks = [block[r].astype(np.float64) for block in query.replicas]
            expected = naive.einsum_gradient(mean, query.partition.groups, blocks, m)
            store = query.replicas[m].dtype.type
            assert answer.gradients[m].dtype == store
            error = 3 * max(TOLERANCE[store], TOLERANCE[dtype]) * (1 + np.abs(expected).max())
            np.testing.assert_allclose(answer.gradients[m][r].astype(float), expected, atol=error)
            reward = np.sum(expected * blocks[m])
            np.testing.assert_allclose(answer.rewards[r], reward, atol=30 * TOLERANCE[dtype] * (1 + abs(reward)))


@every_kind
@settings(max_examples=20, deadline=None)
@given(
    st.integers(1, 20),
    st.sets(st.integers(1, 22), max_size=5).map(sorted),
    st.sets(st.integers(1, 19), max_size=3).map(sorted),
    st.booleans(),
    st.integers(0, 999),
)
def test_sub_batches_are_answered_as_if_each_were_all_there_is(kind, n, edges, cuts, deflated, seed):
    rng, dims = np.random.default_rng(seed), (3, 4, 5)
    batch, _ = kind(rng, dims, n, np.float64)
    known = (RankOne(0.7, tuple(rng.standard_normal(d) for d in dims)),) if deflated else ()
    blocks = tuple(rng.standard_normal((1, d)) for d in dims)
    query = Query(Partition.singles(dims), blocks, deflate=known, by_part=(0, 1, 2))
    whole = Gradients([query], 0.5, (0, *edges))
    for start, stop in itertools.pairwise([0, *(cut for cut in cuts if cut < n), n]):
        whole.add(batch[start:stop], start)
    whole.finish()
    (found,) = whole.answers
    limits = [edge for edge in (0, *edges) if edge < n] + [n]
    assert len(found.by_part.sizes) == len(limits) - 1
    for j, (start, stop) in enumerate(itertools.pairwise(limits)):
        alone = Gradients([query], 0.5)
        alone.add(batch[start:stop])
        alone.finish()
        assert found.by_part.sizes[j] == stop - start
        # Differences of sums of up to 20 terms of size about 10.
        np.testing.assert_allclose(found.by_part.rewards[j], alone.answers[0].rewards[0], atol=1e-10)
        for m in range(3):
            expected = alone.answers[0].gradients[m][0]
            np.testing.assert_allclose(found.by_part.gradients[m][j], expected, atol=1e-10)
    assert found.by_part.sizes @ found.by_part.rewards / n == pytest.approx(found.rewards[0], abs=1e-10)


@every_kind
@settings(max_examples=20, deadline=None)
@given(shapes, st.integers(1, 6), st.integers(-3, 8), st.integers(-3, 8), st.integers(0, 999))
def test_slices_sums_scores_and_places(kind, dims, n, start, stop, seed):
    rng, some = np.random.default_rng(seed), slice(start, stop)
    batch, samples = kind(rng, dims, n, np.float64)
    vectors, weights = [rng.standard_normal((2, d)) for d in dims], rng.standard_normal((n, 3))
    part, expected = batch[some], samples[some]
    assert len(part) == len(expected)
    letters = "abcd"[: len(dims)]
    rewards = np.einsum(f"n{letters},{','.join('z' + x for x in letters)}->nz", expected, *vectors)
    np.testing.assert_allclose(part.scores(vectors), rewards, atol=1e-10 * (1 + np.abs(samples).max()))
    assert part.places.tolist() == list(range(n))[some]
    if len(expected):
        kept = TensorSum()
        kept.add(part)
        kept.finish()
        np.testing.assert_allclose(kept.total, expected.sum(axis=0), atol=1e-10)
        assert part.nbytes > 0 or kind is sparse
        total = part.weighted_sums(weights[some])
        np.testing.assert_allclose(total, np.tensordot(weights[some].T, expected, 1), atol=1e-10)
        found = np.zeros(expected.shape)
        for place, piece, _ in part.dense_pieces(30):
            found[place] += piece
        np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("kind", [dense, device, slabs])
def test_every_replica_gets_the_sample_whose_turn_it_is(kind, rng):
    dims, count = (3, 4, 2, 5), 3
    batch, samples = kind(rng, dims, 7, np.float64)
    partition = Partition.pairs(dims)
    replicas = tuple(rng.standard_normal((count, *shape)) for shape in partition.shapes)
    for m in range(len(partition)):
        found = batch[2:].sample_gradients(Query(partition, replicas, gradients_of=(m,)), 2)
        for j in range(2, 7):
            expected = naive.einsum_gradient(samples[j], partition.groups, [w[j % count] for w in replicas], m)
            np.testing.assert_allclose(found[j - 2], expected, atol=1e-10)
    never_built, _ = sparse(rng, dims, 5, np.float64)
    with pytest.raises(StreamError, match="PaperSolver needs samples one by one"):
        never_built.sample_gradients(Query(partition, replicas, gradients_of=(0,)), 0)


@every_kind
def test_content_tells_samples_apart(kind):
    def told(seed):
        batch, _ = kind(np.random.default_rng(seed), (3, 4), 5, np.float64)
        return [array.tobytes() for array in batch.content()]

    assert told(1) == told(1)
    assert told(1) != told(2)


@pytest.mark.parametrize("home", homes(NUMPY, STRICT, JAX))
def test_samples_in_another_order_keep_their_places(home, rng):
    samples = rng.standard_normal((6, 3, 2)).astype(home.dtype)
    exposure = rng.random(samples.shape) < 0.5
    turn = np.array([4, 0, 5])
    batch = DenseBatch(home.put(samples), 10, exposure=home.put(exposure)).taken(turn)
    assert batch.places.tolist() == [14, 10, 15]
    ((_, found, seen),) = batch.dense_pieces()
    np.testing.assert_array_equal(found, samples[turn])
    np.testing.assert_array_equal(seen, exposure[turn])
    ones = np.ones((3, 1))
    np.testing.assert_array_equal(batch.observed_sums(ones)[0], exposure[turn].sum(axis=0))
    batch.moved(5)
    assert batch[1:].places.tolist() == [15, 20]


@pytest.mark.parametrize("put", [np.asarray, STRICT.put, None], ids=["host", "device", "slabs"])
def test_scores_of_samples_with_missing_entries_are_those_of_least_squares_over_the_others(put, rng):
    samples, seen = rng.standard_normal((4, 3, 5)), rng.random((4, 3, 5)) < 0.7
    seen[3] = False
    vectors = [rng.standard_normal((2, d)) for d in (3, 5)]
    filled = np.where(seen, samples, 0.0)
    if put is None:
        parts, places = [slice(0, 2), slice(2, 5)], np.arange(4)
        batch = SlabBatch(
            (3, 5), 1, parts, places, lambda i, p: filled[i][:, p], observed=lambda i, p: seen[i][:, p] * 1.0
        )
    else:
        batch = DenseBatch(put(filled), exposure=put(seen))
    for c in range(2):
        pattern = np.outer(vectors[0][c], vectors[1][c])
        unit = np.sum(pattern**2)
        for j in range(4):
            left = seen[j] * pattern
            expected = np.sum(samples[j] * left) / np.sum(left**2) * unit if seen[j].any() else np.nan
            np.testing.assert_allclose(batch.scores(vectors)[j, c], expected, rtol=1e-10)


def test_every_slab_is_read_once_whatever_is_asked():
    samples, reads = np.random.default_rng(0).standard_normal((3, 4, 5)), []
    batch = slabs_of(samples, 1, [slice(0, 2), slice(2, 5)], reads)
    query = Query(Partition.singles((4, 5)), tuple(np.ones((7, d)) for d in (4, 5)))
    Gradients([query] * 5).add(batch)
    assert sorted(reads) == sorted((i, a, b) for i in range(3) for a, b in [(0, 2), (2, 5)])
    # What is in flight: the sum of a slab, the slab that is added, and a copy, each of 4 x 3 numbers of 8 bytes.
    assert batch.nbytes == 3 * 8 * 4 * 3


# -- what sums of gradients keep and give, beside the answers themselves ----------------------------------------------

DIMS = (3, 4, 5)


def answered(batches, count=2, dtype=np.float64, scale=1.0):
    rng = np.random.default_rng(1)
    replicas = tuple(rng.standard_normal((count, d)).astype(dtype) for d in DIMS)
    kept = Gradients([Query(Partition.singles(DIMS), replicas)], scale)
    for batch in batches:
        kept.add(batch)
    kept.finish()
    return kept.answers[0]


@pytest.mark.parametrize("kind", [dense, sparse])
def test_what_does_not_fit_into_half_precision_is_infinite_and_not_a_warning(kind):
    answer = answered([kind(np.random.default_rng(0), DIMS, 5, np.float64)[0]], 2, np.float16, 1e8)
    assert all(np.isinf(g).any() for g in answer.gradients.values())
    assert np.isfinite(answer.rewards).all()
    assert answer.nbytes == 2 * (3 + 4 + 5) * 2 + 2 * 8


def test_bytes_are_those_of_the_arrays_held_and_a_closed_group_holds_the_smaller(rng):
    query = Query(Partition.singles(DIMS), tuple(rng.standard_normal((3, d)).astype(np.float16) for d in DIMS))
    for dtype in (np.float32, np.float64):
        kept = Gradients([query])
        assert kept.nbytes == 0
        kept.add(dense(rng, DIMS, 4, dtype)[0])
        assert kept.nbytes == 60 * np.dtype(dtype).itemsize
        kept.close()  # 36 numbers in float64 are 288 bytes: less than a sum in double precision, more than in single
        assert kept.nbytes == min(288, 60 * np.dtype(dtype).itemsize)
    slow = Gradients([query, query])
    slow.add(sparse(rng, DIMS, 1, np.float64)[0])
    assert slow.nbytes == 2 * 8 * 3 * (3 + 4 + 5)


def test_a_sum_of_many_samples_in_single_precision_stays_accurate_and_changes_none(rng):
    # 4000 numbers with mean 10 and unit spread in batches of 40: a plain running sum in float32 errs by about
    # sqrt(100) * 2^-24 relative, 6e-7; 1e-5 is far beyond, and far below what the noise of the mean (2e-3) would show.
    samples = rng.standard_normal((4000, *DIMS)).astype(np.float32) + np.float32(10)
    before, samples.flags.writeable = samples.copy(), False
    answer = answered([DenseBatch(samples[i : i + 40]) for i in range(0, 4000, 40)], 1)
    exact = answered([DenseBatch(samples.astype(np.float64))], 1)
    np.testing.assert_allclose(answer.rewards, exact.rewards, rtol=1e-5, atol=1e-4)
    for n in (1, 2, 7):
        answered([DenseBatch(samples[:1]), DenseBatch(samples[1:n])], scale=3.0)
    np.testing.assert_array_equal(samples, before)
