"""Verifies a run: whether its record is as it was written, and whether running it again gives the same bits.

It runs again here, or by `python -m embexp.runs.verification DIRECTORY`. Compared are every number and every
checkpoint, but not times, memory, and the sizes of graphs, in which names of layers depend on what else the process
did.
"""

from __future__ import annotations

import collections
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from embexp.checkpoints import store
from embexp.errors import DataError, EmbexpError, NotARunError, RunError, UsageError
from embexp.records import differences, inventory
from embexp.records.differences import Difference, Kind, between
from embexp.records.folder import RunFolder, check_code, named_functions
from embexp.records.inventory import Change
from embexp.records.manifest import DECIDES_NOTHING, Kernels
from embexp.records.outputs import check_place
from embexp.reports.jobs import noted_inventory, record_changes
from embexp.runs import runs_compared
from embexp.specs import tracking
from embexp.specs.run import RunSpec, VariableRead, allow_fields, recorded
from embexp.specs.running import OnError, Save, VectorTests
from embexp.specs.studies import NoStudy
from embexp.specs.tracking import NoTracking
from embexp.system import digests, environment, machine, machine_faults
from embexp.system.printable import print
from embexp.training.baseline import FITTED
from embexp.training.loop import Replay

_NO_RESULT = ("run_id", "throughput", "fused_operations", "resumed_at", "baseline_fits", "vectors", "warnings")
"""Keys of summary.json that may differ. `run_id` is a circumstance. Baselines are not fitted again. Vectors are not
tested again, because their tables are compared, and the files may be gone. Warnings are sentences about values that are
compared themselves, or about work that is not repeated, such as tracking."""
_OF_THE_PROCESS = ("seconds", "peak_anonymous_bytes", "graph_def_bytes", "total_graph_def_bytes")
"""Keys of `initialization` in summary.json that may differ."""
_OF_MESSAGES = ("shares_files", "rooms", "enlarged", "padding", "exchange_seconds", "transport")
"""Keys of `cluster` in summary.json that may differ. A resumed run started again with small messages, and took another
time. Runs of earlier versions have a `transport`."""
_VARIABLE = re.compile(r" \([^()]*\)")
"""The name of a variable after its path, see `_OF_THE_PROCESS`."""
_TOUCHED = "touched.npz"
_REFUSED = 3
"""Exit status of the process if the run fails for a reason that is in its last lines."""


def compare(folder: RunFolder, again: RunFolder, *, beside: Collection[str] = ()) -> tuple[list[Difference], list[str]]:
    """Compares a recorded run with the new one.

    Args:
        again: of the new one, which has saved checkpoints after the same steps.
        beside: names of the runs beside it, in a study, from whose checkpoints it may start: they are compared
            themselves, and their paths and digests of files differ.

    Returns:
        What differs, the earliest step first; and what was compared.

    Raises:
        DataError: a file of the record is damaged.
    """
    results = runs_compared.compare_results(folder, again)
    weights = () if results.weights is None else results.weights.differences
    of_steps, compared = _steps(folder, again)
    by_step = sorted(
        [*results.metrics.differences, *of_steps], key=lambda each: float("inf") if each.step is None else each.step
    )
    others: list[Difference] = []
    if folder.final_checkpoint.is_dir() and again.final_checkpoint.is_dir():  # whose tensors are compared anyway
        others += _states(folder.final_checkpoint, again.final_checkpoint)
    if folder.best_checkpoint.is_dir():
        others += _checkpoints(folder.best_checkpoint, again.best_checkpoint)
    others += _files(folder, again)
    found = [*by_step, *_summaries(folder.read_summary(), again.read_summary()), *weights, *others]
    lines = [f"{results.metrics.lines:,} lines of metrics.jsonl", "every number in summary.json except times"]
    if results.digests:
        lines.append(f"{results.digests} {'table' if results.digests == 1 else 'tables'} by digest")
    if results.weights is not None:
        lines.append(f"{results.weights.tensors} tensors of the final checkpoint, byte for byte")
    return without_neighbours(found, beside, (folder, again)), [*lines, *compared, *results.not_compared]


