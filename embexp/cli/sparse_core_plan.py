"""What `embexp plan` says of SparseCores: stacks of tables, and how many ids of a batch come to one of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from rich.console import Console

from embexp.data.examples import Examples
from embexp.errors import plural
from embexp.runs.prepare import Prepared, longest_histories
from embexp.specs.freezing import FreezeTable, NoFreeze
from embexp.specs.optimizers import FROZEN_ROWS_OPTIMIZER, TableOptimizer, slots_of
from embexp.specs.run import RunSpec
from embexp.specs.sparse_cores import (
    ALIGNMENT,
    BAG,
    Chips,
    DistinctRows,
    Part,
    SettledLimits,
    Stack,
    Vectors,
    distinct_rows,
    padded,
    settle,
    stacked,
)
from embexp.specs.strategies import TPU, TPUSimulator
from embexp.specs.tables import Feature
from embexp.specs.tasks import Compared
from embexp.system import terminal
from embexp.system.terminal import byte_size, say
from embexp.training.freezing.policies import TablePolicy

_USUAL = Chips(4, 2)
"""Those of a TPU v6e-4: what is planned for strategy=tpu, where only the TPU knows its own."""
_BATCHES = 20


@dataclass(frozen=True)
class PartitionedIds:
    """The most that one of some batches brings.

    Attributes:
        ids: of one SparseCore for another one; an id that a vector has several times counts once.
        distinct: those of them that differ.
        places: that a chip's ids take in its memory, with padding, for each of its vectors.
        for_decay: `max_ids_per_chip_per_sample` that is sufficient for weight decay; 0: there is room for it.
    """

    ids: int
    distinct: int
    places: int
    for_decay: int


@dataclass(frozen=True)
class SparseCorePlan:
    """The tables of a run on SparseCores.

    Attributes:
        assumed: whether the TPU may have other chips.
        limits: of a step's ids; None until the data is read.
        ids: what batches bring, by stack; none until the data is read.
    """

    chips: Chips
    assumed: bool
    stacks: Sequence[Stack]
    limits: SettledLimits | None = None
    ids: Mapping[str, PartitionedIds] = field(default_factory=dict)

    def show(self, to: Console) -> None:
        """Prints it."""
        table = terminal.table(
            to,
            ["stack"],
            right=["rows", "width", "bytes", "padding", "rows of each", *self._counted(["ids", "distinct", "places"])],
        )
        for stack in self.stacks:
            sizes = [f"{stack.rows:,}", str(stack.width), byte_size(stack.bytes), byte_size(stack.padding_bytes)]
            of_each = f"{stack.rows // self.chips.partitions:,}"
            table.add_row(", ".join(part.name for part in stack.parts), *sizes, of_each, *self._beside(stack.name))
        say(to)
        assumed = " (assumed, those of a TPU v6e-4)" if self.assumed else ""
        chips = plural(self.chips.count, "chip")
        say(to, f"SparseCores: {chips} with {self.chips.cores} each{assumed}; tables with slots, in stacks")
        to.print(table)
        for line in self._lines():
            say(to, line)

    def _counted(self, columns: list[str]) -> list[str]:
        return columns if self.ids else []

    def _beside(self, stack: str) -> list[str]:
        """What batches bring, of what there is room for."""
        if (limits := self.limits) is None or not self.ids:
            return []
        own = self.ids[stack]
        rooms = limits.max_ids_per_table[stack], limits.max_unique_ids_per_table[stack]
        pairs = zip((own.ids, own.distinct, own.places), (*rooms, limits.max_ids_per_chip_per_sample), strict=True)
        return [f"{most:,} of {room:,}" for most, room in pairs]

    def _lines(self) -> Iterator[str]:
        if (limits := self.limits) is None or not self.ids:
            return
        needed = {
            "max_ids_per_table": max(each.ids for each in self.ids.values()),
            "max_unique_ids_per_table": max(each.distinct for each in self.ids.values()),
            "max_ids_per_chip_per_sample": max(max(each.places, each.for_decay) for each in self.ids.values()),
        }
        would_do = {name: padded(most, ALIGNMENT) for name, most in needed.items()}
        exceeded = {
            "max_ids_per_table": any(each.ids > limits.max_ids_per_table[name] for name, each in self.ids.items()),
            "max_unique_ids_per_table": any(
                each.distinct > limits.max_unique_ids_per_table[name] for name, each in self.ids.items()
            ),
            "max_ids_per_chip_per_sample": any(
                each.for_decay or each.places > limits.max_ids_per_chip_per_sample for each in self.ids.values()
            ),
        }
        yield f"ids: the most that any of {_BATCHES} batches sends from one SparseCore to another, and its limit"
        for name in (name for name, beyond in exceeded.items() if beyond):
            yield f"warning: strategy.{name}: batches send more, so the step would fail; set it to {would_do[name]}"
        settings = " ".join(f"strategy.{name}={limit}" for name, limit in would_do.items())
        yield f"sufficient: {settings}"


def plan(
    spec: RunSpec,
    rows: Mapping[str, int | None],
    dims: Mapping[str, int],
    policies: Mapping[str, TablePolicy] | None = None,
    prepared: Prepared | None = None,
) -> SparseCorePlan | None:
    """The plan of a run's tables; None without SparseCores, or where only the data tells the numbers of rows.

    Args:
        rows: by table; None where only the data decides.
        dims: by table, as far as they are known.
        policies: the frozen rows; None until the data is read.
        prepared: the run with its data.
    """
    strategy = spec.strategy
    if not isinstance(strategy, TPU | TPUSimulator) or not strategy.sparse_cores_wanted:
        return None
    alike = all(isinstance(spec.freeze_of(name), NoFreeze | FreezeTable) for name in spec.tables)
    if any(rows[name] is None or name not in dims for name in spec.tables) or (policies is None and not alike):
        return None
    frozen = {
        name: policies[name].frozen_rows if policies is not None else (rows[name] or 0) * spec.frozen(name)
        for name in spec.tables
    }
    optimizers = {name: spec.optimizer_of(name) for name in spec.tables}
    chips, parts = strategy.chips or _USUAL, _parts(rows, dims, frozen, optimizers)
    bags = {} if prepared is None else _bags(prepared)
    compared = spec.task.compared(spec)
    counts = _counts_of_examples(spec.features, compared, rows, spec.train.batch_size, chips.count)
    vectors = _vectors(spec.features, parts, counts, bags)
    stacks = stacked(parts, vectors, chips)
    decays = {
        part.name: distinct_rows(
            part.rows, [each for each in vectors.values() if each.part == part.name], strategy.limits, chips
        )
        for part in parts
        if part.decayed
    }
    found = SparseCorePlan(chips, strategy.chips is None, stacks)
    if prepared is None:
        return found
    names = {stack.name: [part.name for part in stack.parts] for stack in stacks}
    decaying = [Vectors(name, own.count, 1) for name, own in decays.items()]
    limits = settle(strategy.limits, [*vectors.values(), *decaying], names, chips)
    return SparseCorePlan(chips, found.assumed, stacks, limits, partitioned_ids(prepared, stacks, decays, chips))


def _parts(
    rows: Mapping[str, int | None],
    dims: Mapping[str, int],
    frozen: Mapping[str, int],
    optimizers: Mapping[str, TableOptimizer],
) -> list[Part]:
    """The tables as a TPU holds them, which has frozen rows apart; all by table."""
    parts: list[Part] = []
    for name, optimizer in optimizers.items():
        if moving := (rows[name] or 0) - frozen[name]:
            parts.append(_part(name, moving, dims[name], optimizer))
        if frozen[name]:
            parts.append(_part(_fixed(name) if moving else name, frozen[name], dims[name], FROZEN_ROWS_OPTIMIZER))
    return parts


def _part(name: str, rows: int, dim: int, optimizer: TableOptimizer) -> Part:
    sent, decayed = optimizer.without_decay.model_dump_json(), optimizer.weight_decay_factor > 0
    return Part(name, rows, dim, sent, len(slots_of(optimizer)), decayed)


def _fixed(name: str) -> str:
    """Name of a table's frozen rows, and of what looks them up, on a TPU."""
    return f"{name}/fixed"


