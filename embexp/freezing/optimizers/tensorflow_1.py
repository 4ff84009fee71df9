"""An optimizer of `tf.compat.v1.train` with frozen rows: in a graph, in an Estimator's `model_fn`, and eagerly.

Where an optimizer is known to touch only the rows of a sparse gradient, frozen rows are left out of that gradient, and
the cost of a step stays that of its batch. Otherwise, the frozen rows are read before the update and put back after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from embexp.freezing.optimizers.keeping import Kept, Report, reports

_train = tf.compat.v1.train
ROW_WISE = frozenset(
    {
        _train.AdadeltaOptimizer,
        _train.AdagradOptimizer,
        _train.FtrlOptimizer,
        _train.GradientDescentOptimizer,
        _train.MomentumOptimizer,
        _train.ProximalAdagradOptimizer,
        _train.ProximalGradientDescentOptimizer,
        _train.RMSPropOptimizer,
    }
)
"""Optimizers that change only the rows of a sparse gradient, and their rows of the slots. A subclass may do more."""


class FrozenRowsOptimizer(tf.compat.v1.train.Optimizer):  # type: ignore[misc]  # TensorFlow is untyped
    """What `embexp.freeze` makes of an optimizer of TensorFlow 1; its slots are the optimizer's own."""

    def __init__(self, optimizer: Any, kept: Sequence[Kept]) -> None:
        """Takes over the optimizer's slots.

        Raises:
            ValueError: it wraps another optimizer.
        """
        for inner in vars(optimizer).values():
            if isinstance(inner, _train.Optimizer):
                raise ValueError(
                    f"embexp.freeze can't see the slots inside a {type(optimizer).__name__}: freeze the optimizer that"
                    f" it wraps, and wrap the result: {type(optimizer).__name__}(embexp.freeze(…), …)"
                )
        super().__init__(optimizer._use_locking, optimizer.get_name())
        self._optimizer, self._kept = optimizer, kept
        # So that whoever looks for slots, such as checkpoints, finds them here, too.
        self._slots, self._non_slot_dict = optimizer._slots, optimizer._non_slot_dict
        self._deferred_slot_restorations = optimizer._deferred_slot_restorations

    def report(self, values: Any = None) -> Report:
        """Which rows never moved since the first step, and why: by the name of the variable.

        Args:
            values: of a graph: the session, or a function from the name of a variable to its values, such as
                `estimator.get_variable_value`. None: the variables are eager.

        Raises:
            ValueError: no step was done, or a session is needed.
        """
        return reports(self._kept, values)

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        """The optimizer's, without the frozen rows, which so don't count for a norm."""
        pairs = self._optimizer.compute_gradients(*args, **kwargs)
        return [(self._without_frozen(gradient, variable), variable) for gradient, variable in pairs]

    def apply_gradients(
        self, grads_and_vars: Any, global_step: Any = None, name: str | None = None, **kwargs: Any
    ) -> Any:
        """The optimizer's, after which the frozen rows are as before."""
        pairs = [(self._without_frozen(gradient, variable), variable) for gradient, variable in grads_and_vars]
        trained = [variable for gradient, variable in pairs if gradient is not None]
        if trained:
            with tf.init_scope():
                self._optimizer._create_slots(trained)
        first, states = [], []
        for gradient, variable in pairs:
            kept = self._of(variable)
            if kept is None or gradient is None:
                continue
            first += kept.noted(gradient)
            if not self._is_row_wise(gradient):
                slots = [self._optimizer.get_slot(variable, slot) for slot in self._optimizer.get_slot_names()]
                rows = kept.frozen.rows
                some = [
                    variable,
                    *(slot for slot in slots if slot is not None and slot.shape.rank and slot.shape[0] == rows),
                ]
                states.append((kept, some, kept.rows_of(some)))
        with tf.control_dependencies([*first, *(rows for _, _, before in states for rows in before)]):
            done = self._optimizer.apply_gradients(pairs, global_step, name, **kwargs)
        if not states:
            return done
        with tf.control_dependencies([] if done is None else [done]):
            restored = [operation for kept, some, before in states for operation in kept.put_back(some, before)]
        if tf.executing_eagerly():
            return done
        complete = tf.group(*([] if done is None else [done]), *restored)
        operations = tf.compat.v1.get_collection_ref(tf.compat.v1.GraphKeys.TRAIN_OP)
        operations[:] = [complete if operation is done else operation for operation in operations]
        return complete

    def get_slot(self, var: Any, name: str) -> Any:
        """The optimizer's."""
        return self._optimizer.get_slot(var, name)

    def get_slot_names(self) -> list[str]:
        """The optimizer's."""
        names: list[str] = self._optimizer.get_slot_names()
        return names

    def variables(self) -> list[Any]:
        """The optimizer's."""
        variables: list[Any] = self._optimizer.variables()
        return variables

    def _of(self, variable: Any) -> Kept | None:
        return next((kept for kept in self._kept if kept.is_in(variable)), None)

    def _is_row_wise(self, gradient: Any) -> bool:
        return type(self._optimizer) in ROW_WISE and isinstance(gradient, tf.IndexedSlices)

    def _without_frozen(self, gradient: Any, variable: Any) -> Any:
        kept = self._of(variable)
        if kept is None or gradient is None:
            return gradient
        return kept.without_frozen(gradient, fewer=self._is_row_wise(gradient))
