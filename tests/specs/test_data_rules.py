"""Task, data and model of a knowledge graph go together."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from embexp.fields.graphs.specs import ComplEx, Place, TransE, Triples
from embexp.specs import run, tasks
from embexp.specs.data import Clicks, Data
from embexp.specs.models import MLP, Model
from embexp.specs.run import RunSpec, data_of
from embexp.specs.tables import Feature

FEATURES = {
    "source": Feature(table="entity"),
    "relation": Feature(table="relation"),
    "candidates": Feature(table="entity"),
}
TRIPLES = Triples(path="graph")


def faults(task: str, data: Data, model: Model, features: dict[str, Feature] = FEATURES) -> list[tuple[str, str]]:
    # The rest is not known.
    spec = RunSpec.model_construct(task=tasks.named(task), data=data, model=model, features=features)
    return [(fault.path, fault.remedy) for fault in run.rule_faults(spec)]


def test_what_goes_together() -> None:
    assert faults("ranking", TRIPLES, ComplEx()) == []
    assert faults("binary", Clicks(), MLP(), {"user": Feature(table="user")}) == []


@pytest.mark.parametrize(
    ("task", "data", "model", "expected"),
    [
        ("ranking", Clicks(), TransE(), [("task", "choose data=triples, or another task")]),
        ("binary", TRIPLES, MLP(), [("task", "set task=ranking")]),
        ("ranking", TRIPLES, MLP(), [("model", "choose model=complex, model=distmult, model=transe or model=rotate")]),
        ("binary", Clicks(), ComplEx(), [("model", "choose another model, or experiment=knowledge_graph")]),
    ],
    ids=["clicks can't be ranked", "triples are ranked", "an mlp does not score candidates", "complex tells no clicks"],
)
def test_what_does_not(task: str, data: Data, model: Model, expected: list[tuple[str, str]]) -> None:
    assert faults(task, data, model) == expected


def test_tables_hold_entities_or_relations() -> None:
    mixed = {**FEATURES, "relation": Feature(table="entity")}
    assert faults("ranking", TRIPLES, ComplEx(), mixed) == [
        ("features.relation.table", "use separate tables for entities and relations")
    ]
    renamed = {**FEATURES, "candidates": Feature(table="entity", column="source")}
    assert faults("ranking", TRIPLES, ComplEx(), renamed) == [("features.candidates.column", "leave it null")]


def test_columns_of_triples() -> None:
    spec = data_of({"kind": "triples", "path": "graph", "columns": ["relation", "head", "tail"]})
    assert spec.columns == (Place.RELATION, Place.HEAD, Place.TAIL)
    assert (TRIPLES.dense_columns, Triples(path="graph", reciprocal=False).dense_columns) == ((), ("inverse",))
    with pytest.raises(ValidationError, match="head, relation and tail must each occur once"):
        Triples(path="graph", columns=("head", "head", "tail"))
