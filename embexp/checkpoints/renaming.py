"""What `rename` means: where values go whose object path or name in the checkpoint is another one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from embexp.checkpoints import graph_protos, live, partitioned
from embexp.tensor_bundle.index import Entry


def targets(rename: Mapping[str, Any], graph: live.LiveGraph, names: Mapping[str, str]) -> dict[str, str]:
    """The object path that each old path or name goes to.

    Args:
        rename: by old object path or name, the new one, or the variable.
        graph: of the program.
        names: global names of its variables, by object path.
    """
    path_of = {name: path for path, name in names.items()}
    found = {}
    for old, new in rename.items():
        if isinstance(new, str):
            found[old] = new if new in names else path_of.get(new, new)
        else:
            parts = list(new) if partitioned.is_whole(new) else [new]
            found[old] = next((each.path for each in graph.values if each.object is parts[0]), "")
    return found


def move(proto: Any, targets: Mapping[str, str]) -> list[str]:
    """Moves objects in the object graph of a checkpoint, and returns faults."""
    paths = graph_protos.paths_of(proto)
    by_name: dict[str, list[str]] = {}
    for path, node in zip(paths, proto.nodes, strict=True):
        for attribute in node.attributes:
            by_name.setdefault(attribute.full_name, []).append(path)
    moves, faults = {}, []
    for old, new in targets.items():
        named = [old] if old in paths else by_name.get(old, [])
        if not new:
            faults.append(f"{old} is to go to what is no part of the objects")
        elif len(named) != 1:
            faults.append(f"{old} is the name of {len(named)} variables: {', '.join(named)}" if named else _lacks(old))
        else:
            moves[named[0]] = new
    return faults or graph_protos.move(proto, moves)


def sources(
    targets: Mapping[str, str], names: Mapping[str, str], entries: Mapping[str, Entry]
) -> tuple[dict[str, str], list[str]]:
    """The name in a name-based checkpoint of each variable that it has, by object path; and faults.

    Args:
        targets: by old name, or the beginning of names before a `/`, the new object path or name.
        names: global names of the program's variables, by object path.
        entries: of the checkpoint.
    """
    paths_of: dict[str, list[str]] = {}  # several of a partitioned variable
    for path, name in names.items():
        paths_of.setdefault(name, []).append(path)
    found = {path: name for path, name in names.items() if name in entries}
    given: dict[str, str] = {}
    faults = []
    for old, new in targets.items():
        olds = [old] if old in entries else [each for each in entries if each.startswith(f"{old}/")]
        if not olds:
            faults.append(_lacks(old))
        for each in olds:
            target = new + each.removeprefix(old)
            paths = paths_of.get(names.get(target, target), [])
            if not paths:
                faults.append(
                    f"{each} is to go to {target or 'what is no part of the objects'}, and there is no such variable"
                )
            elif paths[0] in given:
                faults.append(f"{each} and {given[paths[0]]} are to go to {paths[0]} both")
            else:
                given.update(dict.fromkeys(paths, each))
    # What goes elsewhere does not also go where its old name is.
    return {**{path: name for path, name in found.items() if name not in given.values()}, **given}, faults


def _lacks(old: str) -> str:
    return f"the checkpoint has no {old}"
