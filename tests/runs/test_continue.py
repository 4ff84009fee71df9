"""`embexp continue`: what a parent's data decided stays, new data add to it, and the results say what that brought."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import embexp
from embexp.cli.commands import main
from embexp.data.vocabularies.vocabulary import TokenVocabulary
from embexp.specs.tasks import Direction
from tests.runs.animals import COLUMNS, QUIET, write, write_experiment


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data of three days, and a run on the first."""
    here = tmp_path_factory.mktemp("days")
    write(here / "monday.csv", range(12), 600, 0)
    write(here / "tuesday.csv", range(6, 20), 400, 1)
    write(here / "wednesday.csv", range(10, 26), 400, 2)
    arguments = ["run", *write_experiment(here), f"data.path={here / 'monday.csv'}"]
    assert main([*arguments, f"output.cache={here / 'cache'}", f"hydra.run.dir={here / 'monday'}", *QUIET]) == 0
    return here


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def go_on(folder: Path, parent: str, data: str, *more: str) -> Path:
    out = folder / f"{data}-{len(list(folder.iterdir()))}"
    given = ["continue", str(folder / parent), "--data", str(folder / f"{data}.csv"), f"hydra.run.dir={out}", *more]
    assert main(given) == 0
    return out


@pytest.fixture(scope="module")
def tuesday(folder: Path) -> Path:
    return go_on(folder, "monday", "tuesday")


def test_what_the_data_decided_stays(folder: Path, tuesday: Path) -> None:
    before, after = embexp.load_run(folder / "monday"), embexp.load_run(tuesday)
    for table in ("user", "item"):
        was, now = before.vocabulary(table), after.vocabulary(table)
        assert isinstance(was, TokenVocabulary)
        assert isinstance(now, TokenVocabulary)
        assert now.known.slice(0, len(was.known)).equals(was.known)
    assert set(after.vocabulary("user").tokens()[13:]) == {f"u{number}" for number in range(12, 20)}
    assert before.vocabulary("size").digest == after.vocabulary("size").digest
    assert before.classes == after.classes == ("cat", "cow", "dog")
    assert before.folder.numbers.read_bytes() == after.folder.numbers.read_bytes()


def test_the_summary_says_what_came_and_went(tuesday: Path) -> None:
    parent = read(tuesday / "summary.json")["parent"]
    assert (parent["links"], parent["steps"]) == (1, 30)
    assert parent["tables"]["user"] == {"kept": 12, "new": 8, "unseen": 6, "dropped": 0}
    assert parent["tables"]["item"] == {"kept": 8, "new": 0, "unseen": 0, "dropped": 0}
    assert "size" not in parent["tables"]


def test_the_parent_is_evaluated_as_it_evaluates_itself(folder: Path, tuesday: Path) -> None:
    run = embexp.load_run(tuesday)
    from embexp.runs.prepare import read_recorded_data

    rows = read_recorded_data(run.folder, run.spec).scan.splits["test"]
    lines = (folder / "tuesday.csv").read_text().splitlines()
    (folder / "some.csv").write_text("\n".join([COLUMNS, *(lines[1 + row] for row in rows)]) + "\n")
    expected = embexp.load_run(folder / "monday").evaluate(folder / "some.csv")
    found = run.summary["parent"]
    assert found["metrics"]["test"] == pytest.approx(expected, rel=1e-6)
    for name, value in run.summary["metrics"]["test"].items():
        change = found["differences"]["test"][name]
        assert change["value"] == pytest.approx(value - expected[name], abs=1e-6)
        assert change["interval"][0] <= change["value"] <= change["interval"][1]


def test_rows_go_when_their_tokens_were_not_seen_for_some_runs(folder: Path, tuesday: Path) -> None:
    """Users 0 to 11 on Monday, 6 to 19 on Tuesday, 10 to 25 on Wednesday."""
    wednesday = embexp.load_run(go_on(folder, tuesday.name, "wednesday", "parent.gone={after: 2}"))
    parent = wednesday.summary["parent"]
    assert (parent["links"], parent["steps"]) == (2, 30 + 20)
    assert parent["tables"]["user"] == {"kept": 14, "new": 6, "unseen": 4, "dropped": 6}
    before = embexp.load_run(tuesday)
    stay = [token for token in before.vocabulary("user").tokens() if token not in {f"u{each}" for each in range(6)}]
    assert wednesday.vocabulary("user").tokens()[: len(stay)] == stay
    unseen = dict(zip(stay[1:], np.load(wednesday.folder.unseen("user")), strict=False))
    assert {token for token, count in unseen.items() if count == 1} == {f"u{each}" for each in range(6, 10)}
    kept = embexp.load_run(go_on(folder, tuesday.name, "wednesday", "parent.gone={after: 3}"))
    assert kept.summary["parent"]["tables"]["user"] == {"kept": 20, "new": 6, "unseen": 10, "dropped": 0}


