"""What distinguishes the jobs of a sweep over specs that a program has made."""

from __future__ import annotations

from typing import Any

from embexp.reports.collected import settings_of
from embexp.sweeps import sweep


def data(**keys: Any) -> dict[str, Any]:
    return settings_of({"data": {"kind": "triples", "fetch": None, **keys}, "seed": 0})


def test_the_place_of_a_data_set_by_name_is_no_setting() -> None:
    by_name = [data(fetch=name, path=f"/cache/{name}") for name in ("nations", "umls")]
    assert sweep.varying_settings(by_name) == [{"data.fetch": "nations"}, {"data.fetch": "umls"}]
    by_path = [data(path="a"), data(path="b")]
    assert sweep.varying_settings(by_path) == [{"data.path": "a"}, {"data.path": "b"}]
