"""`summary.json`: what a run came to. Its keys are a contract; more may be added."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from embexp.data.scan import Scan
from embexp.freezing import drift
from embexp.freezing.policies import TablePolicy
from embexp.freezing.watching import Watch
from embexp.pretrained.tables import Pretrained, PretrainedTable
from embexp.runtimes.execution import Execution
from embexp.specs import notes
from embexp.specs.run import RunSpec
from embexp.specs.running import RuntimeKind
from embexp.specs.strategies import TPUSimulator
from embexp.system.memory import PeakMemory
from embexp.tables import optimizers
from embexp.training import metrics
from embexp.training.loop import Outcome


def summarise(
    spec: RunSpec,
    scan: Scan,
    classes: Sequence[str],
    given: Pretrained,
    policies: Mapping[str, TablePolicy],
    watch: Watch,
    execution: Execution,
    outcome: Outcome,
    final: Mapping[str, Mapping[str, float]],
    *,
    run_id: str,
    runtime: RuntimeKind,
    memory: PeakMemory,
) -> dict[str, Any]:
    """The content of summary.json.

    Args:
        spec: what the user asked for.
        scan: what the data held.
        classes: names of classes, of task classification.
        given: what files had for which table.
        policies: which rows of each table moved.
        watch: what became of the rows.
        execution: the tables at the end.
        outcome: how the training went.
        final: metrics by part of the data.
        run_id: see `identity`.
        runtime: that executed the run.
        memory: what was taken up to the end of the first step.
    """
    tables = execution.tables
    return {
        "status": outcome.status,
        "name": spec.name,
        "task": spec.task.value,
        "classes": list(classes),
        "run_id": run_id,
        "steps": outcome.steps,
        "batch_size": spec.train.batch_size,
        "best_step": outcome.best_step,
        "metrics": final,
        "truth": dict(scan.truth),
        "examples": {part: len(rows) for part, rows in scan.splits.items()},
        "throughput": {
            "examples_per_second": outcome.examples_per_second,
            "step_ms_median": outcome.step_ms_median,
        },
        "strategy": spec.strategy.kind,
        "simulated": isinstance(spec.strategy, TPUSimulator),
        "runtime": runtime.value,
        "initialization": {
            "method": spec.init.kind,
            "seconds": execution.seconds(),
            "peak_anonymous_bytes": memory.added,
            "graph_def_bytes": execution.graph_def_bytes(),
            "total_graph_def_bytes": execution.runtime.graph_def_bytes,
            "tables": {
                name: {
                    "method": spec.init_of(name).kind,
                    **_provenance(given.tables.get(name)),
                    "bytes": 4 * table.rows * table.dim,
                }
                for name, table in tables.items()
            },
        },
        "freeze": {
            name: {
                "frozen_rows": policies[name].frozen_rows,
                "trainable_rows": table.rows - policies[name].frozen_rows,
                "trainable_rows_touched": 0 if table.frozen else table.touched_rows(),
                **watch.freeze_json(name),
                "rules": policies[name].as_json(),
            }
            for name, table in tables.items()
        },
        "tables": {
            name: {
                "vocabulary_size": table.rows,
                "dim": table.dim,
                "storage": table.storage,
                "digest": table.digest() if spec.output.digests else None,
            }
            for name, table in tables.items()
        },
        "drift": drift.as_json(watch.drifts),
        "warnings": [
            *warnings(spec, scan, tables),
            *watch.warnings,
            *_misfits(spec, policies),
            *_unfit(given),
            *_notes(given),
            *execution.notes,
        ],
    }


def _provenance(given: PretrainedTable | None) -> dict[str, Any]:
    """Where a table's first values came from, row by row; a table without a file misses nothing."""
    if given is None:
        return {"rows_pretrained": 0, "rows_missing": 0, "rows_special": 0, "pretrained": None}
    found = given.coverage
    return {
        "rows_pretrained": found.pretrained,
        "rows_missing": found.missing,
        "rows_special": found.special,
        "pretrained": {"path": given.setting.path, "digest": given.source.digest},
    }


def _misfits(spec: RunSpec, policies: Mapping[str, TablePolicy]) -> list[str]:
    """Rules of a table's own that name fewer rows than they say."""
    own = [name for name, table in spec.tables.items() if table.freeze is not None]
    return [f"tables.{name}.freeze: {each.misfit}" for name in own for each in policies[name].taken if each.misfit]


def _notes(given: Pretrained) -> list[str]:
    """What earlier checkpoints did not give."""
    return [note for table in given.tables.values() for note in table.notes]


def _unfit(given: Pretrained) -> list[str]:
    names = ", ".join(given.unfit)
    return [f"pretrained has no effect on {names}; coverage.json says why"] if names else []


def warnings(spec: RunSpec, scan: Scan, tables: Mapping[str, Any]) -> list[str]:
    """What the user should know about a run that did not fail."""
    found = notes.doubtful(spec)
    for part in ("validation", "test"):
        rows = scan.splits[part]
        if len(rows) and scan.examples.labels is not None:
            labels = scan.examples.labels[rows]
            found += [f"{part}: no {name}, as {why}" for name, why in metrics.undefined(spec.task, labels).items()]
    found += [
        f"tables.{name}: optimizer adam with lazy_adam=false moves every row at every step: O(vocabulary)"
        for name in tables
        if optimizers.moves_every_row(spec.optimizer_of(name))
    ]
    if isinstance(spec.strategy, TPUSimulator):
        found.append(
            "strategy tpu_simulator is a simulation: this is what a TPU learns, computed by this machine's processor;"
            " throughput and step time are not those of a TPU"
        )
    return found
