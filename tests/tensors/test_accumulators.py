"""Every accumulator on every engine: the same numbers, however the samples come and wherever they are read."""

import ast
import copy
import itertools
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

import naive
import tpca
from stream_suite import Workspace, npy, pieces, zarr_array
from tpca import SpikedTensor, open_stream
from tpca.engines import DaskEngine, LawEngine, LocalEngine, PushEngine, groups
from tpca.engines.groups import cut_samples
from tpca.errors import StreamError
from tpca.noise import EntrySizes, ModeCovariances, QueryGradients, Whitening
from tpca.randomness import generator
from tpca.solvers.mean.sums import GroupSums, SumInPlace
from tpca.solvers.moments.accumulators import BasisImage, FoldCounts, HeldScores, Products
from tpca.solvers.moments.relations import Relations
from tpca.solvers.moments.rows import InFolds, Split
from tpca.solvers.moments.symmetric_climb import ContrastSums
from tpca.solvers.moments.symmetric_sums import Part, PowerSums, TopicSums
from tpca.solvers.moments.symmetric_tables import (
    Covariances,
    PairImage,
    RowImage,
    RowMeans,
    RowScores,
    Slices,
    WordMeans,
)
from tpca.solvers.variance.accumulator import Variances
from tpca.streams import open_views, stored, table_rows, vectors
from tpca.streams.places import places_of
from tpca.streams.table_rows import open_rows
from tpca.streams.whitening import Clipper, FirstRows, ViewCovariances
from tpca.tensors import (
    Accumulator,
    Clipped,
    DenseBatch,
    Gradients,
    Observed,
    Projected,
    Projection,
    Query,
    RankOne,
    Rewards,
    SampleGradients,
    Scores,
    SliceCounts,
    TensorSum,
    Together,
    ViewsBatch,
    gradients,
)
from tpca.tensors.blocks import Partition
from tpca.tensors.projection import Basis
from tpca.tensors.rows import RowsBatch

DIMS, N = (3, 4, 5), 37
ROWS, BATCH = 61, 10  # of views, and of a batch of them
RNG = np.random.default_rng(0)
SAMPLES = RNG.standard_normal((N, *DIMS)) + 0.5
VIEWS = [RNG.standard_normal((ROWS, d)) + 0.5 for d in DIMS]
VECTORS = [RNG.standard_normal((2, d)) for d in DIMS]
VIEW_MEANS = [np.linspace(-1.0, 1.0, d) for d in DIMS]
SHORT_VECTORS = [VECTORS[0], VECTORS[1][:, 1:], VECTORS[2]]  # of projected samples
BASIS = RNG.standard_normal((sum(DIMS), 4))
MEANS = [view.mean(axis=0) for view in VIEWS]
KNOWN = RankOne(0.7, tuple(RNG.standard_normal(d) for d in DIMS))
WHITENING = Whitening.of([np.diag(np.arange(1.0, d + 1)) + 0.5 for d in DIMS])
CLIP, SPLIT = 0.8, Split.into(0.3)
PROJECTION = Projection(DIMS, (None, Basis.beside(np.ones((1, DIMS[1]))), None))
TABLE = np.random.default_rng(1).poisson(0.4, (ROWS, sum(DIMS))).astype(float)  # rows, and counts of words
WEIGHTS = np.random.default_rng(2).standard_normal((2, sum(DIMS)))
CENTRE, HELD = TABLE.mean(axis=0), Part(0.3, 5, True)
SCALES = tuple(np.linspace(0.5, 1.0, d) for d in DIMS)  # of the bound on entries
# So many samples before that those of the test change no rate.
UNEVEN = SliceCounts(DIMS, 10**15, [10**15 * np.prod(DIMS) / d * np.linspace(0.5, 1.0, d) / 0.75 for d in DIMS])
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


def evened(samples):
    return samples * np.einsum("a,b,c->abc", *UNEVEN.factors())


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


def projected_of(samples):
    """Twice the sum of samples in the basis of what is orthogonal to a constant, and rewards of their own there."""
    basis = PROJECTION.bases[1].down(np.eye(DIMS[1]), 0)
    np.testing.assert_allclose(basis @ np.ones(DIMS[1]), 0, atol=1e-15)
    np.testing.assert_allclose(basis @ basis.T, np.eye(DIMS[1] - 1), atol=1e-15)
    projected = np.einsum("ib,nabc->naic", basis, samples)
    return [2 * projected.sum(axis=0), np.einsum("nabc,ra,rb,rc->nr", projected, *SHORT_VECTORS)]


