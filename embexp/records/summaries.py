"""The types that summary.json must have, so that what reads it can rely on them."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

OF_A_RUN = ("status", "steps", "metrics", "initialization", "freeze", "tables")
"""Keys without which a run can't be loaded."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)


class _Table(_Part):
    vocabulary_size: int | None = None
    dim: int | None = None


class _Frozen(_Part):
    frozen_rows: int | None = None
    trainable_rows: int | None = None
    trainable_rows_touched: int | None = None
    trainable_rows_never_moved: int | None = None


class _Pretrained(_Part):
    path: str | None = None
    digest: str | None = None


class _Initialized(_Part):
    bytes: int | None = None
    pretrained: _Pretrained | None = None


class _Initialization(_Part):
    tables: dict[str, _Initialized] | None = None


class _Restored(_Part):
    checkpoint: str
    restored: list[str]
    left_out: list[str]


class _Summary(_Part):
    status: str | None = None
    name: str | None = None
    task: str | None = None
    run_id: str | None = None
    classes: list[str] | None = None
    columns: dict[str, str] | None = None
    steps: int | None = None
    best_step: int | None = None
    resumed_at: list[int] | None = None
    metrics: dict[str, dict[str, float | None]] | None = None
    truth: dict[str, float | None] | None = None
    examples: dict[str, int] | None = None
    throughput: dict[str, float | None] | None = None
    initialization: _Initialization | None = None
    freeze: dict[str, _Frozen] | None = None
    tables: dict[str, _Table] | None = None
    drift: dict[str, dict[str, Any]] | None = None
    restored: _Restored | None = None
    warnings: list[str] | None = None


def damage(content: Any, *, required: tuple[str, ...] = ()) -> str:
    """What is wrong with the content of summary.json, in a few words; "" if nothing is.

    Args:
        content: as it was read; that of a study has other keys, of which nothing is known here.
        required: keys that must be there.
    """
    if not isinstance(content, dict):
        return "it is not a JSON object"
    if "study" in content:
        return ""
    try:
        _Summary.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg'][:1].lower()}{first['msg'][1:]}"
    lacking = [key for key in required if content.get(key) is None]
    if lacking:
        return f"it has no {', '.join(lacking)}"
    return _unknown_tables(content) if required else ""


def _unknown_tables(content: dict[str, Any]) -> str:
    """Tables that one part of a summary has and another lacks."""
    parts = {"freeze": content["freeze"], "initialization.tables": content["initialization"].get("tables") or {}}
    for name, known in content["tables"].items():
        for part, tables in parts.items():
            if name not in tables:
                return f"{part} has no table {name}"
        if known.get("vocabulary_size") is None or known.get("dim") is None:
            return f"tables.{name} has no vocabulary_size or no dim"
    return ""
