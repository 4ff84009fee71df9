"""`bench.harness`: recording, and a benchmark as on a processor without AVX-512."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench import figures, harness

ROOT = Path(__file__).resolve().parents[2]


def test_what_pages_quote_is_recorded_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded: list[Any] = []
    monkeypatch.setattr(figures, "record", lambda *arguments: recorded.append(arguments))
    monkeypatch.setattr(sys, "argv", ["bench/step.py", "--record", "--name", "a b"])
    parser = harness.parser("step", "Steps.", quick="less")
    harness.save(parser.parse_args([]), {}, seconds=1.0)
    harness.save(parser.parse_args(["--record"]), {"cores": "2"}, {"ratio": [1.0]}, seconds=1.0)
    harness.save(parser.parse_args(["--record"]), {}, seconds=1.0)
    command = "python -m bench.step --record --name 'a b'"
    assert recorded == [("step", {"ratio": [1.0]}, {"cores": "2"}, command), ("step", {"seconds": 1.0}, {}, command)]


@pytest.mark.skipif(platform.machine() != "x86_64" or not shutil.which("cc"), reason="needs an x86 processor and cc")
def test_a_benchmark_begins_again_without_avx_512() -> None:
    code = """
from bench import harness
harness.parser("step", "", quick="").parse_args(["--instructions", "avx2"])
import numpy
features = numpy._core._multiarray_umath.__cpu_features__
print(harness.describe()["processor"], harness.instructions(), features["X86_V4"], features["AVX2"])
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(", limited to AVX2 avx2 False True\n")
