"""`bench.search_conditions`: its objective, its spaces, and what conditions save."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import search_conditions as bench


def test_the_optimum_is_at_adams_and_the_flat_space_has_it() -> None:
    best = {"optimizer": "adam", "optimizer.learning_rate": "0.001", "optimizer.weight_decay_factor": "1e-06"}
    best["optimizer.beta_1"] = "0.8"
    assert bench.planted(best) == pytest.approx(0)
    assert bench.conditional().fitted(best, {}) is not None
    others = {"optimizer.momentum": "0.5", "optimizer.l1": "0.001"}
    assert bench.flat().fitted(best | others, {}) is not None
    assert len(bench.flat().parameters) == 6
    assert len([*bench.conditional().active(best)]) == 4


@pytest.mark.slow
def test_conditions_save_trials(tmp_path: Path) -> None:
    most, counts = 30, dict[str, int]()
    for name, made in (("conditional", bench.conditional()), ("flat", bench.flat())):
        for seed in (1, 4):
            (place := tmp_path / f"{name} {seed}").mkdir()
            counts[name] = counts.get(name, 0) + bench.trials_until(made, seed, place, most)
    assert counts["conditional"] <= 0.6 * counts["flat"]
