"""The environment of a process that trains or predicts, set in one place; and its collector of cyclic garbage.

Python's collector of cyclic garbage, while a command starts. Starting makes several hundred thousand objects, almost
all of which stay: modules, classes, the config. The collector would search them again and again, at the process's end
too, and find next to nothing: it takes a fifth of the time in which a config is composed, and a third of that in which
TensorFlow is imported. So a process that runs one command begins without it. It begins to work where the command does,
and leaves alone what is there by then.
"""

from __future__ import annotations

import atexit
import gc
import hashlib
import importlib
import os
import re
import resource
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from embexp.system import machine
from embexp.system.printable import masked, send_nowhere

HARMLESS = re.compile(
    r"(OMP|MKL|MKL_DOMAIN|OPENBLAS|BLIS|NUMEXPR)_NUM_THREADS|(VECLIB_MAXIMUM|NUMEXPR_MAX)_THREADS"
    r"|TF_NUM_(INTRA|INTER)OP_THREADS|TF_GPU_THREAD_(MODE|COUNT)"
    r"|OMP_(THREAD_LIMIT|DYNAMIC|NESTED|MAX_ACTIVE_LEVELS|PROC_BIND|PLACES|SCHEDULE|WAIT_POLICY|DISPLAY_ENV)"
    r"|GOMP_(CPU_AFFINITY|SPINCOUNT)|KMP_(AFFINITY|BLOCKTIME|HW_SUBSET|SETTINGS)"
    r"|MKL_(DYNAMIC|CBWR|ENABLE_INSTRUCTIONS)|OPENBLAS_CORETYPE"
    r"|(CUDA|NVIDIA|HIP|ROCR|TPU)_VISIBLE_DEVICES|TPU_VISIBLE_CHIPS|CUDA_(DEVICE_ORDER|LAUNCH_BLOCKING)"
    r"|NVIDIA_TF32_OVERRIDE|CUBLAS_WORKSPACE_CONFIG|TF_GPU_(ALLOCATOR|HOST_MEM_LIMIT_IN_MB)|TF_FORCE_GPU_ALLOW_GROWTH"
    r"|TF_DETERMINISTIC_OPS|TF_CUDNN_(DETERMINISTIC|USE_AUTOTUNE|USE_FRONTEND)"
    r"|TF_ENABLE_ONEDNN_OPTS|TF_SET_ONEDNN_FPMATH_MODE|ONEDNN_DEFAULT_FPMATH_MODE|(ONEDNN|DNNL)_(MAX_CPU_ISA|VERBOSE)"
    r"|TF_CPP_(MIN_LOG_LEVEL|MIN_VLOG_LEVEL|MAX_VLOG_LEVEL|VMODULE)|ABSL_MIN_LOG_LEVEL|(GRPC|AUTOGRAPH)_VERBOSITY"
)
"""Numbers of threads, visible devices, kernels and log levels. None is a path, an address or a switch for code."""
_RECORDED = re.compile(
    r"TF_CONFIG|TF_XLA_FLAGS|XLA_FLAGS|TF_ENABLE_CUBLAS_TENSOR_OP_MATH_FP32|TF_USE_LEGACY_KERAS"
    r"|(ONEDNN|DNNL)_(CPU_ISA_HINTS|DEFAULT_FPMATH_MODE)|TF_GRPC_DEFAULT_OPTIONS|TF_CUDA_PATHS|CUDA_(HOME|CACHE_PATH)"
    r"|OMP_STACKSIZE|KMP_STACKSIZE|MKL_THREADING_LAYER|KERAS_BACKEND|TPU_NAME|KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS"
    r"|EMBEXP_(DATA|WORKER|LEADER)|PYTHONHASHSEED"
)
"""What else a run records of its environment, as it may change what TensorFlow, NumPy or embexp compute, or where."""
_CHATTER = re.compile(rb"^(WARNING: All log messages before absl::InitializeLog\(\)|[IW]\d{4} \d\d:\d\d:)")
"""Lines of information and warning that TensorFlow's libraries write while they are loaded, whatever the log level."""


_ADDRESSES = 2_500_000_000
"""Addresses that TensorFlow takes before it has done anything: its libraries, and the stacks of its threads."""
_ASIDE = ("sklearn", "pandas", "matplotlib")
"""Packages that Keras imports if they are installed: for its wrappers for scikit-learn, for DataFrames as the input of
`Model.fit`, for galleries of images. They take a third of the import, and no run uses these."""
_LOGGERS = ("tensorflow", "absl")
"""Of TensorFlow and Keras, whose warnings go to the standard error."""
_process = False
"""Whether this process only runs a command; a notebook or a test has its collector to itself."""


SECRET = "secret"
"""What stands for the value of a variable that is a secret: even its digest would tell whether a guess is right."""


