"""Operations give the same bits with any number of threads, by the library and without it, in sessions, too."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from embexp.system import native

PROGRAM = """
import hashlib, json, os, sys
threads, by_library, cores = json.loads(sys.argv[1])
if cores:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
from embexp.system import environment, native
environment.load_tensorflow()
import numpy as np, tensorflow as tf
from embexp.strategies import pieces
if not by_library:
    native.library = lambda name: None
pieces.set_threads(threads, 0, 4)
generator = np.random.default_rng(0)
drawn = lambda *shape: generator.normal(size=shape).astype(np.float32)
LARGE, WIDE, LEFT, RIGHT = drawn(1_000_003), drawn(100_003, 8), drawn(2048, 415), drawn(2048, 256)
STACK, IMAGES, FILTERS = drawn(512, 27, 16), drawn(64, 60, 16), drawn(5, 16, 32)

def results():
    images, filters = tf.constant(IMAGES), tf.constant(FILTERS)
    product = tf.matmul(LEFT, RIGHT, transpose_a=True)
    convolved = tf.nn.conv1d(images, filters, 1, "SAME")
    return [
        tf.reduce_sum(LARGE), tf.nn.l2_loss(LARGE), product, tf.matmul(STACK, STACK, transpose_b=True),
        tf.raw_ops.BiasAddGrad(out_backprop=WIDE), tf.nn.softmax(RIGHT),
        convolved, tf.raw_ops.Conv2DBackpropFilter(
            input=images[:, None], filter_sizes=[1, 5, 16, 32], out_backprop=convolved[:, None], strides=[1, 1, 1, 1],
            padding="SAME"),
    ]

pieces.cut(4)

def print_digests(arrays):
    print(json.dumps([hashlib.sha256(np.ascontiguousarray(each)).hexdigest()[:12] for each in arrays]))

print_digests([each.numpy() for each in tf.function(results)()])
if by_library:
    with tf.Graph().as_default(), tf.device("CPU:0"):
        found, cut = results(), pieces.cut_in_session()
        with tf.compat.v1.Session() as session:
            cut(session)
            print_digests(session.run(found))
"""


Digests = Callable[..., list[list[str]]]


@pytest.fixture(scope="module")
def digests(forked: Path) -> Digests:
    """Of each result of the program, by functions, and in a session."""

    @cache
    def printed(threads: int, *, by_library: bool = True, cores: int = 0) -> list[list[str]]:
        given = json.dumps([threads, by_library, cores])
        done = subprocess.run([forked / "python", "-c", PROGRAM, given], capture_output=True, text=True, check=True)
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]

    return printed


@pytest.mark.slow
@pytest.mark.skipif(native.library("pieces") is None, reason="the library is not built")
@pytest.mark.parametrize(("threads", "cores"), [(3, 0), (8, 1)])
def test_bits_do_not_depend_on_threads(threads: int, cores: int, digests: Digests) -> None:
    by_functions, in_session = digests(threads, cores=cores)
    assert by_functions == in_session == digests(2)[0]


@pytest.mark.slow
@pytest.mark.skipif(native.library("pieces") is None, reason="the library is not built")
def test_nor_on_the_library(digests: Digests) -> None:
    assert digests(3, by_library=False) == digests(2)[:1]
