"""`embexp continue`: a new run that goes on from a finished one, on other data."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from embexp.cli import commands, workers
from embexp.cli.arguments import WHICH_RUN, Parser
from embexp.cli.commands import DONE, exit_status
from embexp.cli.commands.run import resumed, run_with_log
from embexp.errors import ConfigError, WorkerLostError
from embexp.system import environment
from embexp.system.printable import print

HELP = """\
usage: embexp continue RUN --data FILE… [OVERRIDES] [--plan] [--allow-code MODULE:FUNCTION]

Starts a new run where a finished run, its parent, ended, on new data with the same columns, such as today's. Tables
with their slots, the dense part and its optimizer come from the parent. Everything that the parent's data decided stays
the same: which row belongs to which token, OOV and hash rows, class names, fitted transforms, and bucket bounds. Rows
of new tokens are appended, and no row is dropped unless you set parent.gone. The parent is not changed.

The new data is split like the parent's (data.split). The parent is also evaluated on the new splits, so the results
show what the training added.

    --data FILE…                     Sets the new data: files, folders or patterns, as for data.path.
    --plan                           Reads the data and shows what the run would do.
    --allow-code MODULE:FUNCTION     Allows code that the parent names, such as your own model. You can repeat it.

overrides
    train.epochs=1                   Changes the length of the training. You can override every setting of the parent.
    freeze=old_rows                  Chooses another file of a group. With this one, only new rows are trained.
    parent.gone='{after: 7}'         Drops rows of tokens that have not occurred in seven runs in a row.
    parent.classes=extend            Adds classes that the parent does not have, and extends the last layer.
    parent.schedules=continue        Continues learning-rate schedules where the parent ended.
    hydra.run.dir=DIR                Sets the directory of the run.

    embexp continue outputs/2026-01-31/12-00-00 --data today.csv
    embexp continue monday --data tuesday.parquet train.epochs=1 hydra.run.dir=tuesday

The exit status is that of `embexp run`.
"""


def main(arguments: Sequence[str]) -> int:
    """Runs the command."""
    parser = Parser.of_run("continue", HELP)
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--data", nargs="+", action="extend", default=[])
    parser.switches("--plan")
    options = parser.parse(arguments)
    parent = Path(options.directory)
    if "=" in options.directory and not parent.exists():
        raise parser.incomplete(WHICH_RUN)
    data = [each for each in options.data if not _is_override(each)]
    texts = [*options.overrides, *(each for each in options.data if _is_override(each))]
    from embexp.config import composition, continuing, hydra_job
    from embexp.config.named_code import Permission
    from embexp.records import outputs
    from embexp.records.folder import named_functions
    from embexp.specs.running import Existing

    recorded = continuing.recorded_parent(parent, options.allow_code)
    own = [text for text in texts if not text.lstrip("+~").startswith("hydra.")]
    loader = composition.loader(permission=Permission(frozenset(options.allow_code)))
    spec = continuing.continued(recorded, parent, data, own, loader)
    environment.choose_kernels(portable=spec.strategy.portable)
    environment.begin_collecting()
    if options.plan:
        from embexp.cli import run_plan
        from embexp.system import terminal

        run_plan.show(spec, terminal.console(), scan=True, trace=False, timed=False)
        return DONE
    composed = composition.compose_config(loader, [text for text in texts if text not in own])
    if composed.faults:
        raise ConfigError(composed.faults)
    directory = hydra_job.run_directory(composed.config)
    existing = Existing.NUMBER if hydra_job.is_dated(composed.config) else spec.output.existing
    if workers.is_led(spec.strategy):
        return workers.follow(spec, directory if existing is Existing.CONTINUE else None)
    try:
        with (
            workers.telling(spec.strategy),
            outputs.opened_directory(directory, spec, existing, warn=commands.warn) as found,
        ):
            print(f"{spec.name} in {found.path}{found.why}, from {options.directory}", flush=True)
            return exit_status((resumed if found.continues else run_with_log)(spec, found.path))
    except WorkerLostError as error:
        return workers.restart(error, spec.strategy, found.path, named_functions(spec))


def _is_override(text: str) -> bool:
    """Whether a word behind --data is an override: it sets something, and no file has its name."""
    return "=" in text and not os.path.exists(text)
