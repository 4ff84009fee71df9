"""Runs a recorded spec again, in this process or in one of its own: `python -m embexp.studies.rerun DIRECTORY`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embexp.checkpoints import series
from embexp.errors import EmbexpError, RunError
from embexp.records import allowed_code
from embexp.records.folder import RunFolder
from embexp.records.identity import DECIDES_NOTHING
from embexp.specs.run import RunSpec
from embexp.specs.running import OnError, Save
from embexp.specs.studies import NoStudy
from embexp.specs.tracking import NoTracking
from embexp.system import environment
from embexp.system.printable import print
from embexp.training.loop import Replay

_REFUSED = 3
"""Exit status of the process if the run fails for a reason that its last lines tell."""


@dataclass(frozen=True)
class Rerun:
    """A recorded run or study that is to be run again.

    Attributes:
        spec: of the run, without output that is not compared.
        replay: how it follows the recorded run; None for a study.
    """

    spec: RunSpec
    replay: Replay | None = None


Again = Callable[[Rerun, Path], object]
"""Runs a recorded spec again in an empty directory.

Raises:
    RunError: it fails.
"""


def planned(folder: RunFolder, spec: RunSpec, summary: Mapping[str, Any]) -> Rerun:
    """How a run is run again, so that it can be compared with the recorded one.

    It saves checkpoints after the steps of those that the record has, and ends where the recorded one was interrupted.
    """
    # What changes no result is left at its default, but for what the comparison needs.
    others = set(DECIDES_NOTHING) - {"name", "output", "checkpoint"}
    spec = spec.model_copy(update={name: RunSpec.model_fields[name].default for name in others})
    output = spec.output.model_copy(update={"tensorboard": False, "plots": False})
    spec = spec.model_copy(update={"tracking": NoTracking()})
    if not isinstance(spec.study, NoStudy):
        return Rerun(spec.model_copy(update={"output": output}))
    steps = [int(path.name.removeprefix("step_")) for path in series.step_directories(folder.checkpoints)]
    replay = Replay(steps, int(summary["steps"]) if summary["status"] == "interrupted" else None)
    at_end = Save.END if folder.final_checkpoint.is_dir() else Save.NEVER
    settings = {
        "save": Save.TRAINING if replay.stops else at_end,
        "every_steps": None,
        "every_minutes": None,
        "keep": None,
        "incremental": None,
        "on_error": OnError.STOP,
    }
    checkpoint = spec.checkpoint.model_copy(update=settings)
    return Rerun(spec.model_copy(update={"output": output, "checkpoint": checkpoint}), replay)


def in_own_process(rerun: Rerun, directory: Path) -> None:
    """Runs a recorded spec in a new process, as numbers of threads and devices can't change in this one.

    Args:
        directory: an existing, empty directory.

    Raises:
        RunError: it fails.
    """
    request = {"spec": rerun.spec.model_dump(mode="json")}
    if rerun.replay is not None:
        request["replay"] = {"save_at": list(rerun.replay.save_at), "stop_after": rerun.replay.stop_after}
    variables = dict(os.environ)
    if allowed_code.named(rerun.spec):  # which this process may find by a path that was added to sys.path
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    ended = subprocess.run(
        [sys.executable, "-P", "-m", "embexp.studies.rerun", str(directory)],
        input=json.dumps(request),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        env=variables,
    )
    if ended.returncode == _REFUSED:
        raise RunError(ended.stderr.strip())
    if ended.returncode:
        last = "\n".join(ended.stderr.strip().splitlines()[-5:])
        raise RunError(f"the process that was to run it again ended with exit status {ended.returncode}:\n{last}")


def main() -> int:
    """Runs the spec on standard input in the directory of the first argument."""
    request = json.load(sys.stdin)
    environment.load_tensorflow()
    from embexp.studies import run as studies

    replay = Replay(**request["replay"]) if "replay" in request else None
    try:
        studies.run(RunSpec.model_validate(request["spec"]), Path(sys.argv[1]), replay=replay)
    except EmbexpError as error:
        print(error, file=sys.stderr)
        return _REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(main())
