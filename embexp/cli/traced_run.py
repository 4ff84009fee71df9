"""A traced training step, for the terminal."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rich.console import Console

from embexp.system.terminal import byte_size

if TYPE_CHECKING:
    from embexp.runs.tracing import Traced

LONGEST = 120
"""Lines of a configuration that are shown."""


def show(traced: Traced, console: Console) -> None:
    """Prints what tracing found; a long configuration is shortened, and that is said."""

    def line(text: str = "") -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    line()
    line(
        f"traced: the training step is a graph of {byte_size(traced.graph_bytes)}; tables and slots of"
        f" {byte_size(traced.allocated_bytes)} were made for it, and not filled"
    )
    if traced.tpu_operations:
        line()
        line("what it asks of the TPU (here simulated), in order of first appearance:")
        for operation, count in Counter(str(each) for each in traced.tpu_operations).items():
            line(f"  {f'{count} × ' if count > 1 else ''}{operation}")
    if traced.configuration:
        line()
        line("TPUEmbeddingConfiguration:")
        for each in _shortened(traced.configuration.rstrip().splitlines()):
            line(f"  {each}")


def _shortened(lines: list[str]) -> list[str]:
    """The beginning and the end of what is long."""
    if len(lines) <= LONGEST:
        return lines
    half = LONGEST // 2
    return [*lines[:half], f"… {len(lines) - 2 * half} more lines …", *lines[-half:]]
