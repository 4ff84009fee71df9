"""A run that was loaded: its tables, evaluation, predictions, exports. TensorFlow is imported for the model alone."""

from __future__ import annotations

import contextlib
import importlib
import shlex
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from embexp.checkpoints import store
from embexp.data.columns import Columns, columns_of
from embexp.data.examples import Examples
from embexp.data.files import arrow_columns
from embexp.data.numbers import FittedColumn
from embexp.data.scan import as_the_runs_data, encode_file, encode_in_memory, unknown_alike
from embexp.data.sources.source import OtherFile, source_of
from embexp.data.vocabularies.spelling import Alike
from embexp.data.vocabularies.vocabulary import (
    BucketVocabulary,
    TokenVocabulary,
    Vocabulary,
    described,
    stands_for_tokens,
)
from embexp.errors import DataError, NotARunError, RunError, UsageError, excerpt
from embexp.records.folder import RunFolder, check_code, named_functions
from embexp.records.manifest import Kernels
from embexp.records.outputs import check_place
from embexp.reports import results
from embexp.runs.prepare import PreparedTables, fitted_numbers, prepare_tables, read_recorded_data
from embexp.runs.table_vectors import read_table
from embexp.specs import arguments, fields
from embexp.specs.freezing import FreezeTable, NoFreeze
from embexp.specs.inits import Assign, MemoryMap
from embexp.specs.pretrained import NoPretrained
from embexp.specs.run import RunSpec
from embexp.specs.running import RuntimeKind
from embexp.specs.tables import Storage
from embexp.specs.vocabularies import Step
from embexp.system import caching, files
from embexp.system.arrays import ArrayRows, Rows, SomeRows
from embexp.system.parallel import Progress, quiet
from embexp.system.terminal import byte_size
from embexp.training.freezing.policies import RowFacts
from embexp.vectors import neighbors
from embexp.vectors import write as vectors
from embexp.vectors.pretrained import earlier
from embexp.vectors.pretrained.aligned import earlier_rows, pretrained_before
from embexp.vectors.pretrained.earlier import EarlierCheckpoint, row_tokens
from embexp.vectors.pretrained.tables import settings_of

if TYPE_CHECKING:
    from embexp.runs.deltas import Changed
    from embexp.runs.evaluations import Evaluation, Evaluator
    from embexp.runs.run import RunResult
    from embexp.runs.runtimes.execution import Execution
    from embexp.training.loop import Runtime


class ExportKind(StrEnum):
    """What any run is exported as; fields have more, for their own."""

    SAVEDMODEL = "savedmodel"
    NPY = "npy"
    WORD2VEC = "word2vec"
    PROJECTOR = "projector"


DELTAS = (ExportKind.SAVEDMODEL, ExportKind.NPY)
"""Kinds of whole exports that deltas are for."""
_BYTES_PER_NUMBER = {ExportKind.SAVEDMODEL: 4, ExportKind.NPY: 4, ExportKind.WORD2VEC: 12, ExportKind.PROJECTOR: 12}
"""Bytes per number of a table, without tokens. For text, this is typical of trained values."""


class Writer(Protocol):
    """Writes what a field exports a run as."""

    def __call__(self, run: Run, directory: Path, out: Path, progress: Progress, **options: Any) -> Written:
        """Writes into an empty directory.

        Args:
            out: its final name, for messages.

        Raises:
            RunError: a run of this task is not exported so, or the options can't be met.
            DataError: a file can't hold a token.
        """


@dataclass(frozen=True)
class Written:
    """What a field wrote in an export.

    Attributes:
        shapes: rows and dim of each matrix.
        facts: further facts about the export.
    """

    shapes: Mapping[str, tuple[int, int]]
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Exported:
    """An export.

    Attributes:
        tables: rows and dim of each table, or other matrix, in it.
        signatures: of a SavedModel: by signature the name and description of each input.
        facts: what else is known of it, such as how well an index finds.
        changed: of a delta: by table, how many rows are new, have moved and are the same, and its bytes.
    """

    path: Path
    tables: Mapping[str, tuple[int, int]]
    signatures: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    changed: Mapping[str, Changed] = field(default_factory=dict)


