"""The bits of 14 small runs, on this checkout and on another commit: `make bits`, `make bits BASE=HEAD~3`; with
several numbers of threads: `make bits BITS="--threads 1,2,3"`; or on several processors: `make bits BITS=--processors`.

A change of structure must leave them all. The runs go through the command line, so both commits take the same
overrides. Each is recorded by the digests of its tables, of every tensor of its final checkpoint, of its lines of
metrics.jsonl without times, and by its `run_id`. What a commit gave is kept in `.venv/bits/`, by the content of its
sources and by machine.

With `--processors`, the runs have `strategy.reproducible=processors`, and their digests are compared with those of
other processors in `bits.json`, and written there. `--processors EPYC-Milan Haswell` has QEMU simulate some.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from embexp.system import environment, machine

ROOT = Path(__file__).resolve().parents[1]
BY_PROCESSOR = Path(__file__).with_name("bits.json")
_TRIALS = 5
"""Of a run on a simulated processor: QEMU 7.2 crashes now and then, and its NumPy sorts wrongly; 10.0 does neither."""
_PORTABLE = "strategy.reproducible=processors output.baselines=false"
PACKAGES = ("tensorflow", "numpy", "keras")
KEPT = ROOT / ".venv" / "bits"
SOURCES = ("embexp", "conf", "hydra_plugins")
_QUIET = "output.plots=false output.tensorboard=false"
_CLICKS = f"{_QUIET} data.examples=4000 data.users=300 data.items=200 train.batch_size=128 train.steps=30"
_GRAPH = f"{_QUIET} data.path=graph train.epochs=2"
RUNS = {
    "rows_frozen": f"optimizer=adagrad_momentum freeze=rows freeze.rows=[[0,50],[100,120]] {_CLICKS}",
    "split": "optimizer=adam pretrained@tables.item.pretrained=file tables.item.pretrained.path=items.npy"
    f" freeze@tables.item.freeze=pretrained_rows tables.item.storage=split {_CLICKS}",
    "memory_map": "optimizer=adagrad pretrained@tables.item.pretrained=file tables.item.pretrained.path=items.npy"
    f" freeze@tables.item.freeze=table init@tables.item.init=memory_map {_CLICKS}",
    "dlrm": f"model=dlrm optimizer=adagrad {_CLICKS}",
    "complex": f"experiment=knowledge_graph {_GRAPH}",
    "transe": f"experiment=knowledge_graph model=transe data.negatives=8 {_GRAPH}",
    "skipgram": f"experiment=skipgram data.path=words.txt train.epochs=1 train.steps=20 train.batch_size=512 {_QUIET}",
    "text_cnn": f"experiment=text_classification data.path=texts.csv data.train_examples=150 train.epochs=2 {_QUIET}",
    "recommendation": "experiment=recommendation data.path=clicks.csv data.timestamp=time train.epochs=2"
    f" features.user.column=user features.item.column=item {_QUIET}",
    "mirrored": f"strategy=mirrored strategy.replicas=2 optimizer=adam {_CLICKS}",
    "tpu_simulator": f"strategy=tpu_simulator optimizer=adagrad {_CLICKS}",
    "estimator": f"runtime=estimator optimizer=sgd {_CLICKS}",
    "study": f"experiment=new_entities {_GRAPH}",
    "sweep": f"-m optimizer=sgd,adagrad,adam,ftrl {_CLICKS}",
}
"""Overrides by name; files are those of `write_data`."""

Bits = dict[str, str]
"""By what it is of: a digest, or a `run_id`."""


def write_data(folder: Path) -> None:
    """Writes the files that the runs read: vectors, a graph, words, texts, and interactions."""
    generator = np.random.default_rng(7)
    np.save(folder / "items.npy", generator.normal(0, 0.3, (150, 16)).astype(np.float32))
    (folder / "items.tokens.txt").write_text("".join(f"{token}\n" for token in generator.permutation(200)[:150]))
    (folder / "graph").mkdir()
    for split, count in (("train", 1500), ("valid", 100), ("test", 100)):
        triples = zip(*(generator.integers(0, most, count) for most in (80, 5, 80)), strict=True)
        lines = dict.fromkeys(f"e{head}\tr{relation}\te{tail}\n" for head, relation, tail in triples)
        (folder / "graph" / f"{split}.txt").write_text("".join(lines))
    words = np.array([f"w{number}" for number in range(300)])
    drawn = words[np.minimum(generator.zipf(1.3, 30_000) - 1, 299)]
    (folder / "words.txt").write_text("".join(" ".join(line) + "\n" for line in drawn.reshape(-1, 20)))
    texts = (
        f"{number % 3},{' '.join(words[generator.integers(0, 100, 12) + 50 * (number % 3)])}\n" for number in range(600)
    )
    (folder / "texts.csv").write_text("label,text\n" + "".join(texts))
    people, things = generator.integers(0, 60, 3000), generator.integers(0, 90, 3000)
    rows = (f"{user},{item},{time}\n" for time, (user, item) in enumerate(zip(people, things, strict=True)))
    (folder / "clicks.csv").write_text("user,item,time\n" + "".join(rows))


def bits_of(
    checkout: Path, names: list[str], threads: int = 0, more: str = "", processor: str | None = None
) -> dict[str, Bits]:
    """Does the runs with the sources of a checkout, two at once, and returns their bits by name.

    Args:
        threads: within an operation, and operations at once; 0: TensorFlow decides.
        more: other overrides.
        processor: one of `qemu-x86_64 -cpu help`, which QEMU simulates; None: the machine's own.

    Raises:
        SystemExit: a run fails; with what it printed.
    """
    variables = {key: text for key, text in os.environ.items() if not key.startswith(("EMBEXP_", "TF_"))}
    variables |= {"PYTHONPATH": str(checkout), "TF_CPP_MIN_LOG_LEVEL": "3", "COLUMNS": "120"}
    subprocess.run(
        [sys.executable, "-m", "embexp.system.native"],
        cwd=checkout,
        env=variables,
        check=False,
        stdout=subprocess.DEVNULL,
    )
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_data(folder)
        python = sys.executable
        if processor is not None:
            python = str(_simulated(processor, folder / "venv"))
            variables["OPENBLAS_NUM_THREADS"] = "1"

        def run(name: str) -> Bits:
            out = folder / "out" / name
            place = f"hydra.sweep.dir={out}" if "-m " in RUNS[name] else f"hydra.run.dir={out}"
            counts = [f"strategy.{kind}_op_threads={threads}" for kind in ("intra", "inter")]
            words = [
                *shlex.split(RUNS[name]),
                *shlex.split(more),
                *counts,
                place,
                f"output.cache={folder / 'cache' / name}",
            ]
            for _ in range(1 if processor is None else _TRIALS):
                shutil.rmtree(out, ignore_errors=True)
                command = [python, "-m", "embexp", "run", *words]
                done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True)
                if done.returncode >= 0:
                    break
            if done.returncode:
                raise SystemExit(
                    f"{name} failed in {checkout}: embexp run {shlex.join(words)}\n{done.stdout}{done.stderr}"
                )
            print(f"  {name}", flush=True)
            return dict(recorded(out))

        with ThreadPoolExecutor(2 if processor is None else 1) as pool, _on_one_core(processor is not None):
            return dict(zip(names, pool.map(run, names), strict=True))


def _simulated(processor: str, folder: Path) -> Path:
    """Makes a virtual environment like this one whose Python, and what it starts, runs on another processor.

    Raises:
        SystemExit: QEMU is not installed.
    """
    emulator = shutil.which("qemu-x86_64-static") or shutil.which("qemu-x86_64")
    if emulator is None:
        raise SystemExit("--processors NAME needs QEMU: install qemu-user-static, or qemu-user")
    python, own = folder / "bin" / "python", Path(sys.prefix)
    python.parent.mkdir(parents=True)
    (folder / "lib").symlink_to(own / "lib")
    shutil.copy(own / "pyvenv.cfg", folder)
    words = shlex.join([emulator, "-cpu", processor])
    python.write_text(f'#!/bin/sh\nexec {words} -0 "$0" {shlex.quote(os.path.realpath(sys.executable))} "$@"\n')
    python.chmod(0o755)
    return python


@contextmanager
def _on_one_core(wanted: bool) -> Iterator[None]:
    """QEMU's threads disturb each other on several."""
    cores = os.sched_getaffinity(0)
    if wanted:
        os.sched_setaffinity(0, {max(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def recorded(folder: Path) -> Iterator[tuple[str, str]]:
    """The bits of all runs below a folder."""
    import tensorflow as tf

    for spec in sorted(folder.rglob("spec.json")):
        run = spec.parent
        of = f"{run.relative_to(folder)}: "
        summary = json.loads((run / "summary.json").read_text())
        yield f"{of}run_id", str(summary.get("run_id"))
        for name, table in summary.get("tables", {}).items():
            yield f"{of}table {name}", table["digest"]
        if (run / "metrics.jsonl").exists():
            lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
            for line in lines:
                line.pop("timing", None)
            yield f"{of}metrics", _digest(json.dumps(lines, sort_keys=True).encode())
        final = run / "checkpoints" / "final"
        if final.exists():
            reader = tf.train.load_checkpoint(str(next(final.glob("*.index")).with_suffix("")))
            for key, shape in sorted(reader.get_variable_to_shape_map().items()):
                if key != "_CHECKPOINTABLE_OBJECT_GRAPH":
                    yield (
                        f"{of}tensor {key}",
                        _digest(repr(shape).encode() + np.asarray(reader.get_tensor(key)).tobytes()),
                    )


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def differences(before: dict[str, Bits], now: dict[str, Bits], *, ids: bool) -> list[str]:
    """What differs, a line each.

    Args:
        before: by run, of the other commit.
        now: of this checkout.
        ids: whether each `run_id` must be the same, too.
    """
    found = []
    for name, bits in now.items():
        for key in dict.fromkeys([*before[name], *bits]):
            old, new = before[name].get(key, "nothing"), bits.get(key, "nothing")
            if old != new and (ids or not key.endswith("run_id")):
                found.append(f"{name}: {key}: {old} before, {new} now")
    return found


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def _of_commit(commit: str, names: list[str]) -> dict[str, Bits]:
    """The bits of a commit, from those kept, or from a worktree of it."""
    trees = [_git("rev-parse", f"{commit}:{each}") for each in SOURCES]
    key = _digest(json.dumps([*trees, platform.node(), sys.version, names, RUNS]).encode())
    kept = KEPT / f"{key}.json"
    if not kept.exists():
        print(f"runs of {_git('log', '-1', '--format=%h %s', commit)}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            checkout = Path(folder) / "base"
            _git("worktree", "add", "--quiet", "--detach", str(checkout), commit)
            try:
                found = bits_of(checkout, names)
            finally:
                _git("worktree", "remove", "--force", str(checkout))
        KEPT.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(found, indent=1))
    content: dict[str, Any] = json.loads(kept.read_text())
    return content


def _by_threads(names: list[str], counts: list[int]) -> int:
    found = []
    for count in counts:
        print(f"runs with {count} threads", flush=True)
        found.append(bits_of(ROOT, names, count))
    status = 0
    for name in names:
        other = {
            count: differences({name: found[0][name]}, {name: bits[name]}, ids=True)
            for count, bits in zip(counts, found, strict=True)
        }
        alike = [str(count) for count, lines in other.items() if not lines]
        print(f"{name}: the same bits and ids with {', '.join(alike)} threads")
        for count, lines in other.items():
            status |= bool(lines)
            print("".join(f"  {count}: {line}\n" for line in lines[:4]), end="")
    return status


def _processor() -> str:
    """The processor's model with its generation: a virtual machine may call several generations by the same name."""
    lines = (line.partition(":") for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines())
    found = {key.strip(): value.strip() for key, _, value in lines}
    numbers = [f"{key.removeprefix('cpu ')} {found[key]}" for key in ("cpu family", "model") if key in found]
    return ", ".join([machine.processor().model, " ".join(numbers)]) if numbers else machine.processor().model


def _by_processor(names: list[str], simulated: list[str]) -> int:
    """Compares with `bits.json`, in which digests are kept as long as the versions of packages are the same.

    Where a run has other bits than before on the same processor, the code has changed them on all.
    """
    versions = {name: metadata.version(name) for name in PACKAGES}
    content = json.loads(BY_PROCESSOR.read_text()) if BY_PROCESSOR.exists() else {}
    kept: dict[str, dict[str, str]] = content.get("processors", {}) if content.get("versions") == versions else {}
    for processor in simulated or [None]:
        title = _processor() if processor is None else f"{processor}, simulated by QEMU"
        print(f"runs on {title}", flush=True)
        found = bits_of(ROOT, names, threads=int(processor is not None), more=_PORTABLE, processor=processor)
        for name, bits in found.items():
            digest = _digest(json.dumps(bits).encode())
            if kept.get(title, {}).get(name, digest) != digest:
                print(f"{name}: other bits than before on {title}, so those of other processors are of before, too")
                for digests in kept.values():
                    digests.pop(name, None)
            kept.setdefault(title, {})[name] = digest
    BY_PROCESSOR.write_text(json.dumps({"versions": versions, "processors": kept}, indent=1) + "\n")
    equal = 0
    for name in names:
        by_digest: dict[str, list[str]] = {}
        for title, digests in kept.items():
            if name in digests:
                by_digest.setdefault(digests[name], []).append(title)
        equal += len(by_digest) == 1
        print(f"{name}: {'; others on '.join(' and '.join(titles) for titles in by_digest.values())}")
    print(f"{equal} of {len(names)} runs have the same bits on {len(kept)} processors")
    return equal != len(names)


def main() -> int:
    """Compares, and returns the exit status: 0 if all bits are the same."""
    parser = argparse.ArgumentParser(prog="python -m tests.bits", description=__doc__.splitlines()[0])
    parser.add_argument(
        "base", nargs="?", default="HEAD", help="the commit to compare with; HEAD: what is not committed"
    )
    parser.add_argument("--runs", nargs="*", default=list(RUNS), choices=list(RUNS), help="only these")
    parser.add_argument(
        "--new-ids", action="store_true", help="each run_id may differ, for the one commit that says so"
    )
    parser.add_argument("--threads", help="compare these numbers of threads, such as 1,2,3, instead of commits")
    parser.add_argument(
        "--processors", nargs="*", help="compare with other processors instead; some that QEMU simulates, or this one"
    )
    options = parser.parse_args()
    environment.load_tensorflow()  # without its start-up messages
    if options.threads:
        return _by_threads(options.runs, [int(each) for each in options.threads.split(",")])
    if options.processors is not None:
        return _by_processor(options.runs, options.processors)
    before = _of_commit(_git("rev-parse", options.base), options.runs)
    print("runs of this checkout", flush=True)
    now = bits_of(ROOT, options.runs)
    found = differences(before, now, ids=not options.new_ids)
    count = sum(map(len, now.values()))
    print(
        "\n".join(found)
        or f"the same {count} digests and ids of {len(now)} runs as at {_git('describe', '--always', options.base)}"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
