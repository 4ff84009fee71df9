"""From the rules of the config to the freeze policies that they choose."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import assert_never

from embexp.freezing import listed_rows, old_rows, pretrained_rows, whole_table
from embexp.freezing.row_facts import Naming
from embexp.specs.freezing import OldRowsRule, PretrainedRowsRule, RowsRule, Rule, TableRule


def build(rule: Rule) -> Naming:
    """The policy of a rule: names rows of any table, see `Naming`."""
    match rule:
        case TableRule():
            return whole_table.named
        case PretrainedRowsRule():
            return pretrained_rows.named
        case OldRowsRule():
            return old_rows.named
        case RowsRule():
            return partial(
                listed_rows.named,
                ranges=rule.rows,
                tokens=rule.tokens,
                tokens_file=_path(rule.tokens_file),
                mask_file=_path(rule.mask_file),
            )
        case _:
            assert_never(rule)


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)
