"""`data.fetch` in configs: its faults, what it makes of `data.path`, and that nothing is fetched in vain."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from embexp.config import composition
from embexp.data import datasets
from embexp.data.columns import columns_of
from embexp.data.datasets import DATA_SETS
from embexp.data.sources.source import source_of
from embexp.errors import ConfigError
from embexp.records import manifest
from tests import loopback
from tests.loopback import Server
from tests.small_data_sets import RING, add_ring, replace_files, small, use_folder

GRAPH = "experiment=knowledge_graph"


@pytest.fixture
def server() -> Iterator[Server]:
    with loopback.served() as server:
        yield server


@pytest.fixture(autouse=True)
def ring(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A data set `ring` on the server, and a folder for it."""
    use_folder(tmp_path / "kept", monkeypatch)
    add_ring(server, monkeypatch)


def faults(*overrides: str) -> dict[str, str]:
    with pytest.raises(ConfigError) as raised:
        composition.compose(overrides)
    return {fault.path: f"{fault.value}: {fault.rule}. {fault.remedy}" for fault in raised.value.faults}


def test_the_name_is_enough(server: Server) -> None:
    spec = composition.compose([GRAPH, "data.fetch=ring"])
    assert getattr(spec.data, "fetch", None) == "ring"
    assert getattr(spec.data, "path", None) == str(datasets.place("ring"))
    assert (datasets.place("ring") / "train.txt").is_file()
    composition.compose([GRAPH, "data.fetch=ring", "seed=1"])
    assert len(server.asked) == 3


@pytest.mark.parametrize(
    ("name", "experiment"),
    [(name, experiment) for name, data in DATA_SETS.items() for experiment in data.experiments],
)
def test_the_name_is_enough_for_the_experiments_of_the_table(
    name: str, experiment: str, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With small files of the owners' form; the first rows of each are read."""
    replace_files(server, monkeypatch, name, small(name, monkeypatch))
    spec = composition.compose([f"experiment={experiment}", f"data.fetch={name}"])
    assert getattr(spec.data, "path", None) == str(datasets.place(name))
    assert datasets.place(name).exists()


def test_an_unknown_name() -> None:
    assert faults(GRAPH, "data.fetch=rng") == {
        "data.fetch": "'rng': there is no data set with this name. did you mean ring?"
    }


def test_a_path_as_well(server: Server) -> None:
    found = faults(GRAPH, "data.fetch=ring", "data.path=/here")
    assert found == {"data.fetch": "'ring': data.path is also given: '/here'. remove one of the two"}
    assert server.asked == []


@pytest.mark.parametrize("source", ["experiment=movielens", "experiment=clicks", "experiment=text_classification"])
def test_a_source_that_does_not_read_it(source: str, server: Server) -> None:
    found = faults(source, "data.fetch=ring")
    assert list(found) == ["data.fetch"]
    assert found["data.fetch"].endswith(
        "can't read this data set; it needs data=triples. choose experiment=knowledge_graph"
    )
    assert server.asked == []


def test_nothing_is_fetched_for_a_run_that_can_not_be_started(server: Server) -> None:
    assert list(faults(GRAPH, "data.fetch=ring", "model.no=1")) == ["model.no"]
    assert list(faults(GRAPH, "data.fetch=ring", "data.positives=all", "data.negatives=3")) == ["data.positives"]
    assert server.asked == []


def test_what_can_not_be_had_is_one_fault_and_is_not_tried_for_each_job(server: Server) -> None:
    server.answers.clear()
    for seed in range(3):
        found = faults(GRAPH, "data.fetch=ring", f"seed={seed}")
        assert list(found) == ["data.fetch"]
        assert (
            "can't be fetched: the server answers 404 Not Found. download it on another machine" in found["data.fetch"]
        )
    assert server.asked == ["/train.txt"]


def test_without_a_name_a_path_is_asked_for(server: Server) -> None:
    assert list(faults(GRAPH)) == ["data.path"]
    assert server.asked == []


def test_the_spec_of_another_machine_finds_the_data_set_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = composition.compose([GRAPH, "data.fetch=ring"])
    monkeypatch.setenv(datasets.VARIABLE, str(tmp_path / "elsewhere"))
    assert source_of(spec.data).description().headline.startswith(f"triples {tmp_path / 'elsewhere'}")


def test_run_id_is_that_of_the_same_files_by_path(tmp_path: Path) -> None:
    by_name = composition.compose([GRAPH, "data.fetch=ring"])
    (tmp_path / "files").mkdir()
    for name, content in RING.items():
        (tmp_path / "files" / name).write_bytes(content)
    by_path = composition.compose([GRAPH, f"data.path={tmp_path / 'files'}"])
    columns, _ = columns_of(by_name.data, by_name.features, by_name.tables)
    found = [source_of(spec.data).digest(columns, cache=tmp_path / "cache") for spec in (by_name, by_path)]
    assert found[0] == found[1]
    assert manifest.content_id(by_name, found[0]) == manifest.content_id(by_path, found[1])
