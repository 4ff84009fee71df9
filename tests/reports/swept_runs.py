"""Directories of sweeps as runs leave them, made by code: settings, metrics.jsonl and summaries, without training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

METHODS = ("assign", "placeholder_feed", "scaffold", "variable_load")
OPTIMIZERS = ("adagrad", "adam", "sgd")
TABLES = {"item": (10_000, 16), "user": (2_000, 16)}
REASON = "tables.item.pretrained.path = 'vectors.txt': there is no such file"


def sweep(
    directory: Path, *, jobs: int, seeds: int = 2, evaluations: int = 20, failed: int = 0, skipped: int = 0
) -> Path:
    """A sweep over init method, optimizer, learning rate, dim and seed.

    Args:
        directory: of the sweep.
        jobs: that end normally.
        seeds: of each setting.
        evaluations: of each run; half as many losses again are logged.
        failed: further jobs, which failed.
        skipped: further jobs, which were skipped.
    """
    generator = np.random.default_rng(0)
    settings = [
        (
            METHODS[number % len(METHODS)],
            OPTIMIZERS[number // 2 % len(OPTIMIZERS)],
            float(f"{10 ** generator.uniform(-3.5, 0):.3g}"),
            int(generator.choice([8, 16, 32, 64])),
        )
        for number in range(-(-(jobs + failed + skipped) // seeds))
    ]
    listed = []
    for number in range(jobs + failed + skipped):
        method, optimizer, rate, dim = settings[number // seeds]
        seed = number % seeds
        overrides = {
            "init": method,
            "optimizer": optimizer,
            "optimizer.learning_rate": str(rate),
            "tables.item.dim": str(dim),
            "seed": str(seed),
        }
        folder = directory / str(number)
        status, reason = "completed", ""
        if number < jobs:
            run(folder, method=method, optimizer=optimizer, rate=rate, dim=dim, seed=seed, evaluations=evaluations)
        elif number < jobs + failed:
            status, reason = "failed", REASON
            folder.mkdir(parents=True)
            write_json(folder / "spec.json", spec(method=method, optimizer=optimizer, rate=rate, dim=dim, seed=seed))
            (folder / "run.log").write_text(f"error: {REASON}\n")
        else:
            status, reason = "skipped", "duplicate of job 0"
        listed.append(
            {
                "number": number,
                "overrides": overrides,
                "status": status,
                "reason": reason,
                "seconds": 12.0 + number % 7,
                "directory": None if status == "skipped" else str(folder),
            }
        )
        if folder.exists():
            (folder / ".hydra").mkdir()
            text = "".join(f"- {json.dumps(f'{key}={value}')}\n" for key, value in overrides.items())
            (folder / ".hydra" / "overrides.yaml").write_text(text)
    write_json(directory / "sweep.json", {"jobs": listed})
    return directory


def spec(*, method: str, optimizer: str, rate: float, dim: int, seed: int, **more: Any) -> dict[str, Any]:
    """The part of a spec that a report reads."""
    return {
        "name": "planted",
        "task": "regression",
        "seed": seed,
        "data": {"kind": "csv", "path": "ratings.csv", "fold": 0},
        "tables": {"item": {"dim": dim, "combiner": "mean"}, "user": {"dim": 16, "combiner": "mean"}},
        "init": {"kind": method},
        "optimizer": {"kind": optimizer, "learning_rate": rate},
        "train": {"steps": 2000, "batch_size": 256, "early_stopping": {"patience": None, "metric": None}},
        "output": {"plots": True},
        **more,
    }


def run(
    folder: Path,
    *,
    method: str,
    optimizer: str,
    rate: float,
    dim: int,
    seed: int,
    evaluations: int,
    settings: dict[str, Any] | None = None,
    warnings: tuple[str, ...] = (),
) -> None:
    """The directory of a finished run, with losses and an RMSE that depend on the settings as they usually do."""
    folder.mkdir(parents=True)
    generator = np.random.default_rng([seed, dim, int(rate * 1e6)])
    best = 0.86 + 0.02 * abs(np.log10(rate / 0.05)) ** 1.6 + {"adam": 0.0, "adagrad": 0.004, "sgd": 0.02}[optimizer]
    best += 0.01 * abs(np.log2(dim / 32)) + generator.normal(0, 0.002)
    speed = 3.0 + 2.0 * rate**0.3
    lines: list[dict[str, Any]] = []
    for number in range(1, 3 * evaluations // 2 + 1):
        step = round(number * 2000 / (3 * evaluations // 2))
        loss = (best - 0.08) ** 2 + 0.6 * np.exp(-speed * step / 2000) + generator.normal(0, 0.01)
        lines.append({"event": "log", "step": step, "loss": float(loss), "timing": {"seconds": step / 160}})
    rmse, mae = best, 0.78 * best
    for number in range(1, evaluations + 1):
        step = round(number * 2000 / evaluations)
        rmse = float(best + 0.35 * np.exp(-speed * step / 2000) + generator.normal(0, 0.0008))
        mae = 0.78 * rmse
        metrics = {"rmse": rmse, "mae": mae, "loss": rmse**2}
        lines.append(
            {"event": "evaluation", "step": step, "split": "validation", "metrics": metrics,
             "timing": {"seconds": step / 160}}
        )  # fmt: skip
    lines.sort(key=lambda line: line["step"])
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    write_json(
        folder / "spec.json",
        spec(method=method, optimizer=optimizer, rate=rate, dim=dim, seed=seed, **(settings or {})),
    )
    validation = {"rmse": rmse, "mae": mae, "loss": rmse**2}
    write_json(
        folder / "summary.json",
        {
            "status": "completed",
            "name": "planted",
            "task": "regression",
            "run_id": f"{seed:02d}{dim:02d}" * 16,
            "steps": 2000,
            "best_step": None,
            "metrics": {
                "train": {"loss": lines[-2].get("loss", 0.5)},
                "validation": validation,
                "test": {name: value + 0.004 for name, value in validation.items()},
            },
            "throughput": {"examples_per_second": 41_000.0 + 500 * seed, "step_ms_median": 6.1},
            "strategy": "cpu",
            "runtime": "function",
            "initialization": initialization(method, generator),
            "freeze": {name: rows_of(rows, generator) for name, (rows, _) in TABLES.items()},
            "tables": {
                name: {"vocabulary_size": rows, "dim": width, "storage": "variable", "digest": "ab" * 32}
                for name, (rows, width) in TABLES.items()
            },
            "vectors": vectors_of(seed),
            "warnings": list(warnings),
        },
    )


def vectors_of(seed: int) -> dict[str, Any]:
    """Figures of a table's vectors by tests, as a run has them."""
    share = {"share": 0.2, "low": 0.1, "high": 0.4}
    sections = [
        {"name": name, "questions": 30, "covered": 10, "add": share, "mul": share} for name in ("a", "b", "all")
    ]
    men = {"pairs": 3000, "covered": 900, "spearman": 0.2 + seed / 50, "low": 0.1, "high": 0.3, "pearson": 0.19}
    kinds = {"words": 40, "covered": 30, "purity": 0.7, "low": 0.6, "high": 0.7, "chance": 0.4}
    return {
        "similarity": {"item": {"men": men}},
        "analogies": {"item": {"google": {"add": 0.2, "mul": 0.2, "sections": sections}}},
        "categories": {"item": {"kinds": kinds}},
    }


