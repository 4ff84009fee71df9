"""Rules of vocabularies: what tables inherit, and what does not go together."""

from __future__ import annotations

from typing import Any

import pytest

import embexp
from embexp.data.columns import columns_of
from embexp.errors import ConfigError
from embexp.records import manifest
from embexp.specs import run
from embexp.specs.vocabularies import SettledRules


def spec_of(tables: Any = None, features: Any = None, vocabulary: Any = None, **changes: Any) -> embexp.RunSpec:
    base: dict[str, Any] = {
        "name": "log",
        "task": "binary",
        "data": {"kind": "csv", "path": "log.csv", "label": "y", "vocabulary": vocabulary or {}},
        "tables": {"user": {"dim": 4}, "item": {"dim": 4}, **(tables or {})},
        "features": {"user": {"table": "user"}, "item": {"table": "item"}, **(features or {})},
        "model": {"kind": "mlp"},
        "optimizer": {"kind": "sgd"},
        "dense_optimizer": {"kind": "sgd"},
        "train": {"steps": 1},
    }
    return embexp.RunSpec.model_validate(base | changes)


def settled(spec: embexp.RunSpec) -> dict[str, SettledRules]:
    return dict(columns_of(spec.data, spec.features, spec.tables)[0].rules)


def test_what_a_table_leaves_null_is_as_in_the_data() -> None:
    common = {"unknown": "error", "min_frequency": 3, "max_size": 100, "rare": "own_row"}
    own = {"user": {"dim": 4, "vocabulary": {"min_frequency": 1, "max_size": "all", "missing": "own_row"}}}
    found = settled(spec_of(own, vocabulary=common))
    assert found["item"] == SettledRules.model_validate(common)
    assert found["user"] == SettledRules.model_validate(
        {"unknown": "error", "min_frequency": 1, "max_size": None, "rare": "own_row", "missing": "own_row"}
    )


def test_hash_buckets_ignore_what_they_inherit() -> None:
    spec = spec_of({"user": {"dim": 4, "vocabulary": {"hash_buckets": 9}}}, vocabulary={"min_frequency": 3})
    assert run.rule_faults(spec) == []
    assert settled(spec)["user"].hash_buckets == 9


def test_tables_that_share_a_vocabulary_agree() -> None:
    bias = {"item_bias": {"dim": 1, "vocabulary": {"min_frequency": 2}}}
    features = {"item_bias": {"table": "item_bias", "column": "item"}}
    assert settled(spec_of(bias, features))["item"].min_frequency == 2
    other = {"item": {"dim": 4, "vocabulary": {"min_frequency": 5}}}
    with pytest.raises(
        ConfigError, match=r"tables\.item_bias\.vocabulary\.min_frequency = 2: it shares a vocabulary with item"
    ):
        settled(spec_of(bias | other, features))


def test_buckets_share_no_vocabulary_with_tokens() -> None:
    features = {
        "age": {"table": "age", "buckets": {"boundaries": [18, 40]}},
        "age_fine": {"table": "age_fine", "column": "age", "buckets": {"quantiles": 9}},
        "age_token": {"table": "age_token", "column": "age"},
    }
    spec = spec_of({name: {"dim": 4} for name in features}, features)
    assert run.rule_faults(spec) == []
    columns, shared = columns_of(spec.data, spec.features, spec.tables)
    assert shared == {name: name for name in spec.tables}
    assert set(columns.ids) == {"user", "item", "age"}
    assert set(columns.buckets) == {"age in buckets of table age", "age in buckets of table age_fine"}
    assert columns.bucketed == ("age",)


AGE = {"age": {"dim": 4}}
CASES: dict[str, tuple[dict[str, Any], str]] = {
    "rules of a vocabulary for hash buckets": (
        {"tables": {"user": {"dim": 4, "vocabulary": {"hash_buckets": 9, "max_size": 4}}}},
        "tables.user.vocabulary.max_size = 4: a table with hash_buckets has no vocabulary",
    ),
    "OOV rows where unknown values are errors": (
        {"vocabulary": {"unknown": "error", "oov_buckets": 2}},
        "data.vocabulary.oov_buckets = 2: there is no OOV row because unknown is error",
    ),
    "a vocabulary of buckets": (
        {
            "tables": {"age": {"dim": 4, "vocabulary": {"min_frequency": 2}}},
            "features": {"age": {"table": "age", "buckets": {"quantiles": 4}}},
        },
        "tables.age.vocabulary.min_frequency = 2: the rows of this table are the buckets of feature age",
    ),
    "other buckets in one table": (
        {
            "tables": AGE,
            "features": {
                "age": {"table": "age", "buckets": {"quantiles": 4}},
                "years": {"table": "age", "buckets": {"quantiles": 5}},
            },
        },
        "features.years.buckets = quantiles: 5: features of one table must have the same buckets",
    ),
    "buckets and tokens in one table": (
        {"tables": AGE, "features": {"age": {"table": "age", "buckets": {"quantiles": 4}}, "years": {"table": "age"}}},
        "features.years.buckets = none: features of one table must have the same buckets",
    ),
    "buckets of lists": (
        {"tables": AGE, "features": {"age": {"table": "age", "weights": "w", "buckets": {"quantiles": 4}}}},
        "features.age.weights = 'w': ",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_does_not_go_together(name: str) -> None:
    changes, words = CASES[name]
    [fault] = {str(each) for each in run.rule_faults(spec_of(**changes))}
    assert fault.startswith(words)


def test_sources_with_vocabularies_of_their_own() -> None:
    clicks = embexp.compose(["experiment=clicks"])
    tables = {name: each.model_dump() | {"vocabulary": {"max_size": 4}} for name, each in clicks.tables.items()}
    features = {name: each.model_dump() | {"buckets": {"quantiles": 4}} for name, each in clicks.features.items()}
    changed = clicks.model_dump() | {"tables": tables, "features": features}
    found = [str(each) for each in run.rule_faults(embexp.RunSpec.model_validate(changed))]
    assert any("data=clicks has its own vocabularies, which have no settings" in each for each in found)
    assert any("data=clicks has no numeric columns" in each for each in found)


def test_rules_decide_the_run_and_their_defaults_do_not() -> None:
    plain = manifest.content_id(spec_of(), "digest")
    own = {"user": {"dim": 4, "vocabulary": {"unknown": None}}}
    assert manifest.content_id(spec_of(own, vocabulary={"missing": "oov", "oov_buckets": 1}), "digest") == plain
    # Ids stay what they are from 0.2.0 on.
    assert plain == "8679a8a7b7fac2c03873b4499b659a05c3613e2e5e149b577645398f0ddda469"
    for changes in (
        {"vocabulary": {"rare": "own_row"}},
        {"tables": {"user": {"dim": 4, "vocabulary": {"hash_buckets": 5}}}},
        {"features": {"user": {"table": "user", "buckets": {"quantiles": 5}}}},
    ):
        assert manifest.content_id(spec_of(**changes), "digest") != plain
