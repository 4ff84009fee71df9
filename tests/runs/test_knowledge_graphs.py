"""Whole runs on knowledge graphs, small ones, whose metrics are counted again from the tables that they leave."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import embexp
from embexp.cli.commands import plan
from embexp.errors import ConfigError, DataError, RunError
from embexp.runs import run as single
from tests import planted_triples
from tests.planted_triples import Triple, read

PLACES = 24


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("graphs") / "circle"
    return planted_triples.divided(folder, planted_triples.circle(PLACES), test=10, valid=10)


@pytest.fixture(scope="module")
def run(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., single.RunResult]:
    made: dict[tuple[str, ...], single.RunResult] = {}

    def run(*overrides: str) -> single.RunResult:
        if overrides not in made:
            made[overrides] = single.run(spec_of(folder, *overrides), tmp_path_factory.mktemp("run"))
        return made[overrides]

    return run


def spec_of(folder: Path, *overrides: str) -> embexp.RunSpec:
    return embexp.compose(
        [
            "experiment=knowledge_graph",
            f"data.path={folder}",
            "tables.entity.dim=16",
            "train.batch_size=32",
            "train.steps=150",
            "train.evaluate_every=50",
            "output.tensorboard=false",
            "output.plots=false",
            f"output.cache={folder.parent}/cache",
            *overrides,
        ]
    )


def score(kind: str, head: np.ndarray, relation: np.ndarray, tail: np.ndarray) -> float:
    if kind == "transe":
        return -float(np.abs(head + relation - tail).sum())
    if kind == "distmult":
        return float(np.sum(head * relation * tail))
    if kind == "rotate":
        h, r, t = (np.array(each[:8] + 1j * each[8:]) for each in (head, relation, tail))
        return -float(np.abs(h * r / np.abs(r) - t).sum())
    h, r, t = (np.array(each[:8] + 1j * each[8:]) for each in (head, relation, tail))
    return float(np.sum(h * r * t.conj()).real)


def test_the_weight_of_n3_goes_by_the_triples_of_an_entity(folder: Path, run: Callable[..., single.RunResult]) -> None:
    def loss(weight: str) -> Any:
        result = run("train.steps=2", "tables.entity.initializer.stddev=1", f"model.n3={weight}")
        lines = map(json.loads, (result.directory / "metrics.jsonl").read_text().splitlines())
        return [line["loss"] for line in lines if line["event"] == "log"][-1]

    expected, other = ("0.1", "0.05") if len(read(folder, "train")) < 5 * PLACES else ("0.05", "0.1")
    assert loss("auto") == loss(expected) != loss(other)


def brute_force(directory: Path, folder: Path, triples: list[Triple]) -> dict[str, float]:
    """Metrics by scoring each triple by itself, in float64, from the run's tables and vocabularies."""
    opened = embexp.load_run(directory)
    spec = opened.spec
    tables = {
        name: dict(zip(opened.vocabulary(name).tokens(), opened.table(name).astype(np.float64), strict=True))
        for name in ("entity", "relation")
    }
    entities = tables["entity"]
    true = {triple for part in ("train", "valid", "test") for triple in read(folder, part)} | set(triples)
    inverses = f"{triples[0][1]}^-1" in tables["relation"]
    places: dict[str, list[float]] = {"heads": [], "tails": []}
    for head, relation, tail in triples:
        for side, answer in (("tails", tail), ("heads", head)):
            rated = {}
            for name in entities:
                triple = (head, relation, name) if side == "tails" else (name, relation, tail)
                if name != answer and triple in true:
                    continue
                if side == "heads" and inverses:
                    parts = (entities[tail], tables["relation"][f"{relation}^-1"], entities[name])
                else:
                    parts = (entities[triple[0]], tables["relation"][relation], entities[triple[2]])
                rated[name] = score(spec.model.kind, *parts)
            own = rated.pop(answer)
            gap = min(abs(each - own) for each in rated.values())
            assert gap > 1e-5, "float32 must order these as float64 does"
            places[side].append(1 + sum(each > own for each in rated.values()))
    ranks = np.array(places["tails"] + places["heads"], np.float64)
    return {
        "mrr": np.mean(1 / ranks),
        **{f"hits_at_{k}": np.mean(ranks <= k) for k in (1, 3, 10)},
        "mean_rank": np.mean(ranks),
        "mrr_tails": np.mean(1 / np.array(places["tails"])),
        "mrr_heads": np.mean(1 / np.array(places["heads"])),
    }


