"""A store of MLflow: a database, a folder or a server."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sqlite3
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from embexp.specs.tracking import scheme_of
from embexp.system import files
from embexp.system.locks import FileLock

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
        place = _local_path(self.uri)
        if place is None or scheme_of(self.uri) != "sqlite":
            return None
        return (place.parent / "mlruns" / quote(experiment, safe="")).as_uri()


def connect(uri: str | None) -> Store:
    """Opens a store; a new database or folder is created.

    Args:
        uri: of the store; None: MLFLOW_TRACKING_URI, or `DEFAULT`.
    """
    # Without these, MLflow sends usage data to its makers, and refuses folders as stores.
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    uri = _chosen(uri)
    if scheme_of(uri) == "file":
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from mlflow import MlflowClient

        logging.getLogger("alembic").setLevel(logging.WARNING)  # a new database logs its hundred migrations
        logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)
        place = _local_path(uri)
        if place is not None and not _is_made(place):
            # MLflow makes the tables of a database in a hundred migrations. Two processes that do so at once, or one
            # that is killed meanwhile, leave a database that no later process can use.
            with FileLock(place.with_name(f".{place.name}.lock"), f"the store {place}").awaited():
                if not _is_made(place):
                    _make(place, uri)
        client = MlflowClient(tracking_uri=uri)
        client.search_experiments(max_results=1)  # connects, and so finds a wrong URI
    return Store(uri, client)


def is_served(uri: str | None) -> bool:
    """Whether a store is that of a server, which no client has to make.

    Args:
        uri: as for `connect`.
    """
    return scheme_of(_chosen(uri)) in ("http", "https", "databricks")


def _chosen(uri: str | None) -> str:
    return absolute(uri or os.environ.get("MLFLOW_TRACKING_URI") or DEFAULT)


def _local_path(uri: str) -> Path | None:
    """The database or the folder of a store on a disk; None for other stores."""
    if uri.startswith("sqlite:///") and uri != "sqlite:///:memory:":
        return Path(uri.removeprefix("sqlite:///").partition("?")[0])
    return Path(unquote(uri.removeprefix("file:").removeprefix("//"))) if scheme_of(uri) == "file" else None


def _is_made(place: Path) -> bool:
    return place.is_dir() or (place.is_file() and place.stat().st_size > 0)


def _make(place: Path, uri: str) -> None:
    """Makes a new store; a database appears with all of its tables, or not at all."""
    from mlflow import MlflowClient

    if scheme_of(uri) == "file":
        MlflowClient(tracking_uri=uri).search_experiments(max_results=1)
        return
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=f".{place.name}.") as folder:
        first, whole = Path(folder) / "first.db", Path(folder) / "whole.db"
        MlflowClient(tracking_uri=f"sqlite:///{first}").search_experiments(max_results=1)
        # A copy, as MLflow keeps its connections to the first one open.
        with contextlib.closing(sqlite3.connect(first)) as made, contextlib.closing(sqlite3.connect(whole)) as copy:
            made.backup(copy)
        files.to_disk(whole)
        if place.exists():  # empty, as `touch` makes it
            os.replace(whole, place)
            return
        with contextlib.suppress(FileExistsError):  # another process was faster, on a file system without locks
            os.link(whole, place)


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
