"""Whole numbers have bounds: what no machine can do is a fault of the config."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import embexp
from embexp.errors import ConfigError
from embexp.specs.run import RunSpec
from embexp.specs.running import Launching


def integers(schema: Any, place: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every integer of a JSON schema, by where it stands."""
    if isinstance(schema, dict):
        if "exclude" in place:  # values to compare settings with
            return
        if schema.get("type") == "integer" and "const" not in schema and "enum" not in schema:
            yield place, schema
        for key, value in schema.items():
            yield from integers(value, f"{place}.{key}")
    if isinstance(schema, list):
        for number, value in enumerate(schema):
            yield from integers(value, f"{place}.{number}")


@pytest.mark.parametrize("model", [RunSpec, Launching])
def test_every_whole_number_has_a_bound(model: Any) -> None:
    found = dict(integers(model.model_json_schema()))
    assert found
    assert [place for place, each in found.items() if "maximum" not in each] == []


FAR = {
    "tables.user.vocabulary_size": 10**12,
    "tables.user.dim": 10**9,
    "data.examples": 10**30,
    "data.users": 10**12,
    "data.window": 10**30,
    "strategy.inter_op_threads": 10**6,
    "strategy.intra_op_threads": 10**6,
    "train.batch_size": 10**12,
    "train.steps": 10**30,
    "checkpoint.keep": 10**30,
    "seed": 10**30,
    "seeds": 10**6,
}


def test_all_of_them_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as told:
        embexp.compose([f"{key}={value}" for key, value in FAR.items()])
    faults = {fault.path: fault for fault in told.value.faults}
    assert faults.keys() == FAR.keys()
    for path, fault in faults.items():
        assert fault.rule.startswith("it must be at most "), path
    assert faults["tables.user.vocabulary_size"].rule == "it must be at most 2,147,483,647"


@pytest.mark.parametrize(
    "override", ["strategy=mirrored strategy.replicas=1000000", "strategy=tpu_simulator strategy.cores=1000000"]
)
def test_devices_too(override: str) -> None:
    with pytest.raises(ConfigError, match=r"strategy\.\w+ = 1000000: it must be at most 4,096"):
        embexp.compose(override.split())
