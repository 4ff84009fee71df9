"""The dense part of a run: layers that models share, models by description, losses of labels, optimizers by name.

Every layer's name has a dot, so that none clashes with an input, which has its feature's name. Initial values are a
pure function of the run's seed and the layer's name, independent of the order of creation. The step adds the losses
that a user's model adds by `add_loss`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from embexp.errors import ConfigError
from embexp.specs.base import Choice, implementation
from embexp.specs.fields import imported
from embexp.specs.models import DENSE, MLP, Activation, CustomLoss, KerasModel, LossOfTask, Model, Shapes
from embexp.specs.optimizers import CustomDenseOptimizer, DenseAdagrad, DenseAdam, DenseOptimizer, DenseSGD
from embexp.specs.tasks import ALL_RELATIONS, Labels, Task
from embexp.system import digests, native
from embexp.system.user_code import NamedFunction, described, kind_of


def hidden(x: Any, widths: Sequence[int], *, activation: Activation, dropout: float, seed: int, name: str) -> Any:
    """Fully connected layers, each followed by its non-linearity and dropout.

    Args:
        x: symbolic tensor [B, n].
        widths: units of each layer.
        dropout: fraction of the units that is dropped in training; 0 adds no dropout layer.
        seed: the run's seed. Kernels are Glorot-uniform (Glorot & Bengio 2010), biases 0.
        name: prefix of the layers' names `name.0`, `name.1`, …

    Returns:
        Symbolic tensor [B, widths[-1]], or `x` without widths.
    """
    for number, width in enumerate(widths):
        layer = f"{name}.{number}"
        x = keras.layers.Dense(width, activation=activation.value, kernel_initializer=glorot(seed, layer), name=layer)(
            x
        )
        x = dropped(x, dropout, seed=seed, name=f"{layer}.dropout")
    return x


@dataclass(frozen=True)
class Head:
    """What a run requires of any model.

    Attributes:
        seed: the run's seed. Initial values depend only on it and on layer names.
        outputs: logits per example: 1, or the number of classes.
        bias: initial bias of each logit, such as the mean label or the log odds of a click.
    """

    seed: int
    outputs: int = 1
    bias: float = 0.0


def logits(x: Any, head: Head, *, max_norm: float | None = None) -> Any:
    """A linear layer [B, n] -> [B, outputs].

    With `max_norm`, the n weights of each output are rescaled to that L2 norm after a step in which they exceed it.
    """
    name = "head.logit"
    return keras.layers.Dense(
        head.outputs,
        kernel_initializer=glorot(head.seed, name),
        kernel_constraint=None if max_norm is None else keras.constraints.MaxNorm(max_norm, axis=0),
        bias_initializer=keras.initializers.Constant(head.bias),
        name=name,
    )(x)


class Rescaled(keras.layers.Layer):  # type: ignore[misc]  # Keras is untyped
    """`mean + deviation * x`; both are weights that are not trained, float32 [], so that checkpoints have them."""

    def __init__(self, mean: float, deviation: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        constant = keras.initializers.Constant
        self.mean = self.add_weight(shape=(), initializer=constant(mean), trainable=False, name="mean")
        self.deviation = self.add_weight(shape=(), initializer=constant(deviation), trainable=False, name="deviation")

    def call(self, inputs: Any) -> Any:
        """Takes and returns float32 of any shape."""
        return inputs * self.deviation + self.mean


def linear(x: Any, width: int, *, seed: int, name: str) -> Any:
    """A linear layer without bias [B, n] -> [B, width]."""
    return keras.layers.Dense(width, use_bias=False, kernel_initializer=glorot(seed, name), name=name)(x)


def dropped(x: Any, rate: float, *, seed: int, name: str) -> Any:
    """Dropout of `x` in training; `x` itself at a rate of 0."""
    return keras.layers.Dropout(rate, seed=_seed(seed, name), name=name)(x) if rate else x


def concatenated(tensors: Sequence[Any], *, name: str) -> Any:
    """Flattens each of `tensors` to [B, n] and concatenates them in the given order."""
    flat = [
        keras.layers.Flatten(name=f"{name}.flat.{number}")(x) if len(x.shape) > 2 else x
        for number, x in enumerate(tensors)
    ]
    return keras.layers.Concatenate(name=name)(flat) if len(flat) > 1 else flat[0]


def glorot(seed: int, layer: str) -> Any:
    """The initializer of a kernel (Glorot & Bengio 2010), which depends on the seed and the layer's name only."""
    return keras.initializers.GlorotUniform(seed=_seed(seed, layer))


def normal(seed: int, layer: str, deviation: float) -> Any:
    """An initializer of normal values around 0, which depends on the seed and the layer's name only."""
    return keras.initializers.RandomNormal(stddev=deviation, seed=_seed(seed, layer))


