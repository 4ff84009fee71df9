"""The task of knowledge graphs: the answers of queries are ranked among all entities, and what that costs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from embexp.errors import CombinationFault, Fault
from embexp.fields.graphs.specs import KnowledgeGraph, Triples
from embexp.specs.base import for_each, where_known
from embexp.specs.footprint import DIFFERENCES, ROWS, SCORES, TRAINED_SCORES
from embexp.specs.run import RunSpec
from embexp.specs.tasks import CANDIDATES, Compared, Direction, Metric, Task

if TYPE_CHECKING:
    from embexp.specs.tables import Feature

_LONG_HOURS = 3.0
_SECONDS = {False: 1.2e-10, True: 1.2e-9}
"""Seconds of a step per query, entity and dimension on two cores: 6 operations of matrix products at 50 GFLOPS.
Distances take ten times as long, because they don't multiply matrices. This is only an order of magnitude for a
warning."""


def evaluation_batch(entities: int, most: int) -> int:
    """Queries of an evaluation batch: `most`, or fewer where their scores would take more than `SCORES` bytes."""
    return min(most, max(1, SCORES // (4 * entities)))


def long_training_warnings(spec: RunSpec, entities: int, steps: int) -> Iterator[str]:
    """Warnings about a training that would take long.

    Args:
        spec: of a run on a knowledge graph, with every dim settled.
    """
    if not (isinstance(spec.data, Triples) and spec.data.negatives is None):
        return
    dim, distances = _dim(spec), _by_distance(spec)
    hours = _SECONDS[distances] * spec.train.batch_size * entities * dim * steps / 3600
    if hours < _LONG_HOURS:
        return
    better = "negative samples (data.negatives=128)" if distances else "experiment=knowledge_graph_large"
    yield (
        f"1-vs-all scores {spec.train.batch_size:,} × {entities:,} entities of dim {dim:,} in each of {steps:,} steps,"
        f" which takes about {hours:,.0f} hours on two cores; choose {better}, or fewer epochs"
    )


def step_bytes(spec: RunSpec, entities: int, relations: int = 0) -> int:
    """About as many bytes as a training step allocates at its peak, beyond tables and slots.

    Args:
        relations: how many are scored, for their prediction.
    """
    assert isinstance(spec.data, Triples)
    dim, batch, negatives = _dim(spec), spec.train.batch_size, spec.data.negatives
    of_relations = 4 * 4 * relations * dim + 4 * 3 * batch * relations
    if negatives is None:  # rows, their gradients, those of a block of queries, and those of sources added to them
        return of_relations + 4 * 4 * entities * dim + 2 * min(TRAINED_SCORES, 4 * batch * entities)
    if spec.data.shared_negatives:  # scores, their gradients and what is between, and the rows of the candidates
        return of_relations + 4 * 5 * batch * (batch + negatives) + 4 * 4 * (batch + negatives) * dim
    return of_relations + 4 * 4 * batch * (1 + negatives) * dim


def evaluation_bytes(spec: RunSpec, entities: int) -> int:
    """About as many bytes as an evaluation allocates at its peak, beyond the tables."""
    dim = _dim(spec)
    rows = min(ROWS, 4 * entities * dim)
    scores = min(SCORES, 4 * spec.evaluation_batch_size * entities)
    differences = 3 * DIFFERENCES if _by_distance(spec) else 0
    return 2 * rows + 3 * scores + differences


def _by_distance(spec: RunSpec) -> bool:
    return isinstance(spec.model, KnowledgeGraph) and spec.model.by_distance


def _dim(spec: RunSpec) -> int:
    return spec.tables[spec.features[CANDIDATES].table].width


HITS = (1, 3, 10)
"""The k of Hits@k."""
_LOWER, _HIGHER = Direction.LOWER, Direction.HIGHER
_RANKS = "embexp.fields.graphs.evaluation"
_MRR = "MRR, filtered (1 is best)"


class Ranking(Task):
    """One of many candidates, for the queries of a knowledge graph."""

    loss_unit = "loss of the model (mean per query)"

    def compared(self, spec: RunSpec) -> dict[str, Compared]:
        """All entities, or drawn ones, for each query; and all relations where they are predicted."""
        from embexp.fields.graphs.specs import KnowledgeGraph, Triples
        from embexp.specs.tasks import CANDIDATES, RELATION

        data, model, found = spec.data, spec.model, dict[str, Compared]()
        if isinstance(data, Triples):
            few = "data.negatives to a number, or strategy=cpu"
            path, value = "data.negatives", "null" if data.negatives is None else str(data.negatives)
            every = "entities" if data.negatives is None else ""
            drawn = 0 if data.negatives is None else 1 + data.negatives
            found[CANDIDATES] = Compared(path, value, every, made=True, remedy=few, of_example=drawn)
        if isinstance(model, KnowledgeGraph) and model.relation_prediction:
            path, value = "model.relation_prediction", f"{model.relation_prediction:g}"
            found[RELATION] = Compared(path, value, "relations", remedy="leave it 0")
        return found

    def further_features(self, spec: RunSpec, data: Any) -> dict[str, Feature]:
        """All relations, where they are predicted."""
        from embexp.specs.tables import Feature
        from embexp.specs.tasks import ALL_RELATIONS, RELATION

        return {ALL_RELATIONS: Feature(table=spec.features[RELATION].table)} if data.candidates.relations else {}

    def memory_lines(self, spec: RunSpec, data: Any) -> Iterator[str]:
        """Of scores of entities."""
        from embexp.system.terminal import byte_size

        entities, relations = data.candidates.entities, data.candidates.relations
        queries = evaluation_batch(entities, spec.evaluation_batch_size)
        step, evaluation = step_bytes(spec, entities, relations), evaluation_bytes(spec, entities)
        yield f"memory: a step takes about {byte_size(step)} beyond tables and slots"
        yield (
            f"memory: an evaluation takes about {byte_size(evaluation)} beyond tables, ranking {queries:,} queries at a"
            f" time among {entities:,} entities"
        )

    def training_warnings(self, spec: RunSpec, data: Any, steps: int) -> Iterator[str]:
        """That scoring all entities takes long."""
        return long_training_warnings(spec, data.candidates.entities, steps)

    def faults(self, spec: RunSpec) -> Iterator[Fault]:
        """Data without queries, a model without scores, and what rows of entities and triples can't have."""
        return where_known(
            _nothing_to_rank(spec),
            _no_scores(spec),
            for_each(lambda: spec.tables, lambda name: _adapter(spec, name)),
            for_each(lambda: spec.features, lambda name: _history(spec, name)),
        )


