"""Checks the arguments of the public functions, and reports a mistake in one sentence."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from embexp.errors import UsageError
from embexp.specs import fields
from embexp.specs.run import RunSpec


def a_spec(value: Any, function: str) -> RunSpec:
    """The argument `spec` of a public function.

    Raises:
        UsageError: it is none.
    """
    if isinstance(value, RunSpec):
        return value
    remedy = "embexp.compose(overrides) builds one from overrides"
    if isinstance(value, Mapping):
        remedy += ", embexp.RunSpec.model_validate(mapping) builds one from a whole config"
        if type(value).__name__ == "DictConfig":
            remedy = "embexp.spec_of(cfg) builds one from a DictConfig"
    raise UsageError(f"{function} takes a RunSpec, not {_shown(value)}; {remedy}")


def overrides(value: Any, function: str) -> list[str]:
    """The argument `overrides` of a public function.

    Raises:
        UsageError: it is no list of texts.
    """
    if isinstance(value, str):
        raise UsageError(f"{function} takes a list of overrides, not a single string: [{value!r}]")
    if isinstance(value, Mapping):
        shown = ", ".join(f"'{key}={each}'" for key, each in list(value.items())[:3])
        raise UsageError(f"{function} takes a list of overrides, not a mapping: [{shown}]")
    found = list(value) if isinstance(value, Iterable) else [value]
    texts = [each for each in found if isinstance(each, str)]
    if len(texts) < len(found) or not isinstance(value, Iterable):
        raise UsageError(f'{function} takes a list of overrides such as ["model=mlp"], not {_shown(value)}')
    return texts


def texts(value: Any, function: str, name: str) -> list[str]:
    """An argument that is a list of texts.

    Raises:
        UsageError: it is none, such as a single text.
    """
    if isinstance(value, str):
        raise UsageError(f"{function}: {name} must be a list of strings, not a single string: [{value!r}]")
    return list(items(value, str, function, name))


def allowed_code(value: Any, function: str) -> list[str]:
    """The argument `allow_code` of a public function: code that records may name, fields among it.

    Raises:
        UsageError: it is no list of texts.
    """
    found = texts(value, function, "allow_code")
    fields.allow(found)
    return found


def directory(value: Any, function: str) -> Path:
    """The argument `directory` of a public function.

    Raises:
        UsageError: it is no path.
    """
    if isinstance(value, str | PathLike) and str(fspath(value)):
        return Path(fspath(value))
    remedy = "; pass its directory" if hasattr(value, "directory") else ""
    raise UsageError(f"{function} takes a directory as a string or a Path, not {_shown(value)}{remedy}")


def items(value: Any, kind: type, function: str, name: str) -> Sequence[Any]:
    """An argument that is a list of objects of a kind.

    Raises:
        UsageError: it is none, such as a single object.
    """
    found = list(value) if isinstance(value, Iterable) and not isinstance(value, str | Mapping) else None
    if found is None or not all(isinstance(each, kind) for each in found):
        raise UsageError(f"{function}: {name} must be a list of {kind.__name__} objects, not {_shown(value)}")
    return found


def _shown(value: Any) -> str:
    text = repr(value)
    kind = type(value).__name__
    return f"{kind} {text if len(text) <= 40 else text[:38] + ' …'}"


def require_eager(function: str) -> None:
    """Checks that TensorFlow executes eagerly: a run would fail deep inside otherwise. It does until it is imported.

    Raises:
        UsageError: it does not, inside a graph or in a program of TensorFlow 1.
    """
    if "tensorflow" in sys.modules and not sys.modules["tensorflow"].executing_eagerly():
        raise UsageError(
            f"{function} needs eager execution, which is off inside a tf.Graph and after "
            f"tf.compat.v1.disable_v2_behavior(); call it outside the graph, or in another process"
        )
