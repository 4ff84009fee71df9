"""Recommendation: lists of items for users, from their interactions."""

from embexp.specs.fields import Field

_HERE = "embexp.fields.recommendation"
FIELD = Field(
    name="recommendation",
    described="items for users, from interactions",
    tasks={"recommendation": f"{_HERE}.tasks:RECOMMENDATION"},
    methods={"recommend": f"{_HERE}.finished:recommend", "vectors": f"{_HERE}.finished:vectors"},
    exports={"vectors": f"{_HERE}.exporting:write_sides", "index": f"{_HERE}.exporting:write_index"},
    commands={
        "recommend": (
            "Writes the best items for each user, by a finished run of task recommendation.",
            f"{_HERE}.command:COMMAND",
        )
    },
)
