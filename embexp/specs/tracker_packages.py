"""Which packages a tracker needs, without importing them."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass

from embexp.specs.tracking import MLflow, NoTracking, Tracking, WandB, in_database


@dataclass(frozen=True)
class Missing:
    """Packages that are not installed.

    Attributes:
        rule: what is missing, as in a `Fault`.
        remedy: how to install it.
    """

    rule: str
    remedy: str


def missing(settings: Tracking) -> Missing | None:
    """The packages that a tracker needs and that are not installed; None: all are.

    Args:
        settings: of the tracker.
    """
    match settings:
        case NoTracking():
            return None
        case MLflow():
            needed, remedy = {"mlflow": "mlflow-skinny"}, "pip install 'embexp[tracking]'"
            if settings.uri is None or in_database(settings.uri):
                needed |= {"sqlalchemy": "SQLAlchemy", "alembic": "alembic"}
        case WandB():
            needed, remedy = {"wandb": "wandb"}, "pip install wandb"
    names = [package for module, package in needed.items() if importlib.util.find_spec(module) is None]
    if not names:
        return None
    verb = "package" if len(names) == 1 else "packages"
    return Missing(
        f"it needs the {verb} {', '.join(names)}, and {'that is' if len(names) == 1 else 'they are'} not installed",
        remedy,
    )
