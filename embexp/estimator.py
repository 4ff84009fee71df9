"""`tf.estimator` for today's TensorFlow: the package tensorflow-estimator 2.15, made importable.

TensorFlow removed `tf.estimator` in 2.16. Its last package still works, but imports a few modules that TensorFlow
removed too, for distributed training and TPUs. `load` substitutes stubs for them while the package is imported. What
needs them (TPUEstimator, `train_and_evaluate` on a cluster) fails when it is used; everything else is the package's own
code.
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

    The first call imports it. From then on, the package's log messages below error level are suppressed, including
    those about its deprecation.

    Raises:
        RunError: the package tensorflow-estimator is missing, or can't be imported under this TensorFlow.
    """
    with _loading:
        return _loaded()


@functools.cache
def _loaded() -> Any:
    if importlib.util.find_spec(_PACKAGE) is None:
        raise RunError(f"the package tensorflow-estimator is not installed; {_REMEDY}")
    with _stubs():
        try:
            module = importlib.import_module(f"{_PACKAGE}._api.v2.estimator")
        except ImportError as error:
            raise RunError(
                f"the package tensorflow-estimator can't be imported ({error}); is its version 2.15.0? {_REMEDY}"
            ) from error
    logging.getLogger("tensorflow").addFilter(_is_worth_logging)
    return module


@contextmanager
def _stubs() -> Iterator[None]:
    """Within the block, stubs replace the modules that TensorFlow no longer has."""
    modules = [
        _Stub(
            "tensorflow.python.distribute.estimator_training",
            # As the real functions behave outside a cluster.
            init_run_config=lambda config, train_distribute, eval_distribute: None,
            should_run_distribute_coordinator=lambda config: False,
        ),
        _Stub("tensorflow.python.tpu.tpu_embedding"),
        _Stub("tensorflow.python.tpu.tpu_embedding_gradient"),
        _Stub("tensorflow.python.tpu.session_support"),
        # The real one registers names in a table of TensorFlow that no longer has an entry for this package.
        _Stub(f"{_PACKAGE}.python.estimator.estimator_export", estimator_export=_unchanged),
    ]
    added = {module.__name__: module for module in modules if module.__name__ not in sys.modules}
    sys.modules.update(added)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the package is no longer maintained
            yield
    finally:
        for name in added:
            del sys.modules[name]


class _Stub(ModuleType):
    """A module in which every name is an empty class, so that annotations and base classes can be evaluated."""

    def __init__(self, name: str, **members: Any) -> None:
        super().__init__(name)
        self.__dict__.update(members)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def _unchanged(*names: str, **more: Any) -> Any:
    return lambda exported: exported


def _is_worth_logging(record: logging.LogRecord) -> bool:
    """False for messages below errors from the estimator's own code, or about old code that only it calls."""
    if record.levelno >= logging.ERROR:
        return True
    if record.pathname.endswith("deprecation.py"):
        # A deprecation message begins with the location of the call.
        return not any(folder in record.getMessage() for folder in (_PACKAGE, os.path.join("python", "training")))
    return _PACKAGE not in record.pathname