def compare_studies(folder: RunFolder, again: RunFolder) -> list[Difference]:
    """What differs between the summaries of a recorded study and of the same study done again."""
    found = between(Kind.SUMMARY, *(json.loads(each.summary.read_bytes()) for each in (folder, again)))
    return [each for each in found if not re.search(r"seconds|run_id|digest_|directory|^warnings", each.name)]


def _summaries(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Difference]:
    found = []
    for each in between(Kind.SUMMARY, _without_times(a), _without_times(b)):
        of_table = each.name.startswith("tables.")
        found.append(replace(each, kind=Kind.TABLE, name=each.name.removeprefix("tables.")) if of_table else each)
    return found


def _without_times(summary: Mapping[str, Any]) -> dict[str, Any]:
    """A run's or a checkpoint's summary, without the values that may differ."""
    kept = {key: value for key, value in summary.items() if key not in _NO_RESULT}
    kept["initialization"] = {key: value for key, value in kept["initialization"].items() if key not in _OF_THE_PROCESS}
    if "cluster" in kept:
        kept["cluster"] = {key: value for key, value in kept["cluster"].items() if key not in _OF_MESSAGES}
    if isinstance(kept.get("baselines"), Mapping):
        kept["baselines"] = {name: values for name, values in kept["baselines"].items() if name not in FITTED}
    if restored := kept.get("restored"):
        unnamed = {key: [_VARIABLE.sub("", str(each)) for each in restored[key]] for key in ("restored", "left_out")}
        kept["restored"] = {**restored, **unnamed}
    return kept


def _steps(folder: RunFolder, again: RunFolder) -> tuple[list[Difference], list[str]]:
    """The differences in checkpoints of steps: in detail for the first that differ, by name for later ones."""
    found: list[Difference] = []
    equal: int | None = None
    steps = store.step_directories(folder.checkpoints)
    for path in steps:
        step = int(path.name.removeprefix("step_"))
        here = [replace(checkpoint, step=step) for checkpoint in _checkpoints(path, again.checkpoints / path.name)]
        if not here:
            equal = step if not found else equal
        elif not found:
            since = "" if equal is None else f"after step {equal:,} the checkpoints are equal"
            found = [replace(each, note="; ".join(filter(None, (each.note, since)))) for each in here]
        else:
            found.append(Difference(Kind.CHECKPOINT, path.name, step=step, note=f"{here[0].label} differs, too"))
    if not steps or found:
        return found, []
    return found, [f"checkpoints up to step {equal:,}"]


def _checkpoints(a: Path, b: Path) -> list[Difference]:
    """The differences between two checkpoints: tensors, and the state of the training."""
    if not b.is_dir():
        return [Difference(Kind.CHECKPOINT, a.name, "a checkpoint")]
    return [*runs_compared.compare_weights(a, b).differences, *_states(a, b)]


def _states(a: Path, b: Path) -> Iterator[Difference]:
    """The differences in `state.json` and `touched.npz` between two checkpoints."""
    of_a, of_b = _state(a), _state(b)
    if of_a is not None and of_b is not None:
        yield from between(Kind.CHECKPOINT, of_a, of_b, prefix=f"{a.name}/{store.STATE}")
    else:
        yield from _unlike(a.parent, b.parent, [f"{a.name}/{store.STATE}"], Kind.CHECKPOINT)
    earlier, now = _looked_up(a, stored=True), _looked_up(b)
    if earlier is None or earlier != now:
        yield from _unlike(a.parent, b.parent, [f"{a.name}/{_TOUCHED}"], Kind.CHECKPOINT)


def _looked_up(directory: Path, *, stored: bool = False) -> dict[str, bytes] | None:
    """The rows that had been looked up at a checkpoint, by table; None: there is no readable file about them.

    Args:
        stored: returns None for a compressed file, too; files of earlier versions are not compressed.
    """
    try:
        with zipfile.ZipFile(directory / _TOUCHED) as archive:
            if stored and any(each.compress_type != zipfile.ZIP_STORED for each in archive.infolist()):
                return None
        with np.load(directory / _TOUCHED, allow_pickle=False) as arrays:
            return {name: arrays[name].tobytes() for name in arrays.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile):
        return None