def sample_gradients_of(samples):
    each = [
        naive.einsum_gradient(x, SINGLES.groups, [block[j % 3] for block in FRESH.replicas], 2)
        for j, x in enumerate(samples[: N - N % 3])
    ]
    return [np.reshape(each, (N // 3, 3, DIMS[2]))]


def products_of(views, mode=1):
    scores = [np.clip(view @ v.T, -CLIP, CLIP) for view, v in zip(views, VECTORS, strict=True)]
    return [np.prod([s for i, s in enumerate(scores) if i != mode], axis=0).T @ views[mode]]


def in_fold(views, fold):
    """Whether a row is in a fold."""
    found = places_of(views)
    return (found >= 0.3 * fold) & (found < 0.3 * (fold + 1))


def folded_products_of(views):
    """Of one start that leaves out the second fold, and one that leaves out nothing."""
    kept = [view[~in_fold(views, 1)] for view in views]
    (first,), (second,) = products_of(kept), products_of(views)
    return [first[0], second[1], np.array([len(kept[0]), len(views[0])])]


def folded_image_of(views):
    beside = np.hstack(views)
    kept = beside[~in_fold(views, 1)]
    return [each.T @ (each @ BASIS) for each in (kept, beside)]


def clippers_of(clippers):
    return [array for c in clippers for array in (c.center, c.scale)]


def moments_of(views):
    drawn = [Clipper(view[:BATCH], 2.0)(view) for view in views]
    return [x for view in drawn for x in (view.mean(axis=0), np.cov(view.T))]


def relations_of(views):
    rows = [Clipper(view[:BATCH], 2.0)(view) - mean for view, mean in zip(views, VIEW_MEANS, strict=True)]
    scores = np.concatenate([view @ v.T for view, v in zip(rows, VECTORS, strict=True)], axis=1)
    return [scores.T @ scores, *(scores.T @ view for view in rows)]


def held_of(rows, held=True):
    """The rows of a part, row by row."""
    return rows[[len(HELD(RowsBatch(rows[i : i + 1], np.array([i])))) == held for i in range(len(rows))]]


def row_means_of(rows):
    own = held_of(rows)
    return [own.mean(axis=0), np.sum(own**2), own.min(axis=0), own.max(axis=0)]


def power_sums_of(rows, blocks=4):
    """Powers of scores, and rows times them, sub-batch by sub-batch of sixteen rows in turn."""
    powers, products = np.zeros((blocks, 7, 2)), np.zeros((blocks, 3, 2, rows.shape[1]))
    shift = np.zeros((blocks, rows.shape[1]))
    for i, x in enumerate(rows - CENTRE):
        block, y = i // 16 % blocks, WEIGHTS @ x
        powers[block] += [y**p for p in range(7)]
        products[block] += [np.outer(y**p, x) for p in (1, 2, 3)]
        shift[block] += x
    return [powers, products, shift]


def contrast_sums_of(rows):
    """Moments of three functions of the scores; rows times the scores, and times the cubes and tanh(2y)."""
    x = held_of(rows) - CENTRE
    y = x @ WEIGHTS.T
    functions = [(y**3, 3 * y**2), (np.tanh(y), np.cosh(y) ** -2.0), (np.tanh(2 * y), 2 * np.cosh(2 * y) ** -2.0)]
    moments = [[g.sum(axis=0), (g**2).sum(axis=0), (y * g).sum(axis=0), slope.sum(axis=0)] for g, slope in functions]
    chosen = np.stack([y[:, 0] ** 3, np.tanh(2 * y[:, 1])], axis=1)
    return [np.array(moments), np.stack([y.T @ x, chosen.T @ x]), x.sum(axis=0)]


def words_of(row):
    """The words of a document, one after the other."""
    return [word for word, count in enumerate(row) for _ in range(int(count))]


def different_words_of(rows, k):
    """Mean over all k-tuples of different words of a document, as a tensor of order k, for documents of k and more."""
    found = []
    for words in map(words_of, rows):
        if len(words) >= k:
            own = np.zeros((rows.shape[1],) * k)
            tuples = list(itertools.permutations(words, k))
            for some in tuples:
                own[some] += 1 / len(tuples)
            found.append(own)
    return found


def topic_sums_of(rows):
    triples = [np.einsum("abc,la,lb->lc", own, WEIGHTS, WEIGHTS) for own in different_words_of(rows, 3)]
    offset = WEIGHTS - (WEIGHTS @ CENTRE)[:, None]
    long = [row[None] for row in rows if row.sum() >= 3]
    h = np.array([np.einsum("ab,la,lb->l", *different_words_of(row, 2), offset, offset) for row in long])
    return [np.sum(triples, axis=0), np.stack([h.sum(axis=0), (h**2).sum(axis=0)])]


def covariances_of(rows):
    parts = [held_of(rows, held) for held in (False, True)]
    return [x for own in parts for x in (own.mean(axis=0), np.cov(own.T, ddof=0))]


def slices_of(rows, direction):
    z = (rows - CENTRE) @ WEIGHTS.T
    factors = np.sum(z**2, axis=1) if direction is None else z @ direction
    return [np.einsum("n,na,nb->ab", factors, z, z), np.einsum("na,na,nb->b", z, z, z)]


def pair_grams_of(samples):
    """Of whitened differences of neighbours, even and odd pairs apart; the last of 37 samples has no neighbour."""
    sums = [[np.zeros((d, d)) for d in DIMS] for _ in (0, 1)]
    fourth = 0.0
    for j in range(N // 2):
        delta = np.einsum("ia,jb,kc,abc->ijk", *WHITENING.matrices, samples[2 * j + 1] - samples[2 * j])
        delta /= np.sqrt(np.mean(delta**2))
        fourth += np.mean(delta**4)
        for i, own in enumerate(sums[j % 2]):
            rows = np.moveaxis(delta, i, 0).reshape(len(own), -1)
            own += rows @ rows.T * len(own) / delta.size
    return [*sums[0], *sums[1], np.array([9, 9]), np.array(fourth)]


def sample_rows_of(samples):
    """All gradients of both rank-one queries, mode after mode."""
    a, b, c = VECTORS
    modes = [("rb,rc->nra", b, c), ("ra,rc->nrb", a, c), ("ra,rb->nrc", a, b)]
    return [np.concatenate([np.einsum(f"nabc,{how}", samples, *v).reshape(N, -1) for how, *v in modes], axis=1)]


def clipped_of(samples):
    bound = np.einsum("a,b,c->abc", *SCALES)
    return np.minimum(np.maximum(samples, -bound), bound)


def near_logs(samples):
    """Logarithms of sizes, none farther than eight octaves from the median of its sample."""
    logs = np.log2(np.abs(samples))
    middle = np.median(logs, axis=(1, 2, 3), keepdims=True)
    return np.clip(logs, middle - 8, middle + 8)


def row_logs_of(samples):
    """Mean logarithms of rows less those of their sample, summed over samples; and the sum of the latter."""
    logs = near_logs(samples)
    means = logs.mean(axis=(1, 2, 3))
    rows = [logs.mean(axis=tuple(j for j in (1, 2, 3) if j != i)) - means[:, None] for i in (1, 2, 3)]
    return [*(row.sum(axis=0) for row in rows), np.array(means.sum())]


def entry_counts_of(samples):
    """A histogram of the logarithms of entries less the effects of their rows, in eighths of an octave, by sign."""
    counts = np.zeros((2, 161), int)
    for x, logs in zip(samples, near_logs(samples), strict=True):
        a, b, c = (logs.mean(axis=tuple(j for j in (0, 1, 2) if j != i)) for i in (0, 1, 2))
        rest = logs - a[:, None, None] - b[:, None] - c + 2 * logs.mean()
        for value, log in zip(x.ravel(), rest.ravel(), strict=True):
            counts[int(value > 0), round(8 * log) + 80] += 1
    return counts


def variances_in(part):
    """Those of every query, then of every sub-batch, and degrees of freedom."""

    def told(moments, row):
        return [moments.squares[row], moments.total, *(a[row] for a in (*moments.gradients, *moments.energies))]

    whole = [] if part.moments is None else [value for row in range(2) for value in told(part.moments, row)]
    return [*whole, *(value for one in part.by_part for value in told(one, 0)), part.freedoms]


def variances_of(samples):
    known = [v[None] for v in KNOWN.vectors]
    whole, parts, freedoms = naive.second_moments(samples, VECTORS, known, (*EDGES, N))
    return [*(value for one in whole for value in one), *(value for one in parts for value in one), freedoms]


@dataclass(frozen=True)
class Case:
    """An accumulator, what is asked of it, and the same worked out in the slowest way."""

    blank: Callable[[], Accumulator]
    result: Callable[[Accumulator], list]
    naive: Callable[[object], list]
    views: bool = False
    rtol: float = 1e-12
    table: bool = False


def view_clippers():
    return [Clipper(view[:BATCH], 2.0) for view in VIEWS]


CASES = {
    "sum": Case(lambda: TensorSum(2.0), lambda p: [p.total], lambda x: [2 * x.sum(axis=0)]),
    "sums of groups": Case(
        lambda: GroupSums(2.0, np.diff((*EDGES, N)).tolist()),
        lambda p: [np.zeros(DIMS) if part.total is None else part.total for part in p.parts],
        lambda x: [2 * x[start:stop].sum(axis=0) for start, stop in itertools.pairwise((*EDGES, N))],
    ),
    "sum in place": Case(
        lambda: SumInPlace(2.0, [np.full(DIMS, 7.0)]), lambda p: [p.total], lambda x: [2 * x.sum(axis=0)]
    ),
    "gradients": Case(lambda: Gradients(QUERIES, SCALE), answered, lambda x: gradients_of(x, QUERIES)),
    "one gradient": Case(lambda: Gradients(ONE, SCALE), answered, lambda x: gradients_of(x, ONE)),
    # Rounded to 11 bits once, from sums in double precision.
    "half precision": Case(
        lambda: Gradients(HALF, SCALE), answered, lambda x: gradients_of(x, HALF), rtol=float(np.finfo(np.half).eps)
    ),
    "sub-batches": Case(lambda: Gradients(PARTED, SCALE, EDGES), parted, sub_batches_of),
    "sub-batches of views": Case(
        lambda: Gradients(PARTED, SCALE, EDGES), parted, lambda x: sub_batches_of(naive.outer_samples(x)), views=True
    ),
    "together": Case(
        lambda: Together([TensorSum(2.0), Gradients(ONE, SCALE), Together([TensorSum()])]),
        lambda p: [p.parts[0].total, *answered(p.parts[1]), p.parts[2].parts[0].total],
        lambda x: [2 * x.sum(axis=0), *gradients_of(x, ONE), x.sum(axis=0)],
    ),
    "clipped": Case(
        lambda: Clipped([TensorSum(2.0), Gradients(ONE, SCALE), Rewards(VECTORS)], SCALES),
        lambda p: [p.parts[0].total, *answered(p.parts[1]), p.parts[2].rewards],
        lambda x: [2 * clipped_of(x).sum(axis=0), *gradients_of(clipped_of(x), ONE), *rewards_of(clipped_of(x))],
    ),
    "projected": Case(
        lambda: Projected([TensorSum(2.0), Rewards(SHORT_VECTORS)], PROJECTION),
        lambda p: [p.parts[0].total, p.parts[1].rewards],
        projected_of,
    ),
    "observed": Case(
        lambda: Observed([TensorSum(2.0), Gradients(ONE, SCALE), Rewards(VECTORS)], UNEVEN),
        lambda p: [p.parts[0].total, *answered(p.parts[1]), p.parts[2].rewards],
        lambda x: [2 * evened(x).sum(axis=0), *gradients_of(evened(x), ONE), *rewards_of(evened(x))],
    ),
    "entry sizes": Case(
        EntrySizes,
        lambda p: [p.counts, *p.rows, np.array(p.level)],
        lambda x: [entry_counts_of(x), *row_logs_of(x)],
    ),
    "rewards": Case(lambda: Rewards(VECTORS), lambda p: [p.rewards], rewards_of),
    "sample gradients": Case(lambda: SampleGradients(FRESH), lambda p: [p.gradients], sample_gradients_of),
    "mode covariances": Case(
        lambda: ModeCovariances(WHITENING),
        lambda p: [*p.grams[0], *p.grams[1], np.array(p.counts), np.array(p.fourth)],
        pair_grams_of,
        rtol=2e-6,  # sums in single precision
    ),
    "query gradients": Case(lambda: QueryGradients(VECTORS), lambda p: [p.rows], sample_rows_of),
    "variances": Case(
        lambda: Variances(VECTORS, [v[None] for v in KNOWN.vectors], (*EDGES, N)),
        variances_in,
        variances_of,
        rtol=1e-10,  # differences of products of up to 60 numbers
    ),
    "gradients of views": Case(
        lambda: Gradients(QUERIES, SCALE), answered, lambda x: gradients_of(naive.outer_samples(x), QUERIES), views=True
    ),
    "scores": Case(
        lambda: Scores([VECTORS, [v[:1] for v in VECTORS]], MEANS, 3),
        lambda p: [*p.joined(0), *p.joined(1)],
        lambda x: [(v - m)[::3] @ w[:c].T for c in (2, 1) for v, m, w in zip(x, MEANS, VECTORS, strict=True)],
        views=True,
    ),
    "count": Case(
        lambda: InFolds(FoldCounts(3), SPLIT),
        lambda p: [np.array([p.n, p.inner.n]), p.inner.held],
        lambda x: [np.array([len(x[0])] * 2), np.array([in_fold(x, fold).sum() for fold in range(3)])],
        views=True,
    ),
    "products": Case(lambda: Products(VECTORS, 1, CLIP), lambda p: [p.total], products_of, views=True),
    "image": Case(
        lambda: BasisImage(BASIS[None], DIMS),
        lambda p: [p.image[0]],
        lambda x: [np.hstack(x).T @ (np.hstack(x) @ BASIS)],
        views=True,
    ),
    "products in folds": Case(
        lambda: InFolds(Products([v[:2] for v in VECTORS], 1, CLIP, np.array([1, -1])), SPLIT),
        lambda p: [*p.inner.total, p.inner.seen],
        folded_products_of,
        views=True,
    ),
    "image in folds": Case(
        lambda: InFolds(BasisImage(np.stack([BASIS, BASIS]), DIMS, np.array([1, -1])), SPLIT),
        lambda p: list(p.inner.image),
        folded_image_of,
        views=True,
    ),
    "scores in folds": Case(
        lambda: InFolds(HeldScores([VECTORS, [2 * v for v in VECTORS], VECTORS]), SPLIT),
        lambda p: p.inner.joined(1),
        lambda x: [2 * view[in_fold(x, 1)] @ v.T for view, v in zip(x, VECTORS, strict=True)],
        views=True,
    ),
    "covariances": Case(
        lambda: ViewCovariances(DIMS, view_clippers()),
        lambda p: [x for m in p.moments for x in (m.mean, m.covariance())],
        moments_of,
        views=True,
    ),
    "relations": Case(
        lambda: Relations(VECTORS, VIEW_MEANS, view_clippers()),
        lambda p: [p.with_scores, *p.with_columns],
        relations_of,
        views=True,
    ),
    "powers": Case(
        lambda: PowerSums(WEIGHTS, CENTRE, 4, 4), lambda p: [p.powers, p.products, p.shift], power_sums_of, table=True
    ),
    "contrasts": Case(
        lambda: ContrastSums(WEIGHTS, CENTRE, np.array([0, 2]), HELD),
        lambda p: [p.moments, p.products, p.shift],
        contrast_sums_of,
        table=True,
    ),
    "topics": Case(
        lambda: TopicSums(WEIGHTS, WEIGHTS @ CENTRE),
        lambda p: [p.products[0], p.pairs],
        topic_sums_of,
        table=True,
    ),
    "row means": Case(
        lambda: RowMeans(sum(DIMS), HELD),
        lambda p: [p.mean, np.array(p.squares), np.minimum(p.low, 99), np.maximum(p.high, -99)],
        lambda x: [
            f(held_of(x)) for f in (lambda r: r.mean(0), lambda r: np.sum(r**2), lambda r: r.min(0), lambda r: r.max(0))
        ],
        table=True,
    ),
    "word means": Case(
        lambda: WordMeans(sum(DIMS)),
        lambda p: [p.mean, np.array(p.strange)],
        lambda x: [np.mean([row / row.sum() for row in x if row.sum() >= 2], axis=0), np.array(0)],
        table=True,
    ),
    "row covariances": Case(
        lambda: Covariances(sum(DIMS), (replace(HELD, held=False), HELD)),
        lambda p: [x for own in p.parts for x in (own.mean, own.second_moment)],
        covariances_of,
        table=True,
    ),
    "row image": Case(
        lambda: RowImage(WEIGHTS, CENTRE),
        lambda p: [p.image],
        lambda x: [WEIGHTS @ np.cov(x.T, ddof=0) * len(x)],
        table=True,
    ),
    "pair image": Case(
        lambda: PairImage(WEIGHTS),
        lambda p: [p.image],
        lambda x: [WEIGHTS @ np.sum(different_words_of(x, 2), axis=0)],
        table=True,
    ),
    "slices": Case(
        lambda: Slices(WEIGHTS, CENTRE, np.array([0.3, -1.0])),
        lambda p: [p.matrix, p.trace],
        lambda x: slices_of(x, np.array([0.3, -1.0])),
        table=True,
    ),
    "traces": Case(
        lambda: Slices(WEIGHTS, CENTRE, None), lambda p: [p.matrix, p.trace], lambda x: slices_of(x, None), table=True
    ),
    "row scores": Case(
        lambda: RowScores(WEIGHTS, np.zeros(sum(DIMS)), True),
        lambda p: [p.scores],
        lambda x: [x @ WEIGHTS.T / np.maximum(x.sum(axis=1, keepdims=True), 1)],
        table=True,
    ),
    "first rows": Case(
        lambda: FirstRows(2.0), lambda p: clippers_of(p.clippers), lambda x: clippers_of(view_clippers()), views=True
    ),
}
OF_FEW = ("sample gradients", "mode covariances", "query gradients")  # a law draws their samples one by one
EVERY = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
STORES = ("array", "npy", "zarr", "iterable")


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Small batches and groups, so that few samples are many of them."""
    monkeypatch.setattr(stored, "BATCH_ENTRIES", 5 * SAMPLES[0].size)
    monkeypatch.setattr(stored, "FILE_SAMPLES", 1)
    monkeypatch.setattr(vectors, "BATCH_ENTRIES", BATCH * sum(DIMS))
    monkeypatch.setattr(table_rows, "BATCH_ENTRIES", BATCH * sum(DIMS))
    monkeypatch.setattr(groups, "GROUP_ENTRIES", 10 * sum(DIMS))
    monkeypatch.setattr(groups, "GROUP_SAMPLES", 2)
    monkeypatch.setattr(gradients, "REPLICA_SAMPLES", 0.1)


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Samples and views as files."""
    work = Workspace(tmp_path_factory.mktemp("stores"))
    views = {
        "npy": [npy(view, work) for view in VIEWS],
        "zarr": [zarr_array(view, work, chunks=(BATCH, view.shape[1])) for view in VIEWS],
    }
    table = {"npy": npy(TABLE, work), "zarr": zarr_array(TABLE, work, chunks=(BATCH, sum(DIMS)))}
    return {"npy": npy(SAMPLES, work), "zarr": zarr_array(SAMPLES, work, chunks=(5, *DIMS))}, views, table


@pytest.fixture(scope="module")
def client():
    from distributed import Client, LocalCluster

    # Workers are threads, which import nothing anew; what they are told goes through sockets all the same.
    options = {"processes": False, "protocol": "tcp://", "threads_per_worker": 1, "dashboard_address": ":0"}
    with LocalCluster(n_workers=2, silence_logs=logging.CRITICAL, **options) as cluster, Client(cluster) as client:
        yield client


def opened(case, store, places):
    """A fresh stream."""
    if case.table:
        parts = [TABLE[i : i + BATCH] for i in range(0, ROWS, BATCH)]
        return open_rows({"array": TABLE, "iterable": iter(parts), **places[2]}[store])
    if case.views:
        parts = [tuple(view[i : i + BATCH] for view in VIEWS) for i in range(0, ROWS, BATCH)]
        return open_views({"array": VIEWS, "iterable": iter(parts), **places[1]}[store])
    source = {"array": SAMPLES, "iterable": iter(pieces(SAMPLES)), **places[0]}[store]
    return open_stream(source, items="batches" if store == "iterable" else "auto")


def batches_of(case):
    if case.table:
        firsts = range(0, ROWS, BATCH)
        return [RowsBatch(TABLE[i : i + BATCH], np.arange(i, min(i + BATCH, ROWS)), i) for i in firsts]
    if case.views:
        return [ViewsBatch([v[i : i + BATCH] for v in VIEWS], None, i) for i in range(0, ROWS, BATCH)]
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
    return case.naive(TABLE if case.table else VIEWS if case.views else SAMPLES)


@EVERY
@pytest.mark.parametrize("store", STORES)
def test_the_local_engine(case, store, places):
    part = LocalEngine(opened(case, store, places)).reduce(case.blank())
    assert part.n == (ROWS if case.views or case.table else N)
    close_to(case.result(part), references(case), case.rtol)


@EVERY
def test_a_cluster_gives_the_bits_of_one_process(case, places, client):
    for store in ("zarr", "npy"):
        stream = opened(case, store, places)
        local, there = LocalEngine(stream), DaskEngine(client, stream)
        assert cut_samples(stream.layout, stream.dtype, case.blank(), 0, None).leaves >= 4
        for n in (1, 17, None):
            assert bits(case, there.reduce(case.blank(), n)) == bits(case, local.reduce(case.blank(), n))
        assert there.reduce(case.blank()).n == local.reduce(case.blank()).n == 0


@EVERY
def test_the_push_engine(case):
    engine, blank, n = PushEngine(DIMS), case.blank(), ROWS if case.views or case.table else N
    done = [engine.push(batch, blank, n) for batch in batches_of(case)]
    assert done[:-1] == [None] * (len(done) - 1)
    close_to(case.result(done[-1]), references(case), case.rtol)


@pytest.mark.parametrize("name", ["sum", "gradients", "one gradient", "half precision", "together", *OF_FEW])
def test_the_law_engine(name):
    """One draw of the mean answers for all samples: as if each of them were the mean."""
    case, truth = CASES[name], SpikedTensor.random(DIMS, 1.5, random_state=1)

    def engine():
        return LawEngine(truth, random_state=3, max_samples=N)

    part = engine().reduce(case.blank())
    assert part.n == N
    if name in OF_FEW:
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


@pytest.mark.parametrize("name", ["rewards", "scores", "covariances"])
def test_the_law_of_a_mean_refuses_what_needs_samples(name):
    with pytest.raises(StreamError, match=r"knows sums and gradients only, got .*; draw samples instead"):
        LawEngine(None, dims=DIMS, max_samples=N).reduce(CASES[name].blank())


@EVERY
@pytest.mark.parametrize("closing", [False, True])
def test_merging_is_associative_to_rounding(case, closing):
    parts, at = [], 0
    batches = batches_of(case)
    for some in (batches[:2], batches[2:3], batches[3:]):
        part = case.blank().fresh()
        for batch in some:
            part.add(batch, at)
            at += len(batch)
        if closing:
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


@pytest.mark.parametrize("name", ["sum", "gradients", "together", "sub-batches", *OF_FEW])
def test_a_law_goes_on_from_a_position(name):
    case, engine = CASES[name], LawEngine(None, random_state=1, dims=DIMS, max_samples=N)
    engine.reduce(case.blank(), 17)
    position = copy.deepcopy(engine.position())
    again = LawEngine(None, random_state=9, dims=DIMS, max_samples=N)
    again.seek(position)
    assert bits(case, again.reduce(case.blank())) == bits(case, engine.reduce(case.blank()))


@EVERY
def test_what_a_worker_leaves_behind_is_taken_up_again(case):
    """A question travels once, and what comes back has none."""
    part = case.blank().fresh()
    part.add(batches_of(case)[0], 0)
    part.forget()
    assert part.question is None
    part.recall(case.blank())
    part.finish()
    assert all(np.isfinite(np.asarray(array, float)).all() for array in case.result(part))


def test_every_accumulator_of_the_package_is_here():
    bases = {}
    for path in Path(tpca.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                bases[node.name] = {base.id for base in node.bases if isinstance(base, ast.Name)}
    found = {"Accumulator"}
    for _ in itertools.repeat(None, 5):  # of subclasses, of their subclasses, ...
        found |= {name for name, own in bases.items() if own & found}
    blanks = [case.blank() for case in CASES.values()]
    assert found - {"Accumulator", "OfRows"} == {  # the latter has no sums of its own
        type(part).__name__ for blank in blanks for part in (blank, getattr(blank, "inner", blank))
    }
