"""`python -m embexp` is `embexp run`; `embexp` alone shows the help."""

from __future__ import annotations

import os
import sys

if __name__ == "__main__" and sys.path[:1] == [os.getcwd()]:
    # `python -m` puts the working directory first. Last, no file there hides a module, and all are still found.
    sys.path.append(sys.path.pop(0))

from embexp.cli.commands import process as main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["run"]))