def _state(directory: Path) -> dict[str, Any] | None:
    """The state of the training at a checkpoint; None: there is no such file."""
    path = directory / store.STATE
    try:
        content = json.loads(path.read_bytes())
        kept = {key: content[key] for key in ("outcome", "stopping", "drift")}
        return {**kept, "summary": _without_times(content["summary"])}
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"{path} is damaged: {error}") from None


def _files(folder: RunFolder, again: RunFolder) -> Iterator[Difference]:
    """The differences in vocabularies, coverage, and the values fitted to numeric columns."""
    names = {
        path.relative_to(each.path).as_posix()
        for each in (folder, again)
        for path in each.vocabularies.glob("*")
        if path.is_file() and not path.name.startswith(".")
    }
    yield from _unlike(folder.path, again.path, [*sorted(names), folder.numbers.name], Kind.FILE)
    if folder.coverage.is_file() and again.coverage.is_file():
        try:
            contents = [json.loads(each.coverage.read_bytes()) for each in (folder, again)]
        except (ValueError, RecursionError) as error:
            raise DataError(f"{folder.coverage} is damaged: {error}") from None
        yield from between(Kind.FILE, *contents, prefix=folder.coverage.name)
    else:
        yield from _unlike(folder.path, again.path, [folder.coverage.name], Kind.FILE)


def _unlike(a: Path, b: Path, names: Collection[str], kind: Kind) -> Iterator[Difference]:
    """The files that differ between two folders, or that one of them lacks."""
    for name in names:
        in_a, in_b = (a / name).is_file(), (b / name).is_file()
        if in_a != in_b:
            yield Difference(kind, name, "a file" if in_a else None, "a file" if in_b else None)
        elif in_a and digests.of_file(a / name) != digests.of_file(b / name):
            yield Difference(kind, name, note="other bytes")


def without_neighbours(
    found: Collection[Difference], names: Collection[str], pair: tuple[RunFolder, RunFolder]
) -> list[Difference]:
    """Without the paths and digests of the runs that are next to a run of a study, which are compared themselves.

    Texts that name a file of the study are the same if they are but for its folder.

    Args:
        names: of those runs.
        pair: the run, and the new one.
    """
    paths = {each.name.removesuffix(".path"): (each.a, each.b) for each in found if each.name.endswith(".path")}
    places = {
        place
        for place, (a, b) in paths.items()
        if isinstance(a, str) and isinstance(b, str) and Path(a).is_absolute() and Path(a).name == Path(b).name
        if Path(a).name in names
    }
    theirs = {f"{place}.{key}" for place in places for key in ("path", "digest", "inventory")}
    left = [each for each in found if each.name not in theirs and not (each.kind is Kind.DATA and each.name in places)]
    studies = [str(each.path.parent.absolute()) for each in pair] if names else []
    return [each for each in left if not (studies and _inside(each.a, studies[0]) == _inside(each.b, studies[1]) != "")]


def _inside(value: object, study: str) -> str:
    """A text without the folder of a study; "" if it has another folder, or is not a text."""
    return value.replace(study, "") if isinstance(value, str) and study in value else ""


@dataclass(frozen=True)
class Rerun:
    """A recorded run or study that is to be run again.

    Attributes:
        spec: of the run, without output that is not compared.
        replay: how it follows the recorded run; None for a study.
        kernels: those of the recorded run.
    """

    spec: RunSpec
    replay: Replay | None = None
    kernels: Kernels = field(default_factory=Kernels)

    def load_tensorflow(self) -> None:
        """Loads TensorFlow with the kernels of the run, in a process that does nothing else."""
        self.kernels.repeat_pieces()
        self.kernels.load_tensorflow()


Again = Callable[[Rerun, Path], object]
"""Runs a recorded spec again in an empty directory.

Raises:
    RunError: it fails.
"""


