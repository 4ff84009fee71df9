"""Shared by all benchmarks: options, a description of the machine, new processes, targets, and result files.

`--instructions avx2` measures as if the processor had no AVX-512. The benchmark starts again, and its processes load
`without_avx512.c` before anything else. If the processor or system can't do that (AMD before Zen 5), an environment
variable tells each library not to use AVX-512. FBGEMM has no such variable, so it still uses AVX-512.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from bench import figures as published
from embexp.system import files, machine

LIMITED = "BENCH_LIMITED"
"""The environment variable that marks a benchmark that has started again."""
_TOLD = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "DNNL_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "NPY_DISABLE_CPU_FEATURES": machine.portable_flags()["NPY_DISABLE_CPU_FEATURES"],
    "ONEDNN_MAX_CPU_ISA": "AVX2",
}
"""The variables that keep PyTorch, oneDNN, MKL and NumPy from using AVX-512."""
CORES = machine.cores()
PACKAGES = ("tensorflow", "keras", "torch", "fbgemm-gpu-cpu", "pykeen", "implicit", "numpy")


def parser(
    name: str, doc: str | None, *, quick: str, repetitions: str | None = None, threads: bool = False
) -> argparse.ArgumentParser:
    """The options of benchmarks: --quick, --json, --record, --instructions, --repetitions and --threads.

    Args:
        name: name of the module.
        doc: docstring of the module; its first line is the description.
        quick: what --quick does.
        repetitions: what --repetitions counts; None: there is no such option.
    """
    made = argparse.ArgumentParser(prog=f"python -m bench.{name}", description=(doc or "").partition("\n")[0])
    made.add_argument("--quick", action="store_true", help=quick)
    if repetitions is not None:
        made.add_argument("--repetitions", type=int, help=repetitions)
    if threads:
        made.add_argument("--threads", type=int, default=CORES, help="threads of each library (default: one per core)")
    made.add_argument("--json", type=Path, help="also write the results to this file")
    made.add_argument("--record", action="store_true", help="also write the quoted figures into the pages")
    made.add_argument("--instructions", choices=["avx2"], action=_Limited, help="hide AVX-512 from all libraries")
    made.set_defaults(bench=name)
    return made


class _Limited(argparse.Action):
    """Starts the benchmark again, as if the processor had no AVX-512."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, *_: Any) -> None:
        if LIMITED in os.environ:
            return
        source = Path(__file__).with_name("without_avx512.c")
        library = Path(tempfile.mkdtemp()) / "without_avx512.so"
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, source], check=True)
        hidden = {"LD_PRELOAD": str(library)}
        works = subprocess.run(["true"], env={**os.environ, **hidden}, stderr=subprocess.DEVNULL, check=False)
        settings = _TOLD if works.returncode else hidden
        os.execve(sys.executable, sys.orig_argv, {**os.environ, **settings, LIMITED: "1"})


def describe() -> dict[str, str]:
    """Describes processor, cores, memory, load, system, and versions of the compared packages."""
    versions = dict.fromkeys(PACKAGES, "not installed")
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return {
        "processor": machine.processor().model + (", limited to AVX2" if LIMITED in os.environ else ""),
        "instructions": instructions(),
        "cores": str(CORES),
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "load": " ".join(f"{load:.2f}" for load in os.getloadavg()),
        "system": f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
        **versions,
    }


def instructions() -> str:
    """The widest instructions that libraries may use: avx512 (with or without AMX) or avx2."""
    return "avx512" if "avx512f" in machine.processor().features and LIMITED not in os.environ else "avx2"


def introduce() -> dict[str, str]:
    """Prints the machine, and returns the printed values."""
    described = describe()
    for key, value in described.items():
        print(f"{key:12} {value}")
    return described


def introduce_in_a_line(*more: str) -> dict[str, str]:
    """Prints the machine in one line, and returns the whole result of `describe`."""
    described = describe()
    names = ("processor", "cores", "load", "tensorflow", "torch", "pykeen")
    print("; ".join([*(f"{name} {described[name]}" for name in names), *more]))
    return described


def in_process(module: str, *words: object) -> list[str]:
    """The lines that a module of this folder prints in a new process.

    Raises:
        RuntimeError: the process fails.
    """
    command = [sys.executable, "-m", f"bench.{module}", *map(str, words)]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
    return done.stdout.strip().splitlines()


def figures(module: str, *words: object) -> Any:
    """The last line of `in_process`, read as JSON."""
    return json.loads(in_process(module, *words)[-1])


def ratios(numerators: Sequence[float], denominators: Sequence[float]) -> list[float]:
    """The ratios, one per repetition."""
    return [a / b for a, b in zip(numerators, denominators, strict=True)]


def judged(values: Sequence[float], bound: float, *, at_most: bool = False, digits: int = 2) -> tuple[float, bool, str]:
    """The median of ratios, whether it is within a bound, and a text about both: `>= 2.0 met (2.10 2.00 2.30)`."""
    median = statistics.median(values)
    met = median <= bound if at_most else median >= bound
    spread = " ".join(f"{value:.{digits}f}" for value in values)
    return median, met, f"{'<=' if at_most else '>='} {bound} {'met' if met else 'MISSED'} ({spread})"


def word(met: bool) -> str:
    """The text about a target."""
    return "met" if met else "MISSED"


def save(options: argparse.Namespace, described: Mapping[str, str], quotable: Any = None, **results: Any) -> None:
    """Writes the results to the file of --json, if given. With --record, writes quoted figures into the pages.

    Args:
        options: result of `parser`.
        described: result of `describe`.
        quotable: nested dicts of numbers, and of lists with one number per repetition; None: the results.
    """
    if options.json is not None:
        files.write_text(options.json, json.dumps({"machine": described, **results}, indent=2) + "\n")
    if options.record:
        command = shlex.join(["python", "-m", f"bench.{options.bench}", *sys.argv[1:]])
        published.record(options.bench, quotable or results, described, command)


def experiment(folder: Path, dim: int) -> list[str]:
    """Arguments of `embexp run` for `experiment=clicks` with its own graph and model, whose files go to `folder`.

    The graph `bench_pairs` has users and items in two tables of `dim`. Each example has one id of each. The model
    `bench_dot` is the product of their vectors.
    """
    graph = f"""# @package _global_
defaults:
  - /table@tables.user: embedding
  - /table@tables.item: embedding
  - /feature@features.user: id
  - /feature@features.item: id
  - _self_
tables: {{user: {{dim: {dim}}}, item: {{dim: {dim}}}}}
features: {{user: {{table: user}}, item: {{table: item}}}}
"""
    files.write_text(folder / "conf" / "graph" / "bench_pairs.yaml", graph)
    model = "kind: dot\nleft: [user]\nright: [item]\nbiases: []\n"
    files.write_text(folder / "conf" / "model" / "bench_dot.yaml", model)
    return ["run", "--config-dir", str(folder / "conf"), "experiment=clicks", f"output.cache={folder / 'cache'}"]
