"""The study of new entities on a small graph: its runs are ordinary ones, and what it says of them is so."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import embexp
from embexp.cli import commands
from embexp.config import composition
from embexp.errors import ConfigError, NotARunError, RunError
from embexp.fields.graphs import queries
from embexp.fields.graphs.new_entities import Comparison, summarise
from embexp.records import manifest
from embexp.records.differences import Kind
from embexp.records.folder import RunFolder
from embexp.runs import experiment, runs_compared, verification
from embexp.runs import run as single
from embexp.runs.run import Observer
from embexp.runs.verification import Rerun
from embexp.training.listeners import Listener
from tests import planted_triples
from tests.planted_triples import Triple, read
from tests.thoroughness import left_out

PLACES = 20
DATA = Path(__file__).resolve().parents[3] / "shared" / "data"


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("graphs") / "circle"
    return planted_triples.divided(folder, planted_triples.circle(PLACES), test=14, valid=12)


def words(graph: Path, *more: str, epochs: int = 10) -> list[str]:
    return [
        "experiment=new_entities",
        f"data.path={graph}",
        "study.share=0.2",
        "tables.entity.dim=8",
        "train.batch_size=32",
        f"train.epochs={epochs}",
        "train.early_stopping.patience=null",
        "study.grown.patience=null",
        "output.tensorboard=false",
        "output.plots=false",
        "output.baselines=false",
        f"output.cache={graph.parent}/cache",
        *more,
    ]


@pytest.fixture(scope="module")
def study(graph: Path, tmp_path_factory: pytest.TempPathFactory) -> single.RunResult:
    return experiment.run(embexp.compose(words(graph)), tmp_path_factory.mktemp("study"))


def ranks(directory: Path, graph: Path, triples: Sequence[Triple]) -> np.ndarray:
    """Filtered ranks among all entities in both directions, each triple scored by itself in float64."""
    opened = embexp.load_run(directory)
    vectors = {
        name: dict(zip(opened.vocabulary(name).tokens(), opened.table(name).astype(np.float64), strict=True))
        for name in ("entity", "relation")
    }
    entities, relations = vectors["entity"], vectors["relation"]
    true = {triple for part in ("train", "valid", "test") for triple in read(graph, part)}

    def score(source: str, relation: str, target: str) -> float:
        s, r, t = (each[:4] + 1j * each[4:] for each in (entities[source], relations[relation], entities[target]))
        return float(np.sum(s * r * t.conj()).real)

    found = []
    for head, relation, tail in triples:
        wrong = [name for name in entities if name != tail and (head, relation, name) not in true]
        own = score(head, relation, tail)
        found.append(1 + sum(score(head, relation, name) > own for name in wrong))
        wrong = [name for name in entities if name != head and (name, relation, tail) not in true]
        own = score(tail, f"{relation}^-1", head)
        found.append(1 + sum(score(tail, f"{relation}^-1", name) > own for name in wrong))
    return np.array(found, np.float64)


@pytest.mark.slow
def test_the_new_entities_questions_are_ranked_among_all(study: single.RunResult, graph: Path) -> None:
    summary = study.summary
    drawn = queries.new_entities({f"p{place}" for place in range(PLACES)}, share=0.2, seed=0)
    assert sorted(summary["new"]["entity"]["tokens"]) == sorted(drawn)  # each place has triples with others that train
    new = [triple for triple in read(graph, "test") if {triple[0], triple[2]} & set(drawn)]
    known = [triple for triple in read(graph, "test") if triple not in new]
    assert new
    assert known
    for run in ("grown", "full"):
        metrics = summary["runs"][run]["metrics"]
        for part, triples in (("test_new", new), ("test_known", known), ("test", read(graph, "test"))):
            expected = ranks(study.directory / run, graph, triples)
            assert metrics[part]["mrr"] == pytest.approx(np.mean(1 / expected), abs=1e-12)
            assert metrics[part]["hits_at_3"] == np.mean(expected <= 3)
            assert metrics[part]["mrr_heads"] == pytest.approx(np.mean(1 / expected[1::2]), abs=1e-12)
        assert summary["metrics"]["test"][f"{run}_mrr_new"] == metrics["test_new"]["mrr"]
    assert summary["comparison"]["mrr_new"] == pytest.approx(
        summary["runs"]["grown"]["metrics"]["test_new"]["mrr"] / summary["runs"]["full"]["metrics"]["test_new"]["mrr"]
    )


@pytest.mark.slow
def test_old_rows_keep_every_bit_and_new_ones_move(study: single.RunResult) -> None:
    base, grown = (embexp.load_run(study.directory / run) for run in ("base", "grown"))
    for table in ("entity", "relation"):
        before = dict(zip(base.vocabulary(table).tokens(), base.table(table), strict=True))
        after = dict(zip(grown.vocabulary(table).tokens(), grown.table(table), strict=True))
        assert set(before) <= set(after)
        assert {token: row.tobytes() for token, row in before.items()} == {t: after[t].tobytes() for t in before}
        old = study.summary["old_rows"][table]
        assert (old["rows"], old["rows_changed"]) == (len(before), 0)
        assert old["digest_before"] == old["digest_after"] == base.summary["tables"][table]["digest"]
    assert study.summary["old_rows_changed"] == 0
    assert study.summary["runs"]["grown"]["trainable_rows"] == {"entity": 4, "relation": 0}
    assert grown.summary["freeze"]["entity"]["trainable_rows_touched"] == 4
    assert grown.summary["freeze"]["entity"]["frozen_rows_changed"] == 0


@pytest.mark.slow
def test_a_study_is_verified_run_by_run(study: single.RunResult, tmp_path: Path) -> None:
    kept = tmp_path / "kept"

    def again(rerun: Rerun, place: Path) -> None:
        experiment.run(rerun.spec, place, replay=rerun.replay)

    found = verification.verify(study.directory, again=again, keep=kept)
    assert found.identical, str(found)
    assert [each for each in found.differences if each.kind is not Kind.REPOSITORY] == []
    assert [line.split(":")[0] for line in found.compared if "tensors" in line] == ["base", "grown", "full"]
    other = Path(shutil.copytree(study.directory, tmp_path / "other"))
    manifest = json.loads((other / "grown" / "manifest.json").read_text())
    manifest["packages"]["numpy"] = "1.0"
    (other / "grown" / "manifest.json").write_text(json.dumps(manifest))
    summary = json.loads((other / "full" / "summary.json").read_text())
    summary["metrics"]["test"]["mrr"] = 2.0
    (other / "full" / "summary.json").write_text(json.dumps(summary))
    found = verification.verify(other, again=lambda rerun, place: shutil.copytree(kept, place, dirs_exist_ok=True))
    named = [each.name for each in found.differences if each.kind is not Kind.REPOSITORY]
    assert named == ["full: metrics.test.mrr", "numpy"]
    assert {name: part.same for name, part in runs_compared.compare(study.directory, other).items()} == {
        "base": True,
        "grown": False,
        "full": False,
    }


def test_each_run_is_an_ordinary_one(study: single.RunResult, graph: Path, tmp_path: Path) -> None:
    spec = embexp.compose(words(graph))
    expected = spec.study.runs(spec, study.directory)
    assert list(expected) == ["base", "grown", "full"]
    for name, stage in expected.items():
        folder = RunFolder(study.directory / name)
        assert folder.read_spec() == stage
        assert embexp.load_run(folder.path).evaluate()["mrr"] == study.summary["runs"][name]["metrics"]["test"]["mrr"]
    grown = RunFolder(study.directory / "grown").read_spec()
    again = single.run(grown, tmp_path).summary
    assert again["tables"] == embexp.load_run(study.directory / "grown").summary["tables"]
    counts = {name: run["trained_triples"] for name, run in study.summary["runs"].items()}
    assert counts["base"] < counts["grown"] == counts["full"] == len(read(graph, "train"))
    with pytest.raises(RunError, match="no split test_new; its splits are train, validation, test"):
        embexp.load_run(study.directory / "base").evaluate(split="test_new")
    with pytest.raises(
        NotARunError, match="directory of a study; its finished runs are in its folders base, grown, full"
    ):
        embexp.load_run(study.directory)


@pytest.mark.slow
def test_new_rows_may_train_on_their_own_triples_alone(graph: Path, tmp_path: Path) -> None:
    settings = ["study.grown.triples=new", "study.grown.batch_size=16", "study.grown.epochs=3", "model=distmult"]
    result = experiment.run(
        embexp.compose(words(graph, "train.epochs=2", *settings)),
        tmp_path,
    )
    runs = result.summary["runs"]
    assert runs["base"]["trained_triples"] + runs["grown"]["trained_triples"] == runs["full"]["trained_triples"]
    assert (runs["grown"]["epochs"], runs["full"]["epochs"]) == (pytest.approx(3, abs=0.4), pytest.approx(2, abs=0.4))
    assert result.summary["old_rows_changed"] == 0
    assert not (tmp_path / "plots").exists()


@pytest.mark.slow
def test_an_interrupted_study_says_what_it_has(graph: Path, tmp_path: Path) -> None:
    class Impatient(Listener):
        """Presses Ctrl-C in the second training."""

        trainings = 0

        def started(self, total_steps: int, examples_per_epoch: int) -> None:
            self.trainings += 1

        def progressed(self, step: int) -> None:
            if self.trainings == 2:
                import signal

                signal.raise_signal(signal.SIGINT)

    impatient, told = Impatient(), []
    spec = embexp.compose(words(graph, epochs=1))
    result = experiment.run(spec, tmp_path, Observer(lambda: [impatient], announce=told.append))
    assert result.status == "interrupted"
    assert [words.split(":")[0] for words in told] == ["1 of 3, base", "2 of 3, grown"]
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert {name: run["status"] for name, run in summary["runs"].items()} == {
        "base": "completed",
        "grown": "interrupted",
    }
    assert summary["comparison"] == {}


@pytest.mark.slow
def test_a_study_killed_before_it_noted_how_long_a_run_took(
    graph: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_json = RunFolder.write_json

    def killed(self: RunFolder, path: Path, content: Any) -> None:
        if path.name == "seconds.json":
            raise KeyboardInterrupt
        write_json(self, path, content)

    spec = embexp.compose(words(graph, epochs=1))
    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "write_json", killed)
        with pytest.raises(KeyboardInterrupt):
            experiment.run(spec, tmp_path)
    runs = experiment.resume(tmp_path).summary["runs"]
    assert runs["base"]["seconds"]["training"] is None
    assert runs["grown"]["seconds"]["training"] > 0
    assert commands.main(["resume", str(tmp_path)]) == 0


@pytest.mark.slow
def test_a_sweep_over_models(graph: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    overrides = words(graph, f"hydra.sweep.dir={tmp_path}/sweep", epochs=1)
    assert commands.main(["run", "-m", *overrides, "model=transe,distmult"]) == 0
    jobs = json.loads((tmp_path / "sweep" / "sweep.json").read_text())["jobs"]
    assert [job["status"] for job in jobs] == ["completed", "completed"]
    assert [job["compared"]["old_rows_changed"] for job in jobs] == [0, 0]
    assert "test grown_mrr_new" in jobs[0]["metrics"]
    assert "grown_mrr_new" in capsys.readouterr().out
    assert {path.name for path in (tmp_path / "sweep" / "0").iterdir()} >= {"base", "grown", "full", "summary.json"}
    assert "old rows of entity: 0 of 16 changed" in (tmp_path / "sweep" / "1" / "run.log").read_text()


@left_out()  # in every run, a graph with a planted truth
@pytest.mark.slow
@pytest.mark.parametrize("name", ["umls", "kinship"])
def test_real_graphs(name: str, tmp_path: Path) -> None:
    if not (DATA / name).is_dir():
        pytest.skip(f"without the real data: {name}")
    settings = [
        "train.epochs=4",
        "tables.entity.dim=64",
        "output.tensorboard=false",
        "output.plots=false",
        "output.baselines=false",
    ]
    spec = embexp.compose(["experiment=new_entities", f"data.path={DATA / name}", *settings])
    summary = experiment.run(spec, tmp_path).summary
    assert summary["old_rows_changed"] == 0
    assert summary["new"]["entity"]["rows"] >= 10
    grown = summary["runs"]["grown"]["metrics"]
    assert grown["test_new"]["mrr"] > 0.3  # an answer drawn at random has 0.04
    assert grown["test_known"]["mrr"] > 0.3


def test_settings_that_a_study_makes_itself_are_faults(graph: Path) -> None:
    wrong = ["freeze=table", "data.new_entities={share: 0.2}", "checkpoint.save=never"]
    with pytest.raises(ConfigError) as caught:
        embexp.compose(words(graph, *wrong, "freeze@tables.relation.freeze=table"))
    assert {fault.path for fault in caught.value.faults} == {
        "freeze",
        "tables.relation.freeze",
        "data.new_entities",
        "checkpoint.save",
    }
    with pytest.raises(ConfigError, match=r"study\.grown\.triples = 'known': .* set new or all"):
        embexp.compose(words(graph, "study.grown.triples=known"))
    with pytest.raises(ConfigError, match="it needs the entities of a knowledge graph, but the data is of kind clicks"):
        embexp.compose(["study=new_entities"])


def test_new_entities_are_part_of_an_id(graph: Path) -> None:
    triples = embexp.compose(["experiment=knowledge_graph", f"data.path={graph}"])
    whole = embexp.compose(words(graph))
    new = triples.model_copy(update={"data": whole.study.runs(whole, Path())["full"].data})
    assert manifest.content_id(new, "digest") != manifest.content_id(triples, "digest")


def test_the_plan_shows_each_run(graph: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main(["plan", *words(graph)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines if " of 3, " in line] == [
        "1 of 3, base",
        "2 of 3, grown",
        "3 of 3, full",
    ]
    assert commands.main(["plan", "--scan", *words(graph)]) == 0
    shown = capsys.readouterr().out
    base, grown, full = shown.split(" of 3, ")[1:]
    assert "freeze: tables.entity: old_rows covers 16 of 20 rows\n" in grown
    assert "4 of 20 rows are trainable" in grown
    assert "freeze: tables.relation: old_rows covers 8 of 8 rows\n" in grown
    # 8 float32 for each row: parameters, Adagrad's slots of the rows that move, frozen ones.
    for part, entity, relation in (
        (base, "16 8 512 B 512 B 0 B", "8 8 256 B 256 B 0 B"),
        (grown, "20 8 640 B 640 B 512 B", "8 8 256 B 0 B 256 B"),
        (full, "20 8 640 B 640 B 0 B", "8 8 256 B 256 B 0 B"),
    ):
        lines = [" ".join(line.split()) for line in part.splitlines()]
        assert any(f"entity {entity} " in line for line in lines), part
        assert any(f"relation {relation} " in line for line in lines), part
    trains = [line.split()[1] for line in shown.splitlines() if line.startswith("length ")]
    assert trains[1:] == [str(2 * len(read(graph, "train")))] * 2  # each triple asks for its head and its tail


def _taken(name: str, *, mrr: float, status: str = "completed") -> dict[str, Any]:
    metrics = {"test": {"mrr": mrr}, "test_new": {"mrr": mrr / 2}, "test_known": {"mrr": mrr}}
    summary = {
        "status": status,
        "run_id": name,
        "steps": 10,
        "best_step": 5,
        "batch_size": 8,
        "examples": {"train": 40},
        "throughput": {"examples_per_second": 80.0},
        "tables": {"entity": {"vocabulary_size": 4}},
        "freeze": {"entity": {"trainable_rows": 1}},
        "metrics": metrics,
        "warnings": ["odd"],
    }
    seconds = {"setup": 1.0, "training": 4.0 if name == "grown" else 16.0, "finishing": 1.0, "total": 6.0}
    return summary | {"seconds": seconds}


def test_an_old_row_that_changed_would_be_told(graph: Path, tmp_path: Path) -> None:
    from rich.console import Console

    runs = {name: _taken(name, mrr=mrr) for name, mrr in (("base", 0.9), ("grown", 0.8), ("full", 0.4))}
    old = {"entity": {"rows": 3, "rows_changed": 1, "digest_before": "a" * 64, "digest_after": "b" * 64}}
    content = summarise({"name": "study", "study": "new_entities", "entities": "entity"}, runs, old, {"entity": ["p1"]})
    assert content["old_rows_changed"] == 1
    assert content["warnings"] == ["1 old rows of tables.entity changed", *(f"{name}: odd" for name in runs)]
    assert content["comparison"]["mrr_new"] == pytest.approx(2.0)
    assert content["comparison"]["training_seconds"] == pytest.approx(0.25)
    facts = content["runs"]["grown"]
    assert (facts["epochs"], facts["best_epoch"], facts["trained_triples"]) == (2.0, 1.0, 20)
    assert (facts["seconds"]["best"], facts["seconds"]["steps"]) == (2.0, 1.0)
    console = Console(width=80, record=True, file=(tmp_path / "out").open("w"))
    console.print(Comparison(content, tmp_path))
    shown = " ".join(console.export_text().split())
    assert "1 of 3 changed; digest aaaaaaaaaaaa before, bbbbbbbbbbbb after" in shown
    assert "grown reaches 200.0% of full's MRR on the new entities in 25.0% of its training time" in shown
    console.file.close()


def test_the_experiment_and_its_stages() -> None:
    spec = composition.job(
        composition.loader(), ["experiment=new_entities", "data.path=FOLDER"], look_at_data=False
    ).spec
    stages = spec.study.runs(spec, Path("there"))
    assert [stage.data.new_entities.train for stage in stages.values()] == ["known", "all", "all"]  # type: ignore[union-attr]
    grown = stages["grown"]
    assert (grown.pretrained.kind, getattr(grown.pretrained, "path", None)) == ("checkpoint", "there/base")
    assert (grown.freeze.kind, grown.train.early_stopping.patience) == ("old_rows", 3)
    assert {stage.study.kind for stage in stages.values()} == {"none"}
    assert stages["full"].train == spec.train
