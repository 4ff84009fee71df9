"""Knowledge graphs as a source of data."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, field_validator

from embexp.errors import CombinationFault, Fault
from embexp.specs import data_rules
from embexp.specs.base import Spec
from embexp.specs.bounds import RowCount, Seed
from embexp.specs.partial import where_known
from embexp.specs.sources import DataSetName, Source

if TYPE_CHECKING:
    from embexp.specs.run import RunSpec
    from embexp.specs.scope import Scope


class Place(StrEnum):
    """The meaning of a field of a triple."""

    HEAD = "head"
    RELATION = "relation"
    TAIL = "tail"


SOURCE, RELATION, CANDIDATES = "source", "relation", "candidates"
"""Id columns of the queries of a knowledge graph."""
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


class Triples(Source):
    """A knowledge graph: a folder with the files train, valid and test (.txt or .tsv), a tab-separated triple a line.

    Each triple is two queries: tail prediction and head prediction. Columns: `source`, the known entity; `relation`;
    `candidates`, the entities to rank. Label: the position of the answer among the candidates.
    """

    label_column: ClassVar[str] = "answer"

    kind: Literal["triples"] = "triples"
    path: Annotated[str, Field(min_length=1)]
    fetch: DataSetName | None = None
    """Data set to fetch by name, of which `path` is then the place; null: none."""
    columns: tuple[Place, Place, Place] | None = None
    """Order of the three fields of a line; null: the two with the most values in common are head and tail."""
    reciprocal: bool = True
    """Heads are predicted as tails of the inverse relation, which has its own row in the table of relations
    (Lacroix et al. 2018). False: the model inverts the relation's vector where the column `inverse` is 1."""
    negatives: RowCount | None = None
    """Number of random negatives per training query; null: all other entities (1-vs-all)."""
    positives: Positives = Positives.ONE
    """one: a training query for each triple and direction. all: one for each distinct source and relation, with all
    their known answers (KvsAll, Dettmers et al. 2018)."""
    new_entities: NewEntities | None = None
    """Some entities count as new; null: none."""

    @field_validator("columns")
    @classmethod
    def _each_once(cls, columns: tuple[Place, ...] | None) -> tuple[Place, ...] | None:
        if columns is not None and len(set(columns)) < len(Place):
            raise ValueError("head, relation and tail must each be named once")
        return columns

    @property
    def dense_columns(self) -> tuple[str, ...]:
        """`inverse`, 1 for head prediction, if inverse relations share the rows of their relations."""
        return () if self.reciprocal else (INVERSE,)

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """A task other than ranking, tables that don't fit entities and relations, and positives without candidates."""
        held = {SOURCE: "entities", RELATION: "relations", CANDIDATES: "entities"}
        yield from data_rules.triples_faults(spec, held)
        yield from where_known(self._positives(spec))

    def _positives(self, spec: RunSpec) -> Iterator[Fault]:
        if self.positives is Positives.ONE:
            return
        if self.negatives is not None:
            yield Fault(
                "data.positives",
                repr(str(self.positives)),
                f"all positives of a query are compared with all entities, and data.negatives is {self.negatives}",
                "set data.negatives=null, or data.positives=one",
            )
        if spec.strategy.own_memory:
            yield CombinationFault(
                "data.positives",
                repr(str(self.positives)),
                f"queries have different numbers of positives, and strategy {spec.strategy.kind} takes equal shapes",
                "set data.positives=one, or strategy=cpu",
            )
