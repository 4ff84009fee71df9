"""What differs between two runs, or two studies: specs, circumstances, results to the bit. No TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from embexp.checkpoints import difference
from embexp.checkpoints.contents import DENSE, GRAPH, OPTIMIZER, Contents, KeyInfo, open_checkpoint
from embexp.checkpoints.difference import Change
from embexp.data.vocabularies.vocabulary import TokenVocabulary, Vocabulary, stands_for_tokens
from embexp.errors import DataError, NotARunError
from embexp.records import differences
from embexp.records.differences import Difference, Kind, MetricsCompared, between
from embexp.records.folder import RunFolder, around
from embexp.vectors.pretrained.earlier import same_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from embexp.checkpoints.difference import RowMatch

_RESULTS = ("status", "steps", "best_step", "metrics", "tables", "freeze", "drift", "examples", "truth")
"""Keys of summary.json that are the same in every repetition of the run."""


@dataclass(frozen=True)
class WeightsCompared:
    """Two checkpoints, compared.

    Attributes:
        differences: one for each tensor that differs, or that only one of the two has; tables first.
    """

    tensors: int
    equal: int
    differences: tuple[Difference, ...]


@dataclass(frozen=True)
class RunsCompared:
    """Two runs, compared.

    Attributes:
        metrics: the lines of metrics.jsonl.
        digests: how many tables have a digest in both summaries.
        summary: what differs between the summaries, digests of tables included.
        weights: the final checkpoints; None: not both runs have one.
        not_compared: why something is not compared, a sentence each.
        spec: what differs between their specs, by dotted key.
        circumstances: what differs between their manifests.
    """

    metrics: MetricsCompared
    digests: int
    summary: tuple[Difference, ...]
    weights: WeightsCompared | None
    not_compared: tuple[str, ...]
    spec: tuple[Difference, ...] = ()
    circumstances: tuple[Difference, ...] = ()

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return not any(self.sections().values())

    def sections(self) -> dict[str, list[Difference]]:
        """What differs, by what it is of."""
        return {
            "spec": list(self.spec),
            "circumstances": list(self.circumstances),
            "first metrics that differ": list(self.metrics.differences),
            "results": list(self.summary),
            "weights": [] if self.weights is None else list(self.weights.differences),
        }

    def sentences(self) -> Iterator[str]:
        """What was compared, and what was not."""
        metrics, weights = self.metrics, self.weights
        counts = (("A", metrics.only_a), ("B", metrics.only_b))
        only = "".join(f", {count:,} only in {name}" for name, count in counts if count)
        equal = metrics.lines - metrics.different
        yield f"{equal:,} of {metrics.lines:,} common lines of metrics.jsonl are equal{only}"
        if weights is not None:
            yield f"{weights.equal} of {weights.tensors} common tensors of the final checkpoints are equal to the bit"
        yield from self.not_compared

    def as_json(self) -> dict[str, Any]:
        """As JSON."""
        metrics, weights = self.metrics, self.weights
        keys = ("spec", "circumstances", "metrics", "results", "weights")
        return {
            "differ": not self.same,
            **{
                key: [each.as_json() for each in found]
                for key, found in zip(keys, self.sections().values(), strict=True)
            },
            "metrics_lines": {
                "common": metrics.lines,
                "different": metrics.different,
                "only_a": metrics.only_a,
                "only_b": metrics.only_b,
            },
            "tensors": None if weights is None else {"common": weights.tensors, "equal": weights.equal},
            "not_compared": list(self.not_compared),
        }


def compare(a: Path, b: Path, *, rows: int = 3) -> dict[str, RunsCompared]:
    """Compares two runs, or the runs of two studies that have the same name.

    Args:
        rows: how many of the first rows that differ are named for each table.

    Returns:
        The comparison by the name of the study's run; of two single runs, by "".

    Raises:
        DataError: a checkpoint is damaged.
        NotARunError: there is no run, or one is a study and the other is not.
        RunError: another process writes one of them.
    """
    first, second = RunFolder(a), RunFolder(b)
    with first.reading(), second.reading():
        names = [list(each.runs_of_study()) for each in (first, second)]
        if not names[0] and not names[1]:
            return {"": _one(first, second, rows)}
        if not all(names):
            raise NotARunError(f"{a} and {b}: one is a study with runs that have ended, and the other is not")
        common = [name for name in names[0] if name in names[1]]
        return {name: _one(RunFolder(a / name), RunFolder(b / name), rows) for name in common}


def _one(a: RunFolder, b: RunFolder, rows: int) -> RunsCompared:
    specs = [each.read_spec().model_dump(mode="json") for each in (a, b)]
    circumstances: list[Difference] = []
    same_files = False
    if a.manifest.exists() and b.manifest.exists():
        manifests = a.read_manifest(), b.read_manifest()
        found = differences.manifest_differences(*manifests)
        circumstances = [each for each in found if each.kind is not Kind.SPEC]
        same_files = manifests[0].get("run_id") == manifests[1].get("run_id") is not None
    results = compare_results(a, b, rows=rows)
    spec = between_specs(*specs, same_files=same_files)
    return replace(results, spec=tuple(spec), circumstances=tuple(circumstances))


def between_specs(a: Mapping[str, Any], b: Mapping[str, Any], *, same_files: bool) -> list[Difference]:
    """What differs between two specs, without the paths of files that have the same content.

    Args:
        same_files: the runs have one `run_id`, which has the digests of all files.
    """
    found = between(Kind.SPEC, a, b)
    return [each for each in found if not (same_files and "path" in each.name.split("."))]


def compare_results(a: RunFolder, b: RunFolder, *, rows: int = 1) -> RunsCompared:
    """Compares the results of two runs, without specs and circumstances.

    Args:
        rows: how many of the first rows that differ are named for each table.

    Raises:
        DataError: a checkpoint is damaged.
    """
    metrics = differences.compare_metrics(*(each.read_metrics() if each.metrics.exists() else () for each in (a, b)))
    notes = []
    summary: list[Difference] = []
    digests = 0
    if a.summary.exists() and b.summary.exists():
        of_a, of_b = a.read_summary(), b.read_summary()
        summary = _summaries(of_a, of_b)
        tables = [each.get("tables", {}) for each in (of_a, of_b)]
        digests = sum(all(table.get(name, {}).get("digest") is not None for table in tables) for name in tables[0])
    else:
        notes.append("summaries are not compared, as not both runs have ended")
    weights = None
    if a.final_checkpoint.is_dir() and b.final_checkpoint.is_dir():
        weights = compare_weights(a.final_checkpoint, b.final_checkpoint, rows=rows)
    else:
        notes.append("final weights are not compared, as not both runs have saved them")
    return RunsCompared(metrics, digests, tuple(summary), weights, tuple(notes))


def compare_weights(a: Path, b: Path, *, rows: int = 1) -> WeightsCompared:
    """Compares every tensor of two checkpoints, byte for byte; rows of tables by token where vocabularies differ.

    Args:
        rows: how many of the first rows that differ are named for each table.

    Raises:
        DataError: a checkpoint is damaged.
    """
    contents = _values(a), _values(b)
    of_a, of_b = (vocabularies_of(content) for content in contents)
    matches = row_matches(contents[0], of_a, of_b)
    found = difference.difference(*contents, rows=rows, matches=matches)
    names, names_of_b = cache(partial(_variables, a)), cache(partial(_variables, b))
    differences = [_change(change, of_a, names) for change in found.changes]
    only_a = [_named(info, names, a="a tensor") for info in found.only_a]
    only_b = [_named(info, names_of_b, b="a tensor") for info in found.only_b]
    unlike = [_named(one, names, a=_form(one), b=_form(other)) for one, other in found.unlike]
    changed = [each for each in differences if each is not None]
    equal = len(found.changes) - len(changed)
    return WeightsCompared(len(found.changes), equal, (*changed, *only_a, *only_b, *unlike))


def _values(path: Path) -> Contents:
    """A checkpoint without its object graph, because layer names in it depend on what else the process did.

    Raises:
        DataError: the checkpoint is damaged, or the checksum of its object graph is wrong.
    """
    contents = open_checkpoint(path, as_objects=True, named=False)
    if contents.faults:
        raise DataError("\n    ".join(contents.faults))
    for entry in contents.entries.values():
        if entry.info.group == GRAPH:
            entry.values.verify()
    entries = {key: entry for key, entry in contents.entries.items() if entry.info.group != GRAPH}
    return replace(contents, entries=entries)


def _variables(path: Path) -> dict[str, str]:
    """The user's names of the dense variables in a checkpoint, by key; slots are named by slot and variable."""
    known = {
        key: (entry.info.group, entry.info.variable)
        for key, entry in open_checkpoint(path, as_objects=True).entries.items()
        if entry.info.table is None and entry.info.variable is not None
    }
    return readable_names(known)


