"""Validates a plain container against the pydantic models of a spec: a `RunSpec`, or all faults as rules."""

from __future__ import annotations

import collections.abc as abc
import copy
import functools
import json
import re
import types
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from embexp.config.folders import at
from embexp.config.messages import as_override, did_you_mean, format_value, listing, nearest, suggestion
from embexp.errors import Code, Fault
from embexp.specs import fields
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
    faults = [_fault(error, container) for error in _of_form(errors, container)]
    known: dict[str, Any] = copy.deepcopy(dict(container))  # at an unknown key pydantic skips the rules between keys
    for each in errors:
        keys, parent, _ = _place(each["loc"], known)
        if each["type"] == "extra_forbidden" and isinstance(parent, dict):
            parent.pop(keys[-1], None)
    try:
        RunSpec.model_validate(known)
    except ValidationError as error:
        faults += [_fault(each, container) for each in _of_form(error.errors(), container)]
    others = {fault.path for fault in faults if fault.code is Code.KEY_OF_ANOTHER_KIND}
    meant = {path for fault in faults for path in _meant(fault, container)}
    return None, [
        fault
        for fault in _merged(faults)
        if fault.path not in reported
        and not (fault.code is Code.UNSET and (fault.path in meant or _has(fault.path, others | meant)))
        and not (fault.code in (Code.UNSET, Code.BETWEEN_KEYS) and _has(fault.path, reported))
    ]


def _has(path: str, paths: Collection[str]) -> bool:
    """Whether any of some paths is inside a mapping or list."""
    return any(each.startswith(f"{path}.") for each in paths)


def _meant(fault: Fault, container: Mapping[str, Any]) -> Iterator[str]:
    """The keys that a misspelt one may have been meant for."""
    if fault.code is Code.UNKNOWN_KEY:
        *place, key = fault.path.split(".")
        model = chosen(models_at(place, container), at(container, ".".join(place)) if place else container)
        yield from (".".join([*place, each]) for each in nearest(key, model.model_fields if model else ()))


def _of_form(errors: Sequence[ErrorDetails], container: Mapping[str, Any]) -> list[ErrorDetails]:
    """The errors without those of the branches of a union that take no list or mapping, if one that does has others."""
    placed = [(".".join(keys), of_branch) for keys, _, of_branch in (_place(each["loc"], container) for each in errors)]
    inside = {path for path, _ in placed}
    return [each for each, (path, branch) in zip(errors, placed, strict=True) if not (branch and _has(path, inside))]


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _fault(error: ErrorDetails, container: Mapping[str, Any]) -> Fault:
    keys, parent, _ = _place(error["loc"], container)
    path = ".".join(keys)
    value = "nothing" if error["type"] == "missing" else format_value(error["input"])
    match error["type"]:
        case "extra_forbidden":
            return _unknown_key(keys, error["input"], models_at(keys[:-1], container), parent)
        case "union_tag_invalid" | "union_tag_not_found":
            kind = _mapping(error["input"]).get("kind")
            known = [str(_kind_of(model)) for model in models_at(keys, container)]
            rule = f"it must be {listing(known)}"
            if kind is None:
                return Fault(f"{path}.kind", "nothing", rule, f"set {path}.kind=…", code=Code.UNSET)
            kinds = nearest(str(kind), known)
            fix: tuple[str, ...] = (f"{path}.kind={kinds[0]}",) if kinds else ()
            return Fault(f"{path}.kind", format_value(kind), rule, suggestion(kinds), code=Code.UNKNOWN_KIND, fix=fix)
        case "missing" if isinstance(parent, list) or isinstance(error["input"], list | tuple):
            remedy, fix = _form(keys, container)
            return Fault(path, format_value(error["input"]), "it lacks an item", remedy, fix=fix)
        case "missing":
            near = _similar(keys, container)
            remedy = f"{near} Or set {path}=…" if near else f"set {path}=…"
            return Fault(path, value, rule_of(error), remedy, code=Code.UNSET)
        case "between" | "unset":
            context, given = error["ctx"], _mapping(error["input"])
            shown = ", ".join(f"{key}: {format_value(given[key])}" for key in context["keys"] if key in given)
            if error["type"] == "between":
                return Fault(path, shown or value, context["rule"], code=Code.BETWEEN_KEYS)
            remedy = f"set {'.'.join([*keys, context['such_as']])}"
            return Fault(path, shown or value, context["rule"], remedy, code=Code.UNSET)
        case "string_type" if error["input"] is None or isinstance(error["input"], bool | int | float):
            remedy = "" if error["input"] is None else "put it in quotes"
            return Fault(path, value, rule_of(error), remedy, code=Code.NOT_TEXT)
        case _:
            mended, code = _mended(error)
            if mended is not None:
                remedy = f"write {mended}{' without quotes' if code is Code.TEXT_OF_NUMBER else ''}"
                return Fault(path, value, rule_of(error), remedy, code=code, fix=(f"{path}={mended}",))
            values = nearest(str(error["input"]), valid_values(error))
            fix = (f"{path}={as_override(values[0])}",) if values else ()
            remedy = suggestion(values)
            if not values and (error["type"] in _FORMS or error["type"] == "string_type"):
                remedy, fix = _form(keys, container)
            return Fault(path, value, rule_of(error), remedy, fix=fix)


