"""Variables with other rows than in the checkpoint: which row each of theirs is, and the rows assigned.

A variable with more rows has the stored ones first, or those of its own tokens where two vocabularies are given. New
rows keep their initial values. A slot has the rows of its variable. Slots are found by the object graph, and by name.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np

from embexp.checkpoints import object_graph, store
from embexp.checkpoints.account import Grown, Value
from embexp.errors import CheckpointError
from embexp.system.tensor_bundle import increments
from embexp.system.tensor_bundle.increments import Values
from embexp.system.tensor_bundle.index import prefix_of
from embexp.system.tensor_bundle.tensor import type_name
from embexp.system.tensor_bundle.writer import OBJECT_GRAPH, BundleWriter

Tokens = Sequence[str] | str | os.PathLike[str]
"""A token for each row, in order: the tokens, or the path of a file with one per line."""
_BLOCK_BYTES = 1 << 22
_ACCUMULATOR = re.compile(r"([/_S](accum|accumulators?)|/Adagrad(_[0-9]+)?|/Ftrl)$")
"""Ends of the paths and names of slots that begin at a value of the optimizer's, and grow from there."""


@dataclass(frozen=True, eq=False)
class RowMap:
    """Which row of the checkpoint each row of a variable is.

    Attributes:
        before: number of rows in the checkpoint.
        places: int64 [rows], the row in the checkpoint; -1: it is new.
    """

    before: int
    places: np.ndarray

    @classmethod
    def by_number(cls, before: int, rows: int) -> RowMap:
        """The first rows are those of the checkpoint."""
        places = np.arange(rows)
        return cls(before, np.where(places < before, places, -1))

    @classmethod
    def by_token(cls, before: Sequence[str], after: Sequence[str]) -> RowMap:
        """Each row is that of its token."""
        rows = {token: row for row, token in enumerate(before)}
        return cls(len(before), np.array([rows.get(token, -1) for token in after], np.int64))

    @property
    def counts(self) -> tuple[int, int, int]:
        """How many rows are kept, new and dropped."""
        kept = len(np.unique(self.places[self.places >= 0]))
        return kept, int(np.count_nonzero(self.places < 0)), self.before - kept

    def assign(self, values: Values, scatter: Callable[[np.ndarray, np.ndarray], None]) -> None:
        """Reads the rows in the order of the checkpoint, a few megabytes at a time.

        Args:
            scatter: gets numbers of rows, int64 [n], and the rows, [n, ...].

        Raises:
            DataError: a data file is damaged or cut short.
        """
        rows = np.flatnonzero(self.places >= 0)
        rows = rows[np.argsort(self.places[rows], kind="stable")]
        places, start = self.places[rows], 0
        for block in _blocks(values):
            first, last = np.searchsorted(places, [start, start + len(block)])
            if first < last:
                scatter(rows[first:last], block[places[first:last] - start])
            start += len(block)


