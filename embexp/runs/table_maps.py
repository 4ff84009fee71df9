"""Maps of the tables of finished runs, for reports: sampled rows by principal components, and what is known of each.

Next to them stand the nearest rows of some, lengths by frequency, and the pretrained rows that moved most.

A run records the tokens and frequencies of its rows, but of provenance and freezing only counts. Both follow from its
spec and its files, as they did in the run.
"""

from __future__ import annotations

import base64
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from embexp.data.vocabularies.vocabulary import TokenVocabulary, Vocabulary
from embexp.errors import EmbexpError
from embexp.reports import groups
from embexp.reports.record import Record
from embexp.runs import table_vectors
from embexp.runs.table_vectors import UNREADABLE
from embexp.specs.freezing import FreezeTable, NoFreeze
from embexp.system.arrays import Rows, SomeRows, blocks
from embexp.training.freezing.policies import RowFacts, first_steps, group
from embexp.vectors import array_files, neighbors
from embexp.vectors.alignment import RowKind
from embexp.vectors.neighbors import directions
from embexp.vectors.pretrained.aligned import earlier_rows, pretrained_before
from embexp.vectors.pretrained.earlier import EarlierCheckpoint
from embexp.vectors.pretrained.tables import PretrainedTable, row_source, settings_of

MOST_RUNS, MOST_TABLES = 3, 8
"""Runs, and tables in all, that have maps: each takes some 100 kB of the page."""
_LONGEST_TOKEN = 60
_MOST_ALIGNED = 1_000_000
"""The most rows of a table whose provenance is searched again. More would take too long for a report."""
_MOST_READ = 20_000_000
"""The most numbers of a table, in its first rows, that are read for the lists next to its map."""
_MOST_NEAR, _NEAREST, _MOST_MOVED = 400, 8, 12
"""Number of rows in a map whose nearest rows are on the page, of nearest rows for each, and of moved rows."""
_BANDS = (10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000)
"""For each band, the number of tokens that are more frequent."""
_MOVED = 1e-6
"""A cosine distance that is too large for a rounding error."""
_BLOCK_BYTES = 1 << 24
_TOUCHED = "touched.npz"
MOST_ROWS = 2_000
"""Rows of a table on a map, at most."""
COMPONENTS = 10
"""Components that the page gets; the map shows two, UMAP begins with all."""
_INT16 = 32_767


