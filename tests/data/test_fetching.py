"""Data sets by name: fetched once and whole, compared with their digests, found again. The server is local."""

from __future__ import annotations

import hashlib
import importlib.util
import multiprocessing
import shutil
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from embexp.data import datasets
from embexp.data.datasets import DATA_SETS, DataSet, Remote
from embexp.errors import ConfigError, DataError
from tests import disks, loopback
from tests.loopback import Server
from tests.small_data_sets import RING, add_ring, no_proxies, replace_files, sha256, zipped


@pytest.fixture
def server() -> Iterator[Server]:
    with loopback.served() as server:
        yield server


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the data sets."""
    no_proxies(monkeypatch)
    monkeypatch.setenv(datasets.VARIABLE, str(tmp_path / "kept"))
    return tmp_path / "kept"


@pytest.fixture
def graph(server: Server, monkeypatch: pytest.MonkeyPatch) -> DataSet:
    """A data set `ring` of three files, on the server."""
    return add_ring(server, monkeypatch)


def read(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith(".")}


def left(kept: Path) -> list[str]:
    """What a fetch that failed has left behind."""
    return [path.name for path in kept.rglob("*") if path.name != ".ring.lock"]


def test_a_data_set_is_fetched_once(server: Server, graph: DataSet, kept: Path) -> None:
    assert not datasets.is_here("ring")
    found = datasets.fetch("ring")
    assert read(found) == RING
    assert found.parent == kept
    assert datasets.is_here("ring")
    assert len(server.asked) == 3
    server.answers.clear()
    assert datasets.fetch("ring") == found
    assert len(server.asked) == 3


def test_progress_is_told(graph: DataSet) -> None:
    told: list[tuple[str, float | None]] = []
    datasets.fetch("ring", lambda stage, done: told.append((stage, done)))
    assert told[0][0].startswith("fetching http://127.0.0.1")
    assert (told[-1][0], told[-1][1]) == ("unpacking ring", None)
    assert 1.0 in [done for _, done in told]


def test_a_file_of_another_digest_is_not_used(server: Server, graph: DataSet, kept: Path) -> None:
    server.answers["/valid.txt"] = b"a\tlikes\tX\n"
    with pytest.raises(DataError) as raised:
        datasets.fetch("ring")
    text = str(raised.value)
    assert "/valid.txt has the digest sha256:" in text
    assert f"expected {sha256(RING['valid.txt'])}" in text
    assert "data.path=" in text
    assert left(kept) == []


def test_what_can_not_be_had_is_told_with_the_remedy(server: Server, graph: DataSet, kept: Path) -> None:
    del server.answers["/test.txt"]
    with pytest.raises(DataError) as raised:
        datasets.fetch("ring")
    assert str(raised.value) == (
        f"{server.url('/test.txt')} can't be fetched: the server answers 404 Not Found\n"
        f"    download it on another machine and put it at {kept}/ring/test.txt, or set data.path=… instead"
    )
    assert left(kept) == []


def test_a_file_that_was_put_there_by_hand_is_used(server: Server, graph: DataSet, kept: Path) -> None:
    del server.answers["/test.txt"]
    (kept / "ring").mkdir(parents=True)
    (kept / "ring" / "test.txt").write_bytes(RING["test.txt"])
    assert read(datasets.fetch("ring")) == RING
    assert "/test.txt" not in server.asked


def test_a_wrong_file_that_was_put_there_by_hand_is_an_error(graph: DataSet, kept: Path) -> None:
    (kept / "ring").mkdir(parents=True)
    (kept / "ring" / "train.txt").write_bytes(b"other")
    with pytest.raises(DataError, match=r"ring/train\.txt has the digest .*\n    remove it"):
        datasets.fetch("ring")


def test_a_damaged_copy_is_fetched_again(server: Server, graph: DataSet) -> None:
    found = datasets.fetch("ring")
    (found / "train.txt").write_bytes(b"x" * len(RING["train.txt"]))
    assert not datasets.is_here("ring")
    assert read(datasets.fetch("ring")) == RING
    assert len(server.asked) == 6


def test_a_copy_of_the_folder_is_used_even_if_it_can_only_be_read(
    graph: DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Server
) -> None:
    datasets.fetch("ring")
    with disks.small(tmp_path / "disk", kilobytes=512) as disk:
        shutil.copytree(tmp_path / "kept", disk / "kept")
        disks.seal(disk)
        monkeypatch.setenv(datasets.VARIABLE, str(disk / "kept"))
        assert read(datasets.fetch("ring")) == RING
    assert len(server.asked) == 3


def test_a_package_that_carries_the_files_is_used(
    server: Server, graph: DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site" / "carrier"
    (package / "data").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('it must not be imported')")
    for name, content in RING.items():
        (package / "data" / name).write_bytes(content if name != "test.txt" else b"another version\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    files = tuple(Remote(each.url, each.size, each.digest, ("carrier", f"data/{each.name}")) for each in graph.files)
    monkeypatch.setitem(DATA_SETS, "ring", DataSet(**{**vars(graph), "files": files}))
    assert read(datasets.fetch("ring")) == RING
    assert server.asked == ["/test.txt"]  # that of the package has another digest


def test_pykeen_carries_what_the_table_says() -> None:
    if importlib.util.find_spec("pykeen") is None:
        pytest.skip("pykeen is not installed")
    for name in ("kinships", "nations", "umls"):
        assert read(datasets.fetch(name)).keys() == RING.keys()


def test_an_unknown_name() -> None:
    with pytest.raises(ConfigError, match=r"data\.fetch = 'nothing': there is no data set with this name"):
        datasets.fetch("nothing")


def test_a_full_disk_is_an_error_of_the_system(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it is fetched, and while it is unpacked."""
    text = "u\ti\t3\t1\n" * 20_000
    [packed] = zipped({"ml-100k/u.data": text}).values()
    for number, content in enumerate((text.encode(), packed)):
        replace_files(server, monkeypatch, "ml-100k", {"file.zip": content})
        with disks.small(tmp_path / f"disk{number}", kilobytes=100) as disk:
            monkeypatch.setenv(datasets.VARIABLE, str(disk))
            with pytest.raises(OSError, match="No space left on device") as raised:
                datasets.fetch("ml-100k")
            assert raised.value.filename is not None
            assert [path.name for path in disk.iterdir()] == [".ml-100k.lock"]


