"""The inventory of a folder: what `sha256sum` says of its files, and each later change by name."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from embexp.errors import DataError
from embexp.records import inventory
from embexp.records.inventory import ChangeKind

_WEIGHTS = ["checkpoints/final/checkpoint.data", "checkpoints/step_00000002/checkpoint.data"]
"""Two names of one file."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder such as a run leaves, with an inventory."""
    contents = {
        "spec.json": b"{}",
        "metrics.jsonl": b'{"step": 1}\n{"step": 2}\n',
        "run.log": b"step 1\n",
        ".hydra/overrides.yaml": b"- seed=1\n",
        "checkpoints/final/checkpoint.data": bytes(range(256)) * 5000,
        "events/train/events.out": b"events",
        ".lock": b"",
        "checkpoints/.step_00000001.0f.part/state.json": b"{}",
    }
    for name, content in contents.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    os.mkdir(tmp_path / "checkpoints/step_00000002")
    os.link(tmp_path / "checkpoints/final/checkpoint.data", tmp_path / "checkpoints/step_00000002/checkpoint.data")
    inventory.seal(tmp_path)
    return tmp_path


def _named(found: tuple[inventory.Change, ...]) -> list[tuple[str, str]]:
    return [(each.path, each.kind.value) for each in found]


def test_digests_are_those_of_sha256sum(folder: Path) -> None:
    found = inventory.read(folder)
    assert found is not None
    listed = "".join(f"{each.sha256}  {name}\n" for name, each in found.files.items())
    checked = subprocess.run(
        ["sha256sum", "--check", "--strict"], cwd=folder, input=listed, text=True, capture_output=True, check=True
    )
    assert checked.stdout.splitlines() == [f"{name}: OK" for name in found.files]
    everything = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    left_out = {"inventory.json", ".lock", "checkpoints/.step_00000001.0f.part/state.json"}
    assert set(found.files) == everything - left_out
    own = subprocess.run(["sha256sum", "inventory.json"], cwd=folder, text=True, capture_output=True, check=True)
    assert own.stdout.split()[0] == found.digest == inventory.digest_of(folder) == inventory.seal(folder)
    assert inventory.changes(folder) == ()


def _flip(path: Path) -> None:
    """Flips a bit, and sets the times back."""
    status, content = path.stat(), bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def _flip_weights(folder: Path) -> None:
    _flip(folder / _WEIGHTS[0])


def _link(path: Path) -> None:
    shutil.move(path, path.parent.parent / "elsewhere")
    path.symlink_to(path.parent.parent / "elsewhere")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda folder: _flip(folder / "spec.json"), [("spec.json", "changed")]),
        (lambda folder: (folder / "run.log").write_bytes(b"step 2\n"), [("run.log", "changed")]),
        (lambda folder: (folder / "run.log").write_bytes(b""), [("run.log", "changed")]),
        (lambda folder: (folder / "run.log").write_bytes(b"step 1\nended\n"), [("run.log", "added")]),
        (_flip_weights, [(name, "changed") for name in _WEIGHTS]),
        (lambda folder: shutil.rmtree(folder / ".hydra"), [(".hydra/overrides.yaml", "removed")]),
        (lambda folder: (folder / "notes.txt").write_text("mine"), [("notes.txt", "added")]),
        (
            lambda folder: _link(folder / ".hydra/overrides.yaml"),
            [(".hydra/overrides.yaml", "changed"), ("elsewhere", "added")],
        ),
        (lambda folder: (folder / "inventory.json").write_text("{}"), [("inventory.json", "changed")]),
        (lambda folder: shutil.copytree(folder / ".hydra", folder / "copy"), [("copy/overrides.yaml", "added")]),
    ],
)
def test_each_change_is_named(folder: Path, change: Callable[[Path], object], expected: list[tuple[str, str]]) -> None:
    change(folder)
    assert _named(inventory.changes(folder)) == expected


