"""Rules of runs on knowledge graphs: task, data and model go together. No TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from embexp.errors import Fault
from embexp.specs.data import CANDIDATES, RELATION, SOURCE, Data, Triples
from embexp.specs.models import KnowledgeGraph, Model, Task
from embexp.specs.tables import Feature

_MODELS = "model=complex, model=distmult or model=transe"


def faults(
    *, task: str | None, data: Data | None, model: Model | None, features: Mapping[str, Feature]
) -> Iterator[Fault]:
    """What is wrong between the parts of a config that has to do with a knowledge graph.

    Args:
        task: as it was written.
        data: None where it has faults; likewise the model.
        model: the dense part.
        features: those without faults.
    """
    ranking = task == Task.RANKING
    if data is not None and ranking and not isinstance(data, Triples):
        yield Fault(
            "task",
            "'ranking'",
            f"the questions of a knowledge graph have candidates to rank, and the data is of kind {data.kind}",
            "take data=triples, or another task",
        )
    if isinstance(data, Triples) and not ranking and task in tuple(Task):
        yield Fault("task", repr(str(task)), "questions of triples have candidates to rank", "set task=ranking")
    if model is not None and ranking and not isinstance(model, KnowledgeGraph):
        rule = "task ranking needs a score of each candidate, which this model does not give"
        yield Fault("model", model.kind, rule, f"take {_MODELS}")
    if isinstance(model, KnowledgeGraph) and not ranking and task in tuple(Task):
        rule = f"it scores the candidates of questions, and task {task} has none"
        yield Fault("model", model.kind, rule, "take another model, or experiment=knowledge_graph")
    if isinstance(data, Triples):
        yield from _columns(features)


def _columns(features: Mapping[str, Feature]) -> Iterator[Fault]:
    for name in (SOURCE, RELATION, CANDIDATES):
        if name in features and features[name].column not in (None, name):
            rule = "models of knowledge graphs know the columns of questions by the features' names"
            yield Fault(f"features.{name}.column", repr(features[name].column), rule, "leave it null")
    kinds = {SOURCE: "entities", CANDIDATES: "entities", RELATION: "relations"}
    found: dict[str, str] = {}
    for name, feature in features.items():
        what = kinds.get(feature.column or name)
        if what is not None and found.setdefault(feature.table, what) != what:
            yield Fault(
                f"features.{name}.table",
                repr(feature.table),
                f"its ids number {what}, but those of table {feature.table!r} number {found[feature.table]}",
                "give entities and relations tables of their own",
            )
