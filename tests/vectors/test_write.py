"""What is written, read back by others' readers and by our own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st

from embexp.errors import DataError
from embexp.specs.pretrained import NonFinite
from embexp.vectors import write
from embexp.vectors.file_source import open_vectors


@dataclass
class Source:
    """Vectors in memory."""

    values: np.ndarray
    words: list[str] | None
    digest: str = ""

    @property
    def dtype(self) -> np.dtype:
        return self.values.dtype

    @property
    def rows(self) -> int:
        return len(self.values)

    @property
    def dim(self) -> int:
        return self.values.shape[1]

    @property
    def tokens(self) -> pa.LargeStringArray | None:
        return None if self.words is None else pa.array(self.words, pa.large_string())

    def read(self, start: int, stop: int) -> np.ndarray:
        return self.values[start:stop]

    def memory_map(self) -> None:
        return None


def save(source: Source, path: Path) -> None:
    write.write_vectors(source, source.tokens, path)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write, "_CHUNK_BYTES", 64)


VALUES = np.random.default_rng(0).normal(size=(21, 5)).astype(np.float32)
WORDS = [f"é{n}" for n in range(21)]


def test_others_can_read_it(tmp_path: Path) -> None:
    source = Source(VALUES, WORDS)
    for suffix in write.FORMS:
        save(source, tmp_path / f"v{suffix}")
    np.testing.assert_array_equal(np.load(tmp_path / "v.npy"), VALUES)
    np.testing.assert_array_equal(safetensors.numpy.load_file(tmp_path / "v.safetensors")["vectors"], VALUES)
    assert (tmp_path / "v.tokens.txt").read_text("utf-8").splitlines() == WORDS
    table = pq.read_table(tmp_path / "v.parquet")
    assert table["token"].to_pylist() == WORDS
    np.testing.assert_array_equal(np.array(table["vectors"].to_pylist(), np.float32), VALUES)
    txt, vec = ((tmp_path / name).read_text("utf-8").split("\n") for name in ("v.txt", "v.vec"))
    assert vec == ["21 5", *txt]
    assert txt[-1] == ""
    for line, word, row in zip(txt, WORDS, VALUES, strict=False):
        token, *numbers = line.split(" ")
        assert token == word
        assert [np.float32(number) for number in numbers] == row.tolist()


@pytest.mark.parametrize("suffix", [".npy", ".safetensors"])
def test_what_is_written_is_mapped_in_place(suffix: str, tmp_path: Path) -> None:
    save(Source(VALUES, None), tmp_path / f"v{suffix}")
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"v{suffix}"]
    assert open_vectors(tmp_path / f"v{suffix}", cache=tmp_path / "cache").in_place


@given(
    words=st.lists(st.text(st.characters(codec="utf-8"), max_size=6), min_size=1, max_size=8, unique=True),
    dim=st.integers(1, 3),
    suffix=st.sampled_from(write.FORMS),
    data=st.data(),
)
def test_what_is_written_reads_back_or_is_refused(words, dim, suffix, data, tmp_path_factory) -> None:
    numbers = st.lists(st.floats(width=32), min_size=dim, max_size=dim)
    values = np.array(data.draw(st.lists(numbers, min_size=len(words), max_size=len(words))), np.float32)
    folder = tmp_path_factory.mktemp("write")
    path = folder / f"v{suffix}"
    try:
        save(Source(values, words), path)
    except DataError:
        odd = [
            word for word in words if word != word.strip(" \t") or set(word) & set("\r\n \t\ufeff") or not word.strip()
        ]
        assert odd or (dim == 1 and words[0].isdigit())
        assert suffix != ".parquet"
        assert list(folder.iterdir()) == []
        return
    source = open_vectors(path, cache=folder / "cache", non_finite=NonFinite.KEEP)
    assert source.tokens.to_pylist() == words
    np.testing.assert_array_equal(source.read(0, source.rows), values)


REFUSED = {
    "blank first": ([" a"], ".txt"),
    "blank last": (["a "], ".vec"),
    "nothing": ([""], ".txt"),
    "line end": (["a\nb"], ".vec"),
    "number after a blank": (["room 101"], ".vec"),
    "byte order mark": (["\ufeffa"], ".txt"),
    "line end in a file of tokens": (["a\nb"], ".npy"),
    "blank in binary": (["a b"], ".bin"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_tokens_that_would_be_misread(case: str, tmp_path: Path) -> None:
    words, suffix = REFUSED[case]
    with pytest.raises(DataError, match=r"found the token .* of row 1, which .*write .parquet"):
        save(Source(VALUES[:1], words), tmp_path / f"v{suffix}")
    assert list(tmp_path.iterdir()) == []


def test_text_needs_tokens(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"the vectors have no tokens, but each line of .txt begins with one; write"):
        save(Source(VALUES, None), tmp_path / "v.txt")
    with pytest.raises(DataError, match=r"found the suffix '.csv', expected one of .npy, .safetensors, .vec, .txt"):
        save(Source(VALUES, None), tmp_path / "v.csv")


def test_whole_or_not_at_all(tmp_path: Path) -> None:
    class Broken(Source):
        def read(self, start: int, stop: int) -> np.ndarray:
            if start:
                raise DataError("broken")
            return super().read(start, stop)

    for suffix in (".txt", ".parquet", ".npy"):
        with pytest.raises(DataError, match="broken"):
            save(Broken(VALUES, WORDS), tmp_path / f"v{suffix}")
        assert not (tmp_path / f"v{suffix}").exists()
    assert not list(tmp_path.glob(".*"))
