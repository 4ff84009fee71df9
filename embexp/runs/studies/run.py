"""Runs a spec, or resumes it: a single run, or a study of several; and their results on the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, assert_never

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from embexp.errors import EmbexpError, RunError
from embexp.records import allowed_code, inventory
from embexp.records.folder import RunFolder
from embexp.reports import results
from embexp.reports.results import Results
from embexp.runs import resume as resuming
from embexp.runs import run as single
from embexp.runs.run import RunResult
from embexp.runs.studies import new_entities
from embexp.specs.run import RunSpec
from embexp.specs.running import GROWN, NewEntitiesStudy, NoStudy
from embexp.system import files, machine_faults
from embexp.system.parallel import Progress, quiet
from embexp.training.listeners import Listener
from embexp.training.loop import Replay

Announce = Callable[[str], None]
"""Called with a heading before each run of a study."""
Say = Callable[[str], object]
"""Called with a sentence."""
_FILES = {
    "summary.json": "all results",
    "plots/comparison.png": "this comparison as a plot",
    "base/ grown/ full/": "the runs, each with its own summary, checkpoints and plots",
}
_METRICS = {
    "MRR, new entities": ("test_new", "mrr"),
    "Hits@1": ("test_new", "hits_at_1"),
    "Hits@10": ("test_new", "hits_at_10"),
    "MRR, the others": ("test_known", "mrr"),
    "MRR, all": ("test", "mrr"),
}
"""Metrics of the test triples, by split and name."""


def run(
    spec: RunSpec,
    directory: Path,
    *,
    listeners: Callable[[], Sequence[Listener]] = lambda: (),
    progress: Progress = quiet,
    announce: Announce = lambda heading: None,
    replay: Replay | None = None,
) -> RunResult:
    """Runs an experiment, or all runs of a study.

    Args:
        directory: an existing, empty directory. Each run of a study gets a subdirectory.
        listeners: returns new listeners for each training.
        progress: called with the stages before and after training.
        announce: called with a heading before each run of a study.
        replay: how a single run follows an earlier one, if it does.

    Raises:
        RunError: a run fails for a reason in the data, a file or the machine, or another process has the directory.
    """
    with _machine_errors(), RunFolder(directory).writing():
        files.remove_leftovers(directory)
        match spec.study:
            case NoStudy():
                return single.run(spec, directory, listeners=listeners(), progress=progress, replay=replay)
            case NewEntitiesStudy():
                return new_entities.run(spec, directory, listeners=listeners, progress=progress, announce=announce)
            case _:
                assert_never(spec.study)


def resume(
    directory: Path,
    changed: RunSpec | None = None,
    *,
    allow_code: Sequence[str] = (),
    listeners: Callable[[], Sequence[Listener]] = lambda: (),
    progress: Progress = quiet,
    announce: Announce = lambda heading: None,
    say: Say = lambda sentence: None,
) -> RunResult:
    """Completes a run, or the runs of a study, that was interrupted or killed.

    Args:
        changed: see `embexp.runs.resume.resume`; a study takes none.
        allow_code: functions that the recorded spec may run.
        say: called with a sentence on where a run is resumed, and about checkpoints that are skipped.

    Raises:
        NotARunError: there is no run in the directory.
        RunError: it can't be resumed, fails, or another process has the directory.
        UsageError: the spec names code that isn't allowed.
    """
    RunFolder(directory).recorded_spec()  # else there is nothing to lock
    with _machine_errors(), RunFolder(directory).writing():
        spec = RunFolder(directory).recorded_spec()
        files.remove_leftovers(directory)
        match spec.study:
            case NoStudy():
                return resuming.resume(
                    directory, changed, allow_code=allow_code, listeners=listeners(), progress=progress, say=say
                )
            case NewEntitiesStudy():
                if changed is not None:
                    raise RunError(
                        f"{directory} is the directory of a study, whose settings can't change when it is resumed"
                    )
                allowed_code.check(spec, allow_code, record=RunFolder(directory).spec)
                if (ended := _ended(RunFolder(directory))) is not None:
                    say(f"all runs of the study have ended ({ended.status}); nothing is left to do")
                    return ended
                return new_entities.run(spec, directory, listeners=listeners, progress=progress, announce=announce)
            case _:
                assert_never(spec.study)


def _ended(folder: RunFolder) -> RunResult | None:
    """The result of a study that has its last file; None if something is left to do."""
    if inventory.digest_of(folder.path) is None:
        return None
    summary = folder.read_summary()
    return None if summary["status"] == "interrupted" else RunResult(folder.path, summary)


@contextmanager
def _machine_errors() -> Iterator[None]:
    """Turns errors of the machine, such as a full disk or too little memory, into a `RunError` of one sentence."""
    try:
        yield
    except EmbexpError:
        raise
    except Exception as error:
        if (sentence := machine_faults.sentence(error)) is None:
            raise
        raise RunError(sentence) from error


def terminal_report(summary: Mapping[str, Any], directory: Path) -> Results | Comparison:
    """The results of a run or a study as a rich renderable."""
    return Comparison(summary, directory) if "study" in summary else Results(summary, directory)


@dataclass(frozen=True)
class Comparison:
    """A rich renderable of a study of new entities."""

    summary: Mapping[str, Any]
    directory: Path

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yields the status, the table of the runs, a summary, and the files."""
        status = str(self.summary["status"])
        yield Text(f"{self.summary['name']}: {status}", "bold green" if status == "completed" else "bold yellow")
        frames = results.frames(options)
        yield from results.spaced([self._table(frames)], frames)
        yield from self._sentences()
        yield from results.files(self.directory, _FILES.items())
        yield from results.warnings(self.summary)

    def _table(self, frames: box.Box | None) -> Table:
        runs = self.summary["runs"]
        table = Table(box=frames, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        table.add_column("")
        for name in runs:
            table.add_column(name, justify="right")
        figures: dict[str, Callable[[Any], str]] = {
            "entities": lambda run: f"{run['rows'][self._entities]:,}",
            "triples trained": lambda run: f"{run['trained_triples']:,}",
            "rows trained": lambda run: f"{sum(run['trainable_rows'].values()):,}",
            "epochs": lambda run: f"{run['epochs']:.1f}",
            "best epoch": lambda run: _number(run["best_epoch"], ".1f"),
            "seconds to set up": lambda run: _number(run["seconds"]["setup"], ".1f"),
            "seconds to train": lambda run: _number(run["seconds"]["training"], ".1f"),
            "to the best epoch": lambda run: _number(run["seconds"]["best"], ".1f"),
        }
        for label, figure in figures.items():
            table.add_row(label, *(figure(run) for run in runs.values()))
        for label, (split, metric) in _METRICS.items():
            table.add_row(label, *(_number(_metric(run, split, metric), ".4f") for run in runs.values()))
        return table

    @property
    def _entities(self) -> str:
        """The table of entities: that of the candidates."""
        return str(self.summary["entities"])

    def _sentences(self) -> Iterator[RenderableType]:
        for name, rows in self.summary["old_rows"].items():
            same = rows["digest_before"] == rows["digest_after"]
            text = f"{rows['rows_changed']:,} of {rows['rows']:,} changed; digest {rows['digest_before'][:12]} before, "
            text += f"{'the same' if same else rows['digest_after'][:12]} after"
            yield Text.assemble(f"old rows of {name}: ", (text, "" if same else "bold red"))
        ratios = self.summary["comparison"]
        if ratios.get("mrr_new") is not None and ratios.get("training_seconds"):
            yield Text(
                f"{GROWN} reaches {ratios['mrr_new']:.1%} of full's MRR on the new entities in "
                f"{ratios['training_seconds']:.1%} of its training time"
            )


def _metric(run: Mapping[str, Any], split: str, metric: str) -> float | None:
    """A metric of a split; no test triple of the base run has new entities."""
    if split not in run["metrics"] and split == "test_known":
        split = "test"
    elif split == "test" and "test_known" not in run["metrics"]:
        return None
    value = run["metrics"].get(split, {}).get(metric)
    return None if value is None else float(value)


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
