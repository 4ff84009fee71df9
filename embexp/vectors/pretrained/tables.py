"""The rows that a run's tables take from its pretrained files, whether these fit, and all initial values."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from embexp.errors import ConfigError, Fault, RunError
from embexp.specs.inits import MemoryMap
from embexp.specs.optimizers import TableOptimizer
from embexp.specs.pretrained import Checkpoint, File, MissingRows, NoPretrained, Sample
from embexp.specs.run import RunSpec, combination_faults
from embexp.specs.tables import Constant, Initializer, Normal, RowType, Table, Uniform
from embexp.specs.transforms import Step, misfit
from embexp.system.arrays import MappableRows, Rows
from embexp.vectors.alignment import Alignment, Coverage
from embexp.vectors.file_source import VectorSource
from embexp.vectors.initial_rows import AlignedRows, InitializerRows, Means, Sources, like_the_file
from embexp.vectors.stored import ROW_TYPES

if TYPE_CHECKING:
    from embexp.vectors.transforms import Transformation

_DRAWN: Mapping[MissingRows, Initializer] = {
    MissingRows.ZEROS: Constant(value=0.0),
    MissingRows.MEAN: Constant(value=0.0),
    MissingRows.NORMAL: Normal(stddev=1.0),
    MissingRows.SAMPLED: Normal(stddev=1.0),
    MissingRows.UNIFORM: Uniform(scale=math.sqrt(3)),
}
"""What rows that a file lacks are drawn from, with the variance 1 if it is to become that of the file."""


@dataclass(frozen=True)
class PretrainedSetting:
    """What a table takes rows from, by its config.

    Attributes:
        table: its settings.
        setting: its own, or the top-level one.
        path: config path of that.
        mapped: whether its frozen rows stay in the file.
        optimizer: of its rows; None: it is frozen.
        seed: of the run.
    """

    table: Table
    setting: File | Sample | Checkpoint
    path: str
    mapped: bool = False
    optimizer: TableOptimizer | None = None
    seed: int = 0


def settings_of(spec: RunSpec) -> dict[str, PretrainedSetting]:
    """By table, of those that take rows from a file or a checkpoint."""
    return {
        name: PretrainedSetting(
            table,
            setting,
            spec.pretrained_path(name),
            isinstance(spec.init_of(name), MemoryMap),
            None if spec.frozen(name) else spec.optimizer_of(name),
            spec.seed,
        )
        for name, table in spec.tables.items()
        if not isinstance(setting := spec.pretrained_of(name), NoPretrained)
    }


@dataclass(frozen=True)
class PretrainedTable:
    """A table that takes rows of a file, or of an earlier checkpoint.

    Attributes:
        alignment: the provenance of each row.
        coverage: how much of the vocabulary the file has.
        old: bool [rows], whether a row came from a checkpoint as a trained one; None: from a file.
        slots: of the table's optimizer, those that go with their rows, aligned as these are.
        notes: what the user should know about slots that don't.
        transform: of the file's rows; None: they are taken as they are.
        composed: rows for tokens that the file lacks that are means of rows that it has; None: there are none.
        of_files: how many rows have numbers of each of several files; empty: there is one.
    """

    setting: File | Checkpoint
    source: VectorSource
    alignment: Alignment
    coverage: Coverage
    old: np.ndarray | None = None
    slots: Mapping[str, VectorSource] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    transform: Transformation | None = None
    composed: Sources | None = None
    of_files: tuple[int, ...] = ()

    @property
    def filled(self) -> dict[str, int]:
        """How many rows whose tokens the file lacks are filled how."""
        count, made = self.coverage.missing, 0 if self.composed is None else len(self.composed.rows)
        if not self.setting.missing.composed:
            return {self.setting.missing.value: count}
        return {self.setting.missing.value: made, MissingRows.INITIALIZER.value: count - made}

    @property
    def rows(self) -> int:
        """Rows of the table."""
        return len(self.alignment.kinds)

    @property
    def dropped(self) -> int | None:
        """Rows of an earlier checkpoint that no row of the table is taken from; None: the rows are those of a file."""
        taken = self.alignment.file_rows
        return None if self.old is None else self.source.rows - len(np.unique(taken[taken >= 0]))

    @property
    def dim(self) -> int:
        """Length of the rows that come from the file."""
        return self.source.dim if self.transform is None else self.transform.dim


@dataclass(frozen=True)
class Pretrained:
    """The rows that a run's tables take from its pretrained files.

    Attributes:
        tables: those that take rows of a file.
        mismatches: why the top-level file does not fit a table, by table.
        digests: of each file's content, by the config path of its setting.
    """

    tables: Mapping[str, PretrainedTable] = field(default_factory=dict)
    mismatches: Mapping[str, str] = field(default_factory=dict)
    digests: Mapping[str, str] = field(default_factory=dict)

    def pretrained_rows(self, table: str) -> np.ndarray | None:
        """Bool [rows]: whether a row of a table came from its file; None: the table has none."""
        return self.tables[table].alignment.pretrained if table in self.tables else None

    def old_rows(self, table: str) -> np.ndarray | None:
        """Bool [rows]: whether a row came from a checkpoint as a trained one; None: the table has none of these."""
        return self.tables[table].old if table in self.tables else None

    def __bool__(self) -> bool:
        """Whether any file was read."""
        return bool(self.digests)

    def as_json(self) -> dict[str, Any]:
        """The content of coverage.json."""
        tables = {
            name: {
                "path": table.setting.path,
                "digest": table.source.digest,
                **_files(table),
                "file_rows": table.source.rows,
                "file_dim": table.source.dim,
                "match": _match(table),
                "missing": table.setting.missing.value,
                "filled": table.filled,
                "transform": [] if table.transform is None else [step.described for step in table.transform.steps],
                **_of_checkpoint(table),
                **table.coverage.as_json(),
            }
            for name, table in self.tables.items()
        }
        return {"tables": tables, "unfit": dict(self.mismatches)}


def _of_checkpoint(table: PretrainedTable) -> dict[str, Any]:
    """What only tables with rows of an earlier checkpoint have."""
    if table.old is None:
        return {}
    return {"slots": list(table.slots), "rows_old": int(table.old.sum()), "rows_dropped": table.dropped}


def _files(table: PretrainedTable) -> dict[str, Any]:
    """Which of several files rows come from."""
    if not isinstance(table.setting, File) or not table.of_files:
        return {}
    each = [{"path": path, "rows": rows} for path, rows in zip(table.setting.paths, table.of_files, strict=True)]
    return {"join": table.setting.join.value, "files": each}


def _match(table: PretrainedTable) -> str:
    by_token = isinstance(table.setting, Checkpoint) or table.source.tokens is not None
    return table.setting.match.value if by_token else "position"


def row_source(name: str, table: Table, rows: int, seed: int, pretrained: PretrainedTable | None) -> MappableRows:
    """The initial values of a table.

    Args:
        pretrained: the rows that it takes from a file; None: none.
    """
    if pretrained is None:
        return InitializerRows(table.initializer, rows=rows, dim=table.width, seed=seed, table=name)
    fill = pretrained.setting.missing
    if not np.any(pretrained.alignment.file_rows < 0):
        fill = MissingRows.ZEROS  # nothing is missing: nothing to take a mean for
    drawn = _DRAWN.get(fill, table.initializer)
    others: Rows = InitializerRows(drawn, rows=rows, dim=table.width, seed=seed, table=name)
    if pretrained.composed is not None:
        others = Means(others, pretrained.source, pretrained.composed, pretrained.transform)
    elif fill in (MissingRows.MEAN, MissingRows.NORMAL, MissingRows.UNIFORM, MissingRows.SAMPLED):
        covariance = fill is MissingRows.SAMPLED
        others = like_the_file(others, pretrained.source, pretrained.transform, covariance=covariance)
    return AlignedRows(pretrained.source, pretrained.alignment, others, pretrained.transform)


def beside_file(rows: MappableRows) -> Rows:
    """The initial values that are not in a table's file; reads nothing of the file."""
    return rows.missing if isinstance(rows, AlignedRows) else rows


