"""Runs every benchmark in this folder (each module that defines `main(argv) -> int`), in alphabetical order."""

from __future__ import annotations

import importlib
import pkgutil
import sys

import bench


def main(argv: list[str]) -> int:
    """Passes `argv` to each benchmark, and returns the largest exit status."""
    status = 0
    for module in sorted(found.name for found in pkgutil.iter_modules(bench.__path__) if found.name != "__main__"):
        run = getattr(importlib.import_module(f"bench.{module}"), "main", None)
        if run is not None:
            print(f"\n=== bench.{module}", flush=True)
            status = max(status, run(argv))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