@pytest.mark.parametrize(
    "overrides",
    [
        ("model=complex",),
        ("model=distmult", "data.negatives=5", "model.loss=binary", "model.label_smoothing=0.1"),
        ("model=transe", "data.reciprocal=false", "model.n3=0.001"),
        ("model=complex", "data.reciprocal=false", "data.negatives=8", "model.dropout=0.1", "runtime=session"),
        ("model=rotate", "data.positives=all", "model.loss=binary"),
        ("model=complex", "data.negatives=6", "data.shared_negatives=true", "model.n3=0.001"),
        ("model=rotate", "model.relation_prediction=0.5", "data.negatives=4", "runtime=session"),
    ],
    ids=" ".join,
)
def test_metrics_are_those_of_the_tables(overrides: tuple[str, ...], run: Any, folder: Path) -> None:
    result = run(*overrides)
    found, expected = result.summary["metrics"]["test"], brute_force(result.directory, folder, read(folder, "test"))
    assert found == pytest.approx(expected, rel=1e-12)
    assert embexp.load_run(result.directory).evaluate() == found


def test_a_planted_structure_is_found(run: Any) -> None:
    """Rotations, which ComplEx can express and DistMult, being symmetric, can't."""
    metrics = {kind: run(f"model={kind}").summary["metrics"]["test"] for kind in ("complex", "distmult")}
    assert metrics["complex"]["mrr"] > 0.9
    assert metrics["distmult"]["mrr"] < metrics["complex"]["mrr"] - 0.2


def test_other_triples_are_ranked_among_all_that_is_known(run: Any, folder: Path, tmp_path: Path) -> None:
    result = run("model=complex")
    triples = [("p0", "next", "p7"), ("p3", "leap", "p8"), ("p0", "next", "p9")]
    path = tmp_path / "more.txt"
    path.write_text("".join("\t".join(triple) + "\n" for triple in triples))
    opened = embexp.load_run(result.directory)
    expected = brute_force(result.directory, folder, triples)
    assert opened.evaluate(path) == pytest.approx(expected, rel=1e-12)
    with pytest.raises(RunError, match="task ranking has no predictions"):
        opened.predict(path)


def test_the_first_loss_has_the_prediction_of_relations(folder: Path, tmp_path: Path) -> None:
    """Of a batch with all training queries, from the initial rows: the loss is λ times the mean over them higher."""
    triples = read(folder, "train")
    small = (
        "train.steps=1",
        f"train.batch_size={2 * len(triples)}",
        "train.evaluate_every=null",
        "model.dropout=0",
        "model.n3=0",
    )
    small = (*small, "optimizer.learning_rate=1e-30", "data.reciprocal=false")
    losses = []
    for number, weight in enumerate(("0", "0.25")):
        (tmp_path / str(number)).mkdir()
        result = single.run(spec_of(folder, *small, f"model.relation_prediction={weight}"), tmp_path / str(number))
        losses.append(result.summary["metrics"]["train"]["loss"])
    opened = embexp.load_run(tmp_path / "1")
    entities, relations = (
        dict(zip(opened.vocabulary(name).tokens(), opened.table(name).astype(np.float64), strict=True))
        for name in ("entity", "relation")
    )
    each = []
    for head, relation, tail in triples:
        scores = {name: score("complex", entities[head], row, entities[tail]) for name, row in relations.items()}
        each.append(np.log(sum(np.exp(found) for found in scores.values())) - scores[relation])
    assert losses[1] - losses[0] == pytest.approx(0.25 * np.mean(each), rel=1e-5)


def test_one_relation_can_not_be_predicted(tmp_path: Path) -> None:
    folder = planted_triples.write(
        tmp_path / "graph", train=[("a", "r", "b")], valid=[("b", "r", "a")], test=[("b", "r", "b")]
    )
    spec = spec_of(folder, "model.relation_prediction=1", "data.reciprocal=false", "train.batch_size=2")
    with pytest.raises(DataError, match="found one relation, expected 2 or more for model"):
        single.run(spec, tmp_path)


