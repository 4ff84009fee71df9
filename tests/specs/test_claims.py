"""What a config claims of its results, and when it is met."""

from __future__ import annotations

import math
from typing import Any

import pytest

import embexp
from embexp.config import composition
from embexp.errors import ConfigError
from embexp.records import manifest
from embexp.specs import claims
from embexp.specs.claims import Expected

CASES: dict[str, tuple[dict[str, Any], float, bool]] = {
    "the value": ({"value": 0.928, "within": 0.0}, 0.928, True),
    "the end of the interval, as it is written": ({"value": 0.928, "within": 0.004}, 0.932, True),
    "the other end": ({"value": 0.928, "within": 0.004}, 0.924, True),
    "a bit outside": ({"value": 0.928, "within": 0.004}, 0.932 + 2**-50, False),
    "at least": ({"at_least": 0.9}, 0.9, True),
    "not at least": ({"at_least": 0.9}, 0.8999, False),
    "between": ({"at_least": 0.8, "at_most": 0.9}, 0.85, True),
    "above": ({"at_least": 0.8, "at_most": 0.9}, 0.95, False),
    "below zero": ({"at_most": -1}, -1.5, True),
}


@pytest.mark.parametrize("case", CASES)
def test_a_claim_is_met(case: str) -> None:
    claim, found, met = CASES[case]
    assert claims.is_met(Expected(**claim), found) is met


def test_each_claim_is_a_line_with_what_was_found() -> None:
    expected = {"test": {"auc": Expected(value=0.9, within=0.0005, source="Table 2"), "mrr": Expected(at_least=0.5)}}
    lines = claims.checked(expected, {"test": {"auc": 0.90004, "mrr": math.nan}})
    assert list(map(str, lines)) == [
        "test auc 0.90004, expected 0.9 ± 0.0005: met (Table 2)",
        "test mrr not measured, expected at least 0.5: NOT MET",
    ]
    assert lines[0].model_dump(mode="json") == {
        "value": 0.9,
        "within": 0.0005,
        "source": "Table 2",
        "split": "test",
        "metric": "auc",
        "found": 0.90004,
        "met": True,
    }
    assert claims.checked(expected, {})[0].found is None


DOTTED = {"test.auc": {"value": 0.7, "within": 0.1}, "validation": {"auc": {"at_least": 0.5}}, "test.loss": None}


def test_claims_by_dotted_names_are_those_by_split_and_metric() -> None:
    assert claims.nested(DOTTED) == {
        "test": {"auc": {"value": 0.7, "within": 0.1}},
        "validation": {"auc": {"at_least": 0.5}},
    }
    assert claims.nested(None) == {}


FILE = """\
# @package _global_
defaults: [clicks]
name: own
expect:
  test.auc: {value: 0.7, within: 0.1, source: here}
  validation.auc: {at_least: 0.5}
"""


def test_claims_of_a_file_can_be_overridden_and_removed(tmp_path: Any) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "own.yaml").write_text(FILE)

    def expect(*overrides: str) -> Any:
        spec = embexp.compose(["experiment=own", *overrides], config_dir=tmp_path)
        return spec.model_dump(mode="json", include={"expect"}).get("expect")

    whole = {"test": {"auc": {"value": 0.7, "within": 0.1, "source": "here"}}, "validation": {"auc": {"at_least": 0.5}}}
    assert expect() == whole
    assert expect("expect.test.auc.within=0.2", "~expect.validation") == {
        "test": {"auc": {"value": 0.7, "within": 0.2, "source": "here"}}
    }
    assert expect("expect=null") is expect("expect.test.auc=null", "expect.validation=null") is None
    assert expect("~expect") is None
    with pytest.raises(ConfigError, match=r"own.yaml:5") as caught:
        expect("task=regression", "~expect.validation")
    assert "expect.test.auc" in {fault.path for fault in caught.value.faults}


def test_they_are_no_part_of_what_is_computed() -> None:
    loader = composition.loader()
    plain, claiming = (
        composition.job(loader, [*words], look_at_data=False).spec
        for words in ((), ("expect={test.auc: {at_least: 0.5}}",))
    )
    assert "expect" not in plain.model_dump(mode="json")
    assert manifest.content_id(plain, "data") == manifest.content_id(claiming, "data")
