"""What differs between the results of two runs: metrics, summaries, tables and weights, to the bit. No TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from embexp.checkpoints import difference
from embexp.checkpoints.contents import GRAPH, Contents, KeyInfo
from embexp.checkpoints.difference import Change
from embexp.checkpoints.opening import open_checkpoint
from embexp.errors import DataError
from embexp.records import metric_lines
from embexp.records.differences import Difference, Kind, between
from embexp.records.folder import RunFolder
from embexp.records.metric_lines import MetricsCompared
from embexp.studies import checkpoint_tokens

_RESULTS = ("status", "steps", "best_step", "metrics", "tables", "freeze", "drift", "examples", "truth")
"""Keys of summary.json that are the same whenever the run is repeated."""


@dataclass(frozen=True)
class WeightsCompared:
    """Two checkpoints, compared.

    Attributes:
        tensors: how many both have.
        equal: how many of them are equal.
        differences: one for each tensor that differs, or that only one of the two has; tables first.
    """

    tensors: int
    equal: int
    differences: tuple[Difference, ...]


@dataclass(frozen=True)
class ResultsCompared:
    """The results of two runs, compared.

    Attributes:
        metrics: the lines of metrics.jsonl.
        digests: how many tables have a digest in both summaries.
        summary: what differs between the summaries, digests of tables included.
        weights: the final checkpoints; None: not both runs have one.
        not_compared: why something is not compared, a sentence each.
    """

    metrics: MetricsCompared
    digests: int
    summary: tuple[Difference, ...]
    weights: WeightsCompared | None
    not_compared: tuple[str, ...]

    @property
    def differences(self) -> list[Difference]:
        """All that differs: metrics, then summaries, then weights."""
        weights = () if self.weights is None else self.weights.differences
        return [*self.metrics.differences(), *self.summary, *weights]


def compare(a: RunFolder, b: RunFolder, *, rows: int = 1) -> ResultsCompared:
    """Compares the results of two runs.

    Args:
        a: a run.
        b: another one.
        rows: how many of the first rows that differ are named for each table.

    Raises:
        DataError: a checkpoint is damaged.
    """
    metrics = metric_lines.compare(*(each.read_metrics() if each.metrics.exists() else () for each in (a, b)))
    notes = []
    summary: list[Difference] = []
    digests = 0
    if a.summary.exists() and b.summary.exists():
        of_a, of_b = a.read_summary(), b.read_summary()
        summary = _summaries(of_a, of_b)
        digests = sum(_has_digest(of_a, name) and _has_digest(of_b, name) for name in of_a.get("tables", {}))
    else:
        notes.append("summaries are not compared, as not both runs have ended")
    weights = None
    if a.final_checkpoint.is_dir() and b.final_checkpoint.is_dir():
        weights = compare_weights(a.final_checkpoint, b.final_checkpoint, rows=rows)
    else:
        notes.append("final weights are not compared, as not both runs have saved them")
    return ResultsCompared(metrics, digests, tuple(summary), weights, tuple(notes))


def compare_weights(a: Path, b: Path, *, rows: int = 1) -> WeightsCompared:
    """Compares every tensor of two checkpoints, byte for byte; rows of tables by token where vocabularies differ.

    Args:
        a: the directory of a checkpoint.
        b: that of another one.
        rows: how many of the first rows that differ are named for each table.

    Raises:
        DataError: a checkpoint is damaged.
    """
    contents = _values(a), _values(b)
    of_a, of_b = (checkpoint_tokens.vocabularies(each) for each in contents)
    matches = checkpoint_tokens.row_matches(contents[0], of_a, of_b)
    found = difference.difference(*contents, rows=rows, matches=matches)
    differences = [_change(each, checkpoint_tokens.tokens_of(each.info.table, of_a)) for each in found.changes]
    only_a = [_named(info, a="a tensor") for info in found.only_a]
    only_b = [_named(info, b="a tensor") for info in found.only_b]
    unlike = [_named(one, a=_form(one), b=_form(other)) for one, other in found.unlike]
    changed = [each for each in differences if each is not None]
    equal = len(found.changes) - len(changed)
    return WeightsCompared(len(found.changes), equal, (*changed, *only_a, *only_b, *unlike))


def _values(path: Path) -> Contents:
    """A checkpoint without its object graph, in which names of layers depend on what else the process has done.

    Raises:
        DataError: it is damaged; of the object graph, the checksum is wrong.
    """
    contents = open_checkpoint(path, as_objects=True, named=False)
    if contents.faults:
        raise DataError("\n    ".join(contents.faults))
    for entry in contents.entries.values():
        if entry.info.group == GRAPH:
            entry.values.verify()
    entries = {key: entry for key, entry in contents.entries.items() if entry.info.group != GRAPH}
    return replace(contents, entries=entries)


def _change(change: Change, tokens: Any) -> Difference | None:
    """A tensor whose values differ; None: they are equal."""
    unmatched = change.unmatched is not None and any(change.unmatched)
    if not (change.changed or unmatched):
        return None
    words = []
    if change.changed and not change.info.shape:
        words.append("another value")
    elif change.changed:
        words.append(f"{change.changed:,} of {change.compared:,} rows differ, the first {_rows(change.first, tokens)}")
    if change.largest is not None and change.changed:
        words.append(f"by at most {change.largest:.3g}")
    if unmatched and change.unmatched is not None:
        words.append(f"{change.unmatched[0]:,} tokens only in A, {change.unmatched[1]:,} only in B")
    return replace(_named(change.info), note=", ".join(words))


def _rows(numbers: tuple[int, ...], tokens: Any) -> str:
    named = (f"{row:,}{'' if (token := tokens(row)) is None else f' ({token!r})'}" for row in numbers)
    return ", ".join(named)


def _named(info: KeyInfo, a: str | None = None, b: str | None = None) -> Difference:
    if info.table is not None:
        return Difference(Kind.TABLE, f"{info.table}, slot {info.slot}" if info.slot else info.table, a, b)
    return Difference(Kind.WEIGHTS, info.short, a, b)


def _form(info: KeyInfo) -> str:
    return f"{info.dtype} {list(info.shape)}"


def _summaries(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Difference]:
    found: list[Difference] = []
    for key in _RESULTS:
        found += between(Kind.TABLE if key == "tables" else Kind.SUMMARY, a.get(key), b.get(key), prefix=key)
    return [replace(each, name=each.name.removeprefix("tables.")) for each in found]


def _has_digest(summary: Mapping[str, Any], table: str) -> bool:
    return summary["tables"].get(table, {}).get("digest") is not None
