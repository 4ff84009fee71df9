"""Which worker a process is, by who has started it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from embexp.errors import RunError
from embexp.specs.strategies import MultiWorker
from embexp.strategies.cluster.places import Place, first_node, place

THREE = MultiWorker(workers=3)
LISTED = MultiWorker(workers=3, addresses=("a:1", "b:2", "[::1]:3"))
SLURM = {"SLURM_NTASKS": "3", "SLURM_PROCID": "2", "SLURM_STEP_NODELIST": "node[03-04]", "SLURMD_NODENAME": "node04"}


def tf_config(kind: str, index: int, **cluster: list[str]) -> dict[str, str]:
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})}


@pytest.mark.parametrize(
    ("strategy", "environment", "expected"),
    [
        (THREE, {}, Place(0, None)),
        (THREE, {"SLURM_NTASKS": "1", "SLURM_PROCID": "0"}, Place(0, None)),
        (THREE, {"EMBEXP_WORKER": "2", "EMBEXP_LEADER": "127.0.0.1:9"}, Place(2, "127.0.0.1:9", found="EMBEXP_LEADER")),
        (LISTED, {"EMBEXP_WORKER": "1"}, Place(1, "a:1", "b:2", "b", "strategy.addresses and EMBEXP_WORKER")),
        (
            LISTED,
            {"JOB_COMPLETION_INDEX": "2"},
            Place(2, "a:1", "[::1]:3", "[::1]", "strategy.addresses and JOB_COMPLETION_INDEX"),
        ),
        (THREE, tf_config("worker", 1, worker=["a:1", "b:2", "c:3"]), Place(1, "a:1", "b:2", "b", "TF_CONFIG")),
        (THREE, tf_config("worker", 1, chief=["a:1"], worker=["b:2", "c:3"]), Place(2, "a:1", "c:3", "c", "TF_CONFIG")),
        (THREE, tf_config("chief", 0, chief=["a:1"], worker=["b:2", "c:3"]), Place(0, "a:1", "a:1", "a", "TF_CONFIG")),
        (THREE, SLURM | {"SLURM_JOB_ID": "41"}, Place(2, "node03:20041", None, "node04", "Slurm")),
        (
            THREE,
            SLURM | {"SLURM_PROCID": "0", "SLURM_STEP_RESV_PORTS": "12345-12347", "SLURMD_NODENAME": "node03"},
            Place(0, "node03:12345", "node03:12345", "node03", "Slurm"),
        ),
    ],
)
def test_known_from(strategy: MultiWorker, environment: Mapping[str, str], expected: Place) -> None:
    assert place(strategy, environment) == expected
    assert expected.loopback == (environment.get("SLURM_NTASKS", "1") == "1" and expected.found == "this machine")


@pytest.mark.parametrize(
    ("strategy", "environment", "said"),
    [
        (LISTED, {}, ["strategy.addresses", "EMBEXP_WORKER", "from 0 to 2"]),
        (LISTED, {"EMBEXP_WORKER": "3"}, ["EMBEXP_WORKER is '3'", "workers 0 to 2"]),
        (LISTED, {"EMBEXP_WORKER": "one"}, ["EMBEXP_WORKER is 'one'"]),
        (THREE, SLURM | {"SLURM_NTASKS": "2"}, ["2 tasks", "strategy.workers is 3"]),
        (THREE, {"SLURM_NTASKS": "3", "SLURM_PROCID": "0", "SLURM_JOB_NODELIST": "node1"}, ["srun --ntasks=3"]),
        (THREE, {"TF_CONFIG": "{"}, ["TF_CONFIG can't be read"]),
        (THREE, {"TF_CONFIG": "[]"}, ["TF_CONFIG can't be read"]),
        (THREE, tf_config("worker", 0, worker=["a:1"]), ["TF_CONFIG has 1 workers", "strategy.workers is 3"]),
        (THREE, tf_config("worker", 7, worker=["a:1", "b:2", "c:3"]), ["TF_CONFIG"]),
        (THREE, tf_config("ps", 0, worker=["a:1", "b:2", "c:3"], ps=["d:4"]), ["ps", "only chief and worker"]),
    ],
)
def test_contradictions(strategy: MultiWorker, environment: dict[str, Any], said: list[str]) -> None:
    with pytest.raises(RunError) as error:
        place(strategy, environment)
    for part in said:
        assert part in str(error.value)


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("node1", "node1"),
        ("node1,node2", "node1"),
        ("node[03-05,9],other", "node03"),
        ("gpu-[7]", "gpu-7"),
        ("a[1-2].cluster", "a1.cluster"),
    ],
)
def test_first_node(nodes: str, first: str) -> None:
    assert first_node(nodes) == first
