"""Losses of power: of a run that is stopped, only what a file system had to keep is left, and it is resumed.

A file keeps what it held at its last fsync; of what was written since then any part, or zeros. A name (of a file that
was created, renamed, linked or removed) is there as of the last fsync of its folder; of the later changes in a folder
any first ones. A rename between two folders is one change. This is more than journaling file systems lose.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.torture import kills, shim
from tests.torture.kills import Case, Torture
from tests.torture.shim import NEVER, Control, Kill, Operation

_PAGE = 4096
_LOSSES = ("all since the last fsync", "none", "some")
_DONE = 0.25
"""Share of the losses that are after the command has ended with success."""


@dataclass(eq=False)
class Node:
    """A file, or a folder.

    Attributes:
        folder: whether it is one.
        entries: of a folder, by name, as programs see them.
        changes: of a folder's names, in order; see `Change`.
        durable: how many of them a loss of power can't undo.
        synced: number of the copy of a file as of its last fsync; -1: there was none.
        last: number of the copy of a file that has lost a name since; -1: it has not.
        target: of a symbolic link.
    """

    folder: bool = False
    entries: dict[str, Node] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    durable: int = 0
    synced: int = -1
    last: int = -1
    target: str | None = None


@dataclass(eq=False)
class Change:
    """A change of names that is durable as a whole or not at all.

    Attributes:
        parts: folder, name, and what has that name then; None: nothing.
    """

    parts: list[tuple[Node, str, Node | None]]


class Disk:
    """What programs see of a folder, and what a loss of power leaves, after the operations of a log."""

    def __init__(self, root: Path) -> None:
        """Starts with an empty folder.

        Args:
            root: the folder that was watched.
        """
        self._root, self._top = root, Node(folder=True)

    def apply(self, operations: Sequence[Operation]) -> None:
        """Does what a log says."""
        for each in operations:
            if each.name == "symlink":
                self._change((each.path, Node(target=each.other)))
            elif each.name in ("create", "mkdir"):
                self._change((each.path, Node(folder=each.name == "mkdir")))
            elif each.name in ("unlink", "rmdir"):
                self._find(each.path).last = each.copy
                self._change((each.path, None))
            elif each.name == "link":
                self._change((each.other, self._find(each.path)))
            elif each.name == "rename":
                moved = self._find(each.path)
                if each.copy >= 0:
                    self._find(each.other).last = each.copy
                self._change((each.path, None), (each.other, moved))
            elif each.name == "fsync":
                if " (deleted)" not in each.path:
                    self._find(each.path).synced = each.copy
            elif each.name == "fsync_folder":
                node = self._find(each.path)
                if node.changes:
                    _commit(node, len(node.changes))

    def names(self) -> set[str]:
        """Relative paths of all that programs see."""
        return {str(path) for path, _ in _walk(self._top, Path())} - {"."}

    def left(self, copies: Path, to: Path, generator: random.Random) -> str:
        """Writes a folder that a loss of power may leave; returns what is lost, for people.

        Args:
            copies: of contents.
            to: folder to make.
            generator: of what is lost.
        """
        nodes = _every_node(self._top)
        present = {node: self._root / path for path, node in _walk(self._top, Path())}
        names, contents = generator.choice(_LOSSES), generator.choice(_LOSSES)
        for node in nodes:
            pending = len(node.changes) - node.durable
            some = {_LOSSES[0]: 0, _LOSSES[1]: pending}.get(names, generator.randint(0, pending))
            _commit(node, node.durable + some)

        def content(node: Node) -> bytes:
            now = synced = (copies / str(node.synced)).read_bytes() if node.synced >= 0 else b""
            if node in present:
                now = present[node].read_bytes()
            elif node.last >= 0:
                now = (copies / str(node.last)).read_bytes()
            return _between(synced, now, generator, contents)

        _write(self._top, to, content, {})
        return f"names: {names}, contents: {contents}"

    def _change(self, *parts: tuple[str, Node | None]) -> None:
        change = Change([])
        for path, node in parts:
            folder, name = self._find(os.path.dirname(path)), os.path.basename(path)
            change.parts.append((folder, name, node))
            if node is None:
                del folder.entries[name]
            else:
                folder.entries[name] = node
        for folder in dict.fromkeys(folder for folder, _, _ in change.parts):
            folder.changes.append(change)

    def _find(self, path: str) -> Node:
        node = self._top
        for name in Path(path).relative_to(self._root).parts:
            node = node.entries[name]
        return node


def _commit(folder: Node, count: int) -> None:
    """Makes the first changes of a folder durable, and with each all that came before it in its other folders."""
    while folder.durable < count:
        change = folder.changes[folder.durable]
        folder.durable += 1
        for other, _, _ in change.parts:
            if other is not folder:
                _commit(other, other.changes.index(change) + 1)


def _durable(folder: Node) -> dict[str, Node]:
    entries: dict[str, Node] = {}
    for change in folder.changes[: folder.durable]:
        for of, name, node in change.parts:
            if of is folder:
                if node is None:
                    entries.pop(name, None)
                else:
                    entries[name] = node
    return entries


def _walk(node: Node, path: Path) -> Iterator[tuple[Path, Node]]:
    yield path, node
    for name, each in node.entries.items():
        yield from _walk(each, path / name)


def _every_node(top: Node) -> list[Node]:
    """Also those without a name."""
    found: dict[Node, None] = {top: None}
    todo = [top]
    while todo:
        for change in todo.pop().changes:
            for _, _, node in change.parts:
                if node is not None and node not in found:
                    found[node] = None
                    todo.append(node)
    return list(found)


def _write(folder: Node, to: Path, content: Callable[[Node], bytes], made: dict[Node, Path]) -> None:
    to.mkdir()
    for name, node in _durable(folder).items():
        path = to / name
        if node in made:
            os.link(made[node], path)
        elif node.folder:
            _write(node, path, content, made)
        elif node.target is not None:
            path.symlink_to(node.target)
        else:
            path.write_bytes(content(node))
            made[node] = path


def _between(synced: bytes, now: bytes, generator: random.Random, losses: str) -> bytes:
    """A file that was `synced` once, and of whose later writes up to `now` some may be lost."""
    if synced == now or losses == _LOSSES[1]:
        return now
    if losses == _LOSSES[0]:
        return synced
    choice = generator.choice(("lost", "kept", "shorter", "zeros", "pages"))
    if choice in ("lost", "kept"):
        return synced if choice == "lost" else now
    if now.startswith(synced):  # appended to
        size = generator.randint(len(synced), len(now))
        return now[:size] + (b"" if choice == "shorter" else bytes(len(now) - size))
    size = generator.choice((len(synced), len(now)))
    pages = [generator.choice((synced, now))[at : at + _PAGE] for at in range(0, max(len(synced), len(now)), _PAGE)]
    return b"".join(pages)[:size]


def cases(torture: Torture, kinds: Sequence[str], seed: int, numbers: Iterable[int]) -> Iterator[Case]:
    """The losses of power of these numbers, in turn over the kinds."""
    for number in numbers:
        yield _case(torture, kinds[number % len(kinds)], seed, number)


def _case(torture: Torture, kind: str, seed: int, number: int) -> Case:
    """The loss of power of a number: the same for the same seed, but for the order of threads."""
    generator = random.Random(f"power {kind} {seed} {number}")
    done = generator.random() < _DONE
    kill = NEVER if done else Kill(kills.drawn(generator, torture.reference(kind).operations, kind).at)
    with torture.place(f"power {number}") as folder:
        work = folder / "work"
        control = Control(folder / "control", work, kill, copies=True)
        ended = torture.commands.ended(torture.commands.words(kind), work, control)
        shim.left(work)
        disk = Disk(control.watched)
        disk.apply(control.operations())
        lost = disk.left(control.folder / "copies", folder / "after", generator)
        case = Case(f"{number}: {kind}", f"after {control.last()}; {lost}")
        seen = {str(path.relative_to(work)) for path in work.rglob("*")}
        if seen != disk.names():
            case.faults.append(f"the log misses operations: {sorted(seen ^ disk.names())[:5]}")
        if not control.killed and ended.status == 0:
            case.outcome = "whole after the command was done"
            torture.compare(case, kind, folder / "after")
        else:
            torture.finish(case, kind, folder / "after")
        torture.keep(case, folder)
    return case
