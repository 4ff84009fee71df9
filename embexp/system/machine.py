"""This machine: its processor and the kernels for it, its memory, and the memory of this process. No TensorFlow.

Kernels are what TensorFlow runs on a processor, and how they divide their work. Sums of float32 depend on their order,
so two runs have the same bits only where all of this is the same.

The memory that this process may still take is that of the machine, of its control groups (containers, Slurm), and of
its shell. Control groups: https://docs.kernel.org/admin-guide/cgroup-v2.html (memory.max, memory.current, memory.stat)
and https://docs.kernel.org/admin-guide/cgroup-v1/memory.html.

Processes that end with their parent, and processes that are forked with TensorFlow imported.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from types import TracebackType

_CPU_INFO = Path("/proc/cpuinfo")
KERNEL_FLAGS = (
    "DNNL_CPU_ISA_HINTS",
    "DNNL_DEFAULT_FPMATH_MODE",
    "DNNL_MAX_CPU_ISA",
    "NPY_DISABLE_CPU_FEATURES",
    "NVIDIA_TF32_OVERRIDE",
    "ONEDNN_CPU_ISA_HINTS",
    "ONEDNN_DEFAULT_FPMATH_MODE",
    "ONEDNN_MAX_CPU_ISA",
    "OPENBLAS_CORETYPE",
    "TF_CUDNN_DETERMINISTIC",
    "TF_CUDNN_USE_AUTOTUNE",
    "TF_DETERMINISTIC_OPS",
    "TF_ENABLE_CUBLAS_TENSOR_OP_MATH_FP32",
    "TF_ENABLE_CUDNN_TENSOR_OP_MATH_FP32",
    "TF_SET_ONEDNN_FPMATH_MODE",
    "TF_XLA_FLAGS",
    "XLA_FLAGS",
    "EMBEXP_PORTABLE",
)
"""Environment variables that change kernels, beside those that `kernel_threads` and `onednn` follow."""

ONEDNN = "TF_ENABLE_ONEDNN_OPTS"
"""The environment variable by which TensorFlow is told whether to use oneDNN, before it is imported."""
PIECES = "EMBEXP_PIECES"
"""The environment variable with the number of pieces of a run that is repeated."""
PORTABLE = "EMBEXP_PORTABLE"
"""The environment variable by which fused operations have the bits of `native_code/portable.cc`."""
_FEWEST_PIECES = 4
"""With 8, small steps on two cores take a sixth longer."""
MOST_PIECES = 1 << 20
_ASKED = "tensorflow.python.util._pywrap_util_port"
_GROUPS = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")
_STATUS = Path("/proc/self/status")
_HEAP = 64 << 20
"""Bytes of a heap of glibc's, of which a thread has several."""
_MALLOPT = {-3: 32 << 20, -1: 128 << 20, -2: _HEAP}
"""By number in malloc.h: M_MMAP_THRESHOLD, from which size on memory is mapped on its own; M_TRIM_THRESHOLD, free bytes
that the process' first heap keeps at its end; M_TOP_PAD, those that threads' heaps keep, without which one that is free
as a whole goes. Each one that is set also ends glibc's own adaptation of the others."""
_WITHOUT_ONEDNN = {-4: 0, -1: 1 << 30}
"""M_MMAP_MAX, so that no memory is mapped on its own, and again M_TRIM_THRESHOLD. oneDNN's allocator keeps large
tensors; without it, those beyond the largest M_MMAP_THRESHOLD are fresh pages in each step, a third of it in DLRM."""
_SETTINGS = ("GLIBC_TUNABLES", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_")
"""Environment variables by which a user decides instead."""


@dataclass(frozen=True)
class Processor:
    """The processor.

    Attributes:
        features: the extensions of its instruction set, such as `avx2`; empty where the system doesn't tell (no /proc).
    """

    model: str
    features: frozenset[str]


def _fields(path: Path, separator: str = ":") -> dict[str, str]:
    """What a file of the system says, a line for each key; of equal ones, the first. Empty where there is no file."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    parts = (line.partition(separator) for line in reversed(lines))
    return {key.strip(): value.strip() for key, _, value in parts}


@cache
def processor() -> Processor:
    """The processor of this machine."""
    found = _fields(_CPU_INFO)  # of the first processor; the others are alike
    if not (model := found.get("model name", "")):
        import platform  # which takes longer than to read the file

        model = platform.processor() or platform.machine()
    return Processor(model, frozenset((found.get("flags") or found.get("Features") or "").split()))


def cores() -> int:
    """Number of cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_bytes() -> int:
    """Physical memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def pieces(wanted: int = 0) -> int:
    """Into how many pieces operations of the processor are cut, however many threads do them.

    It decides the last bits of large sums and products, so it does not depend on the cores that a process may use.

    Args:
        wanted: 0: `PIECES`, by which `verify` repeats a run; else 4, or as many as the machine has cores, as a power of
            two, where that is more.
    """
    repeated = _number(PIECES)
    if not 0 < repeated <= MOST_PIECES:  # what nobody but `verify` sets does not end a run
        repeated = 0
    return wanted or repeated or max(_FEWEST_PIECES, 1 << (os.cpu_count() or 1).bit_length() - 1)


def kernel_threads(intra_op: int, inter_op: int) -> dict[str, int]:
    """The numbers of threads that TensorFlow uses.

    What is 0 is decided as in tensorflow/core/common_runtime/process_util.cc and local_device.cc: by the environment,
    else by the number of cores that this process may run on.

    Args:
        intra_op: threads inside one operation, of the config.
    """
    return {
        "intra_op": intra_op or _number("TF_NUM_INTRAOP_THREADS") or cores(),
        "inter_op": inter_op or max(0, _number("TF_NUM_INTEROP_THREADS")) or cores(),
    }


def onednn(wanted: bool | None = None) -> bool:
    """Whether TensorFlow uses oneDNN's kernels: as it says itself where it is loaded, else as it will be told.

    By itself it uses them only on processors with AVX-512 VNNI, AMX and the like (`IsMKLEnabled` in
    tsl/util/util_port.cc). Elsewhere each operation allocates from the system, which clears the pages of large tensors,
    and the number of threads decides the last bits of products. So here AVX2 is enough.

    Args:
        wanted: None: the environment decides, else the processor.
    """
    loaded = sys.modules.get(_ASKED)
    if loaded is not None and hasattr(loaded, "IsMklEnabled"):
        return bool(loaded.IsMklEnabled())
    if wanted is not None:
        return wanted
    told = os.environ.get(ONEDNN, "").lower()  # as ReadBoolFromEnvVar does
    return {"1": True, "true": True, "0": False, "false": False}.get(told, "avx2" in processor().features)


def portable_flags() -> dict[str, str]:
    """The environment variables without which libraries choose kernels beyond AVX2.

    They are read when a library is loaded: by oneDNN, by NumPy, by OpenBLAS, which NumPy brings along, and by ours.
    """
    from importlib import metadata  # which takes as long to import as all that a help text needs

    version = tuple(int(each) for each in metadata.version("numpy").split(".")[:2])
    features = "X86_V4 AVX512_ICL AVX512_SPR"
    if version < (2, 4):
        features = "AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL"
    return {
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "NPY_DISABLE_CPU_FEATURES": features,
        "OPENBLAS_CORETYPE": "Haswell",
        PORTABLE: "1",
    }


def kernel_flags(*, portable: bool = False) -> dict[str, str]:
    """The values of `KERNEL_FLAGS` that are set, or will be: see `portable_flags`."""
    found = {name: os.environ[name] for name in KERNEL_FLAGS if os.environ.get(name)}
    return {**portable_flags(), **found} if portable else found


def _number(name: str) -> int:
    """An environment variable as a number; 0 where it is none."""
    try:
        return int(os.environ.get(name, ""))
    except ValueError:
        return 0


@dataclass(frozen=True)
class Available:
    """Memory that can be taken.

    Attributes:
        limit: what allows no more.
    """

    bytes: int
    limit: str


def available(groups: Path = _GROUPS, own: Path = _OWN) -> Available:
    """The memory that this process can still take; pages of files that can be read again count as free.

    Args:
        own: the file that names those of this process.
    """
    import psutil  # which takes longer than all of this

    found = [Available(psutil.virtual_memory().available, "this machine")]
    found += _of_groups(groups, own)
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        found.append(Available(max(0, soft - psutil.Process().memory_info().vms), "the limit of this shell, ulimit -v"))
    return min(found, key=lambda each: each.bytes)


def _of_groups(groups: Path, own: Path) -> Iterator[Available]:
    try:
        lines = own.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:  # another system than Linux
        return
    for line in lines:
        _, kinds, path = line.split(":", 2)
        if not kinds:
            yield from _limits(groups, path, ("memory.max", "memory.current", "inactive_file"))
        elif "memory" in kinds.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            yield from _limits(groups / "memory", path, names)


def _limits(root: Path, path: str, names: tuple[str, str, str]) -> Iterator[Available]:
    """What each group from that of the process up to the root allows; inside a container the path may not be there."""
    limit_name, usage_name, cached_name = names
    parts = PurePosixPath(path.lstrip("/"))
    for group in [root / parts, *(root / parent for parent in parts.parents)]:
        limit, usage = _number_in(group / limit_name), _number_in(group / usage_name)
        if limit is not None and usage is not None:
            free = limit - usage + _cached(group / "memory.stat", cached_name)
            yield Available(max(0, min(free, limit)), f"the limit of the control group ({group / limit_name})")


def _number_in(path: Path) -> int | None:
    """The number in a file; None where there is none, or it says `max`."""
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _cached(path: Path, name: str) -> int:
    """Bytes of files in memory that the system drops where memory is needed."""
    found = _fields(path, " ").get(name, "")
    return int(found) if found.isdigit() else 0


def anonymous_bytes() -> int | None:
    """Resident anonymous memory of this process in bytes; None where the system doesn't report it (it has no /proc)."""
    found = _fields(_STATUS).get("RssAnon")
    return None if found is None else int(found.split()[0]) * 1024


def keep_freed() -> bool:
    """Has this process keep some freed memory for its next allocations; whether it does.

    A training step frees what the next one allocates again. By itself glibc gives it back to the system in between,
    which then clears it page by page: with many tables, a fifth of a step's processor time. It is a hint: other
    systems and C libraries go on as before, and so does a process whose user has set glibc's own variables.
    """
    if sys.platform != "linux" or any(os.environ.get(name) for name in _SETTINGS):
        return False
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    wanted = [*_MALLOPT.items(), *({} if onednn() else _WITHOUT_ONEDNN).items()]
    return mallopt is not None and all(mallopt(number, value) == 1 for number, value in wanted)


class PeakMemory:
    """Watches the anonymous memory between start and stop, from a thread that looks every few milliseconds.

    Attributes:
        added: the largest value seen, minus the one at the start, in bytes; None where the system doesn't report it.
    """

    def __init__(self, interval: float = 0.005) -> None:
        self._interval = interval
        self._start = anonymous_bytes()
        self._peak = self._start or 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="embexp-memory", daemon=True)

    def __enter__(self) -> PeakMemory:
        if self._start is not None:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _watch(self) -> None:
        while not self._done.wait(self._interval):
            self._peak = max(self._peak, anonymous_bytes() or 0)

    def stop(self) -> int | None:
        """Ends the watch (again: does nothing) and returns `added`."""
        if self._start is not None and not self._done.is_set():
            self._peak = max(self._peak, anonymous_bytes() or 0)
            self._done.set()
            self._thread.join()
        return self.added

    @property
    def added(self) -> int | None:
        """Bytes that the process held at its peak beyond those at the start."""
        return None if self._start is None else self._peak - self._start


