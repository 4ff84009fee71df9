"""The coverage of a run's tables by pretrained files, as a table for the terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

_MAX_TOKENS = 5


def read(path: Path) -> Mapping[str, Any]:
    """The content of a coverage.json; empty if there is no such file."""
    if not path.exists():
        return {}
    content: dict[str, Any] = json.loads(path.read_bytes())
    return content


def table(content: Mapping[str, Any], frames: box.Box | None) -> Table | None:
    """The coverage of each pretrained table; None if there is none.

    Args:
        content: of coverage.json.
        frames: style of the table's lines; None for none.
    """
    tables: Mapping[str, Any] = content.get("tables") or {}
    if not tables:
        return None
    shown = Table(box=frames, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    shown.add_column("pretrained", overflow="fold")
    for name in ("rows found", "rows missing", "occurrences found"):
        shown.add_column(name, justify="right")
    shown.add_column("most frequent missing", overflow="fold")
    shown.add_column("file", overflow="fold")
    for name, facts in tables.items():
        found, missing = facts["rows_pretrained"], facts["rows_missing"]
        occurrences = facts["occurrences"]
        shown.add_row(
            name,
            f"{found:,} ({found / max(found + missing, 1):.1%})",
            f"{missing:,}",
            f"{facts['occurrences_pretrained'] / occurrences:.1%}" if occurrences else "",
            Text(_listed(facts["commonest_missing"], missing)),
            Text(Path(facts["path"]).name),
        )
    return shown


def _listed(tokens: Sequence[Mapping[str, Any]], count: int) -> str:
    """The first of `count` missing tokens, each with its frequency."""
    shown = [
        _printable(each["token"]) + ("" if each["frequency"] is None else f" ({each['frequency']:,})")
        for each in tokens[:_MAX_TOKENS]
    ]
    return ", ".join([*shown, "…"] if count > len(shown) else shown)


def _printable(token: str) -> str:
    return token if token.isprintable() and token.strip() == token != "" else repr(token)
