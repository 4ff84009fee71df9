"""The protocol of runtimes, which execute training steps and forward passes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np


class Runtime(Protocol):
    """Executes steps and forward passes."""

    @property
    def graph_def_bytes(self) -> int | None:
        """Size of the GraphDef that holds the training step, in bytes; None before the first step."""
        ...

    def train(self, iterator: Any, steps: int) -> float:
        """Does `steps` steps and returns the sum of their losses.

        Raises:
            VocabularyError: an id is outside its table.
            RunError: another fault of the inputs.
        """
        ...

    def predict(self, batches: Any) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """For each batch its labels, float32 [B], and logits, float32 [B] or [B, C], after the last step."""
        ...
