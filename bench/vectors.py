"""Reading GloVe text: embexp against gensim, for the first time and from the cache.

    python -m bench.vectors [--quick] [--repetitions N] [--json FILE]

Every measurement is a fresh process, one after the other; imports don't count. Both end with the matrix as float32 and
the tokens at hand. embexp's first time includes writing its cache to disk; from the cache it also checks by path,
size and time that the file is still the one it parsed. Ratios are taken within a repetition; their median counts.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from bench import machine
from embexp.system import files

DIM = 100
TARGETS = {"first time": 8.0, "from the cache": 100.0}


def write_glove(path: Path, rows: int) -> None:
    """Writes random vectors as GloVe's program does: a token, then numbers of five significant digits."""
    random = np.random.default_rng(0)
    with path.open("w", encoding="utf-8") as file:
        for start in range(0, rows, 10_000):
            values = random.normal(scale=0.4, size=(min(10_000, rows - start), DIM))
            for row, vector in enumerate(values, start):
                file.write(f"token{row} {' '.join([f'{value:.5g}' for value in vector])}\n")


def ours(path: Path, cache: Path) -> float:
    """Seconds until the matrix is mapped and the tokens are there."""
    from embexp.vectors.open import open_vectors

    began = time.perf_counter()
    source = open_vectors(path, cache=cache)
    matrix, tokens = source.memory_map(), source.tokens
    seconds = time.perf_counter() - began
    assert matrix is not None
    assert tokens is not None
    assert len(matrix) == len(tokens)
    return seconds


def gensims(path: Path) -> float:
    """Seconds of gensim's reader."""
    from gensim.models import KeyedVectors

    began = time.perf_counter()
    vectors = KeyedVectors.load_word2vec_format(str(path), binary=False, no_header=True)
    seconds = time.perf_counter() - began
    assert vectors.vectors.dtype == np.float32
    return seconds


def _measure(*words: str) -> float:
    command = [sys.executable, "-m", "bench.vectors", "--measure", *words]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    result = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    if result.returncode:
        raise RuntimeError(f"{words} failed:\n{result.stderr}")
    return float(result.stdout.strip().splitlines()[-1])


def main(argv: list[str]) -> int:
    """Measures, prints, and returns 0 if every target is met, else 1."""
    parser = argparse.ArgumentParser(prog="python -m bench.vectors", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one repetition of a quarter of the rows")
    parser.add_argument("--repetitions", type=int, help="times everything is measured (3; quick: 1)")
    parser.add_argument("--json", type=Path, help="write the results here too")
    parser.add_argument("--measure", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.measure:
        who, path, *cache = options.measure
        print(ours(Path(path), Path(cache[0])) if who == "embexp" else gensims(Path(path)))
        return 0
    described = machine.describe()
    for key, value in described.items():
        print(f"{key:12} {value}")
    rows = 100_000 if options.quick else 400_000
    repetitions = options.repetitions or (1 if options.quick else 3)
    seconds: dict[str, list[float]] = {"gensim": [], "first time": [], "from the cache": []}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "glove.txt"
        write_glove(path, rows)
        print(f"\n{rows:,} x {DIM}, {path.stat().st_size / 1e6:.0f} MB")
        time.sleep(3)  # a file that is younger than this could still change unnoticed, so its digest is not kept
        for repetition in range(repetitions):
            cache = str(Path(folder) / f"cache{repetition}")
            seconds["gensim"].append(_measure("gensim", str(path)))
            seconds["first time"].append(_measure("embexp", str(path), cache))
            seconds["from the cache"].append(_measure("embexp", str(path), cache))
            print("  ".join(f"{name} {each[-1]:.4f} s" for name, each in seconds.items()), flush=True)
    ratios = {}
    for name, target in TARGETS.items():
        each = [theirs / mine for theirs, mine in zip(seconds["gensim"], seconds[name], strict=True)]
        ratio = ratios[name] = statistics.median(each)
        spread = " ".join(f"{value:.1f}" for value in each)
        word = "met" if ratio >= target else "MISSED"
        print(f"gensim / embexp, {name:16}{ratio:10.1f}  >= {target:g} {word}  ({spread})")
    if options.json is not None:
        results = {"machine": described, "seconds": seconds, "ratios": ratios, "targets": TARGETS}
        files.write_text(options.json, json.dumps(results, indent=2) + "\n")
    return 0 if all(ratios[name] >= target for name, target in TARGETS.items()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
