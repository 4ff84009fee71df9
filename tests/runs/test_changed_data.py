"""A run whose own data file changes after the training: nothing looks up rows by a vocabulary that is not the run's."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import embexp
from embexp.errors import DataError
from embexp.runs import experiment
from embexp.runs.finished import Run, export, load_run
from embexp.runs.prepare import check_recorded_data

QUIET = ["output.plots=false", "output.tensorboard=false", "output.baselines=false", "output.digests=false"]
FORMS = {
    "ratings": (["user", "item", "rating"], ["experiment=ratings", "model=svd_plus_plus", "data.label=rating"]),
    "liked": (["user", "item", "time"], ["experiment=recommendation", "data.timestamp=time"]),
    "graph": (None, ["experiment=knowledge_graph"]),
}
CHANGED = r"its data \(data.path=.*\) has changed since it was trained.*Restore the data, or train again"


def rows(form: str) -> list[list[str]]:
    """Items of rising frequency, so that a few more rows move tokens to other rows of the tables."""
    draw = random.Random(0)
    third = {
        "ratings": lambda time: draw.randint(1, 5),
        "liked": lambda time: time,
        "graph": lambda time: f"u{time % 12}",
    }
    found = [
        [f"u{draw.randrange(12)}", f"i{draw.choice(range(min(9, 1 + time // 20)))}", str(third[form](time))]
        for time in range(240)
    ]
    return [[head, "likes", tail] for head, _, tail in found] if form == "graph" else found


def write(path: Path, form: str, lines: list[list[str]]) -> Path:
    header, separator = FORMS[form][0], "\t" if form == "graph" else ","
    path.write_text("".join(separator.join(line) + "\n" for line in [*([header] if header else []), *lines]))
    return path


def more(path: Path) -> None:
    """Rows of rare tokens, which become frequent."""
    with path.open("a") as file:
        for line in path.read_text().splitlines()[-1:] * 60:
            file.write(f"{line}\n")


def one_more(path: Path) -> None:
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines, lines[-1]]) + "\n")


def fewer(path: Path) -> None:
    path.write_text("\n".join(path.read_text().splitlines()[:-30]) + "\n")


def reordered(path: Path) -> None:
    header, *lines = path.read_text().splitlines()
    path.write_text("\n".join([header, *reversed(lines)]) + "\n")


def columns_reordered(path: Path) -> None:
    lines = [line.split(",") for line in path.read_text().splitlines()]
    path.write_text("".join(",".join(reversed(line)) + "\n" for line in lines))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The directory of a run of a form, next to its data in `train.txt`; each is done once."""
    made: dict[str, Path] = {}

    def run(form: str) -> Path:
        if form not in made:
            folder = tmp_path_factory.mktemp(form)
            data = write(folder / "train.txt", form, rows(form))
            if form == "graph":  # a folder of three files
                write(folder / "valid.txt", form, rows(form)[:20])
                write(folder / "test.txt", form, rows(form)[20:40])
            overrides = [
                f"data.path={folder if form == 'graph' else data}",
                "train.epochs=null",
                "train.steps=3",
                f"output.cache={folder / 'cache'}",
            ]
            made[form] = embexp.run(embexp.compose([*FORMS[form][1], *overrides, *QUIET]), folder / "run").directory
        return made[form]

    return run


@pytest.fixture
def changed(trained: Callable[[str], Path]) -> Any:
    """Loads the run of a form whose data are changed until the test ends, with a copy of the data as they were."""
    restore = []

    def load(form: str, change: Callable[[Path], None] = more) -> tuple[Run, Path]:
        directory = trained(form)
        data, before = directory.parent / "train.txt", directory.parent / "before"
        shutil.copy(data, before)
        restore.append((before, data))
        change(data)
        return load_run(directory), before

    yield load
    for before, data in restore:
        shutil.copy(before, data)


