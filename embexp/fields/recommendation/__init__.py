"""Recommendation: lists of items for users, from their interactions."""

from embexp.specs.fields import Field

_HERE = "embexp.fields.recommendation"
FIELD = Field(
    name="recommendation",
    described="items for users, from interactions",
    tasks={"recommendation": f"{_HERE}.tasks:RECOMMENDATION"},
    models={
        "matrix_factorization": f"{_HERE}.specs:MatrixFactorization",
        "two_tower": f"{_HERE}.specs:TwoTower",
    },
    losses={
        "bpr": f"{_HERE}.specs:BPR",
        "sampled_softmax": f"{_HERE}.specs:SampledSoftmax",
        "cosine_contrastive": f"{_HERE}.specs:CosineContrastive",
        "softmax": f"{_HERE}.specs:Softmax",
    },
    studies={"new_items": f"{_HERE}.specs:NewItemsStudy"},
    settings={"recommendation": f"{_HERE}.specs:Recommendation"},
    methods={"recommend": f"{_HERE}.recommending:recommend", "vectors": f"{_HERE}.recommending:vectors"},
    exports={"vectors": f"{_HERE}.recommending:write_sides", "index": f"{_HERE}.recommending:write_index"},
    commands={
        "recommend": (
            "Recommends the best items for each user, from a finished run of task recommendation.",
            f"{_HERE}.command:COMMAND",
        )
    },
    first_experiment="embexp.fields.recommendation.first_experiment:lines",
)
