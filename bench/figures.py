"""The figures that pages quote. `docs/figures.json` has each once per kind of processor, with its origin.

    python -m bench.NAME --record         measures, and writes the quoted figures into the file and the pages
    python -m bench.figures               rewrites the pages after a change of the file

A page names a figure after its number, `5.7<!-- step.torch.adam -->`. The line before a table names the figures of its
last columns: `<!-- models: torch.ms, torch.ratio, torch.ratio@avx2 -->`; the cells before them name the row. A list has
a number for each repetition: the page has its median, its numbers, or both. Numbers keep the decimals that the page
has. The comment `<!-- measured: models.dlrm -->` precedes a line that says where, when and how it was measured.
"""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from embexp.system import files

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "docs" / "figures.json"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_NUMBER = r"(?<![\w.,])[+−-]?\d(?:[\d,]*\d)?(?:\.\d+)?(?![\w]|[.,]\d)"
_INLINE = re.compile(rf"({_NUMBER})(\**<!-- ([\w.@]+) -->)")
_TABLE = re.compile(r"<!-- (?!measured:)([\w.]+): ([\w.@, -]+) -->")
_MEASURED = re.compile(r"<!-- measured: ([\w.@]+) -->")
_CELL = re.compile(
    rf"`[^`]*`|\]\([^)]*\)|\(?targets?:[^)]*\)?|\d+%|(?P<all>\({_NUMBER}(?: {_NUMBER})+\))|(?P<one>{_NUMBER})"
)
_SUFFIXES = {"avx512": "", "avx2": "@avx2"}
Figure = tuple[list[float], Mapping[str, Any]]
"""The numbers of a figure, and its recording."""


def read() -> dict[str, Figure]:
    """All figures in the file by name. `NAME@avx2` comes from a processor without AVX-512."""
    found: dict[str, Figure] = {}
    for recording in json.loads(FILE.read_text(encoding="utf-8")):
        for name, value in recording["figures"].items():
            name += _SUFFIXES[recording["instructions"]]
            if name in found:
                raise ValueError(f"{FILE} has two figures with the name {name}")
            found[name] = (value if isinstance(value, list) else [value], recording)
    return found


def record(bench: str, quotable: Any, described: Mapping[str, str], command: str) -> None:
    """Replaces the numbers in the file that pages quote, and writes the pages.

    Args:
        bench: name of the benchmark, with which the names of its figures begin.
        quotable: nested dicts of numbers and lists of numbers.
        described: description of the machine.
        command: the command that measured them.
    """
    kind = described["instructions"]
    names = {name for page in PAGES for name in quoted(page.read_text(encoding="utf-8"))}
    found = {name: value for name, value in _flat(bench, quotable) if name + _SUFFIXES[kind] in names}
    recordings = json.loads(FILE.read_text(encoding="utf-8"))
    for earlier in recordings:
        if earlier["instructions"] == kind:
            earlier["figures"] = {name: each for name, each in earlier["figures"].items() if name not in found}
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout
    where = {key: described[key] for key in ("instructions", "processor", "cores", "load")}
    versions = {key: described[key] for key in ("tensorflow", "keras", "torch") if key in described}
    when = {"date": time.strftime("%Y-%m-%d"), "commit": commit.strip(), "versions": versions}
    recordings.append({"command": command, "source": "bench", **where, **when, "figures": found})
    write([each for each in recordings if each["figures"]])
    print(f"wrote {len(found)} quoted figures into {FILE.relative_to(FILE.parents[1])}")


def write(recordings: list[dict[str, Any]]) -> None:
    """Writes the file, and its figures into the pages."""
    text = json.dumps(recordings, indent=1, ensure_ascii=False)
    text = re.sub(r"\[[^][{}]+\]", lambda found: f"[{' '.join(found[0][1:-1].split())}]", text)  # one list per line
    files.write_text(FILE, text + "\n")
    figures = read()
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        if (new := rewritten(text, figures.get)) != text:
            files.write_text(page, new)


