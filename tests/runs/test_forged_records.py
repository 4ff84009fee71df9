"""A hundred forged records of 25 kinds: each forgery is named, by the inventory or by what was kept outside the folder.

A forger may rewrite the inventory, too: then its digest in the ledger of the sweep differs, and where the forged value
is a result, so does the repetition. What only the ledger notices is listed in `ONLY_ELSEWHERE`.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import embexp
from embexp.errors import EmbexpError
from embexp.records import inventory, manifest
from embexp.records.folder import RunFolder
from embexp.runs import experiment, verification
from embexp.runs import run as single
from embexp.runs.verification import Rerun
from embexp.system.tensor_bundle.index import read_index
from tests import thoroughness

MODEL = """import keras


def tower(activations):
    x = keras.layers.Concatenate()([keras.layers.Flatten()(each) for each in activations.values()])
    return keras.Model(inputs=activations, outputs=keras.layers.Dense(1)(x))
"""
FUNCTION = "forged_model:tower"
STEPS = (3, 6, 9, 12)
VARIANTS = 4
Names = set[tuple[str, str]]
"""The files that a forgery changes, each with what the record statement calls it."""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A job of a sweep: with vectors from a file, vocabularies of texts, numeric columns, a model of the user's own."""
    sweep = tmp_path_factory.mktemp("sweep")
    project = tmp_path_factory.mktemp("project")
    (project / "forged_model.py").write_text(MODEL)
    draw = np.random.default_rng(0)
    lines = ["user,item,age,bought"]
    for _ in range(300):
        lines.append(f"u{draw.integers(30)},i{draw.integers(20)},{draw.integers(18, 80)},{int(draw.random() < 0.5)}")
    (project / "log.csv").write_text("\n".join(lines) + "\n")
    np.save(project / "item.npy", draw.normal(0, 0.3, (12, 4)).astype(np.float32))
    (project / "item.tokens.txt").write_text("".join(f"i{each}\n" for each in range(12)))
    data = {"kind": "csv", "path": str(project / "log.csv"), "label": "bought"}
    spec = embexp.RunSpec.model_validate(
        {
            "name": "forged",
            "task": "binary",
            "data": {**data, "dense_features": {"age": {"transform": "standardize", "missing": "mean"}}},
            "tables": {
                "user": {"dim": 4},
                "item": {"dim": 4, "pretrained": {"kind": "file", "path": str(project / "item.npy")}},
            },
            "features": {"user": {"table": "user"}, "item": {"table": "item"}},
            "model": {"kind": "keras", "function": FUNCTION},
            "optimizer": {"kind": "adagrad", "learning_rate": 0.1},
            "dense_optimizer": {"kind": "adam", "learning_rate": 0.01},
            "train": {"steps": STEPS[-1], "epochs": None, "batch_size": 32, "log_every": 2, "evaluate_every": 4},
            "checkpoint": {"every_steps": STEPS[0], "keep": None},
            "output": {"plots": True, "tensorboard": True, "cache": str(project / "cache")},
        }
    )
    run = sweep / "0"
    (run / ".hydra").mkdir(parents=True)
    for name in ("config.yaml", "hydra.yaml", "overrides.yaml"):
        (run / ".hydra" / name).write_text("- seed=0\n- model=keras\n- optimizer=adagrad\n- train.steps=12\n")
    (run / "run.log").write_text("".join(f"step {step}\n" for step in STEPS))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(project)
        patch.setattr(manifest, "states", lambda folders: {})  # somebody may be at work in the checkout
        single.run(spec, run)
        with sqlite3.connect(sweep / "sweep.sqlite") as ledger:
            ledger.execute("CREATE TABLE jobs (number INTEGER, directory TEXT, inventory TEXT, same_as INTEGER)")
            ledger.execute("INSERT INTO jobs VALUES (0, '0', ?, NULL)", (inventory.digest_of(run),))
        yield run


@pytest.fixture(scope="module")
def repeated(recorded: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Rerun, Path], None]:
    """Runs the run again: once, and copies that."""
    done = tmp_path_factory.mktemp("repeated") / "run"

    def again(rerun: Rerun, place: Path) -> None:
        if not done.exists():
            done.mkdir()
            experiment.run(rerun.spec, done, replay=rerun.replay)
        shutil.copytree(done, place, dirs_exist_ok=True)

    return again


def changed(*names: str) -> Names:
    return {(name, "changed") for name in names}


def lines(name: str, change: Callable[[list[str], int], object]) -> Callable[[Path, int], Names]:
    """Forges the lines of a file; `change` gets them, and which variant it is to be."""

    def forge(run: Path, variant: int) -> Names:
        content = (run / name).read_text().splitlines(keepends=True)
        before = list(content)
        change(content, variant)
        assert content != before
        (run / name).write_text("".join(content))
        return changed(name)

    return forge


def moved(content: list[str], variant: int) -> None:
    content.insert(variant + 2, content.pop(variant))


