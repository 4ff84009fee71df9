"""Every key of the config: its type, default, allowed values and meaning, from the schema of the YAML files."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from embexp.config import yaml_schema
from embexp.config.folders import Folders
from embexp.config.hydra_settings import SETTINGS, Use
from embexp.config.messages import format_value
from embexp.specs.run import INHERITED
from embexp.specs.running import Launching, SearchSettings

_DEEPEST = 4
"""Mappings inside of each other."""
_MANY = 8
"""Keys of a mapping that do not fit on one screen with their meanings: the page names them first."""
NAME = "NAME"
"""Stands for the name of a table, a feature, a column, or whatever else the user names."""
_TABLES, _FEATURES, _SCHEDULE = f"tables.{NAME}", f"features.{NAME}", "optimizer.schedule"
_INSIDE = {
    "optimizer.schedule": ("dense_optimizer.schedule",),
    **{key: (f"{_TABLES}.{key}",) for key in INHERITED},
}
"""Other places of the same choices, by the place where they are described."""
PAGES = {
    "": "config.md",
    "data": "data.md",
    _TABLES: "tables.md",
    f"{_TABLES}.initializer": "config.md#settings-of-one-table",
    _FEATURES: "tables.md",
    "model": "choosing.md#model",
    "loss": "recommendation.md#losses",
    "metrics": "metrics.md",
    "recommendation": "recommendation.md",
    "optimizer": "tables.md",
    _SCHEDULE: "tables.md",
    "dense_optimizer": "tables.md",
    "parent": "tomorrow.md",
    "pretrained": "pretrained.md",
    "init": "initialization.md",
    "freeze": "freezing.md",
    "strategy": "strategies.md",
    "runtime": "config.md#runtimes",
    "train": "choosing.md",
    "restore": "checkpoints.md",
    "checkpoint": "checkpoints.md",
    "output": "runs.md",
    "tracking": "tracking.md",
    "study": "tomorrow.md#is-it-as-good-as-training-anew",
    "sweep": "sweeps.md",
    "hydra": "sweeps.md",
}
"""The page of docs/ that explains the keys of a part."""
_TYPES = {"integer": "whole number", "number": "number", "string": "text"}


@dataclass(frozen=True)
class Key:
    """A key of the config.

    Attributes:
        path: from the root, `tables.NAME.dim`; NAME stands for what the user names.
        of: the choices that have it, such as `adam`; empty: all, or there is nothing to choose.
        values: its type and allowed values, in words.
        default: as YAML has it; "": it must be set.
        text: what it means.
    """

    path: str
    values: str
    default: str
    text: str
    of: tuple[str, ...] = ()


@dataclass
class Part:
    """The keys of one mapping of the config, with those of the mappings inside it.

    Attributes:
        path: of the mapping; "": the root.
        text: what it is.
        choices: the meaning of each choice, by kind, where the mapping is one of several.
        also: other places where the same keys belong.
    """

    path: str
    text: str = ""
    choices: dict[str, str] = field(default_factory=dict)
    keys: list[Key] = field(default_factory=list)
    also: tuple[str, ...] = ()

    @property
    def page(self) -> str:
        """The page of docs/ that explains it, perhaps with an anchor."""
        return PAGES[self.path]


def parts(folders: Folders) -> list[Part]:
    """All keys, by the mapping that holds them, in the order of the spec; the root's own come first."""
    schema = yaml_schema.schema(folders)
    reader = _Reader(schema["definitions"])
    root = Part("", "The keys outside of the groups.")
    found = [root]
    for name, value in schema["properties"].items():
        if name in ("defaults", "hydra"):
            continue
        place = {"tables": _TABLES, "features": _FEATURES}.get(name, name)
        if reader.objects(value) or place != name:
            found += reader.parts(place, value)
        else:
            root.keys += reader.keys(name, value)
    return [*found, _hydra(folders)]


