"""Validates a plain container against the pydantic models of a spec: a `RunSpec`, or all faults as rules."""

from __future__ import annotations

import copy
import functools
import re
import types
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from embexp.config.messages import did_you_mean, format_value, listing, nearest
from embexp.errors import Fault, ForeignKeyFault
from embexp.specs.run import RunSpec

_OF_FILES = ("defaults", "hydra")
"""Keys that a file may have at its top, and that no config keeps."""
Models = tuple[type[BaseModel], ...]
_Path = tuple[str, ...]


def validate(container: Mapping[str, Any], *, reported: Collection[str] = ()) -> tuple[RunSpec | None, list[Fault]]:
    """Validates a whole config: the spec and no faults, or None and all faults but those of `reported` paths."""
    try:
        return RunSpec.model_validate(container), []
    except ValidationError as error:
        errors = error.errors()
    faults = [_fault(error, container) for error in errors]
    known: dict[str, Any] = copy.deepcopy(dict(container))  # at an unknown key pydantic skips the rules between keys
    for each in errors:
        keys, parent = _place(each["loc"], known)
        if each["type"] == "extra_forbidden" and isinstance(parent, dict):
            parent.pop(keys[-1], None)
    try:
        RunSpec.model_validate(known)
    except ValidationError as error:
        faults += [_fault(each, container) for each in error.errors()]
    meant = {path for fault in faults for path in _meant(fault)}
    return None, [fault for fault in _merged(faults) if fault.path not in reported and not _follows(fault, meant)]


def _meant(fault: Fault) -> Iterator[str]:
    """The keys that a misspelt one may have been meant for."""
    place, dot, key = fault.path.rpartition(".")
    if fault.remedy.startswith("did you mean ") and f"has no key {key!r}" in fault.rule:
        yield from (f"{place}{dot}{each}" for each in re.findall(r"\w+", fault.remedy.removeprefix("did you mean ")))


def _follows(fault: Fault, meant: Collection[str]) -> bool:
    """Whether a fault is that of a value that a misspelt key would have set."""
    return fault.path in meant and (fault.value == "nothing" or " not set" in fault.rule or "neither " in fault.rule)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _fault(error: ErrorDetails, container: Mapping[str, Any]) -> Fault:
    keys, parent = _place(error["loc"], container)
    path = ".".join(keys)
    value = "nothing" if error["type"] == "missing" else format_value(error["input"])
    match error["type"]:
        case "extra_forbidden":
            return _unknown_key(keys, value, models_at(keys[:-1], container), parent)
        case "union_tag_invalid" | "union_tag_not_found":
            kind = _mapping(error["input"]).get("kind")
            known = [str(_kind_of(model)) for model in models_at(keys, container)]
            remedy = f"set {path}.kind=…" if kind is None else did_you_mean(str(kind), known)
            value = "nothing" if kind is None else format_value(kind)
            return Fault(f"{path}.kind", value, f"it must be {listing(known)}", remedy)
        case "missing" if near := _similar(keys, container):
            return Fault(path, value, rule_of(error), f"{near} Or set {path}=…")
        case "value_error":
            return Fault(path, _mentioned(rule_of(error), path, error["input"]), rule_of(error))
        case _:
            remedy = _remedy_of(error, path) or did_you_mean(str(error["input"]), valid_values(error))
            return Fault(path, value, rule_of(error), remedy)


def _similar(keys: Sequence[str], container: Mapping[str, Any]) -> str:
    """`did you mean features.hotel?` for a misspelt key of a node, which is then a new one that lacks settings."""
    if len(keys) != 3:
        return ""
    siblings = _mapping(container.get(keys[0]))
    return did_you_mean(".".join(keys[:2]), [f"{keys[0]}.{name}" for name in siblings])


