"""Sequential recommendation, a field for embexp: predicts the next item of each user from the items before it."""

from embexp.fields import Field

FIELD = Field(
    name="sequences",
    described="the next item of users, from their histories",
    tasks={"next_item": "embexp_sequences.specs:NEXT_ITEM"},
    data={"sequences": "embexp_sequences.specs:Sequences"},
    models={"sasrec": "embexp_sequences.specs:SASRec"},
    configs="conf",
)
