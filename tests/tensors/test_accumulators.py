"""Every accumulator on every engine and device: the same numbers, however samples come and wherever they are read.

Of samples on a device none crosses to the host.
"""

import ast
import copy
import itertools
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

import naive
import tpca
from homes import CUPY, JAX, NUMPY, STRICT, TORCH, TORCH_CUDA, elsewhere, homes
from research.law import LawEngine
from stream_suite import Workspace, npy, pieces, zarr_array
from tpca import SpikedTensor, open_stream
from tpca.data import open_views, stored
from tpca.data import rows as vectors
from tpca.data.rows import row_keys
from tpca.engines import DaskEngine, LocalEngine, PushEngine
from tpca.engines import base as groups
from tpca.engines.base import cut_samples
from tpca.errors import DeviceMemoryError, SampleError, StreamError, TpcaError
from tpca.inference.design import Design
from tpca.randomness import generator
from tpca.solvers import folds
from tpca.solvers.folds import FirstLook, FoldedRows, FoldMoments, Folds, contracted, held_scores
from tpca.solvers.least_squares.sums import Binning, SampleSums
from tpca.solvers.variation import Rows, slope_sums
from tpca.solvers.views import relations, rows_of, with_columns
from tpca.tensors import (
    Accumulator,
    DenseBatch,
    Gradients,
    Query,
    RankOne,
    Rewards,
    RowsBatch,
    SampleGradients,
    TensorSum,
    accumulators,
)
from tpca.tensors.accumulators import gradient_bytes
from tpca.tensors.blocks import Partition
from tpca.tensors.namespaces import crossed
from tpca.tensors.rows import BatchLists, BatchSums, scores

DIMS, N = (3, 4, 5), 37
ROWS, BATCH = 61, 10  # of views, and of a batch of them
RNG = np.random.default_rng(0)
SAMPLES = RNG.standard_normal((N, *DIMS)) + 0.5
VIEWS = [RNG.standard_normal((ROWS, d)) + 0.5 for d in DIMS]
VECTORS = [RNG.standard_normal((2, d)) for d in DIMS]
MEANS = [view.mean(axis=0) for view in VIEWS]
KNOWN = RankOne(0.7, tuple(RNG.standard_normal(d) for d in DIMS))
FOLD = np.random.default_rng(3).integers(0, 4, ROWS).astype(np.int8)  # three folds, and rows that are never held out
SINGLES, PAIR = Partition.singles(DIMS), Partition(DIMS, ((2, 0), (1,)))


def query_of(partition, count=2, dtype=np.float64, **more):
    return Query(partition, tuple(RNG.standard_normal((count, *s)).astype(dtype) for s in partition.shapes), **more)


QUERIES = (query_of(SINGLES), query_of(PAIR, 3, deflate=(KNOWN,)))
ONE = (
    query_of(SINGLES, gradients_of=(1,)),
)  # less than a sum of samples, which is contracted at the end of every group
HALF = (query_of(SINGLES, dtype=np.float16),)
PARTED = (  # a candidate's question, one of all blocks, and others that do not care
    query_of(SINGLES, 1, by_part=(), deflate=(KNOWN,)),
    query_of(SINGLES, 3),
    query_of(SINGLES, 1, by_part=(0, 1, 2)),
)
EDGES = (0, 4, 9, 20, 24, 33)
FRESH = query_of(SINGLES, 3, gradients_of=(2,))
SCALE = 0.3


def answered(part):
    return [array for answer in part.answers for array in (*answer.gradients.values(), answer.rewards)]


def gradients_of(samples, queries, scale=SCALE):
    """Of the scaled mean, without the known components."""
    found = []
    for query in queries:
        mean = scale * samples.mean(axis=0)
        for known in query.deflate:
            mean = mean - known.strength * np.einsum("a,b,c->abc", *known.vectors)
        blocks = [[block[r].astype(float) for block in query.replicas] for r in range(len(query.replicas[0]))]
        own = {m: [naive.einsum_gradient(mean, query.partition.groups, b, m) for b in blocks] for m in query.blocks}
        m = query.blocks[0]
        found += [np.stack(own[m]) for m in query.blocks]
        found.append(np.array([np.sum(g * b[m]) for g, b in zip(own[m], blocks, strict=True)]))
    return found