def _bags(prepared: Prepared) -> dict[str, int]:
    """The features whose vectors may have several ids each, and for how many of each there is room."""
    spec, examples = prepared.spec, prepared.data.scan.examples
    longest = longest_histories(prepared)
    return {
        name: longest.get(name, BAG)
        for name, feature in spec.features.items()
        if (name in longest or spec.ids_of(name) in examples.lists)
        and not feature.max_sequence_length
        and _of_example(feature) == 1
    }


def _counts_of_examples(
    features: Mapping[str, Feature],
    compared: Mapping[str, Compared],
    rows: Mapping[str, int | None],
    batch: int,
    chips: int,
) -> dict[str, int]:
    """Of each feature the examples on one chip, and what they are compared with, such as negatives."""
    own, found = batch // chips, {}
    for name, feature in features.items():
        found[name] = own
        if (others := compared.get(name)) is not None:
            drawn = own * (others.of_example + (not others.made)) + others.of_batch
            found[name] = (rows[feature.table] or 0) if others.every else batch if others.whole_batch else drawn
    return found


def _of_example(feature: Feature) -> int:
    """Vectors of an example."""
    return math.prod(feature.activation_shape(1))


def _vectors(
    features: Mapping[str, Feature], parts: Sequence[Part], counts: Mapping[str, int], bags: Mapping[str, int]
) -> dict[str, Vectors]:
    """What each feature looks up, by the name that a TPU has for it.

    Args:
        counts: of each feature the examples of a batch on one chip, with those that they are compared with.
        bags: features whose vectors may have several ids each, see `Vectors`.
    """
    names, found = {part.name for part in parts}, dict[str, Vectors]()
    for name, feature in features.items():
        count = counts[name] * _of_example(feature)
        for key, part in ((name, feature.table), (_fixed(name), _fixed(feature.table))):
            if part in names:
                found[key] = Vectors(part, count, bags.get(name, 1), bag=name in bags)
    return found