def test_a_planted_structure_is_found_with_predicted_relations(run: Any) -> None:
    """And the run can be evaluated as any other."""
    result = run("model=complex", "model.relation_prediction=0.1")
    assert result.summary["metrics"]["test"]["mrr"] > 0.9
    assert embexp.load_run(result.directory).evaluate() == result.summary["metrics"]["test"]
    assert run("model=complex").summary["run_id"] != result.summary["run_id"]


@pytest.mark.parametrize("runtime", ["function", "session"])
def test_a_planted_structure_is_found_with_shared_negatives(runtime: str, run: Any) -> None:
    result = run("model=complex", "data.negatives=6", "data.shared_negatives=true", f"runtime={runtime}")
    assert result.summary["metrics"]["test"]["mrr"] > 0.9


def test_the_best_mrr_of_the_validation_is_kept(run: Any) -> None:
    result = run("model=complex", "train.early_stopping.patience=1", "train.evaluate_every=10")
    lines = [line for line in embexp.load_run(result.directory).metrics() if line["event"] == "evaluation"]
    best = max(lines, key=lambda line: line["metrics"]["mrr"])
    assert result.summary["best_step"] == best["step"]
    assert result.summary["metrics"]["validation"] == best["metrics"]


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("model=mlp", "model = mlp: task ranking needs a model that scores candidates"),
        ("task=binary", r"task = 'binary': queries of triples have candidates to rank\.\s+set task=ranking"),
        ("tables.entity.dim=15", "dims must be even, but there is source 15, relation 15, candidates 15"),
        ("train.early_stopping.metric=loss", "the metrics of task ranking are mrr, hits_at_1"),
        ("+data.split.test=0.1", "data.split"),
    ],
)
def test_what_does_not_go_together_is_told_before_anything_starts(override: str, words: str, folder: Path) -> None:
    with pytest.raises(ConfigError, match=words):
        spec_of(folder, override)


def test_the_plan_names_what_answers_are_ranked_among(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["experiment=knowledge_graph", f"data.path={folder}", "data.negatives=9"]
    assert plan.main(arguments) == 0
    said = capsys.readouterr().out
    assert "O(vocabulary)" not in said
    assert "each answer ranked among 9 drawn ones" in said
    assert "[B, 10, 1000]" in said
    assert plan.main(arguments[:2]) == 0
    assert "O(vocabulary): tables.entity: data.negatives=null" in capsys.readouterr().out
    assert "no effect: dense_optimizer: complex has no weights outside the tables" in said


def test_popularity_is_counted_by_relation_and_direction(tmp_path: Path) -> None:
    """Of a graph in which most have one favourite, counted again; a model that has hardly trained warns."""
    triples: list[Triple] = [(f"p{place}", "likes", "tea" if place % 5 else f"p{place - 1}") for place in range(60)]
    triples += [(f"p{place}", "knows", f"p{(place + 7) % 60}") for place in range(60)]
    folder = planted_triples.divided(tmp_path / "tastes", triples, test=12, valid=12)
    summary = single.run(spec_of(folder, "train.steps=1", "train.evaluate_every=null"), tmp_path / "run").summary
    splits = {name: read(folder, name) for name in ("train", "valid", "test")}
    entities = sorted({name for each in splits.values() for head, _, tail in each for name in (head, tail)})
    true = {triple for each in splits.values() for triple in each}
    ranks = []
    for head, relation, tail in splits["test"]:
        for side, own in ((2, tail), (0, head)):
            count = {name: sum(t[1] == relation and t[side] == name for t in splits["train"]) for name in entities}
            query = [head, relation, tail]
            others = [
                count[name]
                for name in entities
                if name != own and tuple(name if place == side else query[place] for place in range(3)) not in true
            ]
            ranks.append(1 + sum(x > count[own] for x in others) + sum(x == count[own] for x in others) / 2)
    found = summary["baselines"]["popularity"]["test"]
    assert found["mrr"] == pytest.approx(np.mean(1 / np.array(ranks)), rel=1e-12)
    assert found["mean_rank"] == pytest.approx(np.mean(ranks), rel=1e-12)
    assert found["mrr"] > 2 * summary["baselines"]["constant"]["test"]["mrr"]
    assert any(line.startswith("on test: mrr ") and "worse than popularity's" in line for line in summary["warnings"])
