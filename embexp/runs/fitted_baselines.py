"""Simple models of the same columns, fitted and cached, to compare a run with."""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from embexp.data.interactions import HeldOut
from embexp.runs.evaluations import Evaluator, Metrics
from embexp.runs.prepare import Data
from embexp.specs.models import Task
from embexp.system import caching, digests, machine_faults
from embexp.system.locks import FileLock
from embexp.system.parallel import Progress, part, quiet
from embexp.training import baseline, ranking, simple_models
from embexp.training.simple_models import Fit

_USERS_TO_CHOOSE = 2_000
"""Users of the validation split by which a penalty is chosen."""


@dataclass(frozen=True)
class FittedBaseline:
    """A simple model of the same columns, to compare with.

    Attributes:
        metrics: by its name, one of `baseline.FITTED`, and by split; empty: there is none.
        facts: by its name, how it was fitted, `simple_models.Fit`.
        warnings: why it could not be fitted.
    """

    metrics: dict[str, dict[str, Metrics]] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


NOT_FITTED = FittedBaseline()


def fitted(evaluator: Evaluator, data: Data, cache: Path, progress: Progress = quiet) -> FittedBaseline:
    """A simple model that is fitted to the training split, once for all runs with the same data, columns and split.

    Of several processes that need it at once, one fits it and the others wait.

    Args:
        cache: where its predictions are kept.
    """
    task, splits = evaluator.task, data.scan.splits
    others = {split: rows for split, rows in splits.items() if split != "train" and len(rows)}
    columns, examples = data.columns, data.scan.examples
    if others and task is Task.RECOMMENDATION:
        return _of_items(evaluator, data, others, cache, progress)
    name = simple_models.name_of(task, columns, examples)
    if name is None or not others:
        return NOT_FITTED
    classes, held_out = len(data.classes), sum(map(len, others.values()))
    others = simple_models.evaluated(examples, columns, others, classes=classes if task is Task.CLASSIFICATION else 0)

    def make(folder: Path) -> None:
        found = simple_models.predictions(
            task,
            columns,
            examples,
            splits["train"],
            others,
            classes=classes,
            weights=examples.example_weights,
            progress=lambda done: progress(_stage(name), done),
        )
        if found is not None:
            for split, predicted in found[0].items():
                np.save(folder / f"{split}.npy", predicted)
        counted = {"evaluated": sum(map(len, others.values())), "held_out": held_out}
        fit = None if found is None else asdict(found[1]) | counted
        (folder / "fit.json").write_text(json.dumps(fit), "utf-8")

    key = {
        "format": simple_models.FORMAT,
        "data": data.scan.key,
        "numbers": {each: setting.model_dump(mode="json") for each, setting in columns.dense_settings.items()},
        "task": task.value,
        "weights": None if (weights := examples.example_weights) is None else digests.of_rows([np.asarray(weights)]),
        "classes": classes,
    }
    folder = _once(name, key, make, cache, progress)
    if isinstance(folder, FittedBaseline):
        return folder
    fit = json.loads((folder / "fit.json").read_text("utf-8"))
    if fit is None:
        return NOT_FITTED
    found = {
        split: evaluator.of_predictions(examples, rows, np.load(folder / f"{split}.npy"))
        for split, rows in others.items()
    }
    return FittedBaseline({name: found}, {name: fit})


def _of_items(
    evaluator: Evaluator, data: Data, others: Mapping[str, np.ndarray], cache: Path, progress: Progress
) -> FittedBaseline:
    """Lists by the similarities of items alone, see `item_models`. What is kept are their metrics."""
    from embexp.training import item_models

    assert data.interactions is not None  # the task is recommendation
    known, catalogue = data.interactions, data.interactions.catalogue
    name = item_models.name_of(catalogue.size)

    def make(folder: Path) -> None:
        started = time.perf_counter()
        examples, train = data.scan.examples, data.scan.splits["train"]
        everyone = known.seen(examples, [train], np.unique(known.pairs(examples, train)[0]))
        used = item_models.shortened(everyone)
        trained = item_models.matrix(used, catalogue.size)

        def items_of(held: HeldOut) -> Any:
            return item_models.matrix(known.seen(examples, [train], held.users), catalogue.size)

        def measured(held: HeldOut, users: Any, weights: Any, stage: str, progress: Progress) -> Metrics:
            lister = ranking.listed_by(item_models.scores(users, weights))
            return evaluator.of_lists(data, held, lister, catalogue.size, stage, progress)

        penalties, words = item_models.PENALTIES[name], baseline.FITTED[name]
        penalty, best, reached = penalties[len(penalties) // 2], None, -math.inf
        if "validation" in others:
            some = data.held_out("validation").some(_USERS_TO_CHOOSE)
            theirs = items_of(some)
            for place, each in enumerate(penalties):
                progress(_stage(name), place / len(penalties))
                weights = item_models.fit(name, trained, each)
                value = measured(some, theirs, weights, f"choosing a penalty of {words}", quiet)[evaluator.first]
                if value > reached:
                    penalty, best, reached = each, weights, value
        if best is None:
            best = item_models.fit(name, trained, penalty)
        metrics, evaluated, held_out = {}, 0, 0
        for place, split in enumerate(others):
            of_split, everybody = part(progress, place / len(others), (place + 1) / len(others)), data.held_out(split)
            held = everybody.some(item_models.most_users(name, everybody.seen, catalogue.size))
            metrics[split] = measured(held, items_of(held), best, f"evaluating {words}", of_split)
            evaluated, held_out = evaluated + len(held.users), held_out + len(everybody.users)
        counts = len(used.values), len(everyone.values), catalogue.size
        fit = Fit(*counts, penalty, True, time.perf_counter() - started, evaluated, held_out)
        (folder / "metrics.json").write_text(json.dumps(metrics), "utf-8")
        (folder / "fit.json").write_text(json.dumps(asdict(fit)), "utf-8")

    key = {
        "format": item_models.FORMAT,
        "data": data.scan.key,
        "columns": [known.user, known.item],
        "metrics": evaluator.measured_of_lists,
    }
    folder = _once(name, key, make, cache, progress)
    if isinstance(folder, FittedBaseline):
        return folder
    metrics, fit = (json.loads((folder / f"{each}.json").read_text("utf-8")) for each in ("metrics", "fit"))
    return FittedBaseline({name: metrics}, {name: fit})


def _stage(name: str) -> str:
    return f"fitting {baseline.FITTED[name]} to compare with"


def _once(
    name: str, key: Mapping[str, Any], make: Callable[[Path], None], cache: Path, progress: Progress
) -> Path | FittedBaseline:
    """The folder of the cache with what `make` wrote, or why it could not."""
    words, digest = baseline.FITTED[name], digests.of_json(dict(key))

    def shown(folder: Path) -> None:
        progress(_stage(name), None)
        make(folder)

    lock = FileLock(caching.place_of(cache, "baseline", digest).with_suffix(".lock"), f"the cache in {cache}")
    try:
        with contextlib.nullcontext() if caching.exists(cache, "baseline", digest) else lock.awaited():
            return caching.folder(cache, "baseline", digest, shown)
    except (OSError, MemoryError, ValueError, ArithmeticError) as error:  # no reason to lose what was trained
        why = machine_faults.sentence(error) or str(error)
        return FittedBaseline(warnings=(f"output.baselines: {words} could not be fitted: {why}",))
