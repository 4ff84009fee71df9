"""DLRM of `bench.models` in PyTorch with FBGEMM's tables for CPUs, whose backward pass is the update."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from fbgemm_gpu.split_table_batched_embeddings_ops_common import BoundsCheckMode, EmbeddingLocation
from fbgemm_gpu.split_table_batched_embeddings_ops_training import ComputeDevice, SplitTableBatchedEmbeddingBagsCodegen

from bench import models_torch
from bench.models_cases import ADAGRAD_RATES, Setting


def advance(setting: Setting, threads: int, net_of: Callable[[Setting], Any] | None = None) -> Callable[[int], None]:
    """A function that trains so many steps, with the ids of all tables in one tensor."""
    count = sum(len(setting.batches[0][name]) for name in setting.tables)
    batches = [
        {
            **batch,
            "ids": np.concatenate([batch[name] for name in setting.tables]).astype(np.int64),
            "offsets": np.arange(count + 1),
        }
        for batch in setting.batches
    ]
    return models_torch.advance(replace(setting, batches=batches), threads, net_of or FusedDLRM)


class FusedDLRM(models_torch.Clicks):
    """All tables are one operator, and each id is its own bag. Initial rows are as in the plain model."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        tables = SplitTableBatchedEmbeddingBagsCodegen(
            [(rows + 1, dim, EmbeddingLocation.HOST, ComputeDevice.CPU) for rows, dim in setting.tables.values()],
            optimizer=EmbOptimType.EXACT_ADAGRAD,
            learning_rate=ADAGRAD_RATES["lr"],
            eps=1e-10,  # as in PyTorch
            bounds_check_mode=BoundsCheckMode.NONE,
        )
        for rows, plain in zip(tables.split_embedding_weights(), self.embeddings, strict=True):
            rows.copy_(plain.weight.detach())
        for (slot,) in tables.split_optimizer_states():
            slot.fill_(ADAGRAD_RATES["initial_accumulator_value"])
        self.embeddings = torch.nn.ModuleList()
        self.tables = [tables]  # a list, so that the dense optimizer does not get the rows

    def vectors(self, batch: dict[str, Any]) -> list[Any]:
        """The vectors of all tables, [batch, tables × dim]."""
        [tables] = self.tables
        return [tables(batch["ids"], batch["offsets"])]
