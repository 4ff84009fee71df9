"""What `run_id` is made of: what a run computes, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import embexp
from embexp.records import manifest
from embexp.specs.strategies import CPU, TPU, Mirrored, OneDNN, Reproducible, TPUSimulator
from embexp.system import machine


@pytest.fixture(scope="module")
def run_id() -> Callable[..., str]:
    spec = embexp.compose([])

    def found(strategy: Any, code: str | None = None, **others: Any) -> str:
        changed = spec.model_copy(update={"strategy": strategy, **others})
        content = manifest.content_id(changed, "digest of the data")
        return manifest.identity(changed.strategy, content, code, {"data": "digest of the data"}).run_id

    return found


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
        CPU(pieces=1),
        Mirrored(),
        Mirrored(replicas=3),
        TPU(),
        TPU(pipeline_execution_with_tensor_core=True),
        TPUSimulator(),
        TPUSimulator(hosts=2),
        TPUSimulator(pipeline_execution_with_tensor_core=True),
    ]
    assert len({run_id(each) for each in strategies}) == len(strategies)
    assert run_id(CPU(), name="other") == run_id(CPU()) != run_id(CPU(), seed=1)


def test_the_code_of_the_model_is_a_part(run_id: Callable[..., str]) -> None:
    assert len({run_id(CPU()), run_id(CPU(), "one"), run_id(CPU(), "another")}) == 3


def test_pieces_count_and_threads_do_not(run_id: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    first = run_id(CPU())
    assert (
        run_id(CPU(intra_op_threads=1, inter_op_threads=3)) == first == run_id(CPU(pieces=4)) != run_id(CPU(pieces=8))
    )
    monkeypatch.setattr(machine, "cores", lambda: 1)  # of a job of a sweep, or by taskset
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "1")
    assert run_id(CPU()) == first
    monkeypatch.setattr("os.cpu_count", lambda: 12)
    assert run_id(CPU()) == run_id(CPU(pieces=8)) != first
    monkeypatch.setenv(machine.PIECES, "4")  # of a record that is repeated
    assert run_id(CPU()) == first
    for other in ("-3", "x", str(2**70)):
        monkeypatch.setenv(machine.PIECES, other)
        assert run_id(CPU()) == run_id(CPU(pieces=8))


@pytest.mark.parametrize("flag", ["XLA_FLAGS", "ONEDNN_MAX_CPU_ISA", "TF_SET_ONEDNN_FPMATH_MODE"])
def test_flags_that_change_kernels_are_a_part(
    run_id: Callable[..., str], flag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(flag, raising=False)
    before = run_id(CPU())
    monkeypatch.setenv(flag, "something")
    assert run_id(CPU()) != before


def test_onednn_is_a_part(run_id: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for used in (True, False):
        monkeypatch.setattr(
            "embexp.system.machine.onednn", lambda wanted, used=used: used if wanted is None else wanted
        )
        found.append(run_id(CPU()))
    assert found[0] != found[1] == run_id(CPU(onednn=OneDNN.OFF)) != run_id(CPU(onednn=OneDNN.ON))


def test_portable_kernels_are_a_part_before_they_are_chosen(
    run_id: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `plan` tells the id without choosing any."""
    for flag in machine.portable_flags():
        monkeypatch.delenv(flag, raising=False)
    portable = CPU(reproducible=Reproducible.PROCESSORS)
    found = run_id(portable)
    assert found not in (run_id(CPU(onednn=OneDNN.ON, pieces=portable.wanted_pieces)), run_id(CPU()))
    for flag, text in machine.portable_flags().items():
        monkeypatch.setenv(flag, text)
    assert run_id(portable) == found


def test_a_run_may_go_on_elsewhere_but_not_with_other_code() -> None:
    spec = embexp.compose([])
    here, there = (manifest.Identity("content", "code", {}, pieces, True, {}, {}) for pieces in (2, 4))
    other = manifest.identity(spec.strategy, "content", "other code", {})
    assert here.run_id != there.run_id
    assert here.continued == there.continued != other.continued
