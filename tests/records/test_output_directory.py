"""A run gets a directory in which nothing can be lost."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import embexp
from embexp.errors import ConfigError, DataError, NotARunError, RunError, UsageError, VocabularyError
from embexp.records import inventory, outputs
from embexp.records.folder import RunFolder
from embexp.records.outputs import OutputDirectory
from embexp.specs.run import RunSpec
from embexp.specs.running import Existing
from tests.locked import held_elsewhere

REFUSED = [Existing.REFUSE, Existing.CONTINUE, Existing.REPLACE]


@pytest.fixture(scope="module")
def spec() -> RunSpec:
    return embexp.compose(["seed=1"])


def use(path: Path, spec: RunSpec, existing: Existing = Existing.REFUSE) -> OutputDirectory:
    with outputs.opened_directory(path, spec, existing) as found:
        assert found.path.is_dir()
        assert RunFolder(found.path).lock.writer()
        assert RunFolder(found.path).recorded_spec().seed == spec.seed
    return found


def begin(path: Path, spec: RunSpec) -> None:
    """A run that is killed before its first step."""
    use(path, spec)
    for name in ("run.log", "manifest.json", "vocabularies/item.tsv", "events/events.out", ".hydra/config.yaml"):
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_text("earlier")
    (path / "checkpoints" / ".step_00000010.0badf00d.part").mkdir(parents=True)


def train(path: Path, spec: RunSpec) -> None:
    """A run that is killed after some steps."""
    begin(path, spec)
    (path / "checkpoints" / "step_00000010").mkdir()
    (path / "checkpoints" / "step_00000010" / "checkpoint.index").write_text("values")
    (path / "metrics.jsonl").write_text('{"step": 10}\n')


def complete(path: Path, spec: RunSpec) -> None:
    """A run to its last file; some of it is in a run of a study."""
    train(path, spec)
    shutil.rmtree(path / "checkpoints" / ".step_00000010.0badf00d.part")
    (path / "base").mkdir()
    with RunFolder(path / "base").writing():
        (path / "base" / "summary.json").write_text("{}")
        inventory.seal(path / "base")
    (path / "summary.json").write_text("{}")
    inventory.seal(path)


def names(path: Path) -> list[str]:
    return sorted(str(each.relative_to(path)) for each in path.rglob("*"))


def test_a_new_one_and_an_empty_one(tmp_path: Path, spec: RunSpec) -> None:
    assert use(tmp_path / "a" / "b", spec) == OutputDirectory(tmp_path / "a" / "b")
    (tmp_path / "empty").mkdir()
    assert use(tmp_path / "empty", spec) == OutputDirectory(tmp_path / "empty")


def fail(path: Path, spec: RunSpec, error: Exception, write: Callable[..., object], existing: Existing) -> None:
    def refused() -> None:
        with outputs.opened_directory(path, spec, existing) as found:
            write(found.path)
            raise error

    with pytest.raises(type(error)):
        refused()


def log(path: Path) -> None:
    (path / "run.log").write_text("loading TensorFlow")
    (path / "vocabularies").mkdir()


@pytest.mark.parametrize("existing", Existing)
@pytest.mark.parametrize("error", [DataError("a label"), UsageError("a task"), VocabularyError("an id")])
def test_a_new_one_goes_again_where_the_input_is_refused(
    tmp_path: Path, spec: RunSpec, existing: Existing, error: Exception
) -> None:
    fail(tmp_path / "a" / "b", spec, error, log, existing)
    assert not (tmp_path / "a").exists()
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "mine").touch()
    fail(tmp_path / "a" / "b", spec, error, log, existing)
    assert names(tmp_path / "a") == ["mine"]


def test_one_that_was_there_stays_or_has_more_than_a_beginning(tmp_path: Path, spec: RunSpec) -> None:
    (tmp_path / "empty").mkdir()
    fail(tmp_path / "empty", spec, DataError("a label"), log, Existing.REFUSE)
    assert "run.log" in names(tmp_path / "empty")
    fail(tmp_path / "machine", spec, RunError("no memory"), log, Existing.REFUSE)
    assert "run.log" in names(tmp_path / "machine")
    fail(tmp_path / "study", spec, DataError("a label"), lambda path: (path / "day_1").mkdir(), Existing.REFUSE)
    assert "day_1" in names(tmp_path / "study")
    metrics = lambda path: (path / "metrics.jsonl").write_text("{}\n")  # noqa: E731
    fail(tmp_path / "trained", spec, DataError("a label"), metrics, Existing.REFUSE)
    assert "metrics.jsonl" in names(tmp_path / "trained")


@pytest.mark.parametrize("existing", REFUSED)
def test_one_in_which_nothing_has_begun_is_used_again(tmp_path: Path, spec: RunSpec, existing: Existing) -> None:
    begin(tmp_path / "run", spec.model_copy(update={"seed": 7}))
    assert use(tmp_path / "run", spec, existing) == OutputDirectory(tmp_path / "run")
    assert names(tmp_path / "run") == [".hydra", ".hydra/config.yaml", ".lock", "run.log", "spec.json"]


@pytest.mark.parametrize("make", [train, complete])
def test_a_run_is_refused_unless_something_else_is_chosen(tmp_path: Path, spec: RunSpec, make: object) -> None:
    make(tmp_path / "run", spec)  # type: ignore[operator]
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    words = rf"hydra\.run\.dir = {tmp_path / 'run'}: it already holds a run\.\n +choose another directory, or choose: "
    with pytest.raises(ConfigError, match=f"{words}output.existing=number.*continue.*replace"):
        use(tmp_path / "run", spec)
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before
    found = use(tmp_path / "run", spec, Existing.NUMBER)
    assert found.path == tmp_path / "run_2"
    assert found.why == f": {tmp_path / 'run'} already holds a run; `embexp resume {tmp_path / 'run'}` continues it"
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before
    assert use(tmp_path / "run", spec, Existing.CONTINUE) == OutputDirectory(tmp_path / "run", continues=True)


@pytest.mark.parametrize("existing", REFUSED)
def test_what_is_not_of_a_run_stays(tmp_path: Path, spec: RunSpec, existing: Existing) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").touch()
    with pytest.raises(ConfigError, match="not empty"):
        use(tmp_path / "home", spec, existing)
    assert names(tmp_path / "home") == ["thesis.tex"]  # not even the file of a lock
    begin(tmp_path / "run", spec)
    (tmp_path / "run" / "thesis.tex").touch()
    if existing is not Existing.CONTINUE:
        with pytest.raises(ConfigError):
            use(tmp_path / "run", spec, existing)
    with pytest.raises(ConfigError, match="there is a file with that name"):
        use(tmp_path / "home" / "thesis.tex", spec, existing)


def test_a_complete_run_is_replaced(tmp_path: Path, spec: RunSpec) -> None:
    complete(tmp_path / "run", spec.model_copy(update={"seed": 7}))
    use(tmp_path / "run", spec, Existing.REPLACE)
    assert names(tmp_path / "run") == [".lock", "spec.json"]


def test_a_replacement_that_was_killed_is_repeated(
    tmp_path: Path, spec: RunSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    complete(tmp_path / "run", spec)
    unlink, left = Path.unlink, [3]

    def killed(path: Path, **named: bool) -> None:
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt
        unlink(path, **named)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", killed)
        with pytest.raises(KeyboardInterrupt):
            use(tmp_path / "run", spec, Existing.REPLACE)
    use(tmp_path / "run", spec, Existing.REPLACE)
    assert names(tmp_path / "run") == [".lock", "spec.json"]


@pytest.mark.parametrize("where", ["notes.txt", "checkpoints/mine/a", "base/mine"])
def test_nothing_is_replaced_that_the_run_did_not_write(tmp_path: Path, spec: RunSpec, where: str) -> None:
    complete(tmp_path / "run", spec)
    (tmp_path / "run" / where).parent.mkdir(exist_ok=True)
    (tmp_path / "run" / where).write_text("mine")
    before = names(tmp_path / "run")
    with pytest.raises(ConfigError, match=rf"something else \(added: {where}\)"):
        use(tmp_path / "run", spec, Existing.REPLACE)
    assert names(tmp_path / "run") == before


def test_only_complete_runs_are_replaced(tmp_path: Path, spec: RunSpec) -> None:
    train(tmp_path / "run", spec)
    before = names(tmp_path / "run")
    with pytest.raises(ConfigError, match=r"only complete runs, but this one has no inventory\.json"):
        use(tmp_path / "run", spec, Existing.REPLACE)
    assert names(tmp_path / "run") == before
    complete(tmp_path / "other", spec)
    (tmp_path / "other" / "metrics.jsonl").write_text("edited")
    with pytest.raises(ConfigError, match=r"changed: metrics\.jsonl"):
        use(tmp_path / "other", spec, Existing.REPLACE)


@pytest.mark.parametrize("existing", [Existing.CONTINUE, Existing.REPLACE])
def test_a_live_run_is_left_alone(tmp_path: Path, spec: RunSpec, existing: Existing) -> None:
    complete(tmp_path / "run", spec)
    before = names(tmp_path / "run")
    with held_elsewhere(tmp_path / "run") as process, contextlib.ExitStack() as stack:
        stack.enter_context(pytest.raises(RunError, match=f"is in use: process {process.pid} on "))
        use(tmp_path / "run", spec, existing)
    assert names(tmp_path / "run") == before


def test_what_differs_from_the_run_that_is_to_be_continued(tmp_path: Path, spec: RunSpec) -> None:
    train(tmp_path / "run", spec)
    other = embexp.compose(["seed=2", "output.plots=false", "output.existing=continue"])
    with pytest.raises(ConfigError, match=r"seed: 1 in its spec\.json, 2 in this config; output\.plots: true in its"):
        use(tmp_path / "run", other, Existing.CONTINUE)
    same = embexp.compose(["seed=1", "output.existing=continue"])
    assert use(tmp_path / "run", same, Existing.CONTINUE).continues


def test_a_run_that_was_killed_before_it_had_a_spec(tmp_path: Path, spec: RunSpec) -> None:
    with RunFolder(tmp_path).writing():
        pass
    with pytest.raises(NotARunError, match=r"no spec\.json in it, so no run has begun there; start it again"):
        embexp.resume(tmp_path)
    assert use(tmp_path, spec) == OutputDirectory(tmp_path)


@pytest.mark.parametrize("spec_json", [None, "{}"])
@pytest.mark.parametrize("existing", REFUSED)
def test_folders_of_somebody_else_are_not_emptied_whatever_their_names(
    spec: RunSpec, tmp_path: Path, existing: Existing, spec_json: str | None
) -> None:
    for name in ("code/train.py", "events/party.txt"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("mine")
    if spec_json is not None:
        (tmp_path / "spec.json").write_text(spec_json)

    with pytest.raises((ConfigError, NotARunError)):
        use(tmp_path, spec, existing)

    assert (tmp_path / "code" / "train.py").read_text() == "mine"
    assert (tmp_path / "events" / "party.txt").read_text() == "mine"


def test_what_belongs_before_the_spec_is_there_when_the_spec_is(spec: RunSpec, tmp_path: Path) -> None:
    def interrupted(directory: Path) -> None:
        assert not RunFolder(directory).spec.exists()
        (directory / ".hydra").mkdir()
        raise KeyboardInterrupt

    with (
        pytest.raises(KeyboardInterrupt),
        outputs.opened_directory(tmp_path / "run", spec, Existing.REFUSE, before=interrupted),
    ):
        pass

    assert not RunFolder(tmp_path / "run").spec.exists()
    use(tmp_path / "run", spec)  # the same command works again


def test_nothing_is_removed_behind_a_link(spec: RunSpec, tmp_path: Path) -> None:
    complete(tmp_path / "run", spec)
    elsewhere = tmp_path / "other disk"
    shutil.move(tmp_path / "run" / "checkpoints", elsewhere)
    (tmp_path / "run" / "checkpoints").symlink_to(elsewhere)

    with pytest.raises(ConfigError, match="does not follow links, but checkpoints is one"):
        use(tmp_path / "run", spec, Existing.REPLACE)

    assert (elsewhere / "step_00000010" / "checkpoint.index").exists()