def _blocks(values: Values) -> Iterable[np.ndarray]:
    shape = values.entry.shape
    if all(piece.shape[1:] == shape[1:] for piece in values.entry.pieces) and values.dtype != np.dtype(object):
        return values.blocks(max(1, _BLOCK_BYTES // max(1, increments.row_bytes(values))))
    values.verify()
    return [values.value()]


class Growth:
    """Which values may go into variables with other rows."""

    def __init__(
        self, proto: Any, values: Sequence[tuple[int | None, Value]], *, by_number: bool, by_token: Mapping[str, RowMap]
    ) -> None:
        """Finds the slots of the variables that have vocabularies.

        Args:
            proto: the object graph of the checkpoint.
            values: those of the checkpoint, each with its node.
            by_number: whether every variable with more rows than in the checkpoint has those first.
            by_token: maps by object path or name.

        Raises:
            CheckpointError: the checkpoint lacks a variable, or it has other rows than its old vocabulary.
        """
        self._by_number, self._maps = by_number, dict[int, RowMap]()
        of_variable = slots_by_variable(proto)
        faults = []
        for name, rows in by_token.items():
            named = [(node, value) for node, value in values if node is not None and name in (value.path, value.name)]
            if not named:
                faults.append(f"the checkpoint has no variable {name}; its matrices are {_matrices(values)}")
            for node, value in named:
                if not value.shape or value.shape[0] != rows.before:
                    faults.append(f"{value} does not have the {rows.before:,} rows of its old vocabulary")
                    continue
                slots = {number for number, each in values if number is not None and is_slot(each, value)}
                for number in {node, *of_variable.get(node, ()), *slots}:
                    self._maps[number] = rows
        if faults:
            raise CheckpointError(f"rows can't be matched by token: {'; '.join(faults)}")

    def rows_of(self, node: int | None, stored: Value, wanted: Value) -> RowMap | None:
        """The rows of a variable that is restored from a value; None: it must have the same shape."""
        if not stored.shape or not wanted.shape or stored.dtype != wanted.dtype or stored.shape[1:] != wanted.shape[1:]:
            return None
        if node in self._maps and self._maps[node].before == stored.shape[0]:
            rows = self._maps[node]
            return rows if len(rows.places) == wanted.shape[0] else None
        if self._by_number and stored.shape[0] < wanted.shape[0]:
            return RowMap.by_number(stored.shape[0], wanted.shape[0])
        return None


def _matrices(values: Iterable[tuple[int | None, Value]]) -> str:
    """The names of the first ones, for errors."""
    names = sorted(value.path or value.name for _, value in values if len(value.shape or ()) == 2)
    return ", ".join(names[:10]) or "none"


def slots_by_variable(proto: Any) -> dict[int, set[int]]:
    """The nodes of each variable's slots, as TensorFlow 1, Keras 2 and 3, and embexp's tables record them."""
    found: dict[int, set[int]] = {}
    for node in proto.nodes:
        for slot in node.slot_variables:
            found.setdefault(slot.original_variable_node_id, set()).add(slot.slot_variable_node_id)
        children = {child.local_name: child.node_id for child in node.children}
        trained = _numbered(proto, children.get(object_graph.TRAINABLE))
        for name, child in children.items():
            table, _, slot = name.rpartition("/")  # as a `TPUEmbedding` has its slots
            if slot and table in children:
                found.setdefault(children[table], set()).add(child)
            if name != object_graph.TRAINABLE and trained:
                for number, of_list in _numbered(proto, child).items():
                    if number in trained and name != "_variables":
                        found.setdefault(trained[number], set()).add(of_list)
    return found


def _numbered(proto: Any, node: int | None) -> dict[str, int]:
    """What a list has, by number."""
    children = () if node is None else proto.nodes[node].children
    return {child.local_name: child.node_id for child in children if child.local_name.isdecimal()}


def is_slot(value: Value, of: Value) -> bool:
    """Whether a name says that this is a slot: `table/Adam` of `table`, or `adam/net_table_momentum` of `net/table`."""
    if not value.name or not of.name or value.shape != of.shape:
        return False
    in_keras = value.name.partition("/")[2]
    return value.name.startswith(f"{of.name}/") or in_keras.startswith(f"{of.name.replace('/', '_')}_")


def read_tokens(tokens: Tokens, what: str) -> list[str]:
    """The tokens, each once.

    Raises:
        CheckpointError: one is there twice.
        DataError: a file can't be read.
    """
    if isinstance(tokens, str | os.PathLike):
        from embexp.data.vocabularies.vocabulary import token_lines  # not above: Arrow takes long to import

        found: list[str] = token_lines(Path(tokens)).to_pylist()
    else:
        found = list(tokens)
    seen: set[str] = set()
    twice = [token for token in found if token in seen or seen.add(token)]  # type: ignore[func-returns-value]
    if twice:
        raise CheckpointError(f"{what}: found {len(twice)} tokens more than once, such as {twice[0]!r}")
    return found


def maps_by_token(vocabularies: Mapping[str, Collection[Tokens]]) -> dict[str, RowMap]:
    """The rows of variables by name or object path, from the old vocabulary and the new one of each.

    Raises:
        CheckpointError: a token is there twice, the vocabularies have none in common, or these are not two.
        DataError: a file can't be read.
    """
    found = {}
    for name, pair in vocabularies.items():
        if isinstance(pair, str | os.PathLike) or len(pair) != 2:
            raise CheckpointError(
                f"vocabularies[{name!r}]: found {pair!r}, expected two vocabularies: the checkpoint's and the new one"
            )
        before, after = (read_tokens(each, f"the vocabularies of {name}") for each in pair)
        found[name] = RowMap.by_token(before, after)
        if not found[name].counts[0]:
            raise CheckpointError(f"the vocabularies of {name} have no token in common; compare their spelling")
    return found


class Fill(StrEnum):
    """New rows of a variable of which nothing but the checkpoint is known."""

    ZEROS = "zeros"
    MEAN = "mean"
    """The mean of the stored rows."""
    NORMAL = "normal"
    """From a normal distribution with the mean and variance of each column of the stored rows."""


@dataclass(frozen=True)
class GrownVariable:
    """A variable in a file, and its slots.

    Attributes:
        keys: of the variable and its slots.
        row_bytes: of a row of the variable with its slots.
    """

    value: Value
    rows: RowMap
    keys: tuple[str, ...]
    slots: tuple[Value, ...]
    row_bytes: int

    @property
    def grown(self) -> Grown:
        """The counts, of the variable as it becomes."""
        shape = (len(self.rows.places), *(self.value.shape or ())[1:])
        return Grown(replace(self.value, shape=shape), *self.rows.counts)


def plan_file(index: Path, by_token: Mapping[str, RowMap], by_number: Mapping[str, int]) -> list[GrownVariable]:
    """What is to be written.

    Args:
        index: of any checkpoint.
        by_token: rows by object path or name of their variables.
        by_number: numbers of rows, likewise.

    Raises:
        CheckpointError: there is no such variable, or it has other rows than its old vocabulary, or more than it is to
            have. The message lists all.
        DataError: the checkpoint is damaged.
    """
    tensors = increments.tensors(increments.chain(prefix_of(index)))
    proto = object_graph.read(index).proto if OBJECT_GRAPH in tensors else None
    values = dict[str, tuple[int | None, Value]]()
    for key, tensor in tensors.items() if proto is None else ():
        values[key] = None, Value("", key, tensor.entry.shape, type_name(tensor.entry.kind))
    nodes = () if proto is None else zip(object_graph.paths_of(proto), proto.nodes, strict=True)
    for number, (path, node) in enumerate(nodes):
        for each in node.attributes:
            if (stored := tensors.get(each.checkpoint_key)) is not None:
                entry = stored.entry
                values[each.checkpoint_key] = number, Value(path, each.full_name, entry.shape, type_name(entry.kind))
    of_variable = {} if proto is None else slots_by_variable(proto)
    faults, found = [], []
    for name in (*by_token, *by_number):
        keys = [key for key, (_, value) in values.items() if name in (value.path, value.name)]
        if len(keys) != 1:
            shown = f"; its matrices are {_matrices(values.values())}" if not keys else ""
            faults.append(f"{index} has {f'{len(keys)} variables' if keys else 'no variable'} {name}{shown}")
            continue
        node, value = values[keys[0]]
        before = (value.shape or (0,))[0]
        if name in by_token and by_token[name].before != before:
            faults.append(
                f"{value}: its old vocabulary has {by_token[name].before:,} tokens, expected one for each row"
            )
        elif name in by_number and by_number[name] < before:
            faults.append(f"{value} has more rows than {by_number[name]:,}; give vocabularies to drop some")
        else:
            slots = {
                key: each
                for key, (number, each) in values.items()
                if key != keys[0]
                and each.shape == value.shape
                and (number in of_variable.get(-1 if node is None else node, ()) or is_slot(each, value))
            }
            rows = by_token[name] if name in by_token else RowMap.by_number(before, by_number[name])
            every = (keys[0], *slots)
            size = sum(increments.row_bytes(tensors[key]) for key in every)
            found.append(GrownVariable(value, rows, every, tuple(slots.values()), size))
    if faults:
        raise CheckpointError("\n    ".join(faults))
    return found


def write_file(index: Path, variables: Sequence[GrownVariable], out: Path, *, fill: Fill, seed: int) -> Path:
    """Writes a checkpoint of the same kind, in which variables have other rows, and returns its prefix.

    New rows of slots are 0, and those of accumulators the smallest value of all rows, as no step has changed them.

    Args:
        out: its folder, which must not be there.

    Raises:
        CheckpointError: it can't be written.
        DataError: a data file is damaged.
    """
    rows = {key: variable.rows for variable in variables for key in variable.keys}
    slots = {key: slot for each in variables for key, slot in zip(each.keys[1:], each.slots, strict=True)}
    prefix = out / store.CHECKPOINT_NAME
    with store.published(prefix) as folder, closing(BundleWriter(folder / store.CHECKPOINT_NAME)) as writer:
        for key, tensor in increments.tensors(increments.chain(prefix_of(index))).items():
            if key == OBJECT_GRAPH:  # which has tables in place of stacks
                writer.add_strings(key, (), [object_graph.read(index).proto.SerializeToString()])
                continue
            if key not in rows:
                writer.copy(key, tensor)
                continue
            tensor.verify()
            old, places = tensor.value(), rows[key].places
            value = np.zeros((len(places), *old.shape[1:]), old.dtype)
            value[places >= 0] = old[places[places >= 0]]
            if key not in slots:
                value[places < 0] = _new_rows(key, old, int(np.count_nonzero(places < 0)), fill, seed)
            elif any(map(_ACCUMULATOR.search, (slots[key].path, slots[key].name))):
                value[places < 0] = old.min()
            writer.add_bytes(key, tensor.entry.kind, value.shape, value)
        writer.finish()
    store.mark_published(prefix)
    return prefix


def _new_rows(key: str, old: np.ndarray, count: int, fill: Fill, seed: int) -> Any:
    if fill is Fill.ZEROS:
        return 0
    mean = old.mean(0, dtype=np.float64)
    if fill is Fill.MEAN:
        return mean
    random = np.random.default_rng([seed, *hashlib.sha256(key.encode()).digest()[:8]])
    return random.normal(mean, old.std(0, dtype=np.float64), (count, *old.shape[1:]))
