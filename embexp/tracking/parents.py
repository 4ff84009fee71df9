"""The run of a sweep or a study in MLflow, in which the runs of its jobs are nested.

Each job finds it from its own directory, or creates it: no process has to be told. Two jobs that create it at the same
time agree on one by a file that only one of them can make.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path

from embexp.records.folder import OF_SWEEPS, RunFolder
from embexp.specs import studies
from embexp.tracking.mlflow_store import Store


def parent_of(directory: Path, store: Store, experiment: str) -> str | None:
    """The id of the run in which a run is nested: that of its sweep or study; None if it belongs to none.

    Args:
        directory: of the run, or of a study.
        store: where the runs are.
        experiment: its id there.
    """
    group = group_of(directory)
    if group is None:
        return None
    above = parent_of(group, store, experiment)
    digest = hashlib.sha256(f"{store.uri} {experiment}".encode()).hexdigest()[:8]
    note = group / f".mlflow_{digest}.json"
    known = _read(note)
    if known is not None and store.has_run(known):
        store.client.update_run(known, status="RUNNING")
    else:
        created = _create(group, above, store, experiment)
        if known is not None:  # its run was deleted
            note.unlink(missing_ok=True)
        if _claim(note, created):
            return created
        store.client.delete_run(created)
        known = _read(note)
    return known


def group_of(directory: Path) -> Path | None:
    """The directory of the sweep or the study that a run belongs to; None if it belongs to none."""
    directory = directory.absolute()
    if directory.name in studies.DESCRIPTIONS and RunFolder(directory.parent).spec.is_file():
        return directory.parent
    for each in directory.parents:
        if any((each / name).is_file() for name in OF_SWEEPS):
            return each
    return None


def settle(store: Store, parent: str) -> None:
    """Ends a parent run, unless one of its runs goes on."""
    run = store.client.get_run(parent)
    running = store.client.search_runs(
        [run.info.experiment_id],
        filter_string=f"tags.mlflow.parentRunId = '{parent}' and attributes.status = 'RUNNING'",
        max_results=1,
    )
    if not running:
        store.client.set_terminated(parent, "FINISHED")
        if (above := run.data.tags.get("mlflow.parentRunId")) is not None:
            settle(store, above)


def _create(group: Path, above: str | None, store: Store, experiment: str) -> str:
    tags = {"directory": str(group), "mlflow.source.name": "embexp", "mlflow.source.type": "LOCAL"}
    if above is not None:
        tags["mlflow.parentRunId"] = above
    return str(store.client.create_run(experiment, run_name=group.name, tags=tags).info.run_id)


def _read(note: Path) -> str | None:
    try:
        return str(json.loads(note.read_bytes())["run"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _claim(note: Path, run: str) -> bool:
    """Writes the note unless there is one, whole in either case; returns whether it was written."""
    handle, temporary = tempfile.mkstemp(dir=note.parent, prefix=f"{note.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "w") as file:
            json.dump({"run": run}, file)
        os.link(temporary, note)
    except FileExistsError:
        return False
    finally:
        os.unlink(temporary)
    return True