def fingerprint(name: str) -> str | None:
    """SHA-256 of the value that an environment variable has now, `SECRET` if that is one; None: it is not set."""
    text = os.environ.get(name)
    if text is None:
        return None
    return SECRET if masked(text, name) != text else hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def is_recorded(variable: str) -> bool:
    """Whether a run records an environment variable: it is known by its name, and not by how that begins."""
    return bool(HARMLESS.fullmatch(variable) or _RECORDED.fullmatch(variable))


def quiet() -> None:
    """Asks TensorFlow and gRPC for errors only, unless the user has set otherwise; to be called before either."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    os.environ.setdefault("AUTOGRAPH_VERBOSITY", "0")


def choose_kernels(*, portable: bool) -> None:
    """Before anything is printed or written: has no library choose kernels by the processor, if that is wanted.

    A command that has imported NumPy to check its config starts again, with `machine.portable_flags`. In another
    process that has, nothing changes.
    """
    if portable and (missing := _set_portable_flags()) and _process:
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, **missing})


def _set_portable_flags() -> dict[str, str]:
    """Sets what is missing of `machine.portable_flags`, and returns what comes too late, as NumPy has read it."""
    missing = {name: text for name, text in machine.portable_flags().items() if name not in os.environ}
    if {"tensorflow", "numpy"} & sys.modules.keys():
        return missing
    os.environ.update(missing)
    return {}


def load_tensorflow(*, onednn: bool | None = None, portable: bool = False) -> None:
    """Imports TensorFlow without its chatter, as Keras' backend. To be called before anything that imports it.

    What the user has set in the environment stays as it is, but for the backend: embexp trains with TensorFlow. In the
    process of a command, Keras is imported as if packages that no run uses were not installed, and TensorFlow's loggers
    report errors only: what they warn of, such as functions of TensorFlow that are deprecated, is no matter of a user.

    Args:
        onednn: whether TensorFlow is to use oneDNN, see `machine.onednn`; where it is loaded already, nothing changes.
        portable: whether to have kernels that every x86 processor with AVX2 has, unless NumPy is imported already. A
            command calls `choose_kernels` before.
    """
    if "tensorflow" not in sys.modules and 0 <= resource.getrlimit(resource.RLIMIT_AS)[0] < _ADDRESSES:
        raise MemoryError(f"TensorFlow needs {_ADDRESSES / 1e9:.3g} GB of addresses")  # else it ends the process
    quiet()
    if "tensorflow" not in sys.modules and (machine.onednn(onednn) or onednn is not None):
        os.environ[machine.ONEDNN] = str(int(machine.onednn(onednn)))
    if portable:
        _set_portable_flags()
    os.environ["KERAS_BACKEND"] = "tensorflow"
    with collecting_paused(), _without_chatter(), hidden(_ASIDE if _process else ()):
        importlib.import_module("tensorflow")
    if _process and not _wants_chatter():
        import logging

        for name in _LOGGERS:
            logging.getLogger(name).setLevel(logging.ERROR)


@contextmanager
def hidden(packages: Iterable[str]) -> Iterator[None]:
    """Within the block, packages that are not imported yet can't be: their import raises `ModuleNotFoundError`."""
    names = [name for name in packages if name not in sys.modules]
    sys.modules |= dict.fromkeys(names)  # type: ignore[arg-type]  # None: what Python's documentation has for this
    try:
        yield
    finally:
        for name in names:
            sys.modules.pop(name, None)


def _wants_chatter() -> bool:
    """Whether the user wants to see what TensorFlow's libraries say."""
    return os.environ.get("TF_CPP_MIN_LOG_LEVEL") in ("0", "1")


@contextmanager
def _without_chatter() -> Iterator[None]:
    """Buffers the standard error within the block, and passes it on afterwards without chatter.

    The libraries write to the file descriptor itself, so `sys.stderr` is not enough.
    """
    if _wants_chatter():
        yield
        return

    sys.stderr.flush()
    before = os.dup(2)
    import tempfile  # which a command that loads no TensorFlow does not need

    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(before, 2)
            os.close(before)
            held.seek(0)
            for line in held:
                if not _CHATTER.match(line):
                    os.write(2, line)


def silence_end() -> None:
    """What libraries write to the standard error while this process ends, behind its own last line, goes nowhere."""

    def silence() -> None:
        sys.stderr.flush()
        send_nowhere(2)

    atexit.register(silence)


def postpone_collecting() -> None:
    """Stops the collector in a process that only runs a command, until `begin_collecting`."""
    global _process
    _process = True
    gc.disable()


def begin_collecting() -> None:
    """Starts the collector, for what is made from now on; without `postpone_collecting` before, nothing is changed."""
    if _process:
        gc.freeze()
        gc.enable()


@contextmanager
def collecting_paused() -> Iterator[None]:
    """A block that only imports, such as TensorFlow."""
    if not (_process and gc.isenabled()):
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        begin_collecting()


def end_collecting() -> None:
    """Has Python search nothing at its own end if the command has not begun to work, so that no file is left open."""
    if _process and not gc.isenabled():
        gc.freeze()
