"""A TPU that was found and can't be used: said within seconds."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import tensorflow as tf

from embexp.errors import RunError
from embexp.strategies import tpu


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            tf.errors.NotFoundError(None, None, "no device"),
            r"grpc://x:1 can't be used as a TPU \(NotFoundError: no device",
        ),
        (ValueError("Please provide a TPU Name\nto connect to."), r"\(ValueError: Please provide a TPU Name\)"),
    ],
)
def test_what_is_no_tpu(error: Exception, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def resolver(**_: object) -> None:
        raise error

    monkeypatch.setattr(tf.distribute.cluster_resolver, "TPUClusterResolver", resolver)
    with pytest.raises(RunError, match=words):
        tpu.connect("grpc://x:1", None, None, 5.0, 5.0)


@pytest.mark.parametrize(
    ("resolve", "words"),
    [
        (lambda **_: threading.Event().wait(), r"was not ready as a TPU within 0\.05 s \(strategy\.timeout_seconds\)"),
        (lambda **_: None, r"was not ready as a TPU within 0\.25 s \(strategy\.initialization_seconds\)"),
    ],
)
def test_a_tpu_that_does_not_come_up(resolve: Any, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tf.distribute.cluster_resolver, "TPUClusterResolver", resolve)
    monkeypatch.setattr(tf.config, "experimental_connect_to_cluster", lambda _: None)
    monkeypatch.setattr(tf.tpu.experimental, "initialize_tpu_system", lambda _: threading.Event().wait())
    with pytest.raises(RunError, match=words):
        tpu.connect("grpc://x:1", None, None, 0.05, 0.25)