def planned(folder: RunFolder, summary: Mapping[str, Any]) -> Rerun:
    """How a run is run again, so that it can be compared with the recorded one.

    It saves checkpoints after the steps of those that the record has, and ends where the recorded one was interrupted.
    """
    # Settings that change no result keep their defaults, except those that the comparison needs.
    others = set(DECIDES_NOTHING) - {"name", "output", "checkpoint", "expect", "resolvers", "environment"}
    defaults = {name: RunSpec.model_fields[name].default for name in others}
    spec = folder.recorded_spec().model_copy(update=defaults)
    less = {"tensorboard": False, "plots": False, "baselines": False, "vectors": VectorTests()}
    output = spec.output.model_copy(update=less)
    spec = spec.model_copy(update={"tracking": NoTracking()})
    first = folder  # for a study, one of its runs
    if not folder.manifest.exists():
        first = RunFolder(min(folder.path.rglob(folder.manifest.name), default=folder.manifest).parent)
    manifest = first.read_manifest() if first.manifest.exists() else {}
    kernels = Kernels.of_manifest(manifest, portable=spec.strategy.portable)
    if not isinstance(spec.study, NoStudy):
        return Rerun(spec.model_copy(update={"output": output}), kernels=kernels)
    steps = [int(path.name.removeprefix("step_")) for path in store.step_directories(folder.checkpoints)]
    replay = Replay(steps, int(summary["steps"]) if summary["status"] == "interrupted" else None)
    at_end = Save.END if folder.final_checkpoint.is_dir() else Save.NEVER
    settings = {
        "save": Save.TRAINING if replay.stops else at_end,
        "every_steps": None,
        "every_minutes": None,
        "keep": None,
        "incremental": None,
        "since_parent": False,
        "on_error": OnError.STOP,
    }
    checkpoint = spec.checkpoint.model_copy(update=settings)
    return Rerun(spec.model_copy(update={"output": output, "checkpoint": checkpoint}), replay, kernels)


def in_own_process(rerun: Rerun, directory: Path) -> None:
    """Runs a recorded spec in a new process, as numbers of threads and devices can't change in this one.

    Args:
        directory: an existing, empty directory.

    Raises:
        RunError: it fails.
    """
    request = {"spec": rerun.spec.model_dump(mode="json"), "kernels": asdict(rerun.kernels)}
    if rerun.replay is not None:
        request["replay"] = {"save_at": list(rerun.replay.save_at), "stop_after": rerun.replay.stop_after}
    variables = dict(os.environ)
    if rerun.kernels.portable:
        variables |= machine.portable_flags()
    if named_functions(rerun.spec):  # which this process may find by a path that was added to sys.path
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    ended = subprocess.run(
        [sys.executable, "-P", "-m", "embexp.runs.verification", str(directory)],
        input=json.dumps(request),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        env=variables,
    )
    if ended.returncode == _REFUSED:
        raise RunError(ended.stderr.strip())
    if ended.returncode:
        last = "\n".join(ended.stderr.strip().splitlines()[-5:])
        raise RunError(f"the process that was to run it again ended with exit status {ended.returncode}:\n{last}")


def main() -> int:
    """Runs the spec on standard input in the directory of the first argument."""
    request = json.load(sys.stdin)
    allow_fields(as_json := json.dumps(request["spec"]))
    spec = recorded(as_json, "the record")
    Rerun(spec, kernels=Kernels(**request["kernels"])).load_tensorflow()
    from embexp.runs import experiment

    replay = Replay(**request["replay"]) if "replay" in request else None
    try:
        experiment.run(spec, Path(sys.argv[1]), replay=replay)
    except EmbexpError as error:
        print(error, file=sys.stderr)
        return _REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(main())


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
            return f"record: no {inventory.NAME}, so changed files can't be detected"
        words = [f"intact, {self.files:,} files"] if self.intact else []
        return f"record: {'; '.join([*words, *filter(None, [inventory.sentence(self.changes, most=20)])])}"


