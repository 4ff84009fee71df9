"""The tracker that a run reports to, the packages that it needs, and the addresses that a record names.

The record of a run may come from anybody, and what resumes or repeats it would send data, and the user's credentials,
to the addresses that it names: of a tracker's server, a TPU, the database of a search. So the user names them, too, by
the environment variable of the tracker, the TPU or Optuna, which no config sets. This machine's own addresses need no
word.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal
from urllib.parse import unquote

from pydantic import Field

from embexp.errors import ConfigError, Fault
from embexp.specs.base import BY_KIND, Choice
from embexp.specs.running import OnError
from embexp.specs.strategies import TPU

if TYPE_CHECKING:
    from embexp.specs.base import Scope
    from embexp.specs.run import RunSpec

_DATABASES = ("sqlite", "postgresql", "mysql", "mssql")
_SCHEMES = (*_DATABASES, "file", "http", "https", "databricks")
_Text = Annotated[str, Field(min_length=1)]
MLFLOW = "MLFLOW_TRACKING_URI"
DEFAULT = "sqlite:///mlflow.db"
"""The store without a setting, as MLflow's own default."""
_WANDB = "WANDB_MODE"
_OPTUNA = "OPTUNA_STORAGE"
_TPU = ("TPU_NAME", "KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS")
_HERE = re.compile(r"(https?|grpc)://(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d+)?(/[\w./~%-]*)?")
"""Addresses of this machine, in their plain form: what is before an @ or a \\ may look like one."""
_FILES = ("", "file", "sqlite")
_RULE = "the record may come from somebody else, and this setting connects to another machine"


class _Tracking(Choice):
    """Base class of trackers; the implementation is an `embexp.reports.tracking.Tracker`, None without one."""

    kind: str
    install: ClassVar[str] = ""
    """What installs its packages."""

    @property
    def packages(self) -> dict[str, str]:
        """The packages that it needs, by the name of their module."""
        return {}


class NoTracking(_Tracking):
    """No tracker."""

    kind: Literal["none"] = "none"


class _Tracker(_Tracking):
    """Settings of every tracker."""

    on_error: OnError = OnError.STOP
    """If it can't be reached when the run begins. Later, a run goes on with a warning in any case."""


class MLflow(_Tracker):
    """MLflow: a run of an experiment, in a local store or on a server."""

    kind: Literal["mlflow"] = "mlflow"
    implementation = "embexp.reports.mlflow:MLflowRun"
    install = "pip install 'embexp[tracking]'"
    uri: _Text | None = None
    """Of the store; null: the environment variable MLFLOW_TRACKING_URI or, without it, sqlite:///mlflow.db."""
    experiment: _Text | None = None
    """Of MLflow; null: the name of the run's experiment."""
    checkpoint: bool = False
    """Store the final checkpoint as an artifact, too."""

    @property
    def packages(self) -> dict[str, str]:
        """MLflow's client, and what a database of this process needs."""
        database = {"sqlalchemy": "SQLAlchemy", "alembic": "alembic"}
        return {"mlflow": "mlflow-skinny"} | (database if self.uri is None or _in_database(self.uri) else {})

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """A URI of a kind that MLflow does not know."""
        scheme = scheme_of(self.uri)
        if scheme not in ("", *_SCHEMES):
            rule = f"an MLflow store must be a folder or a URI that begins with {', '.join(_SCHEMES)}"
            yield Fault(
                f"{scope.path}.uri", repr(self.uri), rule, "such as sqlite:///mlflow.db or http://localhost:5000"
            )


class WandbMode(StrEnum):
    """Whether runs are sent to a server of Weights & Biases."""

    OFFLINE = "offline"
    """They stay in the folder `wandb`, from where `wandb sync` sends them."""
    ONLINE = "online"


class WandB(_Tracker):
    """Weights & Biases: a run of a project."""

    kind: Literal["wandb"] = "wandb"
    implementation = "embexp.reports.wandb:WandBRun"
    install = "pip install wandb"
    project: _Text = "embexp"
    entity: _Text | None = None
    """User or team; null: the default one of the account."""
    mode: WandbMode = WandbMode.OFFLINE
    checkpoint: bool = False
    """Store the final checkpoint as an artifact, too."""

    @property
    def packages(self) -> dict[str, str]:
        """Its client."""
        return {"wandb": "wandb"}


Tracking = Annotated[NoTracking | MLflow | WandB, BY_KIND]