_PR_SET_PDEATHSIG = 1
_EXPENDABLE = "500"
VARIABLE = "EMBEXP_PARENT"
"""Variable of the environment with the process that a process is to end with."""


def variables() -> dict[str, str]:
    """Of the environment of a process that is to end with this one: it may be gone before the other asks for it."""
    return {VARIABLE: str(os.getpid())}


def parent() -> int:
    """The process that has started this one, perhaps gone by now."""
    named = os.environ.pop(VARIABLE, "")
    return int(named) if named.isdigit() else os.getppid()


def die_with_parent(parent: int) -> None:
    """Has the system kill this process as soon as its parent is gone, however that ends. Only Linux can do that.

    Args:
        parent: process id of the parent: if that is gone already, this process ends at once.
    """
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def be_expendable() -> None:
    """Has the system choose this process, rather than its parent, where memory runs out."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_EXPENDABLE, encoding="ascii")


def fork() -> int:
    """`os.fork`, without the warning that Python 3.12 and later give where a process has other threads.

    For a process that has started none of its own. Imports start some: NumPy's OpenBLAS one for each further core, and
    Arrow's allocator, jemalloc, one. They run no Python, and their libraries handle a fork (`pthread_atfork`).

    Returns:
        0 in the child, in the parent the child's process id.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"This process \(pid=\d+\) is multi-threaded", DeprecationWarning)
        return os.fork()
