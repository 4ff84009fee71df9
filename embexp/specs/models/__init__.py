"""The model of a run: the dense part, from activations by feature name to the logits of each example."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from embexp.specs.models.columns import DLRM, FM, MLP, DCNv2, DeepFM
from embexp.specs.models.dense_model import DENSE, Activation, DenseModel, KerasModel, Shapes
from embexp.specs.models.knowledge_graph import ComplEx, DistMult, KnowledgeGraph, RankingLoss, RotatE, TransE
from embexp.specs.models.recommendation import Dot, MatrixFactorization, Recommender, TwoTower
from embexp.specs.models.texts import BagOfWords, TextCNN

__all__ = [
    "DENSE",
    "DLRM",
    "FM",
    "MLP",
    "Activation",
    "BagOfWords",
    "ComplEx",
    "DCNv2",
    "DeepFM",
    "DenseModel",
    "DistMult",
    "Dot",
    "KerasModel",
    "KnowledgeGraph",
    "MatrixFactorization",
    "Model",
    "RankingLoss",
    "Recommender",
    "RotatE",
    "Shapes",
    "TextCNN",
    "TransE",
    "TwoTower",
]

Model = Annotated[
    Dot
    | MLP
    | DLRM
    | FM
    | DeepFM
    | DCNv2
    | BagOfWords
    | TextCNN
    | TransE
    | DistMult
    | ComplEx
    | RotatE
    | MatrixFactorization
    | TwoTower
    | KerasModel,
    Field(discriminator="kind"),
]