def _place(location: Sequence[str | int], container: Any) -> tuple[list[str], Any]:
    """The config path of an error, and the mapping with its last key.

    pydantic inserts the name of the union branch that it tried between the keys; the path is without them.
    """
    keys: list[str] = []
    node, parent = container, None
    for part in location:
        if isinstance(node, Mapping):
            if part not in node and (part == node.get("kind") or part == "[key]"):
                continue
            keys.append(str(part))
            missing = part not in node
            node, parent = node.get(part), node
            if missing:
                break
        elif isinstance(node, list) and isinstance(part, int) and part < len(node):
            keys.append(str(part))
            node, parent = node[part], node
        else:
            break
    return keys, parent


def _unknown_key(keys: Sequence[str], value: str, models: Models, parent: Any) -> Fault:
    """The fault of a key that its model lacks."""
    key, place = keys[-1], ".".join(keys[:-1])
    path = ".".join(keys)
    model = chosen(models, parent)
    if model is None:
        return Fault(path, value, "there is no such key")
    kind = _kind_of(model)
    owners = [str(_kind_of(each)) for each in models if key in each.model_fields]
    options = [name for name in model.model_fields if name != "kind"]
    near = did_you_mean(key, options if place else [*options, *_OF_FILES])
    if owners and kind is not None:
        rule = f"{key} belongs to {listing(owners)}, not to {kind}"
        return ForeignKeyFault(
            path, value, rule, near or f"choose {listing(owners)} instead of {kind}, or remove the key"
        )
    rule = f"{kind or place or 'a config'} has no key {key!r}"
    return Fault(path, value, rule, near or (f"its keys: {', '.join(options)}" if options else "it has no keys"))


def _mentioned(text: str, path: str, value: Any) -> str:
    """The keys of a mapping that a rule mentions, with their values; the whole value if there are none."""
    if not isinstance(value, Mapping):
        return format_value(value)
    words = set(re.findall(rf"(?<![.\w])(?:{re.escape(path)}\.)?(\w+)", text))
    mentioned = {key: each for key, each in value.items() if key in words and not isinstance(each, Mapping)}
    return ", ".join(f"{key}: {format_value(each)}" for key, each in mentioned.items()) or format_value(value)


def _merged(faults: Sequence[Fault]) -> list[Fault]:
    """Merges the faults of each path, as each branch of a union reports one."""
    found: dict[str, Fault] = {}
    for fault in faults:
        before = found.get(fault.path)
        if before is None:
            found[fault.path] = fault
        elif fault.rule not in before.rule.split(", or "):
            found[fault.path] = replace(before, rule=f"{before.rule}, or {fault.rule}")
    return list(found.values())


def with_sources(faults: Sequence[Fault], source_of: Callable[[str], str]) -> list[Fault]:
    """The faults, each with the source of its value unless it has one."""
    return [fault if fault.source else replace(fault, source=source_of(fault.path)) for fault in faults]


_WHOLE, _MAPPING = "it must be a whole number", "it must be a mapping of keys"
_RULES = {
    "missing": "it must be given",
    "greater_than": "it must be greater than {gt:g}",
    "greater_than_equal": "it must be at least {ge:g}",
    "less_than": "it must be below {lt:g}",
    "finite_number": "it must be a finite number",
    "int_type": _WHOLE,
    "int_parsing": _WHOLE,
    "int_from_float": _WHOLE,
    "float_type": "it must be a number",
    "float_parsing": "it must be a number",
    "bool_type": "it must be true or false",
    "bool_parsing": "it must be true or false",
    "string_type": "it must be text",
    "string_too_short": "it must have at least {min_length} character",
    "string_too_long": "it must have at most {max_length} character",
    "union_tag_not_found": "its kind must be given",
    "tuple_type": "it must be a list",
    "list_type": "it must be a list",
    "dict_type": "it must be a mapping of names",
    "mapping_type": "it must be a mapping of names",
    "model_type": _MAPPING,
    "model_attributes_type": _MAPPING,
    "too_short": "it must have at least {min_length}, and has {actual_length}",
    "too_long": "it must have at most {max_length}, and has {actual_length}",
    "value_error": "{error}",
}
"""By pydantic's type of an error; the braces are of its context."""


