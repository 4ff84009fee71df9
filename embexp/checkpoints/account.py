"""What a restore came to: every value of a checkpoint and of a program, in one of a few lists."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from embexp.errors import CheckpointError

_SHOWN = 20


@dataclass(frozen=True)
class Value:
    """A value of a checkpoint, or of an object that needs one.

    Attributes:
        path: its object path, such as `model/dense/kernel`; empty if the checkpoint is name-based and no object has the
            value.
        name: its variable's global name, such as `dense/kernel`; empty if it is not a variable.
        shape: None if that is not known.
        dtype: name of its type, such as `float32`; empty if that is not known.
    """

    path: str
    name: str
    shape: tuple[int, ...] | None = None
    dtype: str = ""

    def __str__(self) -> str:
        name = self.name if not self.path else f"{self.path} ({self.name})" if self.name else self.path
        return f"{name} {self.kind}".rstrip()

    @property
    def kind(self) -> str:
        """Type and shape."""
        shape = "" if self.shape is None else str(list(self.shape))
        return f"{self.dtype} {shape}".strip()


@dataclass(frozen=True)
class Mismatch:
    """A value whose shape or type differs from its variable's. The variable keeps its own value."""

    wanted: Value
    stored: Value

    def __str__(self) -> str:
        return f"{self.wanted}, in the checkpoint {self.stored.kind}"


@dataclass(frozen=True)
class Dropped:
    """A value of a checkpoint whose variable was restored from another value.

    This happens if two objects of the checkpoint are one object in the program.

    Attributes:
        value: the value that is not used.
        instead: the value that the variable has.
    """

    value: Value
    instead: Value

    def __str__(self) -> str:
        return f"{self.value}, whose variable was restored from {self.instead.path}"


@dataclass(frozen=True)
class Reordered:
    """A variable in a list that, judging by names, has the value of another variable of the same list.

    Attributes:
        stored: name in the checkpoint of the variable whose value it has.
    """

    path: str
    name: str
    stored: str

    def __str__(self) -> str:
        return f"{self.path} ({self.name}) has the value of {self.stored}"


@dataclass(frozen=True)
class Grown:
    """A restored variable whose rows differ from the checkpoint's.

    Attributes:
        value: the variable.
        kept: number of its rows from the checkpoint.
        new: number of rows with their initial values.
        dropped: number of the checkpoint's rows that it lacks.
    """

    value: Value
    kept: int
    new: int
    dropped: int

    def __str__(self) -> str:
        return f"{self.value}: {self.kept:,} rows kept, {self.new:,} new, {self.dropped:,} dropped"


Listed = Value | Mismatch | Dropped | Reordered | Grown


