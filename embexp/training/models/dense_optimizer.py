"""Optimizers of the dense part: those of Keras, with embexp's schedules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from embexp.specs.base import implementation
from embexp.specs.optimizers import CustomDenseOptimizer, DenseAdagrad, DenseAdam, DenseOptimizer, DenseSGD
from embexp.system.user_code import NamedFunction, kind_of

Factor = Callable[[tf.Tensor], tf.Tensor]
"""From the number of the step (int64 scalar, from 0) to the factor on the learning rate (float32 scalar)."""


def build(spec: DenseOptimizer, factor: Factor | None = None) -> keras.optimizers.Optimizer:
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
    # A weight decay of 0 means none, but Keras would compute one.
    return {"learning_rate": rate, "clipnorm": spec.clipnorm, "weight_decay": spec.weight_decay or None}


def custom(spec: CustomDenseOptimizer, rate: Any) -> keras.optimizers.Optimizer:
    """The optimizer that the user's function returns; its gradients are summed over the replicas as well."""
    function = NamedFunction("dense_optimizer", spec.function, spec.args, "learning_rate")
    optimizer = function(rate)
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise function.fault(f"it must return a keras.optimizers.Optimizer, but returned {kind_of(optimizer)}")
    if optimizer.built:
        raise function.fault("its optimizer is built already", "leave out the call of build")
    theirs = type(optimizer)
    optimizer.__class__ = type(theirs.__name__, (_SummedGradients, theirs), {})
    return optimizer


class _SummedGradients:
    """Mixin of optimizers whose gradients are already summed over the replicas.

    Keras would sum them too, but only after clipping the gradients of each replica.
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

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Updates one variable by the formula at the end of section 2 of Kingma & Ba 2015, as Keras does."""
        step = tf.cast(self.iterations + 1, tf.float32)
        index = self._get_variable_index(variable)
        moments, velocities = self._momentums[index].value, self._velocities[index].value
        tf.raw_ops.ResourceApplyAdam(
            var=(variable.value if isinstance(variable, keras.Variable) else variable).handle,
            m=moments.handle,
            v=velocities.handle,
            beta1_power=tf.pow(self.beta_1, step),
            beta2_power=tf.pow(self.beta_2, step),
            lr=learning_rate,
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
        return tf.constant(self._learning_rate, tf.float32) * tf.cast(
            self._factor(tf.convert_to_tensor(step)), tf.float32
        )
