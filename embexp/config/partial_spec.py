"""A partial `RunSpec` with the valid fields of a config that has faults, for the rules between them."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from embexp.config.grammar import chosen, models_at
from embexp.config.nearest import nearest
from embexp.specs.run import RunSpec

_Path = tuple[str, ...]


def partial_spec(container: Mapping[str, Any], reported: Collection[str] = ()) -> RunSpec:
    """A spec with the valid fields of a config; reading any other field raises `UnknownPartError`.

    A field with a name similar to an unknown key counts as invalid, as the key may be a misspelling of it.

    Args:
        container: plain dicts, lists and scalars.
        reported: config paths of faults found before, such as overrides that could not be applied.
    """
    paths = {tuple(path.rpartition("@")[2].split(".")) for path in reported}
    spec: RunSpec = _Reader(container, paths).part(RunSpec, container, ())
    return spec


class _Reader:
    def __init__(self, container: Mapping[str, Any], wrong: Collection[_Path]) -> None:
        self._container = container
        self._wrong = wrong

    def part(self, model: type[BaseModel], value: Any, path: _Path) -> Any:
        """The valid fields of a mapping that a model describes."""
        if not isinstance(value, Mapping):
            return _without(model.model_construct(), model.model_fields)
        unknown = {str(key) for key in value if key not in model.model_fields}
        rest = {key: each for key, each in value.items() if key in model.model_fields}
        wrong = {name for key in unknown for name in nearest(key, model.model_fields)}
        doubtful = {place[len(path)] for place in self._wrong if place[: len(path)] == path and len(place) > len(path)}
        try:
            whole = model.model_validate(rest)
        except ValidationError as error:
            for each in error.errors():
                if each["loc"]:
                    doubtful.add(str(each["loc"][0]))
                else:
                    wrong |= _named_in(each["msg"], model)
        else:
            if not wrong and not doubtful:
                return whole
        fields = {}
        for name in model.model_fields.keys() - wrong - doubtful:
            if name in rest:
                fields[name] = _adapter(model, name).validate_python(rest[name])
        for name in doubtful & rest.keys():
            if (found := self._inside(rest[name], (*path, name))) is not None:
                fields[name] = found
        return _without(model.model_construct(**fields), (wrong | doubtful) - fields.keys())

    def _inside(self, value: Any, path: _Path) -> Any:
        """The valid fields of an invalid value; None: it has none."""
        if path in self._wrong or not isinstance(value, Mapping):
            return None
        if models := models_at(path, self._container):
            model = chosen(models, value)
            return None if model is None else self.part(model, value, path)
        found = {}
        for key, each in value.items():
            model = chosen(models_at((*path, str(key)), self._container), each)
            if model is None:
                return None
            found[str(key)] = self.part(model, each, (*path, str(key)))
        return found


@functools.cache
def _adapter(model: type[BaseModel], name: str) -> TypeAdapter[Any]:
    """Validates the values of one field."""
    field = model.model_fields[name]
    described: Any = Annotated[field.annotation, field]
    return TypeAdapter(described)


def _named_in(message: str, model: type[BaseModel]) -> set[str]:
    """The fields that a failed rule of a model names; if it names none, all fields."""
    named = (model.model_fields.keys() & set(re.findall(r"\w+", message))) - {"kind"}  # by which the model was chosen
    return set(named or model.model_fields)


def _without(part: Any, names: Collection[str]) -> Any:
    """Removes fields from a part, so that reading them raises `UnknownPartError`."""
    for name in names:
        part.__dict__.pop(name, None)
    return part
