"""Data that several workers read together, here in threads: what is in the cache is what one process makes."""

from __future__ import annotations

import itertools
import json
import os
import threading
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embexp.data import together
from embexp.data.columns import BucketColumn, ClassNames, Columns, Wanted
from embexp.data.files import arrow_table as parquet
from embexp.data.scan import Scan, scan
from embexp.errors import Code, ConfigError, DataError, EmbexpError, VocabularyError
from embexp.specs.data import CSV, Data, Parquet
from embexp.specs.vocabularies import Buckets
from embexp.system import caching
from embexp.system.parallel import Progress


class Thread:
    """One of several workers in threads of this process; see `together.Workers`."""

    def __init__(self, worker: int, table: Table) -> None:
        self.worker, self.workers, self._table = worker, table.workers, table

    def gathered(self, said: dict[str, Any]) -> list[dict[str, Any]]:
        return [json.loads(each) for each in self._table.exchanged(self.worker, json.dumps(said))]

    def send(self, folder: Path, sender: int, receivers: Collection[int]) -> None:
        content = {file.name: file.read_bytes() for file in folder.iterdir()} if self.worker == sender else {}
        content = self._table.exchanged(self.worker, content)[sender]
        if self.worker in receivers:
            self._table.sent.add((sender, self.worker))
            folder.mkdir()
            for name, data in content.items():
                (folder / name).write_bytes(data)

    def counted(self, progress: Progress) -> Progress:
        return progress


class Table:
    """Around which the workers sit."""

    def __init__(self, workers: int) -> None:
        self.workers, self.sent = workers, set[tuple[int, int]]()
        self._said: list[Any] = [None] * workers
        self._all = threading.Barrier(workers, timeout=60)

    def exchanged(self, worker: int, said: Any) -> list[Any]:
        self._said[worker] = said
        self._all.wait()
        found = list(self._said)
        self._all.wait()
        return found


def read(data: Data, columns: Columns, caches: Sequence[Path]) -> tuple[list[Scan | EmbexpError], set[tuple[int, int]]]:
    """What each worker finds, or raises, and which parts were sent from whom to whom; one is no worker."""
    table = Table(len(caches))

    def one(worker: int) -> Scan | EmbexpError:
        workers = Thread(worker, table) if len(caches) > 1 else None
        try:
            return scan(data, columns, cache=caches[worker], workers=workers)
        except EmbexpError as error:
            return error

    with ThreadPoolExecutor(len(caches)) as pool:
        return list(pool.map(one, range(len(caches)))), table.sent


def content(cache: Path) -> dict[str, bytes]:
    """All that a cache holds but digests of files, and the stamps of its own."""
    found = {}
    for path in cache.rglob("*"):
        name = path.relative_to(cache).as_posix()
        if path.is_file() and not name.startswith("digests/"):
            data = path.read_bytes()
            if path.name == ".content.json":
                data = json.dumps({file: each["digest"] for file, each in json.loads(data).items()}).encode()
            found[name] = data
    return found


tokens = st.none() | st.sampled_from(["a", "b", "é", "a longer token", "another long token", "x\x00"])
rows = st.fixed_dictionaries(
    {
        "user": tokens,
        "friend": tokens,
        "seen": st.lists(st.sampled_from(["a", "c", "d of many letters"]), max_size=3),
        "age": st.none() | st.floats(-10, 10, width=32),
        "price": st.floats(0, 1, width=64),
        "when": st.integers(0, 50),
        "label": st.sampled_from(["yes", "no"]),
        "weight": st.floats(0.5, 2),
    }
)
TYPES = pa.schema(
    {
        "user": pa.string(),
        "friend": pa.string(),
        "seen": pa.list_(pa.string()),
        "share": pa.list_(pa.float32()),
        "age": pa.float32(),
        "price": pa.float64(),
        "when": pa.int64(),
        "label": pa.string(),
        "weight": pa.float64(),
    }
)
IDS = {"user": "people", "friend": "people", "seen": "things", "age in tens": "ages"}
KINDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "classes, weights and lists": (
        {
            "ids": {"user": "people", "friend": "people", "seen": "things"},
            "weights": {"share": "seen"},
            "label": "label",
        }
        | {"classes": ClassNames(two=False), "example_weight": "weight"},
        {"label": "label", "weight": "weight", "vocabulary": {"min_frequency": 2, "rare": "own_row"}},
    ),
    "a label that is an input too, and times": (
        {"ids": {"friend": "people"}, "dense": ("price", "when"), "label": "price"}
        | {"buckets": {"ages": BucketColumn("age", "ages", Buckets(quantiles=3))}},
        {"label": "price", "label_threshold": 0.5, "dense_features": ["price", "when"], "timestamp": "when"}
        | {"split": {"kind": "time", "validation": 0.2, "test": 0.2}},
    ),
    "rows without a label": (
        {"ids": {"seen": "things"}, "label": "age", "skips_unlabelled": True},
        {"label": "age", "missing_label": "skip"},
    ),
    "groups": (
        {"ids": {"seen": "things"}, "label": "price"},
        {"label": "price", "split": {"kind": "random", "within": "user", "group": "user"}},
    ),
}
"""Columns, and settings of the data, in which each array of a part occurs."""


