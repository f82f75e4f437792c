"""Slow, obvious reference versions.  They import nothing from tpca.

Blocks are given as groups of modes; a replica is a list with one array per group.
"""

import functools
import itertools
import math
import string

import numpy as np


def einsum_gradient(tensor, groups, blocks, wanted):
    """Contract one dense sample with every block but ``wanted``: the block gradient of <W_1 ⊗ ... ⊗ W_k, T>."""
    letters = string.ascii_lowercase
    operands, subscripts = [tensor], [letters[: tensor.ndim]]
    for m, (group, block) in enumerate(zip(groups, blocks, strict=True)):
        if m != wanted:
            operands.append(block)
            subscripts.append("".join(letters[n] for n in group))
    out = "".join(letters[n] for n in groups[wanted])
    return np.einsum(",".join(subscripts) + "->" + out, *operands)


def outer_product(vectors):
    """v_1 ⊗ ... ⊗ v_k."""
    return functools.reduce(np.multiply.outer, vectors)


def paper_groups(dims):
    """Modes sorted by length; odd order: the shortest alone; the rest in consecutive pairs."""
    modes = sorted(range(len(dims)), key=lambda n: (dims[n], n))
    groups = []
    if len(dims) % 2:
        groups.append((modes.pop(0),))
    while modes:
        groups.append((modes.pop(0), modes.pop(0)))
    return groups


def update(block, gradient, eta, sign=1.0):
    """Eq. update-SGA, written as it is printed."""
    reward = sign * np.sum(gradient * block)
    norm = math.sqrt(np.sum(block**2))
    return (1 + eta * reward / norm) * block + eta * norm * (sign * gradient)


def snsga(samples, groups, replica, legs, sign=1.0, halve=False):
    """SNSGA1 / SNSGA2 on one replica; ``samples`` is an iterator of dense tensors, one per step."""
    replica = [block.copy() for block in replica]
    for m in reversed(range(len(groups))):
        eta, steps = legs[m]
        decay = max(1, int(steps / math.log(steps))) if steps > 1 else 1
        for t in range(steps):
            if halve and t > 0 and t % decay == 0:
                eta = eta / 2
            unit = [b / math.sqrt(np.sum(b**2)) if i != m else b for i, b in enumerate(replica)]
            gradient = einsum_gradient(next(samples), groups, unit, m)
            replica[m] = update(replica[m], gradient, eta, sign)
        replica[m] = replica[m] / math.sqrt(np.sum(replica[m] ** 2))
    return replica


def sign_starts(shapes, random_parts):
    """All sign combinations of ±(I 0)/(2√d) ± ½ ū ū'ᵀ (pairs) and ±ū (vector block)."""
    per_block = []
    for shape, random in zip(shapes, random_parts, strict=True):
        if len(shape) == 1:
            per_block.append([random, -random])
        else:
            eye = np.zeros(shape)
            for i in range(shape[0]):
                eye[i, i] = 1 / (2 * math.sqrt(shape[0]))
            per_block.append([a * eye + b * random / 2 for a in (1, -1) for b in (1, -1)])
    return [list(start) for start in itertools.product(*per_block)]


def top_pair(matrix):
    """Top singular vectors by SVD."""
    u, _, vt = np.linalg.svd(matrix)
    return u[:, 0], vt[0]


def dense_samples(coords, values, sample, n, dims):
    """Sparse samples, built entry by entry; entries with the same coordinates add up."""
    samples = np.zeros((n, *dims))
    for place, value, j in zip(np.transpose(coords), values, sample, strict=True):
        samples[(j, *place)] += value
    return samples


def rank_one_objective(tensor, vectors):
    """<T, v_1 ⊗ ... ⊗ v_k>."""
    for v in vectors:
        tensor = np.tensordot(v, tensor, axes=1)
    return float(tensor)


