"""Knowledge graphs in configs: triples as data, models that score candidates, and the study of new entities."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, field_validator

from embexp.errors import CombinationFault, Fault
from embexp.specs.base import (
    BatchSize,
    Count,
    Fraction,
    NonNegative,
    Positive,
    RowCount,
    Seed,
    Spec,
    different,
    for_each,
    is_null,
    known_or,
    where_known,
)
from embexp.specs.data import DataSetName, Source, mixed_tables
from embexp.specs.freezing import FreezeOldRows, NoFreeze
from embexp.specs.models import DenseModel, RankingLoss, Shapes, listed, vector_faults
from embexp.specs.pretrained import Checkpoint, NoPretrained
from embexp.specs.studies import BASE, StudyChoice, changed, no_checkpoint, part_of, set_by_study
from embexp.specs.tasks import CANDIDATES, RELATION, SOURCE
from embexp.specs.vocabularies import Steps

if TYPE_CHECKING:
    from embexp.specs.base import Scope
    from embexp.specs.run import RunSpec


_FEW_TRIPLES, _N3_OF_FEW, _N3_OF_MANY = 5, 0.1, 0.05
"""A number of triples per entity, and the weights of N3 below it and from it on."""


class KnowledgeGraph(DenseModel):
    """Base class of knowledge graph models, with the features source, relation and candidates of the same dim."""

    loss: RankingLoss = RankingLoss.SOFTMAX
    label_smoothing: Fraction = 0.0
    """e: the answer counts 1 - e, and each of the C candidates, the answer too, e / C on top."""
    n3: NonNegative | Literal["auto"] = 0.0
    """Weight of the N3 regularizer: the mean over the queries of sum |x|^3 over source and relation, where |x| of a
    complex number is its modulus (Lacroix et al. 2018). The answer is the source of the triple's other query. auto: by
    the number of triples per entity, see `with_n3`."""
    l2: NonNegative = 0.0
    """Weight of the L2 regularizer: the mean over the queries of sum x^2 over source and relation."""
    dropout: Fraction = 0.0
    """Dropout rate of the combination of source and relation."""
    relation_prediction: Annotated[NonNegative, Field(exclude_if=operator.not_)] = 0.0
    """Weight of -log p[relation], added to the loss: p is the softmax of the scores that all relations have between
    source and answer (Chen et al. 2021)."""
    has_weights = False
    by_distance: ClassVar[bool] = False
    """Whether scores are a margin minus distances, which take more time and memory than products."""
    complex_valued: ClassVar[bool] = False
    """Whether two of a row's numbers are a complex number."""

    in_step = "embexp.fields.graphs.models:in_step"

    def settled(self, spec: RunSpec, *, rows: Mapping[str, int], examples: int) -> Self:
        """With a weight of N3; a triple is two queries."""
        return self.with_n3(examples / 2, rows.get(spec.features[CANDIDATES].table, 0))

    def with_n3(self, triples: float, entities: int) -> Self:
        """The same model with a weight of N3: auto is 0.1 for fewer than five triples per entity, else 0.05.

        Rows that few triples move need more of it. The weights were chosen on validation splits, see
        docs/knowledge_graphs.md.

        Args:
            triples: of the training split.
        """
        if self.n3 != "auto":
            return self
        return self.model_copy(update={"n3": _N3_OF_FEW if triples < _FEW_TRIPLES * entities else _N3_OF_MANY})

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """A task other than ranking, and what does not go with the prediction of relations."""
        if spec.task != "ranking":
            rule = f"it scores the candidates of queries, but task {spec.task} has none"
            yield Fault(scope.path, self.kind, rule, "choose another model, or experiment=knowledge_graph")
        if self.relation_prediction:
            yield from where_known(self._of_all_positives(spec, scope))

    def _of_all_positives(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        if isinstance(spec.data, Triples) and spec.data.positives is Positives.ALL:
            rule = (
                "it predicts the relation between source and answer, but with data.positives=all a query has "
                "several answers"
            )
            path, value = f"{scope.path}.relation_prediction", f"{self.relation_prediction:g}"
            yield Fault(path, value, rule, "set data.positives=one, or leave it at 0")

    def input_shapes(self, shapes: Shapes) -> Shapes:
        """With any number of candidates."""
        return {**shapes, CANDIDATES: (None, *shapes[CANDIDATES])}

    def input_faults(self, shapes: Shapes, dense_width: int, classes: bool = False) -> Iterator[Fault]:
        """Other features than source, relation and candidates, and vectors that are not of one dim."""
        required = (SOURCE, RELATION, CANDIDATES)
        if missing := [name for name in required if name not in shapes]:
            lacking = f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing"
            yield Fault(
                "features",
                listed(shapes),
                f"{self.kind} takes the features {', '.join(required)}, but {lacking}",
                "take graph=knowledge_graph",
            )
            return
        for name in shapes:
            if name not in required:
                rule = f"every feature must be used, but {self.kind} uses only {', '.join(required)}"
                yield Fault(f"features.{name}", "unused", rule, "remove the feature")
        vectors = {name: shapes[name] for name in required if name in shapes}
        yield from vector_faults(self.kind, vectors)
        odd = {name: shape[-1] for name, shape in vectors.items() if shape[-1] is None or shape[-1] % 2}
        if self.complex_valued and odd:
            found = ", ".join(f"{name} {dim}" for name, dim in odd.items())
            rule = f"a complex number takes two numbers of a row, so dims must be even, but there is {found}"
            yield Fault("model", self.kind, rule, "set an even dim for its table")

    def inert(self, spec: RunSpec) -> Iterator[str]:
        """A margin of softmax."""
        if getattr(self, "margin", 0.0) and self.loss is RankingLoss.SOFTMAX:
            yield "model.margin: a softmax depends only on differences of scores"


class TransE(KnowledgeGraph):
    """margin - |source + relation - candidate| (Bordes et al. 2013)."""

    kind: Literal["transe"] = "transe"
    implementation = "embexp.fields.graphs.models:transe"
    by_distance = True
    norm: Literal[1, 2] = 1
    """1: the sum of the absolute differences; 2: the Euclidean distance."""
    margin: NonNegative = 0.0
    """Score of a candidate at distance 0; has no effect on a softmax."""


class DistMult(KnowledgeGraph):
    """sum source * relation * candidate (Yang et al. 2015)."""

    kind: Literal["distmult"] = "distmult"
    implementation = "embexp.fields.graphs.models:distmult"


class ComplEx(KnowledgeGraph):
    """Re(sum source * relation * conj(candidate)) of complex vectors (Trouillon et al. 2016).

    A row holds dim / 2 complex numbers: all real parts, then all imaginary parts.
    """

    kind: Literal["complex"] = "complex"
    implementation = "embexp.fields.graphs.models:complex_product"
    complex_valued = True


class RotatE(KnowledgeGraph):
    """margin - sum |source * relation / |relation| - candidate| of complex numbers (Sun et al. 2019).

    A row holds dim / 2 complex numbers: all real parts, then all imaginary parts. Those of a relation only rotate.
    """

    kind: Literal["rotate"] = "rotate"
    implementation = "embexp.fields.graphs.models:rotate"
    by_distance = complex_valued = True
    margin: NonNegative = 0.0
    """Score of a candidate at distance 0; has no effect on a softmax."""


class Place(StrEnum):
    """The meaning of a field of a triple."""

    HEAD = "head"
    RELATION = "relation"
    TAIL = "tail"


INVERSE = "inverse"
"""Dense column of the queries, if inverse relations share the rows of their relations."""


class Positives(StrEnum):
    """The positives of a training query."""

    ONE = "one"
    """The answer: each triple is a query for its tail and one for its head."""
    ALL = "all"
    """All tails of training triples with the same source and relation, which are one query (KvsAll)."""


_EACH_PLACE = different("head, relation and tail must each occur once")


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
            rule = f"all positives of a query are compared with all entities, but data.negatives is {self.negatives}"
            remedy = "set data.negatives=null or data.positives=one"
            yield Fault("data.positives", repr(str(self.positives)), rule, remedy)
        if spec.strategy.own_memory:
            rule = f"queries have different numbers of positives, but strategy {spec.strategy.kind} needs equal shapes"
            remedy = "set data.positives=one or strategy=cpu"
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
            rule = f"shared negatives are scored by one matrix product, but model {model.kind} computes distances"
            yield Fault(path, value, rule, "set data.shared_negatives=false or model=complex")
        if isinstance(model, KnowledgeGraph) and (model.loss is not RankingLoss.SOFTMAX or model.label_smoothing):
            rule = "the shares with which entities are drawn correct a softmax, without label smoothing"
            yield Fault(
                path, value, rule, "set model.loss=softmax model.label_smoothing=0, or data.shared_negatives=false"
            )
        replicas = spec.strategy.replica_count
        if replicas is None or replicas > 1:
            rule = (
                f"a batch has a single set of negatives, but the replicas of strategy {spec.strategy.kind} "
                f"share the batch"
            )
            yield CombinationFault(path, value, rule, "set data.shared_negatives=false or strategy=cpu")


def _triples_faults(spec: RunSpec, what: Mapping[str, str]) -> Iterator[Fault]:
    """Errors for another task than ranking, for renamed columns, and for a table of both entities and relations."""

    def renamed(name: str) -> Iterator[Fault]:
        column = spec.features[name].column
        if name in what and column not in (None, name):
            rule = "models of knowledge graphs identify the columns of queries by feature name"
            yield Fault(f"features.{name}.column", repr(column), rule, "leave it null")

    def mixed(name: str) -> Iterator[Fault]:
        path, table = f"features.{name}.table", spec.features[name].table
        yield from mixed_tables(spec, what, name, path, table, "entities and relations")

    of_features = (for_each(lambda: spec.features, rule) for rule in (renamed, mixed))
    yield from where_known(_no_ranking(spec), *of_features)


def _no_ranking(spec: RunSpec) -> Iterator[Fault]:
    if spec.task != "ranking":
        yield Fault("task", repr(str(spec.task)), "queries of triples have candidates to rank", "set task=ranking")


GROWN, FULL = "grown", "full"


class NewRowsTraining(Spec):
    """Settings of the run that trains only new rows; null: unchanged."""

    triples: TrainedTriples = TrainedTriples.NEW
    """new: training triples with new entities or relations. all: all training triples."""
    epochs: Positive | None = None
    batch_size: BatchSize | None = None
    learning_rate: Positive | None = None
    """Of `optimizer`."""
    patience: Count | None = None
    """Of `train.early_stopping`."""

    @field_validator("triples")
    @classmethod
    def _with_new_ones(cls, triples: TrainedTriples) -> TrainedTriples:
        if triples is TrainedTriples.KNOWN:
            raise ValueError("triples without new entities can't train new rows: set new or all")
        return triples


class NewEntitiesStudy(StudyChoice):
    """New entities are added to a knowledge graph: compares training only their rows with training everything.

    base: trained without the new entities. grown: base with rows for them, only new rows are trained. full: all trained
    from the start.
    """

    kind: Literal["new_entities"] = "new_entities"
    implementation = "embexp.fields.graphs.new_entities:STUDY"
    share: Annotated[float, Field(gt=0, lt=1, strict=True)] = 0.1
    """Fraction of the entities that are new; at least one is."""
    seed: Seed = 0
    """Seed of the draw of new entities, independent of the run's seed."""
    grown: NewRowsTraining = NewRowsTraining.model_construct()
    descriptions: ClassVar[Mapping[str, str]] = {
        BASE: "trained without what is new",
        GROWN: "base with rows for them, only new rows are trained",
        FULL: "all trained from the start",
    }

    def base_of(self, name: str) -> str | None:
        """The base run, of the grown one."""
        return BASE if name == GROWN else None

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """Data without entities, and settings that the study sets."""
        if known_or(False, lambda: not isinstance(spec.data, Triples)):
            rule = f"it needs the entities of a knowledge graph, but the data is of kind {spec.data.kind}"
            yield Fault(scope.path, self.kind, rule, "choose data=triples, or study=none")
            return
        values = "the study sets it: the grown run starts from the base run, the other runs from initial values"
        policies = "the study sets it: the grown run freezes the rows of the base run, the other runs train all rows"
        yield from where_known(
            _new_entities(spec),
            set_by_study(spec, "pretrained", NoPretrained, values),
            set_by_study(spec, "freeze", NoFreeze, policies),
            no_checkpoint(spec),
        )

    def runs(self, spec: RunSpec, directory: Path) -> dict[str, RunSpec]:
        """The base run, the grown one, and all trained."""

        def run(name: str, trained: TrainedTriples, **settings: Any) -> RunSpec:
            new = NewEntities(share=self.share, seed=self.seed, train=trained)
            return part_of(spec, name, {"data": changed(spec.data, new_entities=new), **settings})

        grown = self.grown
        return {
            BASE: run(BASE, TrainedTriples.KNOWN),
            GROWN: run(
                GROWN,
                grown.triples,
                pretrained=Checkpoint(path=str(directory / BASE)),
                freeze=FreezeOldRows(),
                optimizer=changed(spec.optimizer, learning_rate=grown.learning_rate),
                train=changed(
                    spec.train,
                    epochs=grown.epochs,
                    batch_size=grown.batch_size,
                    early_stopping=changed(spec.train.early_stopping, patience=grown.patience),
                ),
            ),
            FULL: run(FULL, TrainedTriples.ALL),
        }


def _new_entities(spec: RunSpec) -> Iterator[Fault]:
    if isinstance(spec.data, Triples) and spec.data.new_entities is not None:
        rule = "the study sets the new entities of each of its runs"
        yield Fault("data.new_entities", "a mapping", rule, "leave it null, and set study.share and study.seed")
