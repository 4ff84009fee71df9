"""Another worker than 0 of `strategy=multi_worker`: it prepares the run, and then does what worker 0 says."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

from embexp.errors import EmbexpError
from embexp.specs.run import RunSpec
from embexp.system import environment, machine
from embexp.system.printable import print


def follow(spec: RunSpec) -> int:
    """Takes part in a run of which another process is worker 0, until that ends it; returns the exit status.

    Raises:
        RunError: the run fails, or worker 0 is gone.
    """
    from embexp.runs import run as single
    from embexp.runs.evaluations import evaluator_of
    from embexp.runs.execute import agreed, build, initial_rows, training_batches
    from embexp.runs.prepare import prepare, reading_sources
    from embexp.strategies.cluster.multi_worker import MultiWorker

    single.prepare_operations(spec.strategy, print)
    strategy = single.prepare_machine(spec.strategy)
    assert isinstance(strategy, MultiWorker)
    with reading_sources(spec.pretrained, spec.tables, spec.restore):
        prepared = prepare(spec, reading=strategy.reading)
        with strategy.active(partial(agreed, prepared, Path.cwd(), first_step=0)):
            batches = training_batches(prepared, strategy, int(strategy.told["first_step"]))
            # Worker 0 restores what is to be restored, and sends it.
            fresh = replace(prepared, restored=None, dense=None)
            execution = build(fresh, initial_rows(prepared.tables), batches.element_spec, strategy, Path("unused"))
            predicted = evaluator_of(spec).batch_spec(prepared.data)
            return strategy.serve(execution.runtime, iter(batches), predicted)


def main(folder: Path) -> int:
    """The process of a worker that worker 0 has started, in the folder of its run; returns the exit status."""
    from embexp.records.folder import RunFolder

    machine.die_with_parent(machine.parent())
    try:
        spec = RunFolder(folder).recorded_spec()
        environment.load_tensorflow(**spec.strategy.kernels)
        return follow(spec)
    except EmbexpError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
