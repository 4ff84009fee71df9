"""The dense part of a model, from activations by feature name to one logit per example."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field

from embexp.specs.base import Count, Fraction, Spec


class Task(StrEnum):
    """What the logit means: a rating (squared error; RMSE, MAE) or a click (log loss; log loss, AUC)."""

    RATING = "rating"
    CLICK = "click"


class Activation(StrEnum):
    """Non-linearity of hidden layers."""

    RELU = "relu"
    GELU = "gelu"
    SILU = "silu"
    TANH = "tanh"


Widths = tuple[Count, ...]


class Dot(Spec):
    """Biased matrix factorisation: bias + sum of `biases` + <sum of `left`, sum of `right`> (Koren et al. 2009)."""

    kind: Literal["dot"] = "dot"
    left: Annotated[tuple[str, ...], Field(min_length=1)]
    """Features whose vectors are added up on the left, all of one dim."""
    right: Annotated[tuple[str, ...], Field(min_length=1)]
    """Features whose vectors are added up on the right, of the same dim."""
    biases: tuple[str, ...] = ()
    """Features of dim 1 that are added to the result."""


class MLP(Spec):
    """All activations and dense features side by side, through hidden layers, to the logit."""

    kind: Literal["mlp"] = "mlp"
    hidden: Widths = (64,)
    activation: Activation = Activation.RELU
    dropout: Fraction = 0.0


class DLRM(Spec):
    """Bottom MLP of the dense features, pairwise dot products of all vectors, top MLP (Naumov et al. 2019)."""

    kind: Literal["dlrm"] = "dlrm"
    bottom: Widths = (64,)
    """Hidden widths of the bottom MLP; a last layer of the embeddings' dim is added. None without dense features."""
    top: Widths = (64, 32)
    activation: Activation = Activation.RELU
    dropout: Fraction = 0.0
    concat: bool = False
    """Give the top MLP the embeddings themselves too, beside their dot products."""


class KerasModel(Spec):
    """The user's own function, which returns a `keras.Model`."""

    kind: Literal["keras"] = "keras"
    function: Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")]
    """Dotted path `package.module:function`, importable from the working directory or the environment."""
    args: dict[str, Any] = Field(default_factory=dict)
    """Passed on as keyword arguments."""


Model = Annotated[Dot | MLP | DLRM | KerasModel, Field(discriminator="kind")]
