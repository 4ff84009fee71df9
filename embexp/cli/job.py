"""The process of one job: `python -m embexp.cli.job DIRECTORY`, with its spec as JSON on standard input."""

from __future__ import annotations

import sys
from pathlib import Path

from embexp.system import environment


def main() -> int:
    """Runs the spec in the directory; the output goes to the job's run.log."""
    spec_json, directory = sys.stdin.buffer.read(), Path(sys.argv[1])
    environment.load_tensorflow()
    from rich.console import Console

    from embexp.errors import EmbexpError
    from embexp.specs.run import RunSpec
    from embexp.studies import report
    from embexp.studies import run as studies
    from embexp.training.progress import ProgressLines

    console = Console(width=160)
    try:
        result = studies.run(
            RunSpec.model_validate_json(spec_json),
            directory,
            listeners=lambda: [ProgressLines(console)],
            announce=lambda heading: console.print(heading, markup=False, highlight=False, soft_wrap=True),
        )
    except EmbexpError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    console.print(report.terminal_report(result.summary, directory))
    return 0


if __name__ == "__main__":
    sys.exit(main())
