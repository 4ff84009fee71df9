"""Objects of a store: fetched once and whole, looked for again, and errors that say what is wrong with them."""

from __future__ import annotations

import importlib.util
import multiprocessing
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from embexp.errors import ConfigError
from embexp.system import stores
from embexp.system.stores import Object, Store, StoreError
from tests import loopback
from tests.small_data_sets import no_proxies
from tests.system import served_store as served
from tests.system.served_store import Server

LARGE = bytes(range(251)) * 80_000
"""More than one request."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served.store(tmp_path_factory.mktemp("store")) as server:
        server.write("one.csv", b"a,b\n1,2\n")
        server.write("flat/x.csv", b"x\n1\n")
        server.write("flat/y.csv", b"x\n2\n")
        server.write("days/day=1/ä b#1%20.csv", b"x\n1\n")
        server.write("days/day=2/z.csv", b"x\n2\n")
        server.write("days/day=2/notes.txt", b"none")
        server.write("deep/a/1.txt", b"one")
        server.write("deep/2.txt", b"two")
        server.write("large.bin", LARGE)
        yield server


@pytest.fixture(autouse=True)
def there(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    no_proxies(monkeypatch)
    for name, value in {**server.variables, "AWS_MAX_ATTEMPTS": "1"}.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL_S3", "AWS_SESSION_TOKEN", "AWS_CONFIG_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/none")
    forget()


def forget() -> None:
    """As a new process knows nothing."""
    for known in (stores._asked, stores._place_of, stores._url_of):
        known.clear()


def fetched(url: str, cache: Path, *, flat: bool = True) -> Path:
    forget()
    stores.fetch({"data.path": url}, cache=cache, flat=flat)
    return Path(stores.local(url))


def content(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".content.json")
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def left(cache: Path) -> list[str]:
    """What is in the cache beside locks."""
    return [path.name for path in cache.rglob("*") if path.suffix != ".lock"]


def test_an_object_is_fetched_once(server: Server, tmp_path: Path) -> None:
    before = server.fetched("one.csv")
    found = fetched("s3://data/one.csv", tmp_path)
    assert (found.name, found.read_bytes()) == ("one.csv", b"a,b\n1,2\n")
    assert fetched("s3://data/one.csv", tmp_path) == found
    assert server.fetched("one.csv") == before + 1


def test_an_object_of_several_requests_is_whole(tmp_path: Path) -> None:
    assert fetched("s3://data/large.bin", tmp_path).read_bytes() == LARGE


@pytest.mark.parametrize("url", ["s3://data/flat", "s3://data/flat/"])
def test_a_folder_is_a_folder(url: str, tmp_path: Path) -> None:
    assert content(fetched(url, tmp_path)) == {"x.csv": b"x\n1\n", "y.csv": b"x\n2\n"}


def test_a_folder_of_folders_is_one_where_these_are_read(tmp_path: Path) -> None:
    assert content(fetched("s3://data/deep", tmp_path, flat=False)) == {"a/1.txt": b"one", "2.txt": b"two"}


def test_a_pattern_finds_the_same_files_here(tmp_path: Path) -> None:
    """Also below a cache whose name looks like a pattern."""
    cache = tmp_path / "[c]"
    found = fetched("s3://data/days/day=*/*.csv", cache)
    matched = sorted(Path("/").glob(str(found).lstrip("/")))
    assert [path.name for path in matched] == ["ä b#1%20.csv", "z.csv"]
    assert [path.read_bytes() for path in matched] == [b"x\n1\n", b"x\n2\n"]


def test_what_a_folder_and_an_object_share_is_fetched_once(server: Server, tmp_path: Path) -> None:
    fetched("s3://data/flat/x.csv", tmp_path)
    before = server.fetched("flat/x.csv")
    fetched("s3://data/flat", tmp_path)
    assert server.fetched("flat/x.csv") == before


def test_a_changed_object_is_noticed_and_the_others_stay(server: Server, tmp_path: Path) -> None:
    server.write("changing/x.csv", b"x\n1\n")
    server.write("changing/y.csv", b"x\n2\n")
    first = fetched("s3://data/changing", tmp_path)
    server.write("changing/y.csv", b"x\n3\n")
    before = server.fetched("changing/x.csv")
    second = fetched("s3://data/changing", tmp_path)
    assert content(second) == {"x.csv": b"x\n1\n", "y.csv": b"x\n3\n"}
    assert content(first) == {"x.csv": b"x\n1\n", "y.csv": b"x\n2\n"}
    assert server.fetched("changing/x.csv") == before


def test_a_damaged_copy_is_fetched_again(tmp_path: Path) -> None:
    found = fetched("s3://data/flat", tmp_path)
    (found / "x.csv").resolve().write_bytes(b"x\n9\n")
    assert content(fetched("s3://data/flat", tmp_path)) == {"x.csv": b"x\n1\n", "y.csv": b"x\n2\n"}


def test_the_store_is_not_asked_again_at_once(server: Server, tmp_path: Path) -> None:
    fetched("s3://data/one.csv", tmp_path)
    before = server.asked()
    stores.fetch({"data.path": "s3://data/one.csv"}, cache=tmp_path)
    assert server.asked() == before


def test_messages_name_the_url(tmp_path: Path) -> None:
    found = fetched("s3://data/flat", tmp_path)
    assert stores.named(f"{found}/x.csv, line 2") == "s3://data/flat/x.csv, line 2"
    assert stores.named(f"{(found / 'x.csv').resolve()}, line 2") == "s3://data/flat/x.csv, line 2"
    one = fetched("s3://data/one.csv", tmp_path)
    with (
        pytest.raises(ConfigError, match=r"^1 fault in the config\n  data\.path = s3://data/one\.csv: wrong") as raised,
        stores.naming_urls(),
    ):
        raise ConfigError([stores.Fault("data.path", str(one), "wrong")])
    assert raised.value.faults[0].value == "s3://data/one.csv"


@pytest.mark.parametrize(
    ("url", "rule", "remedy"),
    [
        ("s3://nobucket/x.csv", "there is no such bucket", "spelling"),
        ("s3://data/none.csv", "there is no such object or folder", "spelling"),
        ("s3://data/ONE.csv", "there is no such object or folder", "upper and lower case"),
        ("s3://data/none*.csv", "no object matches this pattern", ""),
        ("s3://data/days", "a folder of data files may hold only files, not the folder 'day=1'", "s3://data/days/*/*"),
        ("s3://*/x.csv", "the bucket name can't be a pattern", "s3://BUCKET/KEY"),
        ("s3://", "it names no bucket", "s3://BUCKET/KEY"),
        ("gs://data/one.csv", "gs:// is not a supported store", "copy the file to this machine"),
        ("file:///data/one.csv", "file:// is not a supported store", "copy the file to this machine"),
    ],
)
def test_what_is_not_there(url: str, rule: str, remedy: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        fetched(url, tmp_path)
    [fault] = raised.value.faults
    assert (fault.path, fault.value, fault.rule) == ("data.path", repr(url), rule)
    assert remedy in fault.remedy
    assert left(tmp_path) == []


def refused(patch: pytest.MonkeyPatch) -> None:
    patch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{loopback.closed_port()}")


def nonsense(patch: pytest.MonkeyPatch) -> None:
    patch.setenv("AWS_ENDPOINT_URL", "nonsense")


def nobody(patch: pytest.MonkeyPatch) -> None:
    for name in served.KEYS:
        patch.delenv(name)


@pytest.mark.parametrize(
    ("change", "rule", "remedy"),
    [
        (refused, "the store can't be reached: Connection refused", "AWS_ENDPOINT_URL is http://127.0.0.1:"),
        (nonsense, "the store can't be read: Invalid endpoint: nonsense", "AWS_ENDPOINT_URL is nonsense"),
        (nobody, "unable to locate credentials", "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"),
    ],
)
def test_a_store_that_can_not_be_asked(
    change: Callable[[pytest.MonkeyPatch], None],
    rule: str,
    remedy: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    change(monkeypatch)
    with pytest.raises(ConfigError) as raised:
        fetched("s3://data/one.csv", tmp_path)
    [fault] = raised.value.faults
    assert fault.rule == rule
    assert remedy in fault.remedy
    assert left(tmp_path) == []


def test_all_faults_are_told(tmp_path: Path) -> None:
    urls = {"data.path.train": "s3://data/none.csv", "data.path.test": "s3://nobucket/x.csv"}
    with pytest.raises(ConfigError) as raised:
        stores.fetch(urls, cache=tmp_path)
    assert [(fault.path, fault.value) for fault in raised.value.faults] == [(k, repr(v)) for k, v in urls.items()]


class Breaking(BaseHTTPRequestHandler):
    """A store that promises 1,000 bytes and breaks off after 100."""

    def do_HEAD(self) -> None:
        self._begin(200, 1_000)

    def do_GET(self) -> None:
        self._begin(206, 1_000)
        self.wfile.write(b"x" * 100)
        self.close_connection = True

    def _begin(self, status: int, length: int) -> None:
        self.send_response(status)
        headers = {"Content-Length": str(length), "ETag": '"1"', "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *values: object) -> None:
        """Says nothing."""


def test_an_object_that_breaks_off_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    breaking = ThreadingHTTPServer(("127.0.0.1", 0), Breaking)
    thread = threading.Thread(target=breaking.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{breaking.server_address[1]}")
    try:
        with pytest.raises(ConfigError) as raised:
            fetched("s3://data/one.csv", tmp_path)
    finally:
        breaking.shutdown()
        thread.join()
        breaking.server_close()
    [fault] = raised.value.faults
    assert (fault.rule, fault.remedy) == ("the connection broke after 0 of 1,000 bytes", "try again")
    assert left(tmp_path) == []


def test_an_object_that_changes_meanwhile_is_not_used(tmp_path: Path) -> None:
    other = Object("data/one.csv", "one.csv", 8, '"another"')
    with pytest.raises(StoreError, match="it changed during the download"):
        Store("s3://data/one.csv").read(other, tmp_path / "one.csv", lambda size: None)


def test_a_disk_without_room_is_told_before(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("embexp.system.files.free_bytes", lambda folder: 1_000)
    before = server.fetched("large.bin")
    with pytest.raises(ConfigError) as raised:
        fetched("s3://data/large.bin", tmp_path)
    assert "20.1 MB must be downloaded, but the disk of" in raised.value.faults[0].rule
    assert "1 kB left" in raised.value.faults[0].rule
    assert server.fetched("large.bin") == before


def test_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "s3fs" else known(name))
    with pytest.raises(
        ConfigError, match=r"it needs s3fs, which is not installed.\n    pip install 'embexp\[remote\]'"
    ):
        fetched("s3://data/one.csv", tmp_path)
    [fault] = stores.faults({"data.path": "s3://data/one.csv", "pretrained.path": "/here"})
    assert fault.rule == "it needs s3fs, which is not installed"


def test_an_error_in_one_of_several_ends_all() -> None:
    begun = threading.Event()

    def work(one: Object, count: Callable[[int], None]) -> None:
        if one.name == "wrong":
            begun.wait(10)
            raise StoreError("wrong")
        begun.set()
        while True:
            count(1)

    with pytest.raises(StoreError, match=r"^wrong$"):
        for _ in stores.in_threads(work, [Object("", name, 1, "") for name in ("right", "wrong", "other")]):
            pass


def test_of_two_processes_one_fetches_and_the_other_waits(server: Server, tmp_path: Path) -> None:
    before, told = server.fetched("large.bin"), []
    fork = multiprocessing.get_context("fork")
    holding, go = fork.Event(), fork.Event()

    def hold(stage: str, done: float | None) -> None:
        if stage.startswith("fetching"):
            holding.set()
            assert go.wait(30)

    url = {"data.path": "s3://data/large.bin"}
    other = fork.Process(target=stores.fetch, args=(url,), kwargs={"cache": tmp_path, "progress": hold})
    other.start()

    def progress(stage: str, done: float | None) -> None:
        told.append(stage)
        if stage.startswith("waiting"):
            go.set()

    try:
        assert holding.wait(30)
        stores.fetch(url, cache=tmp_path, progress=progress)
    finally:
        go.set()
        other.join()
    assert other.exitcode == 0
    assert "waiting for another process that is downloading s3://data/large.bin" in told
    assert Path(stores.local(url["data.path"])).read_bytes() == LARGE
    assert server.fetched("large.bin") == before + -(-len(LARGE) // stores._AT_ONCE)


def test_a_response_that_is_none_tells_of_no_bucket() -> None:
    """botocore's errors of a connection have one, as attribute of the error's cause."""
    cause = ConnectionError("closed")
    cause.response = None  # type: ignore[attr-defined]
    with pytest.raises(stores.StoreError, match="no such object or folder"), stores._reasons():
        raise FileNotFoundError("s3://data/file.csv") from cause
