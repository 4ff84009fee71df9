"""`bench.first_tpu_hour` on simulated TPUs, against what is known of them, and its account of differences."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from bench import first_tpu_hour
from bench.first_tpu_hour import Place, compared

PLACES = {"V1": Place(None, "V1", cores=1), "V2": Place(None, "V2", cores=1, sparse_cores=2)}


@pytest.mark.parametrize("feature", PLACES)
def test_lookups_are_those_of_float64(feature: str) -> None:
    place = PLACES[feature]
    cores = 2 if feature == "V2" else 0
    reported = {"embedding_feature": feature, "sparse_cores": cores, "cores": 1, "hosts": 1}
    assert first_tpu_hour.hardware(place) == reported
    found = first_tpu_hour.lookups(place, every=37)
    assert list(found) == [
        "SGD, sum, dense",
        "AdagradMomentum, mean, ragged with weights",
        "FTRL, sqrtn, sparse with weights",
    ]
    assert not any(row["differs"] for row in compared("lookups", found, found))


def test_limits_are_kept() -> None:
    """Of 8 samples with ids 0 to 7, 16 places of 128 lack where each sample has 7: the last partition loses them."""
    found = first_tpu_hour.limits(PLACES["V2"])
    outcomes = [each["outcome"] for each in found.values()]
    assert outcomes == ["0 of 128 ids are dropped", *["InvalidArgumentError"] * 3, "16 of 128 ids are dropped"]
    says = [found[name]["says"] for name in list(found)[1:4]]
    for words, sentence in zip(("set it to 32", "set it to 8", "set it to 8"), says, strict=True):
        assert words in sentence


def test_checkpoints_have_the_same_bits() -> None:
    found = first_tpu_hour.checkpoints(PLACES["V2"])
    assert {each["outcome"] for each in found.values()} == {"the same bits"}


def test_what_differs_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    lookups: dict[str, Any] = {"SGD": {"from float64": 1e-8, "values": [np.ones([2, 3]).tolist()]}}
    other = copy.deepcopy(lookups)
    other["SGD"]["values"][0][1][2] = 1.5
    limit = {"one": {"outcome": "InvalidArgumentError", "says": "no room"}}
    rows = [*compared("lookups", lookups, other), *compared("limits", limit, {"one": {"outcome": "0 dropped"}})]
    rows += compared("hardware", {"cores": 4}, {"cores": 4})
    assert [row["differs"] for row in rows] == [True, True, False]
    first_tpu_hour.show(rows)
    shown = capsys.readouterr().out
    assert "3.3e-01 from it" in shown
    assert "it says: no room" in shown
    assert "2 of 3 differ" in shown


def test_without_a_tpu_it_says_what_is_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TPU_NAME", raising=False)
    with pytest.raises(SystemExit):
        first_tpu_hour.run([])
    assert "no TPU: name one with --address or TPU_NAME" in capsys.readouterr().err
