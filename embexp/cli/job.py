"""The process of one job of a sweep: `python -P -m embexp.cli.job SWEEP NUMBER`."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> int:
    """Runs the job as the sweep's ledger has planned it; the output goes to the job's run.log."""
    from embexp.sweeps import jobs, server
    from embexp.sweeps.ledger import Ledger

    server.become_job(os.getppid())
    sweep, number = Path(sys.argv[1]), int(sys.argv[2])
    with Ledger(sweep) as ledger:
        job = ledger.job(number)
    return jobs.execute(sweep, job)


if __name__ == "__main__":
    sys.exit(main())
