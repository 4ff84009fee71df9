"""Brings directories to disk while the program goes on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from embexp.system import files


class BackgroundDirectories:
    """Directories that are written whole or not at all, of which a thread waits for the disk.

    Writing a file leaves its content in memory that belongs to the system, and the disk is slower: it takes most of the
    time. The files of a directory are written at once, so they hold the state of one moment; a thread then waits until
    they are on disk and gives the directory its name. There is one such directory at a time.
    """

    def __init__(self) -> None:
        """Starts no thread yet."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="to-disk")
        self._pending: Future[None] | None = None

    @contextlib.contextmanager
    def written_whole(self, path: Path, on_disk: Callable[[], object] = lambda: None) -> Iterator[Path]:
        """Makes a temporary directory beside `path`, which becomes `path` some time after the end of the block.

        Waits for the directory before. If the block ends with an error, there is no `path`.

        Args:
            path: the directory to make.
            on_disk: called in the thread when `path` is there and on disk.

        Raises:
            FileExistsError: there is something of that name.
            Exception: what went wrong with the directory before, or with its `on_disk`; nothing is written then.
        """
        self.wait()
        with contextlib.ExitStack() as stack:
            yield stack.enter_context(files.directory_written_whole(path))
            rest = stack.pop_all()

        def finish() -> None:
            rest.close()
            on_disk()

        self._pending = self._thread.submit(finish)

    @property
    def busy(self) -> bool:
        """Whether the last directory is not yet on disk."""
        return self._pending is not None and not self._pending.done()

    def wait(self) -> None:
        """Waits until the last directory is on disk.

        Raises:
            Exception: what went wrong with it, or with its `on_disk`; it is raised once.
        """
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def close(self) -> None:
        """Waits like `wait`, and ends the thread."""
        try:
            self.wait()
        finally:
            self._thread.shutdown()
