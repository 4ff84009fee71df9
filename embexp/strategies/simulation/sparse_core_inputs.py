"""What a host makes of a step's ids for SparseCores: occurrences divided over SparseCores, sorted, and packed.

A chip has several SparseCores, and each looks up an equal share of the samples of its chip. The SparseCores of all
chips share the rows: row i belongs to partition i modulo their number. An occurrence is a sample, a row and a gain,
by which the row is multiplied before it is added to the sample's vector. Arrays are int32 [n], gains float32 [n].

The names of settings are those of TensorFlow's operations, where `row` is a sample and `col` is a row.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

ALIGNMENT = 8
"""Each partition of the packed occurrences begins at a multiple of it, and so does each block of pointers."""
_PADDING = np.iinfo(np.int32).max
_DIVISIONS = 64
"""Parts of a table by whose boundaries minibatches are divided, as many as a TPU has by default."""
_DIVISION_LEVELS = 6
Arrays = list[Any]
"""NumPy's arrays and scalars."""


class SparseCoreError(tf.errors.InvalidArgumentError, ValueError):  # type: ignore[misc]
    """Ids that SparseCores do not take; TensorFlow makes an InvalidArgumentError of it in a graph, too."""

    def __init__(self, message: str) -> None:
        super().__init__(None, None, message)


def coordinates(
    places: np.ndarray,
    ids: np.ndarray,
    weights: np.ndarray,
    *,
    sample_count: int,
    num_sc_per_chip: int,
    row_offset: int,
    col_offset: int,
    col_shift: int,
    num_sc_shards: int,
    stacked_table_sample_count: int,
    combiner: str,
) -> Arrays:
    """The occurrences of a feature on a chip, for each of its SparseCores, as of the stacked table.

    Equal ids of a sample next to each other become one occurrence. The gains contain the combiner's scale.

    Args:
        places: int32; empty for dense ids, indices [n, 2] for sparse, row splits for ragged.
        ids: int32 [n].
        weights: float32 [n], or one for all ids.
        sample_count: vectors of the feature on the chip.
        row_offset: number of the feature's first sample in the stacked table.
        col_offset: number of the table's first row in the stacked table.
        col_shift: rotation of the table's partitions.
        num_sc_shards: number of partitions.
        stacked_table_sample_count: samples of all features of the stacked table.

    Returns:
        The samples for each SparseCore, then the rows, then the gains.

    Raises:
        SparseCoreError: the input does not fit the number of samples, or the samples can't be divided.
    """
    _check_divided(sample_count, num_sc_per_chip, num_sc_shards)
    samples = _samples_of(places, len(ids), sample_count)
    weights = _weights_of(weights, len(ids))
    begins = _begins(samples, ids)
    gains = _sums(weights, begins)
    scales = _scales(combiner, samples, weights, sample_count)
    samples, rows = samples[begins], ids[begins]
    gains = gains if scales is None else gains * scales[samples]
    share, low = sample_count // num_sc_per_chip, num_sc_shards - 1
    core = samples // share
    stacked = samples % share + row_offset // num_sc_per_chip + core * (stacked_table_sample_count // num_sc_per_chip)
    rotated = ((rows + col_shift) & low) + (rows & ~low) + col_offset
    ends = np.searchsorted(core, np.arange(num_sc_per_chip + 1)).tolist()
    parts = (stacked.astype(np.int32), rotated.astype(np.int32), gains.astype(np.float32))
    return [part[start:stop] for part in parts for start, stop in itertools.pairwise(ends)]