def page(found: Sequence[Part]) -> str:
    """The page of the documentation that lists all keys, in Markdown."""
    lines = [
        "# Every key of the config",
        "",
        "Each section lists the keys of one mapping of the config. In a terminal, `embexp keys train` and "
        "`embexp keys early stopping` show the same. In a path, `NAME` stands for a name that you choose, such as that "
        "of a table, and `[]` for an entry of a list. A key without a default must be set. All keys exist since "
        "version 0.1.0.",
    ]
    for part in found:
        title = f"`{part.path}`" if part.path else "Outside the groups"
        lines += ["", f"## {title}", "", f"{_cell(part.text)} See [{_title(part.page)}](../{part.page})."]
        if part.path and len(part.keys) > _MANY:
            names = ", ".join(f"`{each.path.removeprefix(f'{part.path}.')}`" for each in part.keys)
            lines += ["", f"Keys under this path: {names}."]
        if part.also:
            lines += ["", f"The same keys belong at {_either(f'`{each}`' for each in part.also)}."]
        if part.choices:
            lines += ["", "| choice | what it is |", "|---|---|"]
            lines += [f"| `{kind}` | {_cell(text)} |" for kind, text in part.choices.items()]
        if part.keys:
            lines += ["", "| key | type and values | default | meaning |", "|---|---|---|---|"]
        for key in part.keys:
            default = f"`{_code(key.default)}`" if key.default else ""
            name = f"`{key.path}`{_of(key, part)}"
            lines.append(f"| {name} | {_cell(key.values)} | {default} | {_cell(key.text)} |")
    return "\n".join(lines) + "\n"


def _sentence(text: str) -> str:
    """A text as a sentence: comments behind a choice of a list have no full stop."""
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}" if text else ""


def _default(value: object) -> str:
    """A default as YAML has it; of a choice, its kind."""
    if isinstance(value, dict) and "kind" in value:
        return str(value["kind"])
    return value if isinstance(value, str) and re.fullmatch(r"[\w./-]+", value) else format_value(value)


def _of(key: Key, part: Part) -> str:
    """The choices that have a key, or those that lack it if these are fewer."""
    lacking = [kind for kind in part.choices if kind not in key.of]
    if not key.of:
        return ""
    word, kinds = ("not of", lacking) if 0 < len(lacking) < len(key.of) else ("of", list(key.of))
    return f"<br>{word} {_either(f'`{kind}`' for kind in kinds)}"


def _cell(text: str) -> str:
    """A text in a cell of a table in Markdown; what is between backquotes stays code."""
    parts = re.split(r"`([^`]*)`", " ".join(text.split()))
    escaped = [re.sub(r"([\\<>*_\[\]|{}])", r"\\\1", plain) for plain in parts[::2]]
    codes = [f"`{_code(code)}`" for code in parts[1::2]]
    return "".join(itertools.chain.from_iterable(itertools.zip_longest(escaped, codes, fillvalue="")))


def _code(text: str) -> str:
    """A text between backquotes in a cell."""
    return text.replace("|", "\\|")


def _title(page: str) -> str:
    return page.partition(".md")[0].replace("_", " ")


def matching(found: Sequence[Part], words: Sequence[str]) -> list[tuple[Part, list[Key]]]:
    """The keys that are named by a path, or a part of one, or whose path and text have all of some words.

    A name of a table stands for any: `tables.item.dim` is `tables.NAME.dim`.

    Args:
        words: one path, or words to search for, regardless of case.
    """
    if len(words) == 1:
        [path] = words
        for is_named in (_is_at, _ends_with):
            named = [(part, [key for key in part.keys if is_named(key, part, path)]) for part in found]
            if any(keys for _, keys in named):
                return [(part, keys) for part, keys in named if keys]
    lowered = [word.lower() for word in words]
    hits = [
        (
            part,
            [
                key
                for key in part.keys
                if all(word in f"{key.path} {key.values} {key.text}".lower() for word in lowered)
            ],
        )
        for part in found
    ]
    return [(part, keys) for part, keys in hits if keys]


