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

QUIET = ("output.plots=false", "output.tensorboard=false", "output.baselines=false")
COLUMNS = "user,item,age,size,label"


def write(path: Path, users: range, count: int, seed: int, classes: str = "cat,cow,dog") -> Path:
    """Rows whose label depends on user, item and age; ages and sizes shift with the seed."""
    random = np.random.default_rng(seed)
    names, lines = classes.split(","), [COLUMNS]
    for _ in range(count):
        user, item, age = random.integers(users.start, users.stop), random.integers(8), random.normal(30 + 5 * seed, 9)
        label = names[(user + item + (age > 30)) % len(names)]
        lines.append(f"u{user},i{item},{age:.3f},{random.exponential(10 * (1 + seed)):.3f},{label}")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data of three days, and a run on the first."""
    here = tmp_path_factory.mktemp("days")
    write(here / "monday.csv", range(12), 600, 0)
    write(here / "tuesday.csv", range(6, 20), 400, 1)
    write(here / "wednesday.csv", range(10, 26), 400, 2)
    own = here / "own/experiment"
    own.mkdir(parents=True)
    (own / "animals.yaml").write_text(ANIMALS)
    arguments = ["run", "experiment=animals", "--config-dir", str(here / "own"), f"data.path={here / 'monday.csv'}"]
    assert main([*arguments, f"output.cache={here / 'cache'}", f"hydra.run.dir={here / 'monday'}", *QUIET]) == 0
    return here


ANIMALS = """\
# @package _global_
defaults:
  - /table@tables.user: embedding
  - /table@tables.item: embedding
  - /table@tables.size: embedding
  - /feature@features.user: id
  - /feature@features.item: id
  - /feature@features.size: id
  - override /data: csv
  - override /graph: null
  - override /model: mlp
  - override /optimizer: adam
name: animals
task: classification
data:
  label: label
  dense_features: {age: {transform: standardize}}
tables:
  user: {dim: 4}
  item: {dim: 4}
  size: {dim: 4}
features:
  user: {table: user}
  item: {table: item}
  size: {table: size, buckets: {quantiles: 5}}
model: {hidden: [8]}
train: {epochs: 2, steps: null, batch_size: 32}
"""


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


def test_a_link_is_the_long_run_over_the_same_examples(folder: Path) -> None:
    """Where both days hold all tokens, and nothing is shuffled or held out."""
    for name, seed in (("one", 5), ("two", 6)):
        write(folder / f"{name}.csv", range(12), 320, seed)
    one, two = ((folder / f"{name}.csv").read_text() for name in ("one", "two"))
    (folder / "both.csv").write_text(one + two.partition("\n")[2])
    plain = (
        "data.shuffle=false",
        "data.split.validation=0",
        "data.split.test=0",
        "data.dense_features.age.transform=none",
        "features.size.buckets={boundaries: [5, 20], quantiles: null}",
        "train.epochs=1",
        "model.dropout=0.2",
        *QUIET,
    )
    start = ["run", "experiment=animals", "--config-dir", str(folder / "own"), *plain]
    for name in ("one", "both"):
        assert main([*start, f"data.path={folder / f'{name}.csv'}", f"hydra.run.dir={folder / f'run-{name}'}"]) == 0
    link = embexp.load_run(go_on(folder, "run-one", "two", *QUIET))
    long = embexp.load_run(folder / "run-both")
    for table in ("user", "item", "size"):
        rows = long.vocabulary(table).rows(link.vocabulary(table).tokens())
        if table == "size":
            rows = np.arange(len(rows))
        assert np.array_equal(link.table(table), long.table(table)[np.maximum(rows, 0)])
    for mine, theirs in zip(link.model.get_weights(), long.model.get_weights(), strict=True):
        assert np.array_equal(mine, theirs)