def _flat(name: str, value: Any) -> Iterator[tuple[str, float | list[float]]]:
    """Numbers with four digits, and lists with one per repetition, by their dotted keys."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _flat(f"{name}.{_slug(str(key))}", each)
    elif isinstance(value, list) and value and all(isinstance(each, Mapping) for each in value):
        yield from _flat(name, {key: [each[key] for each in value] for key in value[0]})
    elif isinstance(value, list | tuple) and value and all(isinstance(each, int | float) for each in value):
        yield name, [float(f"{each:.4g}") for each in value]
    elif isinstance(value, int | float):
        yield name, float(f"{value:.4g}")


def _slug(text: str) -> str:
    text = text.partition("<!-- ")[2].partition(" -->")[0] or text  # the name of the row, if it has one
    return re.sub(r"\W+", "_", text.lower()).strip("_")


def quoted(text: str) -> list[str]:
    """The names that a page quotes, in order."""
    found: list[str] = []
    rewritten(text, found.append)
    return found


def rewritten(text: str, look_up: Callable[[str], Figure | None]) -> str:
    """The page with the current numbers of its names, or without a number where the name has none.

    Raises:
        ValueError: a cell has neither one number nor as many numbers as its figure.
    """
    lines: list[str] = []
    table, body, above = None, False, ""
    for line in text.split("\n"):
        if found := _TABLE.fullmatch(line):
            table, body = (found[1], found[2].split(", ")), False
        elif lines and (found := _MEASURED.fullmatch(lines[-1])):
            line = _measured(line, look_up(found[1]))
        elif table is not None and line.startswith("|"):
            if body:
                line, above = _row(line, *table, above, look_up)
            body = body or not line.strip("|-: ")
        else:
            table = None if body else table
            line = _INLINE.sub(lambda found: _in_cell(found[1], look_up(found[3])) + found[2], line)
        lines.append(line)
    return "\n".join(lines)


def _row(
    line: str, bench: str, columns: list[str], above: str, look_up: Callable[[str], Figure | None]
) -> tuple[str, str]:
    """A row of a table, and its first cell; if that is empty, the first cell of the row above."""
    cells = re.split(r"(?<!\\)\|", line)[1:-1]
    first = _slug(cells[0]) or above
    names = [bench, first, *filter(None, map(_slug, cells[1 : -len(columns)]))]
    for number, column in enumerate(columns, len(cells) - len(columns)):
        if column != "-" and any(found["one"] for found in _CELL.finditer(cells[number])):
            cells[number] = _in_cell(cells[number], look_up(".".join([*names, column])))
    return f"|{'|'.join(cells)}|", first


def _in_cell(cell: str, figure: Figure | None) -> str:
    if figure is None:
        return cell
    values = figure[0]
    shown = [values, [statistics.median(values)]] if values else []
    count = sum(found["one"] is not None for found in _CELL.finditer(cell))
    numbers = next((iter(each) for each in shown if len(each) == count), None)
    if values and numbers is None:
        raise ValueError(f"{cell.strip()!r} has {count} numbers, but its figure has {values}")

    def number(found: re.Match[str]) -> str:
        if found["all"]:
            return f"({' '.join(_formatted(each, found['all'][1:-1].split()[0]) for each in values)})"
        if found["one"]:
            return _formatted(next(numbers), found["one"]) if numbers else ""
        return found[0]

    return _CELL.sub(number, cell)


def _formatted(value: float, like: str) -> str:
    """A number with the decimals and the plus sign of another number."""
    sign = "−" if value < 0 else "+" if like[0] in "+−" else ""
    return f"{sign}{abs(value):,.{len(like.partition('.')[2])}f}"


def _measured(line: str, figure: Figure | None) -> str:
    if figure is None or (of := figure[1]).get("source") != "bench":
        return line
    cores = f"{of['cores']} cores, load {of['load']}"
    return f"Measured by `{of['command']}` on {of['date']}: {of['processor']}, {cores}, commit {of['commit']}."


if __name__ == "__main__":
    write(json.loads(FILE.read_text(encoding="utf-8")))
