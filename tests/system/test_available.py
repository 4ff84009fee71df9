"""The memory that is left: of the machine, and what control groups allow."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Any

import psutil
import pytest

from embexp.system import machine
from embexp.system.machine import Available

MACHINE = 100_000_000_000


@pytest.fixture(autouse=True)
def hundred_gigabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 100 GB, so that nothing depends on the machine that runs the test."""

    class Memory:
        available = MACHINE

    monkeypatch.setattr(psutil, "virtual_memory", Memory)
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def groups(folder: Path, files: dict[str, Any], own: str) -> Available:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{content}\n")
    (folder / "own").write_text(own)
    return machine.available(folder, folder / "own")


def test_without_a_limit_it_is_the_machine(tmp_path: Path) -> None:
    found = groups(tmp_path, {"memory.max": "max", "memory.current": 5}, "0::/\n")
    assert found == Available(MACHINE, "this machine")
    assert machine.available(tmp_path / "none", tmp_path / "none").bytes == MACHINE  # no Linux


def test_a_container_of_version_2(tmp_path: Path) -> None:
    """Its root is its own group; files in memory can be dropped."""
    files = {"memory.max": 4_000, "memory.current": 3_000, "memory.stat": "anon 1000\ninactive_file 1500\nfile 9"}
    found = groups(tmp_path, files, "0::/\n")
    assert found.bytes == 2_500
    assert str(tmp_path / "memory.max") in found.limit


def test_a_job_of_slurm_has_the_smallest_limit_above_it(tmp_path: Path) -> None:
    files = {
        "slurm/job_1/memory.max": 3_000,
        "slurm/job_1/memory.current": 1_000,
        "slurm/job_1/step_0/memory.max": "max",
        "slurm/job_1/step_0/memory.current": 900,
        "slurm/memory.max": 50_000,
        "slurm/memory.current": 10_000,
    }
    assert groups(tmp_path, files, "0::/slurm/job_1/step_0\n").bytes == 2_000


def test_version_1(tmp_path: Path) -> None:
    files = {
        "memory/docker/abc/memory.limit_in_bytes": 7_000,
        "memory/docker/abc/memory.usage_in_bytes": 6_500,
        "memory/docker/abc/memory.stat": "total_inactive_file 500\ninactive_file 3",
        "memory/memory.limit_in_bytes": 9_223_372_036_854_771_712,
        "memory/memory.usage_in_bytes": 10,
    }
    own = "5:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n1:name=systemd:/docker/abc\n"
    assert groups(tmp_path, files, own).bytes == 1_000


def test_version_1_inside_a_container_shows_only_the_root(tmp_path: Path) -> None:
    files = {"memory/memory.limit_in_bytes": 2_000, "memory/memory.usage_in_bytes": 500}
    assert groups(tmp_path, files, "4:memory:/docker/abc\n").bytes == 1_500


def test_a_group_that_is_over_its_limit_has_nothing(tmp_path: Path) -> None:
    assert groups(tmp_path, {"memory.max": 10, "memory.current": 50}, "0::/\n").bytes == 0


def test_the_limit_of_the_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = psutil.Process(os.getpid()).memory_info().vms
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (own + 10**9, resource.RLIM_INFINITY))
    found = machine.available(tmp_path, tmp_path / "own")
    assert found.limit == "the limit of this shell, ulimit -v"
    assert found.bytes == pytest.approx(10**9, abs=2 * 10**8)
