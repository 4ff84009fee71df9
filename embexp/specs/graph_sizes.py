"""What a knowledge graph of some size costs: bytes of a step and of an evaluation, and when a training takes days."""

from __future__ import annotations

from collections.abc import Iterator

from embexp.specs.models import RotatE, TransE
from embexp.specs.run import RunSpec
from embexp.specs.triples import CANDIDATES, Triples

LARGE, VERY_LARGE = 15_000, 200_000
"""Entities from which on `experiment=knowledge_graph_large` and `…_very_large` are the choice."""
_LONG_HOURS = 3.0
_SECONDS = {False: 1.2e-10, True: 1.2e-9}
"""Of a step, for each query, entity and dimension, on two cores: 6 operations of matrix products at 50 GFLOPS; of
distances ten times as much, as nothing multiplies matrices. Only an order of magnitude, for a warning."""
SCORES = 32 << 20
"""Bytes of the scores that an evaluation makes at once, of queries × entities; beside them there is a second tensor as
large, with comparisons. Larger blocks are no faster: matrix products of 100 queries already take most of the time."""
TRAINED_SCORES = 96 << 20
"""The same of a training step, with exponentials beside them. Each block adds the gradients of all entities to those of
the blocks before, which in small blocks would take as long as the products."""
ROWS = 64 << 20
"""Bytes of entities' rows that an evaluation gathers at once."""
DIFFERENCES = 8 << 20
"""Bytes of differences, of queries × entities × dim, that are made at once: few enough for a processor's cache, as they
are read several times, and many enough that the calls of operations cost little beside them."""


def evaluation_batch(entities: int, most: int) -> int:
    """Queries of an evaluation batch: `most`, or fewer where their scores would take more than `SCORES` bytes."""
    return min(most, max(1, SCORES // (4 * entities)))


def doubtful(spec: RunSpec, entities: int, steps: int) -> Iterator[str]:
    """Warnings about a training that would take long.

    Args:
        spec: of a run on a knowledge graph, with every dim settled.
        entities: of the graph.
        steps: of the training.
    """
    if not (isinstance(spec.data, Triples) and spec.data.negatives is None):
        return
    dim, distances = _dim(spec), isinstance(spec.model, TransE | RotatE)
    hours = _SECONDS[distances] * spec.train.batch_size * entities * dim * steps / 3600
    if hours < _LONG_HOURS:
        return
    size = "very_large" if entities >= VERY_LARGE else "large"
    better = (
        f"experiment=knowledge_graph_{size}" if spec.name != f"knowledge_graph_{size}" else "a smaller train.epochs"
    )
    if distances:
        better = "negative samples (data.negatives=128)"
    yield (
        f"1-vs-all scores {spec.train.batch_size:,} × {entities:,} entities of dim {dim:,} in each of {steps:,} steps,"
        f" which takes in the order of {hours:,.0f} hours on two cores; choose {better}, or fewer epochs"
    )


def step_bytes(spec: RunSpec, entities: int) -> int:
    """About as many bytes as a training step allocates at its peak, beyond tables and slots."""
    assert isinstance(spec.data, Triples)
    dim, batch, negatives = _dim(spec), spec.train.batch_size, spec.data.negatives
    if negatives is None:  # rows, their gradients, those of a block of queries, and those of sources added to them
        return 4 * 4 * entities * dim + 2 * min(TRAINED_SCORES, 4 * batch * entities)
    return 4 * 4 * batch * (1 + negatives) * dim


def evaluation_bytes(spec: RunSpec, entities: int) -> int:
    """About as many bytes as an evaluation allocates at its peak, beyond the tables."""
    dim = _dim(spec)
    rows = min(ROWS, 4 * entities * dim)
    scores = min(SCORES, 4 * spec.evaluation_batch_size * entities)
    differences = 3 * DIFFERENCES if isinstance(spec.model, TransE | RotatE) else 0
    return 2 * rows + 3 * scores + differences


def _dim(spec: RunSpec) -> int:
    return spec.tables[spec.features[CANDIDATES].table].width
