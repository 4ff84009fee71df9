"""Warnings of trainings that would take days, and bytes, at the sizes of published graphs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import embexp
from embexp.fields.graphs import tasks
from tests import planted_triples

Compose = Callable[..., embexp.RunSpec]

WN18RR, FB15K_237 = (40_943, 173_670), (14_541, 544_230)
"""Entities, and training queries, of the graphs of Dettmers et al. 2018 and Toutanova and Chen 2015."""


@pytest.fixture(scope="module")
def spec_of(tmp_path_factory: pytest.TempPathFactory) -> Compose:
    folder = planted_triples.divided(tmp_path_factory.mktemp("graph"), planted_triples.circle(5), test=2, valid=2)
    return lambda *overrides: embexp.compose([*overrides, f"data.path={folder}"])


def warned(spec: embexp.RunSpec, graph: tuple[int, int]) -> list[str]:
    entities, queries = graph
    assert spec.train.epochs is not None
    return list(tasks.long_training_warnings(spec, entities, int(spec.train.epochs * queries / spec.train.batch_size)))


@pytest.mark.parametrize("graph", [WN18RR, FB15K_237], ids=["WN18RR", "FB15k-237"])
def test_defaults_of_small_graphs_would_take_days(graph: tuple[int, int], spec_of: Compose) -> None:
    [warning] = warned(spec_of("experiment=knowledge_graph"), graph)
    assert "choose experiment=knowledge_graph_large" in warning
    assert not warned(spec_of("experiment=knowledge_graph_large"), graph)
    distances = "experiment=knowledge_graph_large", "data=triples", "model=transe"
    [warning] = warned(spec_of(*distances), graph)
    assert "choose negative samples (data.negatives=128)" in warning
    assert not warned(spec_of(*distances, "data.negatives=128"), graph)


def test_a_million_entities_need_samples(spec_of: Compose) -> None:
    graph = (1_000_000, 10_000_000)
    [warning] = warned(spec_of("experiment=knowledge_graph_large", "data=triples"), graph)
    assert "choose experiment=knowledge_graph_large" in warning
    assert not warned(spec_of("experiment=knowledge_graph_large"), graph)


@pytest.mark.parametrize("entities", [135, 14_541, 40_943, 1_000_000])
@pytest.mark.parametrize("model", ["complex", "transe", "rotate"])
def test_an_evaluation_takes_a_bounded_part_of_memory(model: str, entities: int, spec_of: Compose) -> None:
    spec = spec_of("experiment=knowledge_graph_large", "data=triples", f"model={model}", "tables.entity.dim=400")
    assert tasks.evaluation_bytes(spec, entities) <= 300e6


def test_a_step_of_40_000_entities_takes_less_than_500_mb(spec_of: Compose) -> None:
    spec = spec_of("experiment=knowledge_graph_large", "data=triples", "tables.entity.dim=400", "train.batch_size=1024")
    assert tasks.step_bytes(spec, 40_943) <= 500e6


def test_a_step_of_shared_negatives_costs_what_the_batch_costs(spec_of: Compose) -> None:
    spec = spec_of("experiment=knowledge_graph_large", "train.batch_size=1024", "data.negatives=4096")
    assert tasks.step_bytes(spec, 40_943) == tasks.step_bytes(spec, 100_000_000) <= 200e6
    relations = tasks.step_bytes(spec, 40_943, 500) - tasks.step_bytes(spec, 40_943)
    assert relations == 4 * 4 * 500 * 1024 + 4 * 3 * 1024 * 500  # rows twice with gradients, and scores
