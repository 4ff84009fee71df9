"""The data of a run: scanned, with a vocabulary for each table. No TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from embexp.data.columns import Columns, columns_of
from embexp.data.interactions import SEEN, HeldOut, Interactions, interactions
from embexp.data.queries import Candidates, distinct_queries
from embexp.data.scan import Scan, scan
from embexp.data.sources.source import source_of
from embexp.data.vocabularies.token_rows import Shares
from embexp.data.vocabularies.vocabulary import Vocabulary
from embexp.errors import RunError
from embexp.specs.data import Positives, Triples
from embexp.specs.models import Recommender, Task
from embexp.specs.run import RunSpec
from embexp.system import caching
from embexp.system.parallel import Progress
from embexp.training import baseline, metrics
from embexp.training.baseline import Constant


@dataclass(frozen=True)
class Data:
    """The scanned data of a run.

    Attributes:
        columns: what the run reads of the data.
        classes: names of the classes of task classification, by number; empty for other tasks.
        candidates: the entities that task ranking ranks; None for other tasks.
        shares: by table and split, how many values have a row of their own; only of tokens and buckets.
        interactions: users, items and the catalogue of task recommendation; None for other tasks.
    """

    columns: Columns
    vocabularies: Mapping[str, Vocabulary]
    scan: Scan
    classes: tuple[str, ...] = ()
    candidates: Candidates | None = None
    shares: Shares = field(default_factory=dict)
    interactions: Interactions | None = None
    _held_out: dict[str, HeldOut] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def training_examples(self) -> int:
        """Number of examples in the training split."""
        return len(self.scan.splits["train"])

    def constant(self, task: Task) -> Constant:
        """The constant prediction that fits the training split best, for a task other than ranking."""
        assert self.scan.examples.labels is not None  # every task but ranking has some
        return baseline.fitted(task, self.scan.examples.labels, self.scan.splits["train"], classes=len(self.classes))

    def held_out(self, split: str) -> HeldOut:
        """For task recommendation: the users of a split; what they have seen is in the splits before it.

        Raises:
            DataError: none of them can be evaluated.
        """
        if split in self._held_out:  # the check before the training, each evaluation and popularity ask for it
            return self._held_out[split]
        assert self.interactions is not None  # the task is recommendation
        examples, splits = self.scan.examples, self.scan.splits
        seen = [splits[name] for name in SEEN.get(split, SEEN["test"])]
        self._held_out[split] = self.interactions.held_out(examples, splits[split], examples, seen)
        return self._held_out[split]

    @property
    def dense_width(self) -> int:
        """How many numbers the model gets of an example, beside the embeddings."""
        return self.columns.dense_width


def read_data(spec: RunSpec, progress: Progress) -> Data:
    """Scans the data (or finds it in the cache) and gives each table its vocabulary.

    Args:
        progress: called during the scan.

    Raises:
        ConfigError: the data lacks something that the config asks for.
        DataError: a file has unexpected content.
        RunError: the training split is empty.
    """
    columns, shared = columns_of(spec.data, spec.features, spec.tables)
    found = scan(
        spec.data,
        columns,
        cache=caching.cache_folder(spec.output.cache),
        interactions=spec.task is Task.RECOMMENDATION,
        progress=progress,
    )
    if not len(found.splits["train"]):
        raise RunError("the training split of the data is empty: see data.split")
    labels = found.examples.labels
    if labels is not None:
        metrics.check_labels(spec.task, labels, classes=len(found.classes) or None)
    classes = metrics.class_names(spec.task, labels, found.classes)
    positives = None
    if isinstance(spec.data, Triples) and spec.data.positives is Positives.ALL:
        rows, positives = distinct_queries(found.examples, found.splits["train"])
        found = replace(found, splits={**found.splits, "train": rows})
    vocabularies = {table: found.vocabularies[shared[table]] for table in spec.tables}
    shares = {table: found.shares[group] for table, group in shared.items() if group in found.shares}
    by_ids = {spec.ids_of(name): vocabularies[each.table] for name, each in spec.features.items()}
    if isinstance(spec.model, Recommender) and spec.task is Task.RECOMMENDATION:
        known = interactions(
            found.examples,
            found.splits["train"],
            user=spec.column_of(spec.recommendation.user),
            item=spec.column_of(spec.recommendation.item),
            item_columns=[spec.ids_of(name) for name in spec.model.item_side],
            special={column: vocabulary.first for column, vocabulary in by_ids.items()},
        )
        return _of_interactions(known, Data(columns, vocabularies, found, shares=shares))
    sizes = {column: vocabulary.size for column, vocabulary in by_ids.items()}
    candidates = source_of(spec.data).candidates(sizes, seed=spec.seed)  # a DataError if there is only one
    if candidates is not None and positives is not None:
        candidates = replace(candidates, positives=positives)
    return Data(columns, vocabularies, found, classes, candidates, shares)


def _of_interactions(known: Interactions, data: Data) -> Data:
    """The data of task recommendation, without training examples of unknown items.

    Raises:
        DataError: no user of a split can be evaluated.
    """
    train = data.scan.splits["train"]
    _, numbers = known.pairs(data.scan.examples, train)
    splits = {**data.scan.splits, "train": train[numbers >= 0]} if (numbers < 0).any() else data.scan.splits
    data = replace(data, scan=replace(data.scan, splits=splits), interactions=known)
    for split, rows in splits.items():
        if split != "train" and len(rows):
            data.held_out(split)  # which fails now, not after the training
    return data
