"""Settings of numeric columns: both forms of `data.dense_features`, and what does not fit."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from embexp.records import manifest
from embexp.specs.data import CSV, Fill, NumericColumn, Transform


def csv(dense: Any) -> CSV:
    return CSV.model_validate({"path": "log.csv", "label": "y", "dense_features": dense})


def test_a_list_of_names_is_a_mapping_without_settings() -> None:
    assert csv(["b", "a"]) == csv({"b": {}, "a": {}}) == csv({"b": "none", "a": {"missing": "error"}})
    assert csv(["b", "a"]).dense_columns == ("b", "a")
    assert csv(None) == csv([]) == csv({})


def test_a_list_is_recorded_as_before() -> None:
    assert csv(["b", "a"]).model_dump(mode="json")["dense_features"] == ["b", "a"]
    written = csv({"b": "log1p", "a": {}}).model_dump_json()
    assert CSV.model_validate_json(written) == csv({"b": "log1p", "a": {}})
    assert CSV.model_validate_json(written).dense_columns == ("b", "a")


def test_short_forms() -> None:
    found = csv({"a": "log1p", "b": ["log1p", "standardize"], "c": {"transform": "quantile", "missing": 2}})
    assert found.dense_features["a"] == NumericColumn(transform=Transform.LOG1P)
    assert found.dense_features["b"].transforms == (Transform.LOG1P, Transform.STANDARDIZE)
    assert found.dense_features["c"] == NumericColumn(transform=Transform.QUANTILE, missing=2.0)
    assert found.dense_width == 3


def test_an_indicator_is_one_more_column() -> None:
    assert csv({"a": {"missing": "mean", "indicator": True}, "b": {}}).dense_width == 3
    assert NumericColumn(missing=Fill.ZERO).may_be_missing
    assert not NumericColumn(missing=Fill.ZERO).plain


@pytest.mark.parametrize(
    ("dense", "words"),
    [
        (["a", "a"], "it names column 'a' twice"),
        (["a", 3], "a list of column names, or a mapping"),
        ({"a": {"indicator": True}}, "indicator needs missing"),
        ({"a": ["log1p", "log1p"]}, "each transform may be listed only once"),
        ({"a": ["quantile", "standardize"]}, "quantile can't be combined with others"),
        ({"a": ["none", "standardize"]}, "none can't be combined with others"),
        ({"a": ["standardize", "log1p"]}, "log1p must come before standardize"),
        ({"a": {"missing": float("nan")}}, "finite"),
        ({"a": {"missing": True}}, "valid number"),
        ({"a": {"transforms": "log1p"}}, "Extra inputs"),
    ],
)
def test_what_does_not_fit_is_refused(dense: Any, words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        csv(dense)


def test_the_order_of_columns_and_their_settings_decide_the_run(spec_of_csv: Any) -> None:
    ids = [
        manifest.content_id(spec_of_csv(dense), "digest")
        for dense in (["a", "b"], {"a": {}, "b": {}}, {"a": "log1p", "b": {}}, {"b": {}, "a": "log1p"})
    ]
    assert ids[0] == ids[1]
    assert len(set(ids)) == 3


@pytest.fixture
def spec_of_csv() -> Any:
    import embexp

    def spec(dense: Any) -> embexp.RunSpec:
        composed = embexp.compose(["experiment=clicks"]).model_dump(mode="json")
        return embexp.RunSpec.model_validate(composed | {"data": csv(dense).model_dump(mode="json")})

    return spec
