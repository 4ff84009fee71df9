"""The directory that a new run gets: a new one, or, as `output.existing` says, one that is there already.

A directory that was not made for the run is touched only where nothing can be lost: where no step was trained, or where
the inventory of a complete run lists every file.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePath, PurePosixPath
from typing import Any

from embexp.errors import ConfigError, Fault, NotARunError
from embexp.records import inventory
from embexp.records.differences import Kind, between
from embexp.records.folder import RECORDED_DATA, RunFolder, why_another
from embexp.records.inventory import ChangeKind
from embexp.specs.run import RunSpec
from embexp.specs.running import Existing
from embexp.system import files, locks, machine_faults

_KEPT = (".hydra", locks.NAME)
"""What a run that uses a directory again writes itself, or needs there."""
_OF_A_BEGINNING = (
    "spec.json",
    "manifest.json",
    "coverage.json",
    "numeric_columns.json",
    RECORDED_DATA,
    "tracking.json",
    "failure.json",
    ".progress.json",
    "metrics.jsonl",
    "vocabularies",
    "code",
    "events",
    "checkpoints",
)
"""What a run writes before its first step."""


@dataclass(frozen=True)
class OutputDirectory:
    """The directory of a run that is about to begin.

    Attributes:
        path: of the directory, in which spec.json is.
        continues: whether the run that is in it is to be resumed.
        replaces: whether a run that was in it has been removed.
        why: why it is another one than was asked for, as the end of a sentence, or "".
    """

    path: Path
    continues: bool = False
    replaces: bool = False
    why: str = ""


@contextlib.contextmanager
def opened(
    path: Path,
    spec: RunSpec,
    existing: Existing,
    *,
    setting: str = "hydra.run.dir",
    own: bool = False,
    before: Callable[[Path], object] = lambda directory: None,
    warn: Callable[[str], object] | None = None,
) -> Iterator[OutputDirectory]:
    """Makes the directory of a run, or takes one that exists, writes spec.json, and holds the directory in the block.

    Args:
        existing: what is done if there is something of that name.
        setting: what names the directory, for error messages.
        own: whether the caller has made the directory for this run, so that it may have files that are not the run's.
        before: writes other files of a new run into the directory, before spec.json is written: what has a spec has
            them, too.
        warn: see `RunFolder.writing`.

    Raises:
        ConfigError: there is something of that name, and `existing` does not allow to use it.
        RunError: another process has the directory.
    """
    check = partial(_check, path, RunFolder(path).located(spec).model_dump(mode="json"), existing, setting)
    made = path
    machine_faults.name_place(path, setting)
    if existing is Existing.NUMBER:
        made = files.new_directory(path)
        machine_faults.name_place(made, setting)
    elif not files.made_directory(path) and not (own and _is_free(path)):
        check()  # before anything is written there, such as the file of a lock
    folder = RunFolder(made)
    with folder.writing(warn=warn):
        continues = replaces = False
        if existing is not Existing.NUMBER and not (own and _is_free(made)):
            check()
            files.remove_leftovers(made)
            begun = not has_begun_nothing(made)
            continues = begun and existing is Existing.CONTINUE
            replaces = begun and not continues
            if not continues:
                _empty(made, begun=begun)
        if not continues:
            before(made)
            folder.write_spec(spec)
        yield OutputDirectory(made, continues, replaces, why_another(path, made))


def foreseen(path: Path, spec: dict[str, Any], existing: Existing) -> str:
    """The directory that a run would get now, and what it would do with a run there. Nothing is written.

    Args:
        spec: of the run, as JSON.
    """
    if existing is Existing.NUMBER:
        made = files.free_directory(path)
        return f"{made}{why_another(path, made)}"
    if not path.exists():
        return str(path)
    try:
        _check(path, spec, existing, "")
    except ConfigError as error:
        return f"{path}, which the run would refuse: {error.faults[0].rule}"
    if has_begun_nothing(path):
        return str(path)
    return f"{path}, whose run is {'completed' if existing is Existing.CONTINUE else 'removed first'}"


def _is_free(path: Path) -> bool:
    return not RunFolder(path).spec.exists()


def _empty(path: Path, *, begun: bool) -> None:
    """Empties a directory that was checked and that nobody else writes.

    Args:
        begun: whether a step was trained there, so that the inventory lists what is removed.
    """
    if not begun:
        for name in _OF_A_BEGINNING:
            _remove(path / name)
        return
    for each in [*_listed(path), path / inventory.NAME]:  # the inventory last: a killed process can be repeated
        each.unlink(missing_ok=True)
    for each in sorted((each for each in path.rglob("*") if each.is_dir()), reverse=True):
        (each / locks.NAME).unlink(missing_ok=True)  # of a study's run
        if not any(each.iterdir()):
            each.rmdir()


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _check(path: Path, spec: dict[str, Any], existing: Existing, setting: str) -> None:
    """Raises ConfigError if a directory that exists can't be used for a run.

    Args:
        spec: of the run, as JSON.
    """

    def refused(rule: str, remedy: str) -> ConfigError:
        return ConfigError([Fault(setting, str(path), rule, remedy)])

    other = "name another directory"
    if not path.is_dir():
        raise refused("there is a file of that name", other)
    if has_begun_nothing(path):
        return
    is_run = RunFolder(path).spec.is_file()
    if existing is Existing.REFUSE:
        rule = "there is a run in it already" if is_run else "it exists, and is not empty"
        choices = "output.existing=number makes a new one beside it"
        if is_run:
            choices += ", continue completes the run in it, replace removes that run first, if it is complete"
        raise refused(rule, f"{other}, or choose: {choices}")
    if not is_run:
        raise refused(f"it has no run that output.existing={existing} could use, and is not empty", other)
    if existing is Existing.CONTINUE:
        recorded = RunFolder(path).recorded_spec().model_dump(mode="json")
        for content in (recorded, spec):
            content["output"].pop("existing", None)
        if differing := between(Kind.SPEC, recorded, spec):
            found = "; ".join(each.text("its spec.json", "this config") for each in differing[:3])
            more = f"; and {len(differing) - 3} more" if len(differing) > 3 else ""
            remedy = "name another directory; `embexp resume` trains a run longer, or with other output"
            raise refused(f"output.existing=continue needs the same spec, and these differ: {found}{more}", remedy)
        return
    remedy = f"{other}, or move what you need, and remove the directory yourself"
    if inventory.digest_of(path) is None:
        raise refused("output.existing=replace removes complete runs only, and it has no inventory.json", remedy)
    other_files = ChangeKind.CHANGED, ChangeKind.ADDED
    changes = [change for change in inventory.changes(path, quick=True) if change.kind in other_files]
    if changes:
        found = inventory.sentence(tuple(changes))
        raise refused(
            f"output.existing=replace removes only what a run wrote, and it has something else ({found})", remedy
        )
    folders = {parent for each in _listed(path) for parent in each.relative_to(path).parents}
    if links := sorted(str(folder) for folder in folders if (path / folder).is_symlink() and folder != PurePath()):
        raise refused(f"output.existing=replace removes nothing behind links, and {', '.join(links)} is one", remedy)


def has_begun_nothing(path: Path) -> bool:
    """Whether a directory is empty, or that of a run which has ended before its first step."""
    folder = RunFolder(path)
    begins: tuple[str, ...] = _KEPT
    with contextlib.suppress(NotARunError):  # without a spec, a folder such as `code` is somebody's own
        folder.recorded_spec()
        begins += _OF_A_BEGINNING
    for each in path.iterdir():
        known = each.name in begins or files.is_leftover(each.name)
        if not known and not (each.suffix == ".log" and each.is_file()):
            return False
    if folder.metrics.exists() and folder.metrics.stat().st_size:
        return False
    return not folder.checkpoints.is_dir() or all(files.is_leftover(each.name) for each in folder.checkpoints.iterdir())


def _listed(path: Path) -> Iterator[Path]:
    """The files that the inventory of a directory lists, and those of the inventories in it."""
    found = inventory.read(path)
    for name in () if found is None else found.files:
        if PurePosixPath(name).name == inventory.NAME:
            yield from _listed((path / name).parent)
        yield path / name
    yield from (path / "events").glob(f"*{inventory.EVENT_SUFFIX}")
