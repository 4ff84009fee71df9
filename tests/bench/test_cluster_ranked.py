"""`bench.cluster_ranked`: its cases, and what it prints."""

from __future__ import annotations

from pathlib import Path

import pytest

import embexp
from bench import cluster_ranked


@pytest.mark.parametrize("name", list(cluster_ranked.CASES))
def test_cases_are_configs(name: str, tmp_path: Path) -> None:
    write, table = cluster_ranked.CASES[name]
    spec = embexp.compose([*write(tmp_path / "data", 600), *cluster_ranked._SHORT, f"tables.{table}.dim=6"])
    assert spec.train.steps == 10
    assert {each.dim for key, each in spec.tables.items() if key != "item_bias"} == {6}


def test_line() -> None:
    found = {"workers": 2, "bytes_each": 203e6, "shares": [1.4, 1.52]}
    assert cluster_ranked.line("graph", found) == "graph: 2 x 203 MB: each added 1.40, 1.52 x that"