def test_a_class_that_the_parent_lacks_is_an_error_or_one_more(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder / "fox.csv", range(12), 400, 3, classes="ant,cat,cow,dog,fox")
    before = embexp.load_run(folder / "monday")
    given = ["continue", str(folder / "monday"), "--data", str(folder / "fox.csv"), f"hydra.run.dir={folder / 'fox'}"]
    assert main(given) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "expected one of the classes cat, cow, dog; add others with parent.classes=extend" in said
    assert not (folder / "fox").exists()
    run = embexp.load_run(go_on(folder, "monday", "fox", "parent.classes=extend", "train.steps=1"))
    assert run.classes == ("cat", "cow", "dog", "ant", "fox")
    shapes = [each.shape for each in run.model.get_weights()[-2:]]
    assert shapes == [(8, 5), (5,)]
    for mine, theirs in zip(run.model.get_weights(), before.model.get_weights(), strict=True):
        # A step of Adam moves a weight by its learning rate at most, here 0.001.
        assert np.abs(mine[..., : theirs.shape[-1]] - theirs).max() < 0.0011


def test_what_does_not_fit_the_parent_is_told_at_once_and_nothing_is_written(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "thin.csv").write_text("user,size,label\nu1,1,cat\n")
    out = folder / "refused"

    def refused(data: str, *more: str, status: int = 2) -> str:
        given = ["continue", str(folder / "monday"), "--data", str(folder / data), f"hydra.run.dir={out}", *more]
        assert main(given) == status
        assert not out.exists()
        return capsys.readouterr().err

    said = refused("thin.csv")
    assert "features.item" in said
    assert "data.dense_features" in said
    assert "there is no such file" in refused("nowhere.csv")
    assert "the run that this one continues has task classification" in refused("tuesday.csv", "task=regression")
    vocabulary = refused("tuesday.csv", "tables.user.vocabulary.oov_buckets=3", status=2)
    assert "the run that this one continues has 1" in vocabulary
    dense = refused("tuesday.csv", "data.dense_features.age.transform=log1p", status=2)
    assert "the run that this one continues has this column, standardize" in dense
    unfinished = folder / "unfinished"
    unfinished.mkdir()
    assert main(["continue", str(unfinished), "--data", str(folder / "tuesday.csv")]) == 1
    assert "unfinished" in capsys.readouterr().err
    assert main(["continue", str(folder / "monday")]) == 2
    assert "give it with --data" in capsys.readouterr().err


@pytest.mark.parametrize("labels", [("maybe",), ("0", "1", "maybe"), ("yes", "no")])
def test_a_label_that_is_no_number_as_the_parents_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], labels: tuple[str, ...]
) -> None:
    write(tmp_path / "monday.csv", range(12), 60, 0, classes="0,1")
    write(tmp_path / "tuesday.csv", range(12), 60, 0, classes=",".join(labels))
    given = [*write_experiment(tmp_path), f"data.path={tmp_path / 'monday.csv'}", "task=binary", "train.steps=1"]
    assert main(["run", *given, f"hydra.run.dir={tmp_path / 'monday'}", *QUIET]) == 0
    before = sorted(tmp_path.rglob("*"))
    out = tmp_path / "links" / "tuesday"
    given = ["continue", str(tmp_path / "monday"), "--data", str(tmp_path / "tuesday.csv"), f"hydra.run.dir={out}"]
    assert main(given) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "in column 'label', expected a finite number" in said
    assert "data.positive" not in said
    assert not (tmp_path / "links").exists()
    assert before == sorted(tmp_path.rglob("*"))


@pytest.mark.parametrize(
    ("metric", "interval", "warned"),
    [
        ("accuracy", [-0.3, -0.1], True),
        ("accuracy", [-0.5, 0.1], False),
        ("accuracy", [0.1, 0.3], False),
        ("log_loss", [0.1, 0.3], False),  # not what early stopping watches
    ],
)
def test_a_parent_that_is_better_is_told(metric: str, interval: list[float], warned: bool) -> None:
    from embexp.runs import continued

    changed = {"test": {metric: {"value": sum(interval) / 2, "interval": interval}}}
    assert bool(list(continued.warnings(changed, "accuracy", Direction.HIGHER))) == warned
    assert not list(continued.warnings(changed, metric, None))


