"""The checkpoints of a training: one directory per step, the newest kept. Imports no TensorFlow."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embexp.checkpoints.paths import CHECKPOINT_NAME
from embexp.errors import DataError, EmbexpError
from embexp.system import files
from embexp.tensor_bundle import increments, location

STATE = "state.json"
_STEP = re.compile(r"step_(\d{8,})")


@dataclass(frozen=True)
class SavedStep:
    """The checkpoint of a step, of which `state.json` tells how the training stood.

    Attributes:
        state: the content of `state.json`.
    """

    directory: Path
    state: dict[str, Any]

    @property
    def step(self) -> int:
        """Number of steps done."""
        return int(self.state["outcome"]["steps"])


def step_directory(checkpoints: Path, step: int) -> Path:
    """Directory of the checkpoint of a step."""
    return checkpoints / f"step_{step:08d}"


def step_directories(checkpoints: Path) -> list[Path]:
    """Directories of the checkpoints of steps, oldest first."""
    if not checkpoints.is_dir():
        return []
    found = {match[1]: path for path in checkpoints.iterdir() if (match := _STEP.fullmatch(path.name))}
    return [found[step] for step in sorted(found, key=int)]


def read_state(directory: Path) -> SavedStep:
    """Reads `state.json` and checks that all files of the checkpoint are there, with their sizes.

    Raises:
        DataError: the checkpoint is torn, or holds no state to continue from.
    """
    path = directory / STATE
    try:
        state = json.loads(path.read_bytes())
        sizes = dict(state["files"])
        int(state["outcome"]["steps"])
    except FileNotFoundError:
        raise DataError(f"{directory}: there is no {STATE} in it") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} is damaged: {error}") from None
    for name, size in sizes.items():
        file = directory / name
        found = file.stat().st_size if file.is_file() else None
        if found != size:
            words = "is missing" if found is None else f"has {found} bytes"
            raise DataError(f"{directory}: {name} {words}, and was written with {size}")
    return SavedStep(directory, state)


def check_content(directory: Path) -> None:
    """Reads every tensor once, also of those that an incremental checkpoint needs, and compares checksums.

    Raises:
        CheckpointError: a checkpoint that an incremental one needs is missing, or has changed.
        DataError: a tensor, or an index, is damaged.
    """
    for link in increments.chain(directory / CHECKPOINT_NAME):
        for key in link.entries:
            link.tensor(key).verify()


def newest_first(checkpoints: Path, torn: list[str], *, checked: bool = True) -> Iterator[SavedStep]:
    """The whole checkpoints of a training, newest first; a torn one is skipped.

    Args:
        torn: receives a sentence about each that is skipped.
        checked: whether every tensor is read and checked.
    """
    for directory in reversed(step_directories(checkpoints)):
        try:
            saved = read_state(directory)
            if checked:
                check_content(directory)
        except EmbexpError as error:
            torn.append(f"skipped the checkpoint {directory.name}: {error}")
        else:
            yield saved


def prune(checkpoints: Path, keep: int | None, *, latest: Path | None = None) -> None:
    """Removes all but the `keep` newest checkpoints of steps, and those that these need; None keeps all.

    Args:
        latest: the newest checkpoint, of a step or another one, as TensorFlow is to find it: see `mark_latest`.
    """
    directories = step_directories(checkpoints)
    kept = set(directories)
    if keep is not None:
        kept = increments.needed(directories[max(0, len(directories) - keep) :], CHECKPOINT_NAME)
    if latest is not None:
        mark_latest(checkpoints, [each for each in directories if each in kept], latest)
    for directory in directories:
        if directory not in kept:
            remove(directory)


def mark_latest(checkpoints: Path, kept: Sequence[Path], latest: Path) -> None:
    """Has `tf.train.latest_checkpoint` find a checkpoint, and `tf.train.get_checkpoint_state` the others that are kept.

    To be called before others are removed: what the file names is always there.
    """
    if (latest / f"{CHECKPOINT_NAME}.index").is_file():
        location.mark_latest(
            checkpoints, [each / CHECKPOINT_NAME for each in (*(each for each in kept if each != latest), latest)]
        )


def remove(directory: Path) -> None:
    """Removes a checkpoint, which is gone for readers at once: renamed first, then deleted."""
    gone = directory.with_name(f".{directory.name}{files.REMOVED}")
    shutil.rmtree(gone, ignore_errors=True)
    try:
        directory.rename(gone)
    except FileNotFoundError:
        return
    files.to_disk(directory.parent)  # else it may come back when the power is lost, after the run has ended
    shutil.rmtree(gone, ignore_errors=True)
    files.to_disk(directory.parent)  # likewise, what is left under the other name
