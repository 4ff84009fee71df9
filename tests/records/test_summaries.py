"""A damaged summary.json is told in a sentence, whatever is wrong with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embexp.errors import NotARunError
from embexp.records import folder
from embexp.records.folder import RunFolder

WHOLE: dict[str, Any] = {
    "status": "completed",
    "steps": 40,
    "best_step": None,
    "metrics": {"train": {"loss": 0.5}, "test": {"auc": None, "rmse": 1}},
    "initialization": {"seconds": 0.1, "tables": {"item": {"bytes": 640, "pretrained": None}}},
    "freeze": {"item": {"frozen_rows": 0, "trainable_rows": 10}},
    "tables": {"item": {"vocabulary_size": 10, "dim": 16, "storage": "variable"}},
    "warnings": ["a table never moved"],
    "of a later version": [{}],
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def read(folder: Path, text: bytes) -> dict[str, Any]:
    (folder / "summary.json").write_bytes(text)
    return RunFolder(folder).read_summary()


def paths(content: dict[str, Any], before: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for key, value in content.items():
        found += [(*before, key), *(paths(value, (*before, key)) if isinstance(value, dict) else [])]
    return found


def test_a_whole_one_is_read(tmp_path: Path) -> None:
    assert read(tmp_path, json.dumps(WHOLE).encode()) == WHOLE
    study = {"study": "new_entities", "status": "completed", "metrics": {"any": {"depth": {"x": 1}}}}
    assert read(tmp_path, json.dumps(study).encode()) == study


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "it is not JSON"),
        (json.dumps(WHOLE).encode()[:200], "it is not JSON"),
        (b"\xff\xfe\x00", "it is not JSON"),
        (100_000 * b"[", "it is not JSON"),
        (b"[]", "it is not a JSON object"),
        (b"null", "it is not a JSON object"),
        (b"{}", "it has no status, steps, metrics, initialization, freeze, tables"),
        (json.dumps(WHOLE | {"steps": "40"}).encode(), "steps: input should be a valid integer"),
        (json.dumps(WHOLE | {"metrics": []}).encode(), "metrics: input should be a valid dictionary"),
        (json.dumps(WHOLE | {"freeze": {}}).encode(), "freeze has no table item"),
        (json.dumps(WHOLE | {"tables": {"item": {}}}).encode(), "tables.item has no vocabulary_size"),
    ],
)
def test_a_damaged_one_is_told(text: bytes, words: str, tmp_path: Path) -> None:
    with pytest.raises(NotARunError) as told:
        read(tmp_path, text)
    assert str(told.value).startswith(f"{tmp_path}/summary.json is damaged: {words}")
    assert f"embexp resume {tmp_path}" in str(told.value)


@given(st.data())
def test_any_value_in_any_place_is_accepted_or_told(data: st.DataObject) -> None:
    """What is accepted has the types that readers rely on."""
    content = json.loads(json.dumps(WHOLE))
    path = data.draw(st.sampled_from(paths(WHOLE)))
    place = content
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = data.draw(JSON)
    if not folder.damage_of_summary(content, required=folder.OF_A_RUN):
        assert isinstance(content["status"], str)
        assert int(content["steps"]) == content["steps"]
        for name, table in content["tables"].items():
            assert table["vocabulary_size"] * table["dim"] is not None
            assert content["initialization"]["tables"][name] is not None
            content["freeze"][name].get("trainable_rows")
        for values in content["metrics"].values():
            assert all(value is None or isinstance(value, (int, float)) for value in values.values())