def test_a_folder_that_became_a_link_is_the_same(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """As of somebody who has moved the checkpoints to another disk."""
    disk = tmp_path_factory.mktemp("disk") / "checkpoints"
    shutil.move(folder / "checkpoints", disk)
    (folder / "checkpoints").symlink_to(disk)
    moved = ("checkpoints", "now a link to a folder")
    assert _named(inventory.changes(folder)) == [moved]
    assert inventory.losses(inventory.changes(folder)) == ()
    inventory.check(folder, folder / "checkpoints", folder / "checkpoints" / "final")
    _flip(disk / "final" / "checkpoint.data")
    assert _named(inventory.changes(folder)) == [*((name, "changed") for name in _WEIGHTS), moved]
    (folder / "spec.json").unlink()
    (folder / "spec.json").symlink_to("/dev/zero")
    assert [str(each) for each in inventory.changes(folder)][-2] == (
        "spec.json changed (it was a file and is now a symbolic link)"
    )


def test_a_quick_comparison_takes_the_sizes_of_checkpoints(folder: Path) -> None:
    _flip(folder / "checkpoints/final/checkpoint.data")
    assert inventory.changes(folder, quick=True) == ()
    os.truncate(folder / "events/train/events.out", 3)
    _flip(folder / "spec.json")
    assert _named(inventory.changes(folder, quick=True)) == [
        ("events/train/events.out", "changed"),
        ("spec.json", "changed"),
    ]


def test_what_is_about_to_be_read_is_checked(folder: Path) -> None:
    inventory.check(folder, folder / "spec.json", folder / "checkpoints/final", folder / "coverage.json")
    _flip(folder / "checkpoints/final/checkpoint.data")
    inventory.check(folder, folder / "spec.json")
    with pytest.raises(DataError) as caught:
        inventory.check(folder, folder / "spec.json", folder / "checkpoints/final")
    assert str(folder / "checkpoints/final/checkpoint.data") in str(caught.value)
    (folder / "checkpoints/final/checkpoint.data").unlink()
    with pytest.raises(DataError, match="is missing"):
        inventory.check(folder, folder / "checkpoints/final")
    (folder / "coverage.json").write_text("{}")
    with pytest.raises(DataError, match=r"coverage.json was not written by the run.*remove it"):
        inventory.check(folder, folder / "coverage.json")
    inventory.unseal(folder)
    inventory.check(folder, folder / "coverage.json", folder / "checkpoints/final")
    assert inventory.read(folder) is None
    assert inventory.changes(folder) == ()


def test_a_folder_inside_is_listed_by_its_own_inventory(folder: Path, tmp_path: Path) -> None:
    study = tmp_path / "study"
    for name in ("base", "grown"):
        (study / name).mkdir(parents=True)
        (study / name / "spec.json").write_text("{}")
        inventory.seal(study / name)
    (study / "summary.json").write_text("{}")
    inventory.seal(study)
    found = inventory.read(study)
    assert found is not None
    assert list(found.files) == ["base/inventory.json", "grown/inventory.json", "summary.json"]
    (study / "base/spec.json").write_text("[]")
    assert _named(inventory.changes(study)) == [("base/spec.json", "changed")]
    inventory.seal(study / "base")
    assert _named(inventory.changes(study)) == [("base/inventory.json", "changed")]
    inventory.unseal(study / "grown")
    assert _named(inventory.changes(study)) == [("base/inventory.json", "changed"), ("grown/inventory.json", "removed")]


def test_a_rewritten_inventory_differs_from_the_digest_that_was_recorded(folder: Path) -> None:
    recorded = inventory.digest_of(folder)
    assert inventory.compare(folder, recorded, where="the ledger") == ()
    assert inventory.compare(folder, None, where="the ledger") == ()
    _flip(folder / "spec.json")
    assert recorded != inventory.seal(folder)
    found = inventory.compare(folder, recorded, where="the ledger")
    assert _named(found) == [("inventory.json", ChangeKind.CHANGED)]
    assert recorded is not None
    assert f"the ledger has {recorded[:12]}" in str(found[0])
    inventory.unseal(folder)
    assert _named(inventory.compare(folder, recorded, where="the ledger")) == [("inventory.json", "removed")]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[" * 100_000,
        '{"version": 2, "files": {}}',
        '{"files": {}}',
        '{"version": 1, "files": []}',
        *(
            json.dumps({"version": 1, "files": {name: {"bytes": size, "sha256": digest}}})
            for name, size, digest in [
                ("../x", 1, "0" * 64),
                ("/etc/passwd", 1, "0" * 64),
                ("", 1, "0" * 64),
                ("x\0", 1, "0" * 64),
                ("x", -1, "0" * 64),
                ("x", True, "0" * 64),
                ("x", "1", "0" * 64),
                ("x", 1, "0" * 63),
                ("x", 1, None),
            ]
        ),
    ],
)
def test_a_damaged_inventory_is_a_data_error(tmp_path: Path, content: str) -> None:
    (tmp_path / "inventory.json").write_text(content)
    with pytest.raises(DataError, match=r"inventory.json is damaged: .*; restore"):
        inventory.read(tmp_path)


def test_names_that_are_not_utf_8_and_what_is_no_file(tmp_path: Path) -> None:
    name = os.fsencode(tmp_path) + b"/r\xe9sum\xe9"
    with open(name, "wb") as file:
        file.write(b"x")
    os.symlink("nowhere", tmp_path / "dangling")
    os.mkfifo(tmp_path / "fifo")
    inventory.seal(tmp_path)
    assert inventory.changes(tmp_path) == ()
    os.unlink(name)
    assert [each.kind for each in inventory.changes(tmp_path)] == [ChangeKind.REMOVED]


def test_every_byte_of_tensorboards_file_of_the_digest_is_checked(tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow")
    (tmp_path / "spec.json").write_text("{}")
    digest, path = inventory.seal(tmp_path), tmp_path / "events" / "events.out.v2.inventory"
    path.parent.mkdir()
    with tf.io.TFRecordWriter(str(path)) as writer:
        writer.write(b"version")
        writer.write(f"text {digest}".encode())
    assert inventory.changes(tmp_path) == ()
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert _named(inventory.changes(tmp_path)) == [(f"events/{path.name}", "changed")], place
    for other in (b"", whole[:-1], whole + b"x", whole[:23]):
        path.write_bytes(other)
        assert _named(inventory.changes(tmp_path)) == [(f"events/{path.name}", "changed")]
    path.unlink()
    path.symlink_to(tmp_path / "spec.json")
    assert [str(each) for each in inventory.changes(tmp_path)] == [
        f"events/{path.name} changed (it was a file and is now a symbolic link)"
    ]
