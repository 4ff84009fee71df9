"""Several files of vectors as one, held against dictionaries."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embexp.errors import DataError
from embexp.specs.pretrained import Join, NonFinite
from embexp.vectors.file_source import FileSource, JoinedSource, joined, open_vectors

WORDS = st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=8)


def written(folder: Path, name: str, tokens: list[str] | None, values: np.ndarray) -> Path:
    path = folder / f"{name}.npy"
    np.save(path, values)
    if tokens is not None:
        path.with_name(f"{name}.tokens.txt").write_text("".join(f"{token}\n" for token in tokens))
    return path


def opened(path: Path, cache: Path) -> FileSource:
    return open_vectors(path, cache=cache)


def join(paths: list[Path], how: Join, cache: Path) -> JoinedSource:
    sources = [opened(path, cache) for path in paths]
    return joined(sources, how, identity={}, cache=cache, non_finite=NonFinite.ERROR)


@settings(max_examples=25)
@given(words=st.lists(WORDS, min_size=2, max_size=4), seed=st.integers(0, 9), how=st.sampled_from(Join))
def test_rows_are_those_of_dictionaries(
    words: list[list[str]], seed: int, how: Join, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder, random = tmp_path_factory.mktemp("files"), np.random.default_rng(seed)
    dims = [3] * len(words) if how is Join.PREFERENCE else random.integers(1, 5, len(words)).tolist()
    tables: list[dict[str, np.ndarray]] = []
    paths = []
    for number, (tokens, dim) in enumerate(zip(words, dims, strict=True)):
        values = random.normal(size=(len(tokens), dim)).astype(np.float32)
        paths.append(written(folder, f"f{number}", tokens, values))
        table: dict[str, np.ndarray] = {}
        for token, row in zip(tokens, values, strict=True):
            table.setdefault(token, row)
        tables.append(table)
    found = join(paths, how, folder / "cache")
    distinct = list(dict.fromkeys(token for tokens in words for token in tokens))
    assert found.tokens is not None
    assert found.tokens.to_pylist() == distinct
    expected, having = [], []
    for token in distinct:
        has = [token in table for table in tables]
        if how is Join.PREFERENCE:
            first = has.index(True)
            has = [place == first for place in range(len(tables))]
            expected.append(tables[first][token])
        else:
            parts = [table.get(token, np.zeros(dim)) for table, dim in zip(tables, dims, strict=True)]
            expected.append(np.concatenate(parts))
        having.append(has)
    np.testing.assert_array_equal(found.memory_map(), np.array(expected, np.float32))
    assert found.counts(np.arange(found.rows)) == np.sum(having, axis=0).tolist()


def test_rows_without_tokens_are_joined_by_number(tmp_path: Path) -> None:
    left, right = np.eye(3, dtype=np.float32), np.ones((3, 2), np.float32)
    paths = [written(tmp_path, "left", None, left), written(tmp_path, "right", None, right)]
    found = join(paths, Join.COLUMNS, tmp_path / "cache")
    assert found.tokens is None
    np.testing.assert_array_equal(found.read(0, 3), np.concatenate([left, right], axis=1))
    assert found.counts(np.array([0, 2])) == [2, 2]


FAULTS: dict[str, tuple[tuple[list[str] | None, int, int], Join, str]] = {
    "other lengths": ((["a", "b"], 2, 4), Join.PREFERENCE, "rows of 4 numbers, but those of .* have 3"),
    "one without tokens": ((None, 2, 3), Join.COLUMNS, "found no tokens, but .* has some; give it a tokens_file"),
}


@pytest.mark.parametrize(("second", "how", "message"), FAULTS.values(), ids=FAULTS)
def test_files_that_do_not_go_together(
    second: tuple[list[str] | None, int, int], how: Join, message: str, tmp_path: Path
) -> None:
    tokens, rows, dim = second
    paths = [
        written(tmp_path, "first", ["a", "b"], np.zeros((2, 3), np.float32)),
        written(tmp_path, "second", tokens, np.zeros((rows, dim), np.float32)),
    ]
    with pytest.raises(DataError, match=message):
        join(paths, how, tmp_path / "cache")


@pytest.mark.parametrize(
    ("rows", "how", "message"),
    [
        (3, Join.COLUMNS, "found 3 rows, expected 2"),
        (2, Join.PREFERENCE, "so each row would belong to the same row of"),
    ],
)
def test_rows_by_number_that_do_not_go_together(rows: int, how: Join, message: str, tmp_path: Path) -> None:
    paths = [
        written(tmp_path, name, None, np.zeros((n, 3), np.float32)) for name, n in (("first", 2), ("second", rows))
    ]
    with pytest.raises(DataError, match=message):
        join(paths, how, tmp_path / "cache")
