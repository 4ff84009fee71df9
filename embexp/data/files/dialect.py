"""How a text table is written: delimiters, quotes, encoding, the marks in its numbers, and lists.

Lists are read as programs print them: Python, pandas, JSON, NumPy, PostgreSQL and Spark.

| text | from |
|---|---|
| `['a', "it's", None]`, `('a',)`, `{'a', 'b'}`, `set()`, `[np.int64(1)]` | Python: `str(list)`, as pandas writes it |
| `["a", "b", null]` | JSON |
| `['a' 'b']`, `[1 2 3]` | NumPy: no commas |
| `[New York, Rome]`, `{a,b}` | Spark and PostgreSQL: no quotes |

What is in quotes is read as `json.loads` reads JSON and `ast.literal_eval` reads Python, but nothing is ever evaluated.
A text is read once, from left to right. Standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

WHITESPACE = "whitespace"
"""The delimiter that is any number of blanks and tabs."""
NULLS = ("", "NA", "N/A", "n/a", "null", "NULL", "None", "NaN", "nan")
"""What fields of columns of numbers hold where there is no number."""
BRACKETS = "brackets"
"""The separator of values in lists that are printed."""
EXPECTED = "a list such as ['a', 'b'], [\"a\", \"b\"] or [1, 2]"
"""What a text should be, for errors."""
_PAIRS = {"[": "]", "(": ")", "{": "}"}
_NONE = {*NULLS, "<NA>", "NaT"} - {""}
_EMPTY = {*NULLS, "<NA>", "set()", "frozenset()"}
_NUMBER = r"[+-]?(?:\d[\d_]*(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"
_NUMPY = rf"np\.\w+\((?:(?P<number>{_NUMBER})|(?P<single>'[^'\\]*')|(?P<double>\"[^\"\\]*\"))\)"
_QUOTED = r"'[^'\\]*(?:\\.[^'\\]*)*'" + r'|"[^"\\]*(?:\\.[^"\\]*)*"'
_VALUE = re.compile(
    rf"\s*(?:(?P<quoted>{_QUOTED})|{_NUMPY}|(?P<bare>{_NUMBER}|[A-Za-z<][\w.>]*))\s*(?P<comma>,?)", re.DOTALL | re.ASCII
)
_WHOLE = re.compile(r"(?:0|-?[1-9]\d*)(?:, (?:0|-?[1-9]\d*))*", re.ASCII)
_UNQUOTED = re.compile(r"[^\[\](){}'\"\\]*")
_HEX = r"[\da-fA-F]"
_PAIR = rf"u[dD][89abAB]{_HEX}{{2}}\\u[dD][c-fC-F]{_HEX}{{2}}"
_ESCAPE = re.compile(rf"\\({_PAIR}|x{_HEX}{{2}}|u{_HEX}{{4}}|U{_HEX}{{8}}|[0-7]{{1,3}}|.)", re.DOTALL | re.ASCII)
_LETTERS = {
    **dict(zip("ntrbfav", "\n\t\r\b\f\a\v", strict=True)),
    "\n": "",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "/": "/",
}


@dataclass(frozen=True)
class Dialect:
    """How a text table is written.

    Attributes:
        delimiter: between fields: some characters, or `WHITESPACE`.
        quoted: fields may stand in double quotes, and then hold delimiters and line ends; needs a delimiter of one
            character.
        list_separator: between the values of a field that holds several, or `BRACKETS`.
        encoding: of the text, by the name that Python has for it.
        decimal: the point of numbers, `.` or `,`.
        thousands: between groups of three digits of numbers; "" for nothing.
        remedy: what to do where the text is not UTF-8, as the end of a sentence.
    """

    delimiter: str
    quoted: bool
    list_separator: str = " "
    encoding: str = "utf-8"
    remedy: str = ""
    decimal: str = "."
    thousands: str = ""

    @property
    def utf8(self) -> bool:
        """Whether the text is UTF-8 (or ASCII)."""
        return self.encoding == "utf-8"

    @property
    def simple(self) -> bool:
        """Whether the delimiter is one character."""
        return len(self.delimiter) == 1

    @property
    def plain(self) -> bool:
        """Whether numbers are written as in Python."""
        return self.decimal == "." and not self.thousands

    @property
    def _grouped(self) -> str:
        """The pattern of numbers with separated thousands."""
        return rf"^[+-]?[0-9]{{1,3}}({re.escape(self.thousands)}[0-9]{{3}})+({re.escape(self.decimal)}[0-9]*)?$"

    def number(self, text: str) -> str:
        """A number as Python writes it; another text as something that is none."""
        if self.plain:
            return text
        if self.thousands and self.thousands in text:
            text = text.replace(self.thousands, "") if re.match(self._grouped, text.strip()) else "?"
        return text if self.decimal == "." else text.replace(".", "?").replace(self.decimal, ".")

    def numbers(self, texts: pa.Array) -> pa.Array:
        """The same of many fields; null where there is no number."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if not pa.types.is_string(texts.type):
            return texts  # read as numbers
        texts = pc.utf8_trim_whitespace(texts)
        texts = pc.if_else(pc.is_in(texts, pa.array(NULLS)), None, texts)
        if self.thousands:
            wrong = pc.and_(
                pc.match_substring(texts, self.thousands), pc.invert(pc.match_substring_regex(texts, self._grouped))
            )
            texts = pc.if_else(wrong, "?", pc.replace_substring(texts, self.thousands, ""))
        if self.decimal != ".":
            texts = pc.replace_substring(pc.replace_substring(texts, ".", "?"), self.decimal, ".")
        return texts