def swapped(content: list[str], variant: int) -> None:
    content[variant + 1], content[variant + 4] = content[variant + 4], content[variant + 1]


def number(key: str) -> Callable[[list[str], int], None]:
    """Another value of a key of the lines that have it."""

    def change(content: list[str], variant: int) -> None:
        found = [place for place, line in enumerate(content) if f'"{key}"' in line]
        line = json.loads(content[found[variant % len(found)]])
        (line if key in line else line["metrics"] if "metrics" in line else line["timing"])[key] = 0.125 + variant
        content[found[variant % len(found)]] = json.dumps(line) + "\n"

    return change


def values(name: str, *keys: tuple[str, ...]) -> Callable[[Path, int], Names]:
    """Forges a value of a JSON file; of several keys, each variant another one."""

    def forge(run: Path, variant: int) -> Names:
        content = json.loads((run / name).read_text())
        *parents, last = keys[variant % len(keys)]
        node = content
        for key in parents:
            node = node[key]
        assert last in node
        node[last] = other(node[last], variant)
        (run / name).write_text(json.dumps(content, indent=2) + "\n")
        return changed(name)

    return forge


def other(value: Any, variant: int) -> Any:
    match value:
        case bool():
            return not value
        case int() | float():
            return value + variant + 1
        case str():
            return f"{variant}{value}"[: max(1, len(value))] if len(value) == 64 else f"{value}{variant}"
        case list():
            return [*value, f"forged {variant}"]
        case dict():
            return {**value, f"forged {variant}": variant}
    return variant