def _is_at(key: Key, part: Part, path: str) -> bool:
    """Whether a path names a key or what holds it."""
    asked = path.split(".")
    places = [key.path, *(f"{other}{key.path[len(part.path) :]}" for other in part.also)]
    for place in places:
        names = place.split(".")
        if len(names) >= len(asked) and all(a in (b, NAME) or b == NAME for a, b in zip(asked, names, strict=False)):
            return True
    return False


def _ends_with(key: Key, part: Part, path: str) -> bool:
    return f".{key.path}".endswith(f".{path}")


class _Reader:
    """Reads the definitions of a JSON schema."""

    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self._definitions = definitions

    def objects(self, value: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """The mappings that a value may be."""
        found = [self._definitions[each] for each in _names(value)]
        return [each for each in found if each.get("type") == "object" and "properties" in each]

    def parts(self, path: str, value: Mapping[str, Any]) -> Iterator[Part]:
        """The part at a path, and the choices inside it that are described by themselves."""
        part = Part(path, _sentence(str(value.get("description") or "")), also=_INSIDE.get(path, ()))
        models = [model for _, model in self._inside(path, value)]
        inner: list[tuple[str, Mapping[str, Any]]] = []
        merged: dict[Key, list[str]] = {}
        kinds = [_kind(model) for model in models]
        for kind, model in zip(kinds, models, strict=True):
            if kind:
                part.choices[kind] = _first(model.get("description", ""))
            elif not part.text:
                part.text = _first(model.get("description", ""))
            for name, each in model["properties"].items():
                if name == "kind" and kind:
                    continue
                below = f"{path}.{name}"
                if below in (_SCHEDULE, f"{_TABLES}.initializer") and below not in dict(inner):
                    inner.append((below, each))
                for key in self.keys(below, each):
                    merged.setdefault(key, []).append(kind)
        part.keys = [
            key if set(having) == set(kinds) else dataclasses.replace(key, of=tuple(dict.fromkeys(having)))
            for key, having in merged.items()
        ]
        yield part
        for below, each in inner:
            yield from self.parts(below, each)

    def keys(self, path: str, value: Mapping[str, Any], depth: int = 0) -> Iterator[Key]:
        """A key, and those of the mappings that it may hold."""
        default = _default(value["default"]) if "default" in value else ""
        text = _sentence(str(value.get("description") or ""))
        models = self.objects(value)
        elsewhere = _elsewhere(path)
        if len(models) != 1 or elsewhere or not _only(value, models):
            yield Key(path, self._values(value, elsewhere), default, text)
        if elsewhere:
            return
        for place, model in self._inside(path, value):
            for name, each in model["properties"].items():
                if depth < _DEEPEST and not (name == "kind" and _kind(model)):
                    yield from self.keys(f"{place}.{name}", each, depth + 1)

    def _entries(self, path: str, value: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """What the entries of a mapping are, whose keys the user names, and of a list, each with its path."""
        for form in _forms(value):
            for inside, place in (("additionalProperties", f"{path}.{NAME}"), ("items", f"{path}[]")):
                if isinstance(entry := form.get(inside), dict):
                    yield place, entry
            for entry in form.get("patternProperties", {}).values():
                yield f"{path}.{NAME}", entry

    def _inside(self, path: str, value: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """The mappings with known keys inside a value, each with its path."""
        yield from ((path, model) for model in self.objects(value))
        for place, entry in self._entries(path, value):
            yield from self._inside(place, entry)

    def _values(self, value: Mapping[str, Any], elsewhere: str = "") -> str:
        if elsewhere:
            optional = any(form.get("type") == "null" for form in _forms(value))
            return f"a choice of {elsewhere}{', or null' if optional else ''}"
        found: list[str] = []
        for form in _forms(value):
            if "$ref" in form:
                definition = self._definitions[form["$ref"].rpartition("/")[2]]
                if "enum" in definition or "const" in definition:
                    found += map(str, definition.get("enum", [definition.get("const")]))
                elif kind := _kind(definition):
                    found.append(kind)
                else:
                    found.append("a mapping")
            elif form.get("type") == "boolean":
                found += ["true", "false"]
            else:
                found.append(self._one(form))
        return _either(dict.fromkeys(found))

    def _one(self, form: Mapping[str, Any]) -> str:
        if "enum" in form:
            return _either(map(str, form["enum"]))
        if "const" in form:
            return str(form["const"])
        kind = form.get("type")
        if kind == "null":
            return "null"
        if kind == "array":
            items = form.get("items")
            if isinstance(items, list):
                return f"a list of {len(items)}"
            each = self._values(items) if isinstance(items, dict) else ""
            return f"a list ({each})" if each else "a list"
        if kind == "object":
            inner = form.get("additionalProperties")
            inside = self._values(inner) if isinstance(inner, dict) else ""
            return f"a mapping by name ({inside})" if inside else "a mapping"
        return f"{_TYPES.get(str(kind), 'any value')}{_bounds(form)}"


def _elsewhere(path: str) -> str:
    """The part that describes the choices at a path, if that is another one; "": none does."""
    last = path.rpartition(".")[2]
    if path.startswith(f"{_TABLES}.") and last in INHERITED:
        return last
    if last == "schedule":
        return _SCHEDULE
    return path if path == f"{_TABLES}.initializer" else ""


def _forms(value: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The forms of a value, without that of an interpolation."""
    forms = value.get("anyOf", [value])
    return [each for each in forms if each != yaml_schema.INTERPOLATION]


def _names(value: Mapping[str, Any]) -> list[str]:
    return [form["$ref"].rpartition("/")[2] for form in _forms(value) if "$ref" in form]


def _only(value: Mapping[str, Any], models: Sequence[object]) -> bool:
    """Whether a value is a mapping and nothing else."""
    return len([form for form in _forms(value) if form.get("type") != "null"]) == len(models)


def _kind(model: Mapping[str, Any]) -> str:
    """The choice that a mapping is, "" if it is none."""
    forms = _forms(model.get("properties", {}).get("kind", {}))
    return next((str(form["const"]) for form in forms if "const" in form), "")


def _first(text: str) -> str:
    """The first paragraph of a text."""
    return " ".join(text.partition("\n\n")[0].split())


def _either(names: Iterable[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last


def _bounds(form: Mapping[str, Any]) -> str:
    low, high = form.get("minimum"), form.get("maximum")
    above, below = form.get("exclusiveMinimum"), form.get("exclusiveMaximum")
    found = []
    if low is not None:
        found.append(f"≥ {low:,}")
    if above is not None:
        found.append(f"> {above:,}")
    if high is not None and high < 10**12:
        found.append(f"≤ {high:,}")
    if below is not None:
        found.append(f"< {below:,}")
    return f" {', '.join(found)}" if found else ""


def _hydra(folders: Folders) -> Part:
    """The settings of Hydra that have an effect, with those of embexp's launcher and of the sweeper `optuna`."""
    part = Part("hydra", "Settings of Hydra that have an effect. Each has a default.")
    part.keys = [Key(each.path, each.values, "", each.text) for each in SETTINGS if each.use is not Use.NEVER]
    for name, choice, model in (("launcher", "embexp", Launching), ("sweeper", "optuna", SearchSettings)):
        texts = dict(yaml_schema.comments(folders.shipped / "hydra" / name / f"{choice}.yaml"))
        schema = model.model_json_schema()
        reader = _Reader(schema.get("$defs", {}))
        for key, value in schema["properties"].items():
            for found in reader.keys(f"hydra.{name}.{key}", {**value, "description": texts[key,]}):
                part.keys.append(dataclasses.replace(found, of=(choice,)))
    return part
