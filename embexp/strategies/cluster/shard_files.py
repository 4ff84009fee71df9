"""Checkpoints that all workers write and read: each its own rows, in files of a folder that all of them see.

To save, worker 0 tells the others the folder, which is there under a name that nobody had before. Each worker writes
its rows into a data file of its own. When all are on disk, worker 0 merges what they say of them into the index. To
restore, worker 0 tells them where a tensor is, and each reads its rows. Each compares the checksums of its share of the
slices. A worker that does not see the files has its rows from worker 0, or sends them, a block at a time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from embexp.errors import DataError, RunError
from embexp.strategies.cluster.control import Follower, Leader
from embexp.strategies.cluster.partition import OwnRows
from embexp.strategies.cluster.rows import ShardedTable, WorkerTable, sharded
from embexp.system.parallel import Progress, part, quiet, reported
from embexp.system.printable import print
from embexp.system.tensor_bundle import writer
from embexp.system.tensor_bundle.increments import Values
from embexp.system.tensor_bundle.index import index_of, read_encoded
from embexp.system.tensor_bundle.writer import BundleWriter
from embexp.tables.checkpointing import StreamedTable, rows_per_block

_WRITING = "writing the checkpoint"
_FAULTS: dict[str, type[Exception]] = {"data": DataError, "value": ValueError, "system": OSError}
"""What may go wrong with files or rows; anything else ends the run."""
_Part = tuple[str, str, str | None, int]
"""What a worker has rows of: key, table, slot or None, and the number of the type."""


class ShardFiles:
    """Worker 0's side of checkpoints that all workers write and read; `Together`.

    Attributes:
        shared: whether all workers saw the files so far.
    """

    def __init__(self, tables: Mapping[str, ShardedTable], leader: Leader, workers: int) -> None:
        """Writes and reads nothing."""
        self._tables, self._leader, self._others = tables, leader, range(1, workers)
        self.shared = True

    def write(self, prefix: Path, tables: Mapping[str, StreamedTable], progress: Progress) -> bool:
        """Adds the rows of tables to a checkpoint, by key; see `Together`."""
        prefix = prefix.parent.resolve() / prefix.name
        if not self._seen({"folder": str(prefix.parent)}, str(prefix.parent)):
            return False
        parts = [(key, each.table, each.slot, each.dtype.as_datatype_enum) for key, each in tables.items()]
        index = index_of(prefix)
        _, first = read_encoded(index)
        total = first + 1 + len(self._others)
        self._leader.tell({"command": "save", "prefix": str(prefix), "first": first, "of": total, "parts": parts})
        own, others = self._all(lambda: _write(self._tables, 0, prefix, (first, total), parts, progress))
        matrices: dict[str, writer.Matrix] = {}
        for key, name, slot, kind in parts:
            table = self._tables[name]
            slices = [each for worker in range(total - first) for each in table.partition.slices(worker)]
            matrices[key] = (kind, (table.rows, table.width(slot)), sorted(slices))
        writer.merge(index, [own, *(array.tobytes() for _, (array,) in others)], matrices)
        return True

    def restore(self, part: StreamedTable, values: Values) -> bool:
        """Assigns all rows; see `Together`."""
        paths = writer.paths_of(values)
        if not self._seen({"files": [[path, *_state(path)] for path in paths]}, paths[0]):
            return False
        head = {"command": "restore", "table": part.table, "slot": part.slot, "values": writer.description(values)}
        self._leader.tell(head)
        self._all(lambda: _restore(self._tables[part.table], 0, part.slot, values))
        return True

    def _seen(self, what: dict[str, Any], named: str) -> bool:
        """Whether all workers see a folder, or files."""
        self._leader.tell({"command": "sees", **what})
        blind = [worker for worker, (head, _) in self._replies() if not head["sees"]]
        if blind and self.shared:
            self.shared = False
            print(f"worker {blind[0]} does not see {named} of worker 0; put it on a file system that all workers share")
        return not blind

    def _all(self, own: Callable[[], Any]) -> tuple[Any, list[tuple[int, tuple[Any, ...]]]]:
        """What worker 0 has done itself, and the arrays of the others' replies; all are there before any error.

        Raises:
            DataError: a file is damaged.
            ValueError: rows that can't be assigned would change.
            OSError: a file can't be written.
        """
        found, fault = None, None
        try:
            found = own()
        except tuple(_FAULTS.values()) as error:
            fault = error
        replies = list(self._replies())
        if fault is not None:
            raise fault
        for worker, (head, _) in replies:
            if (kind := head.get("fault")) == "system":
                raise OSError(head["number"], f"{head['reason']} (worker {worker})", head["path"])
            if kind is not None:
                raise _FAULTS[kind](head["reason"])
        return found, [(worker, tuple(arrays)) for worker, (_, arrays) in replies]

    def _replies(self) -> Iterator[tuple[int, tuple[dict[str, Any], list[np.ndarray]]]]:
        for worker in self._others:
            yield worker, self._leader.reply(worker)


def serve_rows(
    tables: Mapping[str, WorkerTable],
    worker: int,
    follower: Follower,
    head: Mapping[str, Any],
    arrays: Sequence[np.ndarray],
) -> None:
    """Reads or writes rows of a worker, in its memory or in files, as worker 0 says.

    Raises:
        RunError: worker 0 says something else, or is gone.
    """
    if serve(sharded(tables), worker, follower, head):
        return
    table, slot = tables[head["table"]], head.get("slot")
    match head["command"], table:
        case "read", ShardedTable():
            follower.answer({}, [table.read_own(head["range"][0], head["range"][1], slot)])
        case "take", ShardedTable():
            follower.answer({}, [table.own.take(arrays[0], slot)])
        case "write", _:
            try:
                table.write_own(head["start"], arrays[0], slot)
                follower.answer({})
            except ValueError as error:
                follower.answer({"wrong": str(error)})
        case "digest", _:
            follower.answer({"digest": table.digest()})
        case "flags", ShardedTable():
            follower.answer({}, [table.own_flags()])
        case "clear", ShardedTable():
            table.clear_own_flags()
            follower.answer({})
        case other, _:
            raise RunError(f"worker 0 says {other!r}, which this worker does not know")


def serve(tables: Mapping[str, ShardedTable], worker: int, follower: Follower, head: Mapping[str, Any]) -> bool:
    """Does what worker 0 says of files; returns whether that was about files."""
    match head["command"]:
        case "sees":
            found = [[path, *_state(path)] for path, *_ in head.get("files", ())] == head.get("files", [])
            follower.answer({"sees": found and ("folder" not in head or Path(head["folder"]).is_dir())})
        case "save":
            parts = [tuple(each) for each in head["parts"]]
            place = head["first"] + worker, head["of"]
            _answer(follower, lambda: _write(tables, worker, Path(head["prefix"]), place, parts, quiet))
        case "restore":
            table, values = tables[head["table"]], writer.described(head["values"])
            _answer(follower, lambda: _restore(table, worker, head["slot"], values))
        case _:
            return False
    return True


def _answer(follower: Follower, do: Callable[[], bytes]) -> None:
    """Replies with what is done, or with what was wrong."""
    try:
        found = do()
    except OSError as error:
        reason = error.strerror or str(error)
        follower.answer({"fault": "system", "number": error.errno, "reason": reason, "path": str(error.filename)})
    except (DataError, ValueError) as error:
        follower.answer({"fault": "data" if isinstance(error, DataError) else "value", "reason": str(error)})
    else:
        follower.answer({}, [np.frombuffer(found, np.uint8)])


def _write(
    tables: Mapping[str, ShardedTable],
    worker: int,
    prefix: Path,
    place: tuple[int, int],
    parts: Sequence[_Part],
    progress: Progress,
) -> bytes:
    """Writes a worker's rows into its data file, and returns their entries when they are on disk."""
    with contextlib.closing(BundleWriter(prefix, shard=place)) as writer:
        for number, (key, name, slot, kind) in enumerate(parts):
            table, of_part = tables[name], part(progress, number / len(parts), (number + 1) / len(parts))
            count, width = table.partition.count(worker), table.width(slot)
            step = rows_per_block(width)
            blocks = (table.read_own(start, min(start + step, count), slot) for start in range(0, count, step))
            slices = table.partition.slices(worker)
            told = reported(blocks, max(1, -(-count // step)), _WRITING, of_part)
            writer.add_slices(key, (table.rows, width), slices, told, kind)
        return writer.finish_shard()


def _restore(table: ShardedTable, worker: int, slot: str | None, values: Values) -> bytes:
    """Assigns a worker's rows; returns nothing."""
    writer.verify_share(values, worker, table.partition.workers)
    count, step = table.partition.count(worker), rows_per_block(table.width(slot))
    own = OwnRows(_Stored(values), table.partition, worker)
    for start in range(0, count, step):
        table.write_own(start, own.read(start, min(start + step, count)), slot)
    return b""


@dataclass(frozen=True)
class _Stored:
    """A tensor of a checkpoint as `Rows`."""

    values: Values

    @property
    def rows(self) -> int:
        return self.values.entry.shape[0]

    @property
    def dim(self) -> int:
        return self.values.entry.shape[1]

    def read(self, start: int, stop: int) -> np.ndarray:
        return self.values.read(start, stop)


def _state(path: str) -> tuple[int, int]:
    """Size and time of a file, which are alike where it is the same one; -1 twice where there is none."""
    try:
        found = Path(path).stat()
    except OSError:
        return -1, -1
    return found.st_size, found.st_mtime_ns
