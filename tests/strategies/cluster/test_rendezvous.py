"""Workers find each other, or the start ends at its deadline with who is missing or differs."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from embexp.errors import RunError
from embexp.strategies.cluster import control, rendezvous
from embexp.strategies.cluster.control import Follower, Leader
from embexp.strategies.cluster.rendezvous import Connection, HungUpError
from embexp.system import interruption

FACTS = {"numpy": "2.0", "spec": "a1"}


@pytest.fixture(autouse=True)
def closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Closes all connections that a test has made."""
    made: list[Connection] = []
    begin = Connection.__init__

    def counted(self: Connection, connected: socket.socket) -> None:
        begin(self, connected)
        made.append(self)

    monkeypatch.setattr(Connection, "__init__", counted)
    yield
    for connection in made:
        connection.close()


class Meeting:
    """Worker 0 and some others, each in a thread."""

    def __init__(self, workers: int, seconds: float = 30.0) -> None:
        self.workers, self.seconds, self.address = workers, seconds, rendezvous.free_address()
        self._threads = ThreadPoolExecutor(workers + 1)

    def lead(self, **settings: Any) -> Future[Any]:
        listening = rendezvous.listener(self.address)
        given = {
            "workers": self.workers,
            "facts": FACTS | {rendezvous.WORKERS: str(self.workers)},
            "told": {"first_step": 7},
        }
        return self._threads.submit(
            rendezvous.gather, listening, self.address, **(given | {"seconds": self.seconds} | settings)
        )

    def join(self, worker: int, own: str | None = None, **settings: Any) -> Future[Any]:
        given = {"worker": worker, "workers": self.workers, "facts": FACTS, "seconds": self.seconds}
        return self._threads.submit(rendezvous.join, self.address, own, **(given | settings))


def test_all_learn_the_addresses_of_all() -> None:
    meeting = Meeting(3)
    others = [meeting.join(2), meeting.join(1)]  # worker 0 may come last
    time.sleep(0.3)
    members = meeting.lead().result(30)
    two, one = (other.result(30) for other in others)
    assert list(members) == [1, 2]
    assert one.addresses == two.addresses == [meeting.address, members[1].address, members[2].address]
    assert len(set(one.addresses)) == 3
    assert one.told == {"first_step": 7}
    with socket.socket() as again:  # TensorFlow listens there next, while the connections go on
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind(rendezvous.split_address(meeting.address))
        again.listen()
        members[2].connections["commands"].send({"command": "train"}, [np.arange(3)])
        head, arrays = two.connections["commands"].receive()
    assert head == {"command": "train"}
    np.testing.assert_array_equal(arrays[0], np.arange(3))


def test_who_is_missing_is_named_at_the_deadline() -> None:
    meeting = Meeting(4, seconds=1.0)
    began = time.monotonic()
    leading, other = meeting.lead(), meeting.join(2, seconds=30.0)
    with pytest.raises(RunError, match=r"workers 1, 3 of 4 have not come to 127\.0\.0\.1:\d+ within 1 seconds.*"):
        leading.result(30)
    assert 0.9 <= time.monotonic() - began < 5
    with pytest.raises(RunError, match="workers 1, 3 of 4"):  # the others are told, and do not wait longer
        other.result(30)
    assert time.monotonic() - began < 5


def test_who_differs_is_named_with_every_difference() -> None:
    meeting = Meeting(3)
    leading = meeting.lead()
    others = [meeting.join(1, facts={"numpy": "2.1", "spec": "b2"}), meeting.join(2)]
    for result in (leading, *others):
        with pytest.raises(RunError) as error:
            result.result(30)
        for line in ("numpy: worker 1 has 2.1, worker 0 has 2.0", "spec: worker 1 has b2, worker 0 has a1"):
            assert line in str(error.value)
        assert "worker 2" not in str(error.value)


def test_settings_that_differ_are_named_instead_of_digests() -> None:
    meeting = Meeting(2)
    ours, theirs = (FACTS | {rendezvous.SPEC: digest} for digest in ("a1", "b2"))
    settings = {f"tables.item{number}.dim": "4" for number in range(12)} | {"seed": "0"}
    leading = meeting.lead(facts=ours | {rendezvous.WORKERS: "2"}, settings=settings)
    other = meeting.join(1, facts=theirs, settings=dict.fromkeys(settings, "8") | {"seed": "0"})
    for result in (leading, other):
        with pytest.raises(RunError) as error:
            result.result(30)
        assert "  tables.item0.dim: worker 1 has 8, worker 0 has 4\n" in str(error.value)
        assert str(error.value).endswith("  and 4 more settings")
        assert not any(word in str(error.value) for word in ("a1", "b2", "seed"))


