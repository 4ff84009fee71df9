"""The import graph of embexp: its rooms (packages and top-level modules), and who imports whom.

`make graph` prints it: rooms, floors, arrows. A room stands one floor above the highest one that it imports.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "embexp"
MODULES = sorted(PACKAGE.rglob("*.py"))


def room_of(module: Path) -> str:
    """The package, or the top-level module, that a file belongs to."""
    relative = module.relative_to(PACKAGE)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


ROOMS = sorted({room_of(module) for module in MODULES})


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """All statements below a node, and the parts that hold them, such as `except`: few of what `ast.walk` visits."""
    for part in ("body", "handlers", "orelse", "finalbody", "cases"):
        found = getattr(tree, part, [])
        for node in found if isinstance(found, list) else []:
            yield node
            yield from statements(node)


def imports_of(module: Path) -> Iterator[str]:
    """Everything that a module imports when it is imported or, inside functions, later."""
    for node in statements(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def public_names() -> dict[str, str]:
    """The room that holds each public name of the package itself."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    found = {}
    for node in statements(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("embexp"):
            for alias in node.names:
                found[alias.name] = f"{node.module}.{alias.name}".split(".")[1]
    return found


def edges() -> dict[str, dict[str, set[str]]]:
    """By room, by imported room: the modules that import it. `from embexp import x` is an edge to the room of x."""
    public = public_names()
    found: dict[str, dict[str, set[str]]] = {room: {} for room in ROOMS}
    for module in MODULES:
        room = room_of(module)
        for name in imports_of(module):
            if name.split(".")[0] != "embexp":
                continue
            first = name.split(".")[1] if "." in name else "__init__"
            other = first if first in ROOMS else public.get(first, "__init__")
            if other != room:
                found[room].setdefault(other, set()).add(str(module.relative_to(PACKAGE)))
    return found


def floors(graph: dict[str, dict[str, set[str]]]) -> dict[str, int]:
    """The floor of each room, from 1.

    Raises:
        ValueError: rooms import each other in a circle.
    """
    heights: dict[str, int] = {}

    def height(room: str, above: tuple[str, ...]) -> int:
        if room in above:
            raise ValueError(f"a circle: {' -> '.join([*above[above.index(room) :], room])}")
        if room not in heights:
            heights[room] = 1 + max((height(other, (*above, room)) for other in graph[room]), default=0)
        return heights[room]

    for room in graph:
        height(room, ())
    return heights


def main() -> None:
    """Prints the graph."""
    graph = edges()
    heights = floors(graph)
    for room in sorted(graph, key=lambda each: (-heights[each], each)):
        print(f"{heights[room]:2}  {room:16} {' '.join(sorted(graph[room]))}")
    arrows = sum(map(len, graph.values()))
    lines = sum(bool(line.strip()) for module in MODULES for line in module.read_text(encoding="utf-8").splitlines())
    print(
        f"{len(ROOMS)} rooms, {max(heights.values())} floors, {arrows} arrows; {len(MODULES)} modules, {lines:,} lines"
    )


if __name__ == "__main__":
    main()
