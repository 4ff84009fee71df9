"""From a model's description to a Keras model; the multi-layer perceptron and the user's own model are here."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from embexp.errors import ConfigError
from embexp.specs.base import implementation
from embexp.specs.models import DENSE, MLP, KerasModel, Model, Shapes
from embexp.specs.tasks import ALL_RELATIONS
from embexp.system import digests
from embexp.system.user_code import NamedFunction, described, kind_of
from embexp.training.models import layers
from embexp.training.models.layers import Head


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
        [B, dense_width] under `embexp.specs.models.DENSE` if there are dense features. It returns logits, float32
        [B, outputs] (a user's own may return [B] if `outputs` is 1). A model of candidates takes them as [1, C, dim] or
        [B, C, dim], for any C, and returns their scores [B, C]; or it returns two: vectors of users [B, d] and of items
        [N, d].

    Raises:
        ConfigError: the model can't take these inputs, or the user's function fails.
    """
    if found := list(model.input_faults(shapes, dense_width, outputs > 1)):
        raise ConfigError(found)
    activations = _symbolic(model.input_shapes(shapes), dense_width)
    made = implementation(model)(activations, Head(seed, outputs, output_bias))
    return made if isinstance(made, keras.Model) else keras.Model(inputs=activations, outputs=made, name=model.kind)


def adapted(
    model: keras.Model, *, shapes: Shapes, dense_width: int, adapters: Mapping[str, tuple[str, int]], seed: int
) -> keras.Model:
    """A model of a table's rows from one of rows times a matrix, `adapter.TABLE`, [dim, n], which is trained with it.

    Args:
        model: as `build` returns it, for the shapes that the matrices make.
        shapes: see `build`; of the rows as they are.
        dense_width: see `build`.
        adapters: by feature, the name of its table, and n; features of a table share its matrix.
        seed: the run's seed. Matrices are Glorot-uniform.
    """
    activations = _symbolic(shapes, dense_width)
    found: dict[str, Any] = {}
    for name, rows in activations.items():
        if name in adapters:
            layer, dim = f"adapter.{adapters[name][0]}", adapters[name][1]
            if layer not in found:
                initial = layers.glorot(seed, layer)
                found[layer] = keras.layers.Dense(dim, use_bias=False, kernel_initializer=initial, name=layer)
            rows = found[layer](rows)
        found[name] = rows
    vectors = {name: found[name] for name in activations}
    return keras.Model(inputs=activations, outputs=model(vectors), name=model.name)


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
    """The inputs of a model's call: activations by feature name, and `dense` [B, n] under `DENSE` if n > 0.

    All relations are none: only their prediction takes them.
    """
    taken = {name: each for name, each in activations.items() if name != ALL_RELATIONS}
    return {**taken, DENSE: dense} if dense.shape[-1] else taken


def random_state(model: keras.Model) -> list[Any]:
    """The `tf.Variable`s that hold the state of the model's random generators, such as those of dropout.

    `tf.train.Checkpoint(model=model)` does not save them, as they are not weights of the layers: a checkpoint
    from which training continues bit for bit must hold them too.
    """
    weights = {id(variable) for variable in model.weights}
    return [variable.value for variable in model.variables if id(variable) not in weights]


def _symbolic(shapes: Shapes, dense_width: int) -> dict[str, Any]:
    named = {name: tuple(shape) for name, shape in shapes.items()}
    if dense_width:
        named[DENSE] = (dense_width,)
    return {name: keras.Input(shape=named[name], dtype="float32", name=name) for name in sorted(named)}


def mlp(model: MLP, activations: Mapping[str, Any], head: Head) -> Any:
    """A multi-layer perceptron of all inputs.

    Args:
        activations: symbolic tensors [B, dim] or [B, L, dim], the latter flattened. They are concatenated in the
            order of their names, so that the order of the config's features does not matter.

    Returns:
        Logits [B, outputs].
    """
    x = layers.concatenated([activations[name] for name in sorted(activations)], name="mlp.inputs")
    x = layers.hidden(
        x, model.hidden, activation=model.activation, dropout=model.dropout, seed=head.seed, name="hidden"
    )
    return layers.logits(x, head)


def own(model: KerasModel, activations: Mapping[str, Any], head: Head) -> keras.Model:
    """The user's own model: `function(activations, **args) -> keras.Model`; for C classes, with `classes=C` too.

    - `activations` is a dict of symbolic float32 tensors (`keras.Input`): by feature name [B, dim], or [B, L, dim] for
      a sequence, and [B, n] under "dense.features" if the data has dense features.
    - The model is called with a dict of the same names and returns logits [B] or [B, 1], or [B, C]:
      `keras.Model(inputs=activations, outputs=logits)`, or a subclass whose `call` takes that dict.
    - `add_loss` and the updates of BatchNormalization take effect in training.
    - Before the call, the global seeds of Python, NumPy and TensorFlow are set from the run's seed.

    Raises:
        ConfigError: there is no such module or function, it does not take these arguments, it raises an exception, or
            it does not return a Keras model that takes these inputs and returns so many logits per example.
    """
    function, outputs = NamedFunction("model", model.function, model.args, "activations"), head.outputs
    function.load()  # before the seed is set: importing may draw
    # Initializers without their own seed draw from the global ones: without this, no two runs would start alike.
    keras.utils.set_random_seed(digests.seed_of(head.seed, "model", "function")[0])
    made = function(dict(activations), **({"classes": outputs} if outputs > 1 else {}))
    if not isinstance(made, keras.Model):
        raise function.fault(
            f"it must return a keras.Model, but returned {kind_of(made)}",
            "return keras.Model(inputs=activations, outputs=logits)",
        )
    _check_output(function, _output(made, function, activations), outputs)
    return made


def _output(model: keras.Model, function: NamedFunction, activations: Mapping[str, Any]) -> Any:
    """The model's output as a traced tensor of unknown batch size; nothing is computed."""
    inputs = {name: tf.TensorSpec(x.shape, x.dtype) for name, x in activations.items()}
    traced = tf.function(lambda x: model(x, training=False), autograph=False)
    with warnings.catch_warnings():
        # Keras only warns of missing or extra inputs, and then takes them in the wrong order.
        warnings.filterwarnings("error", message="The structure of `inputs` doesn't match", category=UserWarning)
        try:
            model(dict(activations), training=False)  # symbolic: creates the variables of a subclass
            return traced.get_concrete_function(inputs).structured_outputs
        except Exception as error:
            raise function.fault(
                f"its model must take a dict of {', '.join(activations)}, but calling it so raised {described(error)}",
                "build it with keras.Model(inputs=activations, outputs=logits), unused inputs included",
            ) from error


def _check_output(function: NamedFunction, output: Any, outputs: int) -> None:
    if not isinstance(output, tf.TensorSpec | tf.Tensor):
        raise function.fault(f"its model must return one tensor of logits, but returns {kind_of(output)}")
    shape = output.shape
    fits = (shape.rank == 2 and shape[1] == outputs) or (shape.rank == 1 and outputs == 1)
    if not fits:
        found = ", ".join("B" if axis == 0 else str(size) for axis, size in enumerate(shape))
        wanted = "[B] or [B, 1]" if outputs == 1 else f"[B, {outputs}], one per class"
        raise function.fault(f"its model must return logits of shape {wanted}, but returns [{found}]")
    if not output.dtype.is_floating:
        raise function.fault(f"its model must return floating-point logits, but returns {output.dtype.name}")