@pytest.mark.parametrize("change", [more, one_more, fewer, reordered, columns_reordered])
def test_any_change_of_the_data_is_noticed(changed: Any, change: Callable[[Path], None]) -> None:
    run, _ = changed("ratings", change)
    with pytest.raises(DataError, match=CHANGED):
        check_recorded_data(run.folder, run.spec)


def test_data_with_the_same_content_are_those_of_the_run(trained: Callable[[str], Path]) -> None:
    run = load_run(trained("ratings"))
    (run.folder.path.parent / "train.txt").touch()
    check_recorded_data(run.folder, run.spec)


USES: list[tuple[str, Callable[[Run, Path], object]]] = [
    ("ratings", lambda run, file: run.evaluate()),
    ("ratings", lambda run, file: run.evaluate(split="validation")),
    ("ratings", lambda run, file: run.evaluate(file)),  # its histories
    ("ratings", lambda run, file: run.predict(file)),
    ("ratings", lambda run, file: run.predict({"user": ["u1"], "item": ["i1"]})),
    ("ratings", lambda run, file: export(run.folder.path, file.parent / "out")),
    ("liked", lambda run, file: run.evaluate()),
    ("liked", lambda run, file: run.evaluate(file)),  # what users have seen
    ("liked", lambda run, file: run.recommend(["u1"])),
    ("liked", lambda run, file: run.recommend(histories={"new": ["i1"]})),
    ("liked", lambda run, file: run.vectors()),
    ("liked", lambda run, file: export(run.folder.path, file.parent / "out")),
    ("liked", lambda run, file: export(run.folder.path, file.parent / "out", "vectors")),
    ("graph", lambda run, file: run.evaluate()),
    ("graph", lambda run, file: run.evaluate(file)),  # the answers that are filtered
]


@pytest.mark.parametrize(("form", "use"), USES)
def test_what_needs_the_data_of_the_run_refuses_changed_ones(changed: Any, form: str, use: Any) -> None:
    run, file = changed(form)
    with pytest.raises(DataError, match=CHANGED):
        use(run, file)
    assert not (file.parent / "out").exists()


def test_what_needs_the_vocabularies_alone_has_those_of_the_run(trained: Callable[[str], Path], changed: Any) -> None:
    loaded = load_run(trained("ratings"))
    before = {table: loaded.vocabulary(table).tokens() for table in loaded.spec.tables}
    vector = loaded.neighbors("item", "i8", 3)
    run, _ = changed("ratings")
    assert {table: run.vocabulary(table).tokens() for table in run.spec.tables} == before
    assert run.neighbors("item", "i8", 3) == vector
    export(run.folder.path, run.folder.path.parent / "npy", "npy")


def test_vocabularies_that_another_version_would_make_are_not_used(
    trained: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = load_run(trained("liked"))
    from embexp.runs import prepare

    read = prepare.read_data

    def other(spec: Any, progress: Any, **options: Any) -> Any:
        data = read(spec, progress, **options)
        swapped = dict(zip(data.vocabularies, reversed(data.vocabularies.values()), strict=True))
        return prepare.replace(data, vocabularies=swapped)

    monkeypatch.setattr(prepare, "read_data", other)
    with pytest.raises(DataError, match="this version of embexp assigns the rows of table"):
        run.recommend(["u1"])


def test_a_study_goes_on_with_the_data_of_its_runs_that_have_ended(tmp_path: Path) -> None:
    data = write(tmp_path / "train.txt", "graph", rows("graph"))
    words = [f"data.path={data}", "train.steps=2", "study=new_entities", *QUIET]
    spec = embexp.compose(["experiment=knowledge_graph", f"output.cache={tmp_path / 'cache'}", *words])
    study = embexp.run(spec, tmp_path / "study").directory
    (study / "inventory.json").unlink()  # killed before it
    one_more(data)
    with pytest.raises(DataError, match=CHANGED):
        experiment.resume(study)
    write(data, "graph", rows("graph"))
    assert experiment.resume(study).status == "completed"
