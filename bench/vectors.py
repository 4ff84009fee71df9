"""Time to read GloVe text in embexp, the first time and from the cache, compared with gensim.

    python -m bench.vectors [--quick] [--repetitions N] [--json FILE]

Every measurement runs in a new process and excludes imports. The result is the matrix as float32, and the tokens. The
first time, embexp also writes its cache. From the cache, it still checks path, size and modification time of the file.
Ratios are taken within a repetition, and their median is reported.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from bench import harness

DIM = 100
TARGETS = {"first time": 8.0, "from the cache": 100.0}


def write_glove(path: Path, rows: int) -> None:
    """Writes random vectors like GloVe's program: a token, then numbers with five significant digits."""
    random = np.random.default_rng(0)
    with path.open("w", encoding="utf-8") as file:
        for start in range(0, rows, 10_000):
            values = random.normal(scale=0.4, size=(min(10_000, rows - start), DIM))
            for row, vector in enumerate(values, start):
                file.write(f"token{row} {' '.join([f'{value:.5g}' for value in vector])}\n")


def ours(path: Path, cache: Path) -> float:
    """Seconds until the matrix is mapped and the tokens are read."""
    from embexp.vectors.file_source import open_vectors

    began = time.perf_counter()
    source = open_vectors(path, cache=cache)
    matrix, tokens = source.memory_map(), source.tokens
    seconds = time.perf_counter() - began
    assert matrix is not None
    assert tokens is not None
    assert len(matrix) == len(tokens)
    return seconds


def gensims(path: Path) -> float:
    """Seconds of gensim's reader for the same file."""
    from gensim.models import KeyedVectors

    began = time.perf_counter()
    vectors = KeyedVectors.load_word2vec_format(str(path), binary=False, no_header=True)
    seconds = time.perf_counter() - began
    assert vectors.vectors.dtype == np.float32
    return seconds


def _measure(*words: str) -> float:
    return float(harness.figures("vectors", "--measure", *words))


def main(argv: list[str]) -> int:
    """Measures and prints; returns 0 if every target is met, else 1."""
    quick = "one repetition with a quarter of the rows"
    parser = harness.parser("vectors", __doc__, quick=quick, repetitions="number of repetitions (3; quick: 1)")
    parser.add_argument("--measure", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.measure:
        who, path, *cache = options.measure
        print(ours(Path(path), Path(cache[0])) if who == "embexp" else gensims(Path(path)))
        return 0
    described = harness.introduce()
    rows = 100_000 if options.quick else 400_000
    repetitions = options.repetitions or (1 if options.quick else 3)
    seconds: dict[str, list[float]] = {"gensim": [], "first time": [], "from the cache": []}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "glove.txt"
        write_glove(path, rows)
        print(f"\n{rows:,} x {DIM}, {path.stat().st_size / 1e6:.0f} MB")
        time.sleep(3)  # the digest of a newer file is not cached, because the file might still change unnoticed
        for repetition in range(repetitions):
            cache = str(Path(folder) / f"cache{repetition}")
            seconds["gensim"].append(_measure("gensim", str(path)))
            seconds["first time"].append(_measure("embexp", str(path), cache))
            seconds["from the cache"].append(_measure("embexp", str(path), cache))
            print("  ".join(f"{name} {each[-1]:.4f} s" for name, each in seconds.items()), flush=True)
    ratios = {}
    for name, target in TARGETS.items():
        each = harness.ratios(seconds["gensim"], seconds[name])
        ratios[name], _, words = harness.judged(each, target, digits=1)
        print(f"gensim / embexp, {name:16}{ratios[name]:10.1f}  {words}")
    harness.save(options, described, seconds=seconds, ratios=ratios, targets=TARGETS)
    return 0 if all(ratios[name] >= target for name, target in TARGETS.items()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
