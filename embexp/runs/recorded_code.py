"""The user's code that a recorded spec names, and the copy of it in the run."""

from __future__ import annotations

from embexp.models import user_code
from embexp.records import allowed_code
from embexp.records.folder import RunFolder
from embexp.specs.run import RunSpec


def import_sentences(folder: RunFolder, spec: RunSpec) -> list[str]:
    """From where the code is imported that a recorded spec names, and whether it is still what the run has recorded."""
    found = []
    for function in allowed_code.named(spec):
        for file in user_code.read(function).files.values():
            copy = folder.code / file.name
            state = "" if not copy.is_file() or copy.read_bytes() == file.content else f"; it differs from {copy}"
            found.append(f"code: {file.path}{state}")
    return found