def export(
    run: Path | str,
    out: Path | str,
    kind: ExportKind | str = ExportKind.SAVEDMODEL,
    *,
    tables: Collection[str] = (),
    binary: bool = False,
    tables_apart: bool = False,
    since: Run | Path | str | None = None,
    allow_code: Collection[str] = (),
    progress: Progress = quiet,
    **options: Any,
) -> Exported:
    """Exports a finished run into a new directory. Needs memory for the dense part and a block of rows.

    Args:
        out: the new directory; its parents are made.
        kind: one of `ExportKind`, or of what fields export.
        tables: names of the tables, for files; empty: all.
        binary: of word2vec, its binary form.
        tables_apart: of a SavedModel, that it is given rows, by feature, and has no tables; `out` has two folders,
            `model` and, as of kind npy, `tables`.
        since: a run that this one goes on from: writes a delta, see `runs.deltas`, of which and a whole export of that
            run `apply_delta` makes one of this run, as kind savedmodel, or, without a model, npy.
        allow_code: functions that the recorded spec may run; a SavedModel of the user's own model needs its function.
        options: of what a field exports.

    Raises:
        NotARunError: there is no finished run, it is being written, or it left no checkpoint.
        RunError: `out` exists or can't be written, there is no such table, or no room on the disk; a library is
            missing, or does not reach the recall; the run does not go on from `since`.
        DataError: a file of this kind can't hold a token.
        UsageError: `out` is in the folder of a run; or the SavedModel is that of a model of the user's own, and its
            function isn't allowed.
    """
    out = _new_place(out)
    if tables_apart and (kind != ExportKind.SAVEDMODEL or since is not None):
        raise RunError("separate tables are possible only in a whole export of kind savedmodel")
    if since is not None and (kind not in DELTAS or tables):
        raise RunError(f"a delta must have all tables and be of kind {' or '.join(DELTAS)}, not {kind}")
    if (write := fields.find("exports", str(kind))) is not None:
        return _by_field(write, Path(run), out, options, allow_code, progress)
    kind = ExportKind(kind)
    with RunFolder(Path(run)).reading():
        source = _opened(Path(run))
        if kind is ExportKind.SAVEDMODEL:
            check_code(named_functions(source.spec), allow_code, record=source.folder.spec)
            if Step.NFC in (source.spec.data.token_steps or ()):
                raise RunError(
                    "data.normalize has the step nfc, which TensorFlow has no operation for, so an exported "
                    "model can't read tokens as the run does: normalise the data itself and train without this "
                    "step, or export tables with --as npy"
                )
        if since is not None:
            parent = since.folder.path if isinstance(since, Run) else Path(since)
            return _export_delta(source, parent, out, kind, allow_code, progress)
        chosen = _chosen(source, kind, tables)
        rows = {name: earlier_rows(source, name) for name in chosen}
        _check_room(out, kind, rows)
        signatures: Mapping[str, Mapping[str, str]] = {}
        shapes = {name: (row.rows, row.dim) for name, row in rows.items()}
        with _written_whole(out) as directory:
            match kind:
                case ExportKind.SAVEDMODEL if tables_apart:
                    signatures = _write_apart(source, rows, directory, out, allow_code, progress=progress)
                case ExportKind.SAVEDMODEL:
                    from embexp.runs import serving

                    signatures = serving.write(source, rows, directory, allow_code, progress=progress)
                case ExportKind.NPY:
                    _write_npy(source, rows, directory, out, progress=progress)
                case ExportKind.WORD2VEC:
                    shapes = _write_word2vec(source, rows, directory, out, binary=binary, progress=progress)
                case ExportKind.PROJECTOR:
                    _write_projector(source, rows, directory, progress=progress)
        return Exported(out, shapes, signatures)


def _new_place(out: Path | str) -> Path:
    """The path of a new export.

    Raises:
        RunError: the path exists.
        UsageError: the path is in the folder of a run.
    """
    out = Path(out)
    if out.exists():
        raise RunError(f"{out} already exists: give the export another name")
    check_place(out, str(out))
    return out


def _opened(run: Path) -> EarlierCheckpoint:
    source = earlier.open_run(run, cache=caching.cache_folder(None))
    return replace(source, cache=caching.cache_folder(source.spec.output.cache))


@contextlib.contextmanager
def _written_whole(out: Path) -> Iterator[Path]:
    """A directory that becomes `out` when the block ends without an error.

    Raises:
        RunError: the directory can't be written.
    """
    try:
        with files.atomic_directory(out) as directory:
            yield directory
    except OSError as error:
        raise RunError(f"{out} can't be written: {error.strerror or error}") from error


