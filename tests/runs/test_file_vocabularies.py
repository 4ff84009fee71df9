"""Rows for the tokens of a file of vectors, whether the data have them or not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import embexp
from embexp.errors import ConfigError
from embexp.runs.run import RunResult

QUIET = ("output.plots=false", "output.tensorboard=false", "output.baselines=false")
DIM = 4
IN_FILE = ["zebra", "i3", "yak", "i1", "i0", "xerus"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("vectors")
    random = np.random.default_rng(0)
    lines = [f"u{random.integers(9)},i{random.integers(5)},{random.integers(1, 6)}" for _ in range(400)]
    (here / "ratings.csv").write_text("\n".join(["user,item,rating", *lines]) + "\n")
    vectors = random.normal(size=(len(IN_FILE), DIM)).astype(np.float32)
    np.save(here / "items.npy", vectors)
    (here / "items.tokens.txt").write_text("".join(f"{token}\n" for token in IN_FILE))
    np.save(here / "bare.npy", vectors)
    (here / "later.csv").write_text("user,item\nu1,zebra\nu1,unheard\n")
    return here


def run(folder: Path, vocabulary: str, *more: str) -> RunResult:
    spec = embexp.compose(
        [
            "experiment=ratings",
            f"data.path={folder / 'ratings.csv'}",
            "data.label=rating",
            "model=mlp",
            "~tables.item_bias",
            "~features.item_bias",
            "~tables.user_bias",
            "~features.user_bias",
            "tables.user.dim=4",
            "pretrained@tables.item.pretrained=file",
            f"tables.item.pretrained.path={folder / 'items.npy'}",
            f"tables.item.pretrained.vocabulary={vocabulary}",
            "tables.item.dim=null",
            "train.epochs=1",
            *QUIET,
            *more,
        ]
    )
    return embexp.run(spec, folder / f"{vocabulary}-{len(list(folder.iterdir()))}", quiet=True)


def test_all_tokens_of_the_file_have_rows_behind_those_of_the_data(folder: Path) -> None:
    of_data = embexp.load_run(run(folder, "data").directory).vocabulary("item").tokens()
    found = embexp.load_run(run(folder, "union", "freeze@tables.item.freeze=table").directory)
    tokens = found.vocabulary("item").tokens()
    assert tokens == [*of_data, "zebra", "yak", "xerus"]
    vectors = np.load(folder / "items.npy")
    for token in IN_FILE:
        assert np.array_equal(found.table("item")[tokens.index(token)], vectors[IN_FILE.index(token)])
    predicted = found.predictions(folder / "later.csv")
    assert predicted.unknown["item"].tolist() == [False, True]


@pytest.mark.parametrize("init", ["assign", "memory_map"])
def test_the_file_may_say_which_rows_there_are_and_in_which_order(folder: Path, init: str) -> None:
    found = run(folder, "file", "freeze@tables.item.freeze=pretrained_rows", f"init@tables.item.init={init}")
    loaded = embexp.load_run(found.directory)
    assert loaded.vocabulary("item").tokens() == ["<oov>", *IN_FILE]
    assert np.array_equal(loaded.table("item")[1:], np.load(folder / "items.npy"))
    storage = loaded.summary["tables"]["item"]["storage"]
    assert (storage == "memory_map") == (init == "memory_map")


def test_a_file_without_tokens_says_nothing_of_rows(folder: Path) -> None:
    with pytest.raises(ConfigError, match="rows without tokens"):
        run(folder, "file", f"tables.item.pretrained.path={folder / 'bare.npy'}")


def test_rows_can_not_be_given_twice(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"tables\.item\.vocabulary\.path already decides which rows there are"):
        run(folder, "union", f"tables.item.vocabulary.path={folder / 'items.tokens.txt'}")
