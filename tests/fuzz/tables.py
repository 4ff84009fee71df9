"""Files with columns as people might have them, made at random: what is in them, and how it is written."""

from __future__ import annotations

import csv
import datetime
import gzip
import io
import json
import re
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_NAMES = (
    "user", "item", "price", "when", "user id", "größe", "a.b", "$ref", "x*", "2019", "null", "yes", "a/b",
    "naïve\u0301", "日本", "-v", "#no", "label ", "it's", 'say "x"', "${oc.env:HOME}", "id", "ts", "hour",
    "C1", "C2", "C3", "{x}", "a:b",
    "a,b", "tags", "text", "weight", "very_" * 30, "@x", "%", "~", "kind", "path", "time", "=1+1", "\x1b[31m",
)  # fmt: skip
_TEXT = "the quick brown fox jumps over lazy dogs while ünïcödé words of a review, they say; are read again"
_MISSING = ("", "", "NA", "null", "nan", "None", "N/A", "?", "-")
_ROWS = (0, 2, 4, 5, 8, 15, 30, 60, 60, 60, 120, 120, 120, 300, 300)

Values = list[Any]


def _many(random: Random, count: int, one: Callable[[], Any]) -> Values:
    return [one() for _ in range(count)]


def _dates(random: Random, rows: int, form: str) -> Values:
    first = datetime.datetime(2021, 3, 4, 5, 6, 7)
    return [(first + datetime.timedelta(hours=random.randrange(20_000))).strftime(form) for _ in range(rows)]


_KINDS: dict[str, Callable[[Random, int], Values]] = {
    "categories": lambda random, rows: [f"c{random.randrange(7)}" for _ in range(rows)],
    "many categories": lambda random, rows: [f"v{int(random.expovariate(0.02))}" for _ in range(rows)],
    "one each": lambda random, rows: [f"id{number}" for number in range(rows)],
    "rows": lambda random, rows: list(range(rows)),
    "few numbers": lambda random, rows: [random.randrange(5) for _ in range(rows)],
    "whole": lambda random, rows: [random.randrange(-50, 1000) for _ in range(rows)],
    "numbers": lambda random, rows: [random.gauss(3, 2) for _ in range(rows)],
    "heavy": lambda random, rows: [round(random.lognormvariate(2, 3), 2) for _ in range(rows)],
    "huge": lambda random, rows: [
        random.choice((1e300, 1e38, 4e38, -1e39, 2**53 + 1, 2**64, 1.5)) for _ in range(rows)
    ],
    "huge text": lambda random, rows: [random.choice(("1e400", "1e+300", "1", "2.5", "1e-400")) for _ in range(rows)],
    "tiny": lambda random, rows: [random.choice((1e-300, 1e-45, 0.0, -0.0, 5e-324)) for _ in range(rows)],
    "infinite": lambda random, rows: [random.choice((1.0, 2.5, float("inf"), float("nan"), 7.0)) for _ in range(rows)],
    "constant": lambda random, rows: ["same"] * rows,
    "zero": lambda random, rows: [0] * rows,
    "missing": lambda random, rows: [None] * rows,
    "truth": lambda random, rows: [random.random() < 0.3 for _ in range(rows)],
    "yes": lambda random, rows: [random.choice(("Yes", "No")) for _ in range(rows)],
    "iso": lambda random, rows: _dates(random, rows, random.choice(("%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"))),
    "german": lambda random, rows: _dates(random, rows, "%d.%m.%Y"),
    "american": lambda random, rows: _dates(random, rows, "%m/%d/%Y"),
    "digits": lambda random, rows: _dates(random, rows, "%Y%m%d"),
    "epoch": lambda random, rows: [1_600_000_000 + random.randrange(10**7) for _ in range(rows)],
    "milliseconds": lambda random, rows: [1_600_000_000_000 + random.randrange(10**10) for _ in range(rows)],
    "lists": lambda random, rows: [random.sample("abcdef", random.randrange(4)) for _ in range(rows)],
    "number lists": lambda random, rows: [_many(random, random.randrange(3), random.random) for _ in range(rows)],
    "texts": lambda random, rows: [
        " ".join(random.choices(_TEXT.split(), k=random.randrange(3, 20))) for _ in range(rows)
    ],
    "odd texts": lambda random, rows: [
        random.choice(
            ('a "b"', "x,y", "l1\nl2", "t\tb", "\x1b[31m", "=1+1", " pad ", "é", "e\u0301", "#", "\u2028", "'")
        )
        for _ in range(rows)
    ],
    "letters": lambda random, rows: ["".join(random.choices(string.printable, k=4)) for _ in range(rows)],
    "codes": lambda random, rows: [f"{random.randrange(400):05}" for _ in range(rows)],
    "words among numbers": lambda random, rows: [random.choice((1, 2.5, 37, 4, "x")) for _ in range(rows)],
    "amounts": lambda random, rows: [f"{random.randrange(10**6):,}.50" for _ in range(rows)],
    "comma numbers": lambda random, rows: [f"{random.uniform(0, 99):.2f}".replace(".", ",") for _ in range(rows)],
    "printed lists": lambda random, rows: [str(random.sample("abcd", 2)) for _ in range(rows)],
    "objects": lambda random, rows: [{"id": random.randrange(4), "n": random.random()} for _ in range(rows)],
    "deep": lambda random, rows: [[{"id": random.randrange(4)}] for _ in range(rows)],
}
_LABELS: dict[str, Callable[[Random, int], Values]] = {
    "0 and 1": lambda random, rows: [random.randrange(2) for _ in range(rows)],
    "words": lambda random, rows: [random.choice(("good", "bad")) for _ in range(rows)],
    "classes": lambda random, rows: [random.choice("abc") for _ in range(rows)],
    "stars": lambda random, rows: [random.randrange(1, 6) for _ in range(rows)],
    "numbers": _KINDS["numbers"],
    "huge": _KINDS["huge text"],
    "ranks": lambda random, rows: [random.randrange(4) for _ in range(rows)],
}


