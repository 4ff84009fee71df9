"""A look at pretrained files before anything starts: they are there, and as wide as tables need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from embexp.errors import DataError, Fault
from embexp.pretrained import fit
from embexp.pretrained.fit import Misfit
from embexp.specs.pretrained import File, Pretrained
from embexp.specs.tables import Table
from embexp.specs.vectors import Format, NonFinite
from embexp.vectors import open as vectors

_QUICK = (Format.NPY, Format.SAFETENSORS, Format.CHECKPOINT)
"""Formats whose first bytes tell rows and width; others are read, or need a library that takes time to import."""


def faults(inherited: Pretrained | None, tables: Mapping[str, Table]) -> list[Fault]:
    """What is wrong with pretrained files, as far as their names and first bytes tell.

    Args:
        inherited: the top-level setting; None where it has faults of its own.
        tables: those without faults.
    """
    users = {f"tables.{name}.pretrained": ({name: table}, table.pretrained) for name, table in tables.items()}
    users["pretrained"] = ({name: table for name, table in tables.items() if table.pretrained is None}, inherited)
    found = []
    for place, (heirs, setting) in users.items():
        if isinstance(setting, File) and heirs:
            found += list(_of(place, setting, heirs, inherited))
    return found


def _of(place: str, setting: File, tables: Mapping[str, Table], inherited: Pretrained | None) -> Iterator[Fault]:
    if setting.tokens_file is not None and not Path(setting.tokens_file).is_file():
        yield Fault(f"{place}.tokens_file", repr(setting.tokens_file), "there is no such file")
        return
    try:
        dim = _dim(setting)
    except DataError as error:
        yield Fault(f"{place}.path", repr(setting.path), str(error).removeprefix(f"{setting.path}: "))
        return
    if dim is None:
        return
    unfit: dict[str, Misfit] = {}
    for name, table in tables.items():
        if misfit := fit.width(setting.project, dim, name, table):
            unfit[name] = misfit
    yield from fit.faults(inherited, tables, fitting=tables.keys() - unfit.keys(), unfit=unfit)


def _dim(setting: File) -> int | None:
    """Numbers per row, or None where only reading the file tells.

    Raises:
        DataError: it is not there, or not what its name says.
    """
    path = Path(setting.path)
    form = setting.format or vectors.format_of(path)
    if form not in _QUICK:
        if not path.is_file():
            raise DataError("found a folder, expected a file" if path.exists() else "there is no such file")
        return None
    source = vectors.open_vectors(path, cache=Path(), format=form, key=setting.key, non_finite=NonFinite.KEEP)
    return source.dim
