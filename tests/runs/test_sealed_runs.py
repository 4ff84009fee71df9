"""The inventory of runs: the last file, in all ways in which a run ends; and commands that read what it lists."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import embexp
from embexp.cli import commands
from embexp.errors import DataError
from embexp.records import inventory
from embexp.records.folder import RunFolder
from embexp.reports.results import Results
from embexp.runs import experiment, finished
from embexp.runs import run as single
from embexp.runs.finished import load_run
from embexp.runs.prepare import prepare
from embexp.runs.run import Observer
from embexp.system.terminal import SafeConsole
from embexp.training.listeners import Listener
from embexp.vectors.pretrained import earlier
from tests.runs.test_vocabularies import read, spec_of, write


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("log") / "log.csv", 0)


@pytest.fixture(scope="module")
def recorded(log: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With all files that a run can have, but for plots."""
    directory = tmp_path_factory.mktemp("recorded") / "run"
    directory.mkdir()
    output = {"plots": False, "tensorboard": True, "cache": str(log.parent / "cache")}
    result = single.run(spec_of(log, output=output), directory)
    assert result.inventory == inventory.digest_of(directory)
    return directory


@pytest.fixture
def copy(recorded: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(recorded, tmp_path / "run"))


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def swap_lines(path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    lines[3], lines[4] = lines[4], lines[3]
    path.write_bytes(b"".join(lines))


def test_it_lists_all_files_and_is_the_last(recorded: Path) -> None:
    found = inventory.read(recorded)
    assert found is not None
    assert inventory.changes(recorded) == ()
    there = {path.relative_to(recorded).as_posix(): path.stat() for path in recorded.rglob("*") if path.is_file()}
    [after] = set(there) - set(found.files) - {"inventory.json"}
    assert (after.startswith("events/"), after.endswith(".inventory")) == (True, True)
    last = there["inventory.json"].st_ctime_ns
    assert all(status.st_ctime_ns <= last for name, status in there.items() if name != after)
    events = EventAccumulator(str(recorded / "events"), size_guidance={"tensors": 0}).Reload()
    [event] = events.Tensors("inventory")
    assert event.tensor_proto.string_val[0].decode() == found.digest


class Interrupts(Listener):
    """Interrupts the training at a step, as Ctrl-C does."""

    def logged(self, step: int, loss: float, examples_per_second: float | None) -> None:
        if step == 5:
            os.kill(os.getpid(), signal.SIGINT)


def test_interrupted_and_resumed_runs_have_one_and_a_failed_resumption_has_none(log: Path, tmp_path: Path) -> None:
    spec = spec_of(log, train={"steps": 10, "epochs": None, "batch_size": 32, "log_every": 1})
    result = single.run(spec, tmp_path, Observer(lambda: [Interrupts()]))
    assert result.status == "interrupted"
    before = inventory.digest_of(tmp_path)
    assert before is not None

    with (tmp_path / "metrics.jsonl").open("r+") as lines:
        content = lines.read()
        lines.seek(0)
        lines.write(content.replace('"step": 2', '"step": 3'))
    with pytest.raises(DataError, match=r"can't be resumed: .*\(changed: metrics.jsonl\); restore those files"):
        experiment.resume(tmp_path)
    (tmp_path / "metrics.jsonl").write_text(content)

    class Fails(Listener):
        def resumed(self, step: int) -> None:
            raise KeyError("no disk")

    with pytest.raises(KeyError):
        experiment.resume(tmp_path, observer=Observer(lambda: [Fails()]))
    assert inventory.read(tmp_path) is None
    assert experiment.resume(tmp_path).status == "completed"
    assert inventory.digest_of(tmp_path) not in (None, before)
    assert inventory.changes(tmp_path) == ()

    metrics = json.loads((tmp_path / "summary.json").read_text())["metrics"]
    (tmp_path / "summary.json").unlink()
    assert experiment.resume(tmp_path).summary["metrics"] == metrics
    assert inventory.changes(tmp_path) == ()


@pytest.mark.parametrize("change", [swap_lines, flip])
def test_a_vocabulary_that_was_changed_is_used_by_nothing(
    copy: Path, log: Path, tmp_path: Path, change: object
) -> None:
    assert callable(change)
    change(copy / "vocabularies" / "user.tsv")
    message = rf"{copy}/vocabularies/user.tsv has changed since the run wrote it.*restore the one that the run wrote"
    with pytest.raises(DataError, match=message):
        load_run(copy).predict(log)
    with pytest.raises(DataError, match=message):
        load_run(copy).vocabulary("user")
    for kind in ("npy", "savedmodel"):
        with pytest.raises(DataError, match=message):
            finished.export(copy, tmp_path / "out", kind)
    with pytest.raises(DataError, match=message):
        earlier.open_run(copy, cache=tmp_path).vocabulary("user")


@pytest.mark.parametrize("name", ["spec.json", "summary.json"])
def test_a_changed_spec_or_summary_is_not_loaded(copy: Path, name: str) -> None:
    (copy / name).write_text((copy / name).read_text() + " ")
    with pytest.raises(DataError, match=rf"{name} has changed since the run wrote it"):
        load_run(copy)
    with pytest.raises(DataError, match=rf"{name} has changed since the run wrote it"):
        earlier.open_run(copy, cache=copy.parent)


def test_other_files_are_checked_by_who_reads_them(copy: Path, log: Path) -> None:
    for name in ("checkpoints/final/touched.npz", "numeric_columns.json", "metrics.jsonl"):
        flip(copy / name)
    run = load_run(copy)
    with pytest.raises(DataError, match=r"metrics.jsonl has changed since"):
        run.metrics()
    with pytest.raises(DataError, match=r"numeric_columns.json has changed since"):
        run.predict(log)
    with pytest.raises(DataError, match=r"touched.npz has changed since"):
        run.model  # noqa: B018


def test_commands_refuse_what_they_read_and_warn_of_the_rest(copy: Path, log: Path, forked: Path) -> None:
    def embexp(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([forked / "embexp", *words], capture_output=True, text=True, check=False)

    predicted = embexp("predict", str(copy), "--data", str(log))
    missing, unknown = predicted.stderr.splitlines()
    user, item, age = (read(log)[name].count("") for name in ("user", "item", "age"))
    assert missing.endswith(f" of 300 rows lack a value: user in {user}, item in {item}, age in {age}, wide in {age}")
    assert unknown == "3 of 300 rows have values that the run does not know: user in 3"
    assert predicted.returncode == 0
    (copy / "metrics.jsonl").write_text("")
    (copy / "notes.txt").write_text("mine")
    warned = embexp("predict", str(copy), "--data", str(log))
    assert (warned.returncode, warned.stdout) == (0, predicted.stdout)
    assert warned.stderr.startswith(
        f"warning: the record of {copy} has changed since the run wrote it (changed: metrics.jsonl "
    )
    assert "notes" not in warned.stderr
    swap_lines(copy / "vocabularies" / "user.tsv")
    out = copy.parent / "out"
    for words in (
        ["predict", str(copy), "--data", str(log)],
        ["evaluate", str(copy)],
        ["export", str(copy), str(out), "--as", "npy"],
    ):
        refused = embexp(*words)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert refused.stderr.startswith(f"embexp: {copy}/vocabularies/user.tsv has changed since the run wrote it")
        assert len(refused.stderr.splitlines()) == 1
    assert not out.exists()


def test_a_changed_checkpoint_is_shown_with_a_warning_and_restored_by_nothing(
    copy: Path, recorded: Path, log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, changed = recorded / "checkpoints" / "final", copy / "checkpoints" / "final"
    graph = ["graph", "-o", str(tmp_path / "graph.svg")]
    looks = (["list"], ["list", "--values"], ["diff", str(whole)], graph)
    for words in looks:
        assert commands.main(["checkpoint", *words, str(copy)]) == 0
        assert capsys.readouterr().err == ""
    data = max(changed.glob("checkpoint.data-*"), key=lambda path: path.stat().st_size)
    flip(data)
    for words in looks[1:]:
        commands.main(["checkpoint", *words, str(changed)])
        assert capsys.readouterr().err.startswith(
            f"warning: {data} has changed since the run wrote it, says inventory.json"
        )
    with pytest.raises(DataError, match=rf"{data} has changed since the run wrote it"):
        single.run(spec_of(log, restore={"path": str(changed)}), tmp_path / "again")
    for kind in ("name", "object"):
        words = ["checkpoint", "convert", str(copy), str(tmp_path / kind), "--to", kind]
        assert commands.main(words) == 1
        assert capsys.readouterr().err.startswith(f"embexp: {data} has changed since the run wrote it")
        assert not list(tmp_path.glob(f"{kind}*"))
    flip(data)
    assert prepare(spec_of(log, restore={"path": str(copy)})).restored is not None
    content = json.loads((copy / "inventory.json").read_text())  # as if the index had been another one
    content["files"]["checkpoints/final/checkpoint.index"]["sha256"] = "0" * 64
    (copy / "inventory.json").write_text(json.dumps(content))
    assert commands.main(["checkpoint", "list", str(copy)]) == 0
    assert "checkpoint.index has changed since the run wrote it" in capsys.readouterr().err


def test_a_recorded_spec_that_was_edited_is_not_run(copy: Path, forked: Path) -> None:
    spec = json.loads((copy / "spec.json").read_text())
    (copy / "spec.json").write_text(json.dumps(spec | {"seed": 7}))
    words = [forked / "embexp", "run", "--spec", str(copy), f"hydra.run.dir={copy.parent / 'again'}"]
    refused = subprocess.run(words, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert "spec.json has changed since the run wrote it" in refused.stderr
    assert not (copy.parent / "again").exists()
    inventory.unseal(copy)
    assert RunFolder(copy).read_spec().seed == 7
    assert embexp.load_run(copy).spec.seed == 7


@pytest.mark.parametrize("name", ["spec.json", "summary.json"])
def test_a_finished_run_whose_record_was_edited_is_not_shown_by_resume(copy: Path, name: str) -> None:
    (copy / name).write_text((copy / name).read_text() + " ")
    with pytest.raises(
        DataError, match=rf"{name} has changed since the run wrote it, says inventory.json.*: restore.*verify"
    ):
        experiment.resume(copy)


def test_a_damaged_coverage_is_no_crash_of_resume(copy: Path) -> None:
    (copy / "coverage.json").write_text("{")
    with pytest.raises(DataError, match=r"coverage.json was not written by the run"):
        experiment.resume(copy)
    inventory.unseal(copy)
    SafeConsole(file=io.StringIO()).print(Results(RunFolder(copy).read_summary(), copy))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("checkpoints/final/state.json", flip),
        ("metrics.jsonl", flip),
        ("vocabularies/user.tsv", swap_lines),
        ("manifest.json", os.unlink),
    ],
)
def test_a_finished_run_with_other_changed_files_is_refused_by_resume(
    copy: Path, name: str, change: Callable[[Path], object]
) -> None:
    change(copy / name)
    kind = "changed" if (copy / name).exists() else "removed"
    with pytest.raises(
        DataError, match=rf"has changed since the run wrote it \({kind}: {name}\); restore those files, or remove"
    ):
        experiment.resume(copy)


def test_a_log_is_recorded_whole_and_a_sealed_one_stays_as_it_is(log: Path, tmp_path: Path, forked: Path) -> None:
    (tmp_path / "recorded").mkdir()
    RunFolder(tmp_path / "recorded").write_spec(spec_of(log))

    def embexp(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([forked / "embexp", *words], capture_output=True, text=True, check=False)

    run = tmp_path / "run"
    assert embexp("run", "--spec", str(tmp_path / "recorded"), f"hydra.run.dir={run}").returncode == 0
    found, written = inventory.read(run), (run / "run.log").read_bytes()
    assert found is not None
    assert found.files["run.log"].size == len(written)
    assert b"results in" in written
    assert embexp("resume", str(run)).returncode == 0
    (run / "summary.json").rename(run / "other.json")
    assert embexp("resume", str(run)).returncode == 1
    assert (run / "run.log").read_bytes() == written
    (run / "other.json").rename(run / "summary.json")
    assert inventory.changes(run) == ()
    for place in range(0, len(written), len(written) // 5):
        (run / "run.log").write_bytes(written[:place] + b"~" + written[place + 1 :])
        assert [str(each) for each in inventory.changes(run)] == ["run.log changed"]
