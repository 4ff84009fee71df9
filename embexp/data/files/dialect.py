"""How a text table is written: delimiters, quotes, encoding, and the marks in its numbers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

WHITESPACE = "whitespace"
"""The delimiter that is any number of blanks and tabs."""
NULLS = ("", "NA", "N/A", "n/a", "null", "NULL", "None", "NaN", "nan")
"""What fields of columns of numbers hold where there is no number."""


@dataclass(frozen=True)
class Dialect:
    """How a text table is written.

    Attributes:
        delimiter: between fields: some characters, or `WHITESPACE`.
        quoted: fields may stand in double quotes, and then hold delimiters and line ends; needs a delimiter of one
            character.
        list_separator: between the values of a field that holds several, or `printed_lists.BRACKETS`.
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