@dataclass(frozen=True)
class Account:
    """What happened to every value of a restore.

    Attributes:
        restored: values that variables got from the checkpoint; in a graph, values that `run_restore_ops` restores.
        missing: values that variables need but the checkpoint lacks.
        extra: values in the checkpoint that no variable needs.
        mismatched: values with a different shape or type.
        waiting: values of existing objects whose variables don't exist yet. They are restored when the variables are
            created.
        left_out: values in the checkpoint and variables that the caller asked to leave out.
        dropped: values without their own variable, because two objects of the checkpoint are one object in the program.
        reordered: restored variables of lists whose order seems to have changed. The asserts warn of them.
        grown: those of `restored` whose rows differ from the checkpoint's, as the caller allowed.
        pending: in a graph, those of `restored` that `run_restore_ops` has not yet restored in the session.
        initial: whether the session has other values for them, so that the asserts fail.
    """

    source: str
    restored: tuple[Value, ...] = ()
    missing: tuple[Value, ...] = ()
    extra: tuple[Value, ...] = ()
    mismatched: tuple[Mismatch, ...] = ()
    waiting: tuple[Value, ...] = ()
    left_out: tuple[Value, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    reordered: tuple[Reordered, ...] = ()
    grown: tuple[Grown, ...] = ()
    pending: tuple[Value, ...] = ()
    initial: bool = False

    def __str__(self) -> str:
        lines = [f"{self.source}: {self._count()} restored"]
        if self.pending and not self.initial:
            lines.append(f"  {len(self.pending)} to be restored by run_restore_ops")
        if self.grown:
            lines += _listed("whose rows differ from the checkpoint's", self.grown)
        for words, values in self._faults():
            lines += _listed(words, values)
        if self.left_out:
            lines += _listed("left out as requested", self.left_out)
        if self.reordered:
            lines += _listed("of lists whose order seems to have changed", self.reordered)
        return "\n".join(lines)

    def assert_complete(self) -> None:
        """Checks that every variable of the program was restored; the checkpoint may have more.

        Raises:
            CheckpointError: a variable is missing from the checkpoint, has another shape or type, does not exist yet or
                is not restored in a session; or nothing was restored. The message lists everything.
        """
        self._check(self._faults(self.pending, self.missing, self.mismatched, self.waiting), nothing=False)

    def assert_consumed(self) -> None:
        """Checks that every variable of the program was restored, and every value of the checkpoint used.

        Raises:
            CheckpointError: as for `assert_complete`, or the checkpoint has values that are extra or dropped. The
                message lists everything.
        """
        self._check(self._faults(), nothing=False)

    def assert_existing_objects_matched(self) -> None:
        """Checks that every variable that exists was restored, as TensorFlow's assert of this name does.

        It passes even if values wait, are extra or dropped, or no variable exists yet.

        Raises:
            CheckpointError: a variable is missing from the checkpoint, has another shape or type, or is not restored in
                a session.
        """
        self._check(self._faults(self.pending, self.missing, self.mismatched), nothing=True)

    def faults(self) -> list[str]:
        """Lines that list everything that `assert_consumed` counts as a fault; empty if there is nothing."""
        return _whole(self._faults())

    def _faults(self, *lists: Sequence[Listed]) -> list[tuple[str, Sequence[Listed]]]:
        """What is not as it should be, in all lists or in some."""
        faults: list[tuple[str, Sequence[Listed]]] = [
            (
                "not restored in the session, which still has other values; call run_restore_ops(session) first",
                self.pending if self.initial else (),
            ),
            ("missing from the checkpoint", self.missing),
            ("with a different shape or type", self.mismatched),
            ("waiting for variables that do not exist yet", self.waiting),
            ("extra in the checkpoint", self.extra),
            ("dropped because their variables are restored from another value", self.dropped),
        ]
        return [(words, values) for words, values in faults if values and (not lists or values in lists)]

    def _count(self) -> int:
        return len(self.restored) - len(self.pending)

    def _check(self, faults: Sequence[tuple[str, Sequence[Listed]]], *, nothing: bool) -> None:
        if faults or not (self.restored or nothing):
            lines = [f"{self.source} was not restored as expected: {self._count() or 'nothing'} restored"]
            raise CheckpointError("\n".join([*lines, *_whole(faults)]))
        if self.reordered:
            listed = "; ".join(map(str, self.reordered))
            warnings.warn(
                f"{self.source}: the order of a list seems to have changed since it was saved: {listed}. "
                f"Restore with the old order, or use rename",
                stacklevel=4,
            )


class LiveAccount:
    """The account of a restore at the time it is read: values that wait now may be restored later.

    It has the lists of an `Account`, and the operations that a TensorFlow 1 graph must run. In a graph, it is the
    account of the default session or, without one, of all sessions; the asserts also accept another session. They fail
    if a session has values that `run_restore_ops` did not restore. If there is no session, or it has no values yet,
    they check the same as TensorFlow's asserts.
    """

    restored: tuple[Value, ...]
    missing: tuple[Value, ...]
    extra: tuple[Value, ...]
    mismatched: tuple[Mismatch, ...]
    waiting: tuple[Value, ...]
    left_out: tuple[Value, ...]
    dropped: tuple[Dropped, ...]
    reordered: tuple[Reordered, ...]
    grown: tuple[Grown, ...]
    pending: tuple[Value, ...]

    def __init__(self, take: Callable[..., Account], run: Callable[..., None], initialize: Callable[..., None]) -> None:
        """Takes no account yet.

        Args:
            take: `take(session=…)` takes it.
            run: `run(session=…)` runs the restore operations of a graph.
            initialize: `initialize(session=…)` does that, and initializes what the checkpoint lacks.
        """
        self._take, self._run, self._initialize = take, run, initialize

    @property
    def now(self) -> Account:
        """The account as of now, which no longer changes."""
        return self._take(session=None)

    def __getattr__(self, name: str) -> Any:
        if name in LiveAccount.__annotations__:
            return getattr(self.now, name)
        raise AttributeError(name)

    def __str__(self) -> str:
        return str(self.now)

    def assert_complete(self, session: object = None) -> LiveAccount:
        """See `Account.assert_complete`; returns itself."""
        self._take(session=session).assert_complete()
        return self

    def assert_consumed(self, session: object = None) -> LiveAccount:
        """See `Account.assert_consumed`; returns itself."""
        self._take(session=session).assert_consumed()
        return self

    def assert_existing_objects_matched(self, session: object = None) -> LiveAccount:
        """See `Account.assert_existing_objects_matched`; returns itself."""
        self._take(session=session).assert_existing_objects_matched()
        return self

    def run_restore_ops(self, session: object = None) -> LiveAccount:
        """Restores the variables of a graph in a session, and returns itself; None: the default one.

        Eagerly, there is nothing to run.
        """
        self._run(session=session)
        return self

    def initialize_or_restore(self, session: object = None) -> LiveAccount:
        """Restores the variables of a graph in a session, initializes what the checkpoint lacks, and returns itself."""
        self._initialize(session=session)
        return self


def _whole(faults: Sequence[tuple[str, Sequence[Listed]]]) -> list[str]:
    return [line for words, values in faults for line in _listed(words, values, len(values))]


def _listed(words: str, values: Sequence[Listed], shown: int = _SHOWN) -> list[str]:
    lines = [f"  {len(values)} {words}:", *(f"    {value}" for value in values[:shown])]
    return lines + ([f"    … and {len(values) - shown} more"] if len(values) > shown else [])
