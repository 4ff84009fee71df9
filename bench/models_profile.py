"""Where the time of a training step goes, from the timeline of TensorFlow's profiler."""

from __future__ import annotations

import collections
import re
from collections.abc import Iterator
from pathlib import Path

PARTS = ("rows", "forward", "backward", "dense_rule")
"""The name scopes of a training step (`embexp.training.step`)."""
LARGEST = 8
_SCOPE = re.compile(f"({'|'.join(PARTS)})(?:_[0-9]+)?")


def parts(folder: Path, steps: int) -> dict[str, float]:
    """Milliseconds of a step by part, summed over threads, so that together they may be more than its duration.

    Args:
        folder: that of `tf.profiler.experimental.start`.
        steps: how many were done meanwhile.

    Returns:
        By the names of `PARTS`; `input`, which is that of tf.data's threads; `other`; and then by kind of operation the
        `LARGEST` kinds.
    """
    found: dict[str, float] = dict.fromkeys((*PARTS, "input", "other"), 0.0)
    kinds: collections.defaultdict[str, float] = collections.defaultdict(float)
    for name, milliseconds in _events(folder):
        if name == "PrefetchProduce":
            found["input"] += milliseconds / steps
            continue
        scopes, colon, kind = name.rpartition(":")
        if not colon or "::" in name or "/" not in scopes:
            continue
        part = _part(scopes)
        found[part] += milliseconds / steps
        kinds[f"{part}: {kind}"] += milliseconds / steps
    largest = sorted(kinds.items(), key=lambda kind: -kind[1])[:LARGEST]
    return {**found, **dict(largest)}


def _part(scopes: str) -> str:
    """The part of a step that an operation belongs to, from its name; TensorFlow numbers scopes of one name."""
    if "/gradient_tape/" in scopes:  # of the operations of the scope whose name follows
        return "backward"
    return next((found[1] for scope in scopes.split("/") if (found := _SCOPE.fullmatch(scope))), "other")


def _events(folder: Path) -> Iterator[tuple[str, float]]:
    """Names and milliseconds of all events on the processor."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    [file] = folder.rglob("*.xplane.pb")
    space = xplane_pb2.XSpace()
    space.ParseFromString(file.read_bytes())
    for plane in space.planes:
        if "CPU" in plane.name:
            for line in plane.lines:
                for event in line.events:
                    yield plane.event_metadata[event.metadata_id].name, event.duration_ps / 1e9
