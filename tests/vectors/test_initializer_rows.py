"""Initial values: reproducible however they are read, and of the distribution that was asked for."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embexp.specs.tables import Constant, GlorotNormal, GlorotUniform, Normal, TruncatedNormal, Uniform
from embexp.vectors.initial_rows import ROWS_PER_DRAW, InitializerRows

INITIALIZERS = [
    Uniform(scale=0.5),
    Normal(stddev=0.5),
    TruncatedNormal(stddev=0.5),
    TruncatedNormal(),
    GlorotUniform(),
    GlorotNormal(),
    Constant(value=3),
]
ROWS, DIM = 2 * ROWS_PER_DRAW + 100, 2


def rows(initializer: Any, *, count: int = ROWS, seed: int = 0, table: str = "item", dim: int = DIM) -> Any:
    return InitializerRows(initializer, rows=count, dim=dim, seed=seed, table=table)


@pytest.mark.parametrize("initializer", INITIALIZERS, ids=lambda each: f"{each.kind}")
@given(cuts=st.lists(st.integers(0, ROWS), max_size=6))
def test_values_do_not_depend_on_how_they_are_cut(initializer: Any, cuts: list[int]) -> None:
    source = rows(initializer)
    edges = [0, *sorted(cuts), ROWS]
    pieces = [source.read(start, stop) for start, stop in itertools.pairwise(edges)]
    assert all(piece.dtype == np.float32 for piece in pieces)
    np.testing.assert_array_equal(np.concatenate(pieces), source.read(0, ROWS), strict=True)


@pytest.mark.parametrize("initializer", INITIALIZERS[:3])
def test_rows_stay_when_the_table_grows(initializer: Any) -> None:
    longer = rows(initializer, count=ROWS + 5000).read(0, ROWS)
    np.testing.assert_array_equal(rows(initializer).read(0, ROWS), longer)


@pytest.mark.parametrize("initializer", INITIALIZERS[:3])
def test_seed_table_and_row_all_matter(initializer: Any) -> None:
    values = rows(initializer).read(0, ROWS)
    assert not np.array_equal(values, rows(initializer, seed=1).read(0, ROWS))
    assert not np.array_equal(values, rows(initializer, table="user").read(0, ROWS))
    assert len(np.unique(values, axis=0)) >= ROWS - 2  # rows and blocks differ from each other


@pytest.mark.parametrize(
    ("initializer", "of_keras"), [(GlorotUniform(), "GlorotUniform"), (GlorotNormal(), "GlorotNormal")]
)
@pytest.mark.parametrize(("count", "dim"), [(5_000, 16), (300, 400)])
def test_glorot_is_that_of_keras_for_the_same_shape(initializer: Any, of_keras: str, count: int, dim: int) -> None:
    """Both are cut off at a limit, which the largest of many values comes close to, from below."""
    import keras

    expected = np.abs(np.asarray(getattr(keras.initializers, of_keras)(seed=1)((count, dim))))
    values = rows(initializer, count=count, dim=dim).read(0, count)
    limit = {
        "GlorotUniform": np.sqrt(6 / (count + dim)),
        "GlorotNormal": 2 * np.sqrt(2 / (count + dim)) / 0.87962566103423978,  # Keras' own constant
    }[of_keras]
    assert expected.max() <= limit * (1 + 1e-6)
    assert np.abs(values).max() <= limit * (1 + 1e-6)
    # Of n values of such a density near its limit, the share above 1 - 100 / n of it is left out once in e ** 12.
    assert min(expected.max(), np.abs(values).max()) > limit * (1 - 100 / values.size)
    standard_error = 1 / np.sqrt(values.size)  # of a deviation, relative: at most this for such short tails
    np.testing.assert_allclose(values.std(), np.sqrt(2 / (count + dim)), rtol=6 * standard_error)


@pytest.mark.parametrize("initializer", [GlorotUniform(), GlorotNormal()])
def test_a_longer_table_has_the_same_glorot_rows_by_its_own_scale(initializer: Any) -> None:
    longer = rows(initializer, count=4 * ROWS).read(0, ROWS)
    scale = np.sqrt((4 * ROWS + DIM) / (ROWS + DIM))
    np.testing.assert_allclose(rows(initializer).read(0, ROWS), longer * scale, rtol=4 * np.finfo(np.float32).eps)


MOMENTS = {
    "uniform": (Uniform(scale=0.5), 0.5 / np.sqrt(3), 0.5),
    "normal": (Normal(stddev=0.5), 0.5, None),
    # Standard deviation of a standard normal cut at 2: sqrt(1 - 4 phi(2) / (2 Phi(2) - 1)) = 0.87962566.
    "truncated": (TruncatedNormal(stddev=0.5), 0.5 * 0.87962566, 1.0),
    "default of TableConfig": (TruncatedNormal(), 0.87962566 / np.sqrt(16), 2 / np.sqrt(16)),
}


@pytest.mark.parametrize("name", MOMENTS)
def test_values_have_the_distribution_asked_for(name: str) -> None:
    initializer, stddev, bound = MOMENTS[name]
    values = rows(initializer, count=20_000, dim=16).read(0, 20_000).astype(np.float64)
    tolerance = 5 / np.sqrt(values.size)
    assert abs(values.mean()) < tolerance * stddev
    assert abs(values.std() / stddev - 1) < tolerance
    if bound is not None:
        assert 0.99 * bound < np.abs(values).max() <= bound
    else:
        assert 4 * stddev < np.abs(values).max() < 7 * stddev
    skewness = ((values / stddev) ** 3).mean()
    assert abs(skewness) < 15 / np.sqrt(values.size)


def test_a_constant_is_one_value_everywhere() -> None:
    np.testing.assert_array_equal(rows(Constant(value=0.1)).read(3, 5), np.full((2, DIM), np.float32(0.1)), strict=True)


def test_ranges_outside_the_table_are_refused() -> None:
    with pytest.raises(ValueError, match=rf"table 'item' has rows 0 to {ROWS - 1}, asked for \[0, {ROWS + 1}\)"):
        rows(Normal()).read(0, ROWS + 1)
