"""`make torture`: runs that are killed, lose power or a worker, or share a folder: `python -m tests.torture --help`."""

from __future__ import annotations

import argparse
import collections
import contextlib
import os
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported

from tests.torture import kills, pairs, power, shim, signals, workers
from tests.torture.kinds import NAMES, Commands

_HARNESSES = {"kills": kills, "power": power, "pairs": pairs, "signals": signals, "workers": workers}


def main() -> int:
    """Prints each case that went wrong with what makes it again, and counts."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("harness", choices=_HARNESSES)
    parser.add_argument("--number", type=int, default=100, help="of cases (default %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the cases (default %(default)s)")
    parser.add_argument("--kind", choices=NAMES, action="append", help="of run; may be repeated (default: all)")
    parser.add_argument("--case", type=int, help="only the case of this number, with the same --seed and --kind")
    parser.add_argument("--keep", type=Path, help="folder for what went wrong (default: a temporary one)")
    options = parser.parse_args()
    harness, kinds = _HARNESSES[options.harness], options.kind or list(NAMES)
    folder = options.keep or Path(tempfile.mkdtemp(prefix="torture-"))
    folder.mkdir(parents=True, exist_ok=True)
    counts: collections.Counter[str] = collections.Counter()
    begin, wrong = time.monotonic(), 0
    with contextlib.ExitStack() as opened:
        of_commands, shared = (Path(opened.enter_context(tempfile.TemporaryDirectory())) for _ in range(2))
        commands = Commands(opened.enter_context(shim.commands(of_commands)), shared)
        numbers = range(options.number) if options.case is None else (options.case,)
        # Ctrl-C ends it early, with the counts so far.
        opened.enter_context(contextlib.suppress(KeyboardInterrupt))
        for case in harness.cases(kills.Torture(commands, folder), kinds, options.seed, numbers):
            counts[case.outcome] += 1
            wrong += bool(case.faults)
            if case.faults or options.case is not None:
                print("\n    ".join([case.label, case.what, case.outcome, *case.faults[:8]]), flush=True)
    print(f"{sum(counts.values())} cases in {time.monotonic() - begin:.0f} s, {wrong} with faults")
    for name, count in counts.most_common():
        print(f"{count:6}  {name}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
