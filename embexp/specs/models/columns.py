"""Models of tables of columns: categories, lists and numbers of an example together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from embexp.errors import Fault
from embexp.specs.base import Fraction
from embexp.specs.models.dense_model import Activation, DenseModel, Shapes, Widths, length_faults, vector_faults

if TYPE_CHECKING:
    from embexp.specs.run import RunSpec


class MLP(DenseModel):
    """All activations and dense features, concatenated, through hidden layers to the logit."""

    kind: Literal["mlp"] = "mlp"
    implementation = "embexp.models.build:mlp"
    hidden: Widths = (64,)
    activation: Activation = Activation.RELU
    dropout: Fraction = 0.0

    @property
    def hidden_widths(self) -> dict[str, Sequence[int]]:
        """Its hidden layers."""
        return {"model.hidden": self.hidden}

    def input_faults(self, shapes: Shapes, dense_width: int, classes: bool = False) -> Iterator[Fault]:
        """Sequences of unknown length."""
        return length_faults(self.kind, shapes)


class DLRM(DenseModel):
    """Bottom MLP of the dense features, pairwise dot products of all vectors, top MLP (Naumov et al. 2019)."""

    kind: Literal["dlrm"] = "dlrm"
    implementation = "embexp.models.recommendation:dlrm"
    bottom: Widths = (64,)
    """Hidden widths of the bottom MLP; a last layer of the embeddings' dim is added. None without dense features."""
    top: Widths = (64, 32)
    activation: Activation = Activation.RELU
    dropout: Fraction = 0.0
    concat: bool = False
    """Also give the top MLP the embeddings, in addition to their dot products."""

    @property
    def hidden_widths(self) -> dict[str, Sequence[int]]:
        """Those of both MLPs."""
        return {"model.bottom": self.bottom, "model.top": self.top}

    def input_faults(self, shapes: Shapes, dense_width: int, classes: bool = False) -> Iterator[Fault]:
        """Features that are not vectors of one dim, and a single vector, which interacts with none."""
        yield from vector_faults("dlrm", shapes)
        if len(shapes) + bool(dense_width) < 2:
            rule = "it needs two vectors that interact: two features, or one feature and dense features"
            yield Fault("model", "dlrm of a single vector", rule, "add a feature, or take model=mlp")

    def inert(self, spec: RunSpec) -> Iterator[str]:
        """The bottom MLP without dense features."""
        if not spec.data.dense_columns:
            yield "model.bottom: there are no dense features"