def als(tensor, start, sweeps=2000):
    """Alternating least squares for rank one, one mode after the other, from one start."""
    vectors = [v / np.linalg.norm(v) for v in start]
    groups = [(n,) for n in range(tensor.ndim)]
    for _ in range(sweeps):
        before = [v.copy() for v in vectors]
        for m in range(tensor.ndim):
            gradient = einsum_gradient(tensor, groups, vectors, m)
            vectors[m] = gradient / np.linalg.norm(gradient)
        if sum(np.sum((v - w) ** 2) for v, w in zip(vectors, before, strict=True)) < 1e-18:
            break
    return vectors


def best_rank_one(tensor, starts, seed):
    """The best of ALS from the HOSVD start and from many random starts."""
    rng = np.random.default_rng(seed)
    unfolded = [np.moveaxis(tensor, m, 0).reshape(tensor.shape[m], -1) for m in range(tensor.ndim)]
    begins = [[np.linalg.svd(matrix, full_matrices=False)[0][:, 0] for matrix in unfolded]]
    begins += [[rng.standard_normal(d) for d in tensor.shape] for _ in range(starts)]
    return max((als(tensor, begin) for begin in begins), key=lambda v: rank_one_objective(tensor, v))


def rank_one(tensor, sweeps=1000):
    """Best rank-one fit of a tensor of order 3 with one dominant component: length and vectors, by plain ALS."""
    vectors = [np.linalg.svd(np.moveaxis(tensor, m, 0).reshape(tensor.shape[m], -1))[0][:, 0] for m in range(3)]
    for _ in range(sweeps):
        for m, subscripts in enumerate(("abc,b,c->a", "abc,a,c->b", "abc,a,b->c")):
            pulled = np.einsum(subscripts, tensor, *(v for i, v in enumerate(vectors) if i != m))
            vectors[m] = pulled / np.linalg.norm(pulled)
    return float(np.einsum("abc,a,b,c->", tensor, *vectors)), vectors


def state_evolution(dims, ratio, overlaps):
    """Overlaps after one iteration, at λ√N/σ = ``ratio``, from the overlaps before it."""
    q = np.asarray(overlaps, dtype=np.float64)
    fields = np.array([ratio * np.prod(np.delete(q, n)) for n in range(len(q))])
    return fields / np.sqrt(fields**2 + np.asarray(dims))


def fixed_point(dims, ratio):
    """The largest fixed point of the state evolution: overlaps that a start near the truth ends with."""
    overlaps = np.ones(len(dims))
    for _ in range(10_000):
        before, overlaps = overlaps, state_evolution(dims, ratio, overlaps)
        if np.max(np.abs(overlaps - before)) < 1e-12:
            break
    return overlaps


# Least squares, and tests by flips: everything in memory, sample by sample.


def least_squares(X, asked, nuisance=None, weights=None):
    """Coefficients (q, *dims) of the asked columns beside a constant and nuisances; ``None`` asked: the mean.

    NaN entries are left out, entry by entry.
    """
    n, flat = len(X), X.reshape(len(X), -1)
    w = np.sqrt(np.ones(n) if weights is None else np.asarray(weights, dtype=float))
    if asked is None:
        z, q = np.ones((n, 1)), 1
    else:
        columns = np.asarray(asked, dtype=float).reshape(n, -1)
        others = np.ones((n, 1)) if nuisance is None else np.column_stack([np.ones(n), nuisance])
        z, q = np.column_stack([columns, others]), columns.shape[1]
    found = np.zeros((q, flat.shape[1]))
    for e, values in enumerate(flat.T):
        seen = np.isfinite(values)
        found[:, e] = np.linalg.lstsq((w[:, None] * z)[seen], w[seen] * values[seen], rcond=None)[0][:q]
    return found.reshape(q, *X.shape[1:])


def contributions(X, y, nuisance=None):
    """What every sample adds to the estimate, ỹ(T − Aa), and ỹ; ``y=None``: the mean."""
    n = len(X)
    if y is None:
        return X.copy(), np.ones(n)
    a = np.ones((n, 1)) if nuisance is None else np.column_stack([np.ones(n), nuisance])
    left = y - a @ np.linalg.lstsq(a, y, rcond=None)[0]
    rest = X.reshape(n, -1) - a @ np.linalg.lstsq(a, X.reshape(n, -1), rcond=None)[0]
    return (left[:, None] * rest).reshape(X.shape), left