def _export_delta(
    run: EarlierCheckpoint, parent: Path, out: Path, kind: ExportKind, allow_code: Collection[str], progress: Progress
) -> Exported:
    """Writes the changes of a run since its parent."""
    from embexp.runs import deltas

    def write_model(directory: Path) -> None:
        from embexp.runs import serving

        rows = {name: earlier_rows(run, name) for name in run.tables}
        serving.write(run, rows, directory, allow_code, without_rows=True, progress=progress)

    with RunFolder(parent).reading(), _written_whole(out) as directory:
        model = write_model if kind is ExportKind.SAVEDMODEL else None
        changed = deltas.write(run, _opened(parent), directory, model, progress)
    return Exported(out, {name: run.shape(name) for name in run.tables}, changed=changed)


def apply_delta(base: Path | str, delta: Path | str, out: Path | str, *, progress: Progress = quiet) -> Exported:
    """Makes a whole export of a run: of the one of its parent, and of the run's delta since the parent.

    Args:
        base: a SavedModel, or a folder of `.npy` files, with all tables.
        delta: see `export`.
        out: the new directory; its parents are made.

    Raises:
        RunError: `out` exists or can't be written, or there is no room on the disk.
        DataError: the delta is damaged, or is that of another base.
        UsageError: `out` is in the folder of a run.
    """
    from embexp.runs import deltas

    out = _new_place(out)
    whole = deltas.applied(Path(base), Path(delta))
    rows = {name: table.rows for name, table in whole.tables.items()}
    _check_room(out, ExportKind.NPY, rows)
    with _written_whole(out) as directory:
        whole.write(directory, out, progress)
    return Exported(out, {name: (each.rows, each.dim) for name, each in rows.items()})


def _by_field(
    write: Writer, run: Path, out: Path, options: Mapping[str, Any], allow_code: Collection[str], progress: Progress
) -> Exported:

    with RunFolder(run).reading():
        loaded = load_run(run, allow_code=tuple(allow_code))
        with _written_whole(out) as directory:
            written = write(loaded, directory, out, progress, **options)
    return Exported(out, written.shapes, facts=written.facts)


def _chosen(source: earlier.EarlierCheckpoint, kind: ExportKind, tables: Collection[str]) -> tuple[str, ...]:
    """The tables to export.

    Raises:
        RunError: there is no such table, or the model would lack one.
    """
    if unknown := [name for name in tables if name not in source.tables]:
        raise RunError(
            f"{source.folder.path}: no table {', '.join(map(repr, unknown))}; the tables are {', '.join(source.tables)}"
        )
    if tables and kind is ExportKind.SAVEDMODEL:
        raise RunError("a SavedModel needs all tables of the run: don't name tables, or export them as files")
    return tuple(name for name in source.tables if not tables or name in tables)


def _check_room(out: Path, kind: ExportKind, tables: Mapping[str, Rows]) -> None:
    """Raises a RunError if the disk has less room than the tables need."""
    needed = sum(_BYTES_PER_NUMBER[kind] * table.rows * table.dim for table in tables.values())
    there = next(folder for folder in (out.absolute(), *out.absolute().parents) if folder.exists())
    free = shutil.disk_usage(there).free
    if free < needed:
        raise RunError(
            f"{out}: the tables need about {byte_size(needed)}, but the disk of {there} has only "
            f"{byte_size(free)} left; free some space, or export to another disk"
        )


def _write_npy(
    run: EarlierCheckpoint, tables: Mapping[str, Rows], directory: Path, out: Path, *, progress: Progress
) -> None:
    """Writes `NAME.npy` with all rows of each table, and `NAME.tokens.txt` unless ids are row numbers.

    The line of the OOV row is `<oov>`, or empty if that is a token. The same holds for the rows of missing and of rare
    values. Lines of rows without a token are empty. Buckets have no tokens.

    Raises:
        DataError: a token contains a line break.
    """
    for name, rows in tables.items():
        vocabulary = run.vocabulary(name)
        tokens = lines_of_rows(vocabulary, rows.rows) if isinstance(vocabulary, TokenVocabulary) else None
        file, other = f"{name}.npy", _any_token(run, name)
        vectors.write_vectors(rows, tokens, directory / file, named=out / file, any_token=other, progress=progress)


def _write_apart(
    run: EarlierCheckpoint,
    tables: Mapping[str, Rows],
    directory: Path,
    out: Path,
    allow_code: Collection[str],
    *,
    progress: Progress,
) -> Mapping[str, Mapping[str, str]]:
    """Writes `model`, a SavedModel that takes rows, and `tables`, see `_write_npy`; returns the signatures.

    Buckets have no tokens, so `NAME.json` has the meaning of their rows, as in the run.
    """
    from embexp.runs import serving

    model, folder = directory / "model", directory / "tables"
    model.mkdir()
    folder.mkdir()
    signatures = serving.write_apart(run, tables, model, allow_code, progress=progress)
    _write_npy(run, tables, folder, out / folder.name, progress=progress)
    for name in tables:
        if not isinstance(vocabulary := run.vocabulary(name), TokenVocabulary):
            vocabulary.write(folder / name)
    return signatures


