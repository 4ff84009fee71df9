"""Tables of columns: labels that are numbers, 0 and 1, or classes."""

from embexp.specs.fields import Field

_TASKS, _SPECS = "embexp.fields.columns.tasks", "embexp.fields.columns.specs"
FIELD = Field(
    name="columns",
    described="examples with labels: numbers, clicks, classes",
    tasks={
        "regression": f"{_TASKS}:REGRESSION",
        "binary": f"{_TASKS}:BINARY",
        "classification": f"{_TASKS}:CLASSIFICATION",
    },
    models={
        "dot": f"{_SPECS}:Dot",
        "dlrm": f"{_SPECS}:DLRM",
        "fm": f"{_SPECS}:FM",
        "deepfm": f"{_SPECS}:DeepFM",
        "dcn_v2": f"{_SPECS}:DCNv2",
    },
    first_experiment="embexp.fields.columns.first_experiment:lines",
)
