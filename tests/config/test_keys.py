"""The reference of keys: it is complete, every key is explained, and a key is found by any name it goes by."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from embexp.cli import commands
from embexp.config import folders, keys

FOUND = folders.find()
PARTS = keys.parts(FOUND)
PLACES = {
    "table": "tables.NAME",
    "feature": "features.NAME",
    "initializer": "tables.NAME.initializer",
    "schedule": "optimizer.schedule",
}
FILES = [("", path) for path in FOUND.shipped.glob("*.yaml")]
FILES += [(group, path) for group, choices in FOUND.choices.items() for path in choices.values()]


def test_every_key_is_explained() -> None:
    for part in PARTS:
        assert part.text
        assert (Path("docs") / part.page.partition("#")[0]).exists()
        assert all(part.choices.values())
        assert not [key for key in part.keys if not key.text or not key.values]


def test_a_choice_has_each_key_once() -> None:
    for part in PARTS:
        for kind in part.choices or [""]:
            paths = [key.path for key in part.keys if kind in (key.of or (kind,))]
            assert len(paths) == len(set(paths)), (part.path, kind)


def leaves(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            if path or key not in ("defaults", "hydra"):
                yield from leaves(inner, f"{path}.{key}".lstrip("."))
    else:
        yield path


@pytest.mark.parametrize(("group", "path"), FILES, ids=lambda each: str(getattr(each, "stem", each)))
def test_every_key_of_every_file_is_there(group: str, path: Path) -> None:
    place = "" if not group or folders.package_of(path) == "_global_" else PLACES.get(group, group)
    content = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    content.pop("defaults", None)
    for leaf in leaves(content, place):
        is_kind_of_choice = leaf.endswith(".kind") and not keys.matching(PARTS, [leaf])
        assert is_kind_of_choice or keys.matching(PARTS, [leaf]), leaf


@pytest.mark.parametrize(
    ("words", "expected"),
    {
        ("seed",): {"seed"},
        ("tables.item.dim",): {"tables.NAME.dim"},
        ("early_stopping.patience",): {"train.early_stopping.patience"},
        ("tables.item.freeze.rows",): {"freeze.rows"},
        ("SHUFFLE", "window"): {"data.window"},
        ("no such words",): set(),
    }.items(),
)
def test_keys_are_found(words: tuple[str, ...], expected: set[str]) -> None:
    found = {key.path for _, hits in keys.matching(PARTS, words) for key in hits}
    assert found == expected


def test_values_and_defaults() -> None:
    table = {key.path: key for part in PARTS if part.path == "tables.NAME" for key in part.keys}
    assert table["tables.NAME.combiner"].values == "sum, mean or sqrtn"
    assert table["tables.NAME.combiner"].default == "mean"
    assert table["tables.NAME.dim"].default == ""  # it must be set
    assert table["tables.NAME.dim"].text == "Dimension of a row; null: as in the pretrained file."  # that of the base


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main(["keys", "train.batch_size"]) == 0
    assert "train.batch_size = 1024" in capsys.readouterr().out
    assert commands.main(["keys"]) == 0
    assert "tables.NAME " in capsys.readouterr().out
    assert commands.main(["keys", "freeze"]) == 0
    assert "also at: tables.NAME.freeze" in capsys.readouterr().out
    assert commands.main(["keys", "train.bach_size"]) == 2
    assert "did you mean train.batch_size?" in capsys.readouterr().err


def test_errors_name_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert commands.main(["plan", "train.batch_size=0", "train.stesp=3", "model=mlpp"]) == 2
    said = capsys.readouterr().err
    assert said.rstrip().endswith(
        "explained by `embexp keys model`, `embexp keys train.batch_size`, `embexp keys train`"
    )
