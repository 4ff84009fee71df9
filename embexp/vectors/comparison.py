"""How alike several sets of vectors of the same tokens are, whatever way each of them is turned.

Of vectors that were trained twice, neither the directions of axes nor lengths need be the same; who is near to whom
should be. So neighbors are compared, and rows after the one rotation that brings both sets closest together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from embexp.errors import DataError, plural
from embexp.system.parallel import Progress, part, quiet
from embexp.vectors.neighbors import directions, nearest_rows

_BLOCK_BYTES = 16 * 1024 * 1024
_NORMAL = 1.959963984540054
"""97.5% of a normal distribution are below."""
_EDGES = (0, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000, 1 << 62)
"""Ranks at which bands of frequency begin, and the end of the last one."""


@dataclass(frozen=True)
class Vectors:
    """Vectors by token, frequent tokens first.

    Attributes:
        values: float32 [rows, dim]; may be mapped from a file.
        tokens: of each row; None: rows are known by number.
    """

    name: str
    values: np.ndarray
    tokens: pa.Array | None


@dataclass(frozen=True)
class Shape:
    """How one set of vectors lies in its space, over the shared tokens.

    Attributes:
        rows: of all.
        mean_norm: mean length of the shared rows.
        mean_cosine: of all pairs of different rows; 0 of vectors that point everywhere alike.
        effective_dim: participation ratio of the eigenvalues of the covariance, (Σλ)² / Σλ²: `dim` if all directions
            have the same variance, 1 if one has all.
        first_share: share of the variance along the first principal component.
        norm_by_rank: Spearman correlation of a row's length with its number; None if all lengths are equal.
    """

    name: str
    rows: int
    dim: int
    mean_norm: float
    mean_cosine: float
    effective_dim: float
    first_share: float
    norm_by_rank: float | None


@dataclass(frozen=True)
class Mean:
    """A mean with its 95% interval; None: there is none."""

    mean: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Moved:
    """A token, and how far its row moved."""

    token: str
    distance: float


@dataclass(frozen=True)
class Band:
    """Tokens of similar frequency, told by their rows in the first of two sets.

    Attributes:
        first, last: ranks, from 1.
        norms: mean lengths in both sets.
        overlap: of the tokens whose neighbors were found; None: there are none.
    """

    first: int
    last: int
    tokens: int
    norms: tuple[float, float]
    distance: float
    overlap: float | None


@dataclass(frozen=True)
class Pair:
    """Two sets of vectors.

    Attributes:
        overlap: mean share of the `count` nearest tokens in a that are among those in b; over the tokens whose
            neighbors were found. The interval is for the mean over all shared tokens, without one if all were.
        jaccard: mean of common neighbors / neighbors of either.
        cka: linear centred kernel alignment (Kornblith et al. 2019), in [0, 1].
        distance: mean cosine distance of a row in b from the same in a, turned by orthogonal Procrustes.
        unaligned: the same without rotation it; None if their dims differ.
        distances: float32 [shared], cosine distance of each token's rows after alignment.
        most, least: tokens that moved most, and least.
        bands: by frequency.
    """

    a: str
    b: str
    overlap: Mean
    jaccard: float
    cka: float
    distance: float
    unaligned: float | None
    distances: np.ndarray
    most: Sequence[Moved]
    least: Sequence[Moved]
    bands: Sequence[Band]


@dataclass(frozen=True)
class Comparison:
    """Several sets of vectors.

    Attributes:
        shared: tokens that all have, with a direction in each.
        without_direction: tokens that all have, but are all zeros somewhere.
        sampled: tokens whose neighbors were found.
        count: neighbors of each.
        chance: overlap that unrelated vectors have, `count` / (`shared` - 1).
        stability: mean overlap of all pairs, where there are more than two sets; see `over_pairs`.
    """

    shared: int
    without_direction: int
    sampled: int
    count: int
    chance: float
    shapes: Sequence[Shape]
    pairs: Sequence[Pair]
    stability: Mean | None


@dataclass(frozen=True)
class Stability:
    """How many neighbors pairs of sets share; see `Comparison`."""

    count: int
    chance: float
    mean: Mean


@dataclass(frozen=True)
class _Some:
    """Chosen rows of an array, which may be mapped."""

    values: np.ndarray
    numbers: np.ndarray

    @property
    def rows(self) -> int:
        return len(self.numbers)

    @property
    def dim(self) -> int:
        return int(self.values.shape[1])

    def read(self, start: int, stop: int) -> np.ndarray:
        return np.asarray(self.values[self.numbers[start:stop]], np.float32)


def compare(
    sets: Sequence[Vectors],
    *,
    count: int = 10,
    sample: int = 2000,
    moved: int = 10,
    seed: int = 0,
    progress: Progress = quiet,
) -> Comparison:
    """Compares sets of vectors by the tokens that all have.

    Args:
        sets: two at least.
        count: neighbors that are compared; at most one less than there are shared tokens.
        sample: tokens whose neighbors are found, drawn by `seed`; all, if there are not more.
        moved: how many tokens that moved most, and least, are named.

    Raises:
        DataError: fewer than three tokens are shared; or only some sets have tokens; or sets without tokens have
            different numbers of rows.
    """
    views, dropped = _views(sets)
    shared = views[0].rows
    count = min(count, shared - 1)
    chosen = np.sort(np.random.default_rng(seed).permutation(shared)[:sample])
    near, shapes, lengths, moments = [], [], [], []
    for number, (each, view) in enumerate(zip(sets, views, strict=True)):
        of_set = part(progress, number / len(sets), (number + 1) / len(sets))
        near.append(_nearest(view, chosen, count, of_set))
        norms, total, gram, units = _moments(view, of_set)
        lengths.append(norms)
        moments.append((total, gram))
        shapes.append(_shape(each, view, norms, total, gram, units))
    pairs = []
    of_pairs = list(combinations(range(len(sets)), 2))
    for number, (a, b) in enumerate(of_pairs):
        of_pair = part(progress, number / len(of_pairs), (number + 1) / len(of_pairs))
        common = _common(near[a], near[b])
        cka, distances, unaligned = _aligned(views[a], views[b], moments[a], moments[b], of_pair)
        order = np.argsort(-distances, kind="stable")
        tokens = sets[a].tokens
        most, least = (
            [
                Moved(str(row) if tokens is None else tokens[int(row)].as_py(), float(distances[place]))
                for place, row in zip(some, views[a].numbers[some], strict=True)
            ]
            for some in (order[:moved], order[::-1][:moved])
        )
        overlap = common / count
        bands = _bands(views[a].numbers, chosen, overlap, distances, (lengths[a], lengths[b]))
        pairs.append(
            Pair(
                sets[a].name,
                sets[b].name,
                _sampled(overlap, shared),
                float((common / (2 * count - common)).mean()),
                cka,
                float(distances.mean(dtype=np.float64)),
                unaligned,
                distances,
                most,
                least,
                bands,
            )
        )
    stability = over_pairs([pair.overlap.mean for pair in pairs], len(sets)) if len(sets) > 2 else None
    chance = count / (shared - 1)
    return Comparison(shared, dropped, len(chosen), count, chance, shapes, pairs, stability)


def stable(sets: Sequence[Vectors], *, count: int = 10, sample: int = 2000, seed: int = 0) -> Stability:
    """How many neighbors all pairs of sets share: of `compare` that alone, which takes a fraction of the time.

    Args:
        sets: two at least; the others as in `compare`.

    Raises:
        DataError: see `compare`.
    """
    views, _ = _views(sets)
    shared = views[0].rows
    count = min(count, shared - 1)
    chosen = np.sort(np.random.default_rng(seed).permutation(shared)[:sample])
    near = [_nearest(view, chosen, count, quiet) for view in views]
    overlaps = [_common(a, b) / count for a, b in combinations(near, 2)]
    means = [float(each.mean()) for each in overlaps]
    mean = over_pairs(means, len(sets)) if len(sets) > 2 else _sampled(overlaps[0], shared)
    return Stability(count, count / (shared - 1), mean)


def _views(sets: Sequence[Vectors]) -> tuple[list[_Some], int]:
    """The rows of the tokens that all sets have, with a direction in each; and how many tokens lack one."""
    numbers = _shared(sets)
    alike = len(numbers[0])
    views = [_Some(each.values, rows) for each, rows in zip(sets, numbers, strict=True)]
    known = np.ones(alike, bool)
    for view in views:
        for start, stop in _ranges(view.rows, max(each.dim for each in views)):
            known[start:stop] &= ~directions(view.read(start, stop))[1]
    views = [_Some(view.values, view.numbers[known]) for view in views]
    shared = views[0].rows
    if shared < 3:
        raise DataError(
            f"{', '.join(each.name for each in sets)}: found {plural(shared, 'shared token')} with a direction, "
            f"expected at least three"
        )
    return views, alike - shared


def _nearest(view: _Some, chosen: np.ndarray, count: int, progress: Progress) -> np.ndarray:
    rows = np.concatenate([view.read(row, row + 1) for row in chosen])
    return nearest_rows(view, rows, chosen, count, progress=progress)[0]


def _common(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """How many neighbors are in both, of each token."""
    return np.asarray((a[:, :, None] == b[:, None, :]).any(axis=2).sum(axis=1))


def as_json(found: Comparison) -> dict[str, Any]:
    """What `embexp vectors compare --json` prints, with percentiles 0 to 100 of the distances of each pair."""
    content = asdict(found)
    for pair in content["pairs"]:
        pair["distance_percentiles"] = np.percentile(pair.pop("distances"), range(101)).tolist()
    return content


def over_pairs(values: Sequence[float], sets: int) -> Mean:
    """The mean of a figure over all pairs of sets.

    Pairs with a set in common are not independent, so the interval is by the jackknife over sets (Arvesen 1969),
    Student's t with one degree of freedom less than there are sets.

    Args:
        values: of each pair, in the order of `itertools.combinations`.
        sets: how many, three at least.
    """
    from scipy import stats

    pairs = list(combinations(range(sets), 2))
    without = [
        np.mean([value for pair, value in zip(pairs, values, strict=True) if each not in pair]) for each in range(sets)
    ]
    mean = float(np.mean(values))
    error = math.sqrt((sets - 1) / sets * float(np.square(np.array(without) - np.mean(without)).sum()))
    half = float(stats.t.ppf(0.975, sets - 1)) * error
    return Mean(mean, mean - half, mean + half)


def _shared(sets: Sequence[Vectors]) -> list[np.ndarray]:
    """The rows of the shared tokens in each set, in the order of the first set."""
    having = [each.name for each in sets if each.tokens is not None]
    if not having:
        if len({len(each.values) for each in sets}) > 1:
            listed = ", ".join(f"{each.name} with {len(each.values):,} rows" for each in sets)
            raise DataError(
                f"found {listed}: without tokens, rows are matched by number, so all need the same number of rows"
            )
        return [np.arange(len(sets[0].values))] * len(sets)
    if lacking := [each.name for each in sets if each.tokens is None]:
        raise DataError(
            f"{', '.join(lacking)}: found no tokens, but {having[0]} has some: either all files need tokens, or "
            f"none may have them"
        )
    first = sets[0].tokens
    assert first is not None  # all have tokens
    kept = np.sort(np.unique(pc.index_in(first, value_set=first).to_numpy(zero_copy_only=False)))
    rows = [kept.astype(np.int64)]
    for each in sets[1:]:
        found = pc.index_in(first.take(pa.array(rows[0])), value_set=each.tokens)
        known = np.asarray(pc.is_valid(found))
        rows = [numbers[known] for numbers in rows]
        rows.append(np.asarray(found.drop_null()).astype(np.int64))
    return rows


def _ranges(rows: int, dim: int, stage: str = "", progress: Progress = quiet) -> Iterator[tuple[int, int]]:
    step = max(1, _BLOCK_BYTES // (8 * dim))
    for start, stop in pairwise([*range(0, rows, step), rows]):
        yield start, stop
        progress(stage, stop / rows)


def _moments(view: _Some, progress: Progress) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Lengths [rows]; sums of the rows [dim], their products [dim, dim], and their directions [dim]; float64."""
    lengths = np.empty(view.rows)
    total, gram, units = np.zeros(view.dim), np.zeros((view.dim, view.dim)), np.zeros(view.dim)
    for start, stop in _ranges(view.rows, view.dim, "measuring", progress):
        values = view.read(start, stop).astype(np.float64)
        lengths[start:stop] = np.linalg.norm(values, axis=1)
        total += values.sum(axis=0)
        gram += values.T @ values
        units += (values / lengths[start:stop, None]).sum(axis=0)
    return lengths, total, gram, units


