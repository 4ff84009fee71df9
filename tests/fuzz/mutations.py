"""Mutations of files: of bits, bytes, numbers, ranges, words and parts. Only a `Random` decides."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from tests.fuzz.contents import Content, Files

LARGEST = 1 << 18
_NUMBERS = (0, 1, 2, 7, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 1 << 20, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 10**10, 10**16)
_LARGE = (1 << 40, (1 << 62) - 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, (1 << 64) - 8)
_WORDS = (
    b"\n",
    b"\r",
    b"\t",
    b" ",
    b",",
    b'"',
    b"'",
    b"\0",
    b"\xff",
    b"\xef\xbb\xbf",
    b"\xed\xa0\x80",
    b"(",
    b"[" * 2000,
)
_DIGITS = (b"0", b"-1", b"1e999", b"nan", b"9" * 19, b"9" * 5000, b"10000000000000000", b"1" + b"0" * 9, b"1_0", b"0x1")


def mutated(files: Files, others: Sequence[Files], words: Sequence[bytes], random: Random) -> dict[str, bytes]:
    """The files, some of them changed, packed.

    Args:
        files: what is changed.
        others: of the same reader, to take pieces from.
        words: that mean something to the reader.
        random: decides.
    """
    chosen = random.choice(list(files)) if random.random() < 0.5 else next(iter(files))
    made = {name: content.whole for name, content in files.items() if name != chosen}
    content = files[chosen]
    other = random.choice(list(random.choice(others).values()))
    if random.random() < 0.6:
        made[chosen] = _repacked(content, other, words, random)
    else:
        made[chosen] = _changed(content.whole, other.whole, words, random)
    return {name: made[name][:LARGEST] for name in files}


def _repacked(content: Content, other: Content, words: Sequence[bytes], random: Random) -> bytes:
    """Some parts changed, and packed again."""
    parts = list(content.parts)
    for _ in range(_few(random)):
        place = random.randrange(len(parts))
        parts[place] = _changed(parts[place], random.choice(other.parts), words, random)
    try:
        return content.pack(parts)[:LARGEST]
    except Exception:  # parts that can't be packed, such as too many bytes of a header
        return _changed(content.whole, other.whole, words, random)


def _changed(data: bytes, other: bytes, words: Sequence[bytes], random: Random) -> bytes:
    for _ in range(_few(random)):
        data = random.choice(_WAYS)(data, other, words, random)[:LARGEST]
    return data


def _few(random: Random) -> int:
    return random.choice((1, 1, 1, 2, 2, 3, 5))


def _flip(data: bytes, other: bytes, words: Sequence[bytes], random: Random) -> bytes:
    if not data:
        return data
    at = random.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1 :]


def _byte(data: bytes, other: bytes, words: Sequence[bytes], random: Random) -> bytes:
    at = random.randrange(len(data) + 1)
    return data[:at] + bytes([random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))]) + data[at + 1 :]


def _number(data: bytes, other: bytes, words: Sequence[bytes], random: Random) -> bytes:
    """A little- or big-endian number in the place of another."""
    width = random.choice((2, 4, 4, 8, 8))
    value = random.choice(_NUMBERS + _LARGE) & ((1 << 8 * width) - 1)
    at = random.randrange(max(1, len(data) - width + 1))
    return data[:at] + value.to_bytes(width, random.choice(("little", "little", "big"))) + data[at + width :]


def _remove(data: bytes, other: bytes, words: Sequence[bytes], random: Random) -> bytes:
    begin, end = _range(data, random)
    return data[:begin] + data[end:]


def _repeat(data: bytes, other: bytes, words: Sequence[bytes], random: Random) -> bytes:
    begin, end = _range(data, random)
    times = random.choice((2, 2, 3, 10, 1000))
    return data[:begin] + data[begin:end] * times + data[end:]


def _cut(data: bytes, other: bytes, words: Sequence[bytes], random: Random) -> bytes:
    return data[: random.randrange(len(data) + 1)]


def _word(data: bytes, other: bytes, words: Sequence[bytes], random: Random) -> bytes:
    """A word, put in or in the place of something."""
    begin, end = _range(data, random)
    word = random.choice((*words, *_WORDS, *_DIGITS))
    return data[:begin] + word + data[begin if random.random() < 0.5 else end :]


def _digits(data: bytes, other: bytes, words: Sequence[bytes], random: Random) -> bytes:
    """Another number in the place of one in decimal digits."""
    places = [at for at, byte in enumerate(data[:4096]) if 0x30 <= byte <= 0x39]
    if not places:
        return _byte(data, other, words, random)
    begin = end = random.choice(places)
    while end < len(data) and 0x30 <= data[end] <= 0x39:
        end += 1
    return data[:begin] + random.choice(_DIGITS) + data[end:]


def _splice(data: bytes, other: bytes, words: Sequence[bytes], random: Random) -> bytes:
    begin, end = _range(data, random)
    first, last = _range(other, random)
    return data[:begin] + other[first:last] + data[end:]


def _swap(data: bytes, other: bytes, words: Sequence[bytes], random: Random) -> bytes:
    (a, b), (c, d) = sorted((_range(data, random), _range(data, random)))
    return data if b > c else data[:a] + data[c:d] + data[b:c] + data[a:b] + data[d:]


def _range(data: bytes, random: Random) -> tuple[int, int]:
    begin = random.randrange(len(data) + 1)
    return begin, min(len(data), begin + random.choice((0, 1, 2, 4, 8, 8, 16, 64, 256, 4096)))


_WAYS = (_flip, _flip, _byte, _byte, _number, _number, _number, _remove, _repeat, _cut, _word, _digits, _splice, _swap)
