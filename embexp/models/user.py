"""The user's own model: the only module that imports and calls code named by a config.

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

import importlib
import inspect
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import keras
import tensorflow as tf

from embexp.errors import ConfigError, Fault
from embexp.models import user_code
from embexp.system import digests

_IMPORTED: dict[str, str] = {}
"""Digest of each of the user's files when a run imported it, by module."""


def build(
    function: str, args: Mapping[str, Any], *, activations: Mapping[str, Any], seed: int, outputs: int = 1
) -> keras.Model:
    """Imports `function`, calls it and checks the returned model.

    Args:
        function: `package.module:function`, which the caller has checked to be one that may be run. The working
            directory is put last on `sys.path`, so that no file there hides a module.
        seed: the run's seed.
        outputs: logits per example; more than one is passed to the function as `classes`.

    Returns:
        The function's model, with all its variables.

    Raises:
        ConfigError: there is no such module or function, it does not take these arguments, it raises an exception, or
            it does not return a Keras model that takes these inputs and returns so many logits per example.
    """
    loaded = _load(function)
    if outputs > 1:
        args = {"classes": outputs, **args}
    _check_arguments(loaded, function, args, activations)
    # Initializers without their own seed draw from the global ones: without this, no two runs would start alike.
    keras.utils.set_random_seed(digests.seed_of(seed, "model", "function")[0])
    try:
        model = loaded(dict(activations), **args)
    except Exception as error:
        raise _fault(function, f"it raised {_described(error)}") from error
    if not isinstance(model, keras.Model):
        raise _fault(
            function,
            f"it must return a keras.Model, but returned {_kind(model)}",
            "return keras.Model(inputs=activations, outputs=logits)",
        )
    _check_output(function, _output(model, function, activations), outputs)
    return model


def _load(function: str) -> Callable[..., Any]:
    module_name, _, name = function.partition(":")
    if found := user_code.faults_of_function(function):
        raise ConfigError(found)
    sys.path[:] = user_code.search_path()
    importlib.invalidate_caches()
    _forget_changed(function)
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise _fault(function, f"importing {module_name!r} raised {_described(error)}") from error
    loaded = getattr(module, name, None)
    if loaded is None:
        raise _fault(function, f"module {module_name!r} has no {name!r}")
    if not callable(loaded):
        raise _fault(function, f"it must be a function, but is {_kind(loaded)}")
    return loaded  # type: ignore[no-any-return]


def _forget_changed(function: str) -> None:
    """Has modules imported again of which a file has changed since a run imported them, as in a notebook.

    Otherwise a run would use other code than it records.
    """
    files = user_code.read_user_code(function).files
    if any(_IMPORTED.get(name, file.digest) != file.digest for name, file in files.items()):
        for name in files:
            sys.modules.pop(name, None)
    _IMPORTED.update({name: file.digest for name, file in files.items()})


def _check_arguments(
    loaded: Callable[..., Any], function: str, args: Mapping[str, Any], activations: Mapping[str, Any]
) -> None:
    """Checks arguments before the call, so that a TypeError inside the function is not mistaken for wrong ones."""
    try:
        signature = inspect.signature(loaded)
    except (TypeError, ValueError):  # compiled functions may have no signature
        return
    try:
        signature.bind(activations, **args)
    except TypeError as error:
        raise ConfigError(
            [
                Fault(
                    "model.args",
                    repr(dict(args)),
                    f"{function} is called as function(activations, **args), which does not fit its signature "
                    f"{signature}: {error}",
                )
            ]
        ) from error


def _output(model: keras.Model, function: str, activations: Mapping[str, Any]) -> Any:
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
            raise _fault(
                function,
                f"its model must take a dict of {', '.join(activations)}, but calling it so raised {_described(error)}",
                "build it with keras.Model(inputs=activations, outputs=logits), unused inputs included",
            ) from error


def _check_output(function: str, output: Any, outputs: int) -> None:
    if not isinstance(output, tf.TensorSpec | tf.Tensor):
        raise _fault(function, f"its model must return one tensor of logits, but returns {_kind(output)}")
    shape = output.shape
    fits = (shape.rank == 2 and shape[1] == outputs) or (shape.rank == 1 and outputs == 1)
    if not fits:
        found = ", ".join("B" if axis == 0 else str(size) for axis, size in enumerate(shape))
        wanted = "[B] or [B, 1]" if outputs == 1 else f"[B, {outputs}], one per class"
        raise _fault(function, f"its model must return logits of shape {wanted}, but returns [{found}]")
    if not output.dtype.is_floating:
        raise _fault(function, f"its model must return floating-point logits, but returns {output.dtype.name}")


def _fault(function: str, rule: str, remedy: str = "") -> ConfigError:
    return ConfigError([Fault("model.function", repr(function), rule, remedy)])


def _described(error: BaseException) -> str:
    """Type, message and the innermost line of the user's code, since a fault is shown without a stack trace."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename != __file__ and "site-packages" not in frame.filename]
    location = f" ({own[-1].filename}:{own[-1].lineno})" if own else ""
    # Keras puts colours and a list of all arguments around the message of an exception inside a layer.
    message = re.sub(r"\x1b\[\d+m", "", str(error)).partition("\n\nArguments received")[0]
    message = re.sub(r"^Exception encountered when calling [^\n]*\n\n", "", message)
    return f"{type(error).__name__}: {' '.join(message.split())}{location}"


def _kind(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
