"""Verifies a run: whether its record is as it was written, and whether running it again gives the same bits."""

from __future__ import annotations

import collections
import hashlib
import json
import shlex
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from embexp.errors import DataError, NotARunError, RunError, UsageError
from embexp.records import differences, inventory
from embexp.records.differences import Difference, Kind, between
from embexp.records.folder import RunFolder, check_code, named_functions
from embexp.records.identity import DECIDES_NOTHING
from embexp.records.inventory import Change
from embexp.records.outputs import check_place
from embexp.reports.jobs import noted_inventory, record_changes
from embexp.runs import rerun as running
from embexp.runs.rerun import Again, compare, compare_studies, without_neighbours
from embexp.specs import tracking
from embexp.specs.run import RunSpec
from embexp.system import machine_faults


@dataclass(frozen=True)
class Record:
    """What a run's inventory says of its record.

    Attributes:
        inventory: whether there is one; without it nothing is known of later changes.
        changes: files that were changed, removed or added since.
    """

    inventory: bool
    files: int = 0
    changes: tuple[Change, ...] = ()

    @property
    def intact(self) -> bool:
        """Whether no file is known to be changed or missing; added ones do not count."""
        return not inventory.losses(self.changes)

    def __str__(self) -> str:
        if not self.inventory and not self.changes:
            return f"record: no {inventory.NAME}, so changes of its files are not known"
        words = [f"intact, {self.files:,} files"] if self.intact else []
        return f"record: {'; '.join([*words, *filter(None, [inventory.sentence(self.changes, most=20)])])}"


@dataclass(frozen=True)
class Verification:
    """The comparison of a recorded run with its inventory, and with the same run done again.

    Attributes:
        results: what differs in results, the earliest step first.
        circumstances: what differs in spec, code, data, versions, threads, machine and environment.
        kept: the directory of the new run, if it was kept.
    """

    directory: Path
    record: Record
    results: tuple[Difference, ...]
    circumstances: tuple[Difference, ...]
    compared: tuple[str, ...]
    kept: Path | None = None

    @property
    def intact(self) -> bool:
        """Whether no file of the record is known to be changed or missing."""
        return self.record.intact

    @property
    def identical(self) -> bool:
        """Whether all results are the same, to the bit; circumstances may differ."""
        return not self.results

    @property
    def differences(self) -> tuple[Difference, ...]:
        """All that differs: results, then circumstances."""
        return (*self.results, *self.circumstances)

    def __str__(self) -> str:
        lines = [str(self.record), f"repeated: {self.repeated}"]
        return "\n".join([*lines, *(f"  {line(result)}" for result in (*self.results[1:], *self.circumstances))])

    @property
    def repeated(self) -> str:
        """Whether it is the same again, for people: what was compared, or the first difference."""
        return f"different: {line(self.results[0])}" if self.results else f"identical: {'; '.join(self.compared)}"


def verify(
    directory: Path,
    *,
    allow_code: Sequence[str] = (),
    keep: Path | None = None,
    again: Again = running.in_own_process,
    say: Callable[[Record], object] = lambda record: None,
) -> Verification:
    """Compares a run, or a study, with its inventory; runs it again from its record and compares all results.

    Args:
        keep: where the new run is kept; None: nowhere.
        say: called with what the inventory says, before the run is repeated: what was changed may prevent that.

    Raises:
        NotARunError: there is no run in the directory.
        RunError: the run has not ended, is damaged, is being written, can't be repeated, or fails this time.
        UsageError: the spec names code that isn't allowed, or `keep` exists.
    """
    folder = RunFolder(directory)
    with folder.reading():
        try:
            spec = folder.recorded_spec()
        except NotARunError:
            if inventory.digest_of(directory) is not None:
                say(record_of(directory))
            raise
        check_code(named_functions(spec), allow_code, record=folder.spec)
        record = record_of(directory)
        say(record)
        rerun = running.planned(folder, _ended(folder))
        tracking.check_addresses([rerun.spec], folder.spec)
        if folder.metrics.exists():
            collections.deque(folder.read_metrics(), maxlen=0)  # damage is no reason to train
        with _place(keep) as place:
            again(rerun, place)
            found = _compared(folder, RunFolder(place), record)
        return replace(found, kept=keep)


def record_of(directory: Path) -> Record:
    """Compares a folder with its inventory, and that with the digest of it in the ledger of a sweep."""
    try:
        listed = inventory.read(directory)
    except DataError:  # which is one of the changes
        listed = None
    found = record_changes(directory, noted_inventory(directory))
    return Record(inventory.digest_of(directory) is not None, 0 if listed is None else len(listed.files), found)


