"""Reads optimizers from a `TPUEmbeddingConfiguration`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pydantic
from tensorflow.core.protobuf.tpu import optimization_parameters_pb2

from embexp.specs.optimizers import FTRL, SGD, Adagrad, AdagradMomentum, Adam, TableOptimizer

_NOT_ACCUMULATED = optimization_parameters_pb2.GradientAccumulationStatus.DISABLED

_SUPPORTED = {
    "learning_rate",
    "clipping_limits",
    "gradient_clipping_limits",
    "weight_decay_factor",
    "multiply_weight_decay_factor_by_learning_rate",
    "gradient_accumulation_status",
    "low_dimensional_packing_status",
}
"""Settings beside those of the rule; packing only concerns the memory layout of a TPU."""


def from_description(table: str, parameters: Any) -> TableOptimizer:
    """The row engine's optimizer for a table; its learning rate is always 1, as `learning_rate` returns the real one.

    Args:
        table: name of the table, for errors.
        parameters: `OptimizationParameters` protocol buffer.

    Raises:
        NotImplementedError: the simulation does not support a setting; names table and setting.
    """
    rule = parameters.WhichOneof("parameters")
    for field, _ in parameters.ListFields():
        if field.name not in _SUPPORTED and field.name != rule:
            raise _unsupported(table, field.name)
    shared = _shared(parameters)
    own: Any = getattr(parameters, rule) if rule else None
    if parameters.gradient_accumulation_status == _NOT_ACCUMULATED and (
        rule != "stochastic_gradient_descent" or set(shared) - {"learning_rate"}
    ):
        raise _unsupported(table, "use_gradient_accumulation=False (a row is updated once per step here)")
    try:
        match rule:
            case "stochastic_gradient_descent":
                return SGD(**shared)
            case "adagrad":
                return Adagrad(**shared)
            case "adagrad_momentum":
                return AdagradMomentum(
                    momentum=_number(own.momentum),
                    use_nesterov=own.use_nesterov,
                    exponent=_number(own.exponent),
                    beta2=_number(own.beta2),
                    epsilon=_number(own.epsilon),
                    **shared,
                )
            case "adam":
                return Adam(
                    beta_1=_number(own.beta1),
                    beta_2=_number(own.beta2),
                    epsilon=_number(own.epsilon),
                    lazy_adam=not own.use_non_lazy_adam,
                    sum_inside_sqrt=own.use_sum_inside_sqrt,
                    **shared,
                )
            case "ftrl":
                return FTRL(
                    learning_rate_power=_number(own.lr_power),
                    l1_regularization_strength=_number(own.l1),
                    l2_regularization_strength=_number(own.l2),
                    beta=_number(own.beta),
                    multiply_linear_by_learning_rate=own.multiply_linear_by_lr,
                    **shared,
                )
            case _:
                raise _unsupported(table, f"the optimizer {rule}")
    except pydantic.ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, e['loc']))} = {e['input']!r}: {e['msg']}" for e in error.errors())
        raise _unsupported(table, faults) from error


def learning_rate(parameters: Any, dynamic: list[Any]) -> Any:
    """The learning rate of one step.

    Args:
        parameters: `OptimizationParameters` protocol buffer.
        dynamic: the learning rates that are sent with the gradients.
    """
    rate = parameters.learning_rate
    return dynamic[rate.dynamic.tag] if rate.HasField("dynamic") else np.float32(rate.constant)


def _shared(parameters: Any) -> dict[str, Any]:
    shared: dict[str, Any] = {"learning_rate": 1.0}
    limits, clipping = parameters.clipping_limits, parameters.gradient_clipping_limits
    if limits.HasField("lower"):
        shared["clip_weight_min"] = _number(limits.lower.value)
    if limits.HasField("upper"):
        shared["clip_weight_max"] = _number(limits.upper.value)
    if clipping.HasField("lower") or clipping.HasField("upper"):
        low = _number(clipping.lower.value) if clipping.HasField("lower") else -_LARGEST
        high = _number(clipping.upper.value) if clipping.HasField("upper") else _LARGEST
        shared["clipvalue"] = (low, high)
    if parameters.weight_decay_factor:
        shared["weight_decay_factor"] = _number(parameters.weight_decay_factor)
        shared["multiply_weight_decay_factor_by_learning_rate"] = (
            parameters.multiply_weight_decay_factor_by_learning_rate
        )
    return shared


_LARGEST = float(np.finfo(np.float32).max)


def _number(single: float) -> float:
    """The shortest number that rounds to a float32: 0.999 and not 0.9990000128746033.

    The rules compute 1 - beta, where that difference counts.
    """
    return float(str(np.float32(single)))


def _unsupported(table: str, setting: str) -> NotImplementedError:
    return NotImplementedError(f"table {table!r}: the simulated TPU does not support {setting}")