def parted(part):
    answers = [answer.by_part for answer in part.answers if answer.by_part is not None]
    return [*answered(part), *(a for p in answers for a in (p.sizes, *p.gradients.values(), p.rewards))]


def sub_batches_of(samples):
    """Of every sub-batch, as if it were all there is."""
    found = gradients_of(samples, PARTED)
    cut = [part for part in np.split(samples, EDGES[1:]) if len(part)]
    for query in PARTED:
        if query.by_part is not None:
            each = [gradients_of(part, [query]) for part in cut]
            gradients = [np.concatenate([one[m] for one in each]) for m in query.by_part]
            found += [np.array([float(len(part)) for part in cut]), *gradients]
            found.append(np.concatenate([one[-1] for one in each]))
    return found


def rewards_of(samples):
    return [np.einsum("nabc,ra,rb,rc->nr", samples, *VECTORS)]


def joint_scores_of(samples):
    """Least squares of every sample on both components."""
    patterns = np.einsum("ra,rb,rc->rabc", *VECTORS).reshape(2, -1)
    return [np.linalg.lstsq(patterns.T, samples.reshape(len(samples), -1).T, rcond=None)[0].T]


def sample_gradients_of(samples):
    each = [
        naive.einsum_gradient(x, SINGLES.groups, [block[j % 3] for block in FRESH.replicas], 2)
        for j, x in enumerate(samples[: N - N % 3])
    ]
    return [np.reshape(each, (N // 3, 3, DIMS[2]))]


OFFSETS = [np.array([0.1, -0.2]), np.array([0.3, 0.0]), np.array([0.2, 0.5])]


def folded(views):
    """The rows in the order of the engine: folds within batches."""
    batches = (np.arange(i, min(i + BATCH, ROWS)) for i in range(0, ROWS, BATCH))
    return np.concatenate([rows[np.argsort(FOLD[rows], kind="stable")] for rows in batches])


def products_of(views, mode=1):
    """Of one start that leaves out the second fold, and one that leaves out nothing."""
    pairs = zip(views, VECTORS, OFFSETS, strict=True)
    scores = [view @ v.T - offset for view, v, offset in pairs]
    product = np.prod([s for i, s in enumerate(scores) if i != mode], axis=0)
    product[FOLD == 1, 0] = 0
    return [product.sum(axis=0), np.array([np.sum(FOLD != 1), ROWS]), product.T @ views[mode]]


def beside_of(views):
    """The same starts, with all views and the sum of their scores."""
    total = sum(view @ v.T - offset for view, v, offset in zip(views, VECTORS, OFFSETS, strict=True))
    total[FOLD == 1, 0] = 0
    return [total.sum(axis=0), np.array([np.sum(FOLD != 1), ROWS]), *(total.T @ view for view in views)]


def fold_moments_of(rows):
    parts = [rows[fold == FOLD] for fold in range(4)]
    return [np.bincount(FOLD), np.stack([p.sum(axis=0) for p in parts]), np.stack([p.T @ p for p in parts])]


def held_scores_of(views):
    """The second fold has twice the weights."""
    rows = folded(views)
    rows = rows[FOLD[rows] < 3]
    factors = np.where(FOLD[rows] == 1, 2, 1)[:, None]
    return [rows, *(factors * (view[rows] @ v.T) for view, v in zip(views, VECTORS, strict=True))]


FACTORS = [np.random.default_rng(5).standard_normal((ROWS, 3)) for _ in DIMS]


def look_of(views):
    """Neighbours are those within a batch; columns have mean 0 and variance 1 there."""
    alike = np.zeros((len(views), 2))
    for i in range(0, ROWS, BATCH):
        for own, view in zip(alike, views, strict=True):
            z = view[i : i + BATCH]
            z = (z - z.mean(axis=0)) / np.where(z.std(axis=0) > 0, z.std(axis=0), 1)
            u = np.sum(z[1:] * z[:-1], axis=1)
            own += [u.sum(), u @ u]
    return [np.arange(ROWS), row_keys(views) >> np.uint64(12), *(view.mean(axis=0) for view in views), alike]


def relations_of(views):
    scores = np.concatenate([view @ v.T for view, v in zip(views, VECTORS, strict=True)], axis=1)
    return [scores.T @ scores, *(scores.T @ view for view in views)]


@dataclass(frozen=True)
class Case:
    """An accumulator, what is asked of it, and the same worked out in the slowest way."""

    blank: Callable[[], Accumulator]
    result: Callable[[Accumulator], list]
    naive: Callable[[object], list]
    views: bool = False
    rtol: float = 1e-12
    folds: bool = False


def sums_of(part):
    return part.sums


UNITS = [v[0] / np.linalg.norm(v[0]) for v in VECTORS]


BINNING = Binning(dealt=8, neighbours=16, stretch=8, samples=4)


def totals(part):
    """Of all samples, by bins of both kinds, and of those that were kept."""
    part.end_here()
    sums = [sum(unit.moments[0] for unit in units) for units in (part.dealt_units(), part.neighbour_units())]
    return [*sums, part.squares, np.array([len(part.kept_samples()), part.weight])]


def sums_and_squares_of(samples):
    flat = samples.reshape(len(samples), -1)
    return [flat.sum(axis=0), flat.sum(axis=0), (flat**2).sum(axis=0), np.array([4.0, len(flat)])]


def spread_of(samples):
    flat = samples.reshape(len(samples), -1)
    return [flat.mean(axis=0), np.cov(flat.T, bias=True) * len(flat)]


def slope_moment_of(samples):
    slopes = np.einsum("nabc,a,c->nb", samples - SAMPLES.mean(axis=0), UNITS[0], UNITS[2])
    return [slopes.T @ slopes]


CASES = {
    "sums of bins": Case(lambda: SampleSums(Design(), BINNING, goes_on=True), totals, sums_and_squares_of),
    "spread": Case(lambda: Rows(True, N + 1, 1), lambda p: [p.mean, p.scatter], spread_of, rtol=1e-10),
    "slope moments": Case(
        lambda: BatchSums(slope_sums, SAMPLES.mean(axis=0).ravel(), np.zeros((0, math.prod(DIMS))), [UNITS], 1),
        sums_of,
        slope_moment_of,
        rtol=1e-10,
    ),
    "sum": Case(lambda: TensorSum(), lambda p: [p.total], lambda x: [x.sum(axis=0)]),
    "gradients": Case(lambda: Gradients(QUERIES, SCALE), answered, lambda x: gradients_of(x, QUERIES)),
    "one gradient": Case(lambda: Gradients(ONE, SCALE), answered, lambda x: gradients_of(x, ONE)),
    # Rounded to 11 bits once, from sums in double precision.
    "half precision": Case(
        lambda: Gradients(HALF, SCALE), answered, lambda x: gradients_of(x, HALF), rtol=float(np.finfo(np.half).eps)
    ),
    "sub-batches": Case(lambda: Gradients(PARTED, SCALE, EDGES), parted, sub_batches_of),
    "rewards": Case(lambda: Rewards(VECTORS), lambda p: [p.rewards], rewards_of),
    "joint scores": Case(lambda: Rewards(VECTORS, [[0, 1]]), lambda p: [p.rewards], joint_scores_of),
    "sample gradients": Case(lambda: SampleGradients(FRESH), lambda p: [p.gradients], sample_gradients_of),
    "scores": Case(
        lambda: BatchLists(scores, VECTORS, MEANS),
        lambda p: p.joined(),
        lambda x: [(v - m) @ w.T for v, m, w in zip(x, MEANS, VECTORS, strict=True)],
        views=True,
    ),
    "products": Case(
        lambda: BatchSums(contracted, VECTORS, OFFSETS, np.array([1, -1]), 1),
        sums_of,
        products_of,
        views=True,
        folds=True,
    ),
    "side by side": Case(
        lambda: BatchSums(contracted, VECTORS, OFFSETS, np.array([1, -1]), None),
        sums_of,
        beside_of,
        views=True,
        folds=True,
    ),
    "scores in folds": Case(
        lambda: BatchLists(held_scores, [VECTORS, [2 * v for v in VECTORS], VECTORS]),
        lambda p: p.joined(),
        held_scores_of,
        views=True,
        folds=True,
    ),
    "moments of folds": Case(
        lambda: FoldMoments(1, DIMS[1], 3),
        lambda p: [p.counts, p.sums, p.squares],
        lambda x: fold_moments_of(x[1]),
        views=True,
        folds=True,
    ),
    "with columns": Case(
        lambda: BatchSums(with_columns, FACTORS),
        sums_of,
        lambda x: [
            *(f.T @ view for f, view in zip(FACTORS, x, strict=True)),
            *((f[:, 0] ** 2) @ view**2 for f, view in zip(FACTORS, x, strict=True)),
        ],
        views=True,
        folds=True,
    ),
    "relations": Case(lambda: BatchSums(relations, VECTORS), sums_of, relations_of, views=True, folds=True),
    "first look": Case(
        lambda: FirstLook(DIMS),
        lambda p: [p.keys[0], p.keys[1] >> np.uint64(12), *p.means, p.alike],
        look_of,
        views=True,
    ),
    "rows": Case(lambda: BatchLists(rows_of, 1), lambda p: p.joined(), lambda x: [x[1]], views=True),
}
ONE_BY_ONE = "sample gradients"  # a law draws its samples one by one
EVERY = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
STORES = ("array", "npy", "zarr", "iterable")


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Small batches and groups, so that few samples are many of them."""
    monkeypatch.setattr(stored, "BATCH_ENTRIES", 5 * SAMPLES[0].size)
    monkeypatch.setattr(stored, "FILE_SAMPLES", 1)
    monkeypatch.setattr(vectors, "BATCH_ENTRIES", BATCH * sum(DIMS))
    monkeypatch.setattr(groups, "GROUP_ENTRIES", 10 * sum(DIMS))
    monkeypatch.setattr(groups, "GROUP_SAMPLES", 2)
    monkeypatch.setattr(accumulators, "REPLICA_SAMPLES", 0.1)
    monkeypatch.setattr(folds, "GROUP_ROWS", 0.1)


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Samples and views as files."""
    work = Workspace(tmp_path_factory.mktemp("stores"))
    views = {
        "npy": [npy(view, work) for view in VIEWS],
        "zarr": [zarr_array(view, work, chunks=(BATCH, view.shape[1])) for view in VIEWS],
    }
    return {"npy": npy(SAMPLES, work), "zarr": zarr_array(SAMPLES, work, chunks=(5, *DIMS))}, views


@pytest.fixture(scope="module")
def client():
    from distributed import Client, LocalCluster

    # Workers are threads, which import nothing anew; what they are told goes through sockets all the same.
    options = {"processes": False, "protocol": "tcp://", "threads_per_worker": 1, "dashboard_address": ":0"}
    with LocalCluster(n_workers=2, silence_logs=logging.CRITICAL, **options) as cluster, Client(cluster) as client:
        yield client


def opened(case, store, places):
    """A fresh stream."""
    if case.views:
        parts = [tuple(view[i : i + BATCH] for view in VIEWS) for i in range(0, ROWS, BATCH)]
        stream = open_views({"array": VIEWS, "iterable": iter(parts), **places[1]}[store])
        return in_folds(stream) if case.folds else stream
    source = {"array": SAMPLES, "iterable": iter(pieces(SAMPLES)), **places[0]}[store]
    return open_stream(source, items="batches" if store == "iterable" else "auto")


def in_folds(stream):
    zeros = [np.zeros(d) for d in stream.dims]
    return FoldedRows(stream, Folds(FOLD, np.arange(ROWS), 3), zeros, [None] * len(zeros))


def batches_of(case):
    if case.views:
        batches = [RowsBatch([v[i : i + BATCH] for v in VIEWS], i) for i in range(0, ROWS, BATCH)]
        return list(map(in_folds(open_views(VIEWS)).made, batches)) if case.folds else batches
    return [DenseBatch(SAMPLES[i : i + 5], i) for i in range(0, N, 5)]


def close_to(found, expected, rtol):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert np.shape(one) == np.shape(other)
        # Sums of a few dozen numbers of about unit size, and products of three of them.
        np.testing.assert_allclose(np.asarray(one, float), other, rtol=rtol, atol=rtol * max(1, np.abs(other).max()))


def bits(case, part):
    return part.n, [np.asarray(array).tobytes() for array in case.result(part)]


def references(case):
    return case.naive(VIEWS if case.views else SAMPLES)


@EVERY
@pytest.mark.parametrize("store", STORES)
def test_the_local_engine(case, store, places):
    part = LocalEngine(opened(case, store, places)).reduce(case.blank())
    assert part.n == (ROWS if case.views else N)
    close_to(case.result(part), references(case), case.rtol)


@EVERY
def test_a_cluster_gives_the_bits_of_one_process(case, places, client):
    for store in ("zarr", "npy"):
        stream = opened(case, store, places)
        local, there = LocalEngine(stream), DaskEngine(client, stream)
        blank = case.blank()
        assert blank.goes_on or cut_samples(stream.layout, stream.dtype, blank, 0, None).leaves >= 4
        for n in (1, 17, None):
            assert bits(case, there.reduce(case.blank(), n)) == bits(case, local.reduce(case.blank(), n))
        assert there.reduce(case.blank()).n == local.reduce(case.blank()).n == 0


@EVERY
def test_the_push_engine(case):
    engine, blank, n = PushEngine(DIMS), case.blank(), ROWS if case.views else N
    done = [engine.push(batch, blank, n) for batch in batches_of(case)]
    assert done[:-1] == [None] * (len(done) - 1)
    close_to(case.result(done[-1]), references(case), case.rtol)


@pytest.mark.parametrize("name", ["sum", "gradients", "one gradient", "half precision", ONE_BY_ONE])
def test_the_law_engine(name):
    """One draw of the mean answers for all samples: as if each of them were the mean."""
    case, truth = CASES[name], SpikedTensor.random(DIMS, 1.5, random_state=1)

    def engine():
        return LawEngine(truth, random_state=3, max_samples=N)

    part = engine().reduce(case.blank())
    assert part.n == N
    if name == ONE_BY_ONE:
        noise = generator(3, "law").standard_normal((N, *DIMS))
        close_to(case.result(part), case.naive(noise + truth.signal()), case.rtol)
        return
    mean = engine().reduce(TensorSum()).total / N
    close_to(case.result(part), case.naive(np.broadcast_to(mean, (N, *DIMS))), case.rtol)


@pytest.mark.slow
def test_sub_batches_of_a_law_scatter_as_those_of_samples():
    """Second moments of all gradients of two queries, of sub-batches from the law and from samples.

    6000 sub-batches each; a mean of products of two variables of unit variance has a standard error of at most
    sqrt(2/6000) = 0.018, a difference of two 0.026.  24² moments: five and a half of those have a chance of 3e-5.
    """
    queries = [query_of(SINGLES, 1, by_part=(0, 1, 2)) for _ in range(2)]
    queries = [replace(q, replicas=tuple(w / np.linalg.norm(w) for w in q.replicas)) for q in queries]
    edges, rng = (0, 2, 3), np.random.default_rng(0)

    def moments(engine_of):
        rows = []
        for turn in range(2000):
            answers = engine_of(turn).reduce(Gradients(queries, 1.0, edges), 7).answers
            sizes = answers[0].by_part.sizes
            parts = [g for a in answers for g in a.by_part.gradients.values()]
            rows.append(np.sqrt(sizes)[:, None] * np.concatenate(parts, axis=1))
        return np.einsum("tja,tkb->jkab", np.array(rows), np.array(rows)) / 2000

    law = LawEngine(None, random_state=1, dims=DIMS)
    drawn = moments(lambda _: law)
    real = moments(lambda _: LocalEngine(rng.standard_normal((7, *DIMS))))
    assert np.abs(drawn - real).max() < 5.5 * math.sqrt(2 * 2 / 2000)


@pytest.mark.parametrize("name", ["rewards", "scores", "relations"])
def test_the_law_of_a_mean_refuses_what_needs_samples(name):
    with pytest.raises(StreamError, match=r"knows sums and gradients only, got .*; draw samples instead"):
        LawEngine(None, dims=DIMS, max_samples=N).reduce(CASES[name].blank())


@EVERY
def test_merging_is_associative_to_rounding(case):
    if case.blank().goes_on:
        pytest.skip("divided at stretches alone, and then exact: test_sums.py")
    parts, at = [], 0
    batches = batches_of(case)
    for some in (batches[:2], batches[2:3], batches[3:]):
        part = case.blank().fresh()
        for batch in some:
            part.add(batch, at)
            at += len(batch)
        part.close()
        parts.append(part)
    left, right = copy.deepcopy(parts), copy.deepcopy(parts)
    left[0].merge(left[1])
    left[0].merge(left[2])
    right[1].merge(right[2])
    right[0].merge(right[1])
    for part in (left[0], right[0]):
        assert part.n == at
        part.finish()
    close_to(case.result(left[0]), case.result(right[0]), case.rtol)
    close_to(case.result(left[0]), references(case), case.rtol)


@EVERY
@pytest.mark.parametrize("store", [*STORES, "dask"])
def test_going_on_from_a_position_gives_the_bits_of_an_uninterrupted_reading(case, store, places, request):
    client = request.getfixturevalue("client") if store == "dask" else None

    def engine(here=client is None):
        stream = opened(case, "zarr" if store == "dask" else store, places)
        return LocalEngine(stream) if here else DaskEngine(client, stream)

    def rest(reader):
        return [bits(case, reader.reduce(case.blank(), n)) for n in (12, None)]

    whole = engine()
    whole.reduce(case.blank(), 17)
    position = whole.position()
    expected = rest(whole)
    for again in (engine(), engine(True)):
        again.seek(position)
        assert rest(again) == expected


@pytest.mark.parametrize("name", ["sum", "gradients", "sub-batches", ONE_BY_ONE])
def test_a_law_goes_on_from_a_position(name):
    case, engine = CASES[name], LawEngine(None, random_state=1, dims=DIMS, max_samples=N)
    engine.reduce(case.blank(), 17)
    position = copy.deepcopy(engine.position())
    again = LawEngine(None, random_state=9, dims=DIMS, max_samples=N)
    again.seek(position)
    assert bits(case, again.reduce(case.blank())) == bits(case, engine.reduce(case.blank()))


def test_every_accumulator_of_the_package_is_here():
    bases = {}
    for path in Path(tpca.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                own = {base.id for base in node.bases if isinstance(base, ast.Name)}
                bases[node.name] = bases.get(node.name, set()) | own
    found = {"Accumulator"}
    for _ in itertools.repeat(None, 5):  # of subclasses, of their subclasses, ...
        found |= {name for name, own in bases.items() if own & found}
    blanks = [case.blank() for case in CASES.values()]
    assert found - {"Accumulator"} == {type(blank).__name__ for blank in blanks}


# -- samples on a device ----------------------------------------------------------------------------------------------

SINGLE = SAMPLES.astype(np.float32)


ON_DEVICES = ("sum", "rewards", "joint scores", "gradients", "sub-batches", ONE_BY_ONE)


def slow_jax(names):
    """Every operation is compiled by JAX: in `make test`, two accumulators say what all do."""
    quick = ("gradients", "sub-batches")
    for home in elsewhere():
        for name in names:
            marks = [*home.marks, *([pytest.mark.slow] if home.values[0] == JAX and name not in quick else [])]
            yield pytest.param(home.values[0], name, id=f"{home.id}-{name}", marks=marks)


@pytest.mark.parametrize(("home", "name"), list(slow_jax(ON_DEVICES)))
def test_accumulators_find_on_a_device_what_they_find_on_the_host(home, name, monkeypatch):
    monkeypatch.setattr(stored, "DEVICE_BATCH_ENTRIES", 10 * int(np.prod(DIMS)))
    case = CASES[name]
    expected, found = (LocalEngine(x).reduce(case.blank(), 33) for x in (SINGLE, home.put(SINGLE)))
    assert found.n == expected.n == 33
    for own, other in zip(case.result(found), case.result(expected), strict=True):
        assert isinstance(own, np.ndarray)  # float32 on both sides: sums of 33 numbers differ by rounding
        np.testing.assert_allclose(own, other, rtol=2e-4, atol=2e-5 * max(1.0, np.abs(other).max()))


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
        brief = home.put(SINGLE)
        stream = open_stream(brief.astype("bfloat16") if home == JAX else brief.bfloat16())
        assert stream.dtype == np.float32
        found = LocalEngine(stream).reduce(TensorSum()).total
        np.testing.assert_allclose(found, SINGLE.sum(axis=0), atol=0.15)  # 37 numbers of size 1, each to 1/512


@pytest.mark.parametrize("home", homes(STRICT, TORCH))
def test_float64_stays_float64_and_what_identifies_samples_is_a_few_numbers(home):
    samples = SINGLE.astype(np.float64) + 1e-9
    total = LocalEngine(home.put(samples)).reduce(TensorSum()).total
    np.testing.assert_allclose(total, samples.sum(axis=0), rtol=1e-13, atol=1e-13)
    before = crossed.nbytes
    one, other, again = (open_stream(home.put(x)).identity for x in (SINGLE, SINGLE + 1, SINGLE))
    assert one == again != other
    assert crossed.nbytes - before <= 3 * 64


def test_float64_of_jax_where_it_was_switched_on():
    import jax

    with jax.enable_x64(True):
        test_float64_stays_float64_and_what_identifies_samples_is_a_few_numbers(JAX)
    assert JAX.put(SINGLE.astype(np.float64)).dtype == np.float32
    assert not any(one.marks for one in homes(NUMPY, STRICT, JAX))  # which are tested everywhere


@pytest.mark.parametrize("home", homes(STRICT, TORCH))
@pytest.mark.parametrize("policy", ["omit", "zero"])
def test_samples_with_missing_entries_are_left_out_or_filled_in_there(home, policy):
    holes = SINGLE.copy()
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
    batch = DenseBatch(STRICT.put(SINGLE))
    monkeypatch.setattr(batch, "add_to", mock.Mock(side_effect=cause))
    with pytest.raises(raised, match=says):
        PushEngine(DIMS).push(batch, TensorSum(), 37)


def test_a_missing_package_is_named_and_what_is_no_real_number_refused(monkeypatch):
    import array_api_strict as xp

    with pytest.raises(SampleError, match="real numbers, got dtype complex64"):
        open_stream(xp.zeros((3, 2, 2), dtype=xp.complex64))

    class Tensor:
        __module__ = "torch"
        shape, ndim, device, dtype = (3, 2, 2), 3, "cpu", "torch.float16"

        def __dlpack__(self): ...

    monkeypatch.setattr("tpca.tensors.namespaces.COMPAT", ("no_such_package",))
    with pytest.raises(SampleError, match=r"torch need the package array-api-compat.*tpca\[arrays\]"):
        open_stream(Tensor())
