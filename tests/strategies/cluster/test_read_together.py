"""Commands of three workers that a scheduler starts, each with a cache of its own, on a folder of CSV files."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from bench import harness
from embexp.strategies.cluster import rendezvous
from tests.data.test_together import content
from tests.strategies.cluster.cluster_runs import LIMIT, command, summary
from tests.thoroughness import left_out

SETTINGS = (
    *("data=csv", "data.label=click", "data.split.test=0", "graph=bench_pairs", "model=bench_dot", "train.steps=5"),
    *("train.epochs=null", "train.batch_size=64", "output.plots=false", "output.baselines=false"),
)


def run(folder: Path, name: str, workers: int) -> list[tuple[int, str]]:
    """Status and words of each worker of a run in `folder / name`, whose caches are beside it."""
    words = command(*harness.experiment(folder, 4)[:-1], *SETTINGS, f"data.path={folder / 'data'}")
    words.append(f"hydra.run.dir={folder / name}")
    addresses = [rendezvous.free_address() for _ in range(workers)]
    if workers > 1:
        words += ["strategy=multi_worker", f"strategy.workers={workers}", f"strategy.addresses=[{','.join(addresses)}]"]
    started = []
    for worker in range(workers):
        own = {"XDG_CACHE_HOME": str(folder / f"{name} cache {worker}")}
        own |= {"EMBEXP_WORKER": str(worker)} if workers > 1 else {}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        started.append(subprocess.Popen(words, env=os.environ | own, text=True, **pipes))  # type: ignore[call-overload]
    said = [process.communicate(timeout=LIMIT)[0] for process in started]
    return [(process.returncode, text) for process, text in zip(started, said, strict=True)]


@left_out()
@pytest.mark.slow
def test_records_are_those_of_one_process_and_faults_too(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for part in range(5):
        rows = [f"u{n * (part + 2) % 211},i{n * 7 % (31 + part)},{n * part % 2}\n" for n in range(1_500 + 100 * part)]
        (tmp_path / "data" / f"{part}.csv").write_text("".join(["user,item,click\n", *rows]))
    for name, workers in (("one", 1), ("three", 3)):
        ended = run(tmp_path, name, workers)
        assert [status for status, _ in ended] == [0] * workers, ended
    one, three = tmp_path / "one", tmp_path / "three"
    for table in ("user", "item"):
        assert (three / "vocabularies" / f"{table}.tsv").read_bytes() == (
            one / "vocabularies" / f"{table}.tsv"
        ).read_bytes()
    manifests = [json.loads((each / "manifest.json").read_text()) for each in (one, three)]
    assert manifests[0]["data"] == manifests[1]["data"]
    assert summary(one)["metrics"]["train"]["loss"] == pytest.approx(
        summary(three)["metrics"]["train"]["loss"], rel=1e-5
    )
    for worker in range(3):
        expected = content(tmp_path / "one cache 0" / "embexp")
        assert content(tmp_path / f"three cache {worker}" / "embexp") == expected
    with (tmp_path / "data" / "3.csv").open("a") as file:
        file.write("u1,i1,perhaps\n")
    [(status, said)] = run(tmp_path, "one bad", 1)
    sentence = said.splitlines()[-1]
    assert (status, f"{tmp_path}/data/3.csv, line 1802: found 'perhaps' in column 'click'" in sentence) == (1, True)
    for status, said in run(tmp_path, "three bad", 3):
        assert (status, said.splitlines()[-1], "Traceback" in said) == (1, sentence, False), said
    left = {path.name for worker in range(3) for path in (tmp_path / f"three bad cache {worker}" / "embexp").iterdir()}
    assert left == {"digests"}
