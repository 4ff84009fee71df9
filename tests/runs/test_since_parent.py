"""Checkpoints of a run that goes on: what moved since the parent, read as whole ones, also when the parent is gone."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import embexp
from embexp.checkpoints import contents, store
from embexp.cli.commands import main
from embexp.errors import CheckpointError, DataError
from embexp.records import inventory
from embexp.records.inventory import ChangeKind
from embexp.runs import run as single
from embexp.system.tensor_bundle.increments import is_incremental
from embexp.training import loop

QUIET = ("output.plots=false", "output.tensorboard=false", "output.baselines=false")
USERS, NEW, DIM = 2000, 20, 8


def write(path: Path, users: range, count: int, seed: int) -> Path:
    random, lines = np.random.default_rng(seed), ["user,item,label"]
    for number in range(count):
        user, item = users[number % len(users)], random.integers(6)
        lines.append(f"u{user},i{item},{int(random.random() < 0.2 + 0.1 * item)}")
    path.write_text("\n".join(lines) + "\n")
    return path


def tensors(run: Path) -> dict[str, bytes]:
    """All values of a run's final checkpoint, by key."""
    entries = contents.open_checkpoint(run / "checkpoints/final/checkpoint.index").entries
    return {key: each.values.value().tobytes() for key, each in entries.items() if each.numeric}


def disk(*folders: Path) -> int:
    """Bytes that checkpoints take on disk, each file counted once however many names it has."""
    files = {path.stat().st_ino: path.stat().st_size for each in folders for path in each.rglob("checkpoint.*")}
    return sum(files.values())


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs: of 2,000 users, then of 40 and 20 new ones each; and the last two with whole checkpoints."""
    here = tmp_path_factory.mktemp("chain")
    write(here / "one.csv", range(USERS), USERS, 0)
    for number, day in enumerate(("two", "three"), 1):
        start = USERS + NEW * (number - 1) - 40
        write(here / f"{day}.csv", range(start, start + 40 + NEW), 240, number)
    first = ["run", "experiment=likes", f"data.path={here / 'one.csv'}", f"output.cache={here / 'cache'}", *QUIET]
    (here / "own/experiment").mkdir(parents=True)
    (here / "own/experiment/likes.yaml").write_text(LIKES)
    assert main([*first, "--config-dir", str(here / "own"), f"hydra.run.dir={here / 'one'}"]) == 0
    for kind, more in (("", []), ("whole-", ["checkpoint.since_parent=false"])):
        for parent, day in (("one", "two"), (f"{kind}two", "three")):
            given = ["continue", str(here / parent), "--data", str(here / f"{day}.csv"), *more]
            assert main([*given, f"hydra.run.dir={here / f'{kind}{day}'}"]) == 0
    return here


LIKES = """\
# @package _global_
defaults:
  - /table@tables.user: embedding
  - /table@tables.item: embedding
  - /feature@features.user: id
  - /feature@features.item: id
  - override /data: csv
  - override /graph: null
  - override /model: mlp
  - override /optimizer: adagrad
name: likes
task: binary
data: {label: label, vocabulary: {min_frequency: 1}, split: {validation: 0.1, test: 0.1}}
tables:
  user: {dim: 8}
  item: {dim: 8}
features:
  user: {table: user}
  item: {table: item}
