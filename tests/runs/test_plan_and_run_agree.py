"""What `embexp plan --scan` accepts and says, `embexp run` accepts and does; and they refuse alike."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import random
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import embexp
from embexp.cli import run_plan
from embexp.errors import EmbexpError
from embexp.runs import experiment
from embexp.runs import run as single
from embexp.runs.prepare import Prepared, prepare
from embexp.specs.run import RunSpec
from tests.conftest import ROOT
from tests.thoroughness import examples

USERS, ITEMS, EXAMPLES = 6, 8, 60
SHORT = ("output.plots=false", "output.tensorboard=false", "train.epochs=null", "train.steps=2", "train.batch_size=8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small data for each shipped experiment that needs some, and files of vectors for its items."""
    folder = tmp_path_factory.mktemp("data")
    generator = np.random.default_rng(0)
    with (folder / "ratings.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["user", "item", "rating"])
        rows.writerows((f"u{n % USERS}", f"i{n % ITEMS}", 1 + n % 3) for n in range(EXAMPLES))
    tokens = [f"i{n}" for n in range(ITEMS - 2)]
    for name, dim, of in (("fits", 4, tokens), ("long", 6, tokens), ("strange", 4, [f"x{n}" for n in range(9)])):
        np.save(folder / f"{name}.npy", generator.normal(size=(len(of), dim)).astype(np.float32))
        (folder / f"{name}.tokens.txt").write_text("".join(f"{token}\n" for token in of))
    for name, count in (("whole", ITEMS + 1), ("short", ITEMS - 1)):
        np.save(folder / f"{name}.npy", generator.normal(size=(count, 4)).astype(np.float32))
    (folder / "films").mkdir()
    # No user rates a film twice: there is something new to recommend.
    ratings = [f"{n // ITEMS}\t{n % ITEMS}\t{1 + n % 5}\t{n}\n" for n in range(EXAMPLES)]
    header = "user_id:token\titem_id:token\trating:float\ttimestamp:float\n"
    (folder / "films" / "films.inter").write_text(header + "".join(ratings))
    (folder / "films" / "films.csv").write_text("user,item,rating,time\n" + "".join(ratings).replace("\t", ","))
    words = ["the", "cat", "sat", "mat", "dog", "ran"]
    draw = random.Random(0)
    texts = [" ".join(draw.choices(words, k=12)) for _ in range(200)]
    (folder / "texts.txt").write_text("".join(f"{line}\n" for line in texts))
    with (folder / "labelled.tsv").open("w") as lines:
        lines.writelines(f"{draw.choice(['zoo', 'art'])}\t{line}\n" for line in texts)
    (folder / "ring").mkdir()
    triples = [f"s{n}\t{name}\ts{(n + step) % 12}\n" for name, step in (("next", 1), ("over", 6)) for n in range(12)]
    draw.shuffle(triples)
    for name, some in (("valid", triples[:3]), ("test", triples[3:6]), ("train", triples[6:])):
        (folder / "ring" / f"{name}.txt").write_text("".join(some))
    return folder


def shipped(folder: Path) -> dict[str, list[str]]:
    """The words that run each shipped experiment on small data."""
    return {
        "clicks": ["data.examples=500", "data.users=50", "data.items=40"],
        "initialization": ["pretrained.rows=30", "pretrained.dim=4"],
        "knowledge_graph": [f"data.path={folder}/ring", "tables.entity.dim=4"],
        "knowledge_graph_large": [f"data.path={folder}/ring", "tables.entity.dim=4", "data.negatives=2"],
        "movielens": [f"data.path={folder}/films", "data.folds=3"],
        "movielens_recommendation": [f"data.path={folder}/films"],
        "new_entities": [f"data.path={folder}/ring", "tables.entity.dim=4"],
        "ratings": [f"data.path={folder}/ratings.csv", "data.label=rating"],
        "recommendation": [f"data.path={folder}/films/films.csv", "data.timestamp=time"],
        "skipgram": [f"data.path={folder}/texts.txt", "data.min_count=1"],
        "text_classification": [f"data.path={folder}/labelled.tsv", "data=text"],
    }


def planned(spec: RunSpec) -> tuple[str, str]:
    """What `embexp plan --scan` prints, and the words in which it refuses; "": it does not."""
    shown = io.StringIO()
    console = Console(file=shown, width=200)
    with contextlib.redirect_stderr(io.StringIO()):
        why = refusal(lambda: run_plan.show(spec, console, scan=True, trace=False))
    return shown.getvalue(), why


def refusal(act: Callable[[], object]) -> str:
    """The kind and the words of an error that users are shown; "": there is none."""
    try:
        act()
    except EmbexpError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def test_each_shipped_experiment_is_tried(folder: Path) -> None:
    assert sorted(shipped(folder)) == sorted(path.stem for path in (ROOT / "conf" / "experiment").glob("*.yaml"))


@pytest.mark.parametrize("experiment", sorted({*shipped(Path())} - {"new_entities"}))
def test_a_shipped_experiment_does_what_was_planned(experiment: str, folder: Path, tmp_path: Path) -> None:
    words = [f"experiment={experiment}", *shipped(folder)[experiment], *SHORT, f"output.cache={folder}/cache"]
    spec = embexp.compose(words)
    shown, why = planned(spec)
    assert why == ""
    prepared = prepare(spec)
    says_what_is_prepared(shown, prepared)
    does_what_was_prepared(prepared, single.run(spec, tmp_path).summary)


def says_what_is_prepared(shown: str, prepared: Prepared) -> None:
    lines = [line.split() for line in shown.splitlines()]
    assert [line[-1 if line[-1] != "(auto)" else -2] for line in lines if line[:1] == ["where"]] == [prepared.runtime]
    for name, rows in prepared.tables.rows.items():
        width = prepared.spec.tables[name].width
        assert [name, f"{rows:,}", str(width)] in [line[:3] for line in lines]
    for name, policy in prepared.tables.policies.items():
        layouts = [" ".join(line) for line in lines if line[:2] == ["layout:", f"tables.{name}:"]]
        trainable = f"{policy.rows - policy.frozen_rows:,} of {policy.rows:,} rows are trainable"
        asked = f"layout: tables.{name}: {policy.storage.value}, {trainable}"
        assert layouts == ([] if policy.grouping is None else [asked])


def does_what_was_prepared(prepared: Prepared, summary: Mapping[str, Any]) -> None:
    assert summary["run_id"] == prepared.run_id
    assert summary["runtime"] == prepared.runtime
    assert summary["steps"] == prepared.schedule.steps
    assert summary["classes"] == list(prepared.data.classes)
    tables, frozen = summary["tables"], summary["freeze"]
    assert {name: each["vocabulary_size"] for name, each in tables.items()} == prepared.tables.rows
    assert {name: each["dim"] for name, each in tables.items()} == {
        name: table.width for name, table in prepared.spec.tables.items()
    }
    for name, policy in prepared.tables.policies.items():
        assert frozen[name]["frozen_rows"] == policy.frozen_rows
        if prepared.runtime != "estimator" and prepared.spec.strategy.kind == "cpu":
            assert tables[name]["storage"] == policy.storage
    assert set(prepared.warnings) <= set(summary["warnings"])


def test_the_runs_of_a_study_are_what_was_planned(folder: Path, tmp_path: Path) -> None:
    """The grown run restores the checkpoint of the base run, which is not there when it is planned."""
    small = [*shipped(folder)["new_entities"], "train.epochs=1", "output.plots=false", "output.tensorboard=false"]
    words = ["experiment=new_entities", *small, f"output.cache={folder}/cache"]
    spec = embexp.compose(words)
    shown, why = planned(spec)
    assert why == ""
    pages = shown.split(" of 3, ")
    experiment.run(spec, tmp_path)
    for page, (name, run) in zip(pages[1:], spec.study.runs(spec, tmp_path).items(), strict=True):
        assert page.startswith(f"{name}: ")
        prepared = prepare(run)
        says_what_is_prepared(page, prepared)
        does_what_was_prepared(prepared, embexp.load_run(tmp_path / name).summary)


Settings = dict[str, Any]
"""Values by config path; {folder} stands for that of the files."""

ITEM = "tables.item"


def one_of(path: str, *values: Any, times: int = 1) -> st.SearchStrategy[Settings]:
    """A setting that is left as it is, or has one of some values."""
    return st.sampled_from([{}] * times + [{path: value} for value in values])


def file(name: str, **more: str) -> Settings:
    return {"kind": "file", "path": f"{{folder}}/{name}.npy", **more}


def rows(**named: Any) -> Settings:
    return {"kind": "rows", **named}


SIZES = st.builds(
    lambda table, size: {f"tables.{table}.vocabulary_size": size} if table else {},
    st.sampled_from(["", "", "", "", "user", "item", "item_bias"]),
    st.sampled_from([1, USERS, USERS + 1, ITEMS, ITEMS + 1, 20]),
)
"""Too few, just enough and too many: with the OOV row there are USERS + 1 users."""
FILES = st.one_of(
    one_of(
        f"{ITEM}.pretrained",
        file("fits"),
        file("fits", missing="mean"),
        file("long"),
        file("long", transform="truncate"),
        *(file(name) for name in ("strange", "whole", "short", "nowhere")),
        times=2,
    ),
    one_of("pretrained", file("fits"), file("strange")),
)
RULES = st.one_of(
    one_of(
        f"{ITEM}.freeze",
        {"kind": "table"},
        {"kind": "table", "random": False},
        {"kind": "pretrained_rows"},
        {"kind": "old_rows"},
        rows(rows=[[0, 3]]),
        rows(rows=[[0, ITEMS + 1]]),
        rows(rows=[[3, 99]]),
        rows(tokens=["i1", "nobody"]),
        rows(tokens=["nobody"]),
        rows(tokens_file="{folder}/nowhere.txt"),
        {"kind": "schedule", "phases": [{"rules": [{"kind": "table"}]}, {"epoch": 1, "rules": []}]},
        times=2,
    ),
    one_of("freeze", {"kind": "pretrained_rows"}, {"kind": "table"}),
)
INITS = ("assign", "variable_load", "constant", "memory_map", "scaffold", "placeholder_feed")
WAYS = st.one_of(
    one_of("init", *({"kind": name} for name in INITS), times=3),
    one_of(f"{ITEM}.init", *({"kind": name} for name in INITS)),
)
STORAGES = one_of(f"{ITEM}.storage", "variable", "split", "memory_map", times=4)
RUNTIMES = one_of("runtime", {"kind": "function"}, {"kind": "session"}, times=2)
DATA = st.one_of(
    one_of("task", "binary", times=19),
    one_of("data.split", {"kind": "random", "validation": 0.4999, "test": 0.5}, times=9),
    one_of("data.vocabulary.max_size", 3, times=4),
)
DRAWN = st.tuples(SIZES, FILES, RULES, WAYS, STORAGES, RUNTIMES, DATA).map(
    lambda drawn: {path: value for some in drawn for path, value in some.items()}
)
STRATEGIES = one_of("strategy", {"kind": "mirrored", "replicas": 2}, {"kind": "tpu_simulator"}, times=3)


@pytest.fixture(scope="module")
def ratings(folder: Path) -> RunSpec:
    words = ["experiment=ratings", *shipped(folder)["ratings"], "tables.user.dim=4", f"output.cache={folder}/cache"]
    return embexp.compose([*words, *SHORT])


def changed(spec: RunSpec, settings: Settings, folder: Path) -> RunSpec:
    """The spec as it would be with other settings, right by themselves; they may not go together."""
    content = spec.model_dump(mode="json")
    for path, value in settings.items():
        *above, last = path.split(".")
        place = content
        for key in above:
            place = place[key]
        place[last] = json.loads(json.dumps(value).replace("{folder}", str(folder)))
    return RunSpec.model_validate(content)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {f"{ITEM}.vocabulary_size": ITEMS},
            r"tables\.item\.vocabulary_size = 8: the data has 9 values for this table",
        ),
        (
            {"data.split": {"kind": "random", "validation": 0.4999, "test": 0.5}},
            "the split of 60 examples leaves none to train on",
        ),
        ({"task": "binary"}, "task binary needs labels 0 and 1, but 40 of 60 labels differ"),
        (
            {"init": {"kind": "constant"}, "tables.user.vocabulary_size": 200_000_000},
            r"init=constant: a graph must be smaller than 2 GiB .* \(user 200000000 × 4, item 9 × 4, ",
        ),
        (
            {
                f"{ITEM}.init": {"kind": "memory_map"},
                f"{ITEM}.freeze": {"kind": "table"},
                f"{ITEM}.pretrained": file("long", transform="truncate"),
            },
            r"tables\.item\.init = memory_map: rows of .*long\.npy are transformed \(pretrained\.transform\)",
        ),
        (
            {f"{ITEM}.freeze": rows(tokens_file="{folder}/none.txt")},
            r"tables\.item\.freeze: there is no file .*none\.txt",
        ),
        (
            {f"{ITEM}.freeze": rows(tokens=["nobody"])},
            r"tables\.item\.freeze = rows: this rule matches no row of table item",
        ),
    ],
    ids=["too_few_rows", "nothing_trains", "labels", "constants", "transformed", "no_file", "no_row"],
)
def test_what_only_the_data_tells_is_refused_by_both(
    folder: Path, ratings: RunSpec, tmp_path: Path, settings: Settings, message: str
) -> None:
    spec = changed(ratings, settings, folder)
    _, why = planned(spec)
    assert re.search(message, why)
    assert refusal(lambda: single.run(spec, tmp_path)) == why


@given(DRAWN, STRATEGIES)
def test_they_refuse_alike_and_agree_on_what_to_do(
    folder: Path, ratings: RunSpec, drawn: Settings, strategy: Settings
) -> None:
    spec = changed(ratings, drawn | strategy, folder)
    shown, why = planned(spec)
    found: list[Prepared] = []
    assert refusal(lambda: found.append(prepare(spec))) == why
    for prepared in found:
        says_what_is_prepared(shown, prepared)


@pytest.mark.slow
@given(DRAWN)
@examples(10)
def test_what_was_planned_is_done(folder: Path, ratings: RunSpec, drawn: Settings) -> None:
    spec = changed(ratings, drawn, folder)
    _, why = planned(spec)
    directory = folder / "run"
    directory.mkdir()
    try:
        found: list[single.RunResult] = []
        assert refusal(lambda: found.append(single.run(spec, directory))) == why
        for result in found:
            does_what_was_prepared(prepare(spec), result.summary)
    finally:
        shutil.rmtree(directory)
