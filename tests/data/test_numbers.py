"""Transforms of numeric columns, and what is fitted, against scikit-learn, SciPy and float64 NumPy."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from embexp.data import numbers
from embexp.data.numbers import FittedColumn
from embexp.errors import DataError
from embexp.specs.data import Fill, NumericColumn, Transform

FLOATS = st.floats(-1e6, 1e6, width=32)
COLUMNS = hnp.arrays(np.float32, st.integers(1, 200), elements=st.one_of(FLOATS, st.sampled_from([0.0, 1.0, 2.0])))


def fit(values: np.ndarray, setting: NumericColumn, folder: Path, train: np.ndarray | None = None) -> FittedColumn:
    rows = np.arange(len(values)) if train is None else train
    [column] = numbers.fit(values[:, None].astype(np.float32), rows, {"x": setting}, folder)
    return column


def test_log1p_keeps_signs() -> None:
    column = FittedColumn("x", (Transform.LOG1P,))
    values = np.array([-7.0, -0.5, 0.0, 0.5, 1e30], np.float32)
    expected = [-np.log(8), -np.log(1.5), 0, np.log(1.5), np.log(1 + np.float64(np.float32(1e30)))]
    np.testing.assert_allclose(column.apply(values)[:, 0], expected, rtol=1e-7)


@given(values=COLUMNS)
def test_standardized_columns_have_mean_0_and_deviation_1(
    values: np.ndarray, tmp_path_factory: pytest.TempPathFactory
) -> None:
    column = fit(values, NumericColumn(transform=Transform.STANDARDIZE), tmp_path_factory.getbasetemp())
    wide = values.astype(np.float64)
    np.testing.assert_allclose(column.mean, wide.mean(), rtol=1e-9, atol=1e-9)
    if wide.std() > 1e-6 * np.abs(wide).max():
        np.testing.assert_allclose(column.scale, wide.std(), rtol=1e-9)
    elif not wide.std():
        assert (column.apply(values) == 0).all()
        assert (column.apply(values + np.float32(1e3)) == 0).all()  # no weight was trained for other values


def test_moments_lose_no_digits_far_from_0() -> None:
    values = np.random.default_rng(0).normal(1e9, 1.0, 100_000)
    count, mean, deviation = numbers.moments(np.array_split(values, 37))
    assert count == len(values)
    np.testing.assert_allclose(mean, values.mean(), rtol=1e-14)
    np.testing.assert_allclose(deviation, values.std(), rtol=1e-9)


def test_standardize_comes_after_log1p(tmp_path: Path) -> None:
    values = np.random.default_rng(1).lognormal(3, 2, 5000).astype(np.float32)
    column = fit(values, NumericColumn(transform=(Transform.LOG1P, Transform.STANDARDIZE)), tmp_path)
    logs = np.log1p(values.astype(np.float64))
    expected = (logs - logs.mean()) / logs.std()
    np.testing.assert_allclose(column.apply(values)[:, 0], expected, rtol=1e-5, atol=1e-6)


@given(values=COLUMNS, others=COLUMNS)
def test_ranks_are_those_of_scikit_learn(
    values: np.ndarray, others: np.ndarray, tmp_path_factory: pytest.TempPathFactory
) -> None:
    preprocessing = pytest.importorskip("sklearn.preprocessing")
    column = fit(values, NumericColumn(transform=Transform.QUANTILE), tmp_path_factory.getbasetemp())
    peer = preprocessing.QuantileTransformer(n_quantiles=max(2, min(1000, len(values))), subsample=None)
    if len(values) > 1:  # scikit-learn has one quantile of one value
        peer.fit(values.astype(np.float64)[:, None])
        np.testing.assert_allclose(
            column.quantiles, peer.quantiles_[:, 0], rtol=1e-12, atol=1e-12 * np.abs(values).max()
        )
        # The same quantiles to the bit, so that ties are the same.
        peer.quantiles_ = np.array(column.quantiles)[:, None]
        every = np.concatenate([values, others])
        expected = peer.transform(every.astype(np.float64)[:, None])[:, 0]
        np.testing.assert_allclose(column.apply(every)[:, 0], expected, rtol=1e-6, atol=1e-7)


def test_only_the_training_split_is_fitted_to(tmp_path: Path) -> None:
    values = np.array([1.0, 3.0, 1e9, np.nan, 5.0], np.float32)
    train = np.array([0, 1, 3, 4])
    for missing, fill in ((Fill.MEAN, 3.0), (Fill.MEDIAN, 3.0), (Fill.ZERO, 0.0), (-2.5, -2.5)):
        column = fit(values, NumericColumn(transform=Transform.STANDARDIZE, missing=missing), tmp_path, train)
        assert (column.fill, column.mean) == (fill, 3.0)
        np.testing.assert_allclose(column.scale, np.std([1, 3, 5]))
    assert not list(tmp_path.iterdir())


def test_an_indicator_follows_its_column(tmp_path: Path) -> None:
    values = np.array([1.0, np.nan, 3.0], np.float32)
    column = fit(values, NumericColumn(missing=Fill.MEAN, indicator=True), tmp_path)
    np.testing.assert_array_equal(column.apply(values), [[1, 0], [2, 1], [3, 0]])
    raw = np.stack([values, [7, 8, 9]], axis=1).astype(np.float32)
    numbers.apply(raw, [column, FittedColumn("y")], tmp_path / "dense.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "dense.npy"), [[1, 0, 7], [2, 1, 8], [3, 0, 9]])


@pytest.mark.parametrize(
    "setting",
    [
        NumericColumn(missing=Fill.MEAN),
        NumericColumn(missing=Fill.MEDIAN),
        NumericColumn(missing=Fill.ZERO, transform=Transform.STANDARDIZE),
        NumericColumn(missing=1.0, transform=Transform.QUANTILE),
    ],
    ids=lambda setting: f"{setting.transform}-{setting.missing}",
)
def test_a_column_without_a_value_is_fitted_to_zeros(setting: NumericColumn, tmp_path: Path) -> None:
    missing = np.full(5, np.nan, np.float32)
    column = fit(missing, setting, tmp_path)
    constant = setting.missing if isinstance(setting.missing, float) else 0.0
    assert column.fill == constant
    assert (column.apply(missing) == (setting.transform is Transform.QUANTILE)).all()
    numbers.write([column], tmp_path / "fitted.json")
    assert numbers.read(tmp_path / "fitted.json") == (column,)


def test_columns_of_a_single_value_are_warned_of() -> None:
    raw = np.array([[7, np.nan, 1], [7, np.nan, 2], [np.nan, np.nan, 3], [8, 5, 3]], np.float32)
    found = numbers.tail_figures(raw, np.arange(3), ["seven", "nothing", "three"])
    [warning] = numbers.column_warnings(found, {"seven": NumericColumn(transform=Transform.STANDARDIZE)})
    assert "seven (7), nothing (none): models can't learn from them" in warning
    assert numbers.column_warnings(numbers.tail_figures(raw[:, ::2], np.arange(4), ["seven", "three"]), {}) == []


def test_what_was_fitted_is_read_as_it_was_written(tmp_path: Path) -> None:
    values = np.random.default_rng(2).normal(size=50).astype(np.float32)
    columns = (
        fit(values, NumericColumn(transform=Transform.QUANTILE, missing=Fill.MEAN, indicator=True), tmp_path),
        fit(values, NumericColumn(transform=(Transform.LOG1P, Transform.STANDARDIZE)), tmp_path),
    )
    path = tmp_path / "numbers.json"
    numbers.write(columns, path)
    assert numbers.read(path) == columns
    content = json.loads(path.read_text())
    content["columns"][1]["mean"] += 1
    path.write_text(json.dumps(content))
    with pytest.raises(DataError, match="was changed: its digest does not match its content"):
        numbers.read(path)
    for damaged in ("", "[]", '{"columns": 3, "digest": ""}', '{"columns": [{}], "digest": "x"}', "[" * 100_000):
        path.write_text(damaged)
        with pytest.raises(DataError, match="is damaged"):
            numbers.read(path)
    with pytest.raises(DataError, match="there is no such file"):
        numbers.read(tmp_path / "nothing.json")


def test_figures_are_those_of_scipy() -> None:
    from scipy import stats

    values = np.random.default_rng(3).lognormal(1, 1, 3000).astype(np.float32)
    values[5] = np.nan
    [found] = numbers.tail_figures(values[:, None], np.arange(3000), ["x"])
    known = values[~np.isnan(values)].astype(np.float64)
    expected = [len(known), known.mean(), known.std(), stats.kurtosis(known), np.median(known), known.max()]
    np.testing.assert_allclose(list(asdict(found).values())[1:], expected, rtol=1e-9)


DRAW = np.random.default_rng(4)
ORDINARY = {
    "normal": DRAW.normal(size=20_000),
    "uniform": DRAW.uniform(0, 1, 20_000),
    "shifted": DRAW.normal(3, 2, 20_000),
    "stars": DRAW.integers(1, 6, 20_000),
    "rare flag": DRAW.random(20_000) < 0.001,
    "small counts": DRAW.poisson(2, 20_000),
}
HEAVY = {
    "counts": DRAW.lognormal(2, 2, 20_000).round(),
    "amounts": -DRAW.pareto(1.5, 20_000) * 100,
    "one outlier": np.concatenate([DRAW.normal(size=19_999), [1e6]]),
}
LARGE = {
    "years": DRAW.integers(1950, 2020, 20_000),
    "ages": DRAW.uniform(18, 80, 20_000),
    "metres": DRAW.normal(0, 500, 20_000),
}


def warnings(values: np.ndarray, setting: NumericColumn | None = None) -> list[str]:
    found = numbers.tail_figures(np.asarray(values, np.float32)[:, None], np.arange(len(values)), ["price"])
    return numbers.column_warnings(found, {"price": setting or NumericColumn()})


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_columns_are_not_warned_of(name: str) -> None:
    assert warnings(ORDINARY[name]) == []


@pytest.mark.parametrize("name", HEAVY)
def test_heavy_tails_are_warned_of(name: str) -> None:
    [warning] = warnings(HEAVY[name])
    assert warning.startswith("numeric columns with heavy tails: price (median ")
    assert warning.endswith("; set data.dense_features.price.transform=log1p")
    assert warnings(HEAVY[name], NumericColumn(transform=Transform.LOG1P)) == []


@pytest.mark.parametrize("name", LARGE)
def test_large_scales_are_warned_of(name: str) -> None:
    [warning] = warnings(LARGE[name])
    assert warning.startswith("numeric columns with a large scale: price (mean ")
    assert warning.endswith("; set data.dense_features.price.transform=standardize")
    assert warnings(LARGE[name], NumericColumn(missing=Fill.ZERO)) != []
    assert warnings(LARGE[name], NumericColumn(transform=Transform.QUANTILE)) == []


def test_several_columns_are_one_warning() -> None:
    heavy = np.stack([HEAVY["counts"]] * 6, axis=1).astype(np.float32)
    names = [f"I{number}" for number in range(6)]
    [warning] = numbers.column_warnings(numbers.tail_figures(heavy, np.arange(len(heavy)), names), {})
    assert "and 3 more: a few large values" in warning
    assert warning.endswith("transform=log1p and so on")
