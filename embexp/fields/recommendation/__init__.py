"""Recommendation: lists of items for users, from their interactions."""

from embexp.specs.fields import Field

FIELD = Field(
    name="recommendation",
    described="items for users, from interactions",
    tasks={"recommendation": "embexp.fields.recommendation.tasks:RECOMMENDATION"},
)
