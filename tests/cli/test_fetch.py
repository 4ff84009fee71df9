"""`embexp fetch`, and runs on a data set by name, as a user sees them. The server is on this machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from embexp.cli import commands
from embexp.data import datasets
from embexp.data.datasets import DATA_SETS
from tests import disks, loopback
from tests.loopback import Server
from tests.small_data_sets import add_ring, use_folder

TRIPLES = "".join(f"n{number}\t{name}\tn{(number + 1) % 20}\n" for number in range(20) for name in ("next", "near"))
SPLITS = {
    "train.txt": TRIPLES.encode(),
    "valid.txt": b"n0\tnext\tn2\nn3\tnear\tn5\n",
    "test.txt": b"n1\tnext\tn3\nn4\tnear\tn6\n",
}
RUN = ("experiment=knowledge_graph", "data.fetch=ring", "tables.entity.dim=4", "train.steps=2", "train.epochs=null")
QUIET = (
    "output.plots=false",
    "output.baselines=false",
    "output.tensorboard=false",
    "output.digests=false",
    "train.early_stopping.patience=null",
)


@pytest.fixture
def server() -> Iterator[Server]:
    with loopback.served() as server:
        yield server


@pytest.fixture(autouse=True)
def ring(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A data set `ring` on the server, and folders for it and for the cache."""
    use_folder(tmp_path / "kept", monkeypatch)
    add_ring(server, monkeypatch, SPLITS)


def test_without_a_name_it_lists(capsys: pytest.CaptureFixture[str], server: Server) -> None:
    assert commands.main(["fetch"]) == 0
    out = capsys.readouterr().out
    for name, data in DATA_SETS.items():
        [line] = [line for line in out.splitlines() if line.startswith(f"{name} ")]
        assert data.about in line
        assert data.experiments[0] in line
    assert "https://ring.example" in out
    assert server.asked == []


def test_with_a_name_it_fetches_and_prints_the_place(capsys: pytest.CaptureFixture[str], server: Server) -> None:
    for _ in range(2):
        assert commands.main(["fetch", "ring"]) == 0
        out, err = capsys.readouterr()
        assert out == f"{datasets.place('ring')}\n"
        assert err.endswith("ring: free; https://ring.example\n")
    assert len(server.asked) == 3
    assert commands.main(["fetch"]) == 0
    [line] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("ring ")]
    assert "yes" in line.split()


def test_faults_are_sentences(capsys: pytest.CaptureFixture[str], server: Server, tmp_path: Path) -> None:
    assert commands.main(["fetch", "rin"]) == 2
    assert capsys.readouterr().err == "embexp: embexp fetch: there is no data set 'rin'\n    did you mean ring?\n"
    del server.answers["/train.txt"]
    assert commands.main(["fetch", "ring"]) == 1
    err = capsys.readouterr().err
    assert "Traceback" not in err
    assert err.endswith(
        f"embexp: {server.url('/train.txt')} can't be fetched: the server answers 404 Not Found\n"
        f"    download it on another machine and put it at {tmp_path}/kept/ring/train.txt, or set data.path=… instead\n"
    )
    assert commands.main(["run", *RUN, *QUIET, f"hydra.run.dir={tmp_path}/run"]) == 2
    err = capsys.readouterr().err
    assert "Traceback" not in err
    assert "data.fetch = 'ring': " in err
    assert not (tmp_path / "run").exists()


def test_a_full_disk_is_one_sentence(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with disks.small(tmp_path / "disk", kilobytes=4) as disk:
        monkeypatch.setenv(datasets.VARIABLE, str(disk / "sets"))
        for words in (["fetch", "ring"], ["run", *RUN]):
            assert commands.main(words) == 1
            [line] = [each for each in capsys.readouterr().err.splitlines() if each.startswith("embexp: ")]
            assert line.startswith(f"embexp: {disk}/sets")
            assert "No space left on device" in line
            assert datasets.VARIABLE in line


def test_a_run_and_what_can_be_done_with_it_offline(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    cache = f"output.cache={tmp_path}/cache"
    assert commands.main(["run", *RUN, *QUIET, cache, f"hydra.run.dir={run}"]) == 0
    server.answers.clear()
    assert json.loads((run / "manifest.json").read_text())["spec"]["data"]["fetch"] == "ring"
    assert commands.main(["plan", "--scan", *RUN, *QUIET, cache]) == 0
    run_id = json.loads((run / "summary.json").read_text())["run_id"]
    assert run_id in capsys.readouterr().out
    assert commands.main(["evaluate", str(run)]) == 0
    assert commands.main(["resume", str(run), "train.steps=4"]) == 0
    assert json.loads((run / "summary.json").read_text())["steps"] == 4
    assert len(server.asked) == 3


def test_a_sweep_fetches_once(server: Server, tmp_path: Path) -> None:
    words = ["-m", *RUN, *QUIET, f"output.cache={tmp_path}/cache", f"hydra.sweep.dir={tmp_path}/sweep"]
    assert commands.main(["plan", *words, "seed=0,1"]) == 0
    assert len(server.asked) == 3
