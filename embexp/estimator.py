"""`tf.estimator` for today's TensorFlow: the package tensorflow-estimator 2.15, made importable.

TensorFlow dropped `tf.estimator` with 2.16. Its last package still runs, but imports a few of TensorFlow's modules
that are gone too: two for distributed training and three for TPUs. `load` puts stand-ins in their place while the
package is imported, and takes them away again. What needs them (TPUEstimator, `train_and_evaluate` on a cluster) fails
when it is used; everything else is the package's own code.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import logging
import os
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from embexp.errors import RunError

_PACKAGE = "tensorflow_estimator"
_REMEDY = "install it with: pip install 'embexp[estimator]'"
_loading = threading.Lock()


def load() -> Any:
    """The module that was `tf.estimator` in TensorFlow 2: `Estimator`, `EstimatorSpec`, `RunConfig`, `ModeKeys`, ….

    The first call imports it, and from then on keeps the package's notes on progress and on its own deprecation off
    the terminal; errors still get there.

    Raises:
        RunError: the package tensorflow-estimator is missing, or can't be imported under this TensorFlow.
    """
    with _loading:
        return _loaded()


@functools.cache
def _loaded() -> Any:
    if importlib.util.find_spec(_PACKAGE) is None:
        raise RunError(f"the package tensorflow-estimator is not installed; {_REMEDY}")
    with _stand_ins():
        try:
            module = importlib.import_module(f"{_PACKAGE}._api.v2.estimator")
        except ImportError as error:
            raise RunError(
                f"the package tensorflow-estimator can't be imported ({error}): another version than 2.15.0? {_REMEDY}"
            ) from error
    logging.getLogger("tensorflow").addFilter(_not_of_the_estimator)
    return module


@contextmanager
def _stand_ins() -> Iterator[None]:
    """Puts modules that TensorFlow no longer has where the package looks for them, for as long as the block lasts."""
    modules = [
        _StandIn(
            "tensorflow.python.distribute.estimator_training",
            # What the real ones do outside a cluster.
            init_run_config=lambda config, train_distribute, eval_distribute: None,
            should_run_distribute_coordinator=lambda config: False,
        ),
        _StandIn("tensorflow.python.tpu.tpu_embedding"),
        _StandIn("tensorflow.python.tpu.tpu_embedding_gradient"),
        _StandIn("tensorflow.python.tpu.session_support"),
        # The real one writes names into a table of TensorFlow's that no longer knows this package.
        _StandIn(f"{_PACKAGE}.python.estimator.estimator_export", estimator_export=_unchanged),
    ]
    added = {module.__name__: module for module in modules if module.__name__ not in sys.modules}
    sys.modules.update(added)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of code that is no longer looked after
            yield
    finally:
        for name in added:
            del sys.modules[name]


class _StandIn(ModuleType):
    """A module in which every name is an empty class, so that annotations and base classes can be read."""

    def __init__(self, name: str, **members: Any) -> None:
        super().__init__(name)
        self.__dict__.update(members)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def _unchanged(*names: str, **more: Any) -> Any:
    return lambda exported: exported


def _not_of_the_estimator(record: logging.LogRecord) -> bool:
    """False for what is not an error and speaks of the estimator's own code, or of old code that only it calls."""
    if record.levelno >= logging.ERROR:
        return True
    if record.pathname.endswith("deprecation.py"):
        # Such a note begins with the place of the call.
        return not any(folder in record.getMessage() for folder in (_PACKAGE, os.path.join("python", "training")))
    return _PACKAGE not in record.pathname
