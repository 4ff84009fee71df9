"""freeze=pretrained_rows: rows that came from a file or a checkpoint."""

from __future__ import annotations

import numpy as np

from embexp.freezing.row_facts import NamedRows, RowFacts


def named(facts: RowFacts) -> NamedRows:
    """Rows of the pretrained file; those that it lacks are not named."""
    if facts.pretrained is None:
        return NamedRows(np.zeros(facts.rows, np.bool_), "the table has no pretrained file")
    return NamedRows(facts.pretrained)
