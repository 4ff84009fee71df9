"""Dot products of all pairs: by a library of fused operations they have the bits of matrix products."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from embexp.fields.columns import models as recommendation
from embexp.system import machine, native

built = pytest.mark.skipif(native.library("pairs") is None, reason="the native library was not built: no C++ compiler")


@pytest.fixture(autouse=True)
def tried_again() -> Any:
    yield
    recommendation._same_bits.cache_clear()


def operations(count: int, dim: int, *, training: bool) -> set[str]:
    step = tf.function(lambda vectors: recommendation.pair_products(list(vectors), training=training))
    graph = step.get_concrete_function([tf.TensorSpec([None, dim])] * count).graph
    return {operation.type for operation in graph.get_operations()}


@built
@pytest.mark.parametrize(
    ("batch", "count", "dim", "lead"),
    [(4096, 27, 16, 1), (4096, 27, 16, 27), (5, 2, 8, 0), (700, 9, 40, 3), (64, 3, 32, 1), (33, 40, 128, 40)],
)
def test_steps_have_the_bits_of_matrix_products(batch: int, count: int, dim: int, lead: int) -> None:
    if not recommendation._same_bits(count, dim):
        pytest.skip("TensorFlow's products have other bits on this processor, so the library is not used")
    random = np.random.default_rng(0)
    upstream = tf.constant(random.normal(size=(batch, lead * dim + count * (count - 1) // 2)).astype(np.float32))
    values = [tf.constant(random.normal(size=(batch, dim)).astype(np.float32)) for _ in range(count)]

    @tf.function
    def step(vectors: list[Any], training: bool) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(vectors)
            products = recommendation.pair_products(vectors, lead=lead, training=training)
        return [products, *tape.gradient(products, vectors, output_gradients=upstream)]

    for one, other in zip(step(values, True), step(values, False), strict=True):
        np.testing.assert_array_equal(one.numpy().view(np.int32), other.numpy().view(np.int32))


@built
@pytest.mark.skipif("avx2" not in machine.processor().features, reason="this processor has no AVX2")
def test_so_do_the_kernels_for_avx2() -> None:
    code = """
from embexp.system import environment
environment.load_tensorflow(onednn=True)
from embexp.fields.columns import models as recommendation
print([sizes for sizes in [(3, 16), (16, 64), (27, 16), (31, 32), (45, 16)] if not recommendation._same_bits(*sizes)])
"""
    limited = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2"}
    done = subprocess.run([sys.executable, "-c", code], env=limited, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@built
@given(
    batch=st.integers(1, 40),
    count=st.integers(2, 70),
    blocks=st.integers(1, 6),
    data=st.data(),
    seed=st.integers(0, 99),
)
def test_wider_registers_change_no_bit(batch: int, count: int, blocks: int, data: Any, seed: int) -> None:
    library, dim = native.library("pairs"), 16 * blocks
    lead = data.draw(st.integers(0, count))
    random = np.random.default_rng(seed)
    vectors = list(random.normal(size=(count, batch, dim)).astype(np.float32))
    upstream = random.normal(size=(batch, lead * dim + count * (count - 1) // 2)).astype(np.float32)
    found = [
        [
            library.embexp_pairs(vectors=vectors, lead=lead, wide=wide),
            *library.embexp_pairs_grad(vectors=vectors, upstream=upstream, lead=lead, wide=wide),
        ]
        for wide in (True, False)
    ]
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one.numpy().view(np.int32), other.numpy().view(np.int32))
    exact = np.einsum("fbd,gbd->bfg", *2 * [np.array(vectors, np.float64)])[:, *np.triu_indices(count, 1)]
    np.testing.assert_allclose(found[0][0][:, lead * dim :], exact, atol=1e-6 * dim)


@built
def test_only_steps_use_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "EmbexpPairs" not in operations(3, 8, training=False)
    assert "EmbexpPairs" not in operations(3, 12, training=True)
    used = "EmbexpPairs" in operations(3, 8, training=True)
    assert used == recommendation._same_bits(3, 8)
    monkeypatch.setattr(native, "library", lambda name: None)
    assert "EmbexpPairs" not in operations(3, 8, training=True)


@built
def test_other_bits_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = recommendation.by_matrices
    monkeypatch.setattr(recommendation, "by_matrices", lambda vectors: real(vectors) * (1 + 2**-23))
    recommendation._same_bits.cache_clear()
    assert not recommendation._same_bits(3, 8)
    assert "EmbexpPairs" not in operations(3, 8, training=True)