def _shape(
    each: Vectors, view: _Some, norms: np.ndarray, total: np.ndarray, gram: np.ndarray, units: np.ndarray
) -> Shape:
    from scipy import stats

    count = view.rows
    eigenvalues = np.maximum(np.linalg.eigvalsh(gram - np.outer(total, total) / count), 0)
    variance = float(eigenvalues.sum())
    spread = float(variance**2 / np.square(eigenvalues).sum()) if variance else 0.0
    by_rank = float(stats.spearmanr(view.numbers, norms)[0]) if np.ptp(norms) else None
    return Shape(
        each.name,
        len(each.values),
        view.dim,
        float(norms.mean()),
        float((units @ units - count) / (count * (count - 1))),
        spread,
        float(eigenvalues[-1] / variance) if variance else 1.0,
        by_rank,
    )


def _aligned(
    a: _Some,
    b: _Some,
    of_a: tuple[np.ndarray, np.ndarray],
    of_b: tuple[np.ndarray, np.ndarray],
    progress: Progress,
) -> tuple[float, np.ndarray, float | None]:
    """Linear CKA; each row's cosine distance after orthogonal Procrustes (Schönemann 1966); their mean without.

    The rotation is the one that brings the directions closest together in the mean; of different dims, the smaller is
    padded with zeros.
    """
    import scipy.linalg

    rows, dim = a.rows, max(a.dim, b.dim)
    cross, turned = np.zeros((a.dim, b.dim)), np.zeros((dim, dim))
    for start, stop in _ranges(rows, dim, "aligning", part(progress, 0, 0.5)):
        left, right = (view.read(start, stop).astype(np.float64) for view in (a, b))
        cross += left.T @ right
        turned[: a.dim, : b.dim] += directions(left, np.float64)[0].T @ directions(right, np.float64)[0]
    covariance = [gram - np.outer(total, total) / rows for total, gram in (of_a, of_b)]
    scale = math.prod(float(np.linalg.norm(each)) for each in covariance)
    cross -= np.outer(of_a[0], of_b[0]) / rows
    cka = float(np.square(cross).sum() / scale) if scale else math.nan
    left_vectors, _, right_vectors = scipy.linalg.svd(turned)
    rotation = (left_vectors @ right_vectors)[: a.dim, : b.dim]
    distances, unturned = np.empty(rows, np.float32), 0.0
    for start, stop in _ranges(rows, dim, "aligning", part(progress, 0.5, 1)):
        left, right = (directions(view.read(start, stop), np.float64)[0] for view in (a, b))
        distances[start:stop] = np.maximum(1 - np.einsum("ij,ij->i", left @ rotation, right), 0)
        if a.dim == b.dim:
            unturned += float((1 - np.einsum("ij,ij->i", left, right)).sum())
    return cka, distances, unturned / rows if a.dim == b.dim else None


def _sampled(values: np.ndarray, population: int) -> Mean:
    """The mean of a sample drawn without repetition, for that of all (Cochran 1977, section 2.6)."""
    mean, count = float(values.mean()), len(values)
    if count == population or count < 2:
        return Mean(mean, None, None)
    half = _NORMAL * float(values.std(ddof=1)) / math.sqrt(count) * math.sqrt(1 - count / population)
    return Mean(mean, mean - half, mean + half)


def _bands(
    numbers: np.ndarray,
    chosen: np.ndarray,
    overlap: np.ndarray,
    distances: np.ndarray,
    lengths: tuple[np.ndarray, np.ndarray],
) -> list[Band]:
    found = []
    for start, stop in pairwise(_EDGES):
        within = (numbers >= start) & (numbers < stop)
        if within.any():
            of_chosen = within[chosen]
            norms = float(lengths[0][within].mean()), float(lengths[1][within].mean())
            found.append(
                Band(
                    start + 1,
                    int(min(stop, numbers.max() + 1)),
                    int(within.sum()),
                    norms,
                    float(distances[within].mean()),
                    float(overlap[of_chosen].mean()) if of_chosen.any() else None,
                )
            )
    return found
