"""Tokens that differ in their spelling only, made equal by the steps of `data.normalize`; and where they are not.

Python's text is the reference: `str.strip`, `str.lower`, `unicodedata.normalize`. Text in ASCII, which most is, takes
Arrow's functions, which agree there.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from embexp.errors import excerpt
from embexp.specs.vocabularies import WHOLE_NUMBER, Step, normalized_text

_ASCII_SPACE = " \t\n\v\f\r\x1c\x1d\x1e\x1f"
_EVERY = tuple(Step)
WORDS = {
    Step.STRIP: "spaces at their ends",
    Step.LOWER: "case",
    Step.NFC: "Unicode form",
    Step.NUMBER: "how a number is written",
}
"""What tokens differ in that a step makes equal."""


def normalized(values: Any, steps: Collection[Step]) -> Any:
    """Tokens after some steps: text, lists of it, or a dictionary; other types, such as integers, stay as they are."""
    kind = values.type
    if not steps:
        return values
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        lists = values.cast(pa.large_list(kind.value_type))
        inner = normalized(lists.values, steps)
        return pa.LargeListArray.from_arrays(lists.offsets, inner, mask=lists.is_null() if lists.null_count else None)
    words = values if pa.types.is_dictionary(kind) else None
    if not _is_text(kind if words is None else kind.value_type):
        return values
    words = pc.dictionary_encode(values) if words is None else words
    return _of_distinct(words.dictionary.cast(pa.large_string()), steps).take(words.indices)


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _of_distinct(texts: pa.LargeStringArray, steps: Collection[Step]) -> pa.LargeStringArray:
    ascii_only = pc.fill_null(pc.string_is_ascii(texts), True)
    if ascii_only.false_count:
        others = [
            text if text is None else normalized_text(text, steps)
            for text in texts.filter(pc.invert(ascii_only)).to_pylist()
        ]
        found = _of_ascii(pc.if_else(ascii_only, texts, ""), steps)
        return pc.replace_with_mask(found, pc.invert(ascii_only), pa.array(others, pa.large_string()))
    return _of_ascii(texts, steps)


def _of_ascii(texts: pa.LargeStringArray, steps: Collection[Step]) -> pa.LargeStringArray:
    if Step.STRIP in steps:
        texts = pc.ascii_trim(texts, characters=_ASCII_SPACE)
    if Step.LOWER in steps:
        texts = pc.ascii_lower(texts)
    if Step.NUMBER in steps:
        # The expression takes ten times as long as these looks, which leave few texts in most columns.
        maybe = pc.match_substring(texts, ".")
        for start in ("0", "+", "-0"):
            maybe = pc.or_(maybe, pc.starts_with(texts, start))
        if (maybe := pc.fill_null(maybe, False)).true_count:
            some = pc.replace_substring_regex(texts.filter(maybe), WHOLE_NUMBER, r"\1\2")
            texts = pc.replace_with_mask(texts, maybe, some)
    return texts


@dataclass(frozen=True)
class Alike:
    """Tokens that differ from another in their spelling only.

    Attributes:
        count: how many tokens there would be less if the steps were taken.
        tokens: all of them.
        pair: two that the steps make equal.
        steps: those that make all of them equal; none of them can be left out.
    """

    count: int
    tokens: int
    pair: tuple[str, str]
    steps: tuple[Step, ...]

    @property
    def differences(self) -> str:
        """What they differ in, for people."""
        *words, last = [WORDS[step] for step in self.steps]
        return f"{', '.join(words)} or {last}" if words else last

    @property
    def shown(self) -> tuple[str, str]:
        """The pair in quotes, so that one sees the difference."""
        first, second = self.pair
        same = unicodedata.normalize("NFC", first) == unicodedata.normalize("NFC", second)
        show = ascii if same else excerpt
        return show(first), show(second)

    def setting(self, steps: Collection[Step] | None = ()) -> str:
        """The setting by which they are equal, with the steps that are taken already."""
        return f"data.normalize=[{','.join(step for step in Step if step in self.steps or step in (steps or ()))}]"

    @property
    def caution(self) -> str:
        """What the setting costs, for people; "": nothing."""
        return " (a SavedModel can't take the step nfc)" if Step.NFC in self.steps else ""

    def as_json(self) -> dict[str, Any]:
        """What `of_json` takes."""
        return asdict(self)

    @staticmethod
    def of_json(content: Mapping[str, Any]) -> Alike:
        """What `as_json` made."""
        pair, steps = tuple(content["pair"]), tuple(map(Step, content["steps"]))
        return Alike(content["count"], content["tokens"], pair, steps)


def alike(tokens: pa.LargeStringArray, known: pa.LargeStringArray | None = None) -> Alike | None:
    """Those of distinct tokens that differ from another in their spelling only; None if there are none.

    Args:
        known: others, with which they are compared instead of with each other; none of them is among the tokens.
    """
    several = tokens if known is None else pa.concat_arrays([tokens, known])
    keys = _keys(several)
    if keys.equals(several):
        return None
    encoded = pc.dictionary_encode(keys)
    if len(encoded.dictionary) == len(keys):
        return None
    codes = encoded.indices.to_numpy()
    near = np.bincount(codes).take(codes) > 1
    some = several.filter(pa.array(near))
    own = len(some) if known is None else int(near[: len(tokens)].sum())

    def count(steps: Collection[Step]) -> int:
        found = _of_distinct(some, steps)
        if known is not None:
            return int(pc.is_in(found.slice(0, own), value_set=found.slice(own)).true_count)
        return len(found) - len(pc.unique(found))

    if not (most := count(_EVERY)):
        return None
    steps = _EVERY
    for step in _EVERY:
        fewer = tuple(other for other in steps if other is not step)
        steps = fewer if count(fewer) == most else steps
    return Alike(most, len(tokens), _pair(some, own, _of_distinct(some, steps), among_all=known is None), steps)


def _keys(texts: pa.LargeStringArray) -> pa.LargeStringArray:
    """What all tokens have in common that every step makes equal, and perhaps a few others: by Arrow alone."""
    if pc.all(pc.string_is_ascii(texts)).as_py() is not False:
        return _of_ascii(texts, _EVERY)
    return _of_ascii(pc.utf8_normalize(pc.utf8_lower(pc.utf8_trim_whitespace(texts)), form="NFC"), _EVERY)


def _pair(tokens: pa.LargeStringArray, own: int, keys: pa.LargeStringArray, *, among_all: bool) -> tuple[str, str]:
    """The first token, of the `own` first ones, whose key another has, and that one."""
    first: dict[str, int] = {}
    if among_all:
        for place, key in enumerate(keys.to_pylist()):
            if (other := first.setdefault(key, place)) != place:
                return tokens[other].as_py(), tokens[place].as_py()
    for place, key in enumerate(keys.slice(own).to_pylist(), own):
        first.setdefault(key, place)
    place = next(place for place, key in enumerate(keys.slice(0, own).to_pylist()) if key in first)
    return tokens[place].as_py(), tokens[first[keys[place].as_py()]].as_py()
