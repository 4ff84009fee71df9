"""The largest whole numbers that settings may have.

They are far beyond what any machine can do, and below what would overflow a number or take for ever: `10 ** 12` rows
are a mistake in the config, and are reported as one. Whether this machine can do what is asked is another question,
which `footprint` answers.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

ANY = 2**53
"""Of whole numbers without a bound of their own: those that JSON, and every program that reads it, keeps exact."""
ROWS = 2**31 - 1
"""Rows are int32 in TensorFlow's lookups and in encoded data."""
EXAMPLES = 10**12
DIM = 10**6
LENGTH = 10**6
"""Ids of an example."""
BATCH = 2**31 - 1
SEED = 2**63 - 1
THREADS = 4096
DEVICES = 4096
JOBS = 10_000
"""Repetitions, or processes at once."""

RowCount = Annotated[int, Field(ge=1, le=ROWS, strict=True)]
ExampleCount = Annotated[int, Field(ge=1, le=EXAMPLES, strict=True)]
Dim = Annotated[int, Field(ge=1, le=DIM, strict=True)]
"""Length of a vector, width of a layer."""
Length = Annotated[int, Field(ge=0, le=LENGTH, strict=True)]
BatchSize = Annotated[int, Field(ge=1, le=BATCH, strict=True)]
Seed = Annotated[int, Field(ge=0, le=SEED, strict=True)]
Threads = Annotated[int, Field(ge=0, le=THREADS, strict=True)]
DeviceCount = Annotated[int, Field(ge=1, le=DEVICES, strict=True)]
JobCount = Annotated[int, Field(ge=1, le=JOBS, strict=True)]
