"""Knowledge graphs: triples, whose heads and tails are ranked among all entities."""

from embexp.specs.fields import Field

FIELD = Field(
    name="graphs",
    described="the missing entities of triples",
    tasks={"ranking": "embexp.fields.graphs.tasks:RANKING"},
    recognises="embexp.fields.graphs.first_experiment:recognised",
)