def bits(*names: str) -> Callable[[Path, int], Names]:
    """Flips a bit of a file; of several, each variant that of another one."""

    def forge(run: Path, variant: int) -> Names:
        path = run / names[variant % len(names)]
        content = bytearray(path.read_bytes())
        content[(variant + 1) * len(content) // (VARIANTS + 2)] ^= 1 << variant
        path.unlink()  # which other names of the same file, as of a checkpoint's, leaves as they are
        path.write_bytes(content)
        return changed(names[variant % len(names)])

    return forge


def in_a_tensor(run: Path, variant: int) -> Names:
    """Flips a bit of a value in the final checkpoint: between them are bytes that nothing reads."""
    found = read_index(run / "checkpoints" / "final" / "checkpoint.index")
    pieces = [piece for _, entry in sorted(found.items()) if entry.shape for piece in entry.pieces]
    piece = pieces[variant * len(pieces) // VARIANTS]
    content = bytearray(piece.path.read_bytes())
    content[piece.offset + (variant + 1) * piece.size // (VARIANTS + 2)] ^= 1 << variant
    piece.path.unlink()
    piece.path.write_bytes(content)
    return changed(piece.path.relative_to(run).as_posix())


def removed(*names: str) -> Callable[[Path, int], Names]:
    """Removes a file or a folder; of several, each variant another one."""

    def forge(run: Path, variant: int) -> Names:
        path = run / names[variant % len(names)]
        gone = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
        for each in gone:
            each.unlink()
        return {(each.relative_to(run).as_posix(), "removed") for each in gone}

    return forge


def replaced(run: Path, variant: int) -> Names:
    """A checkpoint takes another one's place."""
    taken, place = (run / "checkpoints" / f"step_{step:08d}" for step in (STEPS[variant - 1], STEPS[variant]))
    before = {path.name: path.read_bytes() for path in place.iterdir()}
    shutil.rmtree(place)
    shutil.copytree(taken, place)
    return changed(
        *(f"checkpoints/{place.name}/{name}" for name in before if (place / name).read_bytes() != before[name])
    )


DATA = "checkpoint.data-00001-of-00002"
CHECKPOINTS = [f"checkpoints/step_{step:08d}" for step in STEPS]
KINDS: dict[str, Callable[[Path, int], Names]] = {
    "a value of metrics.jsonl": lines("metrics.jsonl", number("loss")),
    "a time of metrics.jsonl": lines("metrics.jsonl", number("seconds")),
    "an extra line of metrics.jsonl": lines("metrics.jsonl", lambda content, at: content.insert(at, content[at])),
    "a moved line of metrics.jsonl": lines("metrics.jsonl", moved),
    "a line removed from metrics.jsonl": lines("metrics.jsonl", lambda content, at: content.pop(at)),
    "a tensor of an earlier checkpoint": bits(*(f"{each}/{DATA}" for each in CHECKPOINTS)),
    "an index of a checkpoint": bits(*(f"{each}/checkpoint.index" for each in CHECKPOINTS)),
    "another checkpoint's place": replaced,
    "a tensor of the final checkpoint": in_a_tensor,
    "metrics": values("summary.json", ("metrics", "test", "auc"), ("metrics", "validation", "loss")),
    "baselines": values(
        "summary.json", ("baselines", "constant", "test", "auc"), ("baselines", "constant", "train", "loss")
    ),
    "warnings": values("summary.json", ("warnings",)),
    "movement": values("summary.json", ("movement", "user", "median"), ("movement", "item", "rows")),
    "the digest of vectors": values("summary.json", ("initialization", "tables", "item", "pretrained", "digest")),
    "strategy, runtime": values("summary.json", ("strategy",), ("simulated",), ("runtime",), ("batch_size",)),
    "run_id": values("summary.json", ("run_id",)),
    "throughput": values("summary.json", ("throughput", "step_ms_median"), ("throughput", "examples_per_second")),
    "state.json": values(
        "checkpoints/step_00000006/state.json", ("outcome", "train_loss"), ("drift",), ("summary", "steps")
    ),
    "touched.npz": bits(*(f"{each}/touched.npz" for each in CHECKPOINTS)),
    "coverage.json": values("coverage.json", ("tables", "item", "file_rows"), ("unfit",), ("tables", "item", "digest")),
    "overrides": lines(".hydra/overrides.yaml", lambda content, at: content.pop(at)),
    "manifest.json": values("manifest.json", ("packages", "numpy"), ("seed",), ("created",), ("command",)),
    "a removed file": removed("manifest.json", "coverage.json", "code", "checkpoints/final"),
    "a vocabulary": lines("vocabularies/user.tsv", swapped),
    "a bit of another file": bits(
        "vocabularies/item.tsv", "numeric_columns.json", "code/forged_model.py", "plots/overview.png"
    ),
}
ONLY_ELSEWHERE = {
    "a time of metrics.jsonl",
    "overrides",
    "run_id",  # a circumstance
    "warnings",  # sentences about values that are compared themselves
    "throughput",
    "manifest.json",  # circumstances
    "a removed file",  # what is not there is not compared
    "a bit of another file",  # plots are not made again; code is a circumstance
}
"""Kinds of which the repetition, in some variants, says nothing, or only that circumstances differ."""


def test_the_run_itself_is_intact_and_identical(recorded: Path, repeated: Callable[[Rerun, Path], None]) -> None:
    found = verification.verify(recorded, allow_code=[FUNCTION], again=repeated)
    assert (found.intact, found.identical, found.differences) == (True, True, ())
    assert str(found.record) == f"record: intact, {found.record.files} files"
    (recorded / "notes.txt").write_text("mine")
    try:
        found = verification.verify(recorded, allow_code=[FUNCTION], again=repeated)
    finally:
        (recorded / "notes.txt").unlink()
    assert found.intact
    assert str(found.record) == f"record: intact, {found.record.files} files; added: notes.txt"


def test_a_hundred_forgeries_are_named(recorded: Path, tmp_path: Path) -> None:
    assert len(KINDS) == 25
    missed = []
    for kind, forge in KINDS.items():
        for variant in range(VARIANTS):
            copy = tmp_path / f"{len(missed)} {kind} {variant}"
            shutil.copytree(recorded, copy)
            expected = forge(copy, variant)
            record = verification.record_of(copy)
            found = {(each.path, each.kind.value) for each in record.changes}
            if (
                not expected
                or found != expected
                or record.intact
                or not all(path in str(record) for path, _ in expected)
            ):
                missed.append((kind, variant, expected, str(record)))
            shutil.rmtree(copy)
    assert missed == []


@pytest.mark.parametrize("variant", thoroughness.chosen(map(str, range(VARIANTS)), "1"))
def test_a_rewritten_inventory_shows_in_the_ledger_and_in_the_repetition(
    recorded: Path, repeated: Callable[[Rerun, Path], None], tmp_path: Path, variant: str
) -> None:
    """The forger takes the run's place in the sweep, with an inventory that fits what was forged."""
    unnoticed = set()
    for kind, forge in KINDS.items():
        sweep = tmp_path / kind
        shutil.copytree(recorded.parent, sweep)
        forge(sweep / "0", int(variant))
        inventory.seal(sweep / "0")
        (sweep / "0" / "events").rename(sweep / "0" / "logs")  # the events have the digest, too: a forger knows
        inventory.seal(sweep / "0")
        record = verification.record_of(sweep / "0")
        assert [(each.path, each.kind.value) for each in record.changes] == [("inventory.json", "changed")], kind
        assert "the ledger of the sweep has" in str(record)
        if not _noticed(sweep / "0", repeated):
            unnoticed.add(kind)
        shutil.rmtree(sweep)
    assert unnoticed <= ONLY_ELSEWHERE


def _noticed(run: Path, repeated: Callable[[Rerun, Path], None]) -> bool:
    """Whether the run can't be repeated, or gives other results."""
    try:
        return not verification.verify(run, allow_code=[FUNCTION], again=repeated).identical
    except EmbexpError:
        return True


def test_what_was_added_to_the_spec_is_named(recorded: Path, tmp_path: Path) -> None:
    """A forged spec.json is repeated as it is now, so it is the record that names it, and the manifest."""
    copy = Path(shutil.copytree(recorded, tmp_path / "run"))
    values("spec.json", ("seed",))(copy, 0)
    assert str(verification.record_of(copy)).startswith("record: changed: spec.json")
    assert RunFolder(copy).read_spec().seed == 1
