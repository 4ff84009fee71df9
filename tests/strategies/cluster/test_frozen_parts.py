"""Freeze policies on several workers: frozen rows have the bits of their source, others are those of one process."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import embexp
from embexp.runs.execute import initial_rows
from embexp.runs.prepare import prepare
from embexp.training.freezing.policies import RowFacts
from tests.strategies.cluster.cluster_runs import SHORT, command, done, run, summary, values
from tests.strategies.cluster.test_multi_worker import within_float32
from tests.thoroughness import chosen

DIM = 8
END = "/.ATTRIBUTES/VARIABLE_VALUE"
DIMS = (f"tables.user.dim={DIM}", f"tables.item.dim={DIM}")
FILES = tuple(
    word
    for table in ("user", "item")
    for word in (f"pretrained@tables.{table}.pretrained=file", f"tables.{table}.pretrained.path=FOLDER/{table}.npy")
)
PHASES = (
    "[{rules: [{kind: rows, rows: [[10, 40]]}]},"
    " {step: 30, rules: [{kind: rows, rows: [[0, 20]]}, {kind: rows, rows: [[20, 60]], multiplier: 0.5}]}]"
)
CASES = {
    "all rows but three, and some rows of one worker": (
        *FILES,
        "freeze@tables.user.freeze=rows",
        "tables.user.freeze.rows=[[0,297]]",
        "tables.user.storage=split",
        "freeze@tables.item.freeze=rows",
        "tables.item.freeze.rows=[[0,16]]",
        "tables.item.storage=split",
        f"tables.item.adapter={DIM}",
        "strategy.workers=3",
    ),
    "rows of a file, and phases": (
        *FILES,
        "freeze@tables.user.freeze=pretrained_rows",
        "freeze@tables.item.freeze=schedule",
        f"tables.item.freeze.phases={PHASES}",
    ),
    "rows of an earlier run": (
        "pretrained=checkpoint",
        "pretrained.path=FOLDER/earlier",
        "freeze=old_rows",
        "tables.user.storage=split",
    ),
    "mapped files": (
        *FILES,
        "init=memory_map",
        "freeze@tables.user.freeze=table",
        "tables.user.dtype=int8",
        "freeze@tables.item.freeze=pretrained_rows",
    ),
    "mapped files, by workers that hold the others whole": (
        *FILES,
        "init=memory_map",
        "freeze@tables.user.freeze=table",
        "tables.user.storage=mirrored",
        "freeze@tables.item.freeze=pretrained_rows",
        "tables.item.storage=mirrored",
    ),
    "a table in its file behind a matrix, and rows of their own beside it": (
        *FILES,
        *("freeze@tables.user.freeze=rows", "tables.user.freeze.rows=[[0,16]]"),
        *("freeze@tables.item.freeze=table", "init@tables.item.init=memory_map", "tables.item.dtype=int8"),
        *("model=dot", "model.left=[user,history]", "model.right=[item,own]"),
        *(f"tables.item.adapter={DIM}", "+table@tables.own=embedding", f"tables.own.dim={DIM}"),
        *("+feature@features.own=id", "features.own.table=own", "features.own.column=item"),
        *(
            "initializer@tables.own.initializer=constant",
            "freeze@tables.own.freeze=rows",
            "tables.own.freeze.rows=[[0,2]]",
        ),
    ),
    "random rows, and rows that a function names": (
        "freeze@tables.user.freeze=random_table",
        "freeze@tables.item.freeze=custom",
        "tables.item.freeze.function=tests.strategies.cluster.test_frozen_parts:every_third",
    ),
}


def every_third(facts: RowFacts) -> np.ndarray:
    return np.arange(facts.rows) % 3 == 0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Vectors of some users and items, in no order."""
    folder = tmp_path_factory.mktemp("frozen")
    generator = np.random.default_rng(0)
    for name, rows, count in (("user", 300, 120), ("item", 80, 50)):
        np.save(folder / f"{name}.npy", generator.normal(0, 0.3, (count, DIM)).astype(np.float32))
        tokens = generator.permutation(rows)[:count]
        (folder / f"{name}.tokens.txt").write_text("".join(f"{token}\n" for token in tokens))
    return folder


def earlier_run(folder: Path) -> None:
    """A run on fewer users and items, in `earlier`."""
    fewer = [word for word in SHORT if not word.startswith(("data.users=", "data.items="))]
    settings = [*fewer, *DIMS, "data.users=200", "data.items=60", f"output.cache={folder / 'cache'}"]
    done(command("run", *settings, f"hydra.run.dir={folder / 'earlier'}"))


@pytest.mark.slow
@pytest.mark.parametrize("name", chosen(CASES, ["all rows but three, and some rows of one worker", "mapped files"]))
def test_frozen_rows_stay_and_others_move_as_on_one_process(name: str, folder: Path, tmp_path: Path) -> None:
    words = [word.replace("FOLDER", str(folder)) for word in CASES[name]]
    if "pretrained=checkpoint" in words:
        earlier_run(folder)
    of_workers = [word for word in words if word.startswith("strategy") or word.endswith("=mirrored")]
    settings = [*DIMS, *(word for word in words if word not in of_workers)]
    one = run(tmp_path / "one", *settings)
    several = run(tmp_path / "several", *settings, "strategy=multi_worker", *of_workers)
    within_float32(several, one)
    assert summary(several)["freeze"] == summary(one)["freeze"]
    prepared = prepare(embexp.compose([*SHORT, f"output.cache={tmp_path / 'cache'}", *settings])).tables
    found, expected = values(several), values(one)
    frozen_tables = 0
    for table, source in initial_rows(prepared).items():
        policy, key = prepared.policies[table], f"embedding/{table}"
        frozen = np.ones(policy.rows, np.bool_) if policy.fully_frozen else policy.frozen
        assert frozen is not None
        frozen_tables += 1
        assert frozen.any()
        if f"{key}{END}" in found:
            initial = source.read(0, policy.rows)
            assert found[f"{key}{END}"][frozen].tobytes() == initial[frozen].tobytes()
        else:  # kept by reference
            assert summary(several)["tables"][table]["digest"] == summary(one)["tables"][table]["digest"]
        for slot in [each for each in found if each.startswith(f"{key}.S")]:
            assert found[slot][frozen].tobytes() == expected[slot][frozen].tobytes(), slot
    assert frozen_tables >= 2