def values_of_list(text: str) -> list[str | None] | None:
    """The values of a list, None for a missing one; None for a text that is no list.

    A text without a value, such as `nan`, is an empty list, as a missing list of Parquet is.
    """
    text = text.strip()
    if text in _EMPTY:
        return []
    if text.startswith("frozenset({") and text.endswith("})"):
        text = text[len("frozenset(") : -1]
    if len(text) < 2 or _PAIRS.get(text[0]) != text[-1]:
        return None
    inner = text[1:-1].strip()
    if not inner:
        return []
    found = _plain(inner)
    if found is None:
        found = _quoted_or_numbers(inner)
    if text[0] == "(":
        one = found is not None and len(found) == 1 and not inner.endswith(",")
        return None if one else found  # brackets around a value are no tuple
    return _unquoted(inner) if found is None else found


def _plain(inner: str) -> list[str | None] | None:
    """Of most lists, split in one step; None for others."""
    for quote in "'\"":
        if inner[0] == quote == inner[-1] and "\\" not in inner:
            parts = inner[1:-1].split(f"{quote}, {quote}")
            return list(parts) if inner.count(quote) == 2 * len(parts) else None
    return list(inner.split(", ")) if _WHOLE.fullmatch(inner) else None


def _unquoted(inner: str) -> list[str | None] | None:
    """Of words with commas between them; None if there is a quote or a bracket, or nothing between two commas."""
    parts = [part.strip() for part in inner.split(",")]
    if not _UNQUOTED.fullmatch(inner) or not all(parts) or is_cut(inner):
        return None
    return [None if part in _NONE else part for part in parts]


def _quoted_or_numbers(inner: str) -> list[str | None] | None:
    """The values, if all are in quotes, numbers or words that mean none, with a comma between any two or none."""
    found: list[str | None] = []
    place = commas = 0
    while place < len(inner):
        match = _VALUE.match(inner, place)
        if match is None or match.end() == place:
            return None
        quoted = match["quoted"] or match["single"] or match["double"]
        if quoted is not None:
            text = _unescaped(quoted)
            if text is None:
                return None
            found.append(text)
        elif (number := match["number"] or match["bare"])[0] in "+-.0123456789":
            written = _written(number)
            if written is None:
                return None
            found.append(written)
        elif number in _NONE:
            found.append(None)
        elif number in ("True", "False", "true", "false"):
            found.append(number)
        else:
            return None
        commas += bool(match["comma"])
        place = match.end()
    if commas and commas != len(found) - (not inner.endswith(",")):
        return None
    return found


def _written(number: str) -> str | None:
    """A number as Parquet's has its decimal text, if it is whole; else as it stands. None: it is none of Python's."""
    digits = number.lstrip("+-").replace("_", "")
    if not digits.isdigit():
        return number
    if not digits.strip("0"):
        return "0"
    if digits[0] == "0":
        return None  # 007 is no number of Python or JSON
    return f"-{digits}" if number[0] == "-" else digits


def _unescaped(quoted: str) -> str | None:
    """The text between quotes; None if it has an escape that is none, or stands for no character."""
    text = quoted[1:-1]
    if "\\" not in text:
        return text
    try:
        text = _ESCAPE.sub(_character, text)
        text.encode()
    except (KeyError, ValueError):
        return None
    return text


def _character(match: re.Match[str]) -> str:
    escape = match[1]
    if len(escape) == 11:  # a pair of surrogates of JSON
        high, low = int(escape[1:5], 16), int(escape[7:], 16)
        return chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))
    if escape[0] in "xuU" and len(escape) > 1:
        return chr(int(escape[1:], 16))
    return chr(int(escape, 8)) if escape.isdigit() else _LETTERS[escape]


def are_lists(texts: Iterable[str]) -> bool:
    """Whether all texts are lists, and brackets are not just what each value stands in, as in `[REC]`."""
    some = False
    for text in texts:
        found = values_of_list(text)
        if found is None:
            return False
        some |= len(found) > 1 or (len(found) == 1 and text.strip()[1:-1].strip()[:1] in ("'", '"'))
    return some


def is_cut(text: str) -> bool:
    """Whether NumPy has left out the middle of a long list, as in `[1 2 ... 9]`."""
    return re.search(r"[\s,]\.\.\.[\s,]", text) is not None


def expected_list(text: str) -> str:
    """What a text that is no list should be, for errors."""
    return f"{EXPECTED}; NumPy has abbreviated it: write lists with .tolist()" if is_cut(text) else EXPECTED
