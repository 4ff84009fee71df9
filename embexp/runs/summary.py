"""The results of a run: `summary.json`, whose keys are a contract, its plots and its files for the projector."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from embexp.checkpoints.account import Account
from embexp.data.vocabularies.vocabulary import TokenVocabulary, Vocabulary
from embexp.errors import DivergedError
from embexp.records.folder import RunFolder
from embexp.runs.evaluations import Evaluated
from embexp.runs.execute import Started, label_deviation
from embexp.runs.prepare import Prepared
from embexp.specs import claims, tasks
from embexp.specs.base import Note, merged, summarize_names
from embexp.specs.tasks import CANDIDATES
from embexp.strategies.strategy import Strategy
from embexp.system.parallel import Progress, part, quiet
from embexp.tables.variables import ReadableTable
from embexp.training.freezing import watching
from embexp.training.loop import Outcome
from embexp.vectors.pretrained.tables import PretrainedTable

if TYPE_CHECKING:
    from embexp.runs.continued import Before

Baselines = Mapping[str, Mapping[str, Mapping[str, float]]]
"""Metrics by the name of a baseline and by split."""
_MOST_VALUES = 1_000_000
"""Limit for all tables together: some 10 MB of text, written in about a second, however large the tables are."""


@dataclass(frozen=True)
class Ended:
    """A run that has been trained and evaluated, as those see it who add to its summary.

    Attributes:
        resumed_at: the steps at which its training was resumed.
        tests: of the vectors of its tables, by kind.
        unbuilt: why there are fused operations that the training could not use; None: it could use all.
        before: the parent on the new data; None: the run has no parent.
    """

    prepared: Prepared
    started: Started
    outcome: Outcome
    evaluated: Evaluated
    strategy: Strategy
    resumed_at: Sequence[int]
    tests: Mapping[str, Sequence[Any]]
    unbuilt: str | None
    before: Before | None = None


def _fits(ended: Ended, progress: Progress) -> Mapping[str, Any]:
    fit = ended.evaluated.fit
    return {"baseline_fits": fit.facts, "warnings": fit.warnings}


def _vectors(ended: Ended, progress: Progress) -> Mapping[str, Any]:
    if not any(ended.tests.values()):
        return {}
    from embexp.runs import table_vectors

    vocabularies = ended.prepared.data.vocabularies
    tables = {name: (table, vocabularies[name]) for name, table in ended.started.execution.tables.items()}
    return {"vectors": table_vectors.evaluated(tables, ended.tests, progress)}


def _of_strategy(ended: Ended, progress: Progress) -> Mapping[str, Any]:
    return ended.strategy.facts()


def _fused_operations(ended: Ended, progress: Progress) -> Mapping[str, Any]:
    used = ended.started.execution.runtime.fused_operations
    return {"fused_operations": {"used": used, "missing": ended.unbuilt}}


def _parent(ended: Ended, progress: Progress) -> Mapping[str, Any]:
    if ended.before is None:
        return {}
    from embexp.runs import continued

    content = continued.as_json(ended.prepared, ended.before, ended.evaluated)
    spec = ended.prepared.spec
    metric = tasks.watched(spec.task, None, spec.task.cutoffs_of(spec), spec.further_metrics)
    worse = continued.warnings(content["differences"], metric, tasks.direction(metric, spec.further_metrics))
    return {"parent": content, "warnings": list(worse) if ended.outcome.status != "interrupted" else []}


def _resumptions(ended: Ended, progress: Progress) -> Mapping[str, Any]:
    return {"resumed_at": list(ended.resumed_at)} if ended.resumed_at else {}


def _claims(ended: Ended, progress: Progress) -> Mapping[str, Any]:
    expected = ended.prepared.spec.expect
    if not expected or ended.outcome.status == "interrupted":
        return {}
    return {"claims": [each.model_dump(mode="json") for each in claims.checked(expected, ended.evaluated.final)]}


_CONTRIBUTORS: Sequence[Callable[[Ended, Progress], Mapping[str, Any]]] = (
    _fits,
    _vectors,
    _of_strategy,
    _fused_operations,
    _resumptions,
    _parent,
    _claims,
)
"""Functions that add keys to a summary. Entries under `warnings` are appended to the others."""


def summarise(ended: Ended, progress: Progress = quiet) -> dict[str, Any]:
    """The content of summary.json."""
    found = _results(ended, progress)
    for contributor in _CONTRIBUTORS:
        more = dict(contributor(ended, progress))
        found["warnings"] += more.pop("warnings", ())
        found |= more
    return found


def _results(ended: Ended, progress: Progress) -> dict[str, Any]:
    """The part that every summary has: the end of the training, metrics, tables."""
    prepared, started, outcome, evaluated = ended.prepared, ended.started, ended.outcome, ended.evaluated
    final, baselines, details = evaluated.final, evaluated.baselines, evaluated.details
    spec, watch, tables = prepared.spec, started.watch, started.execution.tables
    known, unfit = describe(prepared, started), list(prepared.tables.pretrained.mismatches)
    evaluator = started.evaluator
    no_better = []
    if outcome.status != "interrupted":
        no_better = evaluator.warnings(prepared.data, final, baselines)
    frozen = {
        name: {
            **known["freeze"][name],
            "trainable_rows_touched": 0 if table.frozen else table.touched_rows(),
            **watch.freeze_json(name),
        }
        for name, table in tables.items()
    }
    found = _digests(tables, progress) if spec.output.digests else {}
    stored = {name: {**known["tables"][name], "digest": found.get(name)} for name in tables}
    return known | {
        "status": outcome.status,
        "stopped_by": outcome.stopped_by,
        "steps": outcome.steps,
        "best_step": outcome.best_step,
        "metrics": final,
        "baselines": baselines,
        "evaluation": details,
        **(
            {"environment": [each.described(name) for name, each in spec.environment.items()]}
            if spec.environment
            else {}
        ),
        "throughput": {
            "examples_per_second": outcome.examples_per_second,
            "step_ms_median": outcome.step_ms_median,
        },
        "freeze": frozen,
        "tables": stored,
        "drift": watching.as_json(watch.drifts),
        "movement": {name: movement.as_json() for name, movement in watch.movements.items()},
        "warnings": merged(
            [
                *prepared.warnings,
                *no_better,
                *watch.hardly_moved(
                    learned=outcome.status == "interrupted" or evaluator.learned(final, baselines),
                    loss_left=_loss_left(final, baselines),
                ),
                *(
                    Note(
                        f"tables.{name}",
                        "optimizer adam with lazy_adam=false updates every row at every step: O(vocabulary)",
                    )
                    for name in spec.tables
                    if spec.optimizer_of(name).moves_every_row
                ),
                *watch.warnings,
                *(
                    Note(f"tables.{name}.freeze", each.shortfall)  # for rules that cover fewer rows than they name
                    for name, table in spec.tables.items()
                    if table.freeze is not None
                    for each in prepared.tables.policies[name].taken
                    if each.shortfall
                ),
                *([f"pretrained has no effect on {summarize_names(unfit)}; see coverage.json"] if unfit else []),
                *prepared.notes,
                *started.execution.notes,
            ]
        ),
    }


def _digests(tables: Mapping[str, ReadableTable], progress: Progress) -> dict[str, str]:
    """The digest of each table."""
    found: dict[str, str] = {}
    done, total = 0, sum(table.rows * table.dim for table in tables.values())
    for name, table in tables.items():
        after = done + table.rows * table.dim
        found[name] = table.digest(progress=part(progress, done / total, after / total))
        done = after
    return found


def describe(prepared: Prepared, started: Started) -> dict[str, Any]:
    """The part of the summary that is known before the first step."""
    spec, scan, pretrained = prepared.spec, prepared.data.scan, prepared.tables.pretrained
    execution, policies = started.execution, prepared.tables.policies
    tables = execution.tables
    return {
        "status": "unfinished",
        "name": spec.name,
        "task": str(spec.task),
        "classes": list(prepared.data.classes),
        **({} if (deviation := label_deviation(prepared)) is None else {"label_deviation": deviation}),
        "columns": {
            name: "several" if name in scan.examples.lists else "one"
            for name in prepared.data.columns.id_columns
            if name != CANDIDATES
        },
        "run_id": prepared.run_id,
        "steps": 0,
        "batch_size": spec.train.batch_size,
        "best_step": None,
        "metrics": {},
        "truth": dict(scan.truth),
        "split": spec.data.described_split(),
        "seen_once": prepared.seen_once,
        "examples": {split: len(rows) for split, rows in scan.splits.items()},
        "overlap": {split: asdict(overlap) for split, overlap in scan.overlap.items()},
        "leaks": [asdict(leak) for leak in scan.leaks],
        "throughput": {},
        "strategy": spec.strategy.kind,
        "simulated": spec.strategy.simulated,
        "runtime": prepared.runtime.value,
        "restored": _restored(execution.restored),
        "initialization": {
            "method": spec.init.kind,
            "seconds": execution.seconds(),
            "peak_anonymous_bytes": started.memory.added,
            "graph_def_bytes": execution.graph_def_bytes(),
            "total_graph_def_bytes": execution.runtime.graph_def_bytes,
            "tables": {
                name: {
                    "method": spec.init_of(name).kind,
                    **_provenance(pretrained.tables.get(name)),
                    "bytes": spec.tables[name].row_bytes(table.dim) * table.rows,
                }
                for name, table in tables.items()
            },
        },
        "freeze": {
            name: {
                "frozen_rows": policies[name].frozen_rows,
                "trainable_rows": table.rows - policies[name].frozen_rows,
                "rules": policies[name].as_json(),
            }
            for name, table in tables.items()
        },
        "tables": {
            name: {
                "vocabulary_size": table.rows,
                "dim": table.dim,
                "storage": table.storage,
                **(
                    {"dtype": table.dtype().name, "slot_dtype": table.precision.slots.name}
                    if table.precision.narrow
                    else {}
                ),
                **({} if (reset := spec.tables[name].reset) is None else {"reset": reset}),
            }
            for name, table in tables.items()
        },
    }


def _restored(account: Account | None) -> dict[str, Any] | None:
    """The variables that were restored before the first step, by path, with shapes and types."""
    if account is None:
        return None
    return {
        "checkpoint": account.source,
        "restored": [str(value) for value in account.restored],
        "left_out": [str(value) for value in account.left_out],
    }


def _provenance(file: PretrainedTable | None) -> dict[str, Any]:
    """The number of pretrained rows of a table. A table without a file has no missing rows."""
    if file is None:
        return {"rows_pretrained": 0, "rows_missing": 0, "rows_special": 0, "rows_dropped": None, "pretrained": None}
    found = file.coverage
    return {
        "rows_pretrained": found.pretrained,
        "rows_missing": found.missing,
        "rows_special": found.special,
        "rows_dropped": file.dropped,
        "pretrained": {"path": file.setting.path, "digest": file.source.digest},
    }


def _loss_left(final: Mapping[str, Mapping[str, float]], baselines: Baselines) -> float | None:
    """The training loss as a share of the loss of a constant prediction; None: one of them is unknown."""
    own = final.get("train", {}).get("loss")
    constant = baselines.get("constant", {}).get("train", {}).get("loss")
    return own / constant if own is not None and constant else None


@contextlib.contextmanager
def plotted_if_diverged(prepared: Prepared, started: Started, folder: RunFolder) -> Iterator[None]:
    """Plots the curves of a training that diverges within the block, so that one sees where; raises its error."""
    try:
        yield
    except DivergedError:
        lines = list(folder.read_metrics())
        # Which rows moved is not known: nothing was compared.
        known: dict[str, Any] = {"status": "diverged", "steps": lines[-1]["step"] if lines else 0, "freeze": {}}
        if prepared.spec.output.plots:
            from embexp.reports import plots

            with contextlib.suppress(OSError):
                plots.write_plots(lines, describe(prepared, started) | known, folder.plots)
        raise


def write_projector_files(prepared: Prepared, started: Started, directory: Path) -> None:
    """Writes rows, tokens, frequencies, and whether a row is pretrained or frozen, where that differs by row.

    Args:
        prepared: the run; `output.projector_rows` limits the rows of a table.

    Raises:
        OSError: a file can't be written.
    """
    from embexp.vectors.write import write_projector_config, write_projector_table

    tables, shapes = started.execution.tables, {}
    for name, table in tables.items():
        vocabulary, policy = prepared.data.vocabularies[name], prepared.tables.policies[name]
        limit = min(prepared.spec.output.projector_rows, _MOST_VALUES // (len(tables) * table.dim))
        rows = shown_rows(vocabulary, limit)
        columns: dict[str, Iterable[str]] = {}
        if isinstance(vocabulary, TokenVocabulary):
            columns["frequency"] = map(str, vocabulary.frequencies[rows])
        for label, mask in (
            ("pretrained", prepared.tables.pretrained.pretrained_rows(name)),
            ("frozen", policy.frozen),
        ):
            if mask is not None:
                columns[label] = ("yes" if each else "no" for each in mask[rows])
        tokens = [vocabulary.tokens(row, row + 1)[0] for row in rows.tolist()]
        write_projector_table(_Taken(table, rows), tokens, columns, directory, name)
        shapes[name] = (len(rows), table.dim)
    write_projector_config(shapes, directory)


@dataclass(frozen=True)
class _Taken:
    """Chosen rows of a table; `Rows`."""

    table: ReadableTable
    numbers: np.ndarray

    @property
    def rows(self) -> int:
        return len(self.numbers)

    @property
    def dim(self) -> int:
        return self.table.dim

    def read(self, start: int, stop: int) -> np.ndarray:
        return self.table.take(self.numbers[start:stop])


def shown_rows(vocabulary: Vocabulary, limit: int) -> np.ndarray:
    """The rows to show, rising: those in front, which are the most frequent, or else evenly spaced ones.

    Args:
        limit: the most rows.
    """
    count = max(1, min(limit, vocabulary.size))
    if isinstance(vocabulary, TokenVocabulary):
        return np.arange(count)
    return np.arange(count) * vocabulary.size // count