@pytest.mark.usefixtures("forked_jobs")
def test_a_chain_is_shown_and_checked(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start = ["run", "experiment=animals", "--config-dir", str(folder / "own"), f"data.path={folder / 'monday.csv'}"]
    assert main([*start, f"hydra.run.dir={tmp_path / 'first'}", "train.steps=2", *QUIET]) == 0
    for parent, day, name in (("first", "tuesday", "second"), ("second", "wednesday", "third")):
        data = ["--data", str(folder / f"{day}.csv")]
        assert main(["continue", str(tmp_path / parent), *data, f"hydra.run.dir={tmp_path / name}"]) == 0
    capsys.readouterr()
    assert main(["report", str(tmp_path / "third"), "--chain", "--plot", str(tmp_path / "chain.png")]) == 0
    shown = capsys.readouterr().out
    assert [shown.count(f"{name} ") for name in ("first", "second", "third")] == [1, 1, 1]
    assert (tmp_path / "chain.png").read_bytes()[:4] == b"\x89PNG"
    third = read(tmp_path / "third/summary.json")
    change = third["parent"]["differences"]["test"]["accuracy"]["value"]
    assert f"{third['metrics']['test']['accuracy']:.4f}" in shown
    assert f"{change:+.4f}" in shown
    assert main(["verify", str(tmp_path / "third"), "--chain"]) == 0
    assert capsys.readouterr().out.count("repeated: identical") == 3
    with (tmp_path / "first/metrics.jsonl").open("a") as file:
        file.write("{}\n")
    assert main(["verify", str(tmp_path / "third")]) == 1
    assert f"parent: {tmp_path / 'first'} has files that were changed" in capsys.readouterr().out
    (tmp_path / "first/inventory.json").write_text("{}")
    assert main(["verify", str(tmp_path / "third")]) == 1
    assert "is now a different run" in capsys.readouterr().out
    (tmp_path / "second").rename(tmp_path / "elsewhere")
    assert main(["verify", str(tmp_path / "third")]) == 2  # its rows can't be read again
    assert f"parent: {tmp_path / 'second'} is gone" in capsys.readouterr().out


def test_files_that_come_day_by_day(folder: Path, tmp_path: Path) -> None:
    files = ",".join(str(folder / f"{day}.csv") for day in ("monday", "tuesday", "wednesday"))
    overrides = [
        "run",
        "experiment=animals",
        "--config-dir",
        str(folder / "own"),
        "study=daily",
        f"data.path=[{files}]",
    ]
    overrides += ["study.retrain=[all,last,window]", "study.window=2", "train.steps=3", f"hydra.run.dir={tmp_path}/out"]
    assert main([*overrides, *QUIET]) == 0
    found = read(tmp_path / "out/summary.json")
    assert list(found["runs"]) == ["continued-001", "continued-002", "all-002", "last-002", "window-002"]
    for name, entry in found["runs"].items():
        of_run = read(tmp_path / "out" / name / "summary.json")
        assert entry["metrics"] == of_run["metrics"]
    both, one = (found["runs"][name]["examples"]["train"] for name in ("all-002", "last-002"))
    assert (both, one) == (900, 360)  # a tenth validates
    for way in ("continued", "all", "last", "window"):
        expected = found["runs"][f"{way}-002"]["metrics"]["test"]["accuracy"]
        assert found["metrics"]["test"][f"{way}_accuracy"] == expected
    expected = found["runs"]["continued-002"]["parent"]["metrics"]["test"]["accuracy"]
    assert found["metrics"]["test"]["parent_accuracy"] == expected
    assert main(["resume", str(tmp_path / "out")]) == 0
    assert main(["report", str(tmp_path / "out"), "--no-html"]) == 0


@pytest.mark.usefixtures("forked_jobs")
def test_a_file_that_is_cut_by_a_column_is_as_files(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of three days, one after the other and mixed up, have the results of the three files."""
    days = {day: (folder / f"{day}.csv").read_text().splitlines()[1:] for day in ("monday", "tuesday", "wednesday")}
    rows = [f"{row},2024-06-0{3 + place}" for place, day in enumerate(days.values()) for row in day]
    order = np.argsort(np.random.default_rng(0).permutation(len(rows)) // 300, kind="stable")
    (tmp_path / "whole.csv").write_text("\n".join([f"{COLUMNS},day", *(rows[place] for place in order)]) + "\n")
    files = []
    for place in range(3):
        files.append(tmp_path / f"day{place}.csv")
        of_day = [rows[at] for at in order if rows[at].endswith(f"0{3 + place}")]
        files[-1].write_text("\n".join([f"{COLUMNS},day", *of_day]) + "\n")
    given = ["run", "experiment=animals", "--config-dir", str(folder / "own"), "study=daily", "study.retrain=[]"]
    given += ["train.steps=3", *QUIET]
    by_column = [f"data.path={tmp_path / 'whole.csv'}", "study.column=day", "study.period=day"]
    path = f"data.path=[{','.join(map(str, files))}]"
    assert main([*given, path, f"hydra.run.dir={tmp_path / 'files'}"]) == 0

    def killed(*given: object, **named: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("embexp.runs.experiment.json_object", killed)  # after the data have been cut
        assert main([*given, *by_column, f"hydra.run.dir={tmp_path / 'cut'}"]) != 0
    assert main(["resume", str(tmp_path / "cut")]) == 0
    one, two = (read(tmp_path / name / "summary.json") for name in ("files", "cut"))
    assert two["metrics"] == one["metrics"]
    assert two["parts"] == [f"00{1 + place}-2024-06-0{3 + place}" for place in range(3)]
    capsys.readouterr()
    assert main(["report", str(tmp_path / "cut"), "--no-html"]) == 0
    assert "2024-06-05" in capsys.readouterr().out
    assert main(["plan", *given[1:], *by_column]) == 0
    assert "2 runs, in the folders continued-001, continued-002" in capsys.readouterr().out
    lacking = [f"data.path={folder / 'monday.csv'}", "study.column=day", f"hydra.run.dir={tmp_path / 'lacking'}"]
    assert main([*given, *lacking]) == 2
    assert "study.column = 'day'" in capsys.readouterr().err
    assert main([*given, "study.column=null", "study.period=day", path]) == 2
    assert "it divides the times in study.column" in capsys.readouterr().err
    monkeypatch.chdir(tmp_path)
    assert embexp.verify("cut").identical


@pytest.mark.usefixtures("forked_jobs")
def test_earlier_examples_are_mixed_in(folder: Path, tuesday: Path) -> None:
    out = go_on(folder, tuesday.name, "wednesday", "parent.replay=0.25", "train.epochs=1")
    run = embexp.load_run(out)
    assert run.summary["examples"]["train"] == 320 + round(320 / 3)
    assert run.summary["parent"]["tables"]["user"] == {"kept": 20, "new": 6, "unseen": 10, "dropped": 0}
    assert main(["verify", str(out)]) == 0
    from embexp.runs.prepare import read_data
    from embexp.system.parallel import quiet

    data = read_data(run.spec, quiet)
    examples, train = data.scan.examples, data.scan.splits["train"]
    new = np.sort(train[train >= 400])
    assert len(np.unique(train)) == len(train)
    assert np.abs(np.diff(np.flatnonzero(train >= 400)) - 4).max() <= 1  # spread evenly
    users = np.array(run.vocabulary("user").tokens())[examples.column("user", new)]
    known = set()
    for day in ("monday", "tuesday"):
        rows = [line.split(",") for line in (folder / f"{day}.csv").read_text().splitlines()[1:]]
        known |= {(user, item, label) for user, item, _, _, label in rows}
    items = np.array(run.vocabulary("item").tokens())[examples.column("item", new)]
    assert examples.labels is not None
    labels = np.array(run.classes)[examples.labels[new].astype(int)]
    assert {*zip(users.tolist(), items.tolist(), labels.tolist(), strict=True)} <= known
    other = read_data(run.spec.model_copy(update={"seed": 1}), quiet)
    assert not np.array_equal(other.scan.splits["train"], train)


def test_data_in_memory_and_several_files(folder: Path) -> None:
    rows = [line.split(",") for line in (folder / "tuesday.csv").read_text().splitlines()[1:]]
    user, item, age, size, label = map(list, zip(*rows, strict=True))
    frame = {"user": user, "item": item, "age": list(map(float, age)), "size": list(map(float, size)), "label": label}
    run = embexp.load_run(folder / "monday").continue_(frame, ["train.steps=2"], folder / "memory", quiet=True)
    assert run.summary["parent"]["tables"]["user"]["new"] == 8
    both = [folder / "tuesday.csv", folder / "wednesday.csv"]
    run = embexp.continue_run(folder / "monday", both, ["train.steps=2"], folder / "both", quiet=True)
    assert run.summary["parent"]["tables"]["user"]["new"] == 14


def test_parts_have_the_names_of_what_they_were_cut_by() -> None:
    from embexp.runs import daily

    assert daily.names_of_parts({"parts": ["001-2024-06-03", "002-2024-06-04"]}) == ["2024-06-03", "2024-06-04"]
    assert daily.names_of_parts({}) == []
