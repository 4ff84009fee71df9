"""Knowledge graphs in the form of OpenKE: triples of numbers, and files with the name of each number.

| file | first line | other lines |
|---|---|---|
| entity2id, relation2id | how many names | name, a tab, its number from 0 |
| train2id, valid2id, test2id | how many triples | the numbers of head, tail and relation, blanks between them |

https://github.com/thunlp/OpenKE has the form, and graphs in it. Numbers become names again as the lines are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from embexp.data.files.table_files import text_lines
from embexp.errors import DataError, excerpt, plural

NUMBERED = "2id"
"""How the stems of all names of files end."""
ENTITIES, RELATIONS = f"entity{NUMBERED}", f"relation{NUMBERED}"
"""Stems of the files with names."""


@dataclass(frozen=True)
class Names:
    """The names of a graph by their numbers, and the files that they are from."""

    files: tuple[Path, Path]
    entities: list[str]
    relations: list[str]

    @staticmethod
    def read(entities: Path, relations: Path) -> Names:
        """Reads both files.

        Raises:
            DataError: a line holds no name and number, a number or a name is there twice, or the count is wrong.
        """
        return Names((entities, relations), _names(entities), _names(relations))

    def triples(self, path: Path) -> Iterator[tuple[list[str], int]]:
        """Head, relation and tail of each line of a file by their names, and the bytes read with it.

        Raises:
            DataError: a line is no triple of numbers that have names, or the count is wrong.
        """
        (entity_file, relation_file), found = self.files, 0
        count, lines = _counted(path)
        for number, text, size in lines:
            fields, place = text.split(), f"{path}, line {number}"
            if len(fields) != 3:
                expected = "expected 3, the numbers of head, tail and relation"
                raise DataError(f"{place}: found {plural(len(fields), 'field')} in {excerpt(text)}, {expected}")
            head, tail = (_named(field, self.entities, entity_file, place) for field in fields[:2])
            yield [head, _named(fields[2], self.relations, relation_file, place), tail], size
            found += 1
        _check_count(path, found, count, "triple")


def _named(field: str, names: list[str], file: Path, place: str) -> str:
    if not _is_number(field) or int(field) >= len(names):
        raise DataError(f"{place}: found {excerpt(field)}, expected a number below {len(names):,}, as {file.name} has")
    return names[int(field)]


def _names(path: Path) -> list[str]:
    count, lines = _counted(path)
    names: dict[int, str] = {}
    for line, text, _ in lines:
        place, (name, *rest) = f"{path}, line {line}", text.rstrip().rsplit(maxsplit=1) or [""]
        if not rest or not _is_number(rest[0]):
            raise DataError(f"{place}: found {excerpt(text)}, expected a name, a tab and its number")
        if (number := int(rest[0])) >= count:
            raise DataError(f"{place}: found the number {number:,}, expected one below {count:,}, as line 1 says")
        if number in names:
            raise DataError(f"{place}: found the number {number:,} again, expected another for each name")
        names[number] = name
    _check_count(path, len(names), count, "name")
    if len(set(names.values())) < count:
        seen: set[str] = set()
        twice = next(name for name in names.values() if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise DataError(f"{path}: found the name {excerpt(twice)} twice, expected another for each number")
    return [names[number] for number in range(count)]


def _counted(path: Path) -> tuple[int, Iterator[tuple[int, str, int]]]:
    """The number in the first line, and the lines after it."""
    lines = text_lines(path)
    first = next(lines, (1, "", 0))[1].strip()
    if not _is_number(first):
        found = excerpt(first) if first else "nothing"
        raise DataError(f"{path}, line 1: found {found}, expected the number of lines that follow")
    return int(first), lines


def _check_count(path: Path, found: int, count: int, what: str) -> None:
    if found != count:
        raise DataError(f"{path}: found {plural(found, what)}, expected {count:,}, as line 1 says")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 19