def readable_names(variables: Mapping[str, tuple[str, str | None]]) -> dict[str, str]:
    """Names of dense variables for people, by key.

    A slot of Keras is called `adam_1/hidden.0_kernel_momentum`; it becomes `dense optimizer: momentum of
    hidden.0/kernel`. The number is that of optimizers of the process.

    Args:
        variables: group and global name of each, by key.
    """
    flat = {name.replace("/", "_"): name for group, name in variables.values() if group == DENSE and name}
    found = {}
    for key, (group, name) in variables.items():
        if name is not None and group == OPTIMIZER:
            rest = name.partition("/")[2] or name
            owner = max((each for each in flat if rest.startswith(f"{each}_")), key=len, default=None)
            slot = rest if owner is None else f"{rest[len(owner) + 1 :]} of {flat[owner]}"
            found[key] = f"dense optimizer: {slot}"
        elif name is not None:
            found[key] = name
    return found


def _change(
    change: Change, vocabulary: Callable[[str], Vocabulary | None], names: Callable[[], Mapping[str, str]]
) -> Difference | None:
    """The difference in a tensor's values; None: they are equal."""
    unmatched = change.unmatched is not None and any(change.unmatched)
    if not (change.changed or unmatched):
        return None
    words = []
    if change.changed and not change.info.shape:
        words.append("another value")
    elif change.changed:
        known = None if change.info.table is None else vocabulary(change.info.table)
        rows = ((row, token(known, row)) for row in change.first)
        first = ", ".join(f"{row:,}" if text is None else f"{row:,} ({text!r})" for row, text in rows)
        words.append(f"{change.changed:,} of {change.compared:,} rows differ, the first {first}")
    if change.largest is not None and change.changed:
        words.append(f"by at most {change.largest:.3g}")
    if unmatched and change.unmatched is not None:
        words.append(f"{change.unmatched[0]:,} tokens only in A, {change.unmatched[1]:,} only in B")
    return replace(_named(change.info, names), note=", ".join(words))


