"""Whole runs that tell classes of texts apart, small ones."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import embexp
from embexp.cli.commands.finished import predict
from embexp.errors import CombinationFault, ConfigError, DataError
from embexp.records.folder import RunFolder
from embexp.runs import run as single
from embexp.specs.run import doubtful_settings

WORDS = [f"w{number}" for number in range(30)]


def planted(count: int, seed: int) -> list[tuple[str, int]]:
    """Texts of 1 to 9 words. One that says "cat" is of class 2; of the others, those that say "dog eats" are of 1.

    Class 0 has the words dog and eats too, but never in this order: only their order tells 0 and 1 apart.
    """
    draw = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        label = int(draw.integers(3))
        words = [str(word) for word in draw.choice(WORDS, draw.integers(0, 8))]
        place = int(draw.integers(len(words) + 1))
        words[place:place] = [["eats", "dog"], ["dog", "eats"], ["cat"]][label]
        found.append((" ".join(words), label))
    return found


def write(path: Path, examples: list[tuple[str, Any]]) -> Path:
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["words", "kind"])
        rows.writerows(examples)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("texts")
    write(folder / "texts.csv", planted(900, seed=0))
    return folder


@pytest.fixture(scope="module")
def run(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., single.RunResult]:
    made: dict[tuple[str, ...], single.RunResult] = {}

    def run(*overrides: str) -> single.RunResult:
        if overrides not in made:
            directory = tmp_path_factory.mktemp("run")
            made[overrides] = single.run(spec_of(folder, *overrides), directory)
        return made[overrides]

    return run


def spec_of(folder: Path, *overrides: str) -> embexp.RunSpec:
    return embexp.compose(
        [
            "experiment=text_classification",
            "data=csv",
            f"data.path={folder}/texts.csv",
            "data.label=kind",
            "data.list_columns=[words]",
            "data.split.validation=0.1",
            "data.split.test=0.2",
            "tables.word.dim=16",
            "features.words.max_sequence_length=12",
            "optimizer=adam",
            "optimizer.learning_rate=0.01",
            "dense_optimizer=adam",
            "dense_optimizer.learning_rate=0.01",
            "train.epochs=6",
            "output.tensorboard=false",
            "output.baselines=false",
            f"output.cache={folder}/cache",
            *overrides,
        ]
    )


CNN = ("model=text_cnn", "model.widths=[2,3]", "model.maps=16")


def test_a_convolution_sees_the_order_of_words(run: Callable[..., single.RunResult]) -> None:
    test = run(*CNN).summary["metrics"]["test"]
    assert test["accuracy"] > 0.95
    assert test["macro_f1"] > 0.95
    assert test["log_loss"] < 0.3


def test_a_bag_of_words_does_not(run: Callable[..., single.RunResult]) -> None:
    """The words tell class 2 (a third of the examples); between the other two no bag can do better than chance."""
    test = run("model=bag_of_words").summary["metrics"]["test"]
    assert 0.5 < test["accuracy"] < 0.8
    assert test["log_loss"] < np.log(3)


def test_pairs_of_words_tell_a_bag_their_order(folder: Path, tmp_path: Path) -> None:
    settings = ["data=text", "data.text=words", "data.ngrams=2", "model=bag_of_words"]
    settings = [f"data.path={folder}/texts.csv", *settings, "data.label=kind", "features.words.max_sequence_length=0"]
    shared = ["optimizer=adam", "optimizer.learning_rate=0.01", "dense_optimizer=adam", "tables.word.dim=16"]
    spec = embexp.compose(["experiment=text_classification", *settings, *shared, f"output.cache={folder}/cache"])
    result = single.run(spec, tmp_path / "run")
    assert result.summary["metrics"]["test"]["accuracy"] > 0.95
    # Two cats are nowhere in the data, but a pair of known words is no unknown value.
    (tmp_path / "new.csv").write_text('words\ncat cat\nunheard cat\n""\n')
    found = embexp.load_run(result.directory).predictions(tmp_path / "new.csv")
    assert found.unknown["words"].tolist() == [False, True, False]


def test_what_a_run_leaves(run: Callable[..., single.RunResult]) -> None:
    result = run(*CNN)
    assert result.summary["classes"] == ["0", "1", "2"]
    assert list(result.summary["metrics"]["test"]) == ["accuracy", "log_loss", "macro_f1", "loss"]
    folder = RunFolder(result.directory)
    assert {path.name for path in folder.plots.glob("*.png")} == {"overview.png", "metrics.png"}
    finished = embexp.load_run(result.directory)
    assert finished.classes == ("0", "1", "2")
    assert finished.evaluate() == result.summary["metrics"]["test"]


def test_predictions_name_classes(
    run: Callable[..., single.RunResult], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    finished = embexp.load_run(run(*CNN).directory)
    texts = planted(60, seed=1)
    labelled = write(tmp_path / "labelled.csv", texts)
    predicted = finished.predict(labelled)
    right = np.mean(predicted == np.array([str(label) for _, label in texts]))
    assert right > 0.9
    assert finished.evaluate(labelled)["accuracy"] == right
    assert predict([str(finished.folder.path), "--data", str(labelled)]) == 0
    lines = [line.split(",") for line in capsys.readouterr().out.splitlines()]
    assert lines[0][:4] == ["prediction", *(f"probability of {name}" for name in finished.classes)]
    assert [line[0] for line in lines[1:]] == predicted.tolist()
    assert all(float(line[1 + finished.classes.index(line[0])]) >= 1 / 3 for line in lines[1:])


def test_another_file_with_other_classes(run: Callable[..., single.RunResult], tmp_path: Path) -> None:
    finished = embexp.load_run(run(*CNN).directory)
    with pytest.raises(DataError, match=r"row 2: found '3' in column 'kind', expected one of the classes 0, 1, 2"):
        finished.evaluate(write(tmp_path / "four.csv", [("dog eats", 1), ("cow", 3)]))


def test_early_stopping_goes_by_accuracy(run: Callable[..., single.RunResult]) -> None:
    result = run(*CNN, "train.early_stopping.patience=2", "train.epochs=40")
    evaluated = {
        line["step"]: line["metrics"]["accuracy"]
        for line in RunFolder(result.directory).read_metrics()
        if line["event"] == "evaluation"
    }
    assert result.status == "stopped_early"
    best = result.summary["best_step"]
    assert evaluated[best] == max(evaluated.values()) == result.summary["metrics"]["validation"]["accuracy"]
    assert best < result.summary["steps"]


def test_labels_that_are_no_classes_end_a_run_before_it_trains(folder: Path, tmp_path: Path) -> None:
    wrong = write(tmp_path / "wrong.csv", [*planted(40, seed=0), ("dog", 0.5)])
    with pytest.raises(DataError, match=r"needs class names .* has numbers such as 0\.5; set task=regression"):
        single.run(spec_of(folder, f"data.path={wrong}"), tmp_path)


def test_a_model_that_gives_one_number_tells_no_classes_apart(folder: Path) -> None:
    with pytest.raises(ConfigError, match="task classification needs one per class"):
        spec_of(folder, "model=dot", "model.left=[words]", "model.right=[words]")


def test_a_metric_of_another_task_is_not_watched(folder: Path) -> None:
    with pytest.raises(ConfigError, match="the metrics of task classification are accuracy, log_loss, macro_f1, loss"):
        spec_of(folder, "train.early_stopping.patience=1", "train.early_stopping.metric=auc")


VECTORS = np.random.default_rng(5).normal(size=(34, 16)).astype(np.float32)


@pytest.mark.parametrize(
    ("name", "starts_as_file", "moves"), [("random", False, True), ("static", True, False), ("non_static", True, True)]
)
def test_kims_variants_share_one_path(
    folder: Path, run: Callable[..., single.RunResult], name: str, starts_as_file: bool, moves: bool
) -> None:
    """By position: row 0 of the file is that of unknown words."""
    np.save(folder / "vectors.npy", VECTORS)
    result = run(
        "model=bag_of_words",
        f"vectors={name}",
        "pretrained=file",
        f"pretrained.path={folder}/vectors.npy",
        "optimizer.learning_rate=1e-4",
        "train.epochs=1",
        "output.plots=false",
    )
    freeze, first = result.summary["freeze"]["word"], result.summary["initialization"]["tables"]["word"]
    assert first["rows_pretrained"] == (34 if starts_as_file else 0)
    assert freeze["frozen_rows"] == (0 if moves else 34)
    apart = np.abs(embexp.load_run(result.directory).table("word") - VECTORS).max()
    if starts_as_file:
        assert (0 < apart < 0.01) if moves else apart == 0
    else:
        assert apart > 0.5


def test_static_vectors_need_some_that_are_not_random(folder: Path) -> None:
    words = ["model=bag_of_words", "vectors=static"]
    with pytest.raises(ConfigError) as caught:
        spec_of(folder, *words)
    [fault] = caught.value.faults
    assert isinstance(fault, CombinationFault)  # a sweep over vectors skips it
    assert fault.path == "tables.word.freeze"
    assert "the table is not pretrained" in fault.rule
    assert "freeze@tables.word.freeze=random_table" in fault.remedy
    for meant in (["freeze@tables.word.freeze=random_table"], ["tables.word.freeze.random=true"]):
        assert spec_of(folder, *words, *meant).frozen("word")
    control = spec_of(folder, "model=bag_of_words", "vectors=random_static", "pretrained=sample")
    assert (control.frozen("word"), control.pretrained_of("word").kind) == (True, "none")
    assert doubtful_settings(control) == []


def test_frozen_random_values_are_told(folder: Path) -> None:
    [warning] = doubtful_settings(spec_of(folder, "model=bag_of_words", "freeze=table"))
    assert warning.startswith("tables.word: frozen but not pretrained, so the random initial values never change")
    assert warning.endswith("choose freeze=random_table")
    [own] = doubtful_settings(spec_of(folder, "model=bag_of_words", "freeze@tables.word.freeze=table"))
    assert own.endswith("choose freeze@tables.word.freeze=random_table")


def test_frozen_random_values_are_told_by_the_run(folder: Path, run: Callable[..., single.RunResult]) -> None:
    [warning] = doubtful_settings(spec_of(folder, "model=bag_of_words", "freeze=table"))
    result = run("model=bag_of_words", "freeze=table", "train.steps=2")
    assert warning in result.summary["warnings"]
    meant = run("model=bag_of_words", "freeze=random_table", "train.steps=2")
    assert not [line for line in meant.summary["warnings"] if "random" in line]
    assert meant.summary["run_id"] == result.summary["run_id"]
    np.testing.assert_array_equal(
        embexp.load_run(meant.directory).table("word"), embexp.load_run(result.directory).table("word")
    )
