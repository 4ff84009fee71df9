"""A checkpoint under a prefix in anybody's folder, written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from embexp.checkpoints.locating import NAME
from embexp.errors import CheckpointError
from embexp.system import files
from embexp.tensor_bundle import location
from embexp.tensor_bundle.index import data_file, read_encoded
from embexp.tensor_bundle.writer import index_content

_DATA = re.compile(r"\.data-[0-9]{5}-of-([0-9]{5})")


@contextlib.contextmanager
def published(prefix: Path) -> Iterator[Path]:
    """A temporary folder; the checkpoint `checkpoint` in it gets its prefix when the block ends without an error.

    Its files are on disk (fsync) before that. The index is renamed last. A checkpoint of that prefix is replaced: until
    then it is whole, as the number of data files, which is in the names of all, differs from its own.

    Raises:
        CheckpointError: a file can't be written; what was there before is whole.
    """
    try:
        prefix.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=prefix.parent, prefix=f".{prefix.name}.", suffix=".part") as folder:
            yield Path(folder)
            _publish(Path(folder) / f"{NAME}.index", prefix)
    except OSError as error:
        raise CheckpointError(f"{prefix}: the checkpoint can't be written: {error.strerror or error}") from error


def mark_latest(prefix: Path, *, only_first: bool = False) -> None:
    """Has `tf.train.latest_checkpoint` find a published checkpoint in its folder, beside those that it names already.

    Args:
        prefix: of the checkpoint.
        only_first: nothing is written where another checkpoint is named: a program may go on from that.

    Raises:
        CheckpointError: the file can't be written; the checkpoint is whole.
    """
    folder = prefix.parent
    if only_first and location.marked_latest(folder) is not None:
        return
    try:
        location.mark_latest(folder, [*(each for each in location.marked(folder) if each != prefix), prefix])
    except OSError as error:
        reason = error.strerror or error
        raise CheckpointError(
            f"{prefix}: TensorFlow's file that names the latest can't be written: {reason}"
        ) from error


def _publish(index: Path, prefix: Path) -> None:
    entries, shards = read_encoded(index)
    target = prefix.with_name(f"{prefix.name}.index")
    old = {each: int(count) for each, count in _data_files(prefix)}
    total = shards
    while total in old.values():
        total += 1
    for shard in range(shards):
        file = data_file(index, shard, shards)
        if file.exists():
            files.to_disk(file)
            os.replace(file, data_file(target, shard, total))
    files.to_disk(prefix.parent)
    with files.written_whole(target) as written:
        written.write(index_content(entries, total))
    files.to_disk(prefix.parent)
    for each in old:
        each.unlink(missing_ok=True)


def _data_files(prefix: Path) -> Iterator[tuple[Path, str]]:
    for each in prefix.parent.iterdir():
        if each.name.startswith(f"{prefix.name}.data-"):
            found = _DATA.fullmatch(each.name.removeprefix(prefix.name))
            if found is not None:
                yield each, found[1]
