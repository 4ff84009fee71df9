"""The values of each table that have no row of their own, as a table for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table as Rich

from embexp.system import terminal

if TYPE_CHECKING:
    from embexp.data.vocabularies.token_rows import Share, Shares


def table(shares: Shares, console: Console) -> Rich:
    """Per table, the values of each split without a row of their own."""
    splits = list(next(iter(shares.values())))
    found = terminal.table(console, ["values", *splits])
    for name, of in shares.items():
        found.add_row(name, *(_share(of[split]) for split in splits))
    return found


def _share(share: Share) -> str:
    """`1.2% missing, 0.4% unknown` of the values; `all known` where each has a row of its own."""
    if not share.count:
        return "none"
    parts = {"missing": share.missing, "rare": share.rare, "unknown": share.unknown}
    shown = [f"{_percent(count / share.count)} {kind}" for kind, count in parts.items() if count]
    return ", ".join(shown) or "all known"


def _percent(fraction: float) -> str:
    return f"{fraction:.2%}" if fraction >= 0.0001 else "< 0.01%"
