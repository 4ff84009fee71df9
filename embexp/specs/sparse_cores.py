"""How `TPUEmbeddingV2` lays tables out on SparseCores, and how many ids of a step have room there.

TensorFlow computes the layout of a run itself. The arithmetic here does the same without TensorFlow, for `embexp plan`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

ALIGNMENT = 8
"""Rows of a SparseCore, columns, and the places of each partition of a step's ids are padded to multiples of it."""
BAG = 64
"""Ids of a list, on average over a chip's vectors, for which there is room by default, as is TensorFlow's default."""
MOST_CORES = 4
"""SparseCores of a chip: TensorFlow's `TPUEmbeddingV2` makes a list for each of four."""
_FLOAT_BYTES = 4
_STACK_BYTES = 2 << 30
_STACK_ACTIVATION_BYTES = 2 << 20
_STACK_ROWS = (1 << 31) - 1


@dataclass(frozen=True)
class Chips:
    """A TPU with SparseCores.

    Attributes:
        count: number of chips.
        cores: SparseCores of each chip.
    """

    count: int
    cores: int

    @property
    def partitions(self) -> int:
        """SparseCores of all chips."""
        return self.count * self.cores


@dataclass(frozen=True)
class Part:
    """A table as a TPU holds it: a whole one, or the trainable or the frozen rows of one.

    Attributes:
        optimizer: identifies the optimizer and its settings.
        slots: number of the optimizer's slots.
        decayed: whether a step decays the rows that it looks up.
    """

    name: str
    rows: int
    dim: int
    optimizer: str
    slots: int
    decayed: bool = False


@dataclass(frozen=True)
class Vectors:
    """What a feature looks up in a step.

    Attributes:
        part: name of its `Part`.
        count: vectors on each chip.
        ids: for how many ids of each vector, on average, there is room by default.
        bag: whether a vector may combine more ids.
    """

    part: str
    count: int
    ids: int
    bag: bool = False


@dataclass
class Stack:
    """Parts of one padded width and one optimizer, one after the other, in the memory of SparseCores.

    Attributes:
        offsets: number of each part's first row, among `rows`.
        rotations: by how many SparseCores each part's rows are moved on.
        rows: padded, of all parts.
    """

    width: int
    parts: list[Part] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    rotations: list[int] = field(default_factory=list)
    rows: int = 0
    _activation_bytes: int = 0

    @property
    def name(self) -> str:
        """The name that TensorFlow gives it."""
        return "_".join(part.name for part in self.parts)

    @property
    def bytes(self) -> int:
        """Of all rows and slots on all chips, with the padding."""
        return _FLOAT_BYTES * self.rows * self.width * (1 + self.parts[0].slots)

    @property
    def padding_bytes(self) -> int:
        """Of padded rows and columns, and of their slots."""
        used = sum(part.rows * part.dim for part in self.parts)
        return self.bytes - _FLOAT_BYTES * used * (1 + self.parts[0].slots)

    def takes(self, height: int, activation_bytes: int, chips: Chips) -> bool:
        """Whether another part of this padded height has room, as TensorFlow bounds stacks."""
        rows = self.rows + height
        return (
            rows < _STACK_ROWS
            and self._activation_bytes + activation_bytes < _STACK_ACTIVATION_BYTES
            and _FLOAT_BYTES * rows * self.width // chips.count < _STACK_BYTES
        )

    def add(self, part: Part, height: int, activation_bytes: int, chips: Chips) -> None:
        """Puts a part after the others."""
        self.rotations.append(len(self.parts) * chips.cores % chips.partitions)
        self.offsets.append(self.rows)
        self.parts.append(part)
        self.rows += height
        self._activation_bytes += activation_bytes


def stacked(parts: Iterable[Part], vectors: Mapping[str, Vectors], chips: Chips) -> list[Stack]:
    """The stacks of a TPU's tables.

    Args:
        vectors: by feature of the TPU.
    """
    first = vectors[min(vectors)]  # TensorFlow counts the vectors of the first feature only
    by_group: dict[tuple[int, str], list[Stack]] = defaultdict(list)
    stacks: list[Stack] = []
    for part in sorted(parts, key=lambda each: each.name):
        width, height = padded(part.dim, ALIGNMENT), padded(part.rows, ALIGNMENT * chips.partitions)
        samples = first.count // chips.cores if first.part == part.name else 0
        activation_bytes, alike = _FLOAT_BYTES * width * samples, by_group[width, part.optimizer]
        stack = next((each for each in alike if each.takes(height, activation_bytes, chips)), None)
        if stack is None:
            stack = Stack(width)
            alike.append(stack)
            stacks.append(stack)
        stack.add(part, height, activation_bytes, chips)
    return stacks


