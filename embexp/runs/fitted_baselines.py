"""Simple models of the same columns, fitted and cached, to compare a run with."""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from embexp.runs.evaluations import Evaluator, Metrics
from embexp.runs.prepare import Data
from embexp.system import caching, digests, machine_faults
from embexp.system.locks import FileLock
from embexp.system.parallel import Progress, quiet
from embexp.training import baseline, simple_models


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
    task, columns, examples, splits = evaluator.task, data.columns, data.scan.examples, data.scan.splits
    others = {split: rows for split, rows in splits.items() if split != "train" and len(rows)}
    name = simple_models.name_of(task, columns, examples)
    if name is None or not others:
        return NOT_FITTED
    classes, words = len(data.classes), baseline.FITTED[name]

    def make(folder: Path) -> None:
        progress(f"fitting {words} to compare with", None)
        found = simple_models.predictions(
            task,
            columns,
            examples,
            splits["train"],
            others,
            classes=classes,
            weights=examples.example_weights,
        )
        if found is not None:
            for split, predicted in found[0].items():
                np.save(folder / f"{split}.npy", predicted)
        fit = None if found is None else asdict(found[1])
        (folder / "fit.json").write_text(json.dumps(fit), "utf-8")

    key = digests.of_json(
        {
            "format": simple_models.FORMAT,
            "data": data.scan.key,
            "numbers": {each: setting.model_dump(mode="json") for each, setting in columns.dense_settings.items()},
            "task": task.value,
            "weights": None
            if (weights := examples.example_weights) is None
            else digests.of_rows([np.asarray(weights)]),
            "classes": classes,
        }
    )
    lock = FileLock(caching.place_of(cache, "baseline", key).with_suffix(".lock"), f"the cache in {cache}")
    try:
        with contextlib.nullcontext() if caching.exists(cache, "baseline", key) else lock.awaited():
            folder = caching.folder(cache, "baseline", key, make)
    except (OSError, MemoryError, ValueError, ArithmeticError) as error:  # no reason to lose what was trained
        why = machine_faults.sentence(error) or str(error)
        return FittedBaseline(warnings=(f"output.baselines: {words} could not be fitted: {why}",))
    fit = json.loads((folder / "fit.json").read_text("utf-8"))
    if fit is None:
        return NOT_FITTED
    found = {
        split: evaluator.of_predictions(examples, rows, np.load(folder / f"{split}.npy"))
        for split, rows in others.items()
    }
    return FittedBaseline({name: found}, {name: fit})
