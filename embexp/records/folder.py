"""The files of a run's directory."""

from __future__ import annotations

import json
import math
import shlex
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from embexp.errors import NotARunError
from embexp.records import differences, inventory
from embexp.specs import study_runs
from embexp.specs.run import RunSpec
from embexp.specs.studies import NoStudy
from embexp.system import files, locks
from embexp.system.locks import FileLock

LEDGER = "sweep.sqlite"
RESULTS = "sweep.json"
OF_SWEEPS = (LEDGER, RESULTS, "multirun.yaml")
"""Files that tell the directory of a sweep from that of a run."""
PATIENCE = 2.0
"""Seconds that a command waits for an earlier process in its directory, which was killed, to be gone."""
OF_A_RUN = ("status", "steps", "metrics", "initialization", "freeze", "tables")
"""Keys without which a run can't be loaded."""


@dataclass(frozen=True)
class RunFolder:
    """The directory of one run. Properties are paths, whether or not there is something yet."""

    path: Path

    @property
    def lock(self) -> FileLock:
        """Held exclusively by the process that writes the directory, shared by those that read it."""
        return locks.of_folder(self.path, f"the run in {self.path}")

    def writing(
        self, *, patience: float = PATIENCE, warn: Callable[[str], object] | None = None
    ) -> AbstractContextManager[None]:
        """Within the block, no other process writes or reads the directory.

        Args:
            patience: seconds to wait for an earlier process.
            warn: called with a sentence on a file system without locks; None: `warnings.warn`.

        Raises:
            RunError: another process writes or reads it.
        """
        return self.lock.exclusive(patience=patience, without_locks=warn or _warn)

    def reading(self) -> AbstractContextManager[None]:
        """Within the block, no other process writes the directory; others may read it.

        Raises:
            RunError: another process writes it.
        """
        return self.lock.shared()

    @property
    def spec(self) -> Path:
        """The RunSpec: alone enough to run it again."""
        return self.path / "spec.json"

    @property
    def vocabularies(self) -> Path:
        """One file per table."""
        return self.path / "vocabularies"

    @property
    def numbers(self) -> Path:
        """What was fitted to the numeric columns; there is none if all are used as they are."""
        return self.path / "numeric_columns.json"

    @property
    def coverage(self) -> Path:
        """What pretrained files had for the tables; only where there were such."""
        return self.path / "coverage.json"

    @property
    def manifest(self) -> Path:
        """Versions, code, machine."""
        return self.path / "manifest.json"

    @property
    def code(self) -> Path:
        """The user's own code, as it was when the run began; only where the run uses some."""
        return self.path / "code"

    @property
    def metrics(self) -> Path:
        """One JSON line per logged step or evaluation."""
        return self.path / "metrics.jsonl"

    @property
    def summary(self) -> Path:
        """The results of the run."""
        return self.path / "summary.json"

    @property
    def estimator(self) -> Path:
        """The model directory of an Estimator, with its own checkpoints."""
        return self.path / "checkpoints" / "estimator"

    @property
    def checkpoints(self) -> Path:
        """The checkpoints: `final`, `best`, and those of the training, see `checkpoints.series`."""
        return self.path / "checkpoints"

    @property
    def final_checkpoint(self) -> Path:
        """The trained state."""
        return self.path / "checkpoints" / "final"

    @property
    def best_checkpoint(self) -> Path:
        """The state of the best evaluation, while early stopping watches."""
        return self.path / "checkpoints" / "best"

    @property
    def growth(self) -> Path:
        """What a grown checkpoint was made from; only there, and not in a run."""
        return self.path / "growth.json"

    def provenance(self, table: str) -> Path:
        """Of each row of a table of a grown checkpoint, the row of the run that it was."""
        return self.path / "provenance" / f"{table}.npy"

    @property
    def events(self) -> Path:
        """TensorBoard's event files."""
        return self.path / "events"

    @property
    def plots(self) -> Path:
        """Plots, as images."""
        return self.path / "plots"

    def check(self, *paths: Path) -> None:
        """Checks that files of the run are what it wrote, see `inventory.check`.

        Raises:
            DataError: one has changed, is missing or was added.
        """
        inventory.check(self.path, *paths)

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
            words = f"its finished runs are its folders {', '.join(runs)}" if runs else "none of its runs has ended"
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
        return {name: RunFolder(self.path / name) for name in study_runs.DESCRIPTIONS}

    def recorded_spec(self) -> RunSpec:
        """The spec of the run, or of the study.

        Raises:
            NotARunError: there is none, or it is not one that this version understands.
        """
        try:
            return RunSpec.model_validate_json(_of_this_version(self.spec.read_bytes()))
        except NotADirectoryError:
            raise NotARunError(f"{self.path} is a file, and not the directory of a run") from None
        except FileNotFoundError:
            words = f"{self.path} is not the directory of a run: there is no spec.json in it"
            if not self.path.exists():
                words = f"{self.path} is not the directory of a run: there is no such directory"
            if (self.path / RESULTS).exists():
                words += "; it is that of a sweep, whose runs are its folders 0, 1, …"
            elif self.lock.path.exists() and not (self.path / LEDGER).exists():
                words += ", so no run has begun there; start it again"
            raise NotARunError(words) from None
        except ValidationError as error:
            raise NotARunError(
                f"{self.spec} is not a spec that this version understands: {first_fault(error)}"
            ) from None

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
            damage = damage_of_summary(content, required=OF_A_RUN)
        if damage:
            command = shlex.join(["embexp", "resume", str(self.path)])
            remedy = f"Remove it and have it written again, from the last checkpoint: {command}"
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
        return differences.read_metrics(self.metrics)

    def write_spec(self, spec: RunSpec) -> None:
        """Writes spec.json."""
        files.write_text(self.spec, spec.model_dump_json(indent=2) + "\n")

    def write_json(self, path: Path, content: Any) -> None:
        """Writes JSON, whole; numbers that JSON lacks (NaN, infinity) become null."""
        files.write_text(path, json.dumps(_finite(content), indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def _warn(sentence: str) -> None:
    warnings.warn(sentence, RuntimeWarning, stacklevel=2)


def first_fault(error: ValidationError) -> str:
    """The first of the faults of a spec, in one line."""
    first, count = error.errors(include_url=False)[0], error.error_count()
    place = ".".join(map(str, first["loc"]))
    more = f" (and {count - 1:,} more faults)" if count > 1 else ""
    return f"{place}{': ' if place else ''}{first['msg'][:1].lower()}{first['msg'][1:]}{more}"


def _of_this_version(spec: bytes) -> bytes:
    """A recorded spec, with the keys of earlier versions under their present names."""
    try:
        content = json.loads(spec)
        saved = content["output"].pop("checkpoint")
    except (ValueError, KeyError, TypeError, AttributeError):  # also what is no spec, which validation reports
        return spec
    content.setdefault("checkpoint", {"save": "end" if saved else "never"})
    return json.dumps(content).encode()


def _finite(content: Any) -> Any:
    if isinstance(content, float):
        return content if math.isfinite(content) else None
    if isinstance(content, dict):
        return {key: _finite(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_finite(value) for value in content]
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
    initialization: _Initialization | None = None
    freeze: dict[str, _Frozen] | None = None
    tables: dict[str, _Table] | None = None
    drift: dict[str, dict[str, Any]] | None = None
    restored: _Restored | None = None
    warnings: list[str] | None = None


def damage_of_summary(content: Any, *, required: tuple[str, ...] = ()) -> str:
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
