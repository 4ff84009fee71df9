"""Knowledge graphs: triples, whose heads and tails are ranked among all entities."""

from embexp.specs.fields import Field

FIELD = Field(
    name="graphs",
    described="the missing entities of triples",
    tasks={"ranking": "embexp.fields.graphs.tasks:RANKING"},
    data={"triples": "embexp.fields.graphs.specs:Triples"},
    models={
        "transe": "embexp.fields.graphs.specs:TransE",
        "distmult": "embexp.fields.graphs.specs:DistMult",
        "complex": "embexp.fields.graphs.specs:ComplEx",
        "rotate": "embexp.fields.graphs.specs:RotatE",
    },
    studies={"new_entities": "embexp.fields.graphs.specs:NewEntitiesStudy"},
    recognises="embexp.fields.graphs.first_experiment:recognised",
)
