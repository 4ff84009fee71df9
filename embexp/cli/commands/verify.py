"""`embexp verify`: whether the record of a run is intact, and whether the run gives the same bits again."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from embexp.cli.arguments import Parser
from embexp.cli.commands import DONE, FAILED
from embexp.system.printable import print

if TYPE_CHECKING:
    from embexp.records.differences import Difference
    from embexp.records.folder import RunFolder
    from embexp.runs.verification import Record, Rerun, Verification

HELP = """\
usage: embexp verify DIR [--chain] [--allow-code MODULE:FUNCTION] [--keep DIR]

Checks the record of a finished run, or of a study, and repeats the run. Prints two results:

    record      "intact" if the files match the digests in inventory.json, otherwise the files that were changed,
                removed or added. An added file is no failure, and neither is a missing inventory.json.
    repeated    "identical" if the run gives the same results again, otherwise the first step and quantity that differ.
                The run is repeated from its spec.json in a temporary directory. Every line of metrics.jsonl, every
                number in summary.json except times, and every checkpoint is compared byte for byte.

If the run kept its checkpoints (checkpoint.keep=null), they narrow down where a difference begins. Differences in the
circumstances are listed, too: package versions, threads, seed, model code, data, processor, environment variables. An
interrupted run is repeated up to the step at which it was interrupted.

If the run continues another one, its parent is checked, too: it must still have the same inventory.json.

    --chain                        Also checks and repeats all runs that this one continues, oldest first.
    --allow-code MODULE:FUNCTION   Allows code that the recorded spec names. You can repeat it.
    --keep DIR                     Keeps the new run in DIR, for example for `embexp diff`. DIR must not exist.

    embexp verify outputs/2026-01-31/12-00-00

The exit status is 0 if the record is intact and the results are identical, 1 if not, and 2 if the command line is
invalid.
"""

_MOST = 20
"""Differences that are printed of each kind."""


def main(arguments: Sequence[str]) -> int:
    """Runs the command."""
    parser = Parser.of_run("verify", HELP)
    parser.values("--keep")
    parser.switches("--chain")
    options = parser.parse(arguments)
    keep = None if options.keep is None else Path(options.keep)
    if options.chain and keep is not None:
        raise parser.incomplete("--keep keeps one run, and --chain repeats several: give one of the two")
    chain, linked = _chain(Path(options.directory))
    statuses = [_verify(directory, options.allow_code, keep) for directory in (chain if options.chain else chain[-1:])]
    return DONE if linked and not any(statuses) else FAILED


def _chain(directory: Path) -> tuple[list[Path], bool]:
    """The runs that a run went on from, the first one first, and itself; and whether all are those that they were."""
    from embexp.records.folder import RunFolder
    from embexp.reports.chain import chain_of

    if not RunFolder(directory).summary.is_file():
        return [directory], True
    found, whole = chain_of(directory), True
    for run in reversed(found):
        if (parent := RunFolder(run).read_summary().get("parent")) is not None:
            fault = _fault_of_parent(Path(parent["path"]), parent["inventory"])
            whole = whole and not fault
            told = f"{fault}: {run} continues run {parent['run_id'][:12]}" if fault else "is unchanged"
            print(f"parent: {parent['path']} {told}", flush=True)
    return found, whole


def _fault_of_parent(directory: Path, noted: str | None) -> str:
    """What is wrong with a run that another one went on from; "": nothing.

    Args:
        noted: SHA-256 of its inventory at that time.
    """
    from embexp.records import inventory
    from embexp.runs import verification

    if not directory.is_dir():
        return "is gone"
    if inventory.digest_of(directory) != noted:
        return "is now a different run"
    return "" if verification.record_of(directory).intact else "has files that were changed"


def _verify(directory: Path, allow_code: Sequence[str], keep: Path | None) -> int:
    """Checks and repeats one run, and returns the exit status."""
    from embexp.cli.commands.run import check_recorded
    from embexp.records.folder import RunFolder
    from embexp.records.manifest import choose_kernels
    from embexp.runs import verification

    choose_kernels(RunFolder(directory))

    reported: list[Difference] = []
    began = time.monotonic()

    def again(rerun: Rerun, place: Path) -> None:
        check_recorded(rerun.spec, allow_code)
        _run(rerun, RunFolder(directory), RunFolder(place), reported)

    def say(record: Record) -> None:
        print(record, flush=True)

    found = verification.verify(directory, allow_code=allow_code, keep=keep, again=again, say=say)
    _report_circumstances([circumstance for circumstance in found.circumstances if circumstance not in reported])
    _show(found, time.monotonic() - began)
    return DONE if found.intact and found.identical else FAILED


def _run(rerun: Rerun, folder: RunFolder, place: RunFolder, reported: list[Difference]) -> None:
    """Runs a recorded spec in this process, with progress on the terminal."""
    from embexp.strategies import tpu_address

    tpu_address.check_strategy(rerun.spec.strategy)
    rerun.load_tensorflow()
    from embexp.cli.stages import Stages
    from embexp.runs import experiment
    from embexp.runs.run import Observer
    from embexp.system.terminal import SafeConsole
    from embexp.training.listeners import Listener
    from embexp.training.progress import progress

    class Notices(Listener):
        """Reports what differs in the circumstances as soon as they are recorded, which is before the first step."""

        def started(self, total_steps: int, examples_per_epoch: int) -> None:
            from embexp.runs import verification

            if folder.manifest.exists() and place.manifest.exists():  # a study has none
                reported.extend(verification.circumstances(folder, place))
                stages.close()
                _report_circumstances(reported)

    terminal = SafeConsole()
    stages = Stages(terminal)

    def listeners() -> list[Listener]:
        return [stages, Notices(), progress(terminal)]

    try:
        experiment.run(rerun.spec, place.path, Observer(listeners, stages), replay=rerun.replay)
    finally:
        stages.close()


def _report_circumstances(found: Sequence[Difference]) -> None:
    from embexp.runs.verification import line

    for each in found[:_MOST]:
        print(f"note: {line(each)}", flush=True)
    if len(found) > _MOST:
        print(f"note: {len(found) - _MOST} more circumstances differ", flush=True)


def _show(found: Verification, seconds: float) -> None:
    from embexp.runs.verification import line
    from embexp.system import terminal

    where = "" if found.kept is None else f"; the new run is in {found.kept}"
    print(f"{found.directory}: repeated from its record in {terminal.duration(seconds)}{where}")
    print(f"repeated: {found.repeated}")
    if found.identical:
        return
    for result in found.results[1:_MOST]:
        print(f"  {line(result)}")
    if len(found.results) > _MOST:
        print(f"  {len(found.results) - _MOST} more differences")
    if not found.circumstances:
        print("  no known difference in the circumstances")
