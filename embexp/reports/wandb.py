"""Weights & Biases: a run of a project; the jobs of a sweep share a group."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from embexp.reports import mlflow
from embexp.reports.tracking import Point, TrackedRun, remember, remembered
from embexp.specs.tracking import WandB


class WandBRun:
    """A run in Weights & Biases: config, metrics by step, files. It remembers itself in `tracking.json`.

    Offline, everything is in the folder `wandb` of the working folder, and `wandb sync` sends it.
    """

    name = "Weights & Biases"

    def __init__(self, settings: WandB) -> None:
        """Connects to nothing yet."""
        self._settings = settings
        self._run: Any = None

    def start(self, run: TrackedRun) -> None:
        """Begins the run, or goes on with the one that the run's directory remembers."""
        import wandb

        earlier = remembered(run.directory, "wandb")
        group = mlflow.group_of(run.directory)
        own = hashlib.sha256(f"{run.run_id} {run.directory.absolute()}".encode()).hexdigest()[:16]
        self._run = wandb.init(
            project=self._settings.project,
            entity=self._settings.entity,
            mode=self._settings.mode.value,
            id=earlier.get("id", own),
            resume="allow",
            name=run.directory.name if group is None else f"{group.name}/{run.directory.name}",
            group=None if group is None else group.name,
            config=dict(run.parameters) | {"run_id": run.run_id, "commit": run.commit},
            settings=wandb.Settings(console="off", silent=True),
        )
        remember(run.directory, "wandb", {"id": self._run.id, "project": self._settings.project})

    def log(self, points: Sequence[Point]) -> None:
        """Stores metrics, those of a step together; final ones in the summary, too."""
        by_step: dict[int, dict[str, float]] = {}
        for point in points:
            by_step.setdefault(point.step, {}).update(point.metrics)
        for step, metrics in by_step.items():
            self._run.log(metrics, step=step)
            final = {name: value for name, value in metrics.items() if name.startswith("final/")}
            if final:
                self._run.summary.update(final)

    def artifacts(self, paths: Sequence[Path]) -> None:
        """Stores files and directories as one artifact."""
        import wandb

        artifact = wandb.Artifact(f"run-{self._run.id}", type="embexp-run")
        for path in paths:
            if path.is_dir():
                artifact.add_dir(str(path), name=path.name)
            else:
                artifact.add_file(str(path))
        self._run.log_artifact(artifact)

    def sealed(self, inventory: str) -> None:
        """Stores the digest as `inventory` of the summary."""
        self._run.summary["inventory"] = inventory

    def end(self, status: str) -> None:
        """Ends the run; an interrupted or failed one with an exit code other than 0."""
        self._run.summary["status"] = status
        self._run.finish(exit_code=0 if status in ("completed", "stopped_early") else 1)
