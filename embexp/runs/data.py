"""The data of a run: scanned, with a vocabulary for each table. No TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from embexp.data.candidates import Candidates
from embexp.data.columns import Columns, columns_of
from embexp.data.factory import source_of
from embexp.data.scan import Scan, scan
from embexp.data.shares import Shares
from embexp.data.vocabulary import Vocabulary
from embexp.errors import RunError
from embexp.specs.run import RunSpec
from embexp.system import caching
from embexp.system.progress import Progress
from embexp.training import metrics


@dataclass(frozen=True)
class Data:
    """The scanned data of a run.

    Attributes:
        columns: what the run reads of the data.
        vocabularies: by table.
        scan: the examples and their splits.
        classes: names of the classes of task classification, by number; empty for other tasks.
        candidates: the entities that task ranking ranks; None for other tasks.
        shares: by table and split, how many values have a row of their own; only of tokens and buckets.
    """

    columns: Columns
    vocabularies: Mapping[str, Vocabulary]
    scan: Scan
    classes: tuple[str, ...] = ()
    candidates: Candidates | None = None
    shares: Shares = field(default_factory=dict)

    @property
    def training_examples(self) -> int:
        """Number of examples in the training split."""
        return len(self.scan.splits["train"])

    @property
    def dense_width(self) -> int:
        """How many numbers the model gets of an example, beside the embeddings."""
        return self.columns.dense_width


def read_data(spec: RunSpec, progress: Progress) -> Data:
    """Scans the data (or finds it in the cache) and gives each table its vocabulary.

    Args:
        spec: what the user asked for.
        progress: called during the scan.

    Raises:
        ConfigError: the data lacks something that the config asks for.
        DataError: a file has unexpected content.
        RunError: the training split is empty.
    """
    columns, shared = columns_of(spec.data, spec.features, spec.tables)
    found = scan(spec.data, columns, cache=caching.cache_folder(spec.output.cache), progress=progress)
    if not len(found.splits["train"]):
        raise RunError("the training split of the data is empty: see data.split")
    labels = found.examples.labels
    if labels is not None:
        metrics.check_labels(spec.task, labels, classes=len(found.classes) or None)
    classes = metrics.class_names(spec.task, labels, found.classes)
    vocabularies = {table: found.vocabularies[shared[table]] for table in spec.tables}
    shares = {table: found.shares[group] for table, group in shared.items() if group in found.shares}
    return Data(columns, vocabularies, found, classes, _candidates(spec, vocabularies), shares)


def _candidates(spec: RunSpec, vocabularies: Mapping[str, Vocabulary]) -> Candidates | None:
    """The entities that task ranking ranks; None for other tasks.

    Raises:
        DataError: there is only one entity, so there is nothing to rank.
    """
    sizes = {spec.ids_of(name): vocabularies[each.table].size for name, each in spec.features.items()}
    return source_of(spec.data).candidates(sizes, seed=spec.seed)
