"""The user's own model.

The function's signature is `function(activations, **model.args) -> keras.Model`, and for task classification with C
classes `function(activations, classes=C, **model.args) -> keras.Model`:

- `activations` is a dict of symbolic float32 tensors (`keras.Input`): by feature name [B, dim], or [B, L, dim] for a
  sequence, and [B, n] under "dense.features" if the data has dense features.
- The model is called with a dict of the same names and returns logits [B] or [B, 1], or [B, C]:
  `keras.Model(inputs=activations, outputs=logits)`, or a subclass whose `call` takes that dict.
- `add_loss` and the updates of BatchNormalization take effect in training.
- Before the call, the global seeds of Python, NumPy and TensorFlow are set from the run's seed.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from embexp.system import digests
from embexp.system.user_code import NamedFunction, described, kind_of


def build(function: NamedFunction, *, activations: Mapping[str, Any], seed: int, outputs: int = 1) -> keras.Model:
    """Imports the function, calls it and checks the returned model.

    Args:
        seed: the run's seed.
        outputs: logits per example; more than one is passed to the function as `classes`.

    Returns:
        The function's model, with all its variables.

    Raises:
        ConfigError: there is no such module or function, it does not take these arguments, it raises an exception, or
            it does not return a Keras model that takes these inputs and returns so many logits per example.
    """
    function.load()  # before the seed is set: importing may draw
    # Initializers without their own seed draw from the global ones: without this, no two runs would start alike.
    keras.utils.set_random_seed(digests.seed_of(seed, "model", "function")[0])
    model = function(dict(activations), **({"classes": outputs} if outputs > 1 else {}))
    if not isinstance(model, keras.Model):
        raise function.fault(
            f"it must return a keras.Model, but returned {kind_of(model)}",
            "return keras.Model(inputs=activations, outputs=logits)",
        )
    _check_output(function, _output(model, function, activations), outputs)
    return model


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
