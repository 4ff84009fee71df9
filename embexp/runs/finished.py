"""A finished run, to look into, to evaluate and to predict with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from embexp.checkpoints import store
from embexp.data import batches
from embexp.data.columns import Columns, columns_of
from embexp.data.examples import Examples
from embexp.data.scan import encode_file
from embexp.data.vocabulary import Vocabulary
from embexp.errors import ConfigError, DataError, RunError
from embexp.freezing import policies
from embexp.freezing.row_facts import row_facts
from embexp.initialization import filling
from embexp.pretrained.aligned import align
from embexp.pretrained.tables import Pretrained
from embexp.records.folder import RunFolder
from embexp.runs import assembly, evaluations, scanned, story
from embexp.runtimes.function import FunctionRuntime
from embexp.specs.data import Clicks
from embexp.specs.freezing import FreezeTable, NoFreeze
from embexp.specs.inits import Assign, MemoryMap
from embexp.specs.models import Task
from embexp.specs.pretrained import NoPretrained
from embexp.specs.run import RunSpec
from embexp.specs.running import RuntimeKind
from embexp.specs.strategies import TPU, TPUSimulator
from embexp.specs.tables import Storage
from embexp.strategies.one_device import OneDevice
from embexp.system import places
from embexp.tables.backend import EmbeddingBackend
from embexp.tables.serving import ServingBackend
from embexp.tables.tpu_tables import TPUTable
from embexp.training.evaluation import predictions


def load_run(directory: Path | str) -> Run:
    """Opens the directory of a finished run.

    Raises:
        NotARunError: it holds no finished run.
    """
    folder = RunFolder(Path(directory))
    return Run(folder, folder.read_spec(), folder.read_summary())


@dataclass(frozen=True)
class Run:
    """A finished run. Tables and model are restored when first asked for.

    Attributes:
        folder: what lies where.
        spec: what was asked for.
        summary: what it came to.
    """

    folder: RunFolder
    spec: RunSpec
    summary: Mapping[str, Any]

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl."""
        return list(self.folder.read_metrics())

    @property
    def classes(self) -> tuple[str, ...]:
        """Of task classification, by number: labels are numbers of classes."""
        return tuple(self.summary.get("classes", ()))

    def vocabulary(self, table: str) -> Vocabulary:
        """What the rows of a table stand for."""
        return Vocabulary.read(self.folder.vocabularies / table)

    def table(self, name: str) -> np.ndarray:
        """The final values of a table, float32 [vocabulary_size, dim], as one array in memory.

        Raises:
            RunError: the run has no such table, or left no checkpoint.
        """
        if name not in self.spec.tables:
            raise RunError(f"{self.folder.path}: no table {name!r}; the tables are {', '.join(self.spec.tables)}")
        return np.concatenate(list(self._restored.tables[name].blocks()))

    def evaluate(self, file: Path | str | None = None, *, part: str = "test") -> dict[str, float]:
        """Metrics on a part of the run's own data, or on another file of the same form.

        Args:
            file: data to evaluate on; None: the run's own.
            part: train, validation or test, of the run's own data; or a further one that it has.

        Raises:
            RunError: it has no such part, or the part is empty.
        """
        if file is None:
            data = scanned.read_data(self.spec, lambda what, done: None)
            if part not in data.scan.splits:
                raise RunError(f"this run's data has no part {part}; its parts are {', '.join(data.scan.splits)}")
            measured = story.evaluation_of(self.spec, data, part)
            if measured is None:
                raise RunError(f"the {part} part of this run's data is empty")
            return measured(self._restored.runtime)
        columns, examples = self._encode(Path(file), labelled=True)
        rows, candidates, known = np.arange(examples.count), None, []
        if self.spec.task is Task.RANKING:  # the other right answers are those of the run's data too
            data = scanned.read_data(self.spec, lambda what, done: None)
            candidates, known = data.candidates, [data.scan.examples]
        measured = evaluations.evaluation(self.spec, columns, examples, rows, candidates, known)
        return measured(self._restored.runtime)

    def predict(self, file: Path | str) -> np.ndarray:
        """A prediction for each example of a file.

        Returns:
            float32 [n]: ratings, or the probabilities of a click; for classification str [n], the names of classes.
        """
        if self.spec.task is Task.RANKING:
            raise RunError("nothing is predicted of triples; evaluate ranks their heads and tails among all entities")
        columns, examples = self._encode(Path(file), labelled=False)
        batch = batches.evaluation_batches(
            examples,
            np.arange(examples.count),
            columns,
            batch_size=self.spec.evaluation_batch_size,
            full=self.spec.fixed_batch,
        )
        _, logits = predictions(self._restored.runtime, batch, examples.count)
        match self.spec.task:
            case Task.RATING:
                return logits
            case Task.CLICK:
                return np.asarray(1 / (1 + np.exp(-logits.astype(np.float64))), np.float32)
            case Task.CLASSIFICATION:
                names: np.ndarray = np.asarray(self.classes)[logits.argmax(axis=1)]
                return names

    def _encode(self, file: Path, *, labelled: bool) -> tuple[Columns, Examples]:
        if isinstance(self.spec.data, Clicks):
            raise RunError("this run's data is synthetic, so there is no file form to read others from")
        columns, shared = columns_of(self.spec.data, self.spec.features, labelled=labelled)
        vocabularies = {group: self.vocabulary(table) for table, group in shared.items()}
        cache = places.cache(self.spec.output.cache)
        try:
            return columns, encode_file(file, self.spec.data, columns, vocabularies, cache=cache, classes=self.classes)
        except ConfigError as error:  # what is wrong is this file, not the config that it is read by
            faults = "\n".join(f"  {fault.value}: {fault.rule}; {fault.remedy}".rstrip("; ") for fault in error.faults)
            raise DataError(f"{file} can't be read as this run's data was\n{faults}") from error

    @cached_property
    def _restored(self) -> _Restored:
        if not self.folder.final_checkpoint.exists():
            raise RunError(f"{self.folder.path} left no checkpoint (output.checkpoint was false)")
        given = self._kept_by_reference()
        spec = _restorable(self.spec, self.summary)
        sizes = {name: table["vocabulary_size"] for name, table in self.summary["tables"].items()}
        sources = filling.sources(spec, sizes, given)
        frozen = policies.settle(
            spec,
            {
                name: row_facts(None, sizes[name], given.pretrained_rows(name), given.old_rows(name))
                for name in spec.tables
            },
            steps_per_epoch=1.0,
            runtime=RuntimeKind.FUNCTION,
        )
        backend: EmbeddingBackend | None = None
        tables: Mapping[str, filling.Table | TPUTable]
        if isinstance(spec.strategy, TPU | TPUSimulator):
            served = filling.tpu_tables(spec, given, sources, frozen, hosts=1)
            tables, backend = served, ServingBackend(served, spec.features)
        else:
            made = filling.tables(spec, given, sources, frozen)
            by_reference = {name: table for name, table in made.items() if table.by_reference}
            filling.fill(by_reference, spec, frozen, sources, given)
            tables = made
        columns, _ = columns_of(spec.data, spec.features)
        parts = assembly.assemble(
            spec,
            tables,
            tf.Variable(0, dtype=tf.int64, trainable=False, name="step"),
            dense_width=len(columns.dense),
            output_bias=0.0,
            outputs=max(1, len(self.classes)),
            total_steps=max(1, self.summary["steps"]),
            placement=OneDevice(),  # wherever the run was
            backend=backend,
        )
        store.read(parts.checkpoint, self.folder.final_checkpoint)
        return _Restored(tables, FunctionRuntime(parts.step.train, parts.step.predict))

    def _kept_by_reference(self) -> Pretrained:
        """The files of tables whose values are in no checkpoint, found to be those that the run had.

        Raises:
            RunError: a file is no longer what it was.
        """
        spec = self.spec
        names = [name for name in spec.tables if spec.kept_by_reference(name)]
        recorded = self.summary["initialization"]["tables"]
        names = [name for name in names if recorded[name]["pretrained"] is not None]
        if not names:
            return Pretrained()
        tables = {
            name: table if name in names else table.model_copy(update={"pretrained": NoPretrained()})
            for name, table in spec.tables.items()
        }
        vocabularies = {name: self.vocabulary(name) for name in spec.tables}
        sizes = {name: table["vocabulary_size"] for name, table in self.summary["tables"].items()}
        given = align(
            spec.model_copy(update={"tables": tables}), vocabularies, sizes, cache=places.cache(spec.output.cache)
        )
        for name in names:
            was, found = recorded[name]["pretrained"], given.tables[name].source.digest
            if found != was["digest"]:
                raise RunError(
                    f"{was['path']} has changed since the run {self.folder.path}, whose frozen table {name!r} is made"
                    f" from it (digest {found}, expected {was['digest']}); put the file back to read the run"
                )
        return given


@dataclass(frozen=True)
class _Restored:
    tables: Mapping[str, filling.Table | TPUTable]
    runtime: FunctionRuntime


def _restorable(spec: RunSpec, summary: Mapping[str, Any]) -> RunSpec:
    """The same experiment for the function runtime, with the dims that its tables had, each table whole.

    What filled trainable tables no longer matters, as a checkpoint has their values; and frozen ones are the same
    whatever fills them. Nor does it matter how rows were kept, as checkpoints know nothing of it, or which of a
    table's rows were frozen, unless all were: then there are no slots.
    """
    tables = summary["tables"]
    chosen = {
        name: table.model_copy(
            update={
                "dim": tables[name]["dim"],
                "init": MemoryMap()
                if isinstance(spec.init_of(name), MemoryMap) and spec.kept_by_reference(name)
                else Assign(),
                "freeze": FreezeTable() if not summary["freeze"][name]["trainable_rows"] else NoFreeze(),
                "storage": Storage.AUTO,
            }
        )
        for name, table in spec.tables.items()
    }
    return spec.model_copy(update={"tables": chosen})
