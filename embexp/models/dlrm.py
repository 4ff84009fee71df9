"""The deep learning recommendation model: dense features and embeddings interact by pairwise dot products."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras

from embexp.models import layers
from embexp.models.pair_products import pair_products
from embexp.models.shapes import DENSE
from embexp.specs.models import Activation


def dlrm(
    activations: Mapping[str, Any],
    *,
    bottom: Sequence[int],
    top: Sequence[int],
    activation: Activation,
    dropout: float,
    concat: bool,
    seed: int,
) -> Any:
    """Naumov et al.: "Deep Learning Recommendation Model for Personalization and Recommendation Systems" (2019), §2.

    The bottom MLP maps the dense features to the embeddings' dim d. The dot products of all pairs of vectors (bottom
    output and embeddings, each pair once, none with itself) and the bottom output are the input of the top MLP.

    Args:
        activations: symbolic tensors [B, d] by feature, and [B, n] under `DENSE` if there are dense features;
            without these there is no bottom MLP. Features are taken in the order of their names.
        bottom: hidden units of the bottom MLP; a last layer of d units is added.
        top: hidden units of the top MLP.
        activation: non-linearity of all hidden layers and of the bottom's last one.
        dropout: fraction of the top MLP's hidden units that is dropped in training.
        concat: the top MLP's input includes the embeddings, between the bottom output and the products.
        seed: the run's seed.

    Returns:
        Input of the linear layer that gives the logits, [B, n].
    """
    embeddings = [activations[name] for name in sorted(activations) if name != DENSE]
    processed = []
    if DENSE in activations:
        widths = (*bottom, embeddings[0].shape[-1])
        processed = [
            layers.hidden(activations[DENSE], widths, activation=activation, dropout=0.0, seed=seed, name="bottom")
        ]
    vectors = [*processed, *embeddings]
    x = PairwiseDots(len(vectors if concat else processed), name="interactions.dots")(vectors)
    return layers.hidden(x, top, activation=activation, dropout=dropout, seed=seed, name="top")


class PairwiseDots(keras.layers.Layer):  # type: ignore[misc]  # Keras is untyped
    """The first of F vectors, and the dot products of each pair once: F times [B, d] -> [B, lead·d + F(F-1)/2].

    Pairs come in the order (0, 1), (0, 2), …, (1, 2), …
    """

    def __init__(self, lead: int = 0, **kwargs: Any) -> None:
        """Takes the number of vectors that come first, themselves."""
        super().__init__(**kwargs)
        self._lead = lead

    def get_config(self) -> dict[str, Any]:
        """What makes the layer again."""
        return {**super().get_config(), "lead": self._lead}

    def call(self, vectors: list[Any], training: bool | None = None) -> Any:
        """Computes the upper triangle, without the diagonal, of the vectors' Gram matrix."""
        return pair_products(vectors, lead=self._lead, training=bool(training))