def lines_of_rows(vocabulary: TokenVocabulary, rows: int) -> pa.LargeStringArray:
    """The lines of `NAME.tokens.txt` of a table of so many rows, see `_write_npy`."""
    shown = [text for text, *_ in vocabulary.special]
    tokens_too = vocabulary.rows(shown) >= vocabulary.first
    before = ["" if token else text for text, token in zip(shown, tokens_too, strict=True)]
    return pa.concat_arrays([_strings(before), vocabulary.known, _strings([""] * (rows - vocabulary.size))])


def _write_word2vec(
    run: EarlierCheckpoint, tables: Mapping[str, Rows], directory: Path, out: Path, *, binary: bool, progress: Progress
) -> dict[str, tuple[int, int]]:
    """Writes the rows that have a token in word2vec's form: `NAME.vec` (text) or `NAME.bin` (binary).

    If ids are row numbers, they are the tokens. Returns how many rows of which dimension were written, by table.

    Raises:
        DataError: word2vec's files can't hold a token, or rows are buckets.
    """
    written = {}
    for name, rows in tables.items():
        file = f"{name}.{'bin' if binary else 'vec'}"
        vocabulary = run.vocabulary(name)
        if not stands_for_tokens(vocabulary):
            rule = f"the rows of table {name} are {described(vocabulary)}, but word2vec's files need tokens"
            raise DataError(f"{out / file}: {rule}; don't name the table, or export it as npy")
        known = row_tokens(vocabulary)
        other = _any_token(run, name)
        _check_word2vec(out / file, known.tokens, other)
        some = SomeRows(rows, np.arange(known.first, known.first + len(known.tokens)))
        vectors.write_vectors(
            some, known.tokens, directory / file, named=out / file, any_token=other, progress=progress
        )
        written[name] = (some.rows, some.dim)
    return written


def _write_projector(
    run: EarlierCheckpoint, tables: Mapping[str, Rows], directory: Path, *, progress: Progress
) -> None:
    """Writes rows with their tokens and frequencies for TensorBoard's Embedding Projector."""
    shapes = {}
    for name, rows in tables.items():
        vocabulary = run.vocabulary(name)
        columns = {"frequency": map(str, vocabulary.frequencies)} if isinstance(vocabulary, TokenVocabulary) else {}
        vectors.write_projector_table(rows, vocabulary.tokens(), columns, directory, name, progress=progress)
        shapes[name] = (vocabulary.size, rows.dim)
    vectors.write_projector_config(shapes, directory)


def _any_token(run: EarlierCheckpoint, table: str) -> str:
    """The command that writes a table's rows in a form that holds any token."""
    return f"embexp vectors convert {shlex.quote(str(run.folder.path))} {table}.parquet --table {table}"


def _check_word2vec(path: Path, tokens: pa.LargeStringArray, any_token: str) -> None:
    """Raises a DataError for a token with a blank, because word2vec's readers would end the token there."""
    row = pc.index(pc.match_substring(tokens, " "), True).as_py()
    if row >= 0:
        raise DataError(
            f"{path}: found the token {excerpt(tokens[row].as_py())}, but word2vec's files can't hold tokens "
            f"with spaces; for a format that can: {any_token}"
        )


def _strings(values: list[str]) -> pa.LargeStringArray:
    return pa.array(values, pa.large_string())


@dataclass(frozen=True)
class Predictions:
    """Predictions for the n examples of a file.

    Attributes:
        prediction: see `Run.predict`, [n].
        unknown: feature -> bool [n], whether a value is out of vocabulary; one that is missing is not.
        probabilities: of the classes by name, float32 [n] each; empty where classes have no names.
        classes: str [n], the likelier class, of task binary whose classes have names; None: there are none.
        missing: feature -> bool [n], whether a value is missing: an empty cell, or null.
        further: what else the task predicts, [n] each, by the name of its column in a file.
    """

    prediction: np.ndarray
    unknown: Mapping[str, np.ndarray]
    probabilities: Mapping[str, np.ndarray] = field(default_factory=dict)
    classes: np.ndarray | None = None
    missing: Mapping[str, np.ndarray] = field(default_factory=dict)
    further: Mapping[str, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True)
