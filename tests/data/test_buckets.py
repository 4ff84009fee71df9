"""Buckets of numbers, against Keras' Discretization and scikit-learn's KBinsDiscretizer."""

from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from embexp.data.columns import BucketColumn
from embexp.data.numbers import bucket_warnings, fit_buckets
from embexp.data.vocabularies.vocabulary import BucketVocabulary, Vocabulary
from embexp.errors import DataError
from embexp.specs.vocabularies import Buckets

FLOATS = st.floats(-1e4, 1e4, width=32, allow_subnormal=False)


@given(
    boundaries=st.lists(FLOATS, min_size=1, max_size=9, unique=True),
    values=hnp.arrays(np.float32, st.integers(1, 40), elements=FLOATS),
)
def test_rows_are_the_bins_of_keras(boundaries: list[float], values: np.ndarray) -> None:
    found = BucketVocabulary(tuple(sorted(boundaries)))
    values = np.concatenate([values, np.array(boundaries, np.float32)])
    theirs = keras.layers.Discretization(bin_boundaries=sorted(boundaries))(values)
    np.testing.assert_array_equal(found.rows_of(values), np.asarray(theirs) + 1)
    assert found.rows_of(np.array([np.nan])).tolist() == [0]
    assert len(found.tokens()) == found.size


def fit(values: np.ndarray, settings: Buckets, folder: Path, train: np.ndarray | None = None) -> BucketVocabulary:
    raw = np.asarray(values, np.float32).reshape(len(values), -1)
    names = [f"n{number}" for number in range(raw.shape[1])]
    rows = np.arange(len(raw)) if train is None else train
    buckets = {name: BucketColumn(name, "t", settings) for name in names}
    return fit_buckets(raw, names, rows, buckets, folder)["t"]


def test_quantiles_are_those_of_scikit_learn(tmp_path: Path) -> None:
    preprocessing = pytest.importorskip("sklearn.preprocessing")
    values = np.random.default_rng(0).lognormal(1, 2, 997).astype(np.float32)
    found = fit(values, Buckets(quantiles=16), tmp_path)
    peer = preprocessing.KBinsDiscretizer(
        16, encode="ordinal", strategy="quantile", subsample=None, quantile_method="linear"
    )
    np.testing.assert_array_equal(
        found.rows_of(values) - 1, peer.fit_transform(values.astype(np.float64)[:, None])[:, 0]
    )
    assert not list(tmp_path.iterdir())


def test_equal_values_make_fewer_buckets(tmp_path: Path) -> None:
    values = np.array([0] * 60 + [1] * 10 + list(range(2, 32)), np.float32)
    found = fit(values, Buckets(quantiles=10), tmp_path)
    assert found.boundaries[0] > 0  # no bucket below the least number, which would be empty
    assert len(found.boundaries) < 9
    assert (np.bincount(found.rows_of(values), minlength=found.size)[1:] > 0).all()


def test_several_columns_share_the_buckets_of_the_training_split(tmp_path: Path) -> None:
    values = np.array([[1, 100], [2, np.nan], [3, 300], [1e6, 1e6]])
    found = fit(values, Buckets(quantiles=2), tmp_path, train=np.array([0, 1, 2]))
    assert found.boundaries == (3.0,)  # the median of 1, 2, 3, 100, 300


def test_boundaries_of_the_config_are_compared_in_single_precision(tmp_path: Path) -> None:
    found = fit(np.zeros(3), Buckets(boundaries=(0.1, 0.7)), tmp_path)
    # As float64, 0.7 of a file, which is float32 in the cache, would lie below this boundary.
    assert found.rows_of(np.array([0.1, 0.7, 0.69], np.float32)).tolist() == [2, 3, 2]
    assert found.tokens() == ["<missing>", "(-inf, 0.1)", "[0.1, 0.7)", "[0.7, inf)"]
    assert found.rows(["0.1", "[0.7, inf)", "", None, "old"]).tolist() == [2, 3, 0, 0, -1]


def test_numbers_that_do_not_differ_make_one_bucket(tmp_path: Path) -> None:
    for values in (np.full(4, np.nan), np.full(4, 7.0)):
        found = fit(values, Buckets(quantiles=4), tmp_path)
        assert found.rows_of(np.array([np.nan, -1e9, 7, 1e9])).tolist() == [0, 1, 1, 1]
        assert found.tokens() == ["<missing>", "(-inf, inf)"]
        found.write(tmp_path / "age")
        assert Vocabulary.read(tmp_path / "age") == found
        [warning] = bucket_warnings({"ages": found, "others": BucketVocabulary((1.0,))})
        assert warning.startswith("tables with a single bucket: ages: ")


def test_they_are_read_as_they_were_written(tmp_path: Path) -> None:
    found = fit(np.random.default_rng(1).normal(size=50), Buckets(quantiles=7), tmp_path)
    found.write(tmp_path / "age")
    assert Vocabulary.read(tmp_path / "age") == found
    for marks in ("2, 1", "1e999", "NaN", "1, 1e39", "-1e39, 1", "1, 1" + 400 * "0"):
        (tmp_path / "age.json").write_text(f'{{"kind": "buckets", "boundaries": [{marks}]}}')
        with pytest.raises(DataError, match="is not a vocabulary"):
            Vocabulary.read(tmp_path / "age")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"boundaries": [1, 1]}, "must be increasing"),
        ({"boundaries": [1, 1 + 1e-12]}, "single precision"),
        ({"boundaries": [1e300]}, "single precision"),
        ({"boundaries": []}, "at least 1 item"),
        ({"quantiles": 1}, "greater than or equal to 2"),
        ({"boundaries": [1], "quantiles": 4}, "not both"),
    ],
)
def test_wrong_buckets(settings: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Buckets.model_validate(settings)
