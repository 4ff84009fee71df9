"""Runs every benchmark of this folder, in alphabetical order: each module that defines `main(argv) -> int`."""

from __future__ import annotations

import importlib
import pkgutil
import sys

import bench


def main(argv: list[str]) -> int:
    """Passes `argv` on to each; the exit status is the worst of theirs."""
    status = 0
    for module in sorted(found.name for found in pkgutil.iter_modules(bench.__path__) if found.name != "__main__"):
        run = getattr(importlib.import_module(f"bench.{module}"), "main", None)
        if run is not None:
            print(f"\n=== bench.{module}", flush=True)
            status = max(status, run(argv))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
