"""The data of a run: scanned, with a vocabulary for each table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from embexp.data.candidates import Candidates
from embexp.data.columns import Columns, columns_of
from embexp.data.scan import Scan, scan
from embexp.data.vocabulary import Vocabulary
from embexp.errors import RunError, VocabularyError
from embexp.runs import evaluations
from embexp.specs.run import RunSpec
from embexp.system import places
from embexp.training import metrics

Say = Callable[[str, float | None], None]
"""Told of stages before the training: what is done, and the part of it that is, if known."""


@dataclass(frozen=True)
class Data:
    """What the scan found, ready to be read."""

    columns: Columns
    vocabularies: Mapping[str, Vocabulary]
    scan: Scan
    classes: tuple[str, ...] = ()
    """Of task classification, by number."""
    candidates: Candidates | None = None
    """Of task ranking: what the answers are among."""


def read_data(spec: RunSpec, say: Say) -> Data:
    """Scans the data (or finds it scanned) and gives each table its vocabulary.

    Raises:
        DataError: a file's content is not what it should be.
        RunError: nothing is left to train on.
    """
    columns, shared = columns_of(spec.data, spec.features)
    found = scan(spec.data, columns, cache=places.cache(spec.output.cache), progress=say)
    if not len(found.splits["train"]):
        raise RunError("the training part of the data is empty: see data.split")
    labels = found.examples.labels
    if labels is not None:
        metrics.check_labels(spec.task, labels, classes=len(found.classes) or None)
    classes = metrics.class_names(spec.task, labels, found.classes)
    vocabularies = {table: found.vocabularies[shared[table]] for table in spec.tables}
    return Data(columns, vocabularies, found, classes, evaluations.candidates_of(spec, vocabularies))


def table_sizes(spec: RunSpec, vocabularies: Mapping[str, Vocabulary]) -> dict[str, int]:
    """Rows of each table: what the config says, or as many as the vocabulary has.

    Raises:
        VocabularyError: the config gives a table fewer rows than its vocabulary needs.
    """
    sizes = {}
    for name, table in spec.tables.items():
        needed = vocabularies[name].size
        sizes[name] = needed if table.vocabulary_size is None else table.vocabulary_size
        if sizes[name] < needed:
            raise VocabularyError(
                f"tables.{name}.vocabulary_size = {table.vocabulary_size}: the data has {needed} values for this"
                " table (the row of unknown values among them); leave it null to take as many as there are, or set"
                " data.vocabulary.max_size"
            )
    return sizes
