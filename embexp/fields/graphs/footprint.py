"""What a knowledge graph of some size costs: memory of steps and evaluations, and time."""

from __future__ import annotations

from collections.abc import Iterator

from embexp.fields.graphs.specs import KnowledgeGraph, Triples
from embexp.specs.footprint import DIFFERENCES, ROWS, SCORES, TRAINED_SCORES
from embexp.specs.run import RunSpec
from embexp.specs.tasks import CANDIDATES

_LONG_HOURS = 3.0
_SECONDS = {False: 1.2e-10, True: 1.2e-9}
"""Of a step, for each query, entity and dimension, on two cores: 6 operations of matrix products at 50 GFLOPS; of
distances ten times as much, as nothing multiplies matrices. Only an order of magnitude, for a warning."""


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
        f" which takes in the order of {hours:,.0f} hours on two cores; choose {better}, or fewer epochs"
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
