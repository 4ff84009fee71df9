"""The two kinds of checkpoints."""

from __future__ import annotations

from enum import StrEnum

from embexp.errors import CheckpointError


class Kind(StrEnum):
    """How variables are matched: by the graph of objects, or by their global names."""

    OBJECT = "object"
    NAME = "name"

    @classmethod
    def parse(cls, value: Kind | str) -> Kind:
        """The kind of that name.

        Raises:
            CheckpointError: there is none.
        """
        try:
            return cls(value)
        except ValueError:
            raise CheckpointError(f"kind = {value!r}: must be one of {', '.join(map(repr, map(str, cls)))}") from None
