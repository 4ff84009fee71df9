"""Checks before the training that the memory and the disk suffice for a prepared run. No TensorFlow."""

from __future__ import annotations

from embexp.errors import CheckpointError, ConfigError
from embexp.freezing.policies import TablePolicy
from embexp.records.folder import RunFolder
from embexp.runs.prepare import Prepared
from embexp.specs import footprint
from embexp.specs.footprint import Rows
from embexp.specs.optimizers import slot_count
from embexp.specs.running import Save
from embexp.specs.tables import Storage
from embexp.system import available, files, machine_faults


def check_memory(prepared: Prepared) -> None:
    """Checks before anything is allocated that the tables, their slots, a batch and the data fit into memory.

    Raises:
        ConfigError: they do not.
    """
    spec = prepared.spec
    rows = {name: _rows(policy) for name, policy in prepared.tables.policies.items()}
    dims = {name: table.width for name, table in spec.tables.items()}
    found = footprint.needs(spec, rows, dims, prepared.data.training_examples)
    free = available.available()
    if (fault := footprint.fault(found, free.bytes, free.limit)) is not None:
        raise ConfigError([fault])


def _rows(policy: TablePolicy) -> Rows:
    """Rows of a table in memory, and with slots."""
    in_memory = policy.rows - (policy.frozen_rows if policy.storage is Storage.MEMORY_MAP else 0)
    slots = policy.rows - (policy.frozen_rows if policy.storage is not Storage.VARIABLE else 0)
    return Rows(in_memory, 0 if policy.fully_frozen else slots)


def check_room(prepared: Prepared, folder: RunFolder) -> None:
    """Checks before training that the checkpoints can be written.

    Raises:
        CheckpointError: no permission, or too little room on the disk.
    """
    settings = prepared.spec.checkpoint
    if settings.save is Save.NEVER:
        return
    count = 1
    if settings.during_training:  # a new one is whole before an old one goes
        count = 2 if settings.keep is None else settings.keep + 1
        count += settings.incremental is not None  # those that are kept need their base
    size = sum(_bytes(prepared, name) for name in prepared.spec.tables)
    try:
        free = files.free_bytes(folder.checkpoints)
    except OSError as error:
        raise CheckpointError(f"{folder.checkpoints} can't be written to: {machine_faults.reason(error)}") from error
    if free < count * size:
        raise CheckpointError(
            f"{folder.checkpoints}: {count} checkpoints of {size / 1e6:,.0f} MB are to be there at once, and"
            f" {free / 1e6:,.0f} MB are free. Make room, or write fewer: checkpoint.keep=1, checkpoint.save=end"
        )


def _bytes(prepared: Prepared, name: str) -> int:
    """Bytes of a table and its slots in a checkpoint."""
    if prepared.spec.kept_by_reference(name):
        return 0
    table = prepared.tables.spec.tables[name]
    frozen = prepared.tables.policies[name].fully_frozen
    slots = 0 if frozen else slot_count(prepared.spec.optimizer_of(name))
    return 4 * prepared.tables.rows[name] * table.width * (1 + slots)