def _seed(seed: int, layer: str) -> int:
    return digests.seed_of(seed, "model", layer)[0]


def on_processor() -> bool:
    """Whether this is a step for a processor: of no TPU, and of no GPU."""
    return not isinstance(
        tf.distribute.get_strategy(), tf.distribute.TPUStrategy
    ) and not tf.config.list_logical_devices("GPU")


def usable(library: str) -> bool:
    """Whether a library is there, and this is a step that TensorFlow 2 traces for a processor."""
    return tf.compat.v1.executing_eagerly_outside_functions() and on_processor() and native.library(library) is not None


def same_bits(
    one: Callable[..., Any], other: Callable[..., Any], inputs: Sequence[np.ndarray], upstream: np.ndarray
) -> bool:
    """Whether two functions and their gradients agree to the last bit on a processor.

    Args:
        one: from tensors to a tensor; may refuse them.
        other: the same.
        inputs: float32.
        upstream: gradient of the result, float32.
    """
    # A thread of its own is outside of the step that is being traced, and of its gradient tape.
    with ThreadPoolExecutor(1) as thread:
        try:
            found, expected = thread.map(lambda each: _with_gradients(each, inputs, upstream), (one, other))
        except (tf.errors.InvalidArgumentError, tf.errors.UnimplementedError):
            return False
    return all(np.array_equal(a.view(np.int32), b.view(np.int32)) for a, b in zip(found, expected, strict=True))