def _named(
    info: KeyInfo, names: Callable[[], Mapping[str, str]], a: str | None = None, b: str | None = None
) -> Difference:
    if info.table is not None:
        return Difference(Kind.TABLE, f"{info.table}, slot {info.slot}" if info.slot else info.table, a, b)
    return Difference(Kind.WEIGHTS, names().get(info.key, info.short), a, b)


def _form(info: KeyInfo) -> str:
    return f"{info.dtype} {list(info.shape)}"


def _summaries(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Difference]:
    found: list[Difference] = []
    for key in _RESULTS:
        found += between(Kind.TABLE if key == "tables" else Kind.SUMMARY, a.get(key), b.get(key), prefix=key)
    return [replace(each, name=each.name.removeprefix("tables.")) for each in found]


def vocabularies_of(contents: Contents) -> Callable[[str], Vocabulary | None]:
    """Reads vocabularies of tables by name; None for a table that has none, as the checkpoint is in no run.

    Args:
        contents: of a checkpoint, which is in `checkpoints/NAME` of its run.
    """
    # DIR/checkpoints/NAME/checkpoint, or one folder further down for the second index of a name-based one.
    run = around(contents.source)
    folder = None if run is None else run.vocabularies

    @cache
    def read(table: str) -> Vocabulary | None:
        if folder is None or not any((folder / f"{table}{end}").is_file() for end in (".tsv", ".json")):
            return None
        return Vocabulary.read(folder / table)

    return read


def row_matches(
    a: Contents, vocabulary_a: Callable[[str], Vocabulary | None], vocabulary_b: Callable[[str], Vocabulary | None]
) -> dict[str, RowMatch]:
    """Which rows of B have the tokens of rows of A, by key in A: for tables and slots whose vocabularies differ."""
    matches: dict[str, RowMatch] = {}
    partners: dict[str, RowMatch | None] = {}
    for key, entry in a.entries.items():
        table = entry.info.table
        if table is None:
            continue
        if table not in partners:
            first, second = vocabulary_a(table), vocabulary_b(table)
            partners[table] = None
            if first is not None and second is not None:
                same = type(first) is type(second) and first.digest == second.digest
                partners[table] = None if same else _match(first, second)
        if (match := partners[table]) is not None:
            matches[key] = match
    return matches


def token(vocabulary: Vocabulary | None, row: int) -> str | None:
    """The token of a row; None where it has none."""
    if vocabulary is None or row >= vocabulary.size:
        return None
    return vocabulary.tokens(row, row + 1)[0]


def _match(a: Vocabulary, b: Vocabulary) -> RowMatch:
    @cache
    def rows() -> np.ndarray:
        found = np.full(a.size, -1, np.int64)
        if stands_for_tokens(a) and stands_for_tokens(b):
            partners = b.rows(a.known if isinstance(a, TokenVocabulary) else a.tokens(a.first))
            found[a.first :] = np.where(partners < b.first, -1, partners)  # the rows of unknown tokens
        mine, theirs = same_rows(a, b)
        found[mine] = theirs
        return found

    def match(start: int, stop: int) -> np.ndarray:
        found = rows()[start:stop]
        # A table may have more rows than its vocabulary.
        return np.concatenate([found, np.full(stop - start - len(found), -1, np.int64)])

    return match
