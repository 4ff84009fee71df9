"""Functions that AutoGraph leaves as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import tensorflow as tf

_F = TypeVar("_F", bound=Callable[..., Any])
as_written: Callable[[_F], _F] = tf.autograph.experimental.do_not_convert
"""For what TensorFlow calls while it traces: AutoGraph would rewrite it, or warn that it can't."""
