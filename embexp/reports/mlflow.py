"""MLflow: a run in an experiment of a store or a server; jobs of a sweep are nested in a run for all of them.

The run of a sweep or a study in MLflow, in which the runs of its jobs are nested. Each job finds it from its own
directory, or creates it: no process has to be told. Two jobs that create it at the same time agree on one by a file
that only one of them can make.
"""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import itertools
import json
import logging
import os
import re
import sqlite3
import ssl
import tempfile
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit
from urllib.request import getproxies

from embexp.records.folder import OF_SWEEPS, RunFolder, json_object
from embexp.reports.tracking import Parameter, Point, TrackedRun, remember, remembered
from embexp.specs import studies, tracking
from embexp.specs.tracking import MLflow, chosen, local_path, scheme_of
from embexp.system import files
from embexp.system.locks import FileLock
from embexp.system.printable import masked

_STATUS = {"completed": "FINISHED", "stopped_early": "FINISHED", "interrupted": "KILLED"}
_LONGEST_NAME = 250
_LONGEST_VALUE = 6000
"""Limits of MLflow: mlflow/utils/validation.py. Its batches hold 1,000 metrics, and 100 parameters or tags."""
_METRICS, _PARAMETERS = 1000, 100
_ANSWER_SECONDS = 5.0


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
        self._parent = parent_of(run.directory, store, experiment)
        if earlier and store.has_run(earlier["run"]):
            self._run = earlier["run"]
            store.client.update_run(self._run, status="RUNNING")
            store.client.set_tag(self._run, "run_id", run.run_id)
            self._logged = store.last_steps(self._run)
        else:
            created = store.client.create_run(experiment, run_name=run.directory.name, tags=self._tags(run))
            self._run = created.info.run_id
            note = {"uri": store.without_password, "experiment": experiment, "run": self._run}
            remember(run.directory, "mlflow", note)
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
            settle_parent(self._store, self._parent)

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
        """The URI; None if there is a password in it, which belongs in no file."""
        return self.uri if masked(self.uri) == self.uri else None

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
        place = local_path(self.uri)
        if place is None or scheme_of(self.uri) != "sqlite":
            return None
        return (place.parent / "mlruns" / quote(experiment, safe="")).as_uri()


def connect(uri: str | None) -> Store:
    """Opens a store; a new database or folder is created.

    Args:
        uri: of the store; None: MLFLOW_TRACKING_URI, or `DEFAULT`.

    Raises:
        ConnectionError: no server answers at its address.
    """
    # Without these, MLflow sends usage data to its makers, and refuses folders as stores.
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ["MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"] = "true"  # the address may have a password
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")  # 7 take minutes, and a delivery tries again itself
    uri = chosen(uri)
    _check_server(uri)
    if scheme_of(uri) == "file":
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from mlflow import MlflowClient

        logging.getLogger("alembic").setLevel(logging.WARNING)  # a new database logs its hundred migrations
        logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)
        place = local_path(uri)
        if place is not None and (why := files.store(place, is_folder=scheme_of(uri) == "file")):
            raise ValueError(f"{place}: {why}")
        if place is not None and not _is_made(place):
            # MLflow makes the tables of a database in a hundred migrations. Two processes that do so at once, or one
            # that is killed meanwhile, leave a database that no later process can use.
            with FileLock(place.with_name(f".{place.name}.lock"), f"the store {place}").awaited():
                if not _is_made(place):
                    _make(place, uri)
        client = MlflowClient(tracking_uri=uri)
        client.search_experiments(max_results=1)  # connects, and so finds a wrong URI
    return Store(uri, client)


def _check_server(uri: str) -> None:
    """Asks a server for anything: MLflow's client would wait for an answer for two minutes. A proxy is not tried."""
    address = urlsplit(uri)
    if address.scheme not in ("http", "https") or address.hostname is None or address.scheme in getproxies():
        return
    if address.scheme == "https":
        tls = ssl.create_default_context()  # nothing is told, and the client checks whom it speaks to
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        asked: HTTPConnection = HTTPSConnection(address.hostname, address.port, timeout=_ANSWER_SECONDS, context=tls)
    else:
        asked = HTTPConnection(address.hostname, address.port, timeout=_ANSWER_SECONDS)
    port = asked.port
    try:
        with contextlib.closing(asked), contextlib.suppress(HTTPException):  # an answer, which the client judges
            asked.request("HEAD", "/health")
            asked.getresponse()
    except OSError as error:
        why = error.strerror or str(error)
        raise ConnectionError(f"no server answers at {address.hostname}, port {port}: {why}") from None


def is_served(uri: str | None) -> bool:
    """Whether a store is that of a server, which no client has to make.

    Args:
        uri: as for `connect`.
    """
    return scheme_of(chosen(uri)) in ("http", "https", "databricks")


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


def parent_of(directory: Path, store: Store, experiment: str) -> str | None:
    """The id of the run in which a run is nested: that of its sweep or study; None if it belongs to none.

    Args:
        directory: of the run, or of a study.
    """
    group = group_of(directory)
    if group is None:
        return None
    above = parent_of(group, store, experiment)
    digest = hashlib.sha256(f"{store.uri} {experiment}".encode()).hexdigest()[:8]
    note = group / f".mlflow_{digest}.json"
    known = _read(note)
    if known is not None and store.has_run(known):
        if store.client.get_run(known).info.status != "RUNNING":  # else jobs at once write while others read
            store.client.update_run(known, status="RUNNING")
    else:
        tags = {"directory": str(group), "mlflow.source.name": "embexp", "mlflow.source.type": "LOCAL"}
        tags |= {} if above is None else {"mlflow.parentRunId": above}
        created = str(store.client.create_run(experiment, run_name=group.name, tags=tags).info.run_id)
        if known is not None:  # its run was deleted
            note.unlink(missing_ok=True)
        with contextlib.suppress(FileExistsError):  # of another job that was faster
            files.write_text(note, json.dumps({"run": created}), new=True)
            return created
        store.client.delete_run(created)
        known = _read(note)
    return known


def group_of(directory: Path) -> Path | None:
    """The directory of the sweep or the study that a run belongs to; None if it belongs to none."""
    directory = directory.absolute()
    if directory.name in studies.folders(directory.parent) and RunFolder(directory.parent).spec.is_file():
        return directory.parent
    for parent in directory.parents:
        if any((parent / name).is_file() for name in OF_SWEEPS):
            return parent
    return None


def settle_parent(store: Store, parent: str) -> None:
    """Ends a parent run, unless one of its runs goes on."""
    run = store.client.get_run(parent)
    running = store.client.search_runs(
        [run.info.experiment_id],
        filter_string=f"tags.mlflow.parentRunId = '{parent}' and attributes.status = 'RUNNING'",
        max_results=1,
    )
    if not running:
        store.client.set_terminated(parent, "FINISHED")
        if (above := run.data.tags.get("mlflow.parentRunId")) is not None:
            settle_parent(store, above)


def _read(note: Path) -> str | None:
    run = json_object(note).get("run")
    return None if run is None else str(run)
