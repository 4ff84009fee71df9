"""A `tf.compat.v1.train.Scaffold` that fills variables, for `MonitoredTrainingSession` and `EstimatorSpec`.

A variable's collection decides when it is filled:

* GLOBAL_VARIABLES, the default: it is filled when a session starts without a checkpoint. Checkpoints hold it, so it is
  not filled after a restore.
* LOCAL_VARIABLES, for a frozen table: no checkpoint holds it, and every new session fills it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import resources

from embexp.initialization import placeholder_feed
from embexp.initialization.method import Fills, InitMethod, Pairs, SessionFills, mapped, pairs
from embexp.specs.inits import Scaffold
from embexp.system.arrays import Rows

_v1 = tf.compat.v1

InitFn = Callable[[Any, Any], object]
"""`init_fn(scaffold, session)`, as `tf.compat.v1.train.Scaffold` takes it."""


def method(init: Scaffold, path: str) -> InitMethod:
    """`init=scaffold`: in sessions only, depending on the variable's collection."""

    def in_session(variables: Pairs, fills: SessionFills, always: bool) -> None:
        fills.scaffold.extend(variables)

    return InitMethod(in_session=in_session)


def scaffold(fills: Fills, *, init_fn: InitFn | None = None, saver: Any = None, **kwargs: Any) -> Any:
    """A `tf.compat.v1.train.Scaffold` that fills variables of the current graph.

    `init_op` excludes them, because it would first fill separate memory with their initial values. It covers every
    other variable that exists when the session is created, including variables created after this call.

    Args:
        fills: variables with their values, see `Source`. A partitioned variable stands for all its parts.
        init_fn: `init_fn(scaffold, session)` is called after the variables are filled, where no checkpoint is restored.
        saver: as in Scaffold; None: a saver of all GLOBAL_VARIABLES.
        **kwargs: other arguments of Scaffold, except `copy_from_scaffold`. Your `init_op` replaces the one above; your
            `local_init_op` and `local_init_feed_dict` are added.

    Raises:
        DataError: a file is missing, or is not a file of vectors.
        ValueError: a source doesn't have its variable's shape; a variable has another type or is in neither collection.
    """
    if "copy_from_scaffold" in kwargs:
        raise ValueError(
            "copy_from_scaffold is not supported: pass its parts, or copy the scaffold that this function returns"
        )
    checked = pairs(fills)
    for variable, _ in checked:
        if not (_among(variable, _v1.global_variables()) or _among(variable, _v1.local_variables())):
            raise ValueError(
                f"variable {variable.name!r} is in neither GLOBAL_VARIABLES nor LOCAL_VARIABLES of this graph, "
                f"so a scaffold can't know when to fill it"
            )
    lasting = [(variable, rows) for variable, rows in checked if _among(variable, _v1.global_variables())]
    passing = [(variable, rows) for variable, rows in checked if not _among(variable, _v1.global_variables())]
    return _Filling(lasting, passing, init_fn=init_fn, saver=saver, **kwargs)


class _Filling(tf.compat.v1.train.Scaffold):  # type: ignore[misc]  # TensorFlow is untyped
    """Scaffold's defaults without some variables; made late, when all variables exist."""

    def __init__(
        self,
        lasting: Sequence[tuple[Any, Rows]],
        passing: Sequence[tuple[Any, Rows]],
        *,
        init_fn: InitFn | None,
        local_init_op: Any = None,
        local_init_feed_dict: dict[Any, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        def filled(this: Any, session: Any) -> None:
            placeholder_feed.fill(session, lasting)
            if init_fn is not None:
                init_fn(this, session)

        feeds = {variable.initial_value: mapped(rows) for variable, rows in passing}
        super().__init__(init_fn=filled, local_init_feed_dict={**feeds, **(local_init_feed_dict or {})}, **kwargs)
        self._users_local_init_op = local_init_op
        self._lasting = [variable for variable, _ in lasting]
        self._passing = [variable for variable, _ in passing]
        self._finalized = False

    @property
    def init_op(self) -> Any:
        """Initializes the global variables that are not filled; until finalized, those that exist now."""
        return self._init_op if self._init_op is not None else self._default_init_op()

    @property
    def local_init_op(self) -> Any:
        """Initializes local variables, some from feeds; until finalized, those that exist now."""
        return self._local_init_op if self._finalized else self._made_local_init_op()

    def finalize(self) -> Any:
        """Creates operations if needed and finalizes the graph."""
        if not self._finalized:
            self._init_op, self._local_init_op, self._finalized = self.init_op, self.local_init_op, True
        return super().finalize()

    def _default_init_op(self) -> Any:
        others = [variable for variable in _v1.global_variables() if not _among(variable, self._lasting)]
        return tf.group(
            _v1.variables_initializer(others),
            resources.initialize_resources(resources.shared_resources()),
            _v1.get_collection("saved_model_initializers"),
        )

    def _made_local_init_op(self) -> Any:
        if self._users_local_init_op is not None:
            return tf.group(self._users_local_init_op, _v1.variables_initializer(self._passing))
        # Filled variables are initialized too: the feeds replace their initial values.
        return _v1.train.Scaffold.default_local_init_op()


def _among(variable: Any, variables: Sequence[Any]) -> bool:
    # Not `in`: where eager execution is on, variables compare their values.
    return any(variable is each for each in variables)
