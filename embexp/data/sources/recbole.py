"""RecBole atomic files: NAME.inter with the interactions, NAME.user and NAME.item joined to it by their ids.

The header line names each column and its type: https://recbole.io/docs/user_guide/data/atomic_files.html
Each file may be compressed, such as NAME.inter.gz. Of files that are divided already, such as NAME.train.inter, those
next to that of train are joined to all.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from embexp.data.columns import Wanted
from embexp.data.files import table_files
from embexp.data.files.dialect import WHITESPACE, Dialect
from embexp.data.files.table_files import Files, Side
from embexp.data.files.text_table import TextTable, header_fields, names_of, with_examples
from embexp.data.sources.columnar import ColumnarSource
from embexp.errors import Fault
from embexp.specs.data import RecBole
from embexp.system import compressed

_REMEDY = ": convert it to UTF-8, for example with `iconv -f latin1 -t utf-8 OLD > NEW`"
_DIALECTS = tuple(
    Dialect(delimiter, quoted=delimiter == ",", remedy=_REMEDY) for delimiter in ("\t", ",", ";", WHITESPACE)
)
"""RecBole's own files have tabs; those with another of its `field_separator` show it in the header."""
TYPES = ("token", "token_seq", "float", "float_seq")


def source(data: RecBole) -> ColumnarSource:
    """The source that a config describes."""
    return RecBoleSource(data, data.kind, partial(_locate, data))


@dataclass(frozen=True)
class RecBoleSource(ColumnarSource):
    """Rows of NAME.inter, or of one such file for each split."""

    def files_of_splits(self) -> dict[str, int]:
        """One file for each."""
        return {} if self.other else dict.fromkeys(self.data.given, 1)


def _locate(data: RecBole, paths: Sequence[Path], wanted: Sequence[Wanted]) -> Files:
    if len(paths) > max(1, len(data.given)):
        raise table_files.unreadable(
            paths[0], "data=recbole reads one file NAME.inter and those next to it, not several"
        )
    inters = list(map(_interactions, paths))
    if len(set(inters)) < len(inters):
        raise table_files.unreadable(inters[0], "the file would be read more than once")
    located, faults = _joined(inters[0], wanted)
    for inter in inters[1:]:
        table, _ = _table(inter)
        own = [one for one in wanted if one.name not in (located.side_of or {})]
        keys = [Wanted(side.key, "data.path") for side in located.sides]
        faults += table_files.missing(inter, table.names, [*own, *keys])
        located = replace(located, tables=(*located.tables, table))
    table_files.stop_at(faults)
    table_files.stop_at(table_files.shape_faults(located, wanted) + table_files.single_faults(located, wanted))
    return located


def _interactions(path: Path) -> Path:
    if not path.is_dir():
        found = table_files.data_files([path])
        if len(found) == 1:
            return found[0]
    else:
        found = table_files.of_form(path, ".inter")
    if len(found) != 1:
        names = ", ".join(file.name for file in found) or "none"
        raise table_files.unreadable(path, f"the folder must hold one file NAME.inter; found {names}")
    return found[0]


def _joined(inter: Path, wanted: Sequence[Wanted]) -> tuple[Files, list[Fault]]:
    """The interactions with the files joined to them, and faults for missing columns."""
    main, _ = _table(inter)
    sides: list[Side] = []
    side_of: dict[str, int] = {}
    known = list(main.names)
    for suffix in (".user", ".item"):
        beside = _beside(inter, suffix)
        if beside is None:
            continue
        table, key = _table(beside)
        known.extend(table.names)
        taken = [one.name for one in wanted if one.name in table.names and one.name not in (*main.names, *side_of)]
        if not taken:
            continue
        if key is None or key not in main.names or key in main.lists:
            raise table_files.unreadable(
                beside,
                f"its first token column, {key!r}, must also be a token column of {inter.name}, to join the files",
            )
        side_of |= dict.fromkeys(taken, len(sides))
        sides.append(Side(table, key))
    own = [one for one in wanted if one.name in main.names]
    faults = table_files.missing(inter, main.names, own)
    faults += table_files.missing(inter, known, [one for one in wanted if one.name not in known])
    return Files((main,), tuple(sides), side_of), faults


def _beside(inter: Path, suffix: str) -> Path | None:
    """The file with another suffix next to the interactions, compressed or not; None if there is none."""
    name = inter.stem if compressed.suffix_of(inter) else inter.name
    whole = Path(name).stem
    stems = [whole, *([whole.removesuffix(".train")] if whole.endswith(".train") else [])]
    names = [f"{stem}{suffix}{packed}" for stem in stems for packed in ("", *compressed.SUFFIXES)]
    found = [path for path in map(inter.with_name, names) if path.exists()]
    if len(found) > 1:
        raise table_files.unreadable(
            inter.parent, f"the folder must hold {found[0].name} or {found[1].name}, but it has both"
        )
    return found[0] if found else None


def table(path: Path) -> TextTable:
    """An atomic file, its header read.

    Raises:
        ConfigError: it can't be read, has no examples, or its header names a column without a type.
    """
    return _table(path)[0]


def _table(path: Path) -> tuple[TextTable, str | None]:
    """An atomic file, and the name of its first token column."""
    dialect, header = _header(path)
    names, lists, key = [], set(), None
    for field in header:
        name, _, kind = field.rpartition(":")
        names.append(name)
        if kind.endswith("_seq"):
            lists.add(name)
        if kind == "token" and key is None:
            key = name
    # Arrow reads by the names as they stand in the file.
    written = tuple(header_fields(path, dialect))
    return with_examples(TextTable(path, dialect, written, tuple(names), frozenset(lists))), key


def _header(path: Path) -> tuple[Dialect, list[str]]:
    """How a file is written, and the fields of its header; empty for a column without a name, behind the others."""
    headers = {dialect: names_of(header_fields(path, dialect)) for dialect in _DIALECTS}
    for dialect, header in headers.items():
        named = [field for field in header if field]
        if named and not any(header[len(named) :]) and all(map(_is_typed, named)) and not named[0].startswith("#"):
            return dialect, header
    header = max(headers.values(), key=len)
    wrong = next((field for field in header if not _is_typed(field)), header[0])
    remedy = "after the name of each column, write its type, such as user_id:token; numbers and times are float"
    if header[0].startswith("#"):
        wrong = header[0]
        remedy = "remove the leading #, which NumPy's savetxt writes, and use the same separator in rows and header"
    elif not any(":" in field for field in header):
        remedy += f", or rename the file to {Path(path.name).with_suffix('.tsv')} and read it with data=csv"
    rule = f"line 1: found {wrong!r}, expected name:type with a type among {', '.join(TYPES)}"
    raise table_files.unreadable(path, rule, remedy)


def _is_typed(field: str) -> bool:
    name, _, kind = field.rpartition(":")
    return bool(name) and kind in TYPES and not re.search(r"[\t,; ]", name)
