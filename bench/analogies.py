"""Time to answer a fifth of Google's analogies in embexp and in gensim.

    python -m bench.analogies [--quick] [--repetitions N] [--json FILE]

Both get the same vectors in memory, and read every fifth question of the file that gensim ships. embexp answers by
3CosAdd and 3CosMul, gensim by 3CosAdd. The more questions there are, the less time embexp takes for each, because
questions share words. Every measurement runs in a new process and excludes imports. The accuracies by 3CosAdd must
agree to 1e-6. Ratios are taken within a repetition, and their median is reported.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bench import harness

DIM = 100
TARGET = 5.0


def made(rows: int, path: Path) -> tuple[list[str], np.ndarray]:
    """Makes words and vectors, and writes the questions; the vectors answer some of them correctly."""
    from gensim.test.utils import datapath

    random = np.random.default_rng(0)
    lines = Path(datapath("questions-words.txt")).read_text("utf-8").splitlines()
    lines = [line for number, line in enumerate(lines) if line.startswith(":") or number % 5 == 0]
    path.write_text("\n".join(lines), "utf-8")
    questions = [line.split() for line in lines if not line.startswith(":")]
    words = sorted({word for question in questions for word in question})
    known = {word: row for row, word in enumerate(words)}
    words += [f"token{row}" for row in range(rows - len(words))]
    values = random.normal(size=(rows, DIM)).astype(np.float32)
    for a, b, c, d in questions[::3]:
        values[known[d]] = values[known[b]] - values[known[a]] + values[known[c]] + 0.5 * values[known[d]]
        values[known[d]] *= 10 / np.linalg.norm(values[known[d]])
    return words, values


def measured(who: str, rows: int) -> tuple[float, float]:
    """Seconds to answer the questions, and the accuracy by 3CosAdd."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "questions.txt"
        return _answered(who, *made(rows, path), path)


def _answered(who: str, words: Sequence[str], values: np.ndarray, path: Path) -> tuple[float, float]:
    if who == "gensim":
        from gensim.models import KeyedVectors

        keyed = KeyedVectors(DIM)
        keyed.add_vectors(list(words), values)
        began = time.perf_counter()
        accuracy, _ = keyed.evaluate_word_analogies(str(path))
        return time.perf_counter() - began, accuracy
    import pyarrow as pa

    from embexp.system.arrays import ArrayRows
    from embexp.vectors import quality

    tokens = pa.array(words, pa.large_string())
    began = time.perf_counter()
    lookup = quality.Lookup(tokens, rows=300_000)
    found = quality.analogies(ArrayRows(values), lookup, quality.read_analogies(path))
    seconds, share = time.perf_counter() - began, found.sections[-1].add
    assert share is not None
    return seconds, share.share


def main(argv: list[str]) -> int:
    """Measures and prints; returns 0 if the target is met and the accuracies agree, else 1."""
    parser = harness.parser(
        "analogies", __doc__, quick="one repetition, 20,000 rows", repetitions="number of repetitions (3; quick: 1)"
    )
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.measure:
        print(json.dumps(measured(options.measure[0], int(options.measure[1]))))
        return 0
    described = harness.introduce()
    seconds: dict[str, list[float]] = {"gensim": [], "embexp": []}
    rows, equal = 20_000 if options.quick else 100_000, True
    print(f"\n{rows:,} x {DIM}, every fifth of 19,544 questions")
    for _ in range(options.repetitions or (1 if options.quick else 3)):
        accuracies = []
        for who, each in seconds.items():
            taken, accuracy = harness.figures("analogies", "--measure", who, rows)
            each.append(taken)
            accuracies.append(accuracy)
        equal &= abs(accuracies[0] - accuracies[1]) <= 1e-6
        print(
            "  ".join(f"{who} {each[-1]:.2f} s" for who, each in seconds.items()),
            f"  accuracies {accuracies}",
            flush=True,
        )
    ratios = harness.ratios(seconds["gensim"], seconds["embexp"])
    ratio, met, words = harness.judged(ratios, TARGET, digits=1)
    print(f"gensim / embexp {ratio:10.1f}  {words}; accuracies {'equal' if equal else 'DIFFERENT'}")
    harness.save(options, described, seconds=seconds, ratio=ratio, target=TARGET, equal=equal)
    return 0 if met and equal else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