def test_a_number_that_is_given_twice_is_named_and_the_run_begins() -> None:
    meeting = Meeting(3)
    leading = meeting.lead()
    twins = [meeting.join(1), meeting.join(1)]
    while not (refused := [each for each in twins if each.done()]):
        time.sleep(0.01)
    with pytest.raises(
        RunError, match=r"worker 1 is already process \d+ on .*: give process \d+ on .* a different number"
    ):
        refused[0].result(30)
    meeting.join(2).result(30)
    assert list(leading.result(30)) == [1, 2]
    [other] = [each for each in twins if each is not refused[0]]
    other.result(30)


def test_a_twin_is_named_with_who_is_missing() -> None:
    meeting = Meeting(3, seconds=1.0)
    leading, _, _ = meeting.lead(), meeting.join(1, seconds=30.0), meeting.join(1, seconds=30.0)
    with pytest.raises(
        RunError, match=r"worker 2 of 3 has not come .*; process \d+ on .* and process .* both worker 1"
    ):
        leading.result(30)


def test_a_twin_that_comes_later_is_refused() -> None:
    """The others have read the data with another process, and it still waits for that."""
    meeting = Meeting(2)
    leading, late = meeting.lead(stage="training"), meeting.join(1, facts={}, stage="reading")
    with pytest.raises(RunError, match="worker 1 is already another process: give process"):
        late.result(30)
    meeting.join(1, stage="training").result(30)
    assert list(leading.result(30)) == [1]


def test_the_port_of_a_worker_that_is_taken_is_named_by_all() -> None:
    meeting = Meeting(3)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        own = f"127.0.0.1:{taken.getsockname()[1]}"
        results = [meeting.lead(), meeting.join(1, own), meeting.join(2)]
        for result in results:
            with pytest.raises(
                RunError, match=f"worker 1 can't listen at {own}: Address already in use: stop the program"
            ):
                result.result(30)


def test_a_process_too_many_is_told_where_to_look() -> None:
    """The run has begun without it, and TensorFlow listens at the port of worker 0."""
    meeting = Meeting(2)
    with socket.create_server(rendezvous.split_address(meeting.address)) as server, contextlib.ExitStack() as stack:
        late = meeting.join(1)
        for _ in rendezvous.PURPOSES:
            stack.enter_context(server.accept()[0]).sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" * 3)
        message = (
            f"worker 1 has no answer from worker 0 at {meeting.address}: .*: see the output of worker 0; check whether"
        )
        with pytest.raises(RunError, match=message):
            late.result(30)


def test_another_number_of_workers_is_a_difference() -> None:
    meeting = Meeting(2)
    leading, other = meeting.lead(), meeting.join(1, workers=5)
    with pytest.raises(RunError, match=r"strategy\.workers: worker 1 has 5, worker 0 has 2"):
        leading.result(30)
    with pytest.raises(RunError):
        other.result(30)


def test_a_worker_that_can_not_come_any_more_ends_the_wait() -> None:
    meeting = Meeting(2)
    with pytest.raises(RunError, match="it has ended"):
        meeting.lead(failed=lambda: "it has ended").result(10)


def test_without_a_worker_0_the_others_end_at_their_deadline() -> None:
    with pytest.raises(RunError, match=r"worker 0 has not been listening at 127.0.0.1:\d+ for 0.5 seconds"):
        Meeting(2, seconds=0.5).join(1).result(10)


def test_a_worker_0_that_fails_tells_the_others() -> None:
    meeting = Meeting(3)
    told = meeting._threads.submit(rendezvous.refuse, meeting.address, "no data", workers=3, seconds=30.0)
    others = [meeting.join(worker) for worker in (1, 2)]
    for other in others:
        with pytest.raises(RunError, match="no data"):
            other.result(10)
    told.result(10)  # it does not wait any longer


def test_a_worker_0_that_fails_waits_only_so_long_and_not_where_another_listens() -> None:
    meeting = Meeting(3, seconds=0.5)
    rendezvous.refuse(meeting.address, "no data", workers=3, seconds=0.1)
    with rendezvous.listener(meeting.address):
        rendezvous.refuse(meeting.address, "no data", workers=3, seconds=600.0)


def test_strangers_and_twins_change_nothing() -> None:
    meeting = Meeting(2)
    leading = meeting.lead()
    for bytes_sent in (b"GET / HTTP/1.1\r\n\r\n", b"EMBX\xff\xff\xff\xff", b"EMBX\x02\0\0\0{}"):
        with socket.create_connection(rendezvous.split_address(meeting.address)) as stranger:
            stranger.sendall(bytes_sent)
            stranger.settimeout(10)
            assert stranger.recv(1) == b""
    other = meeting.join(1)
    assert list(leading.result(30)) == [1]
    other.result(30)


def test_an_address_in_use_is_an_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(RunError, match=f"worker 0 can't listen at {address}: Address already in use"):
            rendezvous.listener(address)


