"""Keeps AutoGraph away from functions that TensorFlow traces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import tensorflow as tf

_F = TypeVar("_F", bound=Callable[..., Any])
without_autograph: Callable[[_F], _F] = tf.autograph.experimental.do_not_convert
"""Decorator of traced functions that need no rewriting: AutoGraph warns about those that it can't rewrite."""
