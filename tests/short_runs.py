"""Short runs of experiment=clicks that differ in a few overrides, each done once; and their losses."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest

import embexp
from embexp.runs import run as single

ITEMS, DIM = 80, 16
PRETRAINED = ("pretrained@tables.item.pretrained=file", "freeze@tables.item.freeze=pretrained_rows")
Run = Callable[..., single.RunResult]


def runner(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs clicks, with vectors of 50 of the 80 items in no order."""
    folder = tmp_path_factory.mktemp("runs")
    path = folder / "item.npy"
    generator = np.random.default_rng(0)
    np.save(path, generator.normal(0, 0.3, (50, DIM)).astype(np.float32))
    path.with_suffix(".tokens.txt").write_text("".join(f"{token}\n" for token in generator.permutation(ITEMS)[:50]))
    made: dict[tuple[str, ...], single.RunResult] = {}

    def run(*overrides: str) -> single.RunResult:
        if overrides not in made:
            spec = embexp.compose(
                [
                    "experiment=clicks",
                    "optimizer=adam",
                    "data.examples=4000",
                    "data.users=60",
                    f"data.items={ITEMS}",
                    "train.batch_size=128",
                    "train.steps=40",
                    "train.epochs=null",
                    "train.log_every=1",
                    "output.plots=false",
                    "output.baselines=false",
                    "output.tensorboard=false",
                    f"output.cache={folder / 'cache'}",
                    *overrides,
                    *([f"tables.item.pretrained.path={path}"] if PRETRAINED[0] in overrides else []),
                ]
            )
            made[overrides] = single.run(spec, tmp_path_factory.mktemp("run"))
        return made[overrides]

    return run


def losses(result: single.RunResult) -> list[float]:
    lines = [json.loads(line) for line in (result.directory / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if line["event"] == "log"]
