"""The pydantic model of each config path of a run."""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel

from embexp.specs.run import RunSpec

Models = tuple[type[BaseModel], ...]


def models_at(path: Sequence[str], container: Any) -> Models:
    """The models that may describe the mapping at `path`: the choices of a union, or the only one.

    Args:
        path: keys from the root of the config.
        container: the whole config; the kinds in it decide which choice of a union the path goes through.

    Returns:
        Nothing if no model describes a mapping at this path.
    """
    annotation: Any = RunSpec
    for key in path:
        inner = _bare(annotation)
        if get_origin(inner) is not None and get_origin(inner) not in (Union, types.UnionType):
            arguments = get_args(inner)
            value = 0 if get_origin(inner) is tuple else 1  # tuple[each, ...], dict[key, each]
            annotation = arguments[value] if len(arguments) == 2 else None
        else:
            model = chosen(_models(annotation), container)
            field = None if model is None else model.model_fields.get(key)
            annotation = None if field is None else field.annotation
        container = _inside(container, key)
    return _models(annotation)


def _inside(container: Any, key: str) -> Any:
    if isinstance(container, list):
        return container[int(key)] if key.isdecimal() and int(key) < len(container) else None
    return container.get(key) if isinstance(container, dict) else None


def chosen(models: Models, value: Any) -> type[BaseModel] | None:
    """The model that a mapping's `kind` names; if there is only one model, that one."""
    if len(models) == 1:
        return models[0]
    kind = value.get("kind") if isinstance(value, dict) else None
    return next((model for model in models if kind_of(model) == kind), None)


def kind_of(model: type[BaseModel]) -> str | None:
    """The `kind` by which a config chooses a model, or None for a model that is not a choice."""
    field = model.model_fields.get("kind")
    return field.default if field is not None and isinstance(field.default, str) else None


def _bare(annotation: Any) -> Any:
    """An annotation without `Annotated` and without `| None`."""
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) in (Union, types.UnionType):
        rest = [each for each in get_args(annotation) if each is not type(None)]
        if len(rest) == 1:
            return _bare(rest[0])
    return annotation


def _models(annotation: Any) -> Models:
    bare = _bare(annotation)
    if get_origin(bare) in (Union, types.UnionType):
        return tuple(model for each in get_args(bare) for model in _models(each))
    return (bare,) if isinstance(bare, type) and issubclass(bare, BaseModel) else ()
