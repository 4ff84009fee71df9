"""Fields of use: tables of columns, recommendation, graphs and texts, each a package behind one record.

What a field of one's own is made of is public here. `Field` is light; the rest is imported when it is first used, and
none of it imports TensorFlow.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from embexp.specs.fields import Field

if TYPE_CHECKING:
    from embexp.errors import Fault
    from embexp.specs.base import Choice, Spec
    from embexp.specs.data import CSV, Columnar, DividedData, Parquet
    from embexp.specs.models import Activation, DenseModel
    from embexp.specs.studies import StudyChoice
    from embexp.specs.tasks import Compared, Direction, Labels, Metric, Task

__all__ = [
    "CSV",
    "Activation",
    "Choice",
    "Columnar",
    "Compared",
    "DenseModel",
    "Direction",
    "DividedData",
    "Fault",
    "Field",
    "Labels",
    "Metric",
    "Parquet",
    "Spec",
    "StudyChoice",
    "Task",
]

_LATER = {
    name: f"embexp.{module}"
    for module, names in {
        "errors": ("Fault",),
        "specs.base": ("Choice", "Spec"),
        "specs.data": ("CSV", "Columnar", "DividedData", "Parquet"),
        "specs.models": ("Activation", "DenseModel"),
        "specs.studies": ("StudyChoice",),
        "specs.tasks": ("Compared", "Direction", "Labels", "Metric", "Task"),
    }.items()
    for name in names
}


def __getattr__(name: str) -> Any:
    """Imports a public name's module when the name is first used."""
    if name in _LATER:
        return getattr(importlib.import_module(_LATER[name]), name)
    raise AttributeError(f"module 'embexp.fields' has no attribute {name!r}")