def partitioned_ids(
    prepared: Prepared, stacks: Sequence[Stack], decays: Mapping[str, DistinctRows], chips: Chips
) -> dict[str, PartitionedIds]:
    """The most that one of some batches brings, by stack: of training examples in random order.

    Ids that a step draws itself, such as negatives, are left out.
    """
    spec, train = prepared.spec, prepared.data.scan.splits["train"]
    batch = spec.train.batch_size
    drawn = np.random.default_rng(spec.seed).permutation(train)[: batch * _BATCHES]
    batches = [np.resize(drawn[start : start + batch], batch) for start in range(0, len(drawn), batch)]
    found = {}
    for stack in stacks:
        counted = [of_batch(prepared, stack, decays, examples, chips) for examples in batches]
        found[stack.name] = PartitionedIds(*(int(most) for most in np.max(counted, 0)))
    return found


def of_batch(
    prepared: Prepared, stack: Stack, decays: Mapping[str, DistinctRows], examples: np.ndarray, chips: Chips
) -> tuple[int, int, int, int]:
    """What a batch brings, as `PartitionedIds` has it.

    Args:
        decays: by part, the vectors that look up its rows once more.
        examples: their numbers, in order.
    """
    partitions, vectors, for_decay = chips.partitions, 0, 0
    senders, samples, rows = [], [], []
    for offset, rotation, part in zip(stack.offsets, stack.rotations, stack.parts, strict=True):
        looked_up = list(_looked_up(prepared, part.name, examples))
        if (decay := decays.get(part.name)) is not None:
            distinct_of_part = _once_more(looked_up, decay)
            if len(distinct_of_part.rows) > decay.room:
                for_decay = max(for_decay, decay.sufficient(len(distinct_of_part.rows)))
            looked_up.append(distinct_of_part)
        for own in looked_up:
            senders.append(own.vectors * partitions // own.count)
            samples.append(own.vectors + vectors)
            rows.append(own.rows - own.rows % partitions + (own.rows + rotation) % partitions + offset)
            vectors += own.count
    sender, sample, row = (np.concatenate(each) for each in (senders, samples, rows))
    _, first = np.unique(sample * stack.rows + row, return_index=True)
    ids = _counts(sender[first], row[first], partitions)
    _, first = np.unique(sender * stack.rows + row, return_index=True)
    distinct = _counts(sender[first], row[first], partitions)
    of_chips = (-(-ids // ALIGNMENT) * ALIGNMENT).reshape(chips.count, -1).sum(1)
    return int(ids.max()), int(distinct.max()), -(-int(of_chips.max()) * chips.count // vectors), for_decay


@dataclass(frozen=True)
class _LookedUp:
    """What a batch looks up in a part of a table by one feature.

    Attributes:
        vectors: int64 [n], the vector of each id, rising.
        rows: int64 [n], ids.
        count: number of vectors of all chips.
    """

    vectors: np.ndarray
    rows: np.ndarray
    count: int


def _looked_up(prepared: Prepared, part: str, examples: np.ndarray) -> Iterator[_LookedUp]:
    """What each feature looks up in a part."""
    spec = prepared.spec
    for name, feature in spec.features.items():
        if part not in (feature.table, _fixed(feature.table)):
            continue
        own, ids = _ids_of(prepared.data.scan.examples, spec.ids_of(name), feature, examples)
        frozen = prepared.tables.policies[feature.table].frozen
        if frozen is not None:
            kept = frozen[ids] == (part != feature.table)
            own, ids = own[kept], (np.cumsum(frozen == (part != feature.table)) - 1)[ids[kept]]
        yield _LookedUp(own, ids, len(examples) * _of_example(feature))


def _once_more(looked_up: Sequence[_LookedUp], decay: DistinctRows) -> _LookedUp:
    """The distinct rows, in the order of chips and then of features, each in a vector of its own."""
    chip = np.concatenate([own.vectors * decay.chips.count // own.count for own in looked_up])
    rows = np.concatenate([own.rows for own in looked_up])[np.argsort(chip, kind="stable")]
    rows = rows[np.sort(np.unique(rows, return_index=True)[1])]
    return _LookedUp(np.arange(len(rows)) * decay.room // max(len(rows), 1), rows, decay.room)


def _counts(senders: np.ndarray, rows: np.ndarray, partitions: int) -> np.ndarray:
    """How many rows each SparseCore sends to each, int64 [from, to]."""
    return np.bincount(senders * partitions + rows % partitions, minlength=partitions**2).reshape(partitions, -1)


def _ids_of(examples: Examples, column: str, feature: Feature, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The ids of a feature in some examples, and the vector of each, int64 [n]."""
    history = examples.histories.get(column)
    several = history or examples.lists.get(column)
    if several is None:
        return np.arange(len(rows)), examples.column(column, rows)
    places, ends = several.taken(rows if history is None else examples.column(history.user, rows))
    example = np.repeat(np.arange(len(rows)), np.diff(ends))
    ids, of_example = several.values[places].astype(np.int64), _of_example(feature)
    if of_example == 1 and not feature.max_sequence_length:
        return example, ids
    inside = np.arange(len(ids)) - ends[example]
    kept = inside < of_example
    return (example * of_example + inside)[kept], ids[kept]