def _with_gradients(function: Callable[..., Any], inputs: Sequence[np.ndarray], upstream: np.ndarray) -> list[Any]:
    def both(*tensors: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            result = function(*tensors)
        return [result, *tape.gradient(result, tensors, tf.constant(upstream))]

    with tf.device("CPU:0"):
        tensors = [tf.constant(each) for each in inputs]
        traced = tf.function(both, autograph=False).get_concrete_function(*tensors)  # as steps are
        return [each.numpy() for each in traced(*tensors)]


def build_model(
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
                initial = glorot(seed, layer)
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
    logits = Rescaled(mean, deviation, name="head.rescaled")(model(activations))
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
    x = concatenated([activations[name] for name in sorted(activations)], name="mlp.inputs")
    x = hidden(x, model.hidden, activation=model.activation, dropout=model.dropout, seed=head.seed, name="hidden")
    return logits(x, head)


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
    """The model's output as a traced tensor of unknown batch size. Nothing is computed."""
    inputs = {name: tf.TensorSpec(x.shape, x.dtype) for name, x in activations.items()}
    traced = tf.function(lambda x: model(x, training=False), autograph=False)
    with warnings.catch_warnings():
        # Keras only warns about missing or extra inputs, and then takes them in the wrong order.
        warnings.filterwarnings("error", message="The structure of `inputs` doesn't match", category=UserWarning)
        try:
            model(dict(activations), training=False)  # symbolic: this creates the variables of a subclass
            return traced.get_concrete_function(inputs).structured_outputs
        except Exception as error:
            raise function.fault(
                f"its model must take a dict of {', '.join(activations)}, but calling it with one raised "
                f"{described(error)}",
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


_AT_ONCE = 1 << 16
"""Number of examples of a split whose loss is computed at once."""
Loss = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
"""From labels, float32 [B], and logits, any float type [B] or [B, 1] ([B, C] for classes), to a float32 tensor."""
PairLoss = Callable[[tf.Tensor, tuple[tf.Tensor, tf.Tensor]], tf.Tensor]
"""From labels and (users, items) to a float32 scalar."""


def build_loss(loss: Choice, model: Model, task: Task, outputs: int) -> Loss | PairLoss:
    """The loss of a run.

    Args:
        outputs: number of classes, or 1.

    Raises:
        ConfigError: the user's own function can't be imported or called, or returns something else than losses.
    """
    built: Loss | PairLoss = implementation(loss)(model, task, outputs)
    return built


def of_task(loss: LossOfTask, model: Model, task: Task, outputs: int) -> Loss:
    """The loss that follows from the task and the model."""
    found: Loss = imported(task.loss)(model, task)
    return found


def of_labels(model: Model, task: Task) -> Loss:
    """The loss of labels, whatever the model."""
    return mean_loss(task)


def mean_loss(task: Task) -> Loss:
    """The loss that training minimises: the mean of `per_example(task)` over the batch, a scalar."""
    return _mean(per_example(task))


def _mean(loss: Loss) -> Loss:
    """The mean loss of the examples in a batch.

    If labels are [B, 2], their second column has weights that multiply the losses. Their mean over the training split
    is 1, see `data.example_weights`.
    """

    def mean(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        if labels.shape.rank == 2:
            return tf.reduce_mean(loss(labels[:, 0], logits) * labels[:, 1])
        return tf.reduce_mean(loss(labels, logits))

    return mean


def per_example(task: Task) -> Loss:
    """The loss of each example, [B], of a task that has labels.

    regression: (logit - label)^2. binary: -label log p - (1 - label) log(1 - p) with p = sigmoid(logit), computed from
    the logit, so that it neither overflows nor loses digits. classification: -log p[label] with p = softmax(logits),
    computed from logits [B, C]; labels are the numbers of classes.
    """
    assert task.labels is not None
    return {Labels.NUMBER: _squared_error, Labels.BINARY: _log_loss, Labels.CLASS: softmax_log_loss}[task.labels]


def custom_loss(loss: CustomLoss, model: Model, task: Task, outputs: int) -> Loss:
    """The mean over the batch of what the user's own function returns for each example, a scalar.

    The function is `function(labels, logits, **args)`. Labels are float32 [B], of classes their numbers; logits float32
    [B], or [B, C] of classes. It returns the loss of each example, floating-point [B].
    """
    function = NamedFunction("loss", loss.function, loss.args, "labels, logits")
    loaded = function.load()

    def each(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        return tf.cast(loaded(labels, _logits(labels, logits, outputs), **function.args), tf.float32)

    def check(labels: tf.Tensor, logits: tf.Tensor) -> None:
        losses = function(labels, logits)
        if not tf.is_tensor(losses) or not losses.dtype.is_floating or losses.shape.rank not in (1, None):
            found = f"{losses.dtype.name} {losses.shape}" if tf.is_tensor(losses) else kind_of(losses)
            rule = f"it must return the loss of each example, a floating-point tensor [B], but returned {found}"
            raise function.fault(rule, "remove the mean over the batch")

    shape = [None] if outputs == 1 else [None, outputs]
    specs = tf.TensorSpec([None], tf.float32), tf.TensorSpec(shape, tf.float32)
    tf.function(check, autograph=False).get_concrete_function(*specs)  # before the first step, and without its stack
    return _mean(each)


def over_split(
    function: NamedFunction, labels: np.ndarray, logits: np.ndarray, weights: np.ndarray | None = None
) -> float:
    """The mean, weighted where there are weights [N], of the user's own loss over the examples of a split.

    Args:
        function: see `custom`.
        labels: float32 [N].
        logits: float32 [N], or [N, C].
    """
    total, outputs = 0.0, 1 if logits.ndim == 1 else logits.shape[1]
    with tf.init_scope():  # an evaluation may run while the graph of a session is the current one
        for start in range(0, len(labels), _AT_ONCE):
            some = tf.constant(labels[start : start + _AT_ONCE]), tf.constant(logits[start : start + _AT_ONCE])
            each = function(some[0], _logits(*some, outputs)).numpy()
            if weights is None:
                total += float(np.sum(each, dtype=np.float64))
            else:
                total += float(np.sum(each.astype(np.float64) * weights[start : start + _AT_ONCE]))
    return total / (len(labels) if weights is None else float(weights.sum()))


def _logits(labels: tf.Tensor, logits: tf.Tensor, outputs: int) -> tf.Tensor:
    return _like(labels, logits) if outputs == 1 else tf.cast(logits, tf.float32)


def _squared_error(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    return tf.math.squared_difference(_like(labels, logits), labels)


def _log_loss(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    return tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=_like(labels, logits))


def softmax_log_loss(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """-log p[label] of each example, with p = softmax(logits)."""
    labels, logits = tf.cast(labels, tf.int32), tf.cast(logits, tf.float32)
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)


def _like(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    # [B, 1] against [B] would silently broadcast to [B, B].
    return tf.reshape(tf.cast(logits, tf.float32), tf.shape(labels))


Factor = Callable[[tf.Tensor], tf.Tensor]
"""From the number of the step (int64 scalar, from 0) to the factor on the learning rate (float32 scalar)."""


def build_optimizer(spec: DenseOptimizer, factor: Factor | None = None) -> keras.optimizers.Optimizer:
    """Creates the optimizer of the dense part.

    Args:
        spec: its kind and parameters; the schedule in it is not read.
        factor: the schedule, in TensorFlow operations; None for a constant learning rate.

    Returns:
        An optimizer that is not built yet: `optimizer.build(model.trainable_variables)` creates its variables. Weight
        decay is decoupled (w -= weight_decay * learning rate * w before the step) and acts on all variables, biases
        included.

    Raises:
        ConfigError: the user's own function can't be imported or called, or returns no optimizer of Keras.
    """
    rate = float(spec.learning_rate) if factor is None else Scheduled(spec.learning_rate, factor)
    return implementation(spec)(rate)


def sgd(spec: DenseSGD, rate: Any) -> keras.optimizers.Optimizer:
    """Keras' SGD; the rate is a number or a `Scheduled`."""
    return SGD(momentum=spec.momentum, nesterov=spec.nesterov, **_shared(spec, rate))


def adagrad(spec: DenseAdagrad, rate: Any) -> keras.optimizers.Optimizer:
    """Keras' Adagrad."""
    accumulator = spec.initial_accumulator_value
    return Adagrad(initial_accumulator_value=accumulator, epsilon=spec.epsilon, **_shared(spec, rate))


def adam(spec: DenseAdam, rate: Any) -> keras.optimizers.Optimizer:
    """Keras' Adam."""
    return Adam(beta_1=spec.beta_1, beta_2=spec.beta_2, epsilon=spec.epsilon, **_shared(spec, rate))


def _shared(spec: DenseSGD | DenseAdagrad | DenseAdam, rate: Any) -> dict[str, Any]:
    # A weight decay of 0 means none, but Keras would still compute it.
    return {"learning_rate": rate, "clipnorm": spec.clipnorm, "weight_decay": spec.weight_decay or None}


def custom_optimizer(spec: CustomDenseOptimizer, rate: Any) -> keras.optimizers.Optimizer:
    """The optimizer that the user's function returns; its gradients are summed over the replicas as well."""
    function = NamedFunction("dense_optimizer", spec.function, spec.args, "learning_rate")
    optimizer = function(rate)
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise function.fault(f"it must return a keras.optimizers.Optimizer, but returned {kind_of(optimizer)}")
    if optimizer.built:
        raise function.fault("its optimizer is already built", "remove the call of build")
    optimizer.__class__ = type(type(optimizer).__name__, (_SummedGradients, type(optimizer)), {})
    return optimizer


class _SummedGradients:
    """Mixin for optimizers whose gradients are already summed over the replicas.

    Keras would also sum them, but only after clipping the gradients of each replica.
    """

    def _all_reduce_sum_gradients(self, pairs: Any) -> Any:
        return pairs


class SGD(_SummedGradients, keras.optimizers.SGD):  # type: ignore[misc]  # Keras is untyped
    """Keras' SGD for gradients that are summed over the replicas."""


class Adagrad(_SummedGradients, keras.optimizers.Adagrad):  # type: ignore[misc]  # Keras is untyped
    """Keras' Adagrad for gradients that are summed over the replicas."""


class Adam(_SummedGradients, keras.optimizers.Adam):  # type: ignore[misc]  # Keras is untyped
    """Keras' Adam with TensorFlow's own kernel for the update: one operation instead of about fifteen per variable.

    In models as small as those on embedding tables, Keras' update would take most of a step.
    """

    def _backend_update_step(self, gradients: Any, variables: Any, learning_rate: Any) -> None:
        # The powers are the same for all variables: computed for each, they would be half of the rule's operations.
        step = tf.cast(self.iterations + 1, tf.float32)
        factors = learning_rate, tf.pow(self.beta_1, step), tf.pow(self.beta_2, step)
        super()._backend_update_step(gradients, variables, factors)

    def update_step(self, gradient: Any, variable: Any, factors: Any) -> None:
        """Updates one variable by the formula at the end of section 2 of Kingma & Ba 2015, as Keras does.

        Args:
            gradient: of the variable.
            variable: the variable.
            factors: the learning rate, and beta 1 and beta 2 to the power of the step: three scalars.
        """
        rate, power_1, power_2 = factors
        index = self._get_variable_index(variable)
        tf.raw_ops.ResourceApplyAdam(
            var=(variable.value if isinstance(variable, keras.Variable) else variable).handle,
            m=self._momentums[index].value.handle,
            v=self._velocities[index].value.handle,
            beta1_power=power_1,
            beta2_power=power_2,
            lr=rate,
            beta1=self.beta_1,
            beta2=self.beta_2,
            epsilon=self.epsilon,
            grad=gradient,
        )


class Scheduled(keras.optimizers.schedules.LearningRateSchedule):  # type: ignore[misc]  # Keras is untyped
    """`learning_rate` times a factor that depends on the step."""

    def __init__(self, learning_rate: float, factor: Factor) -> None:
        self._learning_rate = learning_rate
        self._factor = factor

    def __call__(self, step: Any) -> tf.Tensor:
        """The learning rate of a step, float32; `step` is the optimizer's counter or a tensor."""
        factor = tf.cast(self._factor(tf.convert_to_tensor(step)), tf.float32)
        return tf.constant(self._learning_rate, tf.float32) * factor