def _form(keys: Sequence[str], container: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    """How a value of another form than its field's is written: the remedy, and the fix if it is certain."""
    places = ((keys[:end], at(container, ".".join(keys[:end])) if end else container) for end in range(len(keys))[::-1])
    for place, parent in places:
        model, name = chosen(models_at(place, container), parent), keys[len(place)]
        if model is None or name not in model.model_fields:
            continue
        path, given, field = ".".join([*place, name]), parent[name], model.model_fields[name]
        ranges = _RANGE.fullmatch(given) if isinstance(given, str) else None
        for meant in ([given], [[int(ranges[1]), int(ranges[2])]] if ranges else None):
            with suppress(ValidationError):
                if meant is not None and _adapter(model, name).validate_json(json.dumps(meant)):
                    return f"write {path}={as_override(meant)}", (f"{path}={as_override(meant)}",)
        members = _members(field.annotation)
        if str not in members and (example := _example(members)):
            return f"such as {path}={example}", ()
        default = "" if field.is_required() else as_override(field.get_default(call_default_factory=True))
        return f"remove it, which means {path}={default}" if default else "", (path,) if default else ()
    return "", ()


def _example(members: Sequence[Any], place: int = 0) -> str:
    """A value of a list or a mapping, as in an override; "" if its form is not known.

    Args:
        members: what it may be.
        place: that in the list around it.
    """
    for each in members:
        inner = get_args(each)
        if get_origin(each) is tuple:
            items = inner[:1] if inner[-1] is ... else inner
            texts = [_example(_members(item), at) for at, item in enumerate(items)]
            return f"[{','.join(texts)}]" if all(texts) else ""
        if get_origin(each) in (dict, abc.Mapping):
            text = _example(_members(inner[1]))
            return f"{{NAME:{text}}}" if text else ""
        if each in (int, float, str):
            return "NAME" if each is str else str(place)
    return ""


def _similar(keys: Sequence[str], container: Mapping[str, Any]) -> str:
    """`did you mean features.hotel?` for a misspelt key of a node, which is then a new one that lacks settings."""
    if len(keys) != 3:
        return ""
    siblings = _mapping(container.get(keys[0]))
    return did_you_mean(".".join(keys[:2]), [f"{keys[0]}.{name}" for name in siblings])


def _place(location: Sequence[str | int], container: Any) -> tuple[list[str], Any, bool]:
    """The config path of an error, the mapping with its last key, and whether it is of one branch of a union.

    After the keys that lead to a union, pydantic names the branch that it tried: the tag, or the type. Only the type
    of a field says where that is: a tag may have the name of a key.
    """
    keys: list[str] = []
    node, parent = container, None
    described: tuple[Any, ...] = (RunSpec,)
    of_branch = False
    for part in location:
        of_branch = len(described) > 1
        if of_branch:
            described = _branch(described, node)
            continue
        if isinstance(node, Mapping):
            if part not in node and part == "[key]":
                continue
            keys.append(str(part))
            described = _inside_of(described, str(part), node)
            missing = part not in node
            node, parent = node.get(part), node
            if missing:
                break
        elif isinstance(node, list) and isinstance(part, int) and part < len(node):
            keys.append(str(part))
            described = _inside_of(described, str(part), node)
            node, parent = node[part], node
        else:
            break
    return keys, parent, of_branch


def _unknown_key(keys: Sequence[str], given: Any, models: Models, parent: Any) -> Fault:
    """The fault of a key that its model lacks."""
    key, place = keys[-1], ".".join(keys[:-1])
    path, value = ".".join(keys), format_value(given)
    model = chosen(models, parent)
    if model is None:
        return Fault(path, value, "there is no such key", code=Code.UNKNOWN_KEY, fix=(path,))
    kind = _kind_of(model)
    owners = [str(_kind_of(each)) for each in models if key in each.model_fields]
    options = [name for name in model.model_fields if name != "kind"]
    near = nearest(key, options if place else [*options, *_OF_FILES])
    fix: tuple[str, ...] = (path,)
    if near and near[0] not in _mapping(parent):
        fix = (*fix, f"{'.'.join([*keys[:-1], near[0]])}={as_override(given)}")
    if owners and kind is not None:
        rule = f"{key} belongs to {listing(owners)}, not to {kind}"
        remedy = suggestion(near) or f"choose {listing(owners)} instead of {kind}, or remove the key"
        return Fault(path, value, rule, remedy, code=Code.KEY_OF_ANOTHER_KIND, fix=fix)
    rule = f"{kind or place or 'a config'} has no key {key!r}"
    remedy = suggestion(near) or (
        f"its keys: {', '.join(options)}; or remove it" if options else "it has no keys: remove it"
    )
    return Fault(path, value, rule, remedy, code=Code.UNKNOWN_KEY, fix=fix)


def _merged(faults: Sequence[Fault]) -> list[Fault]:
    """Merges the faults of each path, as each branch of a union reports one."""
    by_path: dict[str, list[Fault]] = {}
    for fault in faults:
        by_path.setdefault(fault.path, []).append(fault)
    return [
        replace(several[0], rule=", or ".join(dict.fromkeys(fault.rule for fault in several)))
        for several in by_path.values()
    ]


def with_sources(faults: Sequence[Fault], source_of: Callable[[str], str]) -> list[Fault]:
    """The faults, each with the source of its value unless it has one."""
    return [fault if fault.source else replace(fault, source=source_of(fault.path)) for fault in faults]


_FORMS = ("tuple_type", "list_type", "dict_type", "mapping_type")
_RANGE = re.compile(r"(\d+):(\d+)")
_WHOLE, _MAPPING = "it must be a whole number", "it must be a mapping of keys"
_RULES = {
    "missing": "it must be given",
    "greater_than": "it must be greater than {gt:g}",
    "greater_than_equal": "it must be at least {ge:g}",
    "less_than": "it must be less than {lt:g}",
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
    "dict_type": "it must be a mapping by name",
    "mapping_type": "it must be a mapping by name",
    "model_type": _MAPPING,
    "model_attributes_type": _MAPPING,
    "too_short": "its length must be at least {min_length}, but is {actual_length}",
    "too_long": "its length must be at most {max_length}, but is {actual_length}",
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


def _mended(error: ErrorDetails) -> tuple[str | None, Code]:
    """A value that was surely meant, as in an override, and the kind of fault."""
    value = error["input"]
    match error["type"]:
        case "int_type" | "int_from_float" if isinstance(value, float) and value.is_integer():
            return str(int(value)), Code.OTHER
        case "int_type" if isinstance(value, str) and re.fullmatch(r"[-+]?\d+", value.strip()):
            return value.strip(), Code.TEXT_OF_NUMBER
        case "empty_range":
            return error["ctx"]["meant"], Code.OTHER
        case "float_type" if isinstance(value, str) and _number(value) is not None:
            return value.strip(), Code.TEXT_OF_NUMBER
        case "float_type" if isinstance(value, str) and value.endswith("%") and _number(value[:-1]) is not None:
            return f"{float(value[:-1]) / 100:g}", Code.OTHER
        case _:
            return None, Code.OTHER


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


_PATTERNS = {
    r"^[A-Za-z][A-Za-z0-9_]*$": "a name: letters, digits and underscores, beginning with a letter",
    r"^\w+(\.\w+)*$": "keys separated by dots, such as initialization.seconds",
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
    described: tuple[Any, ...] = (RunSpec,)
    for key in path:
        described = _inside_of(described, key, container)
        container = _inside(container, key)
    return _models(described)


def _inside_of(described: Sequence[Any], key: str, container: Any) -> tuple[Any, ...]:
    """What may describe the value at a key, without `None`: the members of a union, or one type; () if it is unknown.

    Args:
        described: what may describe the value that has the key.
        container: that value.
    """
    model = chosen(_models(described), container)
    if model is not None and key in model.model_fields:
        return _members(model.model_fields[key].annotation)
    for each in described:
        arguments = get_args(each)
        if get_origin(each) is tuple and key.isdecimal():
            place = 0 if arguments[-1] is ... else min(int(key), len(arguments) - 1)
            return _members(arguments[place])
        if (get_origin(each), isinstance(container, list)) in ((list, True), (dict, False), (abc.Mapping, False)):
            return _members(arguments[-1])
    return ()


def _branch(described: Sequence[Any], value: Any) -> tuple[Any, ...]:
    """The member of a union that a value is for, by its form."""
    if isinstance(value, Mapping):
        models = _models(described)
        model = chosen(models, value) or next(iter(models), None)
        return (model,) if model is not None else tuple(each for each in described if get_origin(each) is dict)[:1]
    return tuple(each for each in described if get_origin(each) in (tuple, list))[:1] if isinstance(value, list) else ()


def _members(annotation: Any) -> tuple[Any, ...]:
    bare = _bare(annotation)
    if get_origin(bare) in (Union, types.UnionType):
        return tuple(each for arg in get_args(bare) if arg is not type(None) for each in _members(arg))
    return (bare,)


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


def _models(described: Sequence[Any]) -> Models:
    return tuple(each for each in described if isinstance(each, type) and issubclass(each, BaseModel))


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
                    wrong |= {*each.get("ctx", {}).get("keys", model.model_fields)} - {"kind"}  # which chose the model
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


fields.on_change.append(_adapter.cache_clear)


def _without(part: Any, names: Collection[str]) -> Any:
    """Removes fields from a part, so that reading them raises `UnknownPartError`."""
    for name in names:
        part.__dict__.pop(name, None)
    return part
