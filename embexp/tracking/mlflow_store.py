"""A store of MLflow: a database, a folder or a server."""

from __future__ import annotations

import logging
import os
import re
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from embexp.specs.tracking import scheme_of

DEFAULT = "sqlite:///mlflow.db"
"""The store without a setting: a database in the working folder, as MLflow's own default."""


@dataclass(frozen=True)
class Store:
    """A connected store.

    Attributes:
        uri: of the store; paths in it are absolute.
        client: an `mlflow.MlflowClient`.
    """

    uri: str
    client: Any

    @property
    def without_password(self) -> str | None:
        """The URI; None if there is a user name or password in it, which belongs in no file."""
        return None if re.match(r"[^:/]+://[^/]*@", self.uri) else self.uri

    def experiment(self, name: str) -> str:
        """The id of an experiment, which is created if it is new; two processes may do so at once."""
        from mlflow.exceptions import MlflowException

        found = self.client.get_experiment_by_name(name)
        if found is None:
            try:
                return str(self.client.create_experiment(name, artifact_location=self._artifacts(name)))
            except MlflowException:
                found = self.client.get_experiment_by_name(name)
                if found is None:
                    raise
        if found.lifecycle_stage != "active":
            raise ValueError(f"the experiment {name!r} is deleted: restore it, or set tracking.experiment")
        return str(found.experiment_id)

    def has_run(self, run: str) -> bool:
        """Whether there is a run that is not deleted."""
        from mlflow.exceptions import MlflowException

        try:
            return str(self.client.get_run(run).info.lifecycle_stage) == "active"
        except MlflowException as error:
            if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                return False
            raise

    def last_steps(self, run: str) -> dict[str, int]:
        """The last step of each metric of a run."""
        names = self.client.get_run(run).data.metrics
        return {name: max(each.step for each in self.client.get_metric_history(run, name)) for name in names}

    def _artifacts(self, experiment: str) -> str | None:
        """Where the artifacts of a new experiment go: beside a SQLite file; else where the store says."""
        if not self.uri.startswith("sqlite:///"):
            return None
        folder = Path(self.uri.removeprefix("sqlite:///")).parent
        return (folder / "mlruns" / quote(experiment, safe="")).as_uri()


def connect(uri: str | None) -> Store:
    """Opens a store; a new database or folder is created.

    Args:
        uri: of the store; None: MLFLOW_TRACKING_URI, or `DEFAULT`.
    """
    # Without these, MLflow sends usage data to its makers, and refuses folders as stores.
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    uri = absolute(uri or os.environ.get("MLFLOW_TRACKING_URI") or DEFAULT)
    if scheme_of(uri) == "file":
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from mlflow import MlflowClient

        logging.getLogger("alembic").setLevel(logging.WARNING)  # a new database logs its hundred migrations
        logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)
        client = MlflowClient(tracking_uri=uri)
        client.search_experiments(max_results=1)  # connects, and so finds a wrong URI
    return Store(uri, client)


def absolute(uri: str) -> str:
    """A URI with an absolute path, so that it means the same in every working folder.

    Args:
        uri: of a store; a folder becomes a `file:` URI.
    """
    if uri.startswith("sqlite:///") and uri != "sqlite:///:memory:":
        return f"sqlite:///{Path(uri.removeprefix('sqlite:///')).absolute()}"
    if scheme_of(uri) == "":
        return Path(uri).absolute().as_uri()
    if scheme_of(uri) == "file" and not uri.startswith("file:/"):
        return Path(uri.removeprefix("file:")).absolute().as_uri()
    return uri