def circumstances(folder: RunFolder, again: RunFolder) -> list[Difference]:
    """What differs in the circumstances of a recorded run and the same run done again.

    Args:
        again: of the new one, whose training has begun.
    """
    recorded, now = folder.read_manifest(), again.read_manifest()
    if "spec" in (last := (recorded.get("resumed") or [{}])[-1]):  # what it has ended with
        recorded["spec"] = last["spec"]
    now["spec"] = folder.portable(RunSpec.model_validate(now["spec"])).model_dump(mode="json")
    found = differences.manifest_differences(recorded, now)
    files = (now.get("user_code") or {}).get("files", {})
    found = [_with_lines(each, folder, files) if each.kind is Kind.CODE else each for each in found]
    for name, file in ((recorded.get("user_code") or {}).get("files", {})).items():
        copy = folder.code / name
        if not copy.is_file() or hashlib.sha256(copy.read_bytes()).hexdigest() != file["digest"]:
            found.append(Difference(Kind.CODE, name, note=f"{copy} is no longer what the manifest says of it"))
    return found


def _ended(folder: RunFolder) -> dict[str, Any]:
    """The summary of a run that can be repeated.

    Raises:
        RunError: it has not ended, or was trained longer than it was to be at first.
    """
    complete = f"complete it: {shlex.join(['embexp', 'resume', str(folder.path)])}"
    if not folder.summary.exists():
        raise RunError(f"{folder.path} has not ended, so there are no results to verify; {complete}")
    summary = folder.read_summary()
    if "study" in summary and summary["status"] == "interrupted":
        raise RunError(f"{folder.path} is a study that was interrupted; {complete}")
    manifest = folder.read_manifest() if folder.manifest.exists() else {}
    first = manifest.get("spec")
    for leg in manifest.get("resumed", []) if first else ():
        changed = between(Kind.SPEC, first, leg["spec"], without=DECIDES_NOTHING) if "spec" in leg else []
        if changed:
            what = ", ".join(each.text("the beginning", "the resumption") for each in changed)
            raise RunError(
                f"{folder.path} was resumed at step {leg['step']:,} with other settings ({what}), and can't be"
                " repeated in one go; verify a run that was trained with one spec"
            )
    return summary


def _with_lines(found: Difference, folder: RunFolder, files: Mapping[str, Any]) -> Difference:
    """A difference of a source file, with the lines that differ."""
    if found.name not in files:
        return found
    lines = differences.changed_lines(folder.code / found.name, Path(files[found.name]["path"]))
    return replace(found, note="\n      ".join(["its lines:", *lines]) if lines else found.note)


@contextmanager
def _place(keep: Path | None) -> Iterator[Path]:
    """An empty directory for the new run: that which is to be kept, or a temporary one."""
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="embexp-verify-", ignore_cleanup_errors=True) as folder:
            yield Path(folder)
        return
    check_place(keep, f"--keep {keep}")
    machine_faults.name_place(keep, "--keep")
    try:
        keep.mkdir(parents=True)
    except FileExistsError:
        raise UsageError(
            f"{keep}: it exists, and the new run is kept in a directory of its own; name another"
        ) from None
    yield keep


def _compared(folder: RunFolder, again: RunFolder, record: Record) -> Verification:
    """Compares a recorded run, or each run of a study, with the new one."""
    names = list(folder.runs_of_study())
    if not names:
        return _one(folder, again, record)
    parts = {name: _one(RunFolder(folder.path / name), RunFolder(again.path / name), record, names) for name in names}
    # The runs of a study share their circumstances.
    shared = [neighbour for part in parts.values() for neighbour in without_neighbours(part.circumstances, names)]
    of_runs = (
        replace(result, name=f"{name}: {result.name}") for name, part in parts.items() for result in part.results
    )
    return Verification(
        folder.path,
        record,
        (*of_runs, *compare_studies(folder, again)),
        tuple({json.dumps(each.as_json(), sort_keys=True): each for each in shared}.values()),
        tuple(f"{name}: {line}" for name, part in parts.items() for line in part.compared),
    )


def _one(folder: RunFolder, again: RunFolder, record: Record, beside: Sequence[str] = ()) -> Verification:
    """Compares a recorded run with the new one.

    Raises:
        RunError: the new one was interrupted.
    """
    before, after = folder.read_summary(), again.read_summary()
    if after["status"] == "interrupted" != before["status"]:
        raise RunError(f"interrupted: {folder.path} is not verified")
    found = circumstances(folder, again) if folder.manifest.exists() else []
    if not found and before.get("run_id") != after.get("run_id"):
        found = [Difference(Kind.SPEC, "run_id", before.get("run_id"), after.get("run_id"))]
    results, compared = compare(folder, again, beside=beside)
    return Verification(folder.path, record, tuple(results), tuple(found), tuple(compared))


def line(found: Difference) -> str:
    """A difference between a record and the same run done again, for people."""
    if found.kind is Kind.SPEC:
        return found.text("manifest.json", "spec.json")
    return found.text("the record", "this run")
