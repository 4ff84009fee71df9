"""freeze=old_rows: rows that came from a checkpoint as trained ones."""

from __future__ import annotations

import numpy as np

from embexp.freezing.row_facts import NamedRows, RowFacts


def named(facts: RowFacts) -> NamedRows:
    """Rows that an earlier run trained; rows that are new since are not named."""
    if facts.old is None:
        return NamedRows(np.zeros(facts.rows, np.bool_), "the table has no rows of a checkpoint")
    return NamedRows(facts.old)
