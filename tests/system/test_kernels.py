"""What is said of threads and oneDNN, compared with what TensorFlow does."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from embexp.system import machine
from tests.thoroughness import left_out

ASKED = """
import os, sys
from embexp.system import environment, machine
wanted = {"on": True, "off": False}.get(sys.argv[2])
before = machine.onednn(wanted)
environment.load_tensorflow(onednn=wanted)
import tensorflow as tf
from tensorflow.python.util import _pywrap_util_port
tf.config.threading.set_inter_op_parallelism_threads(int(sys.argv[1]))
tf.reduce_sum(tf.random.uniform([4])).numpy()
names = [open(f"/proc/self/task/{task}/comm").read() for task in os.listdir("/proc/self/task")]
print(before, machine.onednn(), machine.onednn(not before), _pywrap_util_port.IsMklEnabled())
print(machine.kernel_threads(0, int(sys.argv[1]))["inter_op"], sum(name.startswith("tf_Compute") for name in names))
"""


def without(monkeypatch: pytest.MonkeyPatch, **variables: str) -> None:
    for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "TF_ENABLE_ONEDNN_OPTS", *machine.KERNEL_FLAGS):
        monkeypatch.delenv(name, raising=False)
    for name, text in variables.items():
        monkeypatch.setenv(name, text)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variables", "onednn", "inter_op"),
    [
        pytest.param({}, "auto", 0, marks=left_out()),
        ({"TF_ENABLE_ONEDNN_OPTS": "0", "TF_NUM_INTEROP_THREADS": "3"}, "auto", 0),
        pytest.param({"TF_ENABLE_ONEDNN_OPTS": "True"}, "auto", 5, marks=left_out()),
        ({"TF_ENABLE_ONEDNN_OPTS": "True"}, "off", 5),
        pytest.param({"TF_ENABLE_ONEDNN_OPTS": "0"}, "on", 5, marks=left_out()),
        pytest.param({"TF_ENABLE_ONEDNN_OPTS": "neither"}, "auto", 0, marks=left_out()),
    ],
)
def test_tensorflow_does_what_is_said(variables: dict[str, str], onednn: str, inter_op: int) -> None:
    inherited = {name: text for name, text in os.environ.items() if name not in ("TF_ENABLE_ONEDNN_OPTS",)}
    command = [sys.executable, "-c", ASKED, str(inter_op), onednn]
    result = subprocess.run(command, capture_output=True, text=True, check=True, env=inherited | variables)
    kernels, threads = (line.split() for line in result.stdout.splitlines())
    assert len(set(kernels)) == 1
    assert threads[0] == threads[1]


def test_the_config_goes_before_the_environment_and_that_before_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch)
    monkeypatch.setattr(machine, "cores", lambda: 7)
    assert machine.kernel_threads(0, 0) == {"intra_op": 7, "inter_op": 7}
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "3")
    monkeypatch.setenv("TF_NUM_INTEROP_THREADS", "many")
    assert machine.kernel_threads(0, 0) == {"intra_op": 3, "inter_op": 7}
    assert machine.kernel_threads(2, 1) == {"intra_op": 2, "inter_op": 1}


@pytest.mark.parametrize(
    ("features", "wanted", "used"),
    [("avx2", "", True), ("avx", "", False), ("avx2 avx512_vnni", "0", False), ("", "TRUE", True)],
)
def test_onednn_by_the_processor(features: str, wanted: str, used: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, TF_ENABLE_ONEDNN_OPTS=wanted)
    monkeypatch.delitem(sys.modules, "tensorflow.python.util._pywrap_util_port", raising=False)
    monkeypatch.setattr(machine, "processor", lambda: machine.Processor("", frozenset(features.split())))
    assert machine.onednn() == used
    assert machine.onednn(True)
    assert not machine.onednn(False)


def test_only_flags_that_are_set(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, XLA_FLAGS="--xla_cpu_enable_fast_math=true", TF_XLA_FLAGS="")
    assert machine.kernel_flags() == {"XLA_FLAGS": "--xla_cpu_enable_fast_math=true"}


NUMBERS = """
import hashlib, sys
from embexp.system import environment
environment.choose_kernels(portable=sys.argv[1] == "portable")
import numpy as np
numbers = np.abs(np.random.default_rng(0).normal(size=1000))
print(np.lib.introspect.opt_func_info(func_name="^exp$", signature="float64")["exp"]["dd"]["current"])
print(hashlib.sha256(np.exp(numbers).tobytes()).hexdigest())
"""


@pytest.mark.skipif("avx512f" not in machine.processor().features, reason="the processor has no wider vectors")
def test_portable_kernels_have_no_wider_vectors() -> None:
    """NumPy's exponential of AVX-512 has other last bits than the C library's, which others take."""
    own = {name: text for name, text in os.environ.items() if name not in machine.KERNEL_FLAGS}
    found = []
    for which in ("portable", "own"):
        command = [sys.executable, "-W", "error", "-c", NUMBERS, which]
        result = subprocess.run(command, capture_output=True, text=True, check=True, env=own)
        found.append(result.stdout.split())
    (portable, bits), (widest, others) = found
    assert ("512" in portable or "V4" in portable, "512" in widest or "V4" in widest) == (False, True)
    assert bits != others


@pytest.mark.slow
@pytest.mark.parametrize("more", [[], ["-m", "seed=0,1"]], ids=["run", "sweep"])
def test_a_command_that_starts_again_has_printed_nothing(more: list[str]) -> None:
    """As it imports NumPy to read the data, of which it tells before it imports TensorFlow."""
    own = {name: text for name, text in os.environ.items() if name not in machine.KERNEL_FLAGS}
    words = ["data.examples=2000", "data.users=30", "data.items=20", "strategy.reproducible=processors"]
    command = [sys.executable, "-m", "embexp", "plan", "--trace", *words, *more]
    result = subprocess.run(command, capture_output=True, text=True, check=True, env=own)
    assert result.stdout.count("writes ") == 1
    assert "traced: " in result.stdout
