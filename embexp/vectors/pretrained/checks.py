"""Checks pretrained files before a run starts: they exist, and are as wide as tables need."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from embexp.data.sources.source import source_of
from embexp.errors import ConfigError, DataError, Fault, RunError
from embexp.specs import vocabularies
from embexp.specs.pretrained import (
    Checkpoint,
    File,
    Format,
    Join,
    NonFinite,
    NoPretrained,
    OtherFile,
    Pretrained,
    Sample,
    named_files,
)
from embexp.specs.run import RunSpec
from embexp.specs.tables import Table
from embexp.specs.transforms import misfit, settled
from embexp.system import stores
from embexp.vectors import file_source as vectors
from embexp.vectors.file_source import FileSource
from embexp.vectors.pretrained import earlier
from embexp.vectors.pretrained.tables import Mismatch, PretrainedSetting, fit_faults, width_mismatch

_QUICK = (Format.NPY, Format.SAFETENSORS, Format.CHECKPOINT)
"""Formats whose first bytes show rows and width; others are read, or need a library that takes time to import."""


def faults(
    inherited: Pretrained | None, tables: Mapping[str, Table], *, cache: Path, fetch: bool = True
) -> list[Fault]:
    """Faults of pretrained files, as far as their names and first bytes show.

    Args:
        inherited: the top-level setting; None where it has faults of its own.
        tables: those without faults.
        cache: folder in which objects of a store are kept.
        fetch: whether to fetch these; if not, those that are not here are not looked at.
    """
    users = {f"tables.{name}.pretrained": ({name: table}, table.pretrained) for name, table in tables.items()}
    users["pretrained"] = ({name: table for name, table in tables.items() if table.pretrained is None}, inherited)
    found: list[Fault] = []
    for path, (heirs, setting) in users.items():
        if isinstance(setting, File | Sample) and heirs:
            files = named_files(path, setting)
            if fetch or stores.are_here(files.values()):
                found += _fetch_faults(files, cache) or _file_faults(path, setting, heirs)
        if isinstance(setting, Checkpoint) and (heirs or path == "pretrained"):
            found += _checkpoint_faults(path, setting, heirs)
    return found


def dims(inherited: Pretrained | None, tables: Mapping[str, Table]) -> dict[str, int]:
    """Length of each table's rows, without tables whose dim is null and whose file does not show it in its first bytes.

    Args:
        inherited: the top-level setting; None where it has faults of its own.
        tables: those without faults.
    """
    found: dict[str, int] = {}
    for name, table in tables.items():
        dim = table.dim
        if dim is None:
            dim = _dim_or_none(name, table.pretrained or inherited)
        if dim is not None:
            found[name] = dim
    return found


def rows(spec: RunSpec) -> dict[str, int | None]:
    """Rows of each table, as far as the config and first bytes of files show; None where the data must be read."""
    found: dict[str, int | None] = {}
    source = source_of(spec.data)
    for name, table in spec.tables.items():
        found[name] = table.vocabulary_size or vocabularies.rows_of(spec, name)
        sizes = [source.vocabulary_size(spec.column_of(feature)) for feature in spec.features_of(name)]
        known = [size for size in sizes if size is not None]
        if found[name] is None and known:
            found[name] = max(*known, _rows_by_position(table, spec.pretrained_of(name)))
    return found


def _fetch_faults(files: Mapping[str, str], cache: Path) -> list[Fault]:
    try:
        stores.fetch(files, cache=cache)
    except ConfigError as error:
        return list(error.faults)
    return []


def _file_faults(path: str, setting: File | Sample, tables: Mapping[str, Table]) -> list[Fault]:
    beside = {place: file for place, file in named_files(path, setting).items() if not place.endswith(".path")}
    absent = {place: file for place, file in beside.items() if not Path(stores.local(file)).is_file()}
    if absent:
        return [Fault(place, repr(file), "there is no such file") for place, file in absent.items()]
    lengths: list[int | None] = []
    faults: list[Fault] = []
    for place, each in _files(path, setting):
        try:
            lengths.append(_dim_of(each))
        except vectors.PickledError as error:
            faults.append(Fault(f"{place}.path", repr(each.path), error.rule, error.remedy))
        except DataError as error:
            faults.append(
                Fault(f"{place}.path", repr(each.path), str(error).removeprefix(f"{stores.local(str(each.path))}: "))
            )
    if not faults and isinstance(setting, File) and setting.join is Join.PREFERENCE:
        rule = f"its rows have {{}} numbers, those of {setting.path} {lengths[0]}, and any of them may fill a row"
        remedy = "make them equally long, or set join=columns"
        faults += [
            Fault(f"{place}.path", repr(each.path), rule.format(length), remedy)
            for (place, each), length in zip(_files(path, setting), lengths, strict=True)
            if lengths[0] is not None and length not in (None, lengths[0])
        ]
    if faults or (dim := _dim(setting)) is None:
        return faults
    found = {name: width_mismatch(setting.transform, dim, name, table) for name, table in tables.items()}
    return _fit_faults(path, setting, tables, found)


def _checkpoint_faults(path: str, setting: Checkpoint, tables: Mapping[str, Table]) -> list[Fault]:
    try:
        source = earlier.open_run(Path(setting.path), cache=Path())
    except RunError as error:
        rule = str(error).removeprefix(f"{setting.path}: ").removeprefix(f"{setting.path} ")
        return [Fault(f"{path}.path", repr(setting.path), rule)]
    found = {name: earlier.mismatch_with(source, setting.table or name, name, table) for name, table in tables.items()}
    return _fit_faults(path, setting, tables, found)


def _fit_faults(
    path: str,
    setting: File | Sample | Checkpoint,
    tables: Mapping[str, Table],
    compared: Mapping[str, Mismatch | None],
) -> list[Fault]:
    """The faults of a setting whose tables were compared with the file."""
    settings = {name: PretrainedSetting(table, setting, path) for name, table in tables.items()}
    mismatched = {name: mismatch for name, mismatch in compared.items() if mismatch is not None}
    return fit_faults(settings, matching=tables.keys() - mismatched.keys(), mismatched=mismatched)


def _dim_or_none(name: str, setting: Pretrained | None) -> int | None:
    if setting is None or isinstance(setting, NoPretrained):
        return None
    if isinstance(setting, Checkpoint):
        try:
            source = earlier.open_run(Path(setting.path), cache=Path())
            theirs = setting.table or name
            return source.shape(theirs)[1] if theirs in source.tables else None
        except RunError:
            return None
    try:
        found = _dim(setting)
    except DataError:
        return None
    fits = found is not None and misfit(setting.transform, found, None) is None
    return settled(setting.transform, found, None)[1] if found is not None and fits else None


def _dim(setting: File | Sample) -> int | None:
    """Numbers per row, or None where the whole file must be read for that.

    Raises:
        DataError: it is missing, or not of its format.
    """
    known = [dim for _, each in _files("", setting) if (dim := _dim_of(each)) is not None]
    if isinstance(setting, File) and setting.join is Join.COLUMNS:
        return sum(known) if len(known) == len(setting.paths) else None
    return known[0] if known else None


def _files(path: str, setting: File | Sample) -> list[tuple[str, File | Sample | OtherFile]]:
    """All files of a setting, each with its config path."""
    others = setting.others if isinstance(setting, File) else ()
    return [(path, setting), *((f"{path}.others.{place}", other) for place, other in enumerate(others))]


def _dim_of(setting: File | Sample | OtherFile) -> int | None:
    """Numbers per row of one file, or None where it must be read for that.

    Raises:
        DataError: it is missing, or not of its format.
    """
    if isinstance(setting, Sample) and setting.path is None:
        return setting.dim
    source = _opened_if_quick(setting)
    return None if source is None else source.dim


def _rows_by_position(table: Table, setting: Pretrained) -> int:
    """Rows of a file whose rows are numbered as the table's; 0 where there is none, or its first bytes hide it."""
    if isinstance(setting, NoPretrained | Checkpoint):  # a checkpoint's rows are matched by token
        return 0
    try:
        dim = _dim(setting)
    except DataError:
        return 0
    if dim is None or width_mismatch(setting.transform, dim, "", table):
        return 0
    if isinstance(setting, Sample) and setting.path is None:
        return setting.rows
    source = _opened_if_quick(setting)
    return 0 if source is None or source.tokens is not None else source.rows


def _opened_if_quick(setting: File | Sample | OtherFile) -> FileSource | None:
    """The file, opened, if its first bytes show rows and width.

    Raises:
        DataError: it is missing, or not of its format.
    """
    path = Path(stores.local(str(setting.path)))
    vectors.refuse_pickle(path)
    form = setting.format or vectors.format_of(path)
    if form not in _QUICK:
        if not path.is_file():
            raise DataError("found a folder, expected a file" if path.exists() else "there is no such file")
        return None
    tokens = None if setting.tokens_file is None else Path(stores.local(setting.tokens_file))
    return vectors.open_vectors(
        path, cache=Path(), format=form, key=setting.key, tokens_file=tokens, non_finite=NonFinite.KEEP
    )