def initialization(method: str, generator: np.random.Generator) -> dict[str, Any]:
    """Costs of an init method, in the order of those of a real one."""
    cost = 1.0 + METHODS.index(method)
    return {
        "method": method,
        "seconds": float(0.2 * cost + generator.normal(0, 0.01)),
        "peak_anonymous_bytes": int(3e7 * cost),
        "graph_def_bytes": 4_000,
        "total_graph_def_bytes": 91_000,
        "tables": {
            name: {"method": method, "rows_pretrained": rows // 2, "rows_missing": rows // 2, "bytes": 4 * rows * width}
            for name, (rows, width) in TABLES.items()
        },
    }


def rows_of(rows: int, generator: np.random.Generator) -> dict[str, Any]:
    """What became of the rows of a table of which a quarter was frozen."""
    frozen = rows // 4
    moved = int((rows - frozen) * generator.uniform(0.6, 0.9))
    return {
        "frozen_rows": frozen,
        "frozen_rows_changed": 0,
        "trainable_rows": rows - frozen,
        "trainable_rows_touched": moved,
        "trainable_rows_moved": moved,
        "trainable_rows_never_moved": rows - frozen - moved - 1,
        "never_moved_because": {
            "learning_rate_zero": 0,
            "no_gradient": 0,
            "never_met": rows - frozen - moved - 1,
        },
        "special_rows_never_met": 1,
        "rules": [],
    }


def a_map(run: int, *, rows: int = 300, token: str = "token") -> dict[str, Any]:
    """The map of a table as `embexp.runs.table_maps` makes it: three clusters in ten dimensions."""
    from embexp.runs import table_maps

    generator = np.random.default_rng(0)
    cluster = generator.integers(0, 3, rows)
    values = generator.normal(0, 1, (3, 16))[cluster] * 3 + generator.normal(0, 0.4, (rows, 16))
    scores, shares = table_maps.principal_components(values)
    packed, scale = table_maps.packed_scores(scores)
    return {
        "run": run,
        "table": "item",
        "total": 10_000,
        "dim": 16,
        "count": rows,
        "sampling": "half of them the most frequent, the others at random",
        "rows": list(range(rows)),
        "tokens": [f"{token} {number}" for number in range(rows)],
        "components": scores.shape[1],
        "packed": packed,
        "scale": scale,
        "shares": shares.tolist(),
        "marks": [
            {"name": "provenance", "names": ["new", "pretrained"], "values": (cluster == 0).astype(int).tolist()},
            {"name": "training", "names": ["trained", "frozen", "slowed", "never looked up"],
             "values": np.where(cluster == 1, 1, 0).tolist()},
            {"name": "frequency", "names": None, "values": (1 + 5000 // (1 + np.arange(rows))).tolist()},
        ],
        "notes": [],
        "near": [
            [row, [f"{token} {row + 1}", f"{token} {row + 2}"], [0.9, 0.25]] for row in range(0, min(rows, 200), 2)
        ],
        "lengths": [
            {"rows": 10 * band, "counts": [500 // band, 100 // band], "lengths": [0.5, 1.0 / band, 1.5]}
            for band in (1, 2)
        ],
        "moved": {"rows": rows, "mean": 0.4, "most": [[f"{token} 1", 0.9]], "least": [[f"{token} 2", 0.1]]},
    }  # fmt: skip


def write_json(path: Path, content: Any) -> None:
    """Writes JSON into a new file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def a_search(sweep: Path) -> dict[str, Any]:
    """What a search for optimizer, dim and, with Adam, learning rate writes, whose trials are the jobs of a sweep."""
    trials = []
    for job in json.loads((sweep / "sweep.json").read_text())["jobs"]:
        params = {key: job["overrides"][key] for key in ("optimizer", "optimizer.learning_rate", "tables.item.dim")}
        if params["optimizer"] != "adam":
            del params["optimizer.learning_rate"]
        summary = sweep / str(job["number"]) / "summary.json"
        values = [json.loads(summary.read_text())["metrics"]["validation"]["mae"]] if summary.exists() else None
        state = "complete" if values else "fail"
        trial = {"trial": job["number"], "job": job["number"], "state": state, "params": params, "values": values}
        trials.append(trial | {"seconds": 60.0 * (job["number"] + 1)})
    names = {"optimizer": list(OPTIMIZERS), "tables.item.dim": None, "optimizer.learning_rate": None}
    parameters: list[dict[str, Any]] = [
        {"name": name, "key": name, "log": "rate" in name, "choices": choices, "when": {}}
        for name, choices in names.items()
    ]
    parameters[2]["when"] = {"optimizer": ["adam"]}
    shares = {"optimizer": 0.7, "tables.item.dim": 0.3}
    importance = {"evaluator": "PED-ANOVA", "fewest_trials": 10, "by_objective": [shares]}
    return {
        "objectives": [{"metric": "validation mae", "direction": "minimize"}],
        "seeds": 1,
        "parameters": parameters,
        "importance": importance | {"without": ["optimizer.learning_rate"]},
        "trials": trials,
    }
