"""The size of the code, by package, and the budget that it has: `make size`.

A code line is one that is not blank, and not only a comment or part of a docstring. C++, the page of reports ("web")
and the benchmarks count as Python does, so that moving code is no saving. The budget is
`tests/size.toml`: a package that outgrows it fails `make check`. It goes down; a capability that needs more says why in
the commit that raises it.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.import_graph import edges, floors, statements

ROOT = Path(__file__).resolve().parents[1]
BUDGET = Path(__file__).with_suffix(".toml")
_CPP, _WEB = {".cc", ".h"}, {".js", ".css", ".html"}
_SKIPPED = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


@dataclass
class Size:
    """The size of a package.

    Attributes:
        code: lines with code.
        lines: all lines.
        modules: files.
    """

    code: int = 0
    lines: int = 0
    modules: int = 0


def code_lines(source: str) -> int:
    """Lines of Python that are neither blank, nor only a comment, nor part of a docstring."""
    found = list(_docstrings(ast.parse(source)))
    if source.count('"""') == 2 * len(found) and "'''" not in source:  # no other string has lines of its own
        lines = {
            number
            for number, line in enumerate(source.split("\n"), 1)
            if (text := line.strip()) and not text.startswith("#")
        }
    else:
        lines = {
            number
            for token in tokenize.generate_tokens(io.StringIO(source).readline)
            if token.type not in _SKIPPED
            for number in range(token.start[0], token.end[0] + 1)
        }
    for start, end in found:
        lines.difference_update(range(start, end + 1))
    return len(lines)


def _docstrings(tree: ast.Module) -> Iterator[tuple[int, int]]:
    """First and last line of each docstring, and of each string that stands alone below an attribute."""
    for node in statements(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.end_lineno or node.lineno


def code_lines_of_cpp(source: str) -> int:
    """Lines of C++, JavaScript, CSS or HTML that are neither blank nor only a comment."""
    count, inside = 0, False
    for line in map(str.strip, source.splitlines()):
        if line.startswith("<!--") and line.endswith("-->"):
            continue
        if not inside and line and not line.startswith("//") and not (line.startswith("/*") and line.endswith("*/")):
            count += not line.startswith("/*")
        inside = (inside or line.startswith("/*")) and "*/" not in line
    return count


def files() -> Iterator[Path]:
    """All files that count."""
    for folder in ("embexp", "hydra_plugins", "bench"):
        yield from sorted((ROOT / folder).rglob("*.py"))
    others = (file for file in (ROOT / "embexp").rglob("*") if file.suffix in _CPP | _WEB)
    yield from sorted(file for file in others if file.parent.name != "vendor")


def package_of(file: Path) -> str:
    """The package of `embexp` that a file belongs to, or the folder beside it; its modules at the top are `embexp`."""
    parts = file.relative_to(ROOT).parts
    if file.suffix in _CPP | _WEB:
        return "C++" if file.suffix in _CPP else "web"
    return parts[0] if parts[0] != "embexp" or len(parts) == 2 else parts[1]


def sizes() -> dict[str, Size]:
    """The size of each package."""
    found: dict[str, Size] = {}
    for file in files():
        source = file.read_text(encoding="utf-8")
        size = found.setdefault(package_of(file), Size())
        size.code += code_lines_of_cpp(source) if file.suffix != ".py" else code_lines(source)
        size.lines += source.count("\n")
        size.modules += 1
    return found


def largest_folder() -> tuple[int, str]:
    """How many modules lie side by side in the fullest folder of `embexp`, without `__init__`, and its name."""
    counts = Counter(file.parent for file in (ROOT / "embexp").rglob("*.py") if file.name != "__init__.py")
    folder, count = counts.most_common(1)[0]
    return count, str(folder.relative_to(ROOT))


def functions_of_spec() -> list[str]:
    """The functions of `embexp`, but for specs and fields, that take a whole `RunSpec` instead of values."""
    found = []
    for file in sorted((ROOT / "embexp").rglob("*.py")):
        if package_of(file) in ("specs", "fields"):
            continue
        for node in statements(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                types = [ast.unparse(each.annotation) for each in every if each.annotation is not None]
                if any(part.strip().rpartition(".")[2] == "RunSpec" for each in types for part in each.split("|")):
                    found.append(f"{file.relative_to(ROOT)}:{node.lineno} {node.name}")
    return found


def excesses(budget: dict[str, int], found: dict[str, Size]) -> list[str]:
    """Where the code is larger than its budget, and where the budget does not fit the packages that there are."""
    said = [
        f"{name} has {size.code:,} lines of code, and its budget is {budget[name]:,}: make it smaller, or raise the"
        " budget in tests/size.toml, and say in the commit what for"
        for name, size in found.items()
        if name in budget and size.code > budget[name]
    ]
    said += [f"{name} has no budget in tests/size.toml" for name in found.keys() - budget.keys()]
    return said + [f"tests/size.toml has a budget for {name}, which is gone" for name in budget.keys() - found.keys()]


def main() -> int:
    """Prints the sizes; returns 1 if one is over its budget."""
    budgets = tomllib.loads(BUDGET.read_text(encoding="utf-8"))
    budget: dict[str, int] = budgets["lines"]
    found = sizes()
    print(f"{'package':16} {'code lines':>10} {'budget':>8} {'all lines':>10} {'modules':>8}")
    for name, size in sorted(found.items()):
        print(f"{name:16} {size.code:10,} {budget.get(name, 0):8,} {size.lines:10,} {size.modules:8,}")
    ours = [size for name, size in found.items() if name not in ("C++", "web", "bench", "hydra_plugins")]
    for label, counted in (("embexp/*.py", ours), ("with web", [*ours, found["web"]]), ("all", list(found.values()))):
        code, lines, modules = (sum(getattr(size, each) for size in counted) for each in ("code", "lines", "modules"))
        print(f"{label:16} {code:10,} {sum(budget.values()) if label == 'all' else '':8} {lines:10,} {modules:8,}")
    graph = edges()
    count, folder = largest_folder()
    print(f"largest folder: {folder} with {count} modules; {len(graph)} packages and modules at the top,", end=" ")
    print(f"{max(floors(graph).values())} levels, {sum(map(len, graph.values()))} edges between them")
    of_spec, most = functions_of_spec(), budgets["functions"]["of_a_spec"]
    print(f"functions that take a whole RunSpec, outside embexp/specs: {len(of_spec)}, budget {most}")
    said = excesses(budget, found)
    if len(of_spec) > most:
        said.append("\n".join([f"{len(of_spec)} functions take a whole RunSpec, and {most} may:", *of_spec]))
    print("\n".join(said))
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
