"""MLflow: a run in an experiment of a local store or a server; the jobs of a sweep are nested in one run."""

from __future__ import annotations

import getpass
import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from embexp.specs import tracking
from embexp.specs.tracking import MLflow
from embexp.system import files
from embexp.tracking import parents
from embexp.tracking.mlflow_store import Store, connect
from embexp.tracking.tracker import Parameter, Point, TrackedRun, remembered

_STATUS = {"completed": "FINISHED", "stopped_early": "FINISHED", "interrupted": "KILLED"}
_LONGEST_NAME = 250
_LONGEST_VALUE = 6000
"""Limits of MLflow: mlflow/utils/validation.py. Its batches hold 1,000 metrics, and 100 parameters or tags."""
_METRICS, _PARAMETERS = 1000, 100


class MLflowRun:
    """A run in MLflow: parameters, metrics by step, tags, artifacts. It remembers itself in `tracking.json`."""

    name = "MLflow"

    def __init__(self, settings: MLflow) -> None:
        """Connects to nothing yet."""
        self._settings = settings
        self._store: Store
        self._run: str
        self._parent: str | None = None
        self._logged: dict[str, int] = {}

    def start(self, run: TrackedRun) -> None:
        """Creates the run, or goes on with the one that the run's directory remembers."""
        earlier = remembered(run.directory, "mlflow")
        known = earlier.get("uri") if self._settings.uri is None else None
        if known is not None and tracking.is_elsewhere(str(known)):
            where = f"{run.directory / 'tracking.json'} names {known}, on another machine"
            raise ConnectionError(f"{where}: {tracking.address_remedy(tracking.MLFLOW)}")
        self._store = store = connect(self._settings.uri or known)
        experiment = store.experiment(self._settings.experiment or run.name)
        self._parent = parents.parent_of(run.directory, store, experiment)
        if earlier and store.has_run(earlier["run"]):
            self._run = earlier["run"]
            store.client.update_run(self._run, status="RUNNING")
            store.client.set_tag(self._run, "run_id", run.run_id)
            self._logged = store.last_steps(self._run)
        else:
            created = store.client.create_run(experiment, run_name=run.directory.name, tags=self._tags(run))
            self._run = created.info.run_id
            note = {"mlflow": {"uri": store.without_password, "experiment": experiment, "run": self._run}}
            files.write_text(run.directory / "tracking.json", json.dumps(note, indent=2) + "\n")
        self._parameters(run.parameters)

    def log(self, points: Sequence[Point]) -> None:
        """Stores metrics, a thousand with each request, but for those that an earlier process has stored."""
        from mlflow.entities import Metric

        metrics = [
            Metric(_name(name), float(value), round(1000 * point.seconds), point.step)
            for point in points
            for name, value in point.metrics.items()
            if point.step > self._logged.get(_name(name), -1)
        ]
        for batch in _batches(metrics, _METRICS):
            self._store.client.log_batch(self._run, metrics=batch)

    def artifacts(self, paths: Sequence[Path]) -> None:
        """Stores files, and directories under their names."""
        for path in paths:
            if path.is_dir():
                self._store.client.log_artifacts(self._run, str(path), path.name)
            else:
                self._store.client.log_artifact(self._run, str(path))

    def sealed(self, inventory: str) -> None:
        """Stores the digest as the tag `inventory`."""
        self._store.client.set_tag(self._run, "inventory", inventory)

    def end(self, status: str) -> None:
        """Ends the run, and its parent unless other runs in it go on."""
        self._store.client.set_terminated(self._run, _STATUS.get(status, "FAILED"))
        if self._parent is not None:
            parents.settle(self._store, self._parent)

    def _tags(self, run: TrackedRun) -> dict[str, str]:
        tags = {
            "run_id": run.run_id,
            "directory": str(run.directory.absolute()),
            "mlflow.source.name": "embexp",
            "mlflow.source.type": "LOCAL",
            "mlflow.user": _user(),
        }
        if run.commit is not None:
            tags["mlflow.source.git.commit"] = run.commit
        if self._parent is not None:
            tags["mlflow.parentRunId"] = self._parent
        return tags

    def _parameters(self, values: Mapping[str, Parameter]) -> None:
        """Stores parameters. MLflow lets none change: what a resumed run changed becomes a tag."""
        from mlflow.entities import Param, RunTag

        texts = {_name(name): _text(value) for name, value in values.items()}
        known = self._store.client.get_run(self._run).data.params
        new = [Param(name, text) for name, text in texts.items() if name not in known]
        changed = [
            RunTag(f"resumed.{name}"[:_LONGEST_NAME], text)
            for name, text in texts.items()
            if known.get(name, text) != text
        ]
        for batch in _batches(new, _PARAMETERS):
            self._store.client.log_batch(self._run, params=batch)
        for tags in _batches(changed, _PARAMETERS):
            self._store.client.log_batch(self._run, tags=tags)


def _name(name: str) -> str:
    """A name that MLflow takes: letters, digits and `_-. :/`, 250 of them at most."""
    return re.sub(r"[^\w\-. :/]", "_", name)[:_LONGEST_NAME]


def _text(value: Parameter) -> str:
    text = json.dumps(value) if isinstance(value, bool) else str(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}…"


def _batches(items: Iterable[Any], size: int) -> Iterable[list[Any]]:
    remaining = iter(items)
    while batch := list(itertools.islice(remaining, size)):
        yield batch


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user may have no name
        return "unknown"
