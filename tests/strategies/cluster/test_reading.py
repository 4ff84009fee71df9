"""Workers that read data together over loopback, in threads: their messages, files, progress and faults."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from embexp.data import together
from embexp.data.scan import Scan, scan
from embexp.errors import DataError, RunError
from embexp.specs.data import CSV
from embexp.specs.strategies import MultiWorker
from embexp.strategies.cluster import reading, rendezvous
from embexp.strategies.cluster.places import LEADER, Place
from tests.data.test_together import WHO, content, lines


def read(data: CSV, caches: list[Path], stages: list[tuple[str, float | None]]) -> list[Future[Scan]]:
    """What each worker finds; `stages` gets the progress of worker 0."""
    count = len(caches)
    spec, leader = MultiWorker(workers=count, start_seconds=30), rendezvous.free_address()

    def one(worker: int) -> Scan:
        place = Place(worker, leader, None if worker else leader, found="a scheduler")
        shown = (lambda stage, done: stages.append((stage, done))) if worker == 0 else lambda stage, done: None
        with reading.together(spec, place, together.facts(data)) as workers:
            assert workers is not None
            return scan(data, WHO, cache=caches[worker], progress=shown, workers=workers)

    with ThreadPoolExecutor(count) as pool:
        return [pool.submit(one, worker) for worker in range(count)]


def test_all_have_what_one_process_makes_and_worker_0_shows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_BLOCK_BYTES", 1_000)
    data = lines(
        tmp_path / "data", *("".join(f"{n * part % 97},{n % 2}\n" for n in range(900)) for part in (1, 2, 3, 4))
    )
    alone = scan(data, WHO, cache=tmp_path / "alone")
    caches, stages = [tmp_path / "0", tmp_path / "1", tmp_path / "0"], list[tuple[str, float | None]]()
    for each in read(data, caches, stages):
        assert each.result().key == alone.key
    for cache in caches:
        assert content(cache) == content(tmp_path / "alone")
    done = [part for stage, part in stages if stage == "reading the data" and part is not None]
    assert done
    assert done == sorted(done)
    assert done[-1] <= 1
    assert [stage for stage, _ in stages][-2:] == ["splitting the examples", "building vocabularies"]


def test_a_fault_of_another_worker_ends_all_with_the_same_words(tmp_path: Path) -> None:
    data = lines(tmp_path / "data", "a,1\n" * 2_000, "a,1\n" * 2_000 + "b,two\n")
    for each in read(data, [tmp_path / "0", tmp_path / "1"], []):
        with pytest.raises(DataError, match=r"1\.csv, line 2002: found 'two' in column 'label'"):
            each.result()


def test_a_worker_that_breaks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Worker 1 raises what nobody has foreseen; worker 0 says who it was."""
    data = lines(tmp_path / "data", "a,1\n" * 20, "a,1\n" * 20)
    write = together.Reading.write

    def broken(self: together.Reading, folder: Path, *given: object, **more: object) -> None:
        if folder.name == "part-1":
            raise ZeroDivisionError("no reason")
        write(self, folder, *given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(together.Reading, "write", broken)
    first, second = read(data, [tmp_path / "0", tmp_path / "1"], [])
    with pytest.raises(RunError, match=r"worker 1 at .* failed: ZeroDivisionError: no reason"):
        first.result()
    with pytest.raises(ZeroDivisionError):
        second.result()
    assert not [path for cache in (tmp_path / "0", tmp_path / "1") for path in cache.glob("*-*")]


@pytest.mark.parametrize(
    ("error", "said"),
    [(DataError("the store has no such object"), "worker 0 has failed: the store has"), (KeyError(), "worker 0")],
)
def test_a_worker_0_that_fails_alone_tells_why(
    error: Exception, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = lines(tmp_path / "data", "a,1\n" * 20, "a,1\n" * 20)

    def failing(self: reading.LeadingReader, said: object) -> None:
        raise error

    monkeypatch.setattr(reading.LeadingReader, "gathered", failing)
    first, second = read(data, [tmp_path / "0", tmp_path / "1"], [])
    assert first.exception() is error
    with pytest.raises(RunError, match=said):
        second.result()


def test_workers_of_one_machine_do_not_read_together() -> None:
    for place in (Place(0, None), Place(1, "127.0.0.1:1", found=LEADER)):
        with reading.together(MultiWorker(workers=2), place, {}) as workers:
            assert workers is None
