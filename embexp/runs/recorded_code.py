"""The user's code that a recorded spec names, and the copy of it in the run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from embexp.models import user_code
from embexp.records import allowed_code
from embexp.records.folder import RunFolder
from embexp.specs.run import RunSpec


def check(specs: Iterable[RunSpec], allowed: Collection[str], *, others: Mapping[str, str], record: str) -> None:
    """Checks that the user allows the code that recorded specs, as those of a sweep, name.

    Args:
        specs: recorded.
        allowed: the functions and classes that the user allows.
        others: what else is named, with its config path.
        record: what names them, for people.

    Raises:
        UsageError: one isn't allowed, or one is allowed that nothing names.
    """
    allowed_code.check_names({**named(specs), **others}, allowed, record=record)


def named(specs: Iterable[RunSpec]) -> dict[str, str]:
    """The functions that specs name, each with its config path."""
    return {each: "model.function" for spec in specs for each in allowed_code.named(spec)}


def is_same(recorded: RunSpec, asked: RunSpec) -> bool:
    """Whether a recorded spec names the same code as one that the user asks for."""
    return allowed_code.named(recorded) == allowed_code.named(asked)


def import_sentences(folder: RunFolder, spec: RunSpec) -> list[str]:
    """From where the code is imported that a recorded spec names, and whether it is still what the run has recorded."""
    found = []
    for function in allowed_code.named(spec):
        for file in user_code.read_user_code(function).files.values():
            copy = folder.code / file.name
            state = "" if not copy.is_file() or copy.read_bytes() == file.content else f"; it differs from {copy}"
            found.append(f"code: {file.path}{state}")
    return found