def sorted_occurrences(
    *arrays: np.ndarray,
    sample_count_list: Sequence[int],
    col_offset_list: Sequence[int],
    num_replica: int,
    num_sc_per_chip: int,
    max_ids_per_sparse_core: int,
    max_unique_ids_per_sparse_core: int,
    table_name: str,
    **_: object,
) -> Arrays:
    """One SparseCore's occurrences of a stacked table, sorted by partition, table and row.

    Args:
        arrays: samples of each feature, then rows, then gains.
        sample_count_list: the SparseCore's samples of each feature.
        col_offset_list: number of the first row of each feature's table.

    Returns:
        Samples within the SparseCore, rows within the partition, gains, and the end of each partition, from 0 on.

    Raises:
        SparseCoreError: a partition gets more ids than its limit; names the limit that would do.
    """
    partitions = num_replica * num_sc_per_chip
    samples, rows, gains, begins, ids, distinct = _by_partition(arrays, col_offset_list, partitions)
    _check_limit(table_name, "max_ids_per_table", ids, max_ids_per_sparse_core, "ids")
    limit = max_unique_ids_per_sparse_core
    _check_limit(table_name, "max_unique_ids_per_table", distinct, limit, "distinct ids")
    gains = _sums(gains, begins)
    share = sum(sample_count_list)
    ends = np.concatenate([[0], np.cumsum(ids)]).astype(np.int32)
    return [samples[begins] % np.int32(share), rows[begins] // np.int32(partitions), gains, ends]


def statistics(
    *arrays: np.ndarray, col_offset_list: Sequence[int], num_replica: int, num_sc_per_chip: int, **_: object
) -> Arrays:
    """The most ids, and the most distinct ids, that a partition gets of one SparseCore; see `sorted_occurrences`."""
    ids, distinct = _by_partition(arrays, col_offset_list, num_replica * num_sc_per_chip)[-2:]
    return [np.int32(ids.max()), np.int32(distinct.max())]


def packed(
    *arrays: np.ndarray,
    num_sc_per_chip: int,
    sample_count_per_sc: int,
    num_replica: int,
    max_minibatches_per_sc: int,
    max_ids_per_chip_per_sample: int,
    table_name: str,
    allow_id_dropping: bool,
    **_: object,
) -> Arrays:
    """A chip's occurrences of a stacked table in one memory of a fixed size, each partition from an aligned place on.

    They are in the order of SparseCores, minibatches and partitions.

    Args:
        arrays: for each SparseCore samples, then rows, then gains, then the ends of partitions or, of 64 parts each,
            of their parts; last int64 numbers, whose bits say where minibatches are divided.

    Returns:
        The end of each partition, samples, rows, gains, how much of the pointers and how much of the memory is used,
        and the number of minibatches.

    Raises:
        SparseCoreError: there are more ids or minibatches than the limits, and none may be dropped.
    """
    cores, partitions = num_sc_per_chip, num_replica * num_sc_per_chip
    columns = [np.concatenate(arrays[start : start + cores]) for start in range(0, 3 * cores, cores)]
    bounds = _minibatch_bounds(arrays[-1])
    minibatches = len(bounds) - 1
    if minibatches > max_minibatches_per_sc:
        most = max_minibatches_per_sc
        raise SparseCoreError(
            f"table '{table_name}': there are {minibatches} minibatches, but at most {most} are allowed"
        )
    starts, lengths = _segments(arrays[3 * cores : 4 * cores], partitions, bounds)
    capacity = max_ids_per_chip_per_sample * sample_count_per_sc * cores
    begins = _before(_aligned(lengths))
    kept = np.clip(capacity - begins, 0, lengths)
    needed, dropped = int(_aligned(lengths).sum()), int((lengths - kept).sum())
    _check_capacity(table_name, needed, capacity, max_ids_per_chip_per_sample, dropped, allow_id_dropping)
    inside = np.arange(kept.sum()) - np.repeat(_before(kept), kept)
    source, target = np.repeat(starts, kept) + inside, np.repeat(np.minimum(begins, capacity), kept) + inside
    memory = [_placed(column, source, target, capacity) for column in columns]
    ends = np.minimum(begins + lengths, capacity).reshape(-1, partitions)
    pointers, used = _pointers(ends, max_minibatches_per_sc * cores)
    return [pointers, *memory, *map(np.int32, (used, _aligned(ends[-1, -1]), minibatches))]


def _placed(column: np.ndarray, source: np.ndarray, target: np.ndarray, capacity: int) -> np.ndarray:
    placed = np.full(capacity, _PADDING, column.dtype)
    placed[target] = column[source]
    return placed


def _pointers(ends: np.ndarray, blocks: int) -> tuple[np.ndarray, int]:
    """The ends of partitions [n, partitions] in aligned blocks, int32, with memory for `blocks`, and how much is used.

    Behind its partitions, a block is full of the place where the next block begins.
    """
    width = _aligned(ends.shape[1])
    pointers = np.full((blocks, width), _PADDING, np.int32)
    pointers[: len(ends)] = _aligned(ends[:, -1:])
    pointers[: len(ends), : ends.shape[1]] = ends
    return pointers.reshape(-1), len(ends) * width


def _check_divided(samples: int, cores: int, partitions: int) -> None:
    if samples % cores:
        raise SparseCoreError(
            f"a feature has {samples} samples on each chip, which its {cores} SparseCores must share equally: "
            f"make the batch of each replica a multiple of {cores}"
        )
    if partitions & (partitions - 1):
        raise SparseCoreError(f"the total number of SparseCores must be a power of two, and {partitions} is not")


def _samples_of(places: np.ndarray, count: int, samples: int) -> np.ndarray:
    """The sample of each id, rising."""
    if places.ndim == 2:
        return _samples_of_sparse(places, samples)
    if places.size == 0:
        if count not in (0, samples):
            raise SparseCoreError(f"there are {count} dense ids for {samples} samples")
        return np.arange(count, dtype=np.int32)
    if len(places) != samples + 1:
        raise SparseCoreError(f"ragged ids have {len(places) - 1} rows, but there are {samples} samples")
    return np.repeat(np.arange(samples, dtype=np.int32), np.diff(places))


def _samples_of_sparse(indices: np.ndarray, samples: int) -> np.ndarray:
    if indices.shape[1] != 2:
        raise SparseCoreError(f"sparse ids have rank {indices.shape[1]}, but SparseCores need rank 2")
    found = indices[:, 0]
    if (np.diff(found) < 0).any():
        raise SparseCoreError("the indices of sparse ids must be in order: tf.sparse.reorder sorts them")
    if found.size and found[-1] >= samples:
        raise SparseCoreError(f"sparse ids name sample {found[-1]}, but there are {samples} samples")
    return found


def _weights_of(weights: np.ndarray, count: int) -> np.ndarray:
    if weights.ndim > 1 or weights.size not in (1, count):
        raise SparseCoreError(f"there are {count} ids, but {weights.size} weights of rank {weights.ndim}")
    return np.broadcast_to(weights.reshape(-1), [count])


def _begins(*keys: np.ndarray) -> np.ndarray:
    """Where a combination of keys begins that differs from the one before: int64, rising."""
    change = np.ones(len(keys[0]), bool)
    change[1:] = False
    for key in keys:
        change[1:] |= key[1:] != key[:-1]
    return np.flatnonzero(change)


def _sums(values: np.ndarray, begins: np.ndarray) -> np.ndarray:
    """The sum of each run of values, whose begins are given: float32, rounded once."""
    if len(begins) == len(values):
        return values
    return np.bincount(np.repeat(np.arange(len(begins)), np.diff(begins, append=len(values))), values).astype(
        np.float32
    )


def _scales(combiner: str, samples: np.ndarray, weights: np.ndarray, count: int) -> np.ndarray | None:
    """What the combiner multiplies each sample by, float32 [samples]; None: 1."""
    if combiner == "sum":
        return None
    if combiner not in ("mean", "sqrtn"):
        raise SparseCoreError(f"the combiner must be sum, mean or sqrtn, not {combiner!r}")
    total = np.bincount(samples, weights if combiner == "mean" else weights * weights, count)
    total = total if combiner == "mean" else np.sqrt(total)
    return np.divide(1.0, total, out=np.zeros(count), where=total != 0).astype(np.float32)


def _by_partition(arrays: Sequence[np.ndarray], offsets: Sequence[int], partitions: int) -> tuple[np.ndarray, ...]:
    """Samples, rows and gains sorted by partition, table and row, where occurrences begin, and counts by partition.

    Occurrences of one row in one sample are one, if they follow each other.
    """
    if partitions & (partitions - 1):
        raise SparseCoreError(f"the total number of SparseCores must be a power of two, and {partitions} is not")
    count = len(offsets)
    features = sorted(range(count), key=lambda feature: offsets[feature])
    samples, rows, gains = (
        np.concatenate([arrays[start + feature] for feature in features]) for start in range(0, 3 * count, count)
    )
    tables = np.repeat([offsets[feature] for feature in features], [len(arrays[feature]) for feature in features])
    order = np.lexsort((rows, tables, rows & (partitions - 1)))
    samples, rows, gains, tables = samples[order], rows[order], gains[order], tables[order]
    begins = _begins(samples, rows, tables)
    counts = [
        np.bincount(rows[places] & (partitions - 1), minlength=partitions) for places in (begins, _begins(rows, tables))
    ]
    return samples, rows, gains, begins, *counts


def _check_limit(table: str, setting: str, counts: np.ndarray, limit: int, what: str) -> None:
    if (most := int(counts.max())) > limit:
        raise SparseCoreError(
            f"table '{table}': a SparseCore sends {most} {what} to SparseCore {int(counts.argmax())}, but "
            f"SparseCoreEmbeddingConfig.{setting} of this table is {limit}; set it to {_aligned(most)} or more"
        )


def _minibatch_bounds(splits: np.ndarray) -> np.ndarray:
    """The parts, of 64, at which minibatches begin, and 64 at the end.

    Bit 2^level - 1 + i of a split divides section i of that level in two: level 0 is the whole table.
    """
    bits = int(np.bitwise_or.reduce(splits.reshape(-1))) if splits.size else 0
    bounds = [0, _DIVISIONS]
    for level in range(_DIVISION_LEVELS):
        size = _DIVISIONS >> (level + 1)
        bounds += [
            size * (2 * section + 1) for section in range(1 << level) if bits >> ((1 << level) - 1 + section) & 1
        ]
    return np.array(sorted(bounds))


def _segments(ends: Sequence[np.ndarray], partitions: int, bounds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Begin and length of each partition of each minibatch and SparseCore, int64, in this order."""
    sizes = {len(each) - 1 for each in ends}
    divided = sizes == {partitions * _DIVISIONS}
    if not divided and (sizes != {partitions} or len(bounds) > 2):
        raise SparseCoreError(
            f"ids are counted in {sorted(sizes)} parts; SparseCores take {partitions}, or {partitions * _DIVISIONS} for"
            " minibatches"
        )
    parts, bounds = (_DIVISIONS, bounds) if divided else (1, np.array([0, 1]))
    edges = np.arange(partitions) * parts + bounds[:, None]
    counts = np.stack(ends).astype(np.int64)
    first = _before(counts[:, -1])[:, None, None]
    starts, stops = counts[:, edges[:-1]], counts[:, edges[1:]]
    return (first + starts).reshape(-1), (stops - starts).reshape(-1)


def _check_capacity(table: str, needed: int, capacity: int, setting: int, dropped: int, allowed: bool) -> None:
    """Warns of ids that are dropped, or raises SparseCoreError with the setting that would do."""
    if not capacity % ALIGNMENT and (allowed or not dropped):
        if dropped:
            message = "table '%s': %d ids of this step are dropped because a chip has memory for %d"
            tf.get_logger().warning(message, table, dropped, capacity)
        return
    samples = capacity // setting
    enough = -(-max(needed, capacity) // samples)
    while enough * samples % ALIGNMENT:
        enough += 1
    raise SparseCoreError(
        f"table '{table}': a step's ids need {needed} places in the memory of a chip, but "
        f"SparseCoreEmbeddingConfig.max_ids_per_chip_per_sample = {setting} gives it {capacity}, which must be a"
        f" multiple of {ALIGNMENT}; set it to {enough} or more, or set allow_id_dropping=True to drop some"
    )


def _aligned(size: Any) -> Any:
    """The next multiple of `ALIGNMENT`, of a number or of each in an array."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def _before(lengths: np.ndarray) -> np.ndarray:
    """The sum of all lengths before each."""
    before: np.ndarray = np.cumsum(lengths) - lengths
    return before
