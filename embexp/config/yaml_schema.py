"""The JSON schema of embexp's YAML files, from the pydantic models of a spec, for editors."""

from __future__ import annotations

import ast
import copy
import functools
import inspect
import itertools
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter

from embexp.config.folders import Folders, at, package_of
from embexp.config.hydra_settings import SETTINGS, Use
from embexp.config.validate import chosen, models_at
from embexp.specs.base import Spec
from embexp.specs.optimizers import Schedule
from embexp.specs.run import RunSpec
from embexp.specs.tables import Feature, Initializer, Table

CONFIG = "config"
"""Name of the schema of whole configs: the root config, experiments, graphs."""
_DIALECT = "http://json-schema.org/draft-07/schema#"
INTERPOLATION = {"type": "string", "pattern": r"^\?\?\?$|\$\{.+\}"}
"""`???`, or a text with an interpolation such as `${tables.user.dim}`."""
_NAMES = r"^[A-Za-z*?{][A-Za-z0-9_*?{},.-]*$"
"""A name, or a pattern such as `C{1..26}` or `C*`."""
_NESTED: dict[str, Any] = {"table": Table, "feature": Feature, "initializer": Initializer, "schedule": Schedule}
"""What describes the files of groups whose name is not that of a key."""
_DEFAULTS = {
    "description": "What the file includes: `- GROUP: CHOICE`, `- override /GROUP: CHOICE`, `- NAME`, `- _self_`.",
    "type": "array",
    "items": {
        "anyOf": [
            {"type": "string"},
            {
                "type": "object",
                "maxProperties": 1,
                "additionalProperties": {"type": ["string", "null", "array"], "items": {"type": "string"}},
            },
        ]
    },
}
_KEY = re.compile(r"^( *)([A-Za-z_][\w]*):(?: |$)")
_CHOICE = re.compile(r"^  - (?:override )?/?(?:\w+@)?([a-z_]+): [^#]*#\s*(.+)$")
"""A line of a defaults list with a comment behind it."""
_PLACES = {
    "table": ("tables", "name"),
    "feature": ("features", "name"),
    "initializer": ("tables", "name", "initializer"),
    "schedule": ("optimizer", "schedule"),  # of any optimizer
}
"""Where a choice of a group belongs in a config, if not at the key of that name."""


def groups(folders: Folders) -> list[str]:
    """The groups whose files have a schema, `config` first."""
    return [CONFIG, *(group for group in folders.choices if _annotation(folders, group) is not None)]


def schema(folders: Folders, group: str = CONFIG) -> dict[str, Any]:
    """The schema of the files of a group, or of whole configs.

    A file may hold any part of what belongs at its place, with a defaults list, interpolations and `???`. Unknown keys
    and values of a wrong type or range are invalid; rules between settings are not in a schema.
    """
    annotation = _annotation(folders, group)
    whole = TypeAdapter(annotation).json_schema(ref_template="#/definitions/{model}")
    definitions: dict[str, Any] = whole.pop("$defs", {})
    if "properties" in whole:  # a single model, not a choice of several
        definitions[annotation.__name__] = whole
        whole = {"$ref": f"#/definitions/{annotation.__name__}"}
    texts = _descriptions(folders)
    models = [each for each in _subclasses(Spec) if each.__name__ in definitions]
    for model in models:
        properties = definitions[model.__name__].get("properties", {})
        for key in properties:
            if text := _description(model, key, texts, models):
                properties[key] = {**properties[key], "description": text}
    definitions = {name: _partial(definition) for name, definition in definitions.items()}
    forms = [_of_file(definitions[name], whole_config=name == "RunSpec") for name in _named(whole)]
    root = forms[0] if len(forms) == 1 else {"anyOf": forms}
    return {"$schema": _DIALECT, "title": f"embexp: {group}", **root, "definitions": definitions}


def _annotation(folders: Folders, group: str) -> Any:
    """What describes the files of a group; None: nothing, as for groups of Hydra's."""
    of_all = {package_of(file) == "_global_" for file in folders.choices.get(group, {}).values()}
    if group == CONFIG or of_all == {True}:
        return RunSpec
    if group in _NESTED:
        return _NESTED[group]
    field = RunSpec.model_fields.get(group)
    own = None if field is None else field.annotation
    # Some choices of a group, such as a model with a feature of its own, may set more than others.
    return own if True not in of_all else RunSpec if own is None else own | RunSpec


def _named(schema: dict[str, Any]) -> list[str]:
    """The names of the definitions that a schema is one of."""
    if "$ref" in schema:
        return [schema["$ref"].rpartition("/")[2]]
    return [name for kind in ("oneOf", "anyOf") for each in schema.get(kind, ()) for name in _named(each)]


def _of_file(definition: dict[str, Any], *, whole_config: bool) -> dict[str, Any]:
    """The definition of a mapping that is a file of its own."""
    found = copy.deepcopy(definition)
    found.setdefault("properties", {})["defaults"] = _DEFAULTS
    if whole_config:
        found["properties"]["hydra"] = _hydra()
    return {**found, "type": ["object", "null"]}  # a file of comments alone is empty


