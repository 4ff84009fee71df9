"""A finished run, to look into, to evaluate and to predict with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from embexp import assembly, places, story
from embexp.checkpoints import store
from embexp.data import batches
from embexp.data.columns import Columns, columns_of
from embexp.data.examples import Examples
from embexp.data.scan import encode_file
from embexp.data.vocabulary import Vocabulary
from embexp.errors import ConfigError, DataError, RunError
from embexp.folder import RunFolder
from embexp.specs.data import Clicks
from embexp.specs.models import Task
from embexp.specs.run import RunSpec
from embexp.training.evaluation import evaluate, predictions


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
            part: train, validation or test, of the run's own data.
        """
        if file is not None:
            columns, examples = self._encode(Path(file), labelled=True)
            rows: np.ndarray = np.arange(examples.count)
        else:
            data = story.read_data(self.spec, lambda what, done: None)
            columns, examples, rows = data.columns, data.scan.examples, data.scan.splits[part]
            if not len(rows):
                raise RunError(f"the {part} part of this run's data is empty")
        return evaluate(self.spec.task, self._restored.runtime, self._batches(examples, rows, columns), len(rows))

    def predict(self, file: Path | str) -> np.ndarray:
        """A prediction for each example of a file, float32 [n]: ratings, or the probabilities of a click."""
        columns, examples = self._encode(Path(file), labelled=False)
        batch = self._batches(examples, np.arange(examples.count), columns)
        _, logits = predictions(self._restored.runtime, batch, examples.count)
        if self.spec.task is Task.RATING:
            return logits
        return np.asarray(1 / (1 + np.exp(-logits.astype(np.float64))), np.float32)

    def _batches(self, examples: Examples, rows: np.ndarray, columns: Columns) -> Any:
        return batches.evaluation_batches(
            examples, rows, columns, batch_size=self.spec.evaluation_batch_size, full=self.spec.fixed_batch
        )

    def _encode(self, file: Path, *, labelled: bool) -> tuple[Columns, Examples]:
        if isinstance(self.spec.data, Clicks):
            raise RunError("this run's data is synthetic, so there is no file form to read others from")
        columns, shared = columns_of(self.spec.data, self.spec.features, labelled=labelled)
        vocabularies = {group: self.vocabulary(table) for table, group in shared.items()}
        cache = places.cache(self.spec.output.cache)
        try:
            return columns, encode_file(file, self.spec.data, columns, vocabularies, cache=cache)
        except ConfigError as error:  # what is wrong is this file, not the config that it is read by
            faults = "\n".join(f"  {fault.value}: {fault.rule}; {fault.remedy}".rstrip("; ") for fault in error.faults)
            raise DataError(f"{file} can't be read as this run's data was\n{faults}") from error

    @cached_property
    def _restored(self) -> assembly.Assembly:
        if not self.folder.final_checkpoint.exists():
            raise RunError(f"{self.folder.path} left no checkpoint (output.checkpoint was false)")
        columns, _ = columns_of(self.spec.data, self.spec.features)
        parts = assembly.assemble(
            self.spec,
            sizes={name: table["vocabulary_size"] for name, table in self.summary["tables"].items()},
            dense_width=len(columns.dense),
            output_bias=0.0,
            total_steps=max(1, self.summary["steps"]),
        )
        store.read(parts.checkpoint, self.folder.final_checkpoint)
        return parts
