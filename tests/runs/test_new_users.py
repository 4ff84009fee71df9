"""Lists for users that were not in training, by their items, counted again in float64; the run stays as it is."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

import embexp
from embexp.errors import CommandLineError, DataError, UsageError, VocabularyError
from embexp.fields.recommendation import command, recommending
from embexp.runs import run as single
from embexp.runs.finished import Run, load_run

USERS, ITEMS, GROUPS = 24, 24, 3
GIVEN = {"ann": ["i0", "i3", "zz", "i3"], "u1": ["i7"], "cid": ["yy", "zz"], "bob": ["i2", "i5", "i8", "i1"]}
"""Two have unknown items, one of them nothing else; `u1` is a user of the run; `bob` has one of another group."""
UNKNOWN = {"zz": 2, "yy": 1}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Users like items of their group, with stars, in their own order."""
    path, generator = tmp_path_factory.mktemp("data") / "plays.csv", np.random.default_rng(0)
    lines = ["user,item,time,stars,genres"]
    for user in range(USERS):
        liked = [item for item in range(ITEMS) if item % GROUPS == user % GROUPS]
        played = enumerate(generator.permutation(liked)[:7].tolist())
        lines += [f"u{user},i{item},{time},4,g{item % GROUPS} h{item % 2}" for time, item in played]
    path.write_text("\n".join(lines) + "\n")
    return path


def trained(file: Path, folder: Path, *overrides: str) -> Run:
    settings = [
        "experiment=recommendation",
        f"data.path={file}",
        "data.timestamp=time",
        "data.label=stars",
        "data.label_threshold=3",
        "tables.user.dim=8",
        "train.batch_size=32",
        "train.epochs=null",
        "train.steps=60",
        "train.early_stopping.patience=null",
        "optimizer.learning_rate=0.02",
        "output.tensorboard=false",
        "output.plots=false",
        "output.baselines=false",
        f"output.cache={file.parent}/cache",
    ]
    return load_run(single.run(embexp.compose([*settings, *overrides]), folder).directory)


