"""New users and items: who is drawn, and that no split has any of their interactions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import embexp
from embexp.errors import DataError
from embexp.fields.recommendation.data import drawn
from embexp.runs.prepare import read_data
from embexp.system.parallel import quiet

NAMES = st.lists(st.text(min_size=1, max_size=4), min_size=1, max_size=30, unique=True)


@given(names=NAMES, share=st.floats(0.001, 0.99), data=st.data())
def test_who_is_drawn_depends_on_names_and_seed_alone(names: list[str], share: float, data: st.DataObject) -> None:
    found = drawn(names, "item", share=share, seed=3)
    assert len(found) == max(1, round(share * len(names)))
    assert drawn(data.draw(st.permutations(names)), "item", share=share, seed=3) == found
    assert set(drawn(names, "item", share=share / 2, seed=3)) <= set(found)
    assert drawn(names, "item", share=0.0, seed=3) == []


def test_kinds_and_seeds_draw_apart() -> None:
    names = [str(number) for number in range(200)]
    draws = [drawn(names, *pair[:1], share=0.2, seed=pair[1]) for pair in (("user", 0), ("item", 0), ("user", 1))]
    assert len({tuple(each) for each in draws}) == 3


@pytest.fixture
def plays(tmp_path: Path) -> Path:
    generator = np.random.default_rng(0)
    lines = ["user,item,time"]
    for user in range(40):
        for time, item in enumerate(generator.choice(25, 9, replace=False).tolist()):
            lines.append(f"u{user},i{item},{time}")
    (tmp_path / "plays.csv").write_text("\n".join(lines) + "\n")
    return tmp_path / "plays.csv"


def spec(file: Path, *more: str) -> embexp.RunSpec:
    words = ["experiment=recommendation", f"data.path={file}", "data.timestamp=time", f"output.cache={file.parent}/c"]
    return embexp.compose([*words, *more])


def test_no_split_has_anything_new_and_nothing_is_lost(plays: Path) -> None:
    whole = read_data(spec(plays), quiet)
    data = read_data(spec(plays, "recommendation.new={users: 0.2, items: 0.12, seed: 4}"), quiet)
    new, examples = data.candidates.new, data.scan.examples
    assert whole.candidates.new is None
    assert new is not None
    assert (len(new.users), len(new.items)) == (8, 3)
    user, item = (examples.column(name) for name in ("user", "item"))
    of_new_user, of_new_item = np.isin(user, new.users), np.isin(item, new.items)
    for name, rows in whole.scan.splits.items():
        left = rows[~of_new_user[rows] & ~of_new_item[rows]]
        assert data.scan.splits[name].tolist() == left.tolist()
    rows = np.arange(examples.count)
    assert new.of_items.tolist() == rows[of_new_item & ~of_new_user].tolist()
    given = np.setdiff1d(rows[of_new_user & ~of_new_item], whole.scan.splits["test"])
    assert new.given.tolist() == given.tolist()
    asked = np.intersect1d(rows[of_new_user & ~of_new_item], whole.scan.splits["test"])
    assert new.asked.tolist() == asked.tolist()
    assert not np.isin(data.candidates.interactions.catalogue.rows, new.items).any()
    history = examples.histories["item of each user"]  # of the training split, which lacks them
    assert not np.isin(history.values, new.items).any()
    assert not np.diff(history.splits)[new.users].any()
    assert data.scan.key != whole.scan.key  # of what baselines are cached by


def test_row_numbers_as_ids(tmp_path: Path) -> None:
    for name, lines in (
        ("train.txt", ["0 0 1 2", "1 1 2 3", "2 0 3 1", "3 2 1 0"]),
        ("test.txt", ["0 3", "1 0", "2 2", "3 3"]),
    ):
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    words = [
        "experiment=recommendation",
        "data=adjacency",
        "train.early_stopping.patience=null",
        "data.split.validation=0",
        f"output.cache={tmp_path}/c",
    ]
    paths = f"data.path={{train: {tmp_path}/train.txt, test: {tmp_path}/test.txt}}"
    data = read_data(embexp.compose([*words, paths, "recommendation.new={users: 0.25}"]), quiet)
    assert data.candidates.new is not None
    new = data.candidates.new
    assert (len(new.users), len(new.items), len(new.of_items)) == (1, 0, 0)
    assert (len(data.candidates.new.given), len(data.candidates.new.asked)) == (3, 1)


def test_nothing_to_measure_is_an_error(plays: Path) -> None:
    with pytest.raises(DataError, match="set smaller shares"):
        read_data(spec(plays, "recommendation.new={users: 0.99}"), quiet)
    with pytest.raises(DataError, match="no new one of the users has known items both before and in the test split"):
        read_data(
            spec(plays, "recommendation.new={users: 0.1}", "data.split={kind: random, test: 0, group: null}"), quiet
        )