def rule_of(error: ErrorDetails) -> str:
    """The violated rule, as a sentence without a full stop."""
    context: dict[str, Any] = error.get("ctx", {})
    match error["type"]:
        case "less_than_equal":
            most = context["le"]
            return f"it must be at most {most:,}" if isinstance(most, int) else f"it must be at most {most:g}"
        case "string_pattern_mismatch":
            return f"it must look like {_PATTERNS.get(context['pattern'], context['pattern'])}"
        case "enum" | "literal_error" | "union_tag_invalid":
            return f"it must be {listing(valid_values(error))}"
        case kind if kind in _RULES:
            return _RULES[kind].format(**context)
        case _:
            return error["msg"][:1].lower() + error["msg"][1:]


def _remedy_of(error: ErrorDetails, path: str) -> str:
    """How to write the value, where the one that was given shows what was meant; else ""."""
    value = error["input"]
    match error["type"]:
        case "missing":
            return f"set {path}=…"
        case "int_type" | "int_from_float" if isinstance(value, float) and value.is_integer():
            return f"write {int(value)}"
        case "int_type" | "float_type" if isinstance(value, str) and _number(value) is not None:
            return f"write {value} without quotes"
        case "float_type" if isinstance(value, str) and value.endswith("%") and _number(value[:-1]) is not None:
            return f"write {float(value[:-1]) / 100:g}"
        case "string_type" if isinstance(value, bool | int | float):
            return "put it in quotes, within those for the shell" if not isinstance(value, bool) else "put it in quotes"
        case _:
            return ""


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


_PATTERNS = {
    r"^[A-Za-z][A-Za-z0-9_]*$": "a name: letters, digits and underscores, a letter first",
    r"^\w+(\.\w+)*$": "keys with dots between them, such as initialization.seconds",
    r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$": "package.module:function",
}


def valid_values(error: ErrorDetails) -> list[str]:
    """The valid values, if there is a list of them."""
    context: dict[str, Any] = error.get("ctx", {})
    text = context.get("expected_tags") or context.get("expected") or ""
    return [name or number for name, number in re.findall(r"'([^']*)'|(\d+)", text)]


def models_at(path: Sequence[str], container: Any) -> Models:
    """The models that may describe the mapping at `path`: the choices of a union, or the only one; none of another.

    Args:
        container: the whole config; the kinds in it decide which choice of a union the path goes through.
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
    return next((model for model in models if _kind_of(model) == kind), None)


def _kind_of(model: type[BaseModel]) -> str | None:
    """The `kind` by which a config chooses a model, or None for a model that is not a choice."""
    field = model.model_fields.get("kind")
    return field.default if field is not None and isinstance(field.default, str) else None


def _bare(annotation: Any) -> Any:
    """An annotation without `Annotated` and without `| None`."""
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) in (Union, types.UnionType):
        rest = [arg for arg in get_args(annotation) if arg is not type(None)]
        if len(rest) == 1:
            return _bare(rest[0])
    return annotation


def _models(annotation: Any) -> Models:
    bare = _bare(annotation)
    if get_origin(bare) in (Union, types.UnionType):
        return tuple(model for arg in get_args(bare) for model in _models(arg))
    return (bare,) if isinstance(bare, type) and issubclass(bare, BaseModel) else ()


def partial_spec(container: Mapping[str, Any], reported: Collection[str] = ()) -> RunSpec:
    """A spec with the valid fields of a config; reading any other field raises `UnknownPartError`.

    A field with a name similar to an unknown key counts as invalid, as the key may be a misspelling of it.

    Args:
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
        return found or None


@functools.cache
def _adapter(model: type[BaseModel], name: str) -> TypeAdapter[Any]:
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