@pytest.fixture(scope="module")
def by_history(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return trained(file, tmp_path_factory.mktemp("history"))


def bits(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def expected(
    run: Run, of_users: dict[str, np.ndarray], vectors: np.ndarray, count: int
) -> dict[str, list[tuple[str, float]]]:
    """The best items by float64 vectors of users, without those that are given."""
    items = [item for item in run.vocabulary("item").tokens() if item != "<oov>"]
    found: dict[str, list[tuple[str, float]]] = {user: [] for user in GIVEN}
    for user, vector in of_users.items():
        scores = {
            item: float(vector @ row) for item, row in zip(items, vectors, strict=True) if item not in GIVEN[user]
        }
        found[user] = sorted(scores.items(), key=lambda pair: -pair[1])[:count]
    return found


def agree(found: dict[str, list[tuple[str, float]]], wanted: dict[str, list[tuple[str, float]]]) -> None:
    assert list(found) == list(wanted)
    for user, items in wanted.items():
        assert [item for item, _ in found[user]] == [item for item, _ in items]
        assert [score for _, score in found[user]] == pytest.approx([score for _, score in items], rel=1e-4, abs=1e-5)


def test_a_model_of_histories_computes_new_users(by_history: Run) -> None:
    before, unknown = bits(by_history.folder.path), dict[str, int]()
    found = by_history.recommend(histories=GIVEN, unknown=unknown, count=6)
    assert unknown == UNKNOWN
    tables = {name: by_history.table(name).astype(np.float64) for name in ("user", "item", "item_bias")}
    rows = dict(zip(by_history.vocabulary("item").tokens(), tables["item"], strict=True))
    unit = tables["item"][1:] / np.linalg.norm(tables["item"][1:], axis=1, keepdims=True)
    of_users = {}
    for user, items in GIVEN.items():
        if own := [rows[item] for item in dict.fromkeys(items) if item in rows]:
            vector = tables["user"][0] + np.mean(own, axis=0)  # row 0 is that of unknown users
            scale = np.linalg.norm(vector) * 1.5 / np.log(ITEMS + 1)  # the temperature of cosines
            of_users[user] = np.append(vector / scale, 1.0)
    agree(found, expected(by_history, of_users, np.concatenate([unit, tables["item_bias"][1:]], axis=1), 6))
    assert all(int(item[1:]) % GROUPS == 0 for item, _ in found["ann"])
    assert found["cid"] == []
    assert bits(by_history.folder.path) == before
    seen_too = by_history.recommend(histories={"ann": ["i0", "i3"]}, count=ITEMS, include_seen=True)["ann"]
    assert {"i0", "i3"} <= {item for item, _ in seen_too}
    with pytest.raises(VocabularyError, match="'yy', 'zz'"):
        by_history.recommend(histories={"cid": GIVEN["cid"]})
    with pytest.raises(UsageError, match="give only one"):
        by_history.recommend(["u1"], histories=GIVEN)


def least_squares(vectors: np.ndarray, own: list[int]) -> np.ndarray:
    """Those of Hu et al., solved as such: a row for each item of the user, for each of all, and for the penalty."""
    weight, unit = recommending.UNOBSERVED[1], np.mean(np.sum(vectors**2, axis=1))
    ridge = np.sqrt(recommending.PENALTIES[1] * unit) * np.eye(vectors.shape[1])
    targets = np.concatenate([np.ones(len(own)), np.zeros(len(vectors) + len(ridge))])
    rows = np.concatenate([vectors[own], np.sqrt(weight) * vectors, ridge])
    return np.asarray(np.linalg.lstsq(rows, targets, rcond=None)[0])


TOWERS = (
    "model=two_tower",
    "model.item_features=[item,genres]",
    "+table@tables.genre=embedding",
    "+feature@features.genres=bag",
    "features.genres.table=genre",
    "data.list_columns=[genres]",
)
NO_OOV = ("data.vocabulary.unknown=error", "model.normalize=false")
"""Histories, but no row for users who are unknown."""


@pytest.mark.parametrize("overrides", [TOWERS, NO_OOV], ids=["towers", "no_oov"])
def test_other_users_are_folded_in(file: Path, tmp_path: Path, overrides: tuple[str, ...]) -> None:
    run = trained(file, tmp_path, *overrides, "train.steps=20")
    found = run.recommend(histories=GIVEN, count=6)
    known, normalize = run.vectors(), overrides == TOWERS
    vectors, items = known.of_items.astype(np.float64), known.tokens()[1]
    of_users = {}
    for user, given in GIVEN.items():
        if own := [items.index(item) for item in dict.fromkeys(given) if item in items]:
            of_users[user] = least_squares(vectors[:, :-1] if normalize else vectors, own)
            if normalize:  # cosines by their temperature, and a bias
                scale = np.linalg.norm(of_users[user]) * 1.5 / np.log(ITEMS + 1)
                of_users[user] = np.append(of_users[user] / scale, 1.0)
    agree(found, expected(run, of_users, vectors, 6))


def test_the_command_reads_items_and_files(by_history: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory, wanted = str(by_history.folder.path), by_history.recommend(histories=GIVEN, count=2)
    lines = [f"{user},{item},5" for user, items in GIVEN.items() for item in items]
    file = tmp_path / "new.csv"
    file.write_text(
        "\n".join(["user,item,stars", *lines, "bob,i4,1", "dan,i4,2"]) + "\n"
    )  # the last ones did not like it
    assert command.main([directory, "--history", str(file), "--count", "2"]) == 0
    told = capsys.readouterr()
    rows = [line.split(",") for line in told.out.splitlines()[1:]]
    assert [(user, item) for user, _, item, _ in rows] == [
        (user, item) for user, items in wanted.items() for item, _ in items
    ]
    assert told.err.splitlines() == [
        "warning: ignored 2 items that the run's catalogue lacks: 'zz', 'yy'",
        "warning: no list for 1 user without any item that the run knows: 'cid'",
    ]
    assert command.main([directory, "--items", "i0,i3", "--count", "1"]) == 0
    best, score = by_history.recommend(histories={"new": ["i0", "i3"]}, count=1)["new"][0]
    assert capsys.readouterr().out.splitlines() == ["user,rank,item,score", f"new,1,{best},{score:.7g}"]
    with pytest.raises(CommandLineError, match="--user or --users and --items"):
        command.main([directory, "--items", "i0", "--user", "u1"])
    for text, message in (("user,item,stars\nann,i0,1\n", "no row is"), ("user,item,stars\nann,i0,much\n", "'stars'")):
        file.write_text(text)
        with pytest.raises(DataError, match=message):
            recommending.read_histories(by_history, str(file))