model: {hidden: [4]}
train: {epochs: 2, steps: null, batch_size: 16, early_stopping: {patience: 5}}
checkpoint: {every_steps: 4, keep_best: true}
"""


def test_it_has_the_bits_of_a_whole_one_and_the_bytes_of_what_moved(chain: Path) -> None:
    one = disk(chain / "one")
    for links, day in enumerate(("two", "three"), 1):
        assert is_incremental(chain / day / "checkpoints/final/checkpoint")
        assert not is_incremental(chain / f"whole-{day}" / "checkpoints/final/checkpoint")
        assert tensors(chain / day) == tensors(chain / f"whole-{day}")
        names = sorted(each.name for each in (chain / day / "checkpoints").iterdir() if each.is_dir())
        assert names == ["best", *(f"earlier_{number + 1}" for number in range(links)), "final"]
    # A user and an item of 8 numbers, each with an accumulator, and the users' numbers.
    moved = (40 + NEW) * (2 * 4 * DIM + 8) + 7 * (2 * 4 * DIM + 8)
    of_link = disk(chain / "one", chain / "two") - one
    dense = sum(path.stat().st_size for path in (chain / "two/checkpoints/final").glob("*-00000-of-*"))
    assert of_link - 2 * dense < 2 * 1.1 * moved + 5000  # final and best, with their indexes
    assert of_link < one / 4


@pytest.fixture
def _no_parents(chain: Path) -> Iterator[None]:
    for name in ("one", "two"):
        (chain / name).rename(chain / f"{name}-elsewhere")
    yield
    for name in ("one", "two"):
        (chain / f"{name}-elsewhere").rename(chain / name)


@pytest.mark.usefixtures("_no_parents")
def test_the_parents_may_be_removed(chain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    expected = tensors(chain / "three")
    shutil.copytree(chain / "three", tmp_path / "alone")
    run = embexp.load_run(tmp_path / "alone")
    whole = embexp.load_run(chain / "whole-three")
    assert np.array_equal(run.table("user"), whole.table("user"))
    rows = chain / "three.csv"
    assert np.array_equal(run.predict(rows), whole.predict(rows))
    assert run.evaluate(rows) == whole.evaluate(rows)
    for name in ("alone", "whole-three"):
        parent = (tmp_path if name == "alone" else chain) / name
        more = ["train.steps=2", "checkpoint.every_steps=null", *QUIET]
        embexp.continue_run(parent, rows, more, tmp_path / f"after-{name}", quiet=True)
    assert tensors(tmp_path / "after-alone") == tensors(tmp_path / "after-whole-three")
    assert (tmp_path / "after-alone/checkpoints/earlier_3").is_dir()
    assert (
        main(["checkpoint", "convert", str(tmp_path / "alone"), str(tmp_path / "whole/checkpoint"), "--to", "object"])
        == 0
    )
    entries = contents.open_checkpoint(tmp_path / "whole/checkpoint").entries
    assert {key: each.values.value().tobytes() for key, each in entries.items() if each.numeric} == expected
    capsys.readouterr()
    assert main(["checkpoint", "list", str(tmp_path / "alone")]) == 0
    assert "incremental: its bytes are of the rows that changed since" in capsys.readouterr().out
    assert main(["checkpoint", "diff", str(tmp_path / "alone"), str(chain / "whole-three")]) == 0
    assert "embedding/" not in capsys.readouterr().out  # nothing of a table differs
    shutil.rmtree(tmp_path / "alone/checkpoints/earlier_1")
    with pytest.raises(CheckpointError, match=r"earlier_2 is an incremental.*earlier_1, which is missing"):
        contents.open_checkpoint(tmp_path / "alone")
    assert main(["verify", str(tmp_path / "alone")]) != 0
    assert "earlier_1" in "".join(capsys.readouterr())


@pytest.mark.usefixtures("forked_jobs")
def test_a_link_is_verified_exported_and_grown(chain: Path, tmp_path: Path) -> None:
    assert embexp.verify(chain / "three").identical
    for name in ("", "whole-"):
        assert main(["export", str(chain / f"{name}three"), str(tmp_path / f"{name}served"), "--as", "savedmodel"]) == 0
        (tmp_path / "users.txt").write_text("u1\nu2\nnobody\n")
        grown = ["checkpoint", "grow", str(chain / f"{name}three"), "--vocabulary", f"user={tmp_path / 'users.txt'}"]
        assert main([*grown, "--out", str(tmp_path / f"{name}grown"), "--gone", "drop"]) == 0
    assert tensors(tmp_path / "grown") == tensors(tmp_path / "whole-grown")
    served = [tmp_path / f"{name}served/variables/variables.data-00001-of-00002" for name in ("", "whole-")]
    assert served[0].read_bytes() == served[1].read_bytes()


@pytest.mark.parametrize("more", [{}, {"incremental": 3}], ids=["", "incremental"])
def test_a_link_that_was_interrupted_goes_on(chain: Path, tmp_path: Path, more: dict[str, int]) -> None:
    spec = embexp.load_run(chain / "three").folder.recorded_spec()
    spec = spec.model_copy(update={"checkpoint": spec.checkpoint.model_copy(update=more)})
    (tmp_path / "run").mkdir()
    stopped = single.run(spec, tmp_path / "run", replay=loop.Replay(save_at=[3, 6, 8], stop_after=8))
    assert stopped.status == "interrupted"
    steps = store.step_directories(tmp_path / "run/checkpoints")
    assert [store.follows_step(each) for each in steps] == [False, *[bool(more)] * (len(steps) - 1)]
    assert all(is_incremental(each / "checkpoint") for each in steps)
    assert embexp.resume(tmp_path / "run", quiet=True).status == "completed"
    assert is_incremental(tmp_path / "run/checkpoints/final/checkpoint")
    assert tensors(tmp_path / "run") == tensors(chain / "three")


def test_where_most_moved_or_nothing_can_be_linked_all_rows_are_saved(
    chain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    everyone = write(tmp_path / "all.csv", range(USERS), USERS, 3)
    few = chain / "two.csv"
    given = ["train.epochs=1", "checkpoint.every_steps=null", "checkpoint.keep_best=false", *QUIET]

    def final(name: str, data: Path) -> Path:
        embexp.continue_run(chain / "one", data, given, tmp_path / name, quiet=True)
        assert not [*(tmp_path / name).glob("checkpoints/earlier*")]
        return tmp_path / name / "checkpoints/final/checkpoint"

    assert not is_incremental(final("most", everyone))
    monkeypatch.setattr(Path, "hardlink_to", no_link)
    assert not is_incremental(final("elsewhere", few))


LINK = ("train.epochs=1", "checkpoint.every_steps=null", "checkpoint.keep_best=false", *QUIET)


def test_the_inventory_lists_the_parents_files_as_the_parents_does(
    chain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bytes that change between their check and the end of the run are found."""
    for name in ("two", "three"):
        assert inventory.changes(chain / name) == ()  # each file is read, and has the digest that is listed
    parent, link = tmp_path / "parent", store.link_earlier
    shutil.copytree(chain / "one", parent)

    def linked(index: Path, checkpoints: Path) -> Path | None:
        found = link(index, checkpoints)
        flip(max(index.parent.glob("*.data-*"), key=lambda path: path.stat().st_size))
        return found

    monkeypatch.setattr(store, "link_earlier", linked)
    embexp.continue_run(parent, chain / "two.csv", LINK, tmp_path / "link", quiet=True)
    [change] = inventory.changes(tmp_path / "link")
    assert (change.kind, change.path.rsplit("/", 1)[0]) == (ChangeKind.CHANGED, "checkpoints/earlier_1")
    assert main(["verify", str(tmp_path / "link")]) != 0
    assert change.path in "".join(capsys.readouterr())