@dataclass(frozen=True)
class Table:
    """A file, or a folder of files.

    Attributes:
        path: of it.
        label: the column that `embexp new` is given; None: none.
        about: what is in it, for messages.
    """

    path: Path
    label: str | None
    about: str


def table(seed: int, folder: Path) -> Table:
    """Writes the table of a number into a folder."""
    random = Random(seed)
    rows = random.choice(_ROWS)
    names = random.sample(_NAMES, random.randrange(1, 7))
    kinds = [random.choice(list(_KINDS)) for _ in names]
    columns = [_KINDS[kind](random, rows) for kind in kinds]
    label, of_label = random.choice(("y", "label", "Klasse")), random.choice(list(_LABELS))
    names.append(label)
    columns.append(_LABELS[of_label](random, rows))
    for place, column in enumerate(columns):
        if random.random() < 0.25:
            word, share = random.choice(_MISSING) or None, random.choice((0.03, 0.3, 0.95))
            columns[place] = [word if random.random() < share else value for value in column]
    if random.random() < 0.06:
        names[random.randrange(len(names))] = random.choice(("", names[0], label))
    form = random.choice(list(_FORMS))
    path = _FORMS[form](random, folder, names, columns)
    chosen = label if random.random() < 0.9 else random.choice([None, *names])
    kinds = [f"{name!r} {kind}" for name, kind in zip(names, [*kinds, of_label], strict=True)]
    about = f"{rows} rows as {form}: {', '.join(kinds)}"
    return Table(path, chosen or None, about)


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return "|".join(map(str, value))
    return "" if value is None else str(value)


def _lines(random: Random, names: Sequence[str], columns: Sequence[Values], delimiter: str, *, headed: bool) -> str:
    text = io.StringIO()
    rows = [[_cell(value) for value in row] for row in zip(*columns, strict=True)]
    if random.random() < 0.08 and rows:
        rows[random.randrange(len(rows))].append("too much")
    if random.random() < 0.08:
        rows.insert(random.randrange(len(rows) + 1), [])
    quoting = csv.QUOTE_ALL if random.random() < 0.2 else csv.QUOTE_MINIMAL
    end = random.choice(("\n", "\n", "\r\n"))
    csv.writer(text, delimiter=delimiter, quoting=quoting, lineterminator=end).writerows(
        [*([names] if headed else []), *rows]
    )
    return text.getvalue()


def _csv(random: Random, folder: Path, names: Sequence[str], columns: Sequence[Values]) -> Path:
    text = _lines(random, names, columns, random.choice(",,;\t|"), headed=random.random() < 0.92)
    encoding = random.choice(("utf-8", "utf-8", "utf-8", "utf-8-sig", "utf-16", "latin-1"))
    content = text.encode(encoding, "replace")
    packed = random.random() < 0.15
    path = folder / f"own{random.choice(('.csv', '.tsv', '.txt', '.dat', ''))}{'.gz' if packed else ''}"
    path.write_bytes(gzip.compress(content) if packed else content)
    return path


def _folder(random: Random, folder: Path, names: Sequence[str], columns: Sequence[Values]) -> Path:
    (folder / "own").mkdir()
    cut = len(columns[0]) // 2
    for number, part in enumerate((slice(cut), slice(cut, None))):
        text = _lines(random, names, [column[part] for column in columns], ",", headed=True)
        (folder / "own" / f"{number}.csv").write_text(text, "utf-8", newline="")
    return folder / "own"


def _json_lines(random: Random, folder: Path, names: Sequence[str], columns: Sequence[Values]) -> Path:
    rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    if random.random() < 0.5:
        rows = [{name: value for name, value in row.items() if value is not None} for row in rows]
    text = "".join(json.dumps(row, ensure_ascii=random.random() < 0.5) + "\n" for row in rows)
    packed = random.random() < 0.3
    path = folder / f"own.{random.choice(('jsonl', 'ndjson', 'json'))}{'.gz' if packed else ''}"
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    return path


def _parquet(random: Random, folder: Path, names: Sequence[str], columns: Sequence[Values]) -> Path:
    arrays = []
    for values in columns:
        try:
            arrays.append(pa.array(values))
        except (pa.ArrowException, OverflowError):  # of several types
            arrays.append(pa.array([None if value is None else str(value) for value in values], pa.string()))
    if random.random() < 0.3:
        arrays = [each.dictionary_encode() if each.type == pa.string() else each for each in arrays]
    pq.write_table(pa.Table.from_arrays(arrays, names=list(names)), folder / "own.parquet", row_group_size=50)
    return folder / "own.parquet"


def _recbole(random: Random, folder: Path, names: Sequence[str], columns: Sequence[Values]) -> Path:
    kinds = ["float" if all(isinstance(value, int | float) for value in column) else "token" for column in columns]
    names = [re.sub(r"\W", "_", name) for name in names]
    header = [f"{name}:{kind}" for name, kind in zip(names, kinds, strict=True)]
    rows = [
        "\t".join(_cell(value).replace("\n", " ").replace("\t", " ") for value in row)
        for row in zip(*columns, strict=True)
    ]
    (folder / "own.inter").write_text("\n".join(["\t".join(header), *rows]) + "\n", "utf-8", newline="")
    return folder / "own.inter"


_FORMS = {
    "CSV": _csv,
    "CSV files": _folder,
    "more CSV": _csv,
    "Parquet": _parquet,
    "JSON Lines": _json_lines,
    "RecBole": _recbole,
}
