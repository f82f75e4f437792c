"""Topics of six thousand words, from sparse counts, without a matrix of all pairs of words.

Every document has one topic.  Pairs and triples of different words of a document have moments that are sums over
topics; contracted with vectors they cost as much as the counts have entries.  Against latent Dirichlet allocation as
scikit-learn has it, in time and in the distance of topics.

    python examples/word_topics.py [--out topics.png] [--quick]
"""

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
from scipy import sparse
from scipy.optimize import linear_sum_assignment
from sklearn.decomposition import LatentDirichletAllocation
from sklearn.exceptions import ConvergenceWarning

import tpca
from tpca.report.style import drawing

WORDS, TOPICS = 6000, 10


def corpus(n, rng, topics):
    """Counts of the words of ``n`` documents of 40 to 160 words, and the topic of each."""
    kinds = rng.integers(len(topics), size=n)
    lengths = rng.integers(40, 161, size=n)
    ends = np.cumsum(topics, axis=1)
    words = [
        np.searchsorted(ends[k], rng.random(length) * ends[k][-1]) for k, length in zip(kinds, lengths, strict=True)
    ]
    rows = np.repeat(np.arange(n), lengths)
    counts = sparse.csr_array((np.ones(len(rows)), (rows, np.concatenate(words))), shape=(n, topics.shape[1]))
    counts.sum_duplicates()
    return counts, kinds


def made_topics(rng):
    """Probabilities of words: common ones that all topics share, and their own."""
    common = 1.0 / np.arange(1, WORDS + 1)  # Zipf
    own = rng.gamma(0.05, size=(TOPICS, WORDS))
    topics = 0.3 * common / common.sum() + 0.7 * own / own.sum(axis=1, keepdims=True)
    return topics / topics.sum(axis=1, keepdims=True)


def distances(found, topics):
    """Total variation distance of every topic to the one found for it; and which that is."""
    table = np.abs(found[:, None] - topics[None]).sum(axis=2) / 2
    rows, columns = linear_sum_assignment(table)
    order = np.empty(len(topics), dtype=int)
    order[columns] = rows
    return table[order, np.arange(len(topics))], order


def timed(job):
    began = time.perf_counter()
    return job(), time.perf_counter() - began


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("word_topics.png"))
    parser.add_argument("--quick", action="store_true", help="1500 documents instead of 10 000")
    options = parser.parse_args(arguments)
    rng = np.random.default_rng(0)
    topics = made_topics(rng)
    counts, kinds = corpus(1500 if options.quick else 10_000, rng, topics)
    print(
        f"{counts.shape[0]} documents, {WORDS} words, {counts.nnz / np.prod(counts.shape):.2%} of the counts not zero"
    )

    moments, took = timed(lambda: tpca.MomentPCA(n_components=TOPICS, model="topics", random_state=0).fit(counts))
    lda, longer = timed(lambda: LatentDirichletAllocation(TOPICS, random_state=0).fit(counts))
    errors, order = distances(moments.directions_, topics)
    others, _ = distances(lda.components_ / lda.components_.sum(axis=1, keepdims=True), topics)
    assigned = np.argsort(order)[np.argmax(moments.transform(counts), axis=1)]
    print(f"topics proven: {moments.n_components_} of {TOPICS}, shares {np.round(np.sort(moments.shares_), 3)}")
    print(f"  moments: distance of topics {errors.mean():.3f} on average, at most {errors.max():.3f}")
    print(f"  LDA:     distance of topics {others.mean():.3f} on average, at most {others.max():.3f}")
    print(f"  seconds: moments {took:.1f}, LDA {longer:.1f}")
    print(f"  documents given to their topic: {np.mean(assigned == kinds):.1%}")
    print(
        f"  held at most: {moments.state_bytes_ / 1e6:.0f} MB; all pairs of words would be {8 * WORDS**2 / 1e6:.0f} MB"
    )

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        alone = corpus(1500, rng, topics.mean(axis=0, keepdims=True))[0]
        nothing = tpca.MomentPCA(n_components=3, model="topics", random_state=0).fit(alone)
    print(f"documents of one topic only: {nothing.verdict_}")
    draw(moments, topics, order, {"moments": errors, "LDA": others}, options.out)
    return {"moments": moments, "errors": errors, "others": others, "seconds": (took, longer), "nothing": nothing}


def draw(moments, topics, order, errors, out):
    with drawing() as plt:
        figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
        true, found, error = topics[0], moments.directions_[order[0]], moments.standard_errors_[order[0]]
        top = np.argsort(-true)[:30]
        left.errorbar(np.arange(30), found[top], 2 * error[top], fmt="o", ms=4, color="C0", label="moments, ±2 errors")
        left.scatter(np.arange(30), true[top], marker="_", s=90, color="C2", label="true", zorder=3)
        left.set(title="one topic", xlabel="words, the commonest first", ylabel="probability", yscale="log")
        left.legend()
        places = np.arange(len(topics))
        for shift, (name, values) in zip((-0.2, 0.2), errors.items(), strict=True):
            right.bar(places + shift, values, 0.4, label=name)
        right.set(title="how wrong every topic is", xlabel="topic", ylabel="total variation distance", xticks=places)
        right.legend()
        out.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(out, dpi=110, transparent=True)


if __name__ == "__main__":
    main()
