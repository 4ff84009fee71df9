"""What a run's folder holds, without times: to compare a run that was killed with one that was not."""

from __future__ import annotations

import contextlib
import csv
import json
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from embexp.checkpoints.store import plain_path

_VARYING = {
    *(
        "throughput",
        "fused_operations",
        "initialization",
        "resumed_at",
        "timing",
        "pid",
        "appended",
        "started",
        "ended",
    ),
    *("rooms", "enlarged", "padding"),
    *("attempts", "files", "directory", "host", "created", "inventory", "inventory_digest"),
}
"""Keys, at any depth, whose values tell of time, memory, sizes of files and messages, places, or the attempts."""
_ONLY_THERE = re.compile(
    r"run\.log|job\.log|log|seconds\.json|manifest\.json|inventory\.json|.*\.(png|svg|html|log|pdf)|hydra\.yaml|multirun\.yaml|\.lock"
)
"""Names of files of which only their being there is compared."""
_EVENTS = re.compile(r"events\.out\.tfevents\..*")
_LEFTOVER = re.compile(r".*\.(part|gone|tmp)|.*\.making-.*|.*-journal|.*-wal|\.probe\..*|tmp\w{8}")


def leftovers(folder: Path) -> list[str]:
    """What is temporary in a folder, by the names of files and folders."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if _LEFTOVER.fullmatch(path.name))


def content(folder: Path) -> dict[str, Any]:
    """All that a run, a study or a sweep has come to, by relative path of each file, without temporary ones."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        temporary = any(_LEFTOVER.fullmatch(part) for part in Path(name).parts)
        if path.is_dir() or temporary or "checkpoints/estimator/" in name:
            continue
        if _EVENTS.fullmatch(path.name):
            curves = found.setdefault(str(Path(name).parent / "events"), {})
            for tag, point in _points(path):
                curves.setdefault(tag, []).append(point)
            continue
        if path.name.startswith("checkpoint.data-"):
            found[re.sub(r"[0-9]{5}", "*", name)] = None
            continue
        found[name] = _content(path)
    for name in (name for name in found if Path(name).name == "events"):
        found[name] = {tag: sorted(points) for tag, points in found[name].items()}
    return found


def _content(path: Path) -> Any:
    if path.name == "checkpoint.index":
        return _tensors(path.with_suffix(""))
    if path.name == "sweep.sqlite":
        return _rows(path, "SELECT number, overrides, spec, state, reason, same_as, run_id FROM jobs ORDER BY number")
    if path.name == "optuna.sqlite":
        return _rows(path, "SELECT number, state FROM trials ORDER BY number")
    if _ONLY_THERE.fullmatch(path.name):
        return None
    if path.suffix == ".json":
        return _without_times(json.loads(path.read_bytes()))
    if path.suffix == ".jsonl":
        return [_without_times(json.loads(line)) for line in path.read_text().splitlines()]
    if path.suffix == ".csv":
        with path.open(newline="") as lines:
            return [_without_times(row) for row in csv.DictReader(lines)]
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as stored:
            return {key: stored[key].tobytes() for key in stored.files}
    return path.read_bytes()


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_times(each) for key, each in value.items() if not _varies(key)}
    if isinstance(value, list):
        return [_without_times(each) for each in value]
    return value


def _varies(key: str) -> bool:
    return key in _VARYING or "second" in key or key.startswith(("initialization", "throughput"))


def _rows(path: Path, query: str) -> list[tuple[Any, ...]]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


def _tensors(prefix: Path) -> dict[str, bytes]:
    with plain_path(prefix.parent) as plain:
        reader = tf.train.load_checkpoint(str(plain / prefix.name))
        return {
            key: np.asarray(reader.get_tensor(key)).tobytes()
            for key in reader.get_variable_to_shape_map()
            if not key.endswith("OBJECT_GRAPH") and not key.startswith("save_counter")
        }


def _points(path: Path) -> Iterator[tuple[str, tuple[int, float]]]:
    """What TensorBoard would draw, by tag; throughput is left out."""
    for event in tf.compat.v1.train.summary_iterator(str(path)):
        for value in event.summary.value:
            if value.metadata.plugin_data.plugin_name == "scalars" and value.tag != "examples_per_second":
                yield value.tag, (event.step, float(tf.make_ndarray(value.tensor)))


def differences(expected: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """What differs, a line for each file."""
    lines = [f"{name}: missing" for name in expected if name not in found]
    lines += [f"{name}: unexpected" for name in found if name not in expected]
    for name, value in expected.items():
        if name in found and found[name] != value:
            lines.append(f"{name}: {_where(value, found[name])}")
    return lines


def _where(expected: Any, found: Any) -> str:
    if isinstance(expected, dict) and isinstance(found, dict):
        for key in dict.fromkeys([*expected, *found]):
            if expected.get(key) != found.get(key):
                return f"{key}: {_where(expected.get(key), found.get(key))}"
    if isinstance(expected, list) and isinstance(found, list):
        for number, (one, other) in enumerate(zip(expected, found, strict=False)):
            if one != other:
                return f"[{number}]: {_where(one, other)}"
        return f"{len(expected)} expected, {len(found)} found"
    return f"{str(expected)[:80]} expected, {str(found)[:80]} found"
