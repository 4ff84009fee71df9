"""The runs of a study, one after the other, each in its own directory, and what is made of them at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from rich.text import Text

from embexp.errors import RunError
from embexp.records import inventory
from embexp.records.folder import RunFolder, check_code, json_object, named_functions
from embexp.runs import experiment
from embexp.runs import run as single
from embexp.runs.prepare import check_recorded_data
from embexp.runs.run import Observer, RunResult
from embexp.specs.run import RunSpec
from embexp.system import files
from embexp.training.listeners import Listener
from embexp.training.loop import Replay

_SECONDS = "seconds.json"
"""How long each run took that has ended, for a study that is resumed."""
STAGES = ("setup", "training", "finishing")

Summarise = Callable[[Mapping[str, Mapping[str, Any]], bool], Mapping[str, Any]]
"""From the summaries of the runs so far, with `seconds` of `Clock.seconds`, and whether all have ended, to that of the
study."""


def run(spec: RunSpec, directory: Path, observer: Observer, summarise: Summarise) -> RunResult:
    """Does the runs of a study, until one is interrupted, and writes the study's summary.

    Args:
        directory: of the study; it exists. Runs that an earlier process has begun there are completed.
        summarise: may write files of the study, too.

    Raises:
        DataError: a file, or the data of a run that has ended, was changed since the study was interrupted.
        RunError: a run fails for a reason in the data, a file or the machine.
    """
    folder, noted = RunFolder(directory), directory / _SECONDS
    inventory.check_whole(directory)
    inventory.unseal(directory)
    folder.write_spec(spec)
    runs: dict[str, dict[str, Any]] = {}
    specs, ended = spec.study.runs(spec, directory), True
    for number, (name, run_spec) in enumerate(specs.items(), 1):
        observer.announce(f"{number} of {len(specs)}, {name}: {spec.study.descriptions[name]}")
        seconds, stage, clock = json_object(noted), RunFolder(directory / name), Clock()
        if name in seconds and stage.summary.exists():
            if stage.manifest.exists():  # what follows is compared with it
                check_recorded_data(stage, run_spec)
            runs[name] = {**stage.read_summary(), "seconds": seconds[name]}
            continue
        timed = Observer(lambda clock=clock: [clock, *observer.listeners()], observer.progress)  # type: ignore[misc]
        files.make_directories(stage.path)
        with stage.writing():
            files.remove_leftovers(stage.path)
            if stage.spec.exists():  # that the study's spec may name its code has been checked
                result = experiment.resume_run(stage.path, run_spec, None, named_functions(run_spec), timed)
            else:
                result = single.run(run_spec, stage.path, timed)
            runs[name] = {**result.summary, "seconds": clock.seconds()}
            if result.status == "interrupted":
                ended = False
                break
            folder.write_json(noted, seconds | {name: clock.seconds()})
    content = summarise(runs, ended)
    folder.write_json(folder.summary, content)
    observer.ending(content, directory)
    return RunResult(directory, content, inventory.seal(directory))


Begin = Callable[[RunSpec, Path, Observer, Replay | None], RunResult]
Resume = Callable[[Path, RunSpec, RunSpec | None, Collection[str], Observer], RunResult]


def headline(summary: Mapping[str, Any]) -> Text:
    """The name and the status of a study, green if it is completed."""
    style = "bold green" if summary["status"] == "completed" else "bold yellow"
    return Text(f"{summary['name']}: {summary['status']}", style)


def resuming(begin: Begin) -> Resume:
    """What completes the runs of a study that `begin` begins; see `experiment.resume`."""

    def resume(
        directory: Path, spec: RunSpec, changed: RunSpec | None, allow_code: Collection[str], observer: Observer
    ) -> RunResult:
        if changed is not None:
            raise RunError(f"{directory} is the directory of a study, whose settings can't change when it is resumed")
        folder = RunFolder(directory)
        check_code(named_functions(spec), allow_code, record=folder.spec)
        if inventory.digest_of(directory) is not None:
            if lost := inventory.lost_results(directory):
                observer.say(f"missing: {', '.join(lost)}; what is missing is done again")
            elif (summary := folder.read_summary())["status"] != "interrupted":
                inventory.check_whole(directory)
                experiment.say_if_replaced(directory, observer.say)
                observer.say(f"all runs of the study have ended ({summary['status']}); nothing is left to do")
                return RunResult(directory, summary)
        return begin(spec, directory, observer, None)

    return resume


class Clock(Listener):
    """Measures how long a run takes before, during and after training; starts when created."""

    def __init__(self) -> None:
        self._times = [time.perf_counter()]

    def started(self, total_steps: int, examples_per_epoch: int) -> None:
        """Training begins."""
        self._times.append(time.perf_counter())

    def ended(self, status: str) -> None:
        """Training has ended."""
        self._times.append(time.perf_counter())

    def seconds(self) -> dict[str, float | None]:
        """Seconds until now, by stage.

        Returns:
            setup: reading the data, creating and filling the tables; training: steps and evaluations; finishing: the
            checkpoint, the last evaluations, digests and plots; total. All None if an earlier process has trained: it
            was killed before it could note them.
        """
        times = [*self._times, time.perf_counter()]
        if len(times) <= len(STAGES):
            return dict.fromkeys((*STAGES, "total"))
        passed = {name: after - before for name, before, after in zip(STAGES, times, times[1:], strict=False)}
        return {name: round(seconds, 3) for name, seconds in (passed | {"total": times[-1] - times[0]}).items()}
