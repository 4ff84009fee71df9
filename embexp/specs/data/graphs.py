"""A knowledge graph's triples as the data of a run, and the columns of their queries."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from embexp.errors import CombinationFault, Fault
from embexp.specs.base import Fraction, RowCount, Seed, Spec, different, for_each, is_null, where_known
from embexp.specs.data.sources import DataSetName, Source
from embexp.specs.models import KnowledgeGraph, RankingLoss
from embexp.specs.vocabularies import Steps

if TYPE_CHECKING:
    from embexp.specs.base import Scope
    from embexp.specs.run import RunSpec


class Place(StrEnum):
    """The meaning of a field of a triple."""

    HEAD = "head"
    RELATION = "relation"
    TAIL = "tail"


SOURCE, RELATION, CANDIDATES = "source", "relation", "candidates"
"""Id columns of the queries of a knowledge graph."""
ALL_RELATIONS = "relation.all"
"""Id column of every relation, int32 [1, R], where a model predicts relations; it is a feature of that name, too. No
feature of a config has a dot."""
KNOWN = "known"
"""Id column of all known answers of each query: in an evaluation, and those of the training split in KvsAll."""
INVERSE = "inverse"
"""Dense column of the queries, if inverse relations share the rows of their relations."""


class Positives(StrEnum):
    """The positives of a training query."""

    ONE = "one"
    """The answer: each triple is a query for its tail and one for its head."""
    ALL = "all"
    """All tails of training triples with the same source and relation, which are one query (KvsAll)."""


_EACH_PLACE = different("head, relation and tail must each be named once")


class TrainedTriples(StrEnum):
    """Which training triples to use, if some entities of the graph count as new."""

    KNOWN = "known"
    """Triples without new entities; vocabularies, validation and test exclude new entities, too."""
    NEW = "new"
    """Triples with new entities, also for validation. The vocabularies are those of all triples."""
    ALL = "all"
    """All triples."""


class NewEntities(Spec):
    """Some entities of a graph count as new, to train before or after they are added.

    They are drawn by name. Entities and relations that occur only in training triples with a drawn entity are new, too.
    Unless new entities are excluded, there are two more splits: `test_new`, the test triples with new entities or
    relations, and `test_known`, the others.
    """

    share: Annotated[float, Field(gt=0, lt=1, strict=True)] = 0.1
    """Fraction of the entities to draw; at least one is drawn."""
    seed: Seed = 0
    """Seed of the draw, independent of the run's seed."""
    train: TrainedTriples = TrainedTriples.ALL
    """known | new | all: the training triples to use."""


class GraphSplit(Spec):
    """How the triples of a single file are divided: those of validation and test have names that train has, too."""

    validation: Fraction = 0.1
    """Fraction of the triples that validate, at most."""
    test: Fraction = 0.1
    """Fraction of the triples that test, at most."""
    seed: Seed = 0
    """Seed of the draw, independent of the run's seed."""


