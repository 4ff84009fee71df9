r"""Directories whose names TensorFlow would read as patterns, by an alias that it takes as it is.

TensorFlow writes to any path. It looks for a checkpoint's files by `Env::GetMatchingPaths`, for which `*`, `?`, `[` and
`\` in the whole path, directories included, are a pattern. A path with `[64]` or `\` does not match itself, so that
`RestoreV2` and `CheckpointReader`, and with them `tf.train.Checkpoint`, `tf.train.latest_checkpoint` and
`Saver.restore`, report a checkpoint that is there as missing, and `CheckpointManager` deletes no old ones. A path with
`*` or `?` matches others too, whose files it would delete. No other character does harm.
Sources: tensorflow/core/kernels/save_restore_v2_ops.cc, tensorflow/c/checkpoint_reader.cc,
tensorflow/python/checkpoint/checkpoint_management.py, tsl/platform/file_system_helper.cc
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from embexp.errors import CheckpointError

_PATTERN = frozenset("*?[\\")


def is_plain(path: Path) -> bool:
    """Whether TensorFlow takes a path, made absolute, as it is."""
    return not _PATTERN & set(str(path.absolute()))


@contextlib.contextmanager
def plain_path(directory: Path) -> Iterator[Path]:
    """A path of an existing directory that TensorFlow takes as it is, as long as the block lasts.

    That is the directory's own path if it is plain, otherwise a symbolic link to it in a temporary directory. Files
    that are written through it are in `directory`. What TensorFlow reads later, such as values of variables that are
    created later, must be read inside the block.

    Raises:
        CheckpointError: there is no plain temporary directory either.
    """
    if is_plain(directory):
        yield directory
        return
    with tempfile.TemporaryDirectory(prefix="embexp-", dir=plain_temporary(directory)) as folder:
        alias = Path(folder) / "alias"
        alias.symlink_to(directory.absolute(), target_is_directory=True)
        yield alias


def plain_temporary(directory: Path) -> str:
    """A directory for temporary files that TensorFlow takes as it is; `directory` is for the error.

    Raises:
        CheckpointError: there is none.
    """
    for candidate in (tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm"):
        if is_plain(Path(candidate)) and os.access(candidate, os.W_OK | os.X_OK):
            return candidate
    raise CheckpointError(
        f"{directory}: TensorFlow reads * ? [ and \\ in a path as a pattern, and no directory for temporary files is"
        " without them. Set TMPDIR to one that is"
    )
