"""`make fuzz`: every reader on mutated files, and commands on mutated configs; see `python -m tests.fuzz --help`."""

from __future__ import annotations

import argparse
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.fuzz import corpus, running
from tests.fuzz.readers import READERS, Reader
from tests.fuzz.running import Figures

_SHARES = {"configs": 0.15, "command lines": 0.85}
"""Of the inputs that are no files: a config takes six times as long as a command line, and a fifth of these compose."""


def main() -> int:
    """Prints a line for each reader, and each input that went wrong with what makes it again."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Reads mutated files with every reader.")
    parser.add_argument(
        "--inputs",
        type=int,
        default=100_000,
        help="of the readers of files, and as many configs and command lines (default %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the mutations (default %(default)s)")
    parser.add_argument("--reader", choices=[reader.name for reader in READERS], help="only this one")
    parser.add_argument("--number", type=int, help="writes this input of --reader into the folder --out")
    parser.add_argument("--out", type=Path, default=Path("fuzzed"), help="see --number (default %(default)s)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="at a time (default %(default)s)")
    options = parser.parse_args()
    readers = [reader for reader in READERS if options.reader in (None, reader.name)]
    if options.number is not None:
        data, _ = running.made(readers[0], readers[0].corpus(), options.seed, options.number)
        options.out.mkdir(exist_ok=True)
        print(corpus.written(data, options.out))
        return 0
    of_files = sum(reader.mutated is None for reader in readers)
    work = []
    for reader in readers:
        if reader.mutated is None:
            work.append((reader, range(-(-options.inputs // of_files))))
        else:  # these take longest, so that all processes share each
            inputs = round(options.inputs * _SHARES[reader.name])
            work += [(reader, range(first, inputs, options.processes)) for first in range(options.processes)]
    print(f"{'reader':24}{'inputs':>8}{'refused':>9}{'accepted':>9}{'worst s':>9}{'worst MB':>9}{'faults':>8}")
    total = Figures()
    with ThreadPoolExecutor(options.processes) as pool:
        done = pool.map(lambda one: _figures(*one, options.seed), work)
        for (reader, _), figures in zip(work, done, strict=True):
            print(_line(reader.name, figures), flush=True)
            for fault in figures.faults[:20]:
                print(f"    --seed {options.seed} --reader '{reader.name}' --number {fault.number}: {fault.fault}")
            _join(total, figures)
    print(_line("all", total))
    return 1 if total.faults else 0


def _figures(reader: Reader, numbers: range, seed: int) -> Figures:
    found = Figures()
    for outcome in running.outcomes(reader, numbers, seed):
        found.add(outcome)
    return found


def _join(total: Figures, figures: Figures) -> None:
    total.inputs += figures.inputs
    total.refused += figures.refused
    total.seconds = max(total.seconds, figures.seconds)
    total.megabytes = max(total.megabytes, figures.megabytes)
    total.faults += figures.faults


def _line(name: str, of: Figures) -> str:
    accepted = of.inputs - of.refused - sum(bool(fault.other) for fault in of.faults)
    return f"{name:24}{of.inputs:8,}{of.refused:9,}{accepted:9,}{of.seconds:9.2f}{of.megabytes:9.0f}{len(of.faults):8,}"


if __name__ == "__main__":
    sys.exit(main())