def flip(path: Path) -> None:
    """Changes a byte in the middle of a file, of which all names show it."""
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        [byte] = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte ^ 1]))


@pytest.mark.parametrize("sealed", [True, False])
def test_a_parent_with_other_bytes_is_refused(chain: Path, tmp_path: Path, sealed: bool) -> None:
    """By its inventory or, where it has none, by the checksums of its tensors."""
    parent = tmp_path / "parent"
    shutil.copytree(chain / "two", parent)
    flip(max(parent.glob("checkpoints/earlier_1/*.data-*"), key=lambda path: path.stat().st_size))
    if not sealed:
        (parent / "inventory.json").unlink()
    rule = "has changed since the run wrote it, says inventory.json" if sealed else "checksum"
    with pytest.raises(DataError, match=rf"earlier_1/checkpoint.*{rule}"):
        embexp.continue_run(parent, chain / "three.csv", LINK, tmp_path / "link", quiet=True)


def test_a_parent_that_is_removed_in_the_training_is_not_needed(
    chain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent, train = tmp_path / "parent", single.train
    shutil.copytree(chain / "one", parent)

    def without(*given: Any) -> loop.Outcome:
        shutil.rmtree(parent)
        return train(*given)

    monkeypatch.setattr(single, "train", without)
    embexp.continue_run(parent, chain / "two.csv", LINK, tmp_path / "link", quiet=True)
    assert not is_incremental(tmp_path / "link/checkpoints/final/checkpoint")
    assert inventory.changes(tmp_path / "link") == ()


def no_link(self: Path, target: Path) -> None:
    raise OSError(errno.EXDEV, "Invalid cross-device link")


def test_what_is_not_as_in_the_parent_is_saved_whole(chain: Path, tmp_path: Path) -> None:
    """Rows frozen apart from others, whose slots are saved with initial values, and slots of another optimizer."""
    given = ["train.epochs=1", "checkpoint.every_steps=null", "freeze@tables.user.freeze=old_rows", *QUIET]
    given.append("optimizer@tables.item.optimizer=adam")
    for kind in ("true", "false"):
        overrides = [*given, f"checkpoint.since_parent={kind}"]
        embexp.continue_run(chain / "two", chain / "three.csv", overrides, tmp_path / kind, quiet=True)
    assert tensors(tmp_path / "true") == tensors(tmp_path / "false")
    assert not is_incremental(tmp_path / "true/checkpoints/final/checkpoint")
