"""The factory of models, from a model's description to a Keras model; the multi-layer perceptron is here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, assert_never

import keras

from embexp.errors import ConfigError
from embexp.models import layers, user
from embexp.models import shapes as rules
from embexp.models.dlrm import dlrm
from embexp.models.knowledge_graph import Regularization, complex_product, distmult, rotate, transe
from embexp.models.recommendation import dot, matrix_factorization, two_tower
from embexp.models.shapes import DENSE, Shapes
from embexp.models.texts import bag_of_words, text_cnn
from embexp.specs.data import CANDIDATES
from embexp.specs.models import (
    DLRM,
    MLP,
    Activation,
    BagOfWords,
    ComplEx,
    DistMult,
    Dot,
    KerasModel,
    KnowledgeGraph,
    MatrixFactorization,
    Model,
    RotatE,
    TextCNN,
    TransE,
    TwoTower,
)
from embexp.system.user_code import NamedFunction


def build(
    model: Model, *, shapes: Shapes, dense_width: int, output_bias: float, seed: int, outputs: int = 1
) -> keras.Model:
    """Builds the dense part of a run, with all its variables.

    Args:
        shapes: by feature name, the shape of its activations without the batch: (dim,) or (L, dim).
        dense_width: number of dense features; 0 for none.
        output_bias: initial bias of each logit, such as the mean label or its log odds. A user's own
            model does not get it.
        seed: the run's seed. Initial values depend only on it and on layer names.
        outputs: logits per example: 1, or the number of classes.

    Returns:
        A Keras model that takes a dict of float32 tensors: by feature name [B, dim] or [B, L, dim], and
        [B, dense_width] under `embexp.models.shapes.DENSE` if there are dense features. It returns logits, float32
        [B, outputs] (a user's own may return [B] if `outputs` is 1). A model of knowledge graphs takes candidates
        [1, C, dim] or [B, C, dim], for any C, and returns their scores [B, C]. A model of recommendation returns two:
        vectors of users [B, d] and of items [N, d].

    Raises:
        ConfigError: the model can't take these inputs, or the user's function fails.
    """
    if found := rules.faults(model, shapes=shapes, dense_width=dense_width, classes=outputs > 1):
        raise ConfigError(found)
    if isinstance(model, KnowledgeGraph):
        shapes = {**shapes, CANDIDATES: (None, *shapes[CANDIDATES])}
    activations = _symbolic(shapes, dense_width)
    match model:
        case Dot():
            logits = dot(activations, left=model.left, right=model.right, biases=model.biases, output_bias=output_bias)
        case MLP() | DLRM() | BagOfWords() | TextCNN():
            hidden = _hidden(model, activations, seed)
            max_norm = model.max_norm if isinstance(model, TextCNN) else None
            logits = layers.logits(hidden, outputs=outputs, bias=output_bias, seed=seed, max_norm=max_norm)
        case TransE() | DistMult() | ComplEx() | RotatE():
            logits = _scores(model, activations, seed)
        case MatrixFactorization():
            logits = matrix_factorization(
                activations,
                user_features=model.user_features,
                item_features=model.item_features,
                item_biases=model.item_biases,
            )
        case TwoTower():
            logits = two_tower(activations, model, seed=seed)
        case KerasModel():
            function = NamedFunction("model", model.function, model.args, "activations")
            return user.build(function, activations=activations, seed=seed, outputs=outputs)
        case _:
            assert_never(model)
    return keras.Model(inputs=activations, outputs=logits, name=model.kind)


def standardized(model: keras.Model, *, shapes: Shapes, dense_width: int, mean: float, deviation: float) -> keras.Model:
    """A model of labels from one of standardised labels: its logits times `deviation`, plus `mean`.

    Args:
        model: as `build` returns it, for the same `shapes` and `dense_width`.
        shapes: see `build`.
        dense_width: see `build`.
        deviation: of the labels, in their unit.
    """
    activations = _symbolic(shapes, dense_width)
    logits = layers.Rescaled(mean, deviation, name="head.rescaled")(model(activations))
    return keras.Model(inputs=activations, outputs=logits, name=model.name)


def inputs(activations: Mapping[str, Any], dense: Any) -> dict[str, Any]:
    """The inputs of a model's call: activations by feature name, and `dense` [B, n] under `DENSE` if n > 0."""
    return {**activations, DENSE: dense} if dense.shape[-1] else dict(activations)


def random_state(model: keras.Model) -> list[Any]:
    """The `tf.Variable`s that hold the state of the model's random generators, such as those of dropout.

    `tf.train.Checkpoint(model=model)` does not save them, as they are not weights of the layers: a checkpoint
    from which training continues bit for bit must hold them too.
    """
    weights = {id(variable) for variable in model.weights}
    return [variable.value for variable in model.variables if id(variable) not in weights]


def _hidden(model: MLP | DLRM | BagOfWords | TextCNN, activations: Mapping[str, Any], seed: int) -> Any:
    """Input of the last, linear layer, [B, n]."""
    dropout = model.dropout
    match model:
        case MLP():
            return _mlp(activations, widths=model.hidden, activation=model.activation, dropout=dropout, seed=seed)
        case DLRM():
            return dlrm(
                activations,
                bottom=model.bottom,
                top=model.top,
                activation=model.activation,
                dropout=dropout,
                concat=model.concat,
                seed=seed,
            )
        case BagOfWords():
            return bag_of_words(activations, dropout=dropout, seed=seed)
        case TextCNN():
            return text_cnn(activations, widths=model.widths, maps=model.maps, dropout=dropout, seed=seed)


def _scores(model: KnowledgeGraph, activations: Mapping[str, Any], seed: int) -> Any:
    """Scores of the candidates, [B, C]."""
    regularization = Regularization(dropout=model.dropout, n3=model.n3, l2=model.l2)
    match model:
        case TransE():
            return transe(activations, regularization, norm=model.norm, margin=model.margin, seed=seed)
        case DistMult():
            return distmult(activations, regularization, seed=seed)
        case ComplEx():
            return complex_product(activations, regularization, seed=seed)
        case RotatE():
            return rotate(activations, regularization, margin=model.margin, seed=seed)


def _symbolic(shapes: Shapes, dense_width: int) -> dict[str, Any]:
    named = {name: tuple(shape) for name, shape in shapes.items()}
    if dense_width:
        named[DENSE] = (dense_width,)
    return {name: keras.Input(shape=named[name], dtype="float32", name=name) for name in sorted(named)}


def _mlp(
    activations: Mapping[str, Any],
    *,
    widths: Sequence[int],
    activation: Activation,
    dropout: float,
    seed: int,
) -> Any:
    """A multi-layer perceptron of all inputs.

    Args:
        activations: symbolic tensors [B, dim] or [B, L, dim], the latter flattened. They are concatenated in the
            order of their names, so that the order of the config's features does not matter.
        widths: units of the hidden layers.
        dropout: fraction of the hidden units that is dropped in training.
        seed: the run's seed.

    Returns:
        Input of the linear layer that gives the logits, [B, n].
    """
    x = layers.concatenated([activations[name] for name in sorted(activations)], name="mlp.inputs")
    return layers.hidden(x, widths, activation=activation, dropout=dropout, seed=seed, name="hidden")
