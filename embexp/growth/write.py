"""Writes a grown checkpoint, whole or not at all, a few megabytes of it in memory at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from embexp.errors import RunError
from embexp.growth.plan import Gone, TableGrowth
from embexp.pretrained.aligned import earlier_rows
from embexp.pretrained.earlier import EarlierCheckpoint, row_tokens
from embexp.pretrained.tables import PretrainedTable, row_source, slot_sources
from embexp.records.folder import RunFolder
from embexp.specs.optimizers import slots_of
from embexp.specs.pretrained import Checkpoint, Match, MissingRows
from embexp.system import files
from embexp.system.arrays import Rows
from embexp.system.parallel import Progress, quiet
from embexp.tensor_bundle.rekeying import KEY_END
from embexp.tensor_bundle.writer import BundleWriter
from embexp.vectors.alignment import coverage

VERSION = 1
"""Of growth.json."""
_CHUNK_BYTES = 1 << 24


def write(
    source: EarlierCheckpoint,
    tables: Mapping[str, TableGrowth],
    out: Path,
    *,
    missing: MissingRows,
    match: Match,
    gone: Gone,
    seed: int | None = None,
    progress: Progress = quiet,
) -> None:
    """Writes the directory of a grown checkpoint.

    Args:
        source: the run, or checkpoint, that is grown.
        tables: the growth of each table.
        out: the directory, which must not be there.
        missing: what fills new rows.
        match: as the tables were matched, for the record.
        gone: what was done with tokens that a new vocabulary lacks, for the record.
        seed: of new rows; None: the run's.
        progress: called as writing goes on.

    Raises:
        FileExistsError: `out` is there already.
        DataError: a file of the source is damaged.
        RunError: there is no room for it.
    """
    seed = source.spec.seed if seed is None else seed
    try:
        with files.directory_written_whole(out) as temporary:
            folder = RunFolder(temporary)
            folder.final_checkpoint.mkdir(parents=True)
            writer = BundleWriter(folder.final_checkpoint / "checkpoint")
            try:
                for name, table in tables.items():
                    _write_table(writer, source, table, missing, seed, progress)
                    _write_record(folder, source, name, table)
                for key, entry in source.tensors.items():
                    if not key.startswith("embedding/"):
                        end = "" if key.startswith("_CHECKPOINTABLE") else KEY_END
                        writer.copy(f"{key}{end}", entry)
                writer.finish()
            finally:
                writer.close()
            folder.spec.write_bytes(source.folder.spec.read_bytes())
            content = {
                "version": VERSION,
                "source": {"path": str(source.folder.path.resolve()), "digest": source.digest},
                "missing": missing.value,
                "match": match.value,
                "gone": gone.value,
                "seed": seed,
                "tables": {name: table.as_json() for name, table in tables.items()},
            }
            folder.growth.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        if isinstance(error, FileExistsError):
            raise
        raise RunError(f"{out} can't be written: {error.strerror or error}") from error


def _write_table(
    writer: BundleWriter,
    source: EarlierCheckpoint,
    table: TableGrowth,
    missing: MissingRows,
    seed: int,
    progress: Progress,
) -> None:
    key = f"embedding/{table.name}"
    if table.unchanged and source.holds(table.name):
        for each in (key, *(f"{key}.S{slot}" for slot in table.slots)):
            progress(f"copying {each}", None)
            writer.copy(f"{each}{KEY_END}", source.tensors[each])
        return
    optimizer = source.spec.optimizer_of(table.name)
    pretrained = PretrainedTable(
        Checkpoint(path=str(source.folder.path), missing=missing),
        earlier_rows(source, table.name),
        table.alignment,
        coverage(table.alignment, row_tokens(table.vocabulary), shown=0),
        slots={slot: source.rows(table.name, slot) for slot in table.slots},
    )
    settings = source.spec.tables[table.name].model_copy(update={"dim": table.dim})
    # Other numbers than the run drew: a row that is new here never begins as one that began there.
    values = row_source(f"{table.name} (grown)", settings, table.rows, seed, pretrained)
    slots = slot_sources(table.name, pretrained, slots_of(optimizer))
    for each, rows in ((key, values), *((f"{key}.S{slot}", rows) for slot, rows in slots.items())):
        writer.add(f"{each}{KEY_END}", (table.rows, table.dim), _blocks(rows, f"writing {each}", progress))


def _blocks(rows: Rows, what: str, progress: Progress) -> Iterator[np.ndarray]:
    step = max(_CHUNK_BYTES // (4 * rows.dim), 1)
    for start in range(0, rows.rows, step):
        stop = min(start + step, rows.rows)
        yield rows.read(start, stop)
        progress(what, stop / rows.rows)


def _write_record(folder: RunFolder, source: EarlierCheckpoint, name: str, table: TableGrowth) -> None:
    """Writes the vocabulary, and which row of the run each row was trained as."""
    folder.vocabularies.mkdir(exist_ok=True)
    table.vocabulary.write(folder.vocabularies / name)
    places = table.alignment.file_rows
    of_run = np.where(places >= 0, source.rows_of_run(name)[np.maximum(places, 0)], -1).astype(np.int64)
    path = folder.provenance(name)
    path.parent.mkdir(exist_ok=True)
    np.save(path, of_run, allow_pickle=False)
