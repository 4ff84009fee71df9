"""Someone else's loop around a session, driven from outside one call at a time.

An Estimator owns its loop: `train` returns when it is over. Here that loop runs in a thread of its own and waits, after
each of its calls to the session, for what to feed next.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

import tensorflow as tf

_STOP = object()


class Conversation:
    """A monitored loop in a thread that is given feeds and returns what it fetched for each."""

    def __init__(
        self, loop: Callable[[Any], object], prepare: Callable[[Any], tuple[Any, Callable[[Any], Any]]]
    ) -> None:
        """Starts the thread.

        Args:
            loop: runs until told to stop; takes the `SessionRunHook` that it must pass on.
            prepare: called with the hook's graph once it is built: what to fetch, and a function that makes the
                `feed_dict` of what `step` is given.
        """
        self._inbox: queue.Queue[Any] = queue.Queue(1)
        self._outbox: queue.Queue[Any] = queue.Queue(1)
        hook = _Hook(self._inbox, self._outbox, prepare)
        self._thread = threading.Thread(target=self._run, args=(loop, hook), name="embexp-estimator", daemon=True)
        self._thread.start()

    def _run(self, loop: Callable[[Any], object], hook: Any) -> None:
        try:
            loop(hook)
        except BaseException as error:  # handed over to whoever waits
            self._outbox.put(error)

    def step(self, values: Any) -> Any:
        """Lets the loop do one call with these values fed, and returns what it fetched.

        Raises:
            BaseException: whatever ended the loop.
        """
        self._inbox.put(values)
        result = self._outbox.get()
        if isinstance(result, BaseException):
            self._thread.join()
            raise result
        return result

    def stop(self) -> None:
        """Ends the loop in good order and waits for it.

        Raises:
            BaseException: what went wrong at its end.
        """
        if self._thread.is_alive():
            self._inbox.put(_STOP)
            self._thread.join()
        if not self._outbox.empty():
            raise self._outbox.get()


class _Hook(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]  # TensorFlow is untyped
    def __init__(
        self,
        inbox: queue.Queue[Any],
        outbox: queue.Queue[Any],
        prepare: Callable[[Any], tuple[Any, Callable[[Any], Any]]],
    ) -> None:
        self._inbox, self._outbox, self._prepare = inbox, outbox, prepare
        self._next: Any = None

    def begin(self) -> None:
        self._fetches, self._feed = self._prepare(tf.compat.v1.get_default_graph())

    def before_run(self, run_context: Any) -> Any:
        if self._next is None:
            self._next = self._inbox.get()
        return tf.compat.v1.train.SessionRunArgs(self._fetches, feed_dict=self._feed(self._next))

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self._outbox.put(run_values.results)
        self._next = self._inbox.get()
        if self._next is _STOP:
            run_context.request_stop()