class PreparedEvaluation:
    """An evaluation that was prepared.

    Attributes:
        rows: int64, which of `examples` are evaluated.
        of_rows: prepares the evaluation of some of the rows; None: a part does not tell how good the whole is.
    """

    measured: Evaluation
    columns: Columns
    examples: Examples
    rows: np.ndarray
    of_rows: Callable[[np.ndarray], Evaluation] | None = None


def load_run(directory: Path | str, *, allow_code: Sequence[str] = ()) -> Run:
    """Loads a run from its directory: a finished run, or an unfinished one from its newest checkpoint.

    The summary of an unfinished run has `status` unfinished and, as `steps`, the step of that checkpoint.

    Raises:
        NotARunError: the directory has no run, or an unfinished one without a checkpoint.
        RunError: another process writes it.
        DataError: its spec or summary is not what the run wrote.
    """
    folder = RunFolder(Path(directory))
    with folder.reading():
        folder.check(folder.spec, folder.summary)
        spec = folder.read_spec()
        if folder.summary.exists():
            return Run(folder, spec, folder.read_summary(), folder.final_checkpoint, tuple(allow_code))
        newest = next(store.newest_first(folder.checkpoints, [], checked=False), None)
    if newest is None:
        raise NotARunError(
            f"{folder.path} holds an unfinished run without a checkpoint; complete it: "
            f"{shlex.join(['embexp', 'resume', str(folder.path)])}"
        )
    return Run(folder, spec, newest.state["summary"], newest.directory, tuple(allow_code))


