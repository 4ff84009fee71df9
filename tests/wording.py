"""Finds decisions on the wording of errors, faults and warnings: sentences are for people, codes and types for code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

_SENTENCES = {"rule", "remedy", "message", "msg", "problem", "strerror"}
"""Attributes that hold sentences."""
_TESTS = {"startswith", "endswith", "find", "index", "count", "match", "search", "fullmatch", "findall", "finditer"}
_NAMED = {"error", "warning", "fault"}
_COMPARED = (ast.Eq, ast.NotEq, ast.In, ast.NotIn)


def decisions(source: str) -> Iterator[tuple[int, str, str]]:
    """Comparisons and searches of sentences in a module: line, function and expression."""
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            errors = set(_errors(function))
            sentences = _assigned(function, errors)
            for node in ast.walk(function):
                if any(_is_sentence(each, errors, sentences) for each in _judged(node)):
                    yield node.lineno, function.name, ast.unparse(node)  # type: ignore[attr-defined]


def _judged(node: ast.AST) -> list[ast.expr]:
    """What an expression judges by its text."""
    if isinstance(node, ast.Compare) and any(isinstance(operator, _COMPARED) for operator in node.ops):
        return [node.left, *node.comparators]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _TESTS:
        return [node.func.value, *node.args]
    return []


def _errors(function: ast.AST) -> Iterator[str]:
    """The names of errors, faults and warnings."""
    for node in ast.walk(function):
        if isinstance(node, ast.ExceptHandler) and node.name:
            yield node.name
        elif isinstance(node, ast.arg) and node.annotation is not None:
            kind = ast.unparse(node.annotation)
            if any(word in kind for word in ("Exception", "Error", "Fault")):
                yield node.arg
        elif isinstance(node, ast.comprehension | ast.For) and ast.unparse(node.target) in _NAMED:
            yield ast.unparse(node.target)


def _assigned(function: ast.AST, errors: set[str]) -> set[str]:
    """The names of texts of errors, and of parameters that are messages."""
    found = {
        node.arg for node in ast.walk(function) if isinstance(node, ast.arg) and node.arg in ("message", "warning")
    }
    for _ in range(3):  # a text of a text
        for node in ast.walk(function):
            if isinstance(node, ast.NamedExpr) and _is_sentence(node.value, errors, found):
                found.add(node.target.id)
            elif isinstance(node, ast.Assign):
                found.update(_targets(node, errors, found))
    return found


def _targets(node: ast.Assign, errors: set[str], found: set[str]) -> Iterator[str]:
    [target] = node.targets[:1]
    if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
        pairs = list(zip(target.elts, node.value.elts, strict=False))
    else:
        pairs = [(each, node.value) for each in (target.elts if isinstance(target, ast.Tuple) else [target])]
    for name, value in pairs:
        if isinstance(name, ast.Name) and _is_sentence(value, errors, found):
            yield name.id


def _is_sentence(node: ast.expr, errors: set[str], found: set[str]) -> bool:
    """Whether an expression is the text of an error, or a part of one; what is made of an error's data is none."""
    match node:
        case ast.Attribute(attr=name):
            return name in _SENTENCES
        case ast.Name(id=name):
            return name in found
        case ast.Subscript(value=value, slice=ast.Constant(value=key)) if isinstance(key, str):
            return key in (*_SENTENCES, "warnings")
        case ast.Subscript(value=value):
            return _is_sentence(value, errors, found)
        case ast.Call(func=ast.Name(id="str" | "repr" | "first_line" | "lines"), args=[value, *_]):
            return (isinstance(value, ast.Name) and value.id in errors) or _is_sentence(value, errors, found)
        case ast.Call(func=ast.Attribute(value=value), args=arguments):  # such as text.lower(), or " ".join(…)
            return any(_is_sentence(each, errors, found) for each in [value, *arguments])
        case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value=name), *_]):
            return name in _SENTENCES
        case ast.BoolOp(values=values):
            return any(_is_sentence(each, errors, found) for each in values)
        case ast.JoinedStr(values=values):
            parts = [each.value for each in values if isinstance(each, ast.FormattedValue)]
            return any(isinstance(each, ast.Name) and each.id in errors for each in parts)
        case _:
            return False


ALLOWED = {
    "cli/arguments.py": "argparse's errors are nothing but text, which is told in other words",
    "cli/commands/__init__.py": "TensorFlow makes a text of what its threads raise",
    "data/files/text_table.py": "Arrow raises the same error for a record that is too long, and for a wrong value",
    "system/machine_faults.py": "TensorFlow and the dynamic linker put what the system says into a text",
    "tables/inputs.py": "what a step asserts comes back as the text of TensorFlow's error",
    "tables/tpu_tables.py": "TensorFlow raises a RuntimeError for whatever a TPU refuses",
}
"""Modules that read texts of libraries, as these give nothing else."""


def main() -> None:
    """Prints all of them."""
    package = Path(__file__).resolve().parents[1] / "embexp"
    for module in sorted(package.rglob("*.py")):
        for line, function, text in decisions(module.read_text(encoding="utf-8")):
            print(f"{module.relative_to(package)}:{line} {function}: {text}")


if __name__ == "__main__":
    main()
