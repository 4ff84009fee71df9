"""Models of texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from pydantic import Field

from embexp.errors import Fault
from embexp.specs.base import Dim, Fraction, Positive, different
from embexp.specs.models.dense_model import DenseModel, Shapes, Widths, shape_text


class BagOfWords(DenseModel):
    """The mean of the vectors of each text, with dropout, through a linear layer to the logits."""

    kind: Literal["bag_of_words"] = "bag_of_words"
    implementation = "embexp.fields.texts.models:bag_of_words"
    dropout: Fraction = 0.5
    """Dropout rate of the mean."""


class TextCNN(DenseModel):
    """Convolutions over the words, the maximum of each over the text, a linear layer to the logits (Kim 2014)."""

    kind: Literal["text_cnn"] = "text_cnn"
    implementation = "embexp.fields.texts.models:text_cnn"
    widths: Annotated[
        Widths,
        Field(min_length=1),
        different("the widths must all be different; set maps for more feature maps of each width"),
    ] = (3, 4, 5)
    """Widths of the convolutions in words; one layer for each, all different."""
    maps: Dim = 100
    """Feature maps of each width."""
    dropout: Fraction = 0.5
    """Dropout rate of the maxima."""
    max_norm: Positive | None = 3.0
    """The weights of each logit are scaled down to at most this L2 norm after a step; null: no bound."""

    @property
    def hidden_widths(self) -> dict[str, Sequence[int]]:
        """The feature maps of its convolutions."""
        return {"model.maps": [self.maps for _ in self.widths]}

    def input_faults(self, shapes: Shapes, dense_width: int, classes: bool = False) -> Iterator[Fault]:
        """No sequence of words, and features of more dimensions."""
        if not any(len(shape) == 2 for shape in shapes.values()):
            rule = "it needs a sequence of words, and every feature here is one vector per example"
            remedy = "set max_sequence_length of a feature, or take model=bag_of_words"
            yield Fault("model", "text_cnn without a sequence", rule, remedy)
        for name, shape in shapes.items():
            if len(shape) > 2:
                rule = "text_cnn takes a sequence of vectors, or one vector, per feature"
                remedy = f"leave features.{name}.output_shape unset"
                yield Fault(f"features.{name}", f"activations of shape {shape_text(shape)}", rule, remedy)
