"""Prepares the tables of a finished run from its own record, to evaluate it and to predict with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from embexp.freezing.row_policies import row_facts
from embexp.pretrained.aligned import pretrained_before
from embexp.pretrained.tables import Pretrained
from embexp.records.folder import RunFolder
from embexp.runs.prepare import PreparedTables, prepare_tables
from embexp.specs.freezing import FreezeTable, NoFreeze
from embexp.specs.inits import Assign, MemoryMap
from embexp.specs.pretrained import NoPretrained
from embexp.specs.run import RunSpec
from embexp.specs.running import RuntimeKind
from embexp.specs.tables import Storage
from embexp.system import caching


def restored_tables(folder: RunFolder, spec: RunSpec, summary: Mapping[str, Any]) -> PreparedTables:
    """Prepares the tables of a finished run for the function runtime.

    Args:
        folder: of the run.
        spec: of the run.
        summary: the content of its summary.json.

    Raises:
        RunError: a pretrained file of the run has changed.
    """
    recorded = summary["initialization"]["tables"]
    # A table counts as pretrained only if its file had rows for it.
    spec = spec.settled({}, [name for name in spec.tables if recorded[name]["pretrained"] is None])
    names = [name for name in spec.tables if spec.kept_by_reference(name)]
    cache = caching.cache_folder(spec.output.cache)
    pretrained = pretrained_before(folder, spec, summary, names, cache=cache) if names else Pretrained()
    facts = {
        name: row_facts(None, known["vocabulary_size"], pretrained.pretrained_rows(name), pretrained.old_rows(name))
        for name, known in summary["tables"].items()
    }
    return prepare_tables(
        _restorable(spec, summary), facts, pretrained, steps_per_epoch=1.0, runtime=RuntimeKind.FUNCTION
    )


def _restorable(spec: RunSpec, summary: Mapping[str, Any]) -> RunSpec:
    """The same experiment for the function runtime, with settled dims and unsplit tables.

    The init method no longer matters: a checkpoint or a file has the values. Nor does the storage, which checkpoints
    don't record. Which rows were frozen matters only if all were, as the table then has no slots.
    """
    tables = summary["tables"]
    chosen = {
        name: table.model_copy(
            update={
                "dim": tables[name]["dim"],
                "init": MemoryMap()
                if isinstance(spec.init_of(name), MemoryMap) and spec.kept_by_reference(name)
                else Assign(),
                "freeze": FreezeTable() if not summary["freeze"][name]["trainable_rows"] else NoFreeze(),
                "storage": Storage.AUTO,
                **({} if spec.kept_by_reference(name) else {"pretrained": NoPretrained()}),
            }
        )
        for name, table in spec.tables.items()
    }
    return spec.model_copy(update={"tables": chosen})
