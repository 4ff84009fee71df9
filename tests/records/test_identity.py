"""What `run_id` is made of: what a run computes, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import embexp
from embexp.records import identity
from embexp.specs.strategies import CPU, TPU, Mirrored, TPUSimulator


@pytest.fixture(scope="module")
def run_id() -> Callable[..., str]:
    spec = embexp.compose([])
    return lambda strategy, **others: identity.run_id(
        spec.model_copy(update={"strategy": strategy, **others}), "digest of the data"
    )


@pytest.mark.parametrize(
    "setting",
    [
        {"address": "grpc://10.0.0.2:8470"},
        {"zone": "us-central1-a"},
        {"project": "mine"},
        {"timeout_seconds": 1.0},
        {"initialization_seconds": 60.0},
    ],
)
def test_how_a_tpu_is_found_is_no_part(run_id: Callable[..., str], setting: dict[str, Any]) -> None:
    assert run_id(TPU(**setting)) == run_id(TPU())


def test_what_may_change_bits_is_a_part(run_id: Callable[..., str]) -> None:
    strategies = [
        CPU(),
        CPU(intra_op_threads=1),
        Mirrored(),
        Mirrored(replicas=3),
        TPU(),
        TPU(pipeline_execution_with_tensor_core=True),
        TPUSimulator(),
        TPUSimulator(hosts=2),
    ]
    assert len({run_id(each) for each in strategies}) == len(strategies)
    assert run_id(CPU(), name="other") == run_id(CPU()) != run_id(CPU(), seed=1)
