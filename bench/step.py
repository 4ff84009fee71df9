"""Time of a training step: independent of the vocabulary size, and compared with Keras and PyTorch.

    python -m bench.step [--quick] [--repetitions N] [--json FILE]

Every measurement runs in a new process. Every repetition measures all of them in sequence, so that other load affects
all alike. Ratios are taken within a repetition, and their median is reported.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from bench import machine
from embexp.system import files

SMALL, MIDDLE, LARGE = 10**4, 10**6, 10**7
STEPS = {"embexp": 200, "keras": 192, "torch": 100}


@dataclass(frozen=True)
class Measurement:
    """A library, an optimizer and a number of rows."""

    contender: str
    optimizer: str
    vocabulary: int

    def __str__(self) -> str:
        return f"{self.contender} {self.optimizer} V={self.vocabulary:.0e}"


@dataclass(frozen=True)
class Target:
    """A ratio of two step times, and its bound."""

    numerator: Measurement
    denominator: Measurement
    bound: float
    at_most: bool = False

    def met(self, ratio: float) -> bool:
        """Whether a ratio is within the bound."""
        return ratio <= self.bound if self.at_most else ratio >= self.bound

    def __str__(self) -> str:
        return f"{self.numerator} / {self.denominator}"


def _targets() -> list[Target]:
    def ours(optimizer: str, vocabulary: int = MIDDLE) -> Measurement:
        return Measurement("embexp", optimizer, vocabulary)

    flat = [Target(ours(o, LARGE), ours(o, SMALL), 2.5, at_most=True) for o in ("sgd", "adagrad", "adam")]
    keras = [Target(Measurement("keras", o, MIDDLE), ours(o), 8.0) for o in ("adagrad", "adam")]
    bounds = {"sgd": 1.5, "adagrad": 2.0, "adam": 3.0}
    return [*flat, *keras, *(Target(Measurement("torch", o, MIDDLE), ours(o), b) for o, b in bounds.items())]


def _measure(what: Measurement, quick: bool) -> float:
    steps = STEPS[what.contender] // (2 if quick else 1)
    command = [sys.executable, "-m", "bench.step_contenders", what.contender, what.optimizer, str(what.vocabulary)]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    result = subprocess.run([*command, str(steps)], env=environment, capture_output=True, text=True, check=False)
    if result.returncode:
        raise RuntimeError(f"{what} failed:\n{result.stderr}")
    return float(result.stdout.strip().splitlines()[-1])


def main(argv: list[str]) -> int:
    """Measures, prints, and returns 0 if every target is met, else 1."""
    parser = argparse.ArgumentParser(prog="python -m bench.step", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one repetition with fewer steps")
    parser.add_argument("--repetitions", type=int, help="number of repetitions (3; quick: 1)")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    options = parser.parse_args(argv)
    repetitions = options.repetitions or (1 if options.quick else 3)

    described = machine.describe()
    for key, value in described.items():
        print(f"{key:12} {value}")
    targets = _targets()
    measurements = list(dict.fromkeys(m for target in targets for m in (target.denominator, target.numerator)))
    measurements += [Measurement("embexp", o, MIDDLE) for o in ("sgd", "adagrad", "adam")]
    times: dict[Measurement, list[float]] = {m: [] for m in measurements}
    for repetition in range(repetitions):
        print(f"\nrepetition {repetition + 1} of {repetitions}")
        for what in times:
            times[what].append(_measure(what, options.quick))
            print(f"  {what!s:28} {times[what][-1]:8.2f} ms", flush=True)

    print("\nratio of step times" + " " * 41 + "median   target")
    ratios = {}
    for target in targets:
        each = [a / b for a, b in zip(times[target.numerator], times[target.denominator], strict=True)]
        ratio = ratios[str(target)] = statistics.median(each)
        sign, word = ("<=" if target.at_most else ">="), ("met" if target.met(ratio) else "MISSED")
        spread = " ".join(f"{value:.2f}" for value in each)
        print(f"  {target!s:56} {ratio:6.2f} {sign} {target.bound:<5} {word:7} ({spread})")
    if options.json is not None:
        results = {
            "machine": described,
            "milliseconds": {str(what): values for what, values in times.items()},
            "ratios": ratios,
            "targets": {str(target): target.bound for target in targets},
        }
        files.write_text(options.json, json.dumps(results, indent=2) + "\n")
    return 0 if all(target.met(ratios[str(target)]) for target in targets) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
