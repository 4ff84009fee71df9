"""Every circumstance that differs between two manifests is named, and what changes nothing is not."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from embexp.records import differences

MANIFEST: dict[str, Any] = {
    "created": "yesterday",
    "command": ["embexp", "run"],
    "seed": 0,
    "spec": {"name": "a", "seed": 0, "train": {"steps": 5}, "output": {"plots": True}, "checkpoint": {"keep": 2}},
    "data": {"digest": "d" * 64},
    "files": {"tables.item.pretrained": "f" * 64},
    "user_code": {"function": "m:f", "digest": "c" * 64, "files": {"m.py": {"path": "/a/m.py", "digest": "c" * 64}}},
    "python": "3.11.7",
    "packages": {"numpy": "2.4.0", "zope.interface": "1.0"},
    "tensorflow": {"version": "2.21.0", "build": {"is_cuda_build": True}},
    "threads": {"intra_op": 2, "inter_op": 2},
    "kernels": {"onednn": True},
    "devices": ["CPU:0"],
    "machine": {"cpu": "A", "cpu_features": ["avx2", "sse"], "cores": 2, "memory_bytes": 25_276_510_208},
    "environment": {"OMP_NUM_THREADS": "2", "TF_CPP_MIN_LOG_LEVEL": "3"},
    "code": {
        "embexp": {"root": "/e", "commit": "1" * 40, "diff": "", "untracked": []},
        "working_folder": {"root": "/p", "commit": "2" * 40, "diff": "", "untracked": []},
        "model": {"root": "/p", "same_as": "working_folder"},
    },
}


def changed(*keys: str, value: Any) -> dict[str, Any]:
    content = copy.deepcopy(MANIFEST)
    node = content
    for key in keys[:-1]:
        node = node[key]
    node[keys[-1]] = value
    return content


def told(other: dict[str, Any]) -> list[str]:
    return [each.text("A", "B") for each in differences.manifest_differences(MANIFEST, other)]


@pytest.mark.parametrize(
    ("keys", "value", "text"),
    [
        (("seed",), 1, "seed: 0 in A, 1 in B"),
        (("spec", "train", "steps"), 6, "train.steps: 5 in A, 6 in B"),
        (("data", "digest"), "e" * 64, "data digest: dddddddddddd in A, eeeeeeeeeeee in B"),
        (("files", "tables.item.pretrained"), "0" * 64, "data tables.item.pretrained: ffffffffffff in A, 0000"),
        (("user_code", "files", "m.py", "digest"), "b" * 64, "user code m.py: cccccccccccc in A, bbbbbbbbbbbb in B"),
        (("user_code",), None, "user code m.py: cccccccccccc in A, nothing in B"),
        (("python",), "3.11.8", "package python: 3.11.7 in A, 3.11.8 in B"),
        (("packages", "zope.interface"), "2.0", "package zope.interface: 1.0 in A, 2.0 in B"),
        (("packages", "torch"), "2.0", "package torch: nothing in A, 2.0 in B"),
        (("tensorflow", "build", "is_cuda_build"), False, "tensorflow build.is_cuda_build: true in A, false in B"),
        (("threads", "inter_op"), 4, "threads inter_op: 2 in A, 4 in B"),
        (("kernels", "onednn"), False, "kernels onednn: true in A, false in B"),
        (("kernels", "XLA_FLAGS"), "x", "kernels XLA_FLAGS: nothing in A, x in B"),
        (("devices",), ["GPU:0"], 'machine devices: ["CPU:0"] in A, ["GPU:0"] in B'),
        (("machine", "cpu"), "B", "machine cpu: A in A, B in B"),
        (("machine", "cpu_features"), ["avx2", "amx"], "machine cpu_features: sse in A, amx in B"),
        (("machine", "memory_bytes"), 1 << 35, "machine memory: 24 GiB in A, 32 GiB in B"),
        (("environment", "OMP_NUM_THREADS"), "1", "environment variable OMP_NUM_THREADS: 2 in A, 1 in B"),
        (("code", "embexp", "commit"), "3" * 40, "repository embexp, commit: 111111111111 in A, 333333333333 in B"),
        (("code", "working_folder", "diff"), "+x", "repository working folder: its uncommitted changes differ"),
    ],
)
def test_each_is_named_once(keys: tuple[str, ...], value: Any, text: str) -> None:
    [found] = told(changed(*keys, value=value))
    assert found.startswith(text)


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (("created",), "today"),
        (("command",), ["embexp", "verify"]),
        (("spec", "name"), "b"),
        (("spec", "output", "plots"), False),
        (("spec", "checkpoint", "keep"), None),
        (("machine", "memory_bytes"), 25_276_510_208 - 4096),
        (("environment", "TF_CPP_MIN_LOG_LEVEL"), "0"),
        (("code", "working_folder", "root"), "/elsewhere"),
    ],
)
def test_what_changes_nothing_is_not(keys: tuple[str, ...], value: Any) -> None:
    assert told(changed(*keys, value=value)) == []


@pytest.mark.parametrize("section", sorted(MANIFEST))
def test_what_an_older_version_did_not_record_is_left_out(section: str) -> None:
    other = copy.deepcopy(MANIFEST)
    del other[section]
    assert told(other) == []


def test_lines_that_changed(tmp_path: Path) -> None:
    before, after = tmp_path / "before.py", tmp_path / "after.py"
    before.write_text("a = 1\nb = 2\nc = 3\n")
    after.write_text("a = 1\nb = 3\nc = 3\n")
    assert differences.changed_lines(before, after) == ["@@ -2 +2 @@", "-b = 2", "+b = 3"]
    assert differences.changed_lines(before, tmp_path / "gone.py") == []
    after.write_text("x\n" * 50)
    lines = differences.changed_lines(before, after)
    assert len(lines) == 13
    assert lines[-1].endswith("more lines …")
