"""Protocol buffers read by field number, without their classes: those come with TensorFlow, which imports slowly.

Source: https://protobuf.dev/programming-guides/encoding
"""

from __future__ import annotations

from collections.abc import Mapping

Fields = Mapping[int, list[int | bytes]]
"""The values of a message by field number, each in its order."""


def varint(data: bytes, at: int) -> tuple[int, int]:
    """A variable-length number, and where it ends.

    Raises:
        IndexError: it does not end.
        ValueError: it is longer than numbers are.
    """
    value = shift = 0
    while shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
    raise ValueError("a number in it has more than 64 bits")


def fields(message: int | bytes) -> Fields:
    """The fields of a message.

    Raises:
        ValueError: it is no message.
        IndexError: it is cut short.
    """
    if not isinstance(message, bytes):
        raise ValueError("a protocol buffer in it is not of the form expected")
    found: dict[int, list[int | bytes]] = {}
    at = 0
    while at < len(message):
        tag, at = varint(message, at)
        value: int | bytes
        match tag & 7:
            case 0:
                value, at = varint(message, at)
            case 2:
                length, at = varint(message, at)
                value, at = message[at : at + length], at + length
            case 1 | 5 as wire:
                width = 8 if wire == 1 else 4
                value, at = int.from_bytes(message[at : at + width], "little"), at + width
            case wire:
                raise ValueError(f"a protocol buffer in it has wire type {wire}")
        found.setdefault(tag >> 3, []).append(value)
    if at > len(message):
        raise IndexError("a protocol buffer in it is cut short")
    return found


def number(message: Fields, field: int, default: int = 0) -> int:
    """A field that is a number.

    Raises:
        ValueError: it is something else.
    """
    (value, *_) = message.get(field, [default])
    if not isinstance(value, int):
        raise ValueError("a protocol buffer in it is not of the form expected")
    return value


def text(message: Fields, field: int) -> str:
    """A field that is a string; empty where it is absent.

    Raises:
        ValueError: it is something else.
    """
    (value, *_) = message.get(field, [b""])
    if not isinstance(value, bytes):
        raise ValueError("a protocol buffer in it is not of the form expected")
    return value.decode("utf-8")
