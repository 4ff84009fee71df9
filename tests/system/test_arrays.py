"""Arrays that TensorFlow takes over."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from embexp.system import arrays


@given(st.lists(st.integers(1, 9), max_size=3), st.sampled_from(["f4", "i4", "u1", "f8"]))
def test_empty_arrays_are_of_that_shape_and_can_be_taken_over(shape: list[int], dtype: str) -> None:
    found = arrays.empty(tuple(shape), dtype)
    assert (found.shape, found.dtype) == (tuple(shape), np.dtype(dtype))
    assert found.ctypes.data % 64 == 0
    assert arrays.can_be_taken_over(found)


def test_tensorflow_shares_the_memory_of_what_can_be_taken_over() -> None:
    array = arrays.empty((1000, 3), np.float32)
    array[:] = 1
    tensor = tf.experimental.dlpack.from_dlpack(array.__dlpack__())
    array[7, 1] = 5
    assert tensor.numpy()[7, 1] == 5


@pytest.mark.parametrize("what", ["read-only", "turned", "elsewhere", "strided"])
def test_others_can_not(what: str) -> None:
    array = arrays.empty((32, 32), np.float32)
    if what == "read-only":
        array.flags.writeable = False
    other = {"read-only": array, "turned": array.T, "elsewhere": array.reshape(-1)[1:], "strided": array[:, ::2]}
    assert not arrays.can_be_taken_over(other[what])


@pytest.mark.parametrize("megabytes", [0, 1, 5])
def test_the_hint_leaves_values_alone(megabytes: int) -> None:
    array = np.full(megabytes * 2**20 + 3, 7, np.uint8)
    arrays.prefer_huge_pages(array)
    assert (array == 7).all()
