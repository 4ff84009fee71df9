"""The tracker that a run reports to."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from embexp.errors import Fault
from embexp.specs.base import Spec

if TYPE_CHECKING:
    from embexp.specs.run import RunSpec
    from embexp.specs.scope import Scope

_DATABASES = ("sqlite", "postgresql", "mysql", "mssql")
_SCHEMES = (*_DATABASES, "file", "http", "https", "databricks")
_Text = Annotated[str, Field(min_length=1)]


class NoTracking(Spec):
    """No tracker."""

    kind: Literal["none"] = "none"


class MLflow(Spec):
    """MLflow: a run of an experiment, in a local store or on a server."""

    kind: Literal["mlflow"] = "mlflow"
    uri: _Text | None = None
    """Of the store; null: the environment variable MLFLOW_TRACKING_URI or, without it, sqlite:///mlflow.db."""
    experiment: _Text | None = None
    """Of MLflow; null: the name of the run's experiment."""
    checkpoint: bool = False
    """Store the final checkpoint as an artifact, too."""

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """A URI of a kind that MLflow does not know."""
        scheme = scheme_of(self.uri)
        if scheme not in ("", *_SCHEMES):
            rule = f"MLflow's stores are a folder or a URI that begins with {', '.join(_SCHEMES)}"
            yield Fault(
                f"{scope.path}.uri", repr(self.uri), rule, "such as sqlite:///mlflow.db or http://localhost:5000"
            )


class WandbMode(StrEnum):
    """Whether runs are sent to a server of Weights & Biases."""

    OFFLINE = "offline"
    """They stay in the folder `wandb`, from where `wandb sync` sends them."""
    ONLINE = "online"


class WandB(Spec):
    """Weights & Biases: a run of a project."""

    kind: Literal["wandb"] = "wandb"
    project: _Text = "embexp"
    entity: _Text | None = None
    """User or team; null: the default one of the account."""
    mode: WandbMode = WandbMode.OFFLINE
    checkpoint: bool = False
    """Store the final checkpoint as an artifact, too."""


Tracking = Annotated[NoTracking | MLflow | WandB, Field(discriminator="kind")]


def scheme_of(uri: str | None) -> str:
    """The scheme of a store's URI, without a database's driver; "" for a folder or none.

    Args:
        uri: such as `sqlite:///mlflow.db`, `mysql+pymysql://host/name` or `./mlruns`.
    """
    found = re.match(r"([A-Za-z][A-Za-z0-9.\-]*)(\+[A-Za-z0-9_.\-]+)?:", uri or "")
    return found[1].lower() if found else "databricks" if uri == "databricks" else ""


def in_database(uri: str | None) -> bool:
    """Whether a store is a database of this process, which needs SQLAlchemy."""
    return scheme_of(uri) in _DATABASES
