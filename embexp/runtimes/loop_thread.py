"""An Estimator's loop, driven from outside one step at a time.

An Estimator owns its loop: `train` returns when it is over. Here that loop runs in another thread and waits, after each
call to the session, for the next feeds.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

import tensorflow as tf

_STOP = object()


class LoopThread:
    """A monitored loop in another thread, which takes feeds and returns the fetches of each."""

    def __init__(
        self, loop: Callable[[Any], object], prepare: Callable[[Any], tuple[Any, Callable[[Any], Any]]]
    ) -> None:
        """Starts the thread.

        Args:
            loop: runs until its session requests a stop; takes the `SessionRunHook` that it must pass on.
            prepare: from the hook's graph, once it is built, the fetches, and a function that makes the `feed_dict` of
                `step`'s values.
        """
        self._inbox: queue.Queue[Any] = queue.Queue(1)
        self._outbox: queue.Queue[Any] = queue.Queue(1)
        hook = _Hook(self._inbox, self._outbox, prepare)
        self._thread = threading.Thread(target=self._run, args=(loop, hook), name="embexp-estimator", daemon=True)
        self._thread.start()

    def _run(self, loop: Callable[[Any], object], hook: Any) -> None:
        try:
            loop(hook)
        except BaseException as error:  # raised again by `step` or `stop`
            self._outbox.put(error)

    def step(self, values: Any) -> Any:
        """Lets the loop do one call with these values fed, and returns its fetches.

        Raises:
            BaseException: the loop ended with it.
        """
        self._inbox.put(values)
        result = self._outbox.get()
        if isinstance(result, BaseException):
            self._thread.join()
            raise result
        return result

    def stop(self) -> None:
        """Ends the loop and waits for it.

        Raises:
            BaseException: the loop ended with it.
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
