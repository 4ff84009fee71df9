"""What pretrained files had for the tables of a run, as a table for the terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

_SHOWN = 5


def read(path: Path) -> Mapping[str, Any]:
    """The content of a coverage.json, nothing where there is none."""
    if not path.exists():
        return {}
    content: dict[str, Any] = json.loads(path.read_bytes())
    return content


def table(content: Mapping[str, Any], frames: box.Box | None) -> Table | None:
    """A line for each table that took rows of a file, or None if none did.

    Args:
        content: of coverage.json.
        frames: around the cells.
    """
    tables: Mapping[str, Any] = content.get("tables") or {}
    if not tables:
        return None
    made = Table(box=frames, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    made.add_column("pretrained", overflow="fold")
    for name in ("rows found", "rows missing", "of all occurrences"):
        made.add_column(name, justify="right")
    made.add_column("commonest missing", overflow="fold")
    made.add_column("file", overflow="fold")
    for name, facts in tables.items():
        found, lacking = facts["rows_pretrained"], facts["rows_missing"]
        seen = facts["occurrences"]
        made.add_row(
            name,
            f"{found:,} ({found / max(found + lacking, 1):.1%})",
            f"{lacking:,}",
            f"{facts['occurrences_pretrained'] / seen:.1%}" if seen else "",
            Text(_named(facts["commonest_missing"], lacking)),
            Text(Path(facts["path"]).name),
        )
    return made


def _named(tokens: Sequence[Mapping[str, Any]], count: int) -> str:
    """The first of the missing tokens, each with how often it was seen."""
    words = [
        _printable(each["token"]) + ("" if each["frequency"] is None else f" ({each['frequency']:,})")
        for each in tokens[:_SHOWN]
    ]
    return ", ".join([*words, "…"] if count > len(words) else words)


def _printable(token: str) -> str:
    return token if token.isprintable() and token.strip() == token != "" else repr(token)