class Triples(Source):
    """A knowledge graph: a folder with the files train, valid and test, or one file (.txt, .tsv, .csv, .nt) to divide.

    Each triple is two queries: tail prediction and head prediction. Columns: `source`, the known entity; `relation`;
    `candidates`, the entities to rank. Label: the position of the answer among the candidates.
    """

    label_column: ClassVar[str] = "answer"

    kind: Literal["triples"] = "triples"
    implementation = "embexp.fields.graphs.triples:TripleSource"
    path: Annotated[str, Field(min_length=1)]
    fetch: DataSetName | None = None
    """Data set to fetch by name, of which `path` is then the place; null: none."""
    columns: Annotated[tuple[Place, Place, Place], _EACH_PLACE] | None = None
    """Order of the three fields of a line; null: the two with the most values in common are head and tail."""
    reciprocal: bool = True
    """Heads are predicted as tails of the inverse relation, which has its own row in the table of relations
    (Lacroix et al. 2018). False: the model inverts the relation's vector where the column `inverse` is 1."""
    negatives: RowCount | None = None
    """Number of random negatives per training query; null: all other entities (1-vs-all)."""
    shared_negatives: Annotated[bool, Field(exclude_if=operator.not_)] = False
    """Draw the negatives once for all queries of a batch; its answers are negatives of each other, too."""
    positives: Positives = Positives.ONE
    """one: a training query for each triple and direction. all: one for each distinct source and relation, with all
    their known answers (KvsAll, Dettmers et al. 2018)."""
    split: GraphSplit = Field(default_factory=GraphSplit, exclude_if=GraphSplit().__eq__)
    """How one file is divided."""
    normalize: Steps | None = Field(default=None, exclude_if=is_null)
    """Steps that make names equal which differ in their spelling only; null: none, and a run warns of such names."""
    new_entities: NewEntities | None = None
    """Some entities count as new; null: none."""

    @property
    def token_steps(self) -> Steps | None:
        """As `normalize` says."""
        return self.normalize

    @property
    def dense_columns(self) -> tuple[str, ...]:
        """`inverse`, 1 for head prediction, if inverse relations share the rows of their relations."""
        return () if self.reciprocal else (INVERSE,)

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """A task other than ranking, tables that don't fit entities and relations, and positives without candidates."""
        held = {SOURCE: "entities", RELATION: "relations", CANDIDATES: "entities"}
        yield from _triples_faults(spec, held)
        yield from where_known(self._positives(spec), self._shared(spec))

    def _positives(self, spec: RunSpec) -> Iterator[Fault]:
        if self.positives is Positives.ONE:
            return
        if self.negatives is not None:
            rule = f"all positives of a query are compared with all entities, and data.negatives is {self.negatives}"
            remedy = "set data.negatives=null, or data.positives=one"
            yield Fault("data.positives", repr(str(self.positives)), rule, remedy)
        if spec.strategy.own_memory:
            rule = f"queries have different numbers of positives, and strategy {spec.strategy.kind} takes equal shapes"
            remedy = "set data.positives=one, or strategy=cpu"
            yield CombinationFault("data.positives", repr(str(self.positives)), rule, remedy)

    def _shared(self, spec: RunSpec) -> Iterator[Fault]:
        if not self.shared_negatives:
            return
        path, value = "data.shared_negatives", "True"
        if self.negatives is None:
            rule = "data.negatives is null, so every entity is a candidate of all queries and none are drawn"
            yield Fault(path, value, rule, "set data.negatives to a number, such as 2048")
        model = spec.model
        if isinstance(model, KnowledgeGraph) and model.by_distance:
            rule = f"shared negatives are scored by one matrix product, and model {model.kind} computes distances"
            yield Fault(path, value, rule, "set data.shared_negatives=false, or model=complex")
        if isinstance(model, KnowledgeGraph) and (model.loss is not RankingLoss.SOFTMAX or model.label_smoothing):
            rule = "the shares with which entities are drawn correct a softmax, without label smoothing"
            yield Fault(
                path, value, rule, "set model.loss=softmax model.label_smoothing=0, or data.shared_negatives=false"
            )
        replicas = spec.strategy.replica_count
        if replicas is None or replicas > 1:
            rule = (
                f"a batch has one set of negatives, and the replicas of strategy {spec.strategy.kind} share the batch"
            )
            yield CombinationFault(path, value, rule, "set data.shared_negatives=false, or strategy=cpu")


def _triples_faults(spec: RunSpec, what: Mapping[str, str]) -> Iterator[Fault]:
    """A task other than ranking, and entities and relations, by what each column holds, in the same table."""

    def renamed(name: str) -> Iterator[Fault]:
        column = spec.features[name].column
        if name in what and column not in (None, name):
            rule = "models of knowledge graphs identify the columns of queries by the names of features"
            yield Fault(f"features.{name}.column", repr(column), rule, "leave it null")

    def mixed(name: str) -> Iterator[Fault]:
        path, table = f"features.{name}.table", spec.features[name].table
        yield from mixed_tables(spec, what, name, path, table, "entities and relations")

    of_features = (for_each(lambda: spec.features, rule) for rule in (renamed, mixed))
    yield from where_known(_no_ranking(spec), *of_features)


def _no_ranking(spec: RunSpec) -> Iterator[Fault]:
    if spec.task != "ranking":
        yield Fault("task", repr(str(spec.task)), "queries of triples have candidates to rank", "set task=ranking")


def mixed_tables(
    spec: RunSpec, what: Mapping[str, str], name: str, path: str, value: str, kinds: str
) -> Iterator[Fault]:
    """The ids of a feature identify other things than those of most features of its table, the first ones if equal."""
    feature = spec.features[name]
    held, all_held = what.get(feature.column or name), list(held_by(spec, what, feature.table))
    first = max(all_held, key=all_held.count, default=None)
    if held is not None and held != first:
        rule = f"its ids identify {held}, but those of table {feature.table!r} identify {first}"
        yield Fault(path, repr(value), rule, f"use separate tables for {kinds}")


def held_by(spec: RunSpec, what: Mapping[str, str], table: str) -> Iterator[str]:
    """What the ids of a table identify, by the columns of its features."""

    def of_feature(name: str) -> Iterator[str]:
        feature = spec.features[name]
        if feature.table == table and (held := what.get(feature.column or name)):
            yield held

    return for_each(lambda: spec.features, of_feature)
