"""What a checkpoint of a run holds beside its variables, and how a run continues from it.

`state.json` has the position of the training, the metrics so far, and the sizes of the files that are appended to;
`touched.npz` has which rows were looked up.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from embexp.checkpoints import series, store
from embexp.checkpoints.series import SavedStep
from embexp.errors import DataError
from embexp.records import inventory
from embexp.records.folder import RunFolder
from embexp.runs.execute import Started
from embexp.runs.prepare import Prepared
from embexp.runs.summary import describe
from embexp.system import files
from embexp.tensor_bundle import location, rekeying
from embexp.training.loop import EarlyStopping, Outcome

TOUCHED = "touched.npz"


@dataclass(frozen=True)
class Running:
    """A run in its training.

    Attributes:
        prepared: the run.
        started: its variables.
        folder: of the run.
        stopping: follows the validation metric; None: nothing does.
        resumed_at: steps at which the run was resumed so far.
    """

    prepared: Prepared
    started: Started
    folder: RunFolder
    stopping: EarlyStopping | None
    resumed_at: tuple[int, ...] = ()


def add(directory: Path, outcome: Outcome, running: Running) -> None:
    """Adds the state of a run to a checkpoint that is being written.

    Args:
        directory: of the checkpoint, with all its other files.
        outcome: of the training so far.
        running: the run.
    """
    started, stopping = running.started, running.stopping
    touched = {
        name: np.packbits(mask)
        for name, table in started.execution.tables.items()
        if not table.frozen and (mask := table.looked_up()) is not None
    }
    with (directory / TOUCHED).open("wb") as file:
        np.savez(file, allow_pickle=False, **touched)
    state = {
        "continued_by": [] if (identity := running.prepared.identity) is None else [identity.continued],
        "outcome": outcome.as_json(),
        "stopping": None if stopping is None else {"best": stopping.best, "waited": stopping.waited},
        "drift": started.watch.reported,
        "appended": sizes_on_disk(running.folder),
        "resumed_at": running.resumed_at,
        "summary": describe(running.prepared, started) | {"steps": outcome.steps},
        "files": {
            str(path.relative_to(directory)): path.stat().st_size
            for path in sorted(directory.rglob("*"))
            if path.is_file()
        },
    }
    files.write_text(directory / series.STATE, json.dumps(state, indent=2) + "\n")


def sizes_on_disk(folder: RunFolder) -> dict[str, int]:
    """Sizes of the files that a training appends to, by their path in the run's folder; they are on disk."""
    appended = [folder.metrics, *(path for path in folder.events.rglob("*") if path.is_file())]
    appended = [path for path in appended if path.exists()]
    folders = {each for path in appended for each in path.parents if each.is_relative_to(folder.path)}
    for path in (*appended, *folders):  # a file whose name is lost with the power is lost, and the checkpoint with it
        files.to_disk(path)
    return {str(path.relative_to(folder.path)): path.stat().st_size for path in appended}


def restore(saved: SavedStep, started: Started, stopping: EarlyStopping | None) -> Outcome:
    """Brings a started run to the state of a checkpoint, and returns the outcome of its training so far.

    Raises:
        CheckpointError: the checkpoint does not fit the run.
        DataError: it is damaged.
    """
    started.execution.restore(saved.directory)
    for name, mask in _touched(saved, started).items():
        started.execution.tables[name].restore_touched(mask)
    state = saved.state
    if stopping is not None and state["stopping"] is not None:
        stopping.best, stopping.waited = state["stopping"]["best"], state["stopping"]["waited"]
    if state["drift"] is not None:
        started.watch.reported = (state["drift"][0], state["drift"][1])
    return Outcome(**state["outcome"])


def _touched(saved: SavedStep, started: Started) -> dict[str, np.ndarray]:
    """Bool [rows] of each table that trains: which rows steps have looked up."""
    path = saved.directory / TOUCHED
    try:
        with np.load(path, allow_pickle=False) as stored:
            packed: Mapping[str, Any] = {name: stored[name] for name in stored.files}
        tables = started.execution.tables
        return {name: np.unpackbits(bits, count=tables[name].rows).astype(bool) for name, bits in packed.items()}
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise DataError(f"{path} is damaged: {error}") from error


def adopted(saved: SavedStep, folder: RunFolder, continued: str) -> SavedStep:
    """A checkpoint that also a changed run may continue from, as the checkpoint of its step.

    Args:
        saved: the checkpoint of a step, or the final one.
        folder: of the run.
        continued: of the changed run, see `Identity`.
    """
    state = saved.state | {"continued_by": [*saved.state["continued_by"], continued]}
    text = json.dumps(state, indent=2) + "\n"
    directory = series.step_directory(folder.checkpoints, saved.step)
    if directory == saved.directory:
        files.write_text(directory / series.STATE, text)
    else:

        def finish(temporary: Path) -> None:
            rekeying.hard_linked(saved.directory / TOUCHED, temporary / TOUCHED)
            files.write_text(temporary / series.STATE, text)

        store.link(saved.directory, directory, finish=finish)
    return SavedStep(directory, state)


def cut(folder: RunFolder, saved: SavedStep | None) -> None:
    """Removes what a run wrote after a checkpoint: lines of metrics.jsonl, events, checkpoints, results.

    Args:
        folder: of the run.
        saved: the checkpoint; None: from its beginning.

    Raises:
        DataError: a file has lost what it held at the time of the checkpoint.
    """
    sizes: dict[str, int] = {} if saved is None else saved.state["appended"]
    for name, size in sizes.items():
        path = folder.path / name
        found = path.stat().st_size if path.exists() else 0
        if found < size:
            raise DataError(f"{path}: found {found} bytes, and at step {saved.step if saved else 0} it had {size}")
    inventory.unseal(folder.path)
    folder.summary.unlink(missing_ok=True)
    for path in [folder.metrics, *(path for path in folder.events.rglob("*") if path.is_file())]:
        size = sizes.get(str(path.relative_to(folder.path)), 0)
        if size:
            os.truncate(path, size)
        else:
            path.unlink(missing_ok=True)
    if saved is None:
        shutil.rmtree(folder.estimator, ignore_errors=True)
    directories = series.step_directories(folder.checkpoints)
    kept = [each for each in directories if saved is not None and each.name <= saved.directory.name]
    if saved is None:
        location.unmark(folder.checkpoints)
    elif location.marked(folder.checkpoints):
        series.mark_latest(folder.checkpoints, kept, saved.directory)
    for directory in directories:
        if directory not in kept:
            series.remove(directory)