RANKING = Ranking(
    "ranking",
    described="One of many candidates, for the queries of a knowledge graph: the model's loss; MRR, Hits@k.",
    loss="embexp.fields.graphs.models:of_queries",
    reference=f"{_RANKS}:REFERENCE",
    data="embexp.fields.graphs.queries:complete",
    additions="embexp.fields.graphs.evaluation:additions",
    answers=("target", CANDIDATES),
    serving="embexp.fields.graphs.serving:model",
    evaluator="embexp.fields.graphs.evaluation:RankingEvaluator",
    metrics=(
        Metric("mrr", _HIGHER, f"{_RANKS}:mrr", f"{_RANKS}:mrr_at_random", unit=_MRR),
        Metric(
            "hits_at_{k}",
            _HIGHER,
            f"{_RANKS}:hits",
            f"{_RANKS}:hits_at_random",
            cutoffs=HITS,
            unit="fraction with rank ≤ {k}",
            test=f"{_RANKS}:mcnemar_of_hits",
        ),
        Metric(
            "mean_rank",
            _LOWER,
            f"{_RANKS}:mean_rank",
            f"{_RANKS}:mean_rank_at_random",
            unit="mean rank, filtered (1 is best)",
        ),
        Metric("mrr_tails", _HIGHER, f"{_RANKS}:mrr_tails", f"{_RANKS}:mrr_tails_at_random", unit=_MRR),
        Metric("mrr_heads", _HIGHER, f"{_RANKS}:mrr_heads", f"{_RANKS}:mrr_heads_at_random", unit=_MRR),
    ),
)


def _nothing_to_rank(spec: RunSpec) -> Iterator[Fault]:
    if spec.data.kind != "triples":
        rule = f"only queries of a knowledge graph have candidates to rank, but the data is of kind {spec.data.kind}"
        yield Fault("task", "'ranking'", rule, "choose data=triples, or another task")


def _no_scores(spec: RunSpec) -> Iterator[Fault]:
    from embexp.fields.graphs.specs import KnowledgeGraph

    if not isinstance(spec.model, KnowledgeGraph):
        rule = "task ranking needs a model that scores candidates"
        remedy = "choose model=complex, model=distmult, model=transe or model=rotate"
        yield Fault("model", spec.model.kind, rule, remedy)


def _adapter(spec: RunSpec, name: str) -> Iterator[Fault]:
    if (adapter := spec.tables[name].adapter) is not None:
        rule = f"model {spec.model.kind} scores the rows of entities themselves, many at a time"
        yield CombinationFault(f"tables.{name}.adapter", f"dim {adapter.dim}", rule, "leave it null")


def _history(spec: RunSpec, name: str) -> Iterator[Fault]:
    if (user := spec.features[name].history_of) is not None:
        rule = "the examples of task ranking are triples, which have no users"
        remedy = "remove the feature, or predict labels"
        yield CombinationFault(f"features.{name}.history_of", repr(user), rule, remedy)