def of_best(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Maps of the tables of the best finished runs; none of runs without a checkpoint.

    Args:
        records: the runs; a map names its run by the place here.
    """
    done = [place for place, record in enumerate(records) if record.status.has_results and record.directory]
    done.sort(key=lambda place: groups.rank(records[place].validation, records[place].direction))
    ended = [records[place] for place in done]
    of_data = {id(each): number for number, part in enumerate(groups.by_data(ended)) for each in part}
    done.sort(key=lambda place: of_data[id(records[place])])  # those on the data of most first: others are no better
    found: list[dict[str, Any]] = []
    for place in done:
        found += itertools.islice(_of_run(records[place].directory, place), MOST_TABLES - len(found))
        if len({each["run"] for each in found}) == MOST_RUNS or len(found) == MOST_TABLES:
            break
    return found


def _of_run(directory: Path | None, place: int) -> Iterator[dict[str, Any]]:
    """The maps of a run, the largest tables first. It stops at a table that can't be read."""
    if directory is None:
        return
    try:
        run = table_vectors.opened(directory)
        tables = [name for name in run.tables if run.shape(name)[1] >= 2 and run.shape(name)[0] >= 3]
        tables.sort(key=lambda name: -run.shape(name)[0])
    except UNREADABLE:
        return
    for table in tables:
        try:
            found = _of_table(run, table)
        except UNREADABLE:
            continue
        if found is not None:
            yield {"run": place, "table": table, **found}


def _of_table(run: EarlierCheckpoint, table: str) -> dict[str, Any] | None:
    """The map of a table; None if it has too few rows of finite numbers.

    Raises:
        EmbexpError: the rows can't be read.
    """
    rows, dim = run.shape(table)
    vocabulary = run.vocabulary(table)
    ranked = isinstance(vocabulary, TokenVocabulary)
    numbers = sampled(rows, ranked=ranked)
    source = _source(run, table)
    values = _read(source.read, numbers, rows)
    finite = np.isfinite(values).all(axis=1)
    if finite.sum() < 3:
        return None
    lost = int((~finite).sum())
    numbers, values = numbers[finite], values[finite]
    scores, shares = principal_components(values)
    if scores.shape[1] < 2:
        return None
    packed, scale = packed_scores(scores)
    origin = _origin(run, table, rows)
    marks, notes = _marks_of_table(run, table, vocabulary, origin)
    return {
        "total": rows,
        "dim": dim,
        "count": len(numbers),
        "sampling": "half of them the most frequent, the others at random" if ranked else "taken at random",
        "rows": numbers.tolist(),
        "tokens": _tokens(vocabulary, numbers),
        "components": scores.shape[1],
        "packed": packed,
        "scale": float(f"{scale:.6g}"),
        "shares": [float(f"{share:.4g}") for share in shares],
        "marks": [
            {"name": mark.name, "names": mark.names, "values": mark.values[numbers].tolist()}
            for mark in sorted(marks, key=lambda mark: not mark.names)
        ],
        "notes": [*([f"{lost} rows with non-finite values are left out."] if lost else []), *notes],
        "near": _near(source, vocabulary, numbers, values),
        "lengths": _lengths(source, vocabulary),
        "moved": _moved(run, table, source, vocabulary, origin),
    }


def _source(run: EarlierCheckpoint, table: str) -> Rows:
    """The source of a table's rows: the checkpoint or, for a frozen table, its pretrained file."""
    if run.holds(table):
        return array_files.stored_tensor(run.index, run.tensors, f"embedding/{table}")
    return earlier_rows(run, table)


def _read_rows(source: Rows) -> int:
    return min(source.rows, max(1, _MOST_READ // source.dim))


def _near(source: Rows, vocabulary: Vocabulary, numbers: np.ndarray, values: np.ndarray) -> list[Any]:
    """For some rows of a map, the nearest of the table's first rows: place on the map, tokens, cosines."""
    some = np.flatnonzero(values.any(axis=1) & (numbers >= vocabulary.first) & (numbers < _read_rows(source)))
    if not isinstance(vocabulary, TokenVocabulary):
        some = some[np.linspace(0, len(some) - 1, min(_MOST_NEAR, len(some)), dtype=np.int64)]
    some = some[:_MOST_NEAR]
    if not some.size:
        return []
    searched = SomeRows(source, np.arange(_read_rows(source)))
    rows, cosines = neighbors.nearest_rows(searched, values[some], numbers[some], _NEAREST)
    found = []
    for place, near, each in zip(some.tolist(), rows, cosines, strict=True):
        there = near >= 0
        found.append([place, _tokens(vocabulary, near[there]), [round(float(cosine), 3) for cosine in each[there]]])
    return found


def _lengths(source: Rows, vocabulary: Vocabulary) -> list[dict[str, Any]]:
    """The lengths of rows by bands of frequency, from the most frequent tokens on; empty without frequencies."""
    if not isinstance(vocabulary, TokenVocabulary):
        return []
    numbers = np.arange(vocabulary.first, min(vocabulary.size, _read_rows(source)))
    lengths = np.array([])
    for _, values in blocks(SomeRows(source, numbers), _BLOCK_BYTES):
        lengths = np.append(lengths, np.linalg.norm(values, axis=1))
    counts = np.asarray(vocabulary.frequencies)[numbers]
    edges = [0, *(edge for edge in _BANDS if edge < len(numbers)), len(numbers)]
    return [
        {
            "rows": stop - start,
            "counts": [int(counts[start]), int(counts[stop - 1])],
            "lengths": [float(f"{each:.5g}") for each in np.quantile(lengths[start:stop], (0.1, 0.5, 0.9))],
        }
        for start, stop in itertools.pairwise(edges)
        if stop > start and np.isfinite(lengths[start:stop]).all()
    ]


def _moved(
    run: EarlierCheckpoint, table: str, source: Rows, vocabulary: Vocabulary, origin: _Origin
) -> dict[str, Any] | None:
    """The pretrained rows whose direction changed most and least; None: none of them exists, or none turned."""
    if origin.found is None:
        return None
    rows, dim = run.shape(table)
    settled = run.spec.tables[table].model_copy(update={"dim": dim})
    initial = row_source(table, settled, rows, run.spec.seed, origin.found)
    numbers = np.flatnonzero(origin.found.alignment.pretrained[: _read_rows(source)])
    before, after = SomeRows(initial, numbers), SomeRows(source, numbers)
    distances = np.array([])
    for start, values in blocks(after, _BLOCK_BYTES):
        pair = [directions(each, np.float64)[0] for each in (before.read(start, start + len(values)), values)]
        distances = np.append(distances, np.maximum(1 - np.einsum("ij,ij->i", *pair), 0))
    if distances.max(initial=0) < _MOVED:
        return None
    order = np.argsort(-distances, kind="stable")
    most = min(_MOST_MOVED, len(order) // 2)
    listed = {"most": order[:most], "least": order[len(order) - most :]}
    return {
        "rows": len(numbers),
        "mean": float(f"{distances.mean():.4g}"),
        **{
            name: [
                [token, float(f"{distance:.4g}")]
                for token, distance in zip(_tokens(vocabulary, numbers[each]), distances[each].tolist(), strict=True)
            ]
            for name, each in listed.items()
        },
    }


def _read(read: Callable[[int, int], np.ndarray], numbers: np.ndarray, rows: int) -> np.ndarray:
    """The rows of some numbers, float32 [numbers, dim]. Runs of neighbouring rows are read at once."""
    if len(numbers) == rows:
        return np.array(read(0, rows), np.float32)
    breaks = np.flatnonzero(np.diff(numbers) != 1) + 1
    runs = np.split(numbers, breaks)
    return np.concatenate([np.array(read(int(run[0]), int(run[-1]) + 1), np.float32) for run in runs])


def _tokens(vocabulary: Vocabulary, numbers: np.ndarray) -> list[str]:
    """The meaning of rows. Rows after the last token have none."""
    found = []
    for number in numbers.tolist():
        tokens = vocabulary.tokens(number, number + 1) if number < vocabulary.size else []
        text = tokens[0] if tokens else f"free row {number}"
        found.append(text if len(text) <= _LONGEST_TOKEN else f"{text[: _LONGEST_TOKEN - 1]}…")
    return found


@dataclass(frozen=True)
class Mark:
    """Something that is known of each row.

    Attributes:
        values: integers [rows]; where there are names, numbers of these.
        names: of the values; None: the values are counts.
    """

    name: str
    values: np.ndarray
    names: Sequence[str] | None = None


@dataclass(frozen=True)
class _Origin:
    """Where rows come from; None: unknown."""

    pretrained: np.ndarray | None
    old: np.ndarray | None = None
    found: PretrainedTable | None = None
    special: np.ndarray | None = None
    notes: tuple[str, ...] = ()
    known: bool = True


def _marks_of_table(
    run: EarlierCheckpoint, table: str, vocabulary: Vocabulary, origin: _Origin
) -> tuple[list[Mark], list[str]]:
    """What is known about the rows of a table of a finished run.

    Args:
        vocabulary: the meaning of the rows.
        origin: the origin of the rows.

    Returns:
        Marks that differ between rows, and a sentence about each mark that all rows share or that is unknown.
    """
    rows, _ = run.shape(table)
    marks: list[Mark] = []
    notes = [*origin.notes]
    if origin.pretrained is not None:
        marks.append(_provenance(origin, rows))
    if isinstance(vocabulary, TokenVocabulary):
        counts = np.zeros(rows, np.int64)
        counts[: vocabulary.size] = vocabulary.frequencies
        marks.append(Mark("frequency", counts))
    try:
        frozen = _frozen(run, table, vocabulary, rows, origin)
    except (EmbexpError, ValueError, OSError) as error:
        notes.append(f"Which rows were frozen is not known: {error}.")
    else:
        marks.append(_training(frozen, _touched(run, table, rows)))
    different = [mark for mark in marks if len(np.unique(mark.values)) > 1]
    for mark in marks:
        if mark.names and mark not in different:
            notes.append(f"All rows have the same {mark.name}: {mark.names[int(mark.values[0])]}.")
    return different, notes


def _origin(run: EarlierCheckpoint, table: str, rows: int) -> _Origin:
    """Which rows are pretrained: by the counts if all or none are, otherwise by aligning the file again."""
    counts: Mapping[str, Any] = run.summary["initialization"]["tables"][table]
    if not counts.get("rows_pretrained"):
        return _Origin(None, notes=("No row is pretrained.",))
    if rows > _MOST_ALIGNED:
        return _Origin(
            None, notes=(f"Provenance is only computed for tables of up to {_MOST_ALIGNED:,} rows.",), known=False
        )
    try:
        settings = {table: settings_of(run.spec)[table]}
        found = pretrained_before(run.folder, settings, run.summary, run.spec.data.token_steps, cache=run.cache).tables[
            table
        ]
    except (EmbexpError, OSError, KeyError) as error:
        return _Origin(None, notes=(f"Provenance is not known: {error}.",), known=False)
    kinds = found.alignment.kinds
    return _Origin(np.asarray(found.alignment.pretrained), found.old, found, kinds == RowKind.SPECIAL)


def _provenance(origin: _Origin, rows: int) -> Mark:
    names = ["new", "pretrained", "no token of its own", "from the earlier run"]
    values = np.zeros(rows, np.uint8)
    if origin.special is not None:
        values[origin.special] = 2
    values[origin.pretrained] = 1
    if origin.old is not None:
        values[origin.old] = 3
    return Mark("provenance", values, names)


def _frozen(
    run: EarlierCheckpoint, table: str, vocabulary: Vocabulary, rows: int, origin: _Origin
) -> np.ndarray | None:
    """How each row trains, uint8 [rows]: 0 always, 1 never, 2 in some phases or at a lower rate; None: all always do.

    Raises:
        ValueError: rules refer to pretrained rows, which are unknown.
    """
    policy = run.spec.freeze_of(table)
    counts = run.summary["freeze"][table]
    match policy:
        case NoFreeze():
            return None
        case FreezeTable():
            return np.ones(rows, np.uint8)
    phases = policy.as_phases
    kinds = {rule.kind for phase in phases for rule in phase.rules}
    if not origin.known and kinds & {"pretrained_rows", "old_rows"}:
        raise ValueError("the policy is about pretrained rows, whose provenance is not known")
    steps_per_epoch = run.summary["examples"]["train"] / run.summary["batch_size"]
    facts = RowFacts(rows, vocabulary, origin.pretrained, origin.old)
    grouping = group(phases, first_steps(phases, steps_per_epoch), facts)
    if grouping.frozen_rows != counts["frozen_rows"]:
        raise ValueError(
            f"{grouping.frozen_rows} rows are frozen by its policy, but the run froze {counts['frozen_rows']}"
        )
    between = (grouping.multipliers != 1).any(0)[grouping.groups] & ~grouping.frozen
    return np.where(grouping.frozen, 1, np.where(between, 2, 0)).astype(np.uint8)


def _touched(run: EarlierCheckpoint, table: str, rows: int) -> np.ndarray | None:
    """The rows that training steps looked up, bool [rows]; None: not recorded."""
    try:
        with np.load(run.folder.final_checkpoint / _TOUCHED, allow_pickle=False) as stored:
            found: np.ndarray = np.unpackbits(stored[table], count=rows).astype(bool)
            return found
    except (OSError, ValueError, KeyError, EOFError):
        return None


def _training(frozen: np.ndarray | None, touched: np.ndarray | None) -> Mark:
    """A mark for how rows trained: frozen, and otherwise whether a step met them."""
    names = ["trained", "frozen", "frozen or slowed for part of training", "never looked up"]
    size = len(frozen) if frozen is not None else len(touched) if touched is not None else 1
    values = np.zeros(size, np.uint8) if frozen is None else frozen.copy()
    if touched is not None:
        values[~touched & (values != 1)] = 3
    return Mark("training", values, names)


def sampled(rows: int, *, ranked: bool) -> np.ndarray:
    """Numbers of the rows of a map, int64, rising: all, or `MOST_ROWS` of them.

    Args:
        ranked: whether the first rows are the most frequent: then half of the sample are these, the other half is
            drawn from the rest.
    """
    if rows <= MOST_ROWS:
        return np.arange(rows)
    first = MOST_ROWS // 2 if ranked else 0
    drawn = np.random.default_rng(0).choice(rows - first, MOST_ROWS - first, replace=False, shuffle=False)
    return np.sort(np.concatenate([np.arange(first), first + drawn]))


def principal_components(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The first principal components of rows, by singular value decomposition of the centred matrix, in float64.

    Args:
        values: [rows, dim], finite.

    Returns:
        Scores [rows, k] with k = min(`COMPONENTS`, rows, dim), and each component's share of the variance, [k]. The
        sign of a component is such that its largest loading is positive.
    """
    centred = values.astype(np.float64) - values.mean(axis=0, dtype=np.float64)
    left, sizes, right = np.linalg.svd(centred, full_matrices=False)
    count = min(COMPONENTS, *values.shape)
    signs = np.sign(right[np.arange(len(right)), np.abs(right).argmax(axis=1)])
    signs[signs == 0] = 1
    scores = (left * sizes * signs)[:, :count]
    variance = sizes**2
    total = variance.sum()
    return scores, variance[:count] / total if total > 0 else np.zeros(count)


def packed_scores(scores: np.ndarray) -> tuple[str, float]:
    """Scores as little-endian int16 in base64, row by row, and what 32,767 of them stands for."""
    scale = float(np.abs(scores).max(initial=0.0)) or 1.0
    whole = np.rint(scores / scale * _INT16).astype("<i2")
    return base64.b64encode(whole.tobytes()).decode("ascii"), scale
