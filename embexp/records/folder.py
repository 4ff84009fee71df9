"""The files of a run's directory, checked as they are read."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shlex
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from embexp.errors import ConfigError, DataError, NotARunError, RunError, UsageError
from embexp.records import inventory
from embexp.specs import fields, studies
from embexp.specs.base import named_code
from embexp.specs.claims import Claim
from embexp.specs.run import RunSpec, not_allowed, recorded
from embexp.specs.studies import NoStudy
from embexp.system import files, locks, user_code
from embexp.system.locks import FileLock
from embexp.system.user_code import UserCode

LEDGER = "sweep.sqlite"
RESULTS = "sweep.json"
OF_SWEEPS = (LEDGER, RESULTS, "multirun.yaml")
"""Files that tell the directory of a sweep from that of a run."""
RECORDED_DATA = "recorded_data"
"""Folder of data that a run got in memory."""
OWN = "{run}/"
"""How paths in the run's own directory begin in its records."""
PATIENCE = 2.0
"""Seconds that a command waits for an earlier process in its directory, which was killed, to be gone."""
OF_A_SUMMARY = ("status", "steps", "metrics", "initialization", "freeze", "tables")
"""Keys without which a run can't be loaded."""
_LONGEST_ERROR = 120
"""Characters of what a library says about a damaged line."""


class _Below:
    """A path below the directory of a run, as an attribute of a `RunFolder`."""

    def __init__(self, *parts: str) -> None:
        self._parts = parts

    def __get__(self, folder: RunFolder, owner: type[RunFolder]) -> Path:
        return folder.path.joinpath(*self._parts)


def why_another(asked: Path, made: Path) -> str:
    """Why a new run or sweep has another folder than was asked for, as the end of a sentence; "" if it has that one."""
    if made == asked:
        return ""
    if not (asked / LEDGER).is_file() and not RunFolder(asked).spec.exists():
        return f": {asked} already exists and holds something else"
    what = "a sweep" if (asked / LEDGER).is_file() else "a run"
    return f": {asked} already holds {what}; `embexp resume {shlex.quote(str(asked))}` continues it"