def _hydra() -> dict[str, Any]:
    """The schema of the node `hydra`: the settings that have an effect."""
    root: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
    for setting in SETTINGS:
        if setting.use is Use.NEVER:
            continue
        node = root
        *parents, last = setting.path.split(".")[1:]
        for name in parents:
            empty = {"type": "object", "properties": {}, "additionalProperties": False}
            node = node["properties"].setdefault(name, empty)
        node["properties"][last] = {"description": setting.text}
    return root


def _partial(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a part of a mapping: nothing is required, and values may be interpolations."""
    found = {key: value for key, value in schema.items() if key not in ("required", "minProperties", "title")}
    for place in ("properties", "patternProperties"):
        if place in found:
            found[place] = {key: _value(each) for key, each in found[place].items()}
    if "patternProperties" in found:  # tables and features, by name: or by a pattern, whose entry may be empty
        [entry] = found["patternProperties"].values()
        found["patternProperties"] = {_NAMES: {"anyOf": [*entry["anyOf"], {"type": "null"}]}}
        found["additionalProperties"] = False
    return found


def _value(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a value, which may be an interpolation."""
    shown = {key: value for key, value in schema.items() if key in ("description", "default")}
    choices = list(_choices(schema))
    return {"anyOf": [*choices, INTERPOLATION], **shown} if choices != [{"type": "null"}] else {**choices[0], **shown}


def _choices(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The forms of a value."""
    for kind in ("oneOf", "anyOf"):
        if kind in schema:
            for each in schema[kind]:
                yield from _choices(each)
            return
    inner = _partial({key: value for key, value in schema.items() if key not in ("description", "default")})
    for place in ("items", "additionalProperties"):
        if isinstance(inner.get(place), dict):
            inner[place] = _value(inner[place])
    if "prefixItems" in inner:  # of a later draft
        inner["items"] = [_value(each) for each in inner.pop("prefixItems")]
    yield inner


def _descriptions(folders: Folders) -> dict[tuple[str, str], str]:
    """The comment of each key, by the name of its model and the key.

    A file that explains more keys comes first: others change a few of its values, for purposes of their own. Files of
    whole configs come last.
    """
    found: dict[tuple[str, str], str] = {}
    files = [("", path) for path in sorted(folders.shipped.glob("*.yaml"))]
    files += [(group, path) for group, choices in folders.choices.items() for path in choices.values()]
    described = [(group, path, list(comments(path))) for group, path in files]
    described.sort(key=lambda each: (bool(each[0]) and package_of(each[1]) == "_global_", -len(each[2])))
    for group, path, keys_and_texts in described:
        place = () if not group or package_of(path) == "_global_" else _PLACES.get(group, (group,))
        container = _nested(place, yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader) or {})
        for keys, text in keys_and_texts:
            *parents, key = (*place, *keys)
            model = chosen(models_at(parents, container), at(container, ".".join(parents)))
            if model is not None:
                found.setdefault((model.__name__, key), text)
    return found


def _description(
    model: type[Spec], key: str, texts: Mapping[tuple[str, str], str], models: Sequence[type[Spec]]
) -> str | None:
    """What is known of a key: the comment in YAML, or that of another model with the same key, or the docstring.

    Args:
        texts: comments by the name of the model and the key.
        models: those that may have the same key, from a common base.
    """
    if (own := texts.get((model.__name__, key))) is not None:
        return own
    declaring = [each for each in model.__mro__ if key in inspect.get_annotations(each)]
    for owner in declaring:
        for other in models:
            if issubclass(other, owner) and key != "kind" and (text := texts.get((other.__name__, key))) is not None:
                return text
    return next((text for owner in declaring if (text := _attribute_docstrings(owner).get(key))), None)


@functools.cache
def _attribute_docstrings(model: type) -> dict[str, str]:
    """The strings below the annotations of a class, by name; empty where its source is not there."""
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(model))).body[0]
    except (OSError, TypeError):
        return {}
    lines = body.body if isinstance(body, ast.ClassDef) else []
    found = {}
    for before, line in itertools.pairwise(lines):
        match before, line:
            case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                found[name] = inspect.cleandoc(text)
    return found


def _subclasses(model: type[Spec]) -> Iterator[type[Spec]]:
    for each in model.__subclasses__():
        yield each
        yield from _subclasses(each)


def comments(path: Path) -> Iterator[tuple[tuple[str, ...], str]]:
    """The keys of a file with the comment above each; choices of its defaults list with the one behind them."""
    above: list[str] = []
    stack: list[tuple[int, str]] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.lstrip().startswith("#"):
            above.append(line.strip().lstrip("#").strip())
            continue
        if match := _CHOICE.match(line):
            yield (match[1],), match[2]
        if match := _KEY.match(line):
            indent, key = len(match[1]), match[2]
            stack = [*(each for each in stack if each[0] < indent), (indent, key)]
            if above:
                yield tuple(name for _, name in stack), " ".join(above)
        above = []


def _nested(place: tuple[str, ...], content: Any) -> Any:
    """What a file of choices sets, at its place in a config; an optimizer that has a schedule is one."""
    for key in reversed(place):
        content = {key: content, **({"kind": "sgd"} if key == "schedule" else {})}
    return content
