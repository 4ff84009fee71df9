"""freeze=table: all rows of a table."""

from __future__ import annotations

import numpy as np

from embexp.freezing.row_facts import NamedRows, RowFacts


def named(facts: RowFacts) -> NamedRows:
    """Every row."""
    return NamedRows(np.ones(facts.rows, np.bool_))


def check_random(name: str, random: bool | None, facts: RowFacts) -> None:
    """Raises ValueError if a table would be frozen at random values that the config forbids (`random: false`)."""
    if random is False and not np.any(facts.pretrained):
        raise ValueError(
            f"random is false, and the pretrained file has nothing for table {name}, so that random values would"
            " stay as they are"
        )
