"""The data of a run of a knowledge graph: how the candidates of its queries are made."""

from __future__ import annotations

from dataclasses import replace

from embexp.errors import DataError
from embexp.fields.graphs.queries import Candidates, answer_shares, distinct_queries
from embexp.fields.graphs.specs import KnowledgeGraph, Positives, Triples
from embexp.runs.prepare import Data
from embexp.specs.run import RunSpec
from embexp.specs.tasks import CANDIDATES, RELATION


def complete(spec: RunSpec, data: Data) -> Data:
    """The data with the candidates of queries, each query once where all its answers are learned together.

    Raises:
        DataError: there is only one entity, or one relation to predict.
    """
    settings, scan, positives = spec.data, data.scan, None
    assert isinstance(settings, Triples)  # a rule between the settings
    if settings.positives is Positives.ALL:
        rows, positives = distinct_queries(scan.examples, scan.splits["train"])
        scan = replace(scan, splits={**scan.splits, "train": rows})
    sizes = {spec.ids_of(name): data.vocabularies[feature.table].size for name, feature in spec.features.items()}
    if (entities := sizes[CANDIDATES]) < 2:
        raise DataError(f"{settings.path}: found {entities} entity, expected 2 or more, to rank answers")
    candidates = Candidates(entities, settings.negatives, spec.seed, positives)
    if settings.shared_negatives:
        answered = answer_shares(scan.examples, scan.splits["train"], candidates.entities)
        candidates = replace(candidates, shares=answered)
    if isinstance(spec.model, KnowledgeGraph) and spec.model.relation_prediction:
        if sizes[RELATION] < 2 * (1 + settings.reciprocal):
            rule = "found one relation, expected 2 or more for model.relation_prediction"
            raise DataError(f"{settings.path}: {rule}")
        candidates = replace(candidates, relations=sizes[RELATION])
    return replace(data, scan=scan, candidates=candidates)
