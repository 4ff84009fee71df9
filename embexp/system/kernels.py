"""What decides which kernels TensorFlow runs on a processor, and how they divide their work. Without TensorFlow.

Sums of float32 depend on their order, so two runs have the same bits only where all of this is the same.
"""

from __future__ import annotations

import os
import sys

from embexp.system import machine

FLAGS = (
    "DNNL_CPU_ISA_HINTS",
    "DNNL_DEFAULT_FPMATH_MODE",
    "DNNL_MAX_CPU_ISA",
    "NVIDIA_TF32_OVERRIDE",
    "ONEDNN_CPU_ISA_HINTS",
    "ONEDNN_DEFAULT_FPMATH_MODE",
    "ONEDNN_MAX_CPU_ISA",
    "TF_CUDNN_DETERMINISTIC",
    "TF_CUDNN_USE_AUTOTUNE",
    "TF_DETERMINISTIC_OPS",
    "TF_ENABLE_CUBLAS_TENSOR_OP_MATH_FP32",
    "TF_ENABLE_CUDNN_TENSOR_OP_MATH_FP32",
    "TF_SET_ONEDNN_FPMATH_MODE",
    "TF_XLA_FLAGS",
    "XLA_FLAGS",
)
"""Environment variables that change kernels, beside those that `threads` and `onednn` follow."""

_NEURAL = {"avx512_vnni", "avx512_bf16", "avx_vnni", "amx_tile", "amx_int8", "amx_bf16"}
"""Extensions of which one is enough for TensorFlow to use oneDNN (`IsMKLEnabled` in tsl/util/util_port.cc)."""
_ASKED = "tensorflow.python.util._pywrap_util_port"


def threads(intra_op: int, inter_op: int) -> dict[str, int]:
    """The numbers of threads that TensorFlow uses.

    What is 0 is decided as in tensorflow/core/common_runtime/process_util.cc and local_device.cc: by the environment,
    else by the number of cores that this process may run on.

    Args:
        intra_op: threads inside one operation, of the config.
        inter_op: operations at once, of the config.
    """
    return {
        "intra_op": intra_op or _number("TF_NUM_INTRAOP_THREADS") or machine.cores(),
        "inter_op": inter_op or max(0, _number("TF_NUM_INTEROP_THREADS")) or machine.cores(),
    }


def onednn() -> bool:
    """Whether TensorFlow uses oneDNN's kernels: as it says itself where it is loaded, else as it will decide."""
    loaded = sys.modules.get(_ASKED)
    if loaded is not None and hasattr(loaded, "IsMklEnabled"):
        return bool(loaded.IsMklEnabled())
    by_processor = sys.platform == "linux" and bool(_NEURAL & machine.processor().features)
    wanted = os.environ.get("TF_ENABLE_ONEDNN_OPTS", "").lower()  # as ReadBoolFromEnvVar does
    return {"1": True, "true": True, "0": False, "false": False}.get(wanted, by_processor)


def flags() -> dict[str, str]:
    """The values of `FLAGS` that are set."""
    return {name: os.environ[name] for name in FLAGS if os.environ.get(name)}


def _number(name: str) -> int:
    """An environment variable as a number; 0 where it is none."""
    try:
        return int(os.environ.get(name, ""))
    except ValueError:
        return 0
