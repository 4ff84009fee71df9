"""Rows that a run kept in a file, and not in its checkpoint: tables that were frozen whole and pretrained."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from embexp.errors import RunError
from embexp.pretrained.aligned import align
from embexp.pretrained.earlier import Earlier
from embexp.pretrained.rows import row_source
from embexp.specs.pretrained import NoPretrained
from embexp.system.rows import MappableRows


@dataclass(frozen=True)
class Referenced:
    """The rows of such a table, a `VectorSource`.

    Attributes:
        source: gives them.
        digest: of the whole that they are a part of.
    """

    source: MappableRows
    digest: str

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.source.rows

    @property
    def dim(self) -> int:
        """Numbers per row."""
        return self.source.dim

    @property
    def dtype(self) -> np.dtype:
        """Of what is read."""
        return np.dtype(np.float32)

    @property
    def tokens(self) -> pa.LargeStringArray | None:
        """None: they are looked up elsewhere."""
        return None

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows start to stop, float32 [stop - start, dim]; may be a view of the file."""
        return self.source.read(start, stop)

    def memory_map(self) -> np.ndarray | None:
        """All rows as one mapping where they lie in their file just so; else None."""
        return self.source.memory_map()


def rows(earlier: Earlier, table: str) -> Referenced:
    """The rows of a table that is not in its run's checkpoint.

    Raises:
        RunError: its file is no longer what it was.
    """
    spec = earlier.spec
    others = {
        name: each if name == table else each.model_copy(update={"pretrained": NoPretrained()})
        for name, each in spec.tables.items()
    }
    only = spec.model_copy(
        update={
            "pretrained": NoPretrained(),
            "tables": {**others, table: others[table].model_copy(update={"pretrained": spec.pretrained_of(table)})},
        }
    )
    sizes = {name: earlier.shape(name)[0] for name in earlier.tables}
    vocabularies = {name: earlier.vocabulary(name) for name in earlier.tables}
    given = align(only, vocabularies, sizes, cache=earlier.cache)
    recorded = earlier.summary["initialization"]["tables"][table]["pretrained"]
    if (found := given.tables[table].source.digest) != recorded["digest"]:
        raise RunError(
            f"{recorded['path']} has changed since the run {earlier.folder.path}, whose frozen table {table!r} is made"
            f" from it (digest {found}, expected {recorded['digest']}); put the file back to take its rows"
        )
    settings = spec.tables[table].model_copy(update={"dim": earlier.shape(table)[1]})
    return Referenced(row_source(table, settings, sizes[table], spec.seed, given.tables[table]), digest=earlier.digest)
