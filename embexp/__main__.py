"""`python -m embexp` is `embexp run`; `embexp` alone shows the help."""

from __future__ import annotations

import sys

from embexp.cli.commands import process as main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["run"]))
