"""Fields of use: tables of columns, recommendation, graphs and texts, each a package behind one record.

What a field of one's own is made of is public here. `Field` is light; the rest is imported when it is first used, and
none of it imports TensorFlow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from embexp.specs.fields import Field
from embexp.system import at_first_use

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

__getattr__, __dir__ = at_first_use(
    __name__,
    {
        "embexp.errors": ("Fault",),
        "embexp.specs.base": ("Choice", "Spec"),
        "embexp.specs.data": ("CSV", "Columnar", "DividedData", "Parquet"),
        "embexp.specs.models": ("Activation", "DenseModel"),
        "embexp.specs.studies": ("StudyChoice",),
        "embexp.specs.tasks": ("Compared", "Direction", "Labels", "Metric", "Task"),
    },
)
