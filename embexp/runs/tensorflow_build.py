"""Version and build of TensorFlow, for the manifest."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from embexp.system import native


def described() -> dict[str, Any]:
    """Version, compiler and build flags, and the settings of this process that change what it computes."""
    return {
        "version": tf.version.VERSION,
        "git_version": tf.version.GIT_VERSION,
        "compiler": tf.version.COMPILER_VERSION,
        "compile_flags": [flag for flag in tf.sysconfig.get_compile_flags() if not flag.startswith("-I")],
        "build": {key: _plain(value) for key, value in sorted(tf.sysconfig.get_build_info().items())},
        "jit": str(tf.config.optimizer.get_jit()),
        "tensor_float_32": bool(tf.config.experimental.tensor_float_32_execution_enabled()),
        "floatx": keras.config.floatx(),
        "precision": keras.config.dtype_policy().name,
        "fused_operations": [name for name in native.names() if native.library(name) is not None],
    }


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool | None) else list(map(str, value))