@dataclass(frozen=True)
class RunFolder:
    """The directory of one run. Attributes are paths, whether or not there is something yet."""

    path: Path

    spec = _Below("spec.json")
    """The RunSpec: alone enough to run it again."""
    vocabularies = _Below("vocabularies")
    """One file per table."""
    numbers = _Below("numeric_columns.json")
    """What was fitted to the numeric columns; there is none if all are used as they are."""
    coverage = _Below("coverage.json")
    """What pretrained files had for the tables; only where there were such."""
    manifest = _Below("manifest.json")
    """Versions, code, machine."""
    code = _Below("code")
    """The user's own code, as it was when the run began; only where the run uses some."""
    metrics = _Below("metrics.jsonl")
    """One JSON line per logged step or evaluation."""
    summary = _Below("summary.json")
    """The results of the run."""
    estimator = _Below("checkpoints", "estimator")
    """The model directory of an Estimator, with its own checkpoints."""
    checkpoints = _Below("checkpoints")
    """The checkpoints: `final`, `best`, and those of the training, see `checkpoints.store`."""
    final_checkpoint = _Below("checkpoints", "final")
    """The trained state."""
    best_checkpoint = _Below("checkpoints", "best")
    """The state of the best evaluation, while early stopping watches."""
    growth = _Below("growth.json")
    """What a grown checkpoint was made from; only there, and not in a run."""
    events = _Below("events")
    """TensorBoard's event files."""
    plots = _Below("plots")
    """Plots, as images."""
    data = _Below(RECORDED_DATA)
    """Data that was in memory, as Parquet; only where the run got such."""

    @property
    def lock(self) -> FileLock:
        """Held exclusively by the process that writes the directory, shared by those that read it."""
        return locks.of_folder(self.path, f"the run in {self.path}")

    @contextlib.contextmanager
    def writing(self, *, warn: Callable[[str], object] | None = None) -> Iterator[None]:
        """Within the block, no other process writes or reads the directory.

        Args:
            warn: called with a sentence on a file system without locks; None: `warnings.warn`.

        Raises:
            RunError: another process writes or reads it, or something in it leads elsewhere.
        """
        with self.lock.exclusive(patience=PATIENCE, without_locks=warn or _warn):
            check_entries(self.path)
            yield

    def reading(self) -> AbstractContextManager[None]:
        """Within the block, no other process writes the directory; others may read it.

        Raises:
            RunError: another process writes it.
        """
        return self.lock.shared()

    def provenance(self, table: str) -> Path:
        """Of each row of a table of a grown checkpoint, the row of the run that it was."""
        return self.path / "provenance" / f"{table}.npy"

    def unseen(self, table: str) -> Path:
        """Of each token of a table, in how many runs in a row the data lacked it; of runs that go on from others."""
        return self.path / "unseen" / f"{table}.npy"

    def check(self, *paths: Path) -> dict[Path, inventory.Listed]:
        """Checks that files of the run are what it wrote, and returns what its inventory says of them.

        See `inventory.check`.

        Raises:
            DataError: one has changed, is missing or was added.
        """
        return inventory.check(self.path, *paths)

    def checked_vocabulary(self, table: str) -> Path:
        """What `Vocabulary.read` takes: the path of a table's vocabulary without its suffix.

        Raises:
            DataError: it is not the one that the run wrote.
        """
        stem = self.vocabularies / table
        self.check(*(stem.parent / f"{stem.name}{suffix}" for suffix in (".tsv", ".json")))
        return stem

    def read_spec(self) -> RunSpec:
        """The spec of the run.

        Raises:
            NotARunError: there is none, or it is not one that this version understands.
        """
        spec = self.recorded_spec()
        if not isinstance(spec.study, NoStudy):
            runs = [name for name, run in self._stages().items() if run.summary.exists()]
            words = (
                f"its finished runs are in its folders {', '.join(runs)}" if runs else "none of its runs has finished"
            )
            raise NotARunError(f"{self.path} is the directory of a study; {words}")
        return spec

    def runs_of_study(self) -> dict[str, RunFolder]:
        """The runs of a study that have ended, by name, in their order; none where this is a run.

        Raises:
            NotARunError: it is neither, or not one that this version understands.
        """
        if isinstance(self.recorded_spec().study, NoStudy):
            return {}
        return {name: run for name, run in self._stages().items() if run.summary.exists()}

    def _stages(self) -> dict[str, RunFolder]:
        return {name: RunFolder(self.path / name) for name in studies.folders(self.path)}

    def recorded_spec(self) -> RunSpec:
        """The spec of the run, or of the study.

        Raises:
            NotARunError: there is none, or it is not one that this version understands.
        """
        try:
            return self.located(recorded(self.spec.read_bytes(), self.spec))
        except NotADirectoryError:
            raise NotARunError(f"{self.path} is a file, not the directory of a run") from None
        except FileNotFoundError:
            words = f"{self.path} is not the directory of a run: there is no spec.json in it"
            if not self.path.exists():
                words = f"{self.path} is not the directory of a run: it does not exist"
            if (self.path / RESULTS).exists():
                words += "; it is the directory of a sweep, whose runs are in its folders 0, 1, …"
            elif self.lock.path.exists() and not (self.path / LEDGER).exists():
                words += ", so no run has begun there; start it again"
            raise NotARunError(words) from None
        except ConfigError as error:
            raise NotARunError(self._missing_field(error.faults[0].rule) or f"{self.spec}: {error}") from None
        except ValidationError as error:
            unknown = f"{self.spec} is not a spec that this version understands: {first_fault(error)}"
            raise NotARunError(self._missing_field("it is not installed") or unknown) from None

    def _missing_field(self, why: str) -> str:
        """Which field of the run can't be used, as its manifest has it, and what to install; "": none is known."""
        known = {origin.path for origin in fields.origins()}
        for field in json_object(self.manifest).get("fields") or ():
            name, path, package, version = (str(field.get(key) or "") for key in ("name", "path", "package", "version"))
            if path not in known:
                install = f"install {package}{'==' if version else ''}{version}, or start from the folder that has it"
                return (
                    f"{self.path} is a run of field {name} ({path}), which can't be used here because {why}: {install}"
                )
        return ""

    def read_summary(self) -> dict[str, Any]:
        """The summary of the run.

        Raises:
            NotARunError: there is none, so the run has not ended, or it is damaged.
        """
        try:
            content: dict[str, Any] = json.loads(self.summary.read_bytes())
        except FileNotFoundError:
            raise NotARunError(f"{self.path} holds no finished run: there is no summary.json in it") from None
        except (ValueError, RecursionError):
            damage = "it is not JSON"
        else:
            damage = summary_damage(content, required=OF_A_SUMMARY)
        if damage:
            command = shlex.join(["embexp", "resume", str(self.path)])
            remedy = f"Remove it, then write it again from the last checkpoint: {command}"
            raise NotARunError(f"{self.summary} is damaged: {damage}. {remedy}")
        return content

    def read_manifest(self) -> dict[str, Any]:
        """The manifest of the run.

        Raises:
            NotARunError: there is none, or it is damaged.
        """
        try:
            content: dict[str, Any] = json.loads(self.manifest.read_bytes())
        except FileNotFoundError:
            raise NotARunError(f"{self.path} holds no run that has begun: there is no manifest.json in it") from None
        except ValueError as error:
            raise NotARunError(f"{self.manifest} is damaged: {error}") from None
        return content

    def read_metrics(self) -> Iterator[dict[str, Any]]:
        """The lines of metrics.jsonl.

        Raises:
            DataError: a line is damaged.
        """
        return read_metrics(self.metrics)

    def write_spec(self, spec: RunSpec) -> None:
        """Writes spec.json."""
        files.write_text(self.spec, self.portable(spec).model_dump_json(indent=2) + "\n")

    def portable(self, spec: RunSpec) -> RunSpec:
        """A spec in which `{run}` stands for this directory, which can move, in the paths of data recorded there."""
        inside = os.path.join(os.path.abspath(self.data), "")
        return spec.with_data_paths(
            lambda path: f"{OWN}{RECORDED_DATA}/{path.removeprefix(inside)}" if path.startswith(inside) else path
        )

    def located(self, spec: RunSpec) -> RunSpec:
        """A spec with this directory for `{run}`, see `portable`."""
        return spec.with_data_paths(
            lambda path: os.path.abspath(self.path / path.removeprefix(OWN)) if path.startswith(OWN) else path
        )

    def write_json(self, path: Path, content: Any) -> None:
        """Writes JSON, whole, see `finite`."""
        files.write_text(path, json.dumps(finite(content), indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def check_entries(directory: Path) -> None:
    """Checks that what is written into a directory stays there: a folder from elsewhere may have links to other files.

    Links to what is in the directory are allowed.

    Raises:
        RunError: it holds a link that leads out of it, or a device, a FIFO or a socket.
    """
    inside = os.path.join(os.path.realpath(directory), "")
    found, pending = [], [str(directory)]
    while pending:
        with os.scandir(pending.pop()) as entries:
            for entry in entries:
                name = os.path.relpath(entry.path, directory)
                if entry.is_symlink():
                    if not os.path.realpath(entry.path).startswith(inside):
                        found.append(f"{name} is a link to {os.readlink(entry.path)}, outside it")
                elif entry.is_dir():
                    pending.append(entry.path)
                elif not entry.is_file():
                    found.append(f"{name} is neither a file nor a folder")
    if found:
        more = f"; and {len(found) - 3} more" if len(found) > 3 else ""
        raise RunError(
            f"{directory} can't be written to: {'; '.join(sorted(found)[:3])}{more}. Remove it, or replace it "
            f"with a copy"
        )


def around(checkpoint: Path) -> RunFolder | None:
    """The run, or the grown checkpoint, that has a checkpoint in its folder; None: it is in none."""
    # DIR/checkpoints/NAME/checkpoint, or one folder further down for the second index of a name-based one.
    above = [RunFolder(parent) for parent in checkpoint.absolute().parents[:4]]
    return next((each for each in above if each.spec.is_file()), None)


def check_checkpoint(*paths: Path) -> None:
    """Checks that files of a checkpoint are what the run wrote. Nothing, if it is in the folder of none.

    Raises:
        DataError: see `inventory.check`.
    """
    if paths and (run := around(paths[0])) is not None:
        run.check(*(path.absolute() for path in paths))


def named_functions(*specs: RunSpec) -> dict[str, str]:
    """The functions and fields of the user that specs name, as `package.module:object`, each with its config path."""
    found = {part.function: f"{path}.function" for spec in specs for path, part in named_code(spec)}
    return {path: "fields" for spec in specs for path in spec.fields} | found


def recorded_functions(*specs: RunSpec) -> dict[str, str]:
    """What runs record the code of: `named_functions`, and resolvers, which a recorded spec does not call again."""
    resolvers = {function: f"resolvers.{name}" for spec in specs for name, function in spec.resolvers.items()}
    return resolvers | named_functions(*specs)


def code_of(names: Iterable[str], used: Collection[fields.Origin]) -> UserCode | None:
    """The user's own code in a run; None: there is none.

    Args:
        names: see `recorded_functions`.
        used: see `specs.run.own_fields`.
    """
    paths = [origin.path for origin in used]
    functions = [path for path in names if path not in paths]
    if not functions and not used:
        return None
    files, facts = dict(user_code.read_user_code(*functions).files), []
    for origin in used:
        own = user_code.read_package(origin.path, origin.paths())
        files |= own.files
        fact = {"name": origin.field.name, "path": origin.path, "package": origin.package, "version": origin.version}
        facts.append({**fact, "digest": own.digest})
    return UserCode((*functions, *paths), dict(sorted(files.items())), tuple(facts))


def check_code(names: Mapping[str, str], allowed: Collection[str], *, record: Path | str) -> None:
    """Checks that the user allows the code that a record names, which may come from anybody: it is run only then.

    Args:
        names: functions and classes, each with its config path.

    Raises:
        UsageError: one isn't allowed, or one is allowed that the record does not name.
    """
    if missing := [name for name in names if name not in allowed]:
        raise UsageError(not_allowed(record, {each: names[each] for each in missing}))
    if extra := [each for each in allowed if each not in names]:
        known = f"only {', '.join(names)}" if names else "no code"
        raise UsageError(f"--allow-code {' '.join(extra)}: {record} names {known}")


def _warn(sentence: str) -> None:
    warnings.warn(sentence, RuntimeWarning, stacklevel=2)


def first_fault(error: ValidationError) -> str:
    """The first of the faults of a spec, in one line."""
    first, count = error.errors(include_url=False)[0], error.error_count()
    place = ".".join(map(str, first["loc"]))
    more = f" (and {count - 1:,} more faults)" if count > 1 else ""
    return f"{place}{': ' if place else ''}{first['msg'][:1].lower()}{first['msg'][1:]}{more}"


def json_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file that may be missing, damaged, or something else; empty then."""
    try:
        content = json_of(path.read_bytes())
    except OSError:
        return {}
    return content if isinstance(content, dict) else {}


def json_of(text: Any) -> Any:
    """A text as JSON; None for one that is none."""
    try:
        return json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return None


def finite(content: Any) -> Any:
    """Content for JSON, in which numbers that JSON lacks (NaN, infinity) are null."""
    if isinstance(content, float):
        return content if math.isfinite(content) else None
    if isinstance(content, dict):
        return {key: finite(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [finite(value) for value in content]
    return content


class _Part(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)


class _Table(_Part):
    vocabulary_size: int | None = None
    dim: int | None = None


class _Frozen(_Part):
    frozen_rows: int | None = None
    trainable_rows: int | None = None
    trainable_rows_touched: int | None = None
    trainable_rows_never_moved: int | None = None


class _Pretrained(_Part):
    path: str | None = None
    digest: str | None = None


class _Initialized(_Part):
    bytes: int | None = None
    pretrained: _Pretrained | None = None


class _Initialization(_Part):
    tables: dict[str, _Initialized] | None = None


class _Restored(_Part):
    checkpoint: str
    restored: list[str]
    left_out: list[str]


class _FusedOperations(_Part):
    used: list[str] | None = None
    missing: str | None = None


class _Summary(_Part):
    status: str | None = None
    name: str | None = None
    task: str | None = None
    run_id: str | None = None
    classes: list[str] | None = None
    columns: dict[str, str] | None = None
    steps: int | None = None
    best_step: int | None = None
    resumed_at: list[int] | None = None
    metrics: dict[str, dict[str, float | None]] | None = None
    truth: dict[str, float | None] | None = None
    examples: dict[str, int] | None = None
    throughput: dict[str, float | None] | None = None
    fused_operations: _FusedOperations | None = None
    initialization: _Initialization | None = None
    freeze: dict[str, _Frozen] | None = None
    tables: dict[str, _Table] | None = None
    drift: dict[str, dict[str, Any]] | None = None
    restored: _Restored | None = None
    claims: list[Claim] | None = None
    warnings: list[str] | None = None


def summary_damage(content: Any, *, required: tuple[str, ...] = ()) -> str:
    """What is wrong with the content of summary.json, in a few words; "" if nothing is.

    Args:
        content: as it was read; that of a study has other keys, of which nothing is known here.
        required: keys that must be there.
    """
    if not isinstance(content, dict):
        return "it is not a JSON object"
    if "study" in content:
        return ""
    try:
        _Summary.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg'][:1].lower()}{first['msg'][1:]}"
    lacking = [key for key in required if content.get(key) is None]
    if lacking:
        return f"it has no {', '.join(lacking)}"
    return _unknown_tables(content) if required else ""


def _unknown_tables(content: dict[str, Any]) -> str:
    """Tables that one part of a summary has and another lacks."""
    parts = {"freeze": content["freeze"], "initialization.tables": content["initialization"].get("tables") or {}}
    for name, known in content["tables"].items():
        for part, tables in parts.items():
            if name not in tables:
                return f"{part} has no table {name}"
        if known.get("vocabulary_size") is None or known.get("dim") is None:
            return f"tables.{name} has no vocabulary_size or no dim"
    return ""


def read_metrics(path: Path, *, strict: bool = True) -> Iterator[dict[str, Any]]:
    """The lines of a metrics.jsonl, each checked for what readers of its event rely on.

    Args:
        strict: whether a damaged line is an error; else it is left out.

    Raises:
        DataError: a line is damaged; names it.
    """
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                yield _parsed_metrics(line)
            except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
                if not strict:
                    continue
                what = f"no {error}" if isinstance(error, KeyError) else " ".join(str(error).split())[:_LONGEST_ERROR]
                raise DataError(f"{path}:{number}: this line of metrics is damaged: {what}") from None


def _parsed_metrics(line: bytes) -> dict[str, Any]:
    """A line of metrics; raises any of several errors if it is none."""
    content = json.loads(line)
    if not isinstance(content, dict):
        raise ValueError(f"it is not a mapping, but a {type(content).__name__}")
    step, event = content["step"], content["event"]
    if type(step) is not int or step < 0:
        raise ValueError(f"its step is {step!r:.40}, not a whole number")
    match event:
        case "log":
            float(content["loss"])
        case "evaluation":
            if not isinstance(content["split"], str):
                raise ValueError("its split is not a name")
            for value in content["metrics"].values():
                float(value)
        case "reset":
            dict(content["rows"])
        case "drift":
            for each in content["drift"].values():
                dict(each)
    return content