@dataclass(frozen=True)
class Run:
    """A loaded run. Tables and model are restored on first use.

    Attributes:
        checkpoint: directory of the checkpoint that tables and model come from.
        allow_code: functions that the recorded spec may run, such as the one that builds the user's own model.
    """

    folder: RunFolder
    spec: RunSpec
    summary: Mapping[str, Any]
    checkpoint: Path
    allow_code: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<Run: {results.run_as_text(self.summary, self.folder.path)}>"

    def _repr_html_(self) -> str:
        """Status and metrics for a notebook."""
        return results.run_as_html(self.summary, self.folder.path)

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl, parsed.

        Raises:
            DataError: it is not what the run wrote.
        """
        self.folder.check(self.folder.metrics)
        return list(self.folder.read_metrics())

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes by label: for classification, and for binary if the data has names; else empty."""
        return tuple(self.summary.get("classes", ()))

    def vocabulary(self, table: str) -> Vocabulary:
        """The vocabulary of a table: the token of each row.

        Raises:
            UsageError: the run has no such table.
            DataError: the file is missing or damaged, or does not fit the table.
        """
        self._check_table(table)
        whole = self.spec.tables[table].vocabulary_size is None and isinstance(
            self.spec.pretrained_of(table), NoPretrained
        )
        rows = self.summary["tables"][table]["vocabulary_size"]
        found = Vocabulary.read_for(self.folder.checked_vocabulary(table), rows, exactly=whole)
        return found.normalizing(self.spec.data.token_steps)

    def table(self, name: str) -> np.ndarray:
        """The final rows of a table, float32 [vocabulary_size, dim], in memory. The model is not built for it.

        Raises:
            UsageError: the run has no such table; or it has not ended and its model is code that isn't allowed.
            RunError: it has no checkpoint.
        """
        self._check_table(name)
        if self.summary["status"] == "unfinished":  # a checkpoint of the training may be incremental
            return np.concatenate(list(self._restored.tables[name].blocks()))
        return read_table(self.folder, name, cache=self.spec.output.cache)

    @property
    def model(self) -> Any:
        """The dense part, a `keras.Model` with the run's values, which maps the activations of the features to logits.

        It takes a dict of activations [B, …, dim] by feature, and `dense` [B, width] if the data has dense columns. The
        run uses the same object, so training it changes what `evaluate` and `predict` return.

        Raises:
            RunError: the run has no checkpoint.
            UsageError: the model is the user's own, built by a function that isn't allowed.
        """
        return self._restored.checkpoint.model

    def neighbors(self, table: str, token: str | int, k: int = 10) -> list[tuple[str, float]]:
        """The rows of a table that are nearest to the row of a token, by cosine similarity.

        Args:
            token: token of a row, or its number if ids are row numbers.
            k: number of rows.

        Returns:
            Token and cosine, the nearest first. Cosines are in [-1, 1] except for rounding.

        Raises:
            UsageError: the table does not exist, or `k` is less than 1.
            VocabularyError: the table has no such token.
        """
        self._check_table(table)
        if isinstance(k, bool) or not isinstance(k, int) or k < 1:
            raise UsageError(f"Run.neighbors: k must be a whole number of at least 1, not {k!r}")
        tokens = pa.array(self.vocabulary(table).tokens(), pa.large_string())
        row = neighbors.row_of_token(tokens, str(token), f"table {table} of {self.folder.path}")
        found = neighbors.nearest(ArrayRows(self.table(table)), [row], k)[0]
        return [(tokens[each.row].as_py(), each.cosine) for each in found]

    def _check_table(self, name: str) -> None:
        if name not in self.spec.tables:
            raise UsageError(f"{self.folder.path} has no table {name!r}; its tables are {', '.join(self.spec.tables)}")

    def evaluate(
        self,
        data: Any = None,
        *,
        split: str = "test",
        progress: Progress = quiet,
        details: dict[str, Any] | None = None,
    ) -> dict[str, float]:
        """Metrics on a split of the run's own data, or on other data of the same form.

        Args:
            data: data to evaluate on, as in `predict`; None: the run's own data.
            split: of the run's own data: train, validation, test, or another split that the data has.
            progress: called with each stage and the fraction of it that is done.
            details: is filled with what `evaluation` in summary.json holds for a split: `intervals`, and `confusion` of
                classes.

        Raises:
            RunError: the data has no such split, or the split is empty.
            UsageError: the model is the user's own, built by a function that isn't allowed; or `data` is not data.
            DataError: `data` lacks a column, or a value can't be read; or the run's own data, which some models and
                tasks need, has changed.
        """
        return self.evaluation(data, split=split, progress=progress).measured(self.runtime, progress, details)

    def evaluation(self, data: Any = None, *, split: str = "test", progress: Progress = quiet) -> PreparedEvaluation:
        """Prepares an evaluation without the model; same arguments and exceptions as `evaluate`."""
        evaluator = self.evaluator()
        if data is not None:
            columns, examples = self._encode(data, progress, labelled=True)
            measured = evaluator.file(columns, examples, partial(read_recorded_data, self.folder, self.spec, progress))
            return PreparedEvaluation(measured, columns, examples, np.arange(examples.count))
        own = read_recorded_data(self.folder, self.spec, progress)
        if split not in own.scan.splits:
            raise RunError(f"this run's data has no split {split}; its splits are {', '.join(own.scan.splits)}")
        of_split, rows = evaluator.split(own, split), own.scan.splits[split]
        if of_split is None:
            filled = [f"--split {name} ({len(rows):,} examples)" for name, rows in own.scan.splits.items() if len(rows)]
            raise RunError(f"the {split} split of this run's data is empty; available: {' and '.join(filled)}")
        parts = partial(evaluator.of_rows, own, split) if evaluator.parts else None
        return PreparedEvaluation(of_split, own.columns, own.scan.examples, rows, parts)

    def predict(self, data: Any, *, progress: Progress = quiet) -> np.ndarray:
        """A prediction for each example of a file, or of data in memory.

        Args:
            data: path of a file or folder; or a dict of columns (lists or NumPy arrays), an Arrow table, or a pandas or
                Polars data frame. Labels are not needed.
            progress: called with each stage and the fraction of it that is done.

        Returns:
            float32 [n]: numbers, probabilities of label 1, or scores of users' items. For classification, str [n], the
            class names.

        Raises:
            UsageError: the model is the user's own, built by a function that isn't allowed; or `data` is not data.
            DataError: `data` lacks a column, or a value can't be read; or the run's own data, which some models and
                tasks need, has changed.
        """
        return self.predictions(data, progress=progress).prediction

    def predictions(self, data: Any, *, progress: Progress = quiet) -> Predictions:
        """What `predict` returns, plus class probabilities and the values that the run does not know.

        Args:
            data: see `predict`.
            progress: called with each stage and the fraction of it that is done.

        Raises:
            UsageError: the model is the user's own, built by a function that isn't allowed; or `data` is not data.
            DataError: `data` lacks a column, or a value can't be read; or the run's own data, which some models and
                tasks need, has changed.
        """
        evaluator = self.evaluator()
        if evaluator.no_predictions:
            raise RunError(evaluator.no_predictions)
        columns, examples = self._encode(data, progress, labelled=False)
        runtime = self.runtime
        found = evaluator.predictions(runtime, columns, examples, self.classes, self._vocabularies, progress)
        held = {*examples.id_columns, *examples.lists}  # others are made, such as candidates
        own = [name for name in self.spec.features if self.spec.ids_of(name) in held]
        kinds = {name: self._without_row(examples, name) for name in own}
        missing, unknown = ({name: each[place] for name, each in kinds.items()} for place in range(2))
        return Predictions(found.prediction, unknown, found.probabilities, found.classes, missing, found.further)

    def alike_unknown(self, data: Path | str) -> dict[str, Alike]:
        """By column, values of a file that the run does not know and that differ from known ones only in spelling."""
        columns, _ = columns_of(self.spec.data, self.spec.features, self.spec.tables, labelled=False)
        vocabularies = self.vocabularies_by_group
        file, cache = OtherFile(Path(data), vocabularies, self.classes), caching.cache_folder(self.spec.output.cache)
        with as_the_runs_data(data):
            tokens = source_of(self.spec.data).tokens_of_file(file, columns, cache=cache)
        near = {table: unknown_alike(texts, vocabularies[table]) for table, texts in tokens.items()}
        names = {table: ", ".join(name for name, of in columns.ids.items() if of == table) for table in tokens}
        return {names[table]: found for table, found in near.items() if found is not None}

    def _without_row(self, examples: Examples, feature: str) -> tuple[np.ndarray, np.ndarray]:
        """Whether a value of a feature, other than a made one, is missing, and whether it is unknown: bool [n] each."""
        vocabulary, column = self._vocabularies[self.spec.features[feature].table], self.spec.ids_of(feature)
        several = examples.lists.get(column)
        rows = examples.column(column) if several is None else several.values
        absent = rows == 0 if isinstance(vocabulary, BucketVocabulary) else np.zeros(len(rows), bool)
        if (codes := examples.codes.get(column)) is not None:
            absent = codes == 0
        unknown = (rows < vocabulary.oov) & ~absent
        if several is None:
            return absent, unknown
        splits = several.splits
        ends = splits[:-1] + source_of(self.spec.data).own_values(np.diff(splits))

        def of_examples(values: np.ndarray) -> np.ndarray:
            before = np.concatenate([[0], np.cumsum(values)])
            return np.asarray(before[ends] > before[splits[:-1]])

        return of_examples(absent), of_examples(unknown)

    def __getattr__(self, name: str) -> Any:
        """What fields add, such as `recommend`: a function of theirs, with this run as its first argument."""
        if name.startswith("_") or (function := fields.find("methods", name)) is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return partial(function, self)

    def __dir__(self) -> list[str]:
        """With what fields add."""
        return [*super().__dir__(), *fields.names("methods")]

    def columns_of_file(self, file: Path | str, names: Sequence[str]) -> dict[str, list[str]]:
        """Columns of a file in the form of the run's data, as text, with one value per example.

        Raises:
            DataError: the file, or the form, has no such columns.
        """
        with as_the_runs_data(file):
            return source_of(self.spec.data).read_columns(Path(file), names)

    def continue_(
        self, data: Any, overrides: Sequence[str] = (), directory: Path | str | None = None, **options: Any
    ) -> RunResult:
        """Starts a new run where this one ended, on other data; see `embexp.continue_run`."""
        go_on = importlib.import_module("embexp").continue_run
        result: RunResult = go_on(self.folder.path, data, overrides, directory, allow_code=self.allow_code, **options)
        return result

    def export(self, out: Path | str, kind: str = "savedmodel", **options: Any) -> Exported:
        """Writes the run for other programs; see `embexp.runs.finished.export`."""
        return export(self.folder.path, out, kind, allow_code=self.allow_code, **options)

    def evaluator(self) -> Evaluator:
        """What evaluates it; imports TensorFlow.

        Raises:
            UsageError: the spec names code that isn't allowed.
        """
        check_code(named_functions(self.spec), self.allow_code, record=self.folder.spec)
        from embexp.runs.evaluations import evaluator_of

        return evaluator_of(self.spec)

    @cached_property
    def _vocabularies(self) -> dict[str, Vocabulary]:
        """The vocabularies by table. They are cached, so that a program that predicts row by row reads them once."""
        return {
            table: self.vocabulary(table) for table in dict.fromkeys(each.table for each in self.spec.features.values())
        }

    @cached_property
    def _numbers(self) -> tuple[FittedColumn, ...]:
        return fitted_numbers(self.folder, columns_of(self.spec.data, self.spec.features)[0])

    @property
    def vocabularies_by_group(self) -> dict[str, Vocabulary]:
        """By the names that `Columns.ids` has for them; several tables may share one."""
        _, shared = columns_of(self.spec.data, self.spec.features, self.spec.tables)
        return {group: self._vocabularies[table] for table, group in shared.items()}

    def _encode(self, data: Any, progress: Progress, *, labelled: bool) -> tuple[Columns, Examples]:
        spec = self.spec
        columns, _ = columns_of(spec.data, spec.features, spec.tables, labelled=labelled, task=spec.task)
        vocabularies = self.vocabularies_by_group
        known: dict[str, Any] = {"classes": self.classes, "numbers": self._numbers}
        in_memory = arrow_columns.is_in_memory(data)
        with as_the_runs_data(arrow_columns.IN_MEMORY if in_memory else data):
            if in_memory:
                examples = encode_in_memory(data, source_of(spec.data), columns, vocabularies, **known)
            else:
                known |= {"cache": caching.cache_folder(spec.output.cache), "progress": progress}
                examples = encode_file(Path(data), spec.data, columns, vocabularies, **known)
        if columns.histories:  # from the training split, whatever the examples are
            own = read_recorded_data(self.folder, spec, progress)
            examples = replace(examples, histories=own.scan.examples.histories)
        return columns, examples

    def _prepared_tables(self) -> PreparedTables:
        """The tables for the function runtime.

        Raises:
            RunError: a pretrained file of the run has changed.
        """
        initialized, tables = self.summary["initialization"]["tables"], self.summary["tables"]
        # A table counts as pretrained only if its file had rows for it.
        spec = self.spec.settled({}, [name for name in self.spec.tables if initialized[name]["pretrained"] is None])
        settings = {name: each for name, each in settings_of(spec).items() if spec.kept_by_reference(name)}
        cache = caching.cache_folder(spec.output.cache)
        pretrained = pretrained_before(self.folder, settings, self.summary, self.spec.data.token_steps, cache=cache)
        facts = {
            name: RowFacts(known["vocabulary_size"], None, pretrained.pretrained_rows(name), pretrained.old_rows(name))
            for name, known in tables.items()
        }
        # The init method no longer matters: a checkpoint or a file has the values. Nor does the storage, which
        # checkpoints don't record. Which rows were frozen matters only if all were: the table then has no slots.
        unsplit = {
            name: table.model_copy(
                update={
                    "dim": tables[name]["dim"],
                    "init": MemoryMap()
                    if isinstance(spec.init_of(name), MemoryMap) and spec.kept_by_reference(name)
                    else Assign(),
                    "freeze": FreezeTable() if not self.summary["freeze"][name]["trainable_rows"] else NoFreeze(),
                    "storage": Storage.AUTO,
                    **({} if spec.kept_by_reference(name) else {"pretrained": NoPretrained()}),
                }
            )
            for name, table in spec.tables.items()
        }
        settled = spec.model_copy(update={"tables": unsplit})
        return prepare_tables(settled, facts, pretrained, steps_per_epoch=1.0, runtime=RuntimeKind.FUNCTION)

    @property
    def runtime(self) -> Runtime:
        """What computes with its tables and model, as the run did; see `model` for what it raises."""
        restored = self._restored
        if self._kernels.pieces is not None:
            from embexp.strategies import pieces

            pieces.cut_again(self._kernels.pieces)  # each time: other runs of this process may have other numbers
        return restored.runtime

    @cached_property
    def _kernels(self) -> Kernels:
        """The kernels that the run was trained with."""
        return Kernels.of_run(self.folder)

    @cached_property
    def _restored(self) -> Execution:
        """The run in the function runtime, with the values from its checkpoint."""
        if not self.checkpoint.exists():
            raise RunError(f"{self.folder.path} has no checkpoint (checkpoint.save was never)")
        check_code(named_functions(self.spec), self.allow_code, record=self.folder.spec)
        from embexp.runs import execute
        from embexp.strategies.strategy import OneDevice

        arguments.require_eager("the model of a loaded run")
        self.folder.check(self.checkpoint)
        tables = self._prepared_tables()
        columns, _ = columns_of(self.spec.data, self.spec.features)
        dense = execute.dense_settings(
            tables.spec,
            rows=tables.rows,
            width=columns.dense_width,
            total_steps=max(1, self.summary["steps"]),
            classes=len(self.classes),
        )
        with self.folder.reading():
            return execute.build_finished(tables, dense, OneDevice(), self.checkpoint)
