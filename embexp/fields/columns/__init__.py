"""Tables of columns: labels that are numbers, 0 and 1, or classes."""

from embexp.specs.fields import Field

_TASKS = "embexp.fields.columns.tasks"
FIELD = Field(
    name="columns",
    described="examples with labels: numbers, clicks, classes",
    tasks={
        "regression": f"{_TASKS}:REGRESSION",
        "binary": f"{_TASKS}:BINARY",
        "classification": f"{_TASKS}:CLASSIFICATION",
    },
)