def slot_sources(name: str, pretrained: PretrainedTable, initial: Mapping[str, float]) -> dict[str, MappableRows]:
    """Initial values of the slots that go with their rows; slots of other rows begin at the optimizer's value.

    Args:
        pretrained: the rows that it takes from an earlier checkpoint.
        initial: value of each slot of the table's optimizer before the first step.
    """
    return {
        slot: AlignedRows(
            source,
            pretrained.alignment,
            InitializerRows(Constant(value=initial[slot]), rows=pretrained.rows, dim=source.dim, seed=0, table=name),
        )
        for slot, source in pretrained.slots.items()
    }


def mapping_of(name: str, pretrained: PretrainedTable, kind: RowType) -> np.ndarray:
    """The rows of a table as one mapping of its file, [rows of the file, dim].

    Args:
        kind: what the table's rows are stored as.

    Raises:
        RunError: its rows can't be mapped from the file.
    """
    mapping, setting = pretrained.source.memory_map(), pretrained.setting
    mapped = mapping is not None and mapping.dtype == ROW_TYPES[kind]
    if not mapped and isinstance(setting, Checkpoint):
        raise RunError(
            f"tables.{name}.init = memory_map: the rows of {setting.path} are not in its checkpoint but, in "
            f"another form, in the file that the table was made from; choose init=assign"
        )
    if mapping is None or pretrained.transform is not None:
        raise RunError(
            f"tables.{name}.init = memory_map: rows of {setting.path} are transformed (pretrained.transform) before"
            " they fit, so they can't stay in the file; write them to a file first, or choose init=assign"
        )
    return mapping