@dataclass(frozen=True)
class Verification:
    """The comparison of a recorded run with its inventory, and with the same run done again.

    Attributes:
        results: differences in the results, the earliest step first.
        circumstances: differences in spec, code, data, versions, threads, machine and environment.
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
        """Whether all results are bit-identical; circumstances may differ."""
        return not self.results

    @property
    def differences(self) -> tuple[Difference, ...]:
        """All differences: results, then circumstances."""
        return (*self.results, *self.circumstances)

    def __str__(self) -> str:
        lines = [str(self.record), f"repeated: {self.repeated}"]
        return "\n".join([*lines, *(f"  {line(result)}" for result in (*self.results[1:], *self.circumstances))])

    @property
    def repeated(self) -> str:
        """The outcome in words: what was compared, or the first difference."""
        return f"different: {line(self.results[0])}" if self.results else f"identical: {'; '.join(self.compared)}"


def verify(
    directory: Path,
    *,
    allow_code: Sequence[str] = (),
    keep: Path | None = None,
    again: Again = in_own_process,
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
        rerun = planned(folder, _ended(folder))
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
    if "spec" in (last := (recorded.get("resumed") or [{}])[-1]):  # the spec at its end
        recorded["spec"] = last["spec"]
    now["spec"] = folder.portable(RunSpec.model_validate(now["spec"])).model_dump(mode="json")
    found = differences.manifest_differences(recorded, now)
    files = (now.get("user_code") or {}).get("files", {})
    found = [_with_lines(each, folder, files) if each.kind is Kind.CODE else each for each in found]
    for name, file in ((recorded.get("user_code") or {}).get("files", {})).items():
        copy = folder.code / name
        if not copy.is_file() or hashlib.sha256(copy.read_bytes()).hexdigest() != file["digest"]:
            found.append(Difference(Kind.CODE, name, note=f"{copy} no longer matches the manifest"))
    return [*found, *_other_variables(RunSpec.model_validate(now["spec"]).environment)]


def _other_variables(read_before: Mapping[str, VariableRead]) -> Iterator[Difference]:
    """The environment variables on which a recorded spec depends, and which now have another value."""
    for name, read in read_before.items():
        value = environment.fingerprint(name)
        if value != read.value:
            was = "was not set" if read.value is None else "had another value"
            changed = f"it {was} when the config was composed{', and is not set now' * (value is None)}"
            yield Difference(Kind.VARIABLE, name, note=f"{changed}; this run has the recorded {', '.join(read.keys)}")


def _ended(folder: RunFolder) -> dict[str, Any]:
    """The summary of a run that can be repeated.

    Raises:
        RunError: the run has not ended, or was trained longer than its first spec.
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
                f"{folder.path} was resumed at step {leg['step']:,} with other settings ({what}), so it can't "
                f"be repeated in one go; verify a run that was trained with a single spec"
            )
    return summary


def _with_lines(found: Difference, folder: RunFolder, files: Mapping[str, Any]) -> Difference:
    """A difference in a source file, with the lines that differ."""
    if found.name not in files:
        return found
    lines = differences.changed_lines(folder.code / found.name, Path(files[found.name]["path"]))
    return replace(found, note="\n      ".join(["its lines:", *lines]) if lines else found.note)


@contextmanager
def _place(keep: Path | None) -> Iterator[Path]:
    """An empty directory for the new run: the one to keep, or a temporary one."""
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
            f"{keep}: it already exists, but the new run needs a new directory; name another one"
        ) from None
    yield keep


def _compared(folder: RunFolder, again: RunFolder, record: Record) -> Verification:
    """Compares a recorded run, or each run of a study, with the new one."""
    names = list(folder.runs_of_study())
    if not names:
        return _one(folder, again, record)
    parts = {name: _one(RunFolder(folder.path / name), RunFolder(again.path / name), record, names) for name in names}
    # All runs of a study share their circumstances.
    shared = [
        neighbour
        for name, part in parts.items()
        for neighbour in without_neighbours(
            part.circumstances, names, (RunFolder(folder.path / name), RunFolder(again.path / name))
        )
    ]
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