@settings(max_examples=8, deadline=None)
@given(
    parts=st.lists(st.lists(rows, min_size=1, max_size=12), min_size=1, max_size=5),
    group_size=st.integers(1, 12),
    kind=st.sampled_from(sorted(KINDS)),
    batch=st.integers(1, 4),
    workers=st.integers(2, 3),
    shared=st.booleans(),
)
def test_the_cache_has_what_one_process_makes(
    parts: list[list[dict[str, Any]]],
    group_size: int,
    kind: str,
    batch: int,
    workers: int,
    shared: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Files are cut, too, as they are few; codes follow the batches in which one process reads."""
    folder = tmp_path_factory.mktemp("parts")
    (folder / "data").mkdir()
    for number, part in enumerate(parts):
        part = [row | {"share": [0.5 * len(each) for each in row["seen"]]} for row in part]
        path = folder / "data" / f"{number}.parquet"
        pq.write_table(pa.Table.from_pylist(part, TYPES), path, row_group_size=group_size)
    of_columns, of_data = KINDS[kind]
    data, columns = Parquet(path=str(folder / "data"), **of_data), Columns(**of_columns)
    caches = [folder / ("shared" if shared else f"cache {worker}") for worker in range(workers)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet, "BATCH_ROWS", batch)
        [alone], _ = read(data, columns, [folder / "alone"])
        found, sent = read(data, columns, caches)
    for each, cache in zip(found, caches, strict=True):
        if isinstance(alone, EmbexpError):  # such as nothing to train on
            assert (type(each), str(each)) == (type(alone), str(alone))
            continue
        assert isinstance(each, Scan), each
        assert each.key == alone.key
        assert {name: each.vocabularies[name].digest for name in each.vocabularies} == {
            name: alone.vocabularies[name].digest for name in alone.vocabularies
        }
        assert content(cache) == content(folder / "alone")
    if shared:
        assert not sent


def lines(folder: Path, *texts: str) -> CSV:
    """A folder of CSV files, settled so that their digests are remembered."""
    folder.mkdir()
    for number, text in enumerate(texts):
        file = folder / f"{number}.csv"
        file.write_text("who,label\n" + text)
        os.utime(file, (0, 0))
    return CSV(path=str(folder), label="label")


WHO = Columns(ids={"who": "people"}, label="label")


def test_each_reads_some_of_the_files_and_their_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = lines(tmp_path / "data", *["a,1\nb,0\n" * 50] * 7, "only here,1\n")
    opened: list[tuple[int, str]] = []
    taken: list[str] = []
    write, digest = together.Reading.write, caching.digests.of_file

    def written(self: Any, folder: Path, files: Any, **more: Any) -> None:
        opened.extend((int(folder.name.removeprefix("part-")), table.path.name) for table in files.tables)
        write(self, folder, files, **more)

    def digested(path: Path, *more: Any) -> str:
        taken.append(path.name)
        return digest(path, *more)

    monkeypatch.setattr(together.Reading, "write", written)
    monkeypatch.setattr(caching.digests, "of_file", digested)
    caches = [tmp_path / f"cache {worker}" for worker in range(3)]
    found, sent = read(data, WHO, caches)
    names = [f"{number}.csv" for number in range(8)]
    assert sorted(name for _, name in opened) == names
    assert [sum(worker == each for each, _ in opened) for worker in range(3)] == [2, 3, 3]
    assert sorted(name for name in taken if name.endswith(".csv")) == names
    assert sent == {(a, b) for a in range(3) for b in range(3) if a != b}
    assert all(isinstance(each, Scan) and "only here" in each.vocabularies["people"].tokens() for each in found)
    assert not [path for cache in caches for path in cache.glob(".making-*")]
    opened.clear()
    again, sent = read(data, WHO, caches)
    assert (opened, sent) == ([], set())
    assert [each.key for each in again if isinstance(each, Scan)] == [found[0].key] * 3  # type: ignore[union-attr]


def test_who_has_a_cache_that_is_only_to_be_read_goes_on_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, caches = lines(tmp_path / "data", "a,1\n" * 9, "b,0\n" * 9), [tmp_path / "one", tmp_path / "two"]
    first, _ = read(data, WHO, caches)
    workplace = caching.workplace

    def refused(cache: Path) -> Any:
        if cache == caches[1]:
            raise PermissionError
        return workplace(cache)

    monkeypatch.setattr(caching, "workplace", refused)
    again, sent = read(data, WHO, caches)
    assert [each.key for each in again if isinstance(each, Scan)] == [first[0].key] * 2  # type: ignore[union-attr]
    assert not sent


def test_the_digest_of_a_file_that_may_still_change_is_not_remembered(tmp_path: Path) -> None:
    data = lines(tmp_path / "data", "a,1\n" * 9, "b,0\n" * 9)
    (tmp_path / "data" / "1.csv").touch()
    caches = [tmp_path / "one", tmp_path / "two"]
    read(data, WHO, caches)
    assert [len(list((cache / "digests").iterdir())) for cache in caches] == [1, 1]


def test_workers_with_other_files_read_nothing_for_each_other(tmp_path: Path) -> None:
    """Then the start of the cluster says in what they differ."""
    datas = [lines(tmp_path / name, "a,1\n" * 9, f"{name},0\n" * 9) for name in ("b", "other")]
    table = Table(2)
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda n: scan(datas[n], WHO, cache=tmp_path / str(n), workers=Thread(n, table)), (0, 1)))
    assert found[0].digest != found[1].digest
    assert [found[1].digest] == [scan(datas[1], WHO, cache=tmp_path / "alone").digest]
    assert not table.sent


def test_all_raise_the_faults_of_all_in_their_order(tmp_path: Path) -> None:
    good = "a,1\n" * 2_000
    data = lines(tmp_path / "data", good, good + "b,two\n", good, good + "c\n", good)
    caches = [tmp_path / f"cache {worker}" for worker in range(3)]
    with pytest.raises(DataError) as alone:
        scan(data, WHO, cache=tmp_path / "alone")
    found, sent = read(data, WHO, caches)
    expected = [
        f"{tmp_path}/data/1.csv, line 2002: found 'two' in column 'label', expected a finite number",
        f"{tmp_path}/data/3.csv, line 2002: found 1 field, expected 2 fields",
    ]
    assert str(alone.value) == expected[0]
    assert [(type(each), str(each)) for each in found] == [(DataError, "\n".join(expected))] * 3
    assert all(isinstance(each, EmbexpError) and each.told for each in found)
    assert not sent
    assert [path.name for cache in caches for path in cache.iterdir()] == ["digests"] * 3


def test_a_part_whose_bytes_are_damaged(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    for number in range(3):
        table = pa.table({"who": [f"token {n * 7919 % 5000}" for n in range(5_000)], "label": [1.0] * 5_000})
        pq.write_table(table, folder / f"{number}.parquet", compression="zstd")
    damaged = bytearray((folder / "2.parquet").read_bytes())
    damaged[2_000:4_000] = bytes(2_000)
    (folder / "2.parquet").write_bytes(damaged)
    data = Parquet(path=str(folder), label="label")
    with pytest.raises(DataError) as alone:
        scan(data, WHO, cache=tmp_path / "alone")
    found, _ = read(data, WHO, [tmp_path / "cache"] * 2)
    assert [(type(each), str(each)) for each in found] == [(DataError, str(alone.value))] * 2
    assert [path.name for path in (tmp_path / "cache").iterdir() if path.name != "digests"] == []


def test_a_row_of_a_piece_has_its_number_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "BATCH_ROWS", 100)
    labels = [1.0] * 777 + [float("inf")] + [1.0] * 222
    table = pa.table({"who": [str(number % 9) for number in range(1_000)], "label": labels})
    pq.write_table(table, tmp_path / "data.parquet", row_group_size=64)
    data = Parquet(path=str(tmp_path / "data.parquet"), label="label")
    found, _ = read(data, WHO, [tmp_path / "cache"] * 3)
    said = f"{tmp_path}/data.parquet, row 778: found inf in column 'label', expected a finite number that"
    assert [str(each) for each in found] == [f"{said} fits into float32, at most 3.4e+38"] * 3


def test_a_missing_column_and_an_unknown_value(tmp_path: Path) -> None:
    """What is found before the parts are read, and after they are joined."""
    data = lines(tmp_path / "data", "a,1\nb,0\n" * 9, "c,1\n" * 9)
    caches = [tmp_path / f"cache {worker}" for worker in range(2)]
    absent = Columns(ids={"whom": "people"}, label="label")
    with pytest.raises(ConfigError) as alone:
        scan(data, absent, cache=tmp_path / "alone")
    found, _ = read(data, absent, caches)
    assert [str(each) for each in found] == [str(alone.value)] * 2
    assert all(isinstance(fault.code, Code) for each in found if isinstance(each, ConfigError) for fault in each.faults)
    given = lines(tmp_path / "given", "a,1\nb,0\n" * 9, "c,1\n" * 9).path
    strict = CSV(
        path={"train": f"{given}/0.csv", "test": f"{given}/1.csv"},
        label="label",
        vocabulary={"unknown": "error"},
        split={"validation": 0.0},
    )
    with pytest.raises(VocabularyError) as alone_too:
        scan(strict, WHO, cache=tmp_path / "alone")
    found, _ = read(strict, WHO, caches)
    assert [(type(each), str(each)) for each in found] == [(VocabularyError, str(alone_too.value))] * 2
    assert "1.csv, row 1: 'c' in column 'who'" in str(found[1])


@given(sizes=st.lists(st.integers(1, 20), min_size=1, max_size=6), batch=st.integers(1, 9), data=st.data())
def test_pieces_have_the_batches_of_the_whole(
    sizes: list[int], batch: int, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path, first = tmp_path_factory.mktemp("file") / "a.parquet", 0
    coded = data.draw(st.booleans())
    schema = pa.schema({"n": pa.int64(), "word": pa.dictionary(pa.int32(), pa.string()) if coded else pa.string()})
    with pq.ParquetWriter(path, schema) as writer:
        for size in sizes:
            rows = [{"n": first + n, "word": f"w{n % 5 + size}"} for n in range(size)]
            writer.write_table(pa.Table.from_pylist(rows, schema))
            first += size
    wanted = [Wanted("n", "", numbers=True), Wanted("word", "", tokens=True)]

    def batches(table: parquet.ParquetTable) -> list[tuple[list[float], list[str]]]:
        return [(block.numbers["n"].to_pylist(), block.tokens["word"].to_pylist()) for block in table.blocks(wanted)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet, "BATCH_ROWS", batch)
        table = parquet.table(path)
        cuts = table.cuts()
        if coded:
            assert not cuts
            return
        assert (cuts[0], cuts[-1]) == (0, first)
        chosen = sorted({0, first, *data.draw(st.lists(st.sampled_from(cuts)))})
        pieces = [table.piece(*each) for each in itertools.pairwise(chosen)]
        assert [each for piece in pieces for each in batches(piece)] == batches(table)
        assert [piece.first for piece in pieces] == chosen[:-1]


@given(sizes=st.lists(st.integers(0, 1000), min_size=1, max_size=20), workers=st.integers(1, 6))
def test_shares_are_neighbours_of_about_the_same_size(sizes: list[int], workers: int) -> None:
    shares = together.shares(sizes, workers)
    assert [each for share in shares for each in share] == list(range(len(sizes)))
    bound = (sum(sizes) + len(sizes)) / workers + max(sizes) + 1
    assert all(sum(sizes[place] for place in share) <= bound for share in shares)
