"""Translates pydantic's errors to rules, such as `it must be at least 1`."""

from __future__ import annotations

import re
from typing import Any

from pydantic_core import ErrorDetails


def rule_of(error: ErrorDetails) -> str:
    """The violated rule, as a sentence without a full stop."""
    context: dict[str, Any] = error.get("ctx", {})
    match error["type"]:
        case "missing":
            return "it must be given"
        case "greater_than":
            return f"it must be greater than {context['gt']:g}"
        case "greater_than_equal":
            return f"it must be at least {context['ge']:g}"
        case "less_than":
            return f"it must be below {context['lt']:g}"
        case "less_than_equal":
            most = context["le"]
            return f"it must be at most {most:,}" if isinstance(most, int) else f"it must be at most {most:g}"
        case "finite_number":
            return "it must be a finite number"
        case "int_type" | "int_parsing" | "int_from_float":
            return "it must be a whole number"
        case "float_type" | "float_parsing":
            return "it must be a number"
        case "bool_type" | "bool_parsing":
            return "it must be true or false"
        case "string_type":
            return "it must be text"
        case "string_too_short" | "string_too_long":
            longest, shortest = context.get("max_length"), context.get("min_length")
            return f"it must have at {f'most {longest}' if longest else f'least {shortest}'} character"
        case "string_pattern_mismatch":
            return f"it must look like {_PATTERNS.get(context['pattern'], context['pattern'])}"
        case "enum" | "literal_error":
            return f"it must be {_choices(context['expected'])}"
        case "union_tag_invalid":
            return f"it must be {_choices(context['expected_tags'].replace(', ', ' or '))}"
        case "union_tag_not_found":
            return "its kind must be given"
        case "tuple_type" | "list_type":
            return "it must be a list"
        case "dict_type" | "mapping_type":
            return "it must be a mapping of names"
        case "model_type" | "model_attributes_type":
            return "it must be a mapping of keys"
        case "too_short":
            return f"it must have at least {context['min_length']}, and has {context['actual_length']}"
        case "too_long":
            return f"it must have at most {context['max_length']}, and has {context['actual_length']}"
        case "value_error":
            return str(context["error"])
        case _:
            return error["msg"][:1].lower() + error["msg"][1:]


def remedy_of(error: ErrorDetails, path: str) -> str:
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


def _choices(expected: str) -> str:
    """`'a', 'b' or 'c'` without the quotes."""
    return ", ".join(re.findall(r"'([^']*)'", expected)[:-1]) + _last(expected)


def _last(expected: str) -> str:
    found = re.findall(r"'([^']*)'", expected)
    return f" or {found[-1]}" if len(found) > 1 else found[-1]


def valid_values(error: ErrorDetails) -> list[str]:
    """The valid values, if there is a list of them."""
    context: dict[str, Any] = error.get("ctx", {})
    text = context.get("expected_tags") or context.get("expected") or ""
    return re.findall(r"'([^']*)'", text)
