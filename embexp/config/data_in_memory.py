"""A run on data in memory: its columns are written as Parquet into a folder, and the spec names these files."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from embexp.config import composition
from embexp.config.named_code import Permission
from embexp.data.columns import columns_of
from embexp.data.files import arrow_columns
from embexp.data.files.arrow_table import ParquetTable
from embexp.data.files.table_files import NOT_RECORDED
from embexp.data.sources.columnar import ColumnarSource
from embexp.data.sources.source import source_of
from embexp.errors import ConfigError, Fault, UsageError
from embexp.records.folder import OWN, RECORDED_DATA
from embexp.specs.data import CSV, GivenFiles, Parquet, Typed
from embexp.specs.run import RunSpec
from embexp.specs.studies import NoStudy

_SPLITS = tuple(GivenFiles.model_fields)
_WHOLE = "data"


def composed(texts: Sequence[str], data: Any, config_dir: Path | None, permission: Permission) -> RunSpec:
    """The checked spec of overrides without `data.path`, in whose place a name stands.

    Raises:
        UsageError: the overrides name a path, too.
        ConfigError: with all faults.
    """
    if named := [text for text in texts if text.lstrip("+").startswith("data.path")]:
        raise UsageError(f"embexp.run takes data= or {named[0]}, not both")
    names = {name: f"'{name}'" for name in _parts(data)}
    path = f"'{_WHOLE}'" if _WHOLE in names else f"{{{','.join(f'{name}: {text}' for name, text in names.items())}}}"
    loader = composition.loader(config_dir, permission=permission, overrides=texts)
    return composition.job(loader, [*texts, f"data.path={path}"], look_at_data=False, in_python=True).spec


@contextmanager
def written(
    spec: RunSpec, data: Any, directory: Path | None, permission: Permission
) -> Iterator[tuple[RunSpec, list[Path]]]:
    """The spec, checked, with files of the data, which are in a temporary folder within the block.

    In the paths of data that is to be recorded, `{run}` stands for the directory of the run.

    Args:
        data: what `arrow_columns.in_memory` takes, or a dict of such by the names of splits.
        directory: of the run, next to which the folder is made where that can be; None: it is not known.

    Yields:
        The spec, and the files that are to be moved into the directory of the run.

    Raises:
        UsageError: the data is something else.
        DataError: a column can't be converted.
        ConfigError: with all faults: of the spec, or columns that are missing or of a wrong type.
    """
    beside = Path.cwd() if directory is None else directory.absolute().parent
    place = beside if spec.output.data and beside.is_dir() else None
    prefix = ".embexp-data-" if spec.output.data else NOT_RECORDED
    with tempfile.TemporaryDirectory(prefix=prefix, dir=place, ignore_cleanup_errors=True) as folder:
        checked = _written(spec, data, Path(folder), permission)
        if not spec.output.data:
            yield checked, []
            return
        inside = f"{OWN}{RECORDED_DATA}/"
        yield checked.with_data_paths(lambda path: inside + Path(path).name), list(Path(folder).iterdir())


def _written(spec: RunSpec, data: Any, folder: Path, permission: Permission) -> RunSpec:
    parts = _parts(data)
    if not isinstance(spec.data, CSV | Typed):
        rule = "data in memory must have columns, as data=csv and data=parquet do"
        raise ConfigError([Fault("data", spec.data.kind, rule, "choose data=parquet")])
    if not isinstance(spec.study, NoStudy):
        rule = "a study reads its data from files"
        raise ConfigError([Fault("study", spec.study.kind, rule, "write the data to a file and set data.path")])
    files = {name: str(folder / f"{name}.parquet") for name in parts}
    path = files[_WHOLE] if _WHOLE in files else GivenFiles(**files)
    own = spec.data.model_copy(update={"path": path})
    source = source_of(own)
    assert isinstance(source, ColumnarSource)  # those of files with columns are
    columns, _ = columns_of(own, spec.features, spec.tables, task=spec.task)
    tables: dict[str, ParquetTable] = {}
    missing: list[Fault] = []
    for name, part in parts.items():
        called = arrow_columns.IN_MEMORY if name == _WHOLE else Path(f"{arrow_columns.IN_MEMORY} of {name}")
        try:
            found = arrow_columns.in_memory(part, source.wanted_names(columns), called)
            tables[name] = source.located_in_memory(found, columns)
        except ConfigError as error:
            missing += error.faults
    if missing:
        raise ConfigError(missing)
    names = {files[name]: str(table.path) for name, table in tables.items()}
    for name, table in tables.items():
        assert table.rows is not None
        arrow_columns.write(table.rows, Path(files[name]))
    kept = {name: getattr(own, name) for name in Parquet.model_fields if name != "kind"}
    container = spec.model_copy(update={"data": Parquet(**kept)}).model_dump(mode="json", warnings=False)
    checked, faults = composition.check_container(container, permission)
    if checked is None or faults:
        raise ConfigError([_renamed(fault, names) for fault in faults])
    return checked


def _renamed(fault: Fault, called: Mapping[str, str]) -> Fault:
    """A fault with the names of data in the place of the files that hold it for now."""

    def text(value: str) -> str:
        for file, name in called.items():
            value = value.replace(file, name)
        return value

    return replace(fault, value=text(fault.value), rule=text(fault.rule), remedy=text(fault.remedy))


def _parts(data: Any) -> dict[str, Any]:
    """The data by the names of files: of splits, where it is a dict of them."""
    if isinstance(data, Mapping) and data and set(data) <= {*_SPLITS} and all(map(_has_columns, data.values())):
        if _SPLITS[0] not in data:
            raise UsageError("embexp.run: data= by splits needs train, because vocabularies are built from it")
        return {name: data[name] for name in _SPLITS if name in data}
    return {_WHOLE: data}


def _has_columns(part: Any) -> bool:
    return isinstance(part, Mapping) or hasattr(part, "columns") or hasattr(part, "schema")
