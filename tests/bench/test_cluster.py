"""`bench.cluster`: the bytes of its formula, its cases, and what it prints."""

from __future__ import annotations

from pathlib import Path

import pytest

import embexp
from bench import cluster, planted_items
from tests import planted_triples

SUMMARY = {
    "cluster": {"workers": 3, "rooms": {"user": 10, "item": 20}},
    "tables": {"user": {"dim": 4}, "item": {"dim": 8}},
    "freeze": {"user": {"trainable_rows": 5}, "item": {"trainable_rows": 0}},
}


def test_bytes_of_a_step() -> None:
    """Counted by hand: of each pair of workers ids, rows, and gradients where rows move; then a ring."""
    pairs = 3 * 2
    user, item = 10 * (4 + 16 + 16), 20 * (4 + 32)
    heads = 2 * 4
    ring = 2 * (3 - 1) * 100 * 4
    assert cluster.formula(SUMMARY, 100) == pairs * (user + item + heads) + ring


@pytest.mark.parametrize("name", list(cluster.CASES))
@pytest.mark.parametrize("workers", [1, 2])
def test_cases_are_configs(name: str, workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = {
        "two_tower": lambda folder: planted_items.write(folder / "data.csv", users=20, items=600),
        "complex": lambda folder: planted_triples.divided(folder / "graph", planted_triples.circle(8), test=2, valid=2),
    }
    monkeypatch.setattr(cluster, "_DATA", small)
    settings = [*cluster.settings_of(name, tmp_path, 10), *cluster.of_strategy(workers)]
    spec = embexp.compose(settings)
    assert spec.train.steps == 10
    assert spec.strategy.replica_count == workers


def test_line() -> None:
    found = {"step_ms": {"1": 10.0, "2": 14.0}, "ratio": 1.4, "bytes": 1050.0, "formula": 1000.0, "padding": 0.125}
    expected = "mlp          2 workers 14.0 ms, cpu 10.0 ms: 1.40 x"
    expected += "; 1,050 bytes per step, 1.050 x the formula, padding 12% of ids"
    assert cluster.line("mlp", found, 2) == expected