@dataclass(frozen=True)
class Limits:
    """For how many ids of a step there is room; None: for as many as a step can have, see `settle`.

    Attributes:
        max_ids_per_table: ids that a SparseCore sends to another one for a stack.
        max_unique_ids_per_table: those of them that differ.
        max_ids_per_chip_per_sample: places in the memory of a chip for each vector of a stack.
    """

    max_ids_per_table: int | None = None
    max_unique_ids_per_table: int | None = None
    max_ids_per_chip_per_sample: int | None = None


@dataclass(frozen=True)
class SettledLimits:
    """Limits by the name of a stack, as TensorFlow's `SparseCoreEmbeddingConfig` takes them."""

    max_ids_per_table: Mapping[str, int]
    max_unique_ids_per_table: Mapping[str, int]
    max_ids_per_chip_per_sample: int


@dataclass(frozen=True)
class DistinctRows:
    """The vectors of a part with weight decay in which a step looks up each of its distinct rows once more.

    Attributes:
        count: vectors on each chip.
        enough: whether no step brings more distinct rows than there are vectors.
        single: vectors of its features that have one id each, on each chip.
        bags: vectors of its features that may have several ids, on each chip.
    """

    chips: Chips
    count: int
    enough: bool
    single: int
    bags: int

    @property
    def room(self) -> int:
        """Vectors on all chips."""
        return self.count * self.chips.count

    def sufficient(self, rows: Any) -> Any:
        """A `max_ids_per_chip_per_sample` with which there are vectors for so many distinct rows, if not `enough`."""
        of_bags = -(-rows // self.chips.count) - self.single
        return -(-of_bags // (self.bags * ALIGNMENT)) * ALIGNMENT


def distinct_rows(rows: int, vectors: Iterable[Vectors], limits: Limits, chips: Chips) -> DistinctRows:
    """As many vectors as a step has ids for which there is room, or as the part has rows.

    Args:
        rows: of the part.
        vectors: of the features that look its rows up.
    """
    known = list(vectors)
    largest = limits.max_ids_per_chip_per_sample or 0
    ids = sum(each.count * (max(each.ids, largest) if each.bag else 1) for each in known)
    bags = sum(each.count for each in known if each.bag)
    count = padded(min(ids, -(-rows // chips.count)), chips.cores)
    enough = not bags or count * chips.count >= rows
    return DistinctRows(chips, count, enough, sum(each.count for each in known) - bags, bags)


def settle(
    limits: Limits, vectors: Iterable[Vectors], stacks: Mapping[str, Sequence[str]], chips: Chips
) -> SettledLimits:
    """Limits that no step exceeds whose vectors have no more `ids` on average, where they are not given.

    Args:
        stacks: by name, the names of their parts.
    """
    stack_of = {part: stack for stack, parts in stacks.items() for part in parts}
    counts, ids = dict.fromkeys(stacks, 0), dict.fromkeys(stacks, 0)
    for each in vectors:
        counts[stack_of[each.part]] += each.count
        ids[stack_of[each.part]] += each.count * each.ids
    per_core = {stack: count // chips.cores for stack, count in ids.items()}
    # Each partition begins at a multiple of 8 places.
    padding = ALIGNMENT * chips.cores * chips.partitions
    places = max(math.ceil((ids[stack] + padding) / count) for stack, count in counts.items())

    def of_stacks(limit: int | None) -> dict[str, int]:
        return per_core if limit is None else dict.fromkeys(stacks, limit)

    return SettledLimits(
        of_stacks(limits.max_ids_per_table),
        of_stacks(limits.max_unique_ids_per_table),
        limits.max_ids_per_chip_per_sample or padded(places, ALIGNMENT),
    )


def padded(size: int, multiple: int) -> int:
    """The next multiple."""
    return -(-size // multiple) * multiple
