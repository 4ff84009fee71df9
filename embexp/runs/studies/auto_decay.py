"""The study `auto_decay`: runs that try a weight decay each, and one with the best, on all of the training data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from embexp.errors import RunError
from embexp.reports import results
from embexp.runs.experiment import Study
from embexp.runs.run import Observer, RunResult
from embexp.runs.studies import stages
from embexp.specs import metrics as metric_specs
from embexp.specs.run import RunSpec
from embexp.specs.studies.choices import part_of, study_runs
from embexp.specs.studies.weight_decay import DECAYS, FINAL, refitted
from embexp.specs.tasks import Direction
from embexp.system import digests
from embexp.training import loop
from embexp.training.loop import Replay

_KEPT = ("run_id", "status", "steps", "best_step", "examples", "seconds", "metrics")
"""What summary.json has of each run."""
_FILES = {
    "summary.json": "all results",
    "decay_1/ …": "the runs that tried a decay",
    "final/": "the run with the best decay, to be used",
}


def run(spec: RunSpec, directory: Path, observer: Observer, replay: Replay | None = None) -> RunResult:
    """Tries the decays, and trains with the best; see `stages.run`."""
    tried = study_runs(spec, directory)
    decay_of = {name: run.optimizer.weight_decay_factor for name, run in tried.items()}
    watched = spec.train.early_stopping.metric, spec.recommendation.cutoffs, spec.further_metrics
    metric = metric_specs.watched(spec.task, *watched)
    lower = metric_specs.direction(metric, spec.further_metrics) is Direction.LOWER
    described = {"name": spec.name, "task": str(spec.task), "study": spec.study.kind, "metric": metric}

    def value(summary: Mapping[str, Any]) -> float | None:
        found = summary.get("metrics", {}).get("validation", {}).get(metric)
        return None if found is None else float(found)

    def best(runs: Mapping[str, Mapping[str, Any]]) -> str | None:
        """The name of the best run; of equal ones the first, whose decay is smaller."""
        known = {name: found for name in tried if (found := value(runs.get(name, {}))) is not None}
        return min(known, key=lambda name: known[name] if lower else -known[name]) if known else None

    def final(runs: Mapping[str, Mapping[str, Any]]) -> Mapping[str, RunSpec]:
        if (name := best(runs)) is None:
            raise RunError("every decay diverged, or none could be judged: set smaller study.values")
        train, examples = spec.train, runs[name]["examples"]["train"]
        schedule = loop.loop_schedule(
            examples=examples,
            batch_size=train.batch_size,
            steps=train.steps,
            epochs=train.epochs,
            log_every=train.log_every,
            evaluate_every=train.evaluate_every,
        )
        settings = refitted(spec, tried[name], runs[name], schedule.steps)
        observer.say(f"weight decay {decay_of[name]:.4g} has the best {metric} on validation, {value(runs[name]):.4f}")
        return {} if settings is None else {FINAL: part_of(tried[name], FINAL, settings)}

    def summarise(runs: Mapping[str, Mapping[str, Any]], ended: bool) -> Mapping[str, Any]:
        chosen = best(runs) if ended else None
        last = FINAL if FINAL in runs else chosen
        return {
            "status": "completed" if ended else "interrupted",
            **described,
            "run_id": digests.of_json([each.get("run_id") for each in runs.values()]),
            "steps": sum(each.get("steps", 0) for each in runs.values()),
            "decays": decay_of,
            "chosen": None
            if chosen is None
            else {
                "run": chosen,
                "weight_decay_factor": decay_of[chosen],
                "directory": last,
            },
            "metrics": {"test": {} if last is None else dict(runs[last]["metrics"].get("test", {}))},
            "runs": {name: {key: each.get(key) for key in _KEPT} for name, each in runs.items()},
            "warnings": [
                *_at_the_end(decay_of, chosen),
                *(f"{name}: {warning}" for name in filter(None, [last]) for warning in runs[name]["warnings"]),
            ],
        }

    return stages.run(spec, directory, observer, summarise, final)


def _at_the_end(decay_of: Mapping[str, float], chosen: str | None) -> Iterator[str]:
    """That the best of the decays is the largest, or the smallest: a better one may be beyond it."""
    if chosen is None:
        return
    decay, low, high = decay_of[chosen], min(decay_of.values()), max(decay_of.values())
    if decay == high or (decay == low and low > 0):
        which, beyond = ("largest", 3 * decay) if decay == high else ("smallest", decay / 3)
        yield (
            f"weight decay {decay:.4g} is the {which} of those that were tried, and a better one may be beyond it: try"
            f" study.values=[{decay:.4g},{beyond:.4g}]"
        )


@dataclass(frozen=True)
class Chosen:
    """A rich renderable of a study of decays."""

    summary: Mapping[str, Any]
    directory: Path

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yields the status, the table of the runs, which decay was chosen, the metrics, files and warnings."""
        metric = self.summary["metric"]
        yield stages.headline(self.summary)
        table = results.rich_table(
            results.frames(options), ["run"], ["weight decay", f"{metric} on validation", "best step", "steps"]
        )
        for name in (each for each in DECAYS if each in self.summary["runs"]):
            run = self.summary["runs"][name]
            found = (run["metrics"] or {}).get("validation", {}).get(metric)
            table.add_row(
                name,
                f"{self.summary['decays'][name]:.4g}",
                str(run["status"]) if found is None else f"{found:.4f}",
                *("" if run[key] is None else f"{run[key]:,}" for key in ("best_step", "steps")),
            )
        yield from results.spaced([table], results.frames(options))
        yield from map(Text, self._sentences())
        yield from results.files(self.directory, _FILES.items())
        yield from results.warnings(self.summary)

    def _sentences(self) -> Iterator[str]:
        if (chosen := self.summary["chosen"]) is None:
            return
        last = self.summary["runs"][chosen["directory"]]
        what = f"trained with {last['examples']['train']:,} examples for {last['steps']:,} steps"
        if chosen["directory"] != FINAL:
            what = f"of {chosen['run']}, as the validation data is not trained"
        yield f"weight decay {chosen['weight_decay_factor']:.4g} was chosen; {chosen['directory']} is {what}"
        if found := self.summary["metrics"]["test"]:
            yield f"test: {', '.join(f'{name} {value:.4f}' for name, value in found.items())}"


STUDY = Study(run, stages.resuming(run), Chosen)
"""`study=auto_decay`."""
