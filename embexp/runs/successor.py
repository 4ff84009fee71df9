"""Prepares a run that starts from the checkpoint of another run that has not run yet. No TensorFlow."""

from __future__ import annotations

from dataclasses import replace

from embexp.freezing.row_policies import RowFacts
from embexp.pretrained import earlier
from embexp.pretrained.tables import Pretrained
from embexp.runs.data import Data, read_data
from embexp.runs.prepare import Prepared, row_facts, settle, table_rows
from embexp.specs.pretrained import Match
from embexp.specs.run import RunSpec
from embexp.system.parallel import Progress


def prepare_successor(spec: RunSpec, base: Prepared, progress: Progress) -> Prepared:
    """Prepares a run that restores the rows of `base` and adds new ones, before `base` has run.

    Args:
        spec: of the run; each of its tables starts from the table of `base` that has its name.
        base: the run whose checkpoint it starts from.
        progress: called while reading.

    Raises:
        RunError: as for `prepare`, except for faults of the checkpoint, which does not exist yet.
    """
    data = read_data(spec, progress)
    facts = row_facts(data, table_rows(spec, data.vocabularies), Pretrained())
    return settle(spec, data, Pretrained(), {name: _with_old_rows(facts[name], name, data, base) for name in facts})


def _with_old_rows(facts: RowFacts, name: str, data: Data, base: Prepared) -> RowFacts:
    """The facts about a table's rows, those that `base` will have trained marked as old."""
    known, rows = base.data.vocabularies[name], base.tables.rows[name]
    aligned = earlier.aligned_with(data.vocabularies[name], facts.rows, known, rows, Match.EXACT)
    old = aligned.file_rows >= 0
    return replace(facts, pretrained=old, old=old)
