"""Values that can't be set, each told in embexp's words; the others are set all the same."""

from __future__ import annotations

import pytest

from embexp.config import composition
from embexp.config.composition import compose_config

CASES = {
    "~train.steps": ("a removal", "only a key with a value can be removed, but its value is null", ""),
    "~train.epochs=3": ("a removal", "its value is 4, not 3", "write ~train.epochs"),
    "~train.epohcs": ("a removal", "there is no such key in this config", "did you mean train.epochs?"),
    "+model.top.0=5": ("5", "+ adds a key, but this one already exists", "write model.top.0=… without the +"),
    "features=[1]": ("[1]", "it is a mapping, but this is a list", "write features.NAME=… for each key"),
    "optimiser@x=adam": ("'adam'", "there is no group 'optimiser'", "did you mean optimizer?"),
}


@pytest.mark.parametrize("override", CASES)
def test_a_value_that_cannot_be_set(override: str) -> None:
    composed = compose_config(composition.loader(), ["seed=3", override, "train.batch_size=7"])
    [fault] = composed.faults
    assert (fault.value, fault.rule, fault.remedy) == CASES[override]
    assert (composed.container["seed"], composed.container["train"]["batch_size"]) == (3, 7)
    assert composed.config.hydra.overrides.task == ["seed=3", "train.batch_size=7"]


def test_keys_that_the_files_do_not_mention_are_remembered() -> None:
    composed = compose_config(composition.loader(), ["optimizer.momentumm=1", "++train.nope=1", "~seed", "seed=1"])
    assert composed.added == {"optimizer.momentumm", "seed"}
