"""`data.dense_features` in files and on the command line: a list, a mapping, short forms, patterns."""

from __future__ import annotations

from pathlib import Path

import pytest

import embexp
from embexp.config.patterns import expand
from embexp.errors import ConfigError
from embexp.specs.data import Fill, NumericColumn, Transform

LOG = NumericColumn(transform=Transform.LOG1P)


def composed(folder: Path, *overrides: str) -> dict[str, NumericColumn]:
    (folder / "r.csv").write_text("user,item,price,age,rating\na,b,1,2,3\n")
    base = [
        "experiment=ratings",
        "model=mlp",
        f"data.path={folder / 'r.csv'}",
        "data.label=rating",
        "+data.dense_features=[price,age]",
    ]
    names = {each.partition("=")[0].lstrip("+") for each in overrides}
    spec = embexp.compose([*(each for each in base if each.partition("=")[0].lstrip("+") not in names), *overrides])
    return dict(spec.data.dense_features)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("overrides", "found"),
    [
        ([], {"price": NumericColumn(), "age": NumericColumn()}),
        (["data.dense_features.price.transform=log1p"], {"price": LOG, "age": NumericColumn()}),
        (["data.dense_features.price=log1p"], {"price": LOG, "age": NumericColumn()}),
        (["data.dense_features={price: log1p}"], {"price": LOG}),
        (["data.dense_features=[price]"], {"price": NumericColumn()}),
        (["data.dense_features={age: none, price: {transform: log1p}}"], {"age": NumericColumn(), "price": LOG}),
        (
            ["data.dense_features.price=log1p", "data.dense_features.price.missing=zero"],
            {"price": NumericColumn(transform=Transform.LOG1P, missing=Fill.ZERO), "age": NumericColumn()},
        ),
        (
            ["data.dense_features.price.transform=[log1p,standardize]"],
            {"price": NumericColumn(transform=(Transform.LOG1P, Transform.STANDARDIZE)), "age": NumericColumn()},
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_overrides(tmp_path: Path, overrides: list[str], found: dict[str, NumericColumn]) -> None:
    assert composed(tmp_path, *overrides) == found
    assert list(composed(tmp_path, *overrides)) == list(found)  # the model gets them in this order


def test_a_column_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"data\.dense_features = 'prise': .* has no such column"):
        composed(tmp_path, "data.dense_features.prise=log1p")


def test_an_entry_is_merged_over_the_short_form_of_a_pattern() -> None:
    config = {"data": {"dense_features": {"I{1..3}": "log1p", "I2": {"missing": "mean"}, "I3": ["standardize"]}}}
    assert not expand(config, list).faults
    assert config["data"]["dense_features"] == {
        "I1": {"transform": "log1p"},
        "I2": {"transform": "log1p", "missing": "mean"},
        "I3": {"transform": ["standardize"]},
    }
