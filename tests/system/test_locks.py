"""Locks between real processes."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from embexp.errors import RunError
from embexp.system import locks, machine
from embexp.system.locks import FileLock
from tests import disks
from tests.locked import held_elsewhere


def lock_in(folder: Path) -> FileLock:
    return locks.of_folder(folder, f"the run in {folder}")


def test_one_writes_and_nobody_reads(tmp_path: Path) -> None:
    with held_elsewhere(tmp_path) as process:
        words = f"the run in {tmp_path} is in use: process {process.pid} on .* holds {tmp_path / '.lock'}; wait"
        with pytest.raises(RunError, match=words), lock_in(tmp_path).exclusive():
            pass
        with pytest.raises(RunError, match=words), lock_in(tmp_path).shared():
            pass
        assert lock_in(tmp_path).writer().startswith(f"process {process.pid} on ")
        os.kill(process.pid, signal.SIGKILL)  # what it has noted stays, and means nothing
        with lock_in(tmp_path).exclusive(patience=30):
            assert lock_in(tmp_path).writer().startswith(f"process {os.getpid()} on ")
    assert lock_in(tmp_path).writer() == ""


def test_several_read_and_nobody_writes(tmp_path: Path) -> None:
    with lock_in(tmp_path).exclusive():
        pass
    with held_elsewhere(tmp_path, "shared"), lock_in(tmp_path).shared():
        assert lock_in(tmp_path).writer() == ""
    with held_elsewhere(tmp_path, "shared"):
        assert lock_in(tmp_path).writer() == ""
        with pytest.raises(RunError, match="is being read by another process"), lock_in(tmp_path).exclusive():
            pass


def test_a_reader_writes_nothing(tmp_path: Path) -> None:
    with lock_in(tmp_path).shared():
        assert list(tmp_path.iterdir()) == []  # nobody has ever written here
    with lock_in(tmp_path).exclusive():
        pass
    with lock_in(tmp_path / "no folder").shared(), lock_in(tmp_path / ".lock").shared():
        pass


def test_a_folder_on_a_read_only_disk_is_read(tmp_path: Path) -> None:
    with disks.small(tmp_path / "disk", kilobytes=100) as disk:
        with lock_in(disk).exclusive():
            pass
        disks.seal(disk)
        with held_elsewhere(disk, "shared"), lock_in(disk).shared():
            assert lock_in(disk).writer() == ""
        with pytest.raises(OSError, match="Read-only file system"), lock_in(disk).exclusive():
            pass
        with lock_in(disk).awaited():
            pass


def test_a_thread_may_take_it_again_and_another_may_not(tmp_path: Path) -> None:
    def taken(how: Callable[[FileLock], object]) -> list[str]:
        found: list[str] = []

        def act() -> None:
            try:
                with how(lock_in(tmp_path)):  # type: ignore[attr-defined]
                    found.append("taken")
            except RunError as error:
                found.append(str(error))

        thread = threading.Thread(target=act)
        thread.start()
        thread.join()
        return found

    with lock_in(tmp_path).exclusive():
        with lock_in(tmp_path).exclusive(), lock_in(tmp_path).shared():
            pass
        assert "process" in taken(FileLock.exclusive)[0]
        assert f"process {os.getpid()} on " in taken(FileLock.shared)[0]
        with pytest.raises(RunError), held_at_once(tmp_path):
            pass
    with lock_in(tmp_path).shared():
        assert taken(FileLock.shared) == ["taken"]
        assert "is being read by this process" in taken(FileLock.exclusive)[0]
        with pytest.raises(RunError, match="by this process"), lock_in(tmp_path).exclusive():
            pass
    assert taken(FileLock.exclusive) == ["taken"]


@contextmanager
def held_at_once(folder: Path) -> Iterator[None]:
    """The lock as a process sees it that begins now: by the kernel alone."""
    handle = os.open(folder / ".lock", os.O_RDWR)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise RunError("held") from error
    finally:
        os.close(handle)


def test_a_fork_does_not_hold_the_lock_of_its_parent(tmp_path: Path) -> None:
    """A process that outlives its parent would otherwise keep the folder for ever."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        with lock_in(tmp_path).exclusive():
            child = machine.fork()
            if child == 0:
                theirs.send(b"forked")
                theirs.recv(1)
                os._exit(0)
            ours.recv(6)
        try:
            with held_at_once(tmp_path), pytest.raises(RunError), held_at_once(tmp_path):
                pass
        finally:
            ours.send(b".")
            assert os.waitpid(child, 0)[1] == 0


def test_a_file_that_was_removed_in_the_meantime_is_no_lock(tmp_path: Path) -> None:
    with held_elsewhere(tmp_path):
        (tmp_path / ".lock").unlink()
        with lock_in(tmp_path).exclusive(), pytest.raises(RunError), held_at_once(tmp_path):
            pass


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    said: list[str] = []
    with pytest.raises(RunError, match=rf"{os.strerror(number)}; use a file system that has locks"):
        lock_in(tmp_path).exclusive().__enter__()
    with (
        lock_in(tmp_path).exclusive(without_locks=said.append),
        lock_in(tmp_path).shared(),
        lock_in(tmp_path).awaited(),
    ):
        assert said == [
            f"{tmp_path / '.lock'} can't be locked: {os.strerror(number)}; run one process at a time in {tmp_path}"
        ]
    with pytest.raises(OSError, match="can't be locked"):
        lock_in(tmp_path).writer()


def test_work_that_one_does_is_waited_for(tmp_path: Path) -> None:
    waited: list[str] = []
    with held_elsewhere(tmp_path) as process:

        def waiting() -> None:
            waited.append("once")
            process.kill()

        with lock_in(tmp_path).awaited(waiting):
            assert waited == ["once"]


@pytest.mark.parametrize("how", ["link", "dangling", "hard link", "of somebody"])
def test_a_lock_of_somebody_else_keeps_its_content(how: str, tmp_path: Path) -> None:
    """A folder from elsewhere may have anything in the place of its lock."""
    victim, lock = tmp_path / "victim", tmp_path / "folder" / ".lock"
    lock.parent.mkdir()
    if how != "dangling":
        victim.write_text("precious\n")
    if how == "hard link":
        lock.hardlink_to(victim)
    elif how == "of somebody":
        victim.rename(lock)
        victim = lock
    else:
        lock.symlink_to(victim)
    if lock.is_symlink():
        with pytest.raises(RunError, match="is a link"), lock_in(lock.parent).exclusive():
            pass
        with pytest.raises(RunError, match="is a link"), lock_in(lock.parent).shared():
            pass
        with pytest.raises(RunError, match="is a link"):
            lock_in(lock.parent).writer()
    else:
        with lock_in(lock.parent).exclusive():
            pass
    assert how == "dangling" or victim.read_text() == "precious\n"
    assert victim.exists() == (how != "dangling")
