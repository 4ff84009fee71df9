"""Tables that are to stay as a file has them, and for which the file turns out to have nothing."""

from __future__ import annotations

import numpy as np
import pytest

from embexp.config import composition
from embexp.errors import ConfigError
from embexp.specs import run
from embexp.specs.run import RunSpec
from embexp.specs.running import RuntimeKind
from embexp.training.freezing import policies
from embexp.training.freezing.policies import RowFacts


def settled(*overrides: str) -> RunSpec:
    """After a look into the file, which fits the items alone."""
    words = ["pretrained=sample", *overrides]
    return composition.job(composition.loader(), words, look_at_data=False).spec.settled({}, unfilled=["user"])


def settle(spec: RunSpec) -> dict[str, policies.TablePolicy]:
    facts = {"user": RowFacts(3), "item": RowFacts(3, pretrained=np.array([False, True, True]))}
    return policies.settle(spec, facts, steps_per_epoch=1, runtime=RuntimeKind.FUNCTION)


def test_nothing_is_frozen_at_random_where_the_file_was_meant() -> None:
    with pytest.raises(ConfigError) as caught:
        settle(settled("freeze=pretrained_table"))
    [fault] = caught.value.faults
    assert (fault.path, fault.value) == ("freeze", "table")
    assert fault.rule.startswith("random is false, but the pretrained file has no rows for table user")
    only = settle(settled("freeze@tables.item.freeze=pretrained_table"))
    assert (only["user"].frozen_rows, only["item"].frozen_rows) == (0, 3)


def test_a_table_that_the_file_does_not_fit_counts_as_random() -> None:
    spec = settled("freeze=table")
    assert [line.partition(":")[0] for line in run.doubtful_settings(spec)] == ["tables.user"]
    assert settle(spec)["user"].fully_frozen
    assert run.doubtful_settings(settled("freeze=random_table")) == []