def scheme_of(uri: str | None) -> str:
    """The scheme of a store's URI, without a database's driver; "" for a folder or none.

    Args:
        uri: such as `sqlite:///mlflow.db`, `mysql+pymysql://host/name` or `./mlruns`.
    """
    found = re.match(r"([A-Za-z][A-Za-z0-9.\-]*)(\+[A-Za-z0-9_.\-]+)?:", uri or "")
    return found[1].lower() if found else "databricks" if uri == "databricks" else ""


def chosen(uri: str | None) -> str:
    """The store of a setting, absolute: that of the environment, or a database in the working folder, without one."""
    return absolute(uri or os.environ.get(MLFLOW) or DEFAULT)


def absolute(uri: str) -> str:
    """A URI with an absolute path, so that it means the same in every working folder.

    Args:
        uri: of a store; a folder becomes a `file:` URI.
    """
    scheme, slashes, path = uri.partition(":///")
    if scheme_of(uri) == "sqlite" and path not in ("", ":memory:"):
        return f"{scheme}{slashes}{Path(path).absolute()}"
    if scheme_of(uri) == "":
        return Path(uri).absolute().as_uri()
    if scheme_of(uri) == "file" and not uri.startswith("file:/"):
        return Path(uri.removeprefix("file:")).absolute().as_uri()
    return uri


def local_path(uri: str) -> Path | None:
    """The database or the folder of a store on a disk; None for other stores."""
    path = uri.partition(":///")[2].partition("?")[0]
    if scheme_of(uri) == "sqlite":
        return Path(path) if path not in ("", ":memory:") else None
    return Path(unquote(uri.removeprefix("file:").removeprefix("//"))) if scheme_of(uri) == "file" else None


def _in_database(uri: str | None) -> bool:
    """Whether a store is a database of this process, which needs SQLAlchemy."""
    return scheme_of(uri) in _DATABASES


def missing_packages(settings: Tracking) -> tuple[str, str] | None:
    """Packages that a tracker needs and that are not installed, as the rule and the remedy of a `Fault`."""
    names = [package for module, package in settings.packages.items() if importlib.util.find_spec(module) is None]
    if not names:
        return None
    verb = "package" if len(names) == 1 else "packages"
    return (
        f"it needs the {verb} {', '.join(names)}, which {'is' if len(names) == 1 else 'are'} not installed",
        settings.install,
    )


def address_faults(spec: RunSpec, source: str = "") -> Iterator[Fault]:
    """The addresses of a recorded spec that the user has not named."""
    tracking, strategy = spec.tracking, spec.strategy
    if isinstance(tracking, MLflow) and tracking.uri is not None and is_elsewhere(tracking.uri):
        yield Fault("tracking.uri", repr(tracking.uri), _RULE, address_remedy(MLFLOW), source)
    if isinstance(tracking, WandB) and tracking.mode is WandbMode.ONLINE and os.environ.get(_WANDB) != "online":
        rule = "the record may come from somebody else, and this setting sends the run to Weights & Biases"
        yield Fault("tracking.mode", "'online'", rule, f"if you want that, set {_WANDB}=online", source)
    if isinstance(strategy, TPU) and strategy.address not in (None, "local", *map(os.environ.get, _TPU)):
        address = str(strategy.address)
        if not all(map(_HERE.fullmatch, address.split(","))):
            yield Fault("strategy.address", repr(address), _RULE, address_remedy(_TPU[0]), source)


def check_addresses(specs: Iterable[RunSpec], source: Path) -> None:
    """Checks that the user has named the addresses of recorded specs.

    Raises:
        ConfigError: one is not named.
    """
    if found := list(dict.fromkeys(fault for spec in specs for fault in address_faults(spec, str(source)))):
        raise ConfigError(found)


def storage_faults(storage: str | None) -> Iterator[Fault]:
    """The address of the database of a recorded search, if the user has not named it.

    Args:
        storage: a URL or a path of a file, as Optuna takes it.
    """
    if storage is not None and scheme_of(storage) not in _FILES and storage != os.environ.get(_OPTUNA):
        yield Fault("hydra.sweeper.storage", repr(storage), _RULE, address_remedy(_OPTUNA))


def is_elsewhere(uri: str) -> bool:
    """Whether a recorded store of MLflow is on another machine, and not the one that the user has named."""
    if uri.rstrip("/") == os.environ.get(MLFLOW, "").rstrip("/"):
        return False
    return scheme_of(uri) not in _FILES and _HERE.fullmatch(uri) is None


def address_remedy(variable: str) -> str:
    """What to do about an address."""
    return f"if you trust that address, set the environment variable {variable} to it"
