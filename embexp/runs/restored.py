"""Prepares the tables of a finished run from its own record, to evaluate it and to predict with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from embexp.data.vocabulary import Vocabulary
from embexp.errors import RunError
from embexp.freezing.row_facts import row_facts
from embexp.pretrained.aligned import align
from embexp.pretrained.tables import Pretrained
from embexp.records.folder import RunFolder
from embexp.runs.prepare import PreparedTables, prepare_tables
from embexp.specs.freezing import FreezeTable, NoFreeze
from embexp.specs.inits import Assign, MemoryMap
from embexp.specs.pretrained import NoPretrained
from embexp.specs.run import RunSpec
from embexp.specs.running import RuntimeKind
from embexp.specs.tables import Storage
from embexp.system import places


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
    rows = {name: table["vocabulary_size"] for name, table in summary["tables"].items()}
    pretrained = _kept_by_reference(folder, spec, summary, rows)
    facts = {
        name: row_facts(None, rows[name], pretrained.pretrained_rows(name), pretrained.old_rows(name))
        for name in spec.tables
    }
    return prepare_tables(
        _restorable(spec, summary), facts, pretrained, steps_per_epoch=1.0, runtime=RuntimeKind.FUNCTION
    )


def _kept_by_reference(
    folder: RunFolder, spec: RunSpec, summary: Mapping[str, Any], rows: Mapping[str, int]
) -> Pretrained:
    """Pretrained rows of the tables whose values are in no checkpoint; their files must not have changed.

    Raises:
        RunError: a file has changed.
    """
    recorded = summary["initialization"]["tables"]
    names = [name for name in spec.tables if spec.kept_by_reference(name)]
    if not names:
        return Pretrained()
    tables = {
        name: table if name in names else table.model_copy(update={"pretrained": NoPretrained()})
        for name, table in spec.tables.items()
    }
    only = spec.model_copy(update={"tables": tables})
    vocabularies = {name: Vocabulary.read(folder.vocabularies / name) for name in spec.tables}
    found = align(only, vocabularies, rows, cache=places.cache(spec.output.cache))
    for name in names:
        was, digest = recorded[name]["pretrained"], found.tables[name].source.digest
        if digest != was["digest"]:
            raise RunError(
                f"{was['path']} has changed since the run {folder.path}, whose frozen table {name!r} is made"
                f" from it (digest {digest}, expected {was['digest']}); put the file back to read the run"
            )
    return found


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