def test_an_archive_that_is_none(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_files(server, monkeypatch, "ml-100k", {"file.zip": b"no archive"})
    with pytest.raises(DataError, match="the files of ml-100k can't be unpacked: File is not a zip file"):
        datasets.fetch("ml-100k")


def test_of_two_processes_one_fetches_and_the_other_waits(server: Server, graph: DataSet, kept: Path) -> None:
    """The server holds its answer back until both have begun, and the other has said that it waits."""
    go, told = threading.Event(), threading.Event()

    def held(handler: BaseHTTPRequestHandler) -> None:
        go.wait(20.0)
        loopback.head(handler, len(RING["train.txt"]))
        handler.wfile.write(RING["train.txt"])

    server.answers["/train.txt"] = held
    context = multiprocessing.get_context("fork")
    other = context.Process(target=datasets.fetch, args=("ring", _quiet))
    other.start()
    give_up = time.monotonic() + 20.0
    while not server.asked and time.monotonic() < give_up:
        time.sleep(0.01)

    def progress(stage: str, done: float | None) -> None:
        if stage.startswith("waiting"):
            told.set()
            go.set()

    try:
        assert read(datasets.fetch("ring", progress)) == RING
    finally:
        go.set()
        other.join()
    assert other.exitcode == 0
    assert told.is_set()
    assert sorted(server.asked) == sorted(f"/{name}" for name in RING)


def _quiet(stage: str, done: float | None) -> None:
    """Shows nothing, in a process of its own."""


def test_the_folder_follows_the_user_s_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(datasets.VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert datasets.folder() == tmp_path / "embexp" / "datasets"


def test_the_table_is_whole(root: Path) -> None:
    experiments = {path.stem for path in (root / "conf" / "experiment").glob("*.yaml")}
    for name, data in DATA_SETS.items():
        assert datasets.place(name).is_relative_to(datasets.folder())
        assert set(data.experiments) <= experiments, name
        assert len({file.name for file in data.files}) == len(data.files)
        for file in data.files:
            algorithm, _, digits = file.digest.partition(":")
            assert file.url.startswith("https://")
            assert len(bytes.fromhex(digits)) == hashlib.new(algorithm).digest_size, name
    assert datasets.named("ml-100k").size == 4_924_029