def interval(C, shares, S, quantile):
    """Strength, its interval and errors of vectors from contributions of units, of a tensor of order 3."""
    D, count = C.sum(axis=0) / S, len(C)
    length, vectors = rank_one(D)
    E = (C - np.multiply.outer(shares, D)) / S * math.sqrt(count / (count - 1))
    slopes = [
        np.einsum(term, E, *(v for i, v in enumerate(vectors) if i != m))
        for m, term in enumerate(("nabc,b,c->na", "nabc,a,c->nb", "nabc,a,b->nc"))
    ]
    error = math.sqrt(np.sum((slopes[0] @ vectors[0]) ** 2))
    tangents = [s - np.outer(s @ v, v) for s, v in zip(slopes, vectors, strict=True)]
    squared = length**2 - sum(np.sum(t**2) for t in tangents)
    reach = 2 * quantile * error * length
    strength = math.sqrt(max(squared, 0))
    ends = [math.sqrt(max(squared + s * reach, 0)) for s in (-1, 1)]
    return strength, ends, [np.sqrt(np.sum(t**2, axis=0)) / strength for t in tangents]


def flip_p(statistics):
    """p of the first of some numbers among all of them."""
    return np.mean([one >= statistics[0] * (1 - 1e-9) for one in statistics])


def variation(X, starts, count, sweeps=300):
    """Patterns of the largest variance, each after the scores of those before were taken out, and their shares."""
    Z, found = X - X.mean(axis=0), []
    total, rng = np.sum(Z**2), np.random.default_rng(0)
    for _ in range(count):
        best = (-1.0, None)
        for _ in range(starts):
            v = [u / np.linalg.norm(u) for u in (rng.standard_normal(d) for d in X.shape[1:])]
            for _ in range(sweeps):
                for m in range(len(v)):
                    slopes = Z
                    for j in reversed(range(len(v))):
                        if j != m:
                            slopes = np.tensordot(slopes, v[j], (j + 1, 0))
                    values, axes = np.linalg.eigh(slopes.T @ slopes)
                    v[m] = axes[:, -1]
            best = max(best, (values[-1], v), key=lambda pair: pair[0])
        pattern = outer_product(best[1])
        found.append((best[0] / total, best[1]))
        Z = Z - np.multiply.outer(np.tensordot(Z, pattern, X.ndim - 1), pattern)
    return found


# Sums of rank-one tensors (CP): factors are matrices (d_m, R), one for every axis.


def cp_components(factors):
    """The components as tensors, (R, d_1, ..., d_k)."""
    columns = zip(*(factor.T for factor in factors), strict=True)
    return np.array([outer_product(vectors) for vectors in columns])


def cp_model(factors):
    """The sum of all components."""
    return cp_components(factors).sum(axis=0)


def cp_jacobian(factors, ridge=0.0):
    """Derivatives of the model along every entry of every factor, axis by axis, then component by component.

    With a ridge ρ, √ρ times the components are fitted to zeros: rows of these follow.
    """
    columns = []
    for axis, factor in enumerate(factors):
        for component in range(factor.shape[1]):
            for entry in range(len(factor)):
                vectors = [other[:, component] for other in factors]
                vectors[axis] = np.eye(len(factor))[entry]
                derivative = outer_product(vectors).ravel()
                penalties = np.zeros((factor.shape[1], derivative.size))
                penalties[component] = math.sqrt(ridge) * derivative
                columns.append(np.concatenate([derivative, penalties.ravel()]) if ridge else derivative)
    return np.array(columns).T


def orthonormal_columns(matrix, rcond=1e-8):
    """An orthonormal basis of what the columns span."""
    left, sizes, _ = np.linalg.svd(matrix, full_matrices=False)
    return left[:, sizes > rcond * sizes[0]]
