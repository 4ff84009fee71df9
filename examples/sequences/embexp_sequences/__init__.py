"""Sequential recommendation: the next item of users, from what they had before; a field of embexp."""

from embexp.fields import Field

_HERE = "embexp_sequences"
FIELD = Field(
    name="sequences",
    described="the next item of users, from their histories",
    tasks={"next_item": f"{_HERE}.tasks:NEXT_ITEM"},
    data={"sequences": f"{_HERE}.specs:Sequences"},
    models={"sasrec": f"{_HERE}.specs:SASRec"},
    configs="conf",
    methods={"next_items": f"{_HERE}.next_items:next_items"},
)
