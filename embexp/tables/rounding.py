"""How rows and slots are stored: in float32, or in 16 bits, to which a step rounds them stochastically.

A small step is lost if each result is rounded to the nearest of 16 bits: a bfloat16 has 8 bits of precision, so that a
step of less than a 512th of a number leaves it as it is. Stochastic rounding goes up with the probability of the part
that is cut off, so that the mean of many steps is exact (Gupta et al. 2015: "Deep learning with limited numerical
precision"). The random bits are those of Philox4x32-10 (Salmon et al. 2011: "Parallel random numbers: as easy as 1, 2,
3") with a key of seed and table, at a counter of variable, column, row and step: a run that is resumed, or whose rows
are stored another way or shared by workers, has the same. `native_code/narrow.h` computes the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

_COLUMNS = 8
"""Columns whose random bits, 16 each, come from one counter."""


@dataclass(frozen=True)
class Precision:
    """How a table is stored.

    Attributes:
        rows: type of the rows: float32, bfloat16 or float16.
        slots: the same of slots with a number for each parameter; others are float32.
        key: two words of 32 bits; None: steps round to the nearest.
        numbered: of a part of a table, returns the numbers that its rows, integers [n], have in the whole table; None:
            they have their own.
    """

    rows: tf.DType = tf.float32
    slots: tf.DType = tf.float32
    key: tuple[int, int] | None = None
    numbered: Callable[[Any], Any] | None = None

    @property
    def narrow(self) -> bool:
        """Whether anything has 16 bits."""
        return bool(self.rows != tf.float32 or self.slots != tf.float32)

    @property
    def rounds(self) -> bool:
        """Whether steps round stochastically."""
        return self.narrow and self.key is not None


SINGLE = Precision()
"""All float32."""


def rounded(values: Any, dtype: tf.DType, precision: Precision, *, ids: Any, variable: int, step: Any) -> Any:
    """Values as a step writes them.

    Args:
        values: float32 [n, dim].
        dtype: what they are stored as.
        ids: integers [n], their rows.
        variable: 0 for the rows themselves, 1 for the first slot, …
        step: number of the step, int64 scalar, tensor or variable.

    Returns:
        [n, dim] of `dtype`.
    """
    if dtype == tf.float32:
        return values
    if precision.key is None:
        return tf.cast(values, dtype)
    numbers = ids if precision.numbered is None else precision.numbered(ids)
    random = random_bits(precision.key, numbers, variable, step, int(values.shape[1]))
    bits = tf.bitcast(values, tf.uint32)
    finite = tf.math.is_finite(values)
    if dtype == tf.bfloat16:
        kept = tf.bitwise.bitwise_and(bits + random, tf.constant(0xFFFF0000, tf.uint32))
        return tf.cast(tf.where(finite, tf.bitcast(kept, tf.float32), values), dtype)
    kept = tf.bitwise.bitwise_and(
        bits + tf.bitwise.right_shift(random, _words(3)), tf.constant(0xFFFFE000, tf.uint32)
    )  # 10 bits of the mantissa are left
    size = tf.abs(values)
    tiny = tf.floor(size * 2.0**24 + tf.cast(random, tf.float32) * 2.0**-16) * 2.0**-24
    tiny = tf.where(tf.bitwise.right_shift(bits, _words(31)) == 1, -tiny, tiny)
    small = tf.where(size < 2.0**-14, tiny, tf.bitcast(kept, tf.float32))
    return tf.cast(tf.where(finite, small, values), dtype)


def random_bits(key: tuple[int, int], ids: Any, variable: int, step: Any, dim: int) -> Any:
    """Random numbers of 16 bits for each column of some rows: uint32 [n, dim]."""
    blocks = -(-dim // _COLUMNS)
    row = tf.cast(ids, tf.uint64)[:, None] + tf.zeros([1, blocks], tf.uint64)
    number = tf.cast(tf.range(blocks, dtype=tf.int32), tf.uint32) + _words(variable << 24)
    counter = [
        tf.zeros_like(row, tf.uint32) + number[None],
        _low(row),
        _low(tf.bitwise.right_shift(row, tf.constant(32, tf.uint64))),
        tf.zeros_like(row, tf.uint32) + _low(tf.cast(tf.convert_to_tensor(step), tf.uint64)),
    ]
    for turn in range(10):
        first = tf.cast(counter[0], tf.uint64) * tf.constant(0xD2511F53, tf.uint64)
        second = tf.cast(counter[2], tf.uint64) * tf.constant(0xCD9E8D57, tf.uint64)
        one, two = ((key[0] + turn * 0x9E3779B9) & 0xFFFFFFFF, (key[1] + turn * 0xBB67AE85) & 0xFFFFFFFF)
        xor, high = tf.bitwise.bitwise_xor, tf.constant(32, tf.uint64)
        counter = [
            xor(xor(_low(tf.bitwise.right_shift(second, high)), counter[1]), _words(one)),
            _low(second),
            xor(xor(_low(tf.bitwise.right_shift(first, high)), counter[3]), _words(two)),
            _low(first),
        ]
    words = tf.stack(counter, 2)  # [n, blocks, 4]
    halves = [tf.bitwise.bitwise_and(words, _words(0xFFFF)), tf.bitwise.right_shift(words, _words(16))]
    return tf.reshape(tf.stack(halves, 3), [-1, blocks * _COLUMNS])[:, :dim]


def _words(number: int) -> Any:
    return tf.constant(number, tf.uint32)


def _low(words: Any) -> Any:
    """The low 32 bits of uint64."""
    return tf.cast(tf.bitwise.bitwise_and(words, tf.constant(0xFFFFFFFF, tf.uint64)), tf.uint32)