ModelFaults = Callable[[RunSpec], list[Fault]]
"""What keeps the model of a run, whose dims are settled, from taking its vectors."""


@dataclass(frozen=True)
class Mismatch:
    """Why a file can't fill a table, and what would help.

    Attributes:
        place: the setting that is wrong, behind the path of the table's pretrained setting.
        value: its value; None: that of `path`.
    """

    rule: str
    remedy: str
    place: str = "path"
    value: str | None = None


def width_mismatch(steps: Sequence[Step], file_dim: int, name: str, table: Table) -> Mismatch | None:
    """Compares the length of a file's rows, after their transform, with that of a table's.

    Args:
        steps: the transform.
        file_dim: numbers per row of the file.
        table: its settings; one without a pretrained of its own is not filled with rows that are cut down to a single
            number, as the top-level file is meant for vectors and such a table holds biases. A dim of null fits any
            file.
    """
    if found := misfit(steps, file_dim, table.dim):
        settle = f"set tables.{name}.dim={found.length}"
        choices = ("truncate", "pca") if table.dim is not None and found.length > table.dim else ("zero_pad",)
        if found.step is None:
            ends = f"end transform with {' or '.join(choices)}" if steps else f"transform=[{'] or ['.join(choices)}]"
            return Mismatch(found.rule, f"{settle}, or {ends}")
        step = steps[found.step]
        remedy = f"{settle}, or choose {' or '.join(choices)} instead"
        if (number := getattr(step, "dim", None) or getattr(step, "count", None)) is not None:
            remedy = f"set a {'larger' if number < found.length else 'smaller'} number, or remove the step"
        return Mismatch(found.rule, remedy, f"transform.{found.step}", step.described)
    if table.pretrained is None and table.dim == 1 < file_dim:
        return Mismatch(
            f"the file's rows have {file_dim} numbers and those of the table have 1, but only a table's own "
            f"file may be cut "
            f"down to that",
            f"choose pretrained@tables.{name}.pretrained=file",
        )
    return None


def fit_faults(
    settings: Mapping[str, PretrainedSetting], *, matching: Collection[str], mismatched: Mapping[str, Mismatch]
) -> list[Fault]:
    """Faults of a run: a table's own file that doesn't fit, a top-level one that fits no table.

    Args:
        matching: tables that a file fits.
        mismatched: tables that it doesn't.
    """
    heirs = {name: why for name, why in mismatched.items() if settings[name].table.pretrained is None}
    found = [
        Fault(
            f"{settings[name].path}.{why.place}", why.value or _shown(settings[name].setting.path), why.rule, why.remedy
        )
        for name, why in mismatched.items()
        if name not in heirs
    ]
    if heirs and not any(settings[name].table.pretrained is None for name in matching):
        reasons = "".join(f"\n      {name}: {why.rule}" for name, why in heirs.items())
        first, why = next(iter(heirs.items()))
        path = _shown(settings[first].setting.path)
        found.append(Fault("pretrained.path", path, f"it fits no table{reasons}", why.remedy))
    return found


def with_dims(spec: RunSpec, pretrained: Pretrained, model_faults: ModelFaults) -> RunSpec:
    """The spec with every dim settled, and without the top-level file on tables that it does not fit.

    Args:
        pretrained: the rows that tables take from files.
        model_faults: what is wrong between a spec's vectors and its model; called only where dims were open, as the
            config alone did not show it.

    Raises:
        ConfigError: a dim stays open, or does not fit the rest of the config.
    """
    settled = spec.settled({name: table.dim for name, table in pretrained.tables.items()}, tuple(pretrained.mismatches))
    faults = [
        Fault(
            f"tables.{name}.dim",
            "null",
            "null means the length of the rows of a pretrained file, but none fits this table: "
            + pretrained.mismatches.get(name, "it has none"),
            "set a number",
        )
        for name, table in settled.tables.items()
        if table.dim is None
    ]
    if not faults:
        any_open = any(table.dim is None for table in spec.tables.values())
        faults = [*combination_faults(settled), *(model_faults(settled) if any_open else ())]
    if faults:
        raise ConfigError(faults)
    return settled


def _shown(path: str | None) -> str:
    return "null" if path is None else repr(path)
