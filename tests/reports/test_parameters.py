from __future__ import annotations

import yaml

import embexp
from embexp.reports.tracking import as_yaml, parameters


def test_parameters_are_the_settings_that_decide_the_results() -> None:
    spec = embexp.compose(["optimizer=adam", "optimizer.learning_rate=0.03", "name=mine", "train.steps=7"])
    found = parameters(spec.model_dump(mode="json"))
    assert (found["optimizer.kind"], found["optimizer.learning_rate"], found["train.steps"]) == ("adam", 0.03, 7)
    assert found["tables.item.dim"] == spec.tables["item"].dim
    assert found["data.shuffle"] is True
    assert "train.early_stopping.patience" not in found
    assert not {name.split(".")[0] for name in found} & {"output", "checkpoint", "tracking", "name"}


def test_a_list_is_json() -> None:
    spec = embexp.compose(["freeze@tables.item.freeze=rows", "tables.item.freeze.rows=[[0,5]]"])
    assert parameters(spec.model_dump(mode="json"))["tables.item.freeze.rows"] == "[[0, 5]]"


def test_the_yaml_is_the_whole_spec() -> None:
    spec = embexp.compose(["name='<b> ü'"])
    assert embexp.RunSpec.model_validate(yaml.safe_load(as_yaml(spec.model_dump(mode="json")))) == spec