class Aborted:
    """Takes the reason for which TensorFlow is to stop waiting."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self.come = threading.Event()

    def __call__(self, reason: str) -> None:
        self.reason = reason
        self.come.set()


def led(silence: float) -> tuple[Leader, Any, Aborted, str]:
    meeting, aborted = Meeting(2), Aborted()
    leading, other = meeting.lead(), meeting.join(1)
    members = leading.result(30)
    return Leader(members, silence_seconds=silence, abort=aborted), other.result(30), aborted, members[1].address


def test_a_worker_that_hangs_up_is_lost_at_once() -> None:
    leader, joined, aborted, address = led(30.0)
    began = time.monotonic()
    for connection in joined.connections.values():
        connection.close()
    assert aborted.come.wait(5)
    with pytest.raises(RunError, match=f"worker 1 at {address} was lost: it has closed the connection"):
        leader.reply(1)
    assert time.monotonic() - began < 5
    leader.close()


def test_a_worker_that_is_silent_is_lost_after_that_time() -> None:
    leader, _, aborted, address = led(2.0)
    began = time.monotonic()
    with pytest.raises(RunError, match=f"worker 1 at {address} was lost: nothing was heard from it for 2 seconds"):
        leader.reply(1)
    assert 1.5 < time.monotonic() - began < 8
    assert aborted.reason is not None
    leader.close()


def test_a_worker_that_hung_up_is_the_cause_where_another_was_silent() -> None:
    """As while TensorFlow lets no thread of Python run, and both are found out late."""
    meeting, aborted = Meeting(3), Aborted()
    leading, silent, other = meeting.lead(), meeting.join(1), meeting.join(2)
    leader = Leader(leading.result(30), silence_seconds=2.0, abort=aborted)
    began, connections = time.monotonic(), other.result(30).connections
    time.sleep(1.0)
    connections["beats"].send({})
    time.sleep(max(0.0, began + 2.2 - time.monotonic()))  # worker 1 has been silent for too long
    for connection in connections.values():
        connection.close()
    assert aborted.come.wait(5)
    assert aborted.reason is not None
    assert aborted.reason.startswith("worker 2 at ")
    silent.result(30)
    leader.close()


def test_a_slow_worker_is_not_lost() -> None:
    leader, joined, aborted, _ = led(2.5)
    follower = Follower(joined, 1, silence_seconds=60.0)
    leader.tell({"command": "train", "steps": 3})
    assert follower.next() == ({"command": "train", "steps": 3}, [])
    assert not aborted.come.wait(5)  # it says nothing of its steps, but that it lives
    follower.answer({"loss": 0.5})
    assert leader.replies() == [{"loss": 0.5}]
    follower.close()
    leader.end()
    leader.close()


def test_a_worker_that_fails_says_why() -> None:
    leader, joined, aborted, address = led(30.0)
    follower = Follower(joined, 1, silence_seconds=60.0)
    follower.report("feature 'item' looks up id 7 in table 'item'")
    assert aborted.come.wait(5)
    with pytest.raises(RunError, match=f"worker 1 at {address} failed: feature 'item' looks up id 7"):
        leader.replies()
    follower.close()
    leader.close()


@pytest.mark.parametrize("both", [False, True])
def test_worker_0_hears_once_of_a_signal_that_it_has_not_got(both: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """If it has got it, too, a second one would end the run without a save."""
    sent: list[int] = []
    monkeypatch.setattr(control, "_ALONE_SECONDS", 0.0)
    monkeypatch.setattr(interruption, "send", sent.append)
    monkeypatch.setattr(interruption, "received", lambda: both)
    monkeypatch.setattr(interruption, "last", lambda: 15)
    leader, joined, _, _ = led(30.0)
    follower = Follower(joined, 1, silence_seconds=60.0)
    follower.signalled(15)
    time.sleep(2.5)  # two beats
    assert sent == ([] if both else [15])
    leader.end()
    head, _ = follower.next()
    assert control.status(head["signal"]) == 143
    follower.close()
    leader.close()


def pair() -> tuple[Connection, Connection]:
    one, other = socket.socketpair()
    return Connection(one), Connection(other)


def test_arrays_keep_type_shape_and_bits() -> None:
    one, other = pair()
    sent = [
        np.array([[1.5, np.nan], [-0.0, np.inf]], np.float32),
        np.zeros((0, 4), np.float32),
        np.array(7, np.int64),
        np.arange(12).reshape(3, 4)[:, ::2],
        np.array([True, False]),
    ]
    one.send({"command": "write", "text": "é"}, sent)
    head, found = other.receive()
    assert head == {"command": "write", "text": "é"}
    for before, after in zip(sent, found, strict=True):
        assert (before.dtype, before.shape, before.tobytes()) == (after.dtype, after.shape, after.tobytes())


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace(b"float32", b"object0"),
        lambda text: text.replace(b"[2]", b"[-]"),
        lambda text: b"GETS" + text[4:],
    ],
)
def test_nothing_else_is_understood(change: Callable[[bytes], bytes]) -> None:
    one, raw = socket.socketpair()
    Connection(one).send({}, [np.zeros(2, np.float32)])
    with raw:
        text = raw.recv(1_000)
    again, other = socket.socketpair()
    with again:
        again.sendall(change(text))
    with pytest.raises(HungUpError):
        Connection(other).receive()
