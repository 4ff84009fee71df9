"""A run that was loaded: its tables, its evaluation and its predictions. TensorFlow is imported for the model alone."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from embexp.checkpoints import store
from embexp.data import numbers
from embexp.data.columns import Columns, columns_of
from embexp.data.examples import Examples
from embexp.data.files import frames
from embexp.data.numbers import FittedColumn
from embexp.data.scan import as_the_runs_data, encode_file, encode_in_memory
from embexp.data.sources.source import OtherFile, source_of
from embexp.data.vocabularies.doubtful_tokens import unknown_alike
from embexp.data.vocabularies.spelling import Alike
from embexp.data.vocabularies.vocabulary import BucketVocabulary, Vocabulary
from embexp.errors import DataError, NotARunError, RunError, UsageError
from embexp.freezing.policies import RowFacts
from embexp.records.folder import RunFolder, check_code, named_functions
from embexp.reports import results
from embexp.runs import exporting
from embexp.runs.exporting import Exported
from embexp.runs.prepare import PreparedTables, prepare_tables, read_recorded_data
from embexp.runs.table_vectors import read_table
from embexp.specs import arguments, fields
from embexp.specs.freezing import FreezeTable, NoFreeze
from embexp.specs.inits import Assign, MemoryMap
from embexp.specs.pretrained import NoPretrained
from embexp.specs.run import RunSpec
from embexp.specs.running import RuntimeKind
from embexp.specs.tables import Storage
from embexp.system import caching
from embexp.system.arrays import ArrayRows
from embexp.system.parallel import Progress, quiet
from embexp.vectors import neighbors
from embexp.vectors.pretrained.aligned import pretrained_before
from embexp.vectors.pretrained.tables import settings_of

if TYPE_CHECKING:
    from embexp.runs.evaluations import Evaluator
    from embexp.runs.runtimes.execution import Execution
    from embexp.training.loop import Runtime


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
            f"{folder.path} holds a run that has not ended, and has saved no checkpoint yet: complete it:"
            f" {shlex.join(['embexp', 'resume', str(folder.path)])}"
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
        """Names of the classes by label, of task classification, and of binary if the data has names; else empty."""
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
            UsageError: the run has no such table; or it has not ended, and its model is code that isn't allowed.
            RunError: it has no checkpoint.
        """
        self._check_table(name)
        if self.summary["status"] == "unfinished":  # a checkpoint of the training may be incremental
            return np.concatenate(list(self._restored.tables[name].blocks()))
        return read_table(self.folder, name, cache=self.spec.output.cache)

    @property
    def model(self) -> Any:
        """The dense part, a `keras.Model` with the run's values: from the activations of the features to logits.

        It takes a dict of activations [B, …, dim] by feature, and `dense` [B, width] if the data has dense columns. The
        run uses the same object, so training it changes what `evaluate` and `predict` return.

        Raises:
            RunError: the run has no checkpoint.
            UsageError: it is the user's own, built by a function that isn't allowed.
        """
        return self._restored.checkpoint.model

    def neighbors(self, table: str, token: str | int, k: int = 10) -> list[tuple[str, float]]:
        """The rows of a table that are nearest to the row of a token, by cosine similarity.

        Args:
            token: token of a row; if ids are row numbers, the number.
            k: number of rows.

        Returns:
            Token and cosine, in [-1, 1] except for rounding; the nearest first.

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
            data: to evaluate on: see `predict`; None: the run's own data.
            split: of the run's own data: train, validation, test, or another split that the data has.
            progress: called with stages, and how much of each is done.
            details: gets what `evaluation` in summary.json has of a split: `intervals`, and `confusion` of classes.

        Raises:
            RunError: the data has no such split, or the split is empty.
            UsageError: the model is the user's own, built by a function that isn't allowed; or `data` is none.
            DataError: `data` lacks a column, or a value can't be read; or the run's own data, which some models and
                tasks need, have changed.
        """
        evaluator = self.evaluator()
        if data is not None:
            columns, examples = self._encode(data, progress, labelled=True)
            measured = evaluator.file(columns, examples, partial(read_recorded_data, self.folder, self.spec, progress))
            return measured(self._restored.runtime, progress, details)
        own = read_recorded_data(self.folder, self.spec, progress)
        if split not in own.scan.splits:
            raise RunError(f"this run's data has no split {split}; its splits are {', '.join(own.scan.splits)}")
        of_split = evaluator.split(own, split)
        if of_split is None:
            filled = [f"--split {name} ({len(rows):,} examples)" for name, rows in own.scan.splits.items() if len(rows)]
            raise RunError(f"the {split} split of this run's data is empty; there is {' and '.join(filled)}")
        return of_split(self._restored.runtime, progress, details)

    def predict(self, data: Any, *, progress: Progress = quiet) -> np.ndarray:
        """A prediction for each example of a file, or of data in memory.

        Args:
            data: path of a file or folder; or a dict of columns (lists or NumPy arrays), an Arrow table, or a data
                frame of pandas or Polars, which need no label.
            progress: called with stages, and how much of each is done.

        Returns:
            float32 [n]: numbers, the probabilities of label 1, or the scores of users' items; for classification
            str [n], the names of classes.

        Raises:
            UsageError: the model is the user's own, built by a function that isn't allowed; or `data` is none.
            DataError: `data` lacks a column, or a value can't be read; or the run's own data, which some models and
                tasks need, have changed.
        """
        return self.predictions(data, progress=progress).prediction

    def predictions(self, data: Any, *, progress: Progress = quiet) -> Predictions:
        """What `predict` returns, with probabilities of classes and what the run does not know.

        Args:
            data: see `predict`.
            progress: called with stages, and how much of each is done.

        Raises:
            UsageError: the model is the user's own, built by a function that isn't allowed; or `data` is none.
            DataError: `data` lacks a column, or a value can't be read; or the run's own data, which some models and
                tasks need, have changed.
        """
        evaluator = self.evaluator()
        if evaluator.no_predictions:
            raise RunError(evaluator.no_predictions)
        columns, examples = self._encode(data, progress, labelled=False)
        found = evaluator.predictions(
            self._restored.runtime, columns, examples, self.classes, self._vocabularies, progress
        )
        held = {*examples.id_columns, *examples.lists}  # others are made, such as candidates
        own = [name for name in self.spec.features if self.spec.ids_of(name) in held]
        kinds = {name: self._without_row(examples, name) for name in own}
        missing, unknown = ({name: each[place] for name, each in kinds.items()} for place in range(2))
        return Predictions(found.prediction, unknown, found.probabilities, found.classes, missing, found.further)

    def alike_unknown(self, data: Path | str) -> dict[str, Alike]:
        """By columns, values of a file that the run does not know and that differ from known ones in spelling only."""
        columns, shared = columns_of(self.spec.data, self.spec.features, self.spec.tables, labelled=False)
        vocabularies = {group: self._vocabularies[table] for table, group in shared.items()}
        file, cache = OtherFile(Path(data), vocabularies, self.classes), caching.cache_folder(self.spec.output.cache)
        with as_the_runs_data(data):
            tokens = source_of(self.spec.data).tokens_of_file(file, columns, cache=cache)
        near = {table: unknown_alike(texts, vocabularies[table]) for table, texts in tokens.items()}
        names = {table: ", ".join(name for name, of in columns.ids.items() if of == table) for table in tokens}
        return {names[table]: found for table, found in near.items() if found is not None}

    def _without_row(self, examples: Examples, feature: str) -> tuple[np.ndarray, np.ndarray]:
        """Whether a value of a feature, other than a made one, is missing, and whether it has an OOV row: bool [n]."""
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
        """Columns of a file that has the form of the run's data, as text, with a value for each example.

        Raises:
            DataError: the file, or the form, has no such columns.
        """
        with as_the_runs_data(file):
            return source_of(self.spec.data).read_columns(Path(file), names)

    def export(self, out: Path | str, kind: str = "savedmodel", **options: Any) -> Exported:
        """Writes the run for other programs; see `embexp.runs.exporting.export`."""
        return exporting.export(self.folder.path, out, kind, allow_code=self.allow_code, **options)

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
        """By table; a program that predicts row by row does not read them each time."""
        return {
            table: self.vocabulary(table) for table in dict.fromkeys(each.table for each in self.spec.features.values())
        }

    @cached_property
    def _numbers(self) -> tuple[FittedColumn, ...]:
        return fitted_numbers(self.folder, columns_of(self.spec.data, self.spec.features)[0])

    def _encode(self, data: Any, progress: Progress, *, labelled: bool) -> tuple[Columns, Examples]:
        spec = self.spec
        columns, shared = columns_of(spec.data, spec.features, spec.tables, labelled=labelled, task=spec.task)
        vocabularies = {group: self._vocabularies[table] for table, group in shared.items()}
        known: dict[str, Any] = {"classes": self.classes, "numbers": self._numbers}
        in_memory = frames.is_in_memory(data)
        with as_the_runs_data(frames.NAME if in_memory else data):
            if in_memory:
                examples = encode_in_memory(data, source_of(spec.data), columns, vocabularies, **known)
            else:
                known |= {"cache": caching.cache_folder(spec.output.cache), "progress": progress}
                examples = encode_file(Path(data), spec.data, columns, vocabularies, **known)
        if columns.histories:  # those of the training split, whatever the examples are
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
        # checkpoints don't record. Which rows were frozen matters only if all were, as the table then has no slots.
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
        """What computes with its tables and model; see `model` for what it raises."""
        return self._restored.runtime

    @cached_property
    def _restored(self) -> Execution:
        """The run in the function runtime, with the values of its checkpoint."""
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


def fitted_numbers(folder: RunFolder, columns: Columns) -> tuple[FittedColumn, ...]:
    """The numeric columns, in the order in which the model gets them; empty: all are used as they are.

    Raises:
        DataError: the file is missing or damaged, or is that of another run.
    """
    settings = columns.dense_settings
    if all(setting.plain for setting in settings.values()):
        return ()
    folder.check(folder.numbers)
    found = numbers.read(folder.numbers)
    wanted = [
        (name, setting.transforms, setting.may_be_missing, setting.indicator) for name, setting in settings.items()
    ]
    if [(each.name, each.transforms, each.fill is not None, each.indicator) for each in found] != wanted:
        raise DataError(
            f"{folder.numbers} has other numeric columns than data.dense_features of the run: it is that of another"
            " run; put the one back with which the run was trained"
        )
    return found
