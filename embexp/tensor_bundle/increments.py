"""Incremental checkpoints: the rows of tables that changed since another checkpoint, their base, and all else whole.

An incremental checkpoint is a checkpoint with one more file, `PREFIX.increment.json`. It names the base and its digest,
and for each matrix of which the checkpoint has some rows only, two tensors: the rows' numbers, int64 [n], rising, and
the rows, float32 [n, dim]. The base may be incremental too; the chain ends at a whole checkpoint. Each checkpoint of a
chain is in a directory of its own, all of these in one folder, which can be moved.

What changed since the last checkpoint, and everything from time to time, is the "consecutive increment" of Check-N-Run
(Eisenman et al., NSDI '22).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from embexp.errors import CheckpointError
from embexp.tensor_bundle.index import Entry, read_index

_ENDING = ".increment.json"
_BASE = re.compile(r"\.\./(?!\.\.?/)[^/\0]+/(?!\.\.?$)[^/\0]+")


@dataclass(frozen=True)
class SomeRows:
    """Rows of a matrix that an incremental checkpoint has.

    Attributes:
        shape: of the whole matrix.
        numbers: key of the rows' numbers.
        rows: key of the rows.
    """

    shape: tuple[int, int]
    numbers: str
    rows: str


@dataclass(frozen=True)
class Link:
    """A checkpoint of a chain.

    Attributes:
        prefix: of its files.
        base: prefix of its base; None: it is whole.
        base_digest: of the base when this checkpoint was written.
        matrices: by key, the matrices of which it has some rows only.
    """

    prefix: Path
    base: Path | None = None
    base_digest: str = ""
    matrices: Mapping[str, SomeRows] = field(default_factory=dict)

    def entries(self) -> dict[str, Entry]:
        """The tensors in its files, by key.

        Raises:
            DataError: its index is damaged.
        """
        return read_index(_index(self.prefix))


def is_incremental(prefix: Path) -> bool:
    """Whether a checkpoint has some rows of its tables only."""
    return _description(prefix).is_file()


def describe(prefix: Path, base: Path, matrices: Mapping[str, SomeRows]) -> None:
    """Makes the checkpoint at `prefix` an incremental one.

    Args:
        prefix: of the checkpoint.
        base: prefix of its base, in a directory beside that in which the checkpoint will be.
        matrices: by key, the matrices of which it has some rows only.
    """
    content = {
        "base": f"../{base.parent.name}/{base.name}",
        "base_digest": _digest(base),
        "matrices": {key: asdict(rows) for key, rows in matrices.items()},
    }
    _description(prefix).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def link(prefix: Path) -> Link:
    """One checkpoint, without a look at its base.

    Raises:
        CheckpointError: the file that describes an incremental one is damaged.
    """
    path = _description(prefix)
    if not path.is_file():
        return Link(prefix)
    try:
        content = json.loads(path.read_bytes())
        matrices = {
            key: SomeRows((int(each["shape"][0]), int(each["shape"][1])), str(each["numbers"]), str(each["rows"]))
            for key, each in content["matrices"].items()
        }
        if not _BASE.fullmatch(str(content["base"])):
            raise ValueError(f"its base is {str(content['base'])[:80]!r}, expected a checkpoint in a folder beside it")
        # The directory may be known by a symbolic link to it, which lies elsewhere.
        base = Path(os.path.normpath(os.path.realpath(prefix.parent) + "/" + str(content["base"])))
        return Link(prefix, base, str(content["base_digest"]), matrices)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError) as error:
        raise CheckpointError(f"{path}: found no description of an incremental checkpoint: {error!r}") from None


def entries_as_whole(index: Path) -> dict[str, Entry]:
    """The tensors of a checkpoint, by key; matrices of which it has some rows only have the shape of the whole.

    Args:
        index: the `.index` file.

    Raises:
        CheckpointError: the file that describes an incremental checkpoint is damaged.
        DataError: the index is damaged.
    """
    found = link(_prefix(index))
    entries = found.entries()
    return entries | {key: replace(entries[key], shape=some.shape) for key, some in found.matrices.items()}


def require_whole(index: Path) -> None:
    """Raises CheckpointError if a checkpoint, given by its `.index` file, is incremental."""
    if (base := link(_prefix(index)).base) is not None:
        raise CheckpointError(
            f"{index.parent} is an incremental checkpoint: it has the rows that changed since {base.parent.name}, and a"
            " whole one is needed, such as a run writes at its end"
        )


def chain(prefix: Path) -> list[Link]:
    """A checkpoint, its base, the base of that, and so on to a whole one.

    Raises:
        CheckpointError: a base is missing, or no longer what it was when the next one was written.
    """
    links = [link(prefix)]
    while (base := links[-1].base) is not None:
        of = f"{links[-1].prefix.parent} is an incremental checkpoint: it has the rows that changed since {base.parent}"
        remedy = "Restore another checkpoint, or bring that one back"
        if not _index(base).is_file():
            raise CheckpointError(f"{of}, which is missing. {remedy}")
        if _digest(base) != links[-1].base_digest:
            raise CheckpointError(f"{of}, which has been written again since, or is damaged. {remedy}")
        links.append(link(base))
    return links


def needed(directories: Iterable[Path], name: str = "checkpoint") -> set[Path]:
    """These checkpoints, and all that they are based on: what must stay when others are removed.

    Args:
        directories: of the checkpoints, in one folder.
        name: last part of their prefixes.

    Raises:
        CheckpointError: the file that describes an incremental one is damaged.
    """
    found: set[Path] = set()
    pending = list(directories)
    while pending:
        directory = pending.pop()
        if directory not in found:
            found.add(directory)
            base = link(directory / name).base
            pending += [] if base is None else [directory.parent / base.parent.name]
    return found


def _description(prefix: Path) -> Path:
    return prefix.with_name(prefix.name + _ENDING)


def _prefix(index: Path) -> Path:
    return index.with_name(index.name.removesuffix(".index"))


def _index(prefix: Path) -> Path:
    return prefix.with_name(f"{prefix.name}.index")


def _digest(prefix: Path) -> str:
    """Digest of a checkpoint's index, which has the checksums of all its tensors, and of what it says of its base."""
    content = hashlib.sha256(_index(prefix).read_bytes())
    if is_incremental(prefix):
        content.update(_description(prefix).read_bytes())
    return content.hexdigest()
