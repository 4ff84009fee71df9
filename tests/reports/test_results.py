from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from embexp.reports.results import Results, shown_path, warnings

SUMMARY: dict[str, Any] = {
    "status": "stopped_early",
    "steps": 12000,
    "best_step": 9000,
    "metrics": {
        "train": {"loss": 0.51234},
        "validation": {"log_loss": 0.5312, "auc": 0.7893},
        "test": {"log_loss": 0.5331, "auc": 0.7871},
    },
    "truth": {"bayes_auc": 0.7932},
    "throughput": {"examples_per_second": 1234567.8, "step_ms_median": 1.2345},
    "strategy": "cpu",
    "runtime": "function",
    "initialization": {"method": "assign", "tables": {"user": {"bytes": 128064}}},
    "freeze": {
        "user": {"frozen_rows": 20, "trainable_rows_touched": 1980},
        "item": {"frozen_rows": 0, "trainable_rows_touched": 1001},
    },
    "tables": {
        "user": {"vocabulary_size": 2001, "dim": 16, "storage": "variable"},
        "item": {"vocabulary_size": 12001001, "dim": 16, "storage": "split"},
    },
    "warnings": ["validation: [auc] is undefined"],
}


def shown(summary: dict[str, Any], directory: Path, *, terminal: bool = False, width: int = 80) -> list[str]:
    console = Console(file=io.StringIO(), force_terminal=terminal, width=width, color_system=None, legacy_windows=False)
    console.print(Results(summary, directory))
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "outputs" / "run"
    (run / "plots").mkdir(parents=True)
    (run / "summary.json").touch()
    assert shown(SUMMARY, run) == [
        "stopped early  ·  12,000 steps  ·  best at step 9,000  ·  cpu / function",
        "1,234,568 examples/s  ·  1.23 ms per step",
        "",
        "  metric     train  validation    test  best possible on test  difference",
        "  log_loss              0.5312  0.5331",
        "  auc                   0.7893  0.7871                 0.7932     -0.0061",
        "  loss      0.5123",
        "",
        "  table        rows  dim      MB      rows touched  rows frozen  storage",
        "  user        2,001   16    0.13       1,980 (99%)      20 (1%)  variable",
        "  item   12,001,001   16  768.06  1,001 (0.00834%)            0  split",
        "",
        "results in outputs/run",
        "  summary.json  all results",
        "  plots/        overview.png and more",
        "warning: validation: [auc] is undefined",
    ]


def test_warnings_beyond_the_first_are_counted() -> None:
    found = [str(each) for each in warnings({"warnings": ["a", "b", "c"]}, 1)]
    assert found == ["warning: a", "… and 2 more warnings, in summary.json"]
    assert [str(each) for each in warnings({"warnings": ["a", "b"]}, 2)] == ["warning: a", "warning: b"]


def test_a_baseline_is_shown_beside_the_metrics_of_its_split(tmp_path: Path) -> None:
    popularity = {"validation": {"auc": 0.6}, "test": {"auc": 0.6123}}
    lines = shown({**SUMMARY, "truth": {}, "baselines": {"popularity": popularity}}, tmp_path)
    assert "  metric     train  validation    test  popularity on test" in lines
    assert "  auc                   0.7893  0.7871              0.6123" in lines


@pytest.mark.parametrize(
    ("operations", "line"),
    [
        ({"used": ["moves", "rows"], "missing": None}, "moves, rows"),
        ({"used": [], "missing": "no C++ compiler"}, "none: no C++ compiler; TensorFlow's own are slower"),
        ({"used": [], "missing": None}, "none: none of them apply to this run"),
    ],
)
def test_the_fused_operations_that_were_used_are_named(tmp_path: Path, operations: dict[str, Any], line: str) -> None:
    assert f"fused operations: {line}" in shown({**SUMMARY, "fused_operations": operations}, tmp_path)
    no_step = {**SUMMARY, "fused_operations": {"used": None, "missing": None}}
    assert not any(each.startswith("fused operations:") for each in shown(no_step, tmp_path))


def test_only_a_terminal_gets_frames(tmp_path: Path) -> None:
    assert any("───" in line for line in shown(SUMMARY, tmp_path, terminal=True))
    assert not any("─" in line for line in shown(SUMMARY, tmp_path))


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("terminal", [False, True])
def test_metrics_with_all_that_they_are_compared_with_break_no_word(tmp_path: Path, width: int, terminal: bool) -> None:
    of_baseline = {"test": {"log_loss": 0.6, "auc": 0.6}}
    summary = {
        **SUMMARY,
        "baselines": {"constant": of_baseline, "logistic_regression": of_baseline},
        "evaluation": {"test": {"intervals": {"log_loss": [0.51, 0.55], "auc": [0.77, 0.8]}}},
    }
    lines = shown(summary, tmp_path, terminal=terminal, width=width)
    table = "\n".join(line for line in lines[: next(n for n, line in enumerate(lines) if "rows" in line)])
    assert "…" not in table
    assert {"log_loss", "validation", "regression", "possible", "±0.0200", "difference"} <= set(table.split())
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize("width", [80, 100])
def test_nothing_is_cut_off_in_a_terminal(tmp_path: Path, width: int) -> None:
    text = "\n".join(shown(SUMMARY, tmp_path, terminal=True, width=width))
    assert "…" not in text
    for words in ("0.7871", "0.7932", "-0.0061", "12,001,001", "768.06", "1,001 (0.00834%)", "split"):
        assert words in text


def test_a_run_without_truth_shows_no_comparison(tmp_path: Path) -> None:
    text = "\n".join(shown(SUMMARY | {"truth": {}}, tmp_path))
    assert "best possible" not in text
    assert "difference" not in text


@pytest.mark.parametrize("missing", [key for key in SUMMARY if key != "status"])
def test_a_summary_may_lack_anything_but_its_status(tmp_path: Path, missing: str) -> None:
    summary = {key: value for key, value in SUMMARY.items() if key != missing}
    assert shown(summary, tmp_path)[0].startswith("stopped early")
    assert shown(SUMMARY | {missing: None}, tmp_path)[0].startswith("stopped early")


def test_an_interrupted_run_before_any_evaluation(tmp_path: Path) -> None:
    summary = {
        "status": "interrupted",
        "steps": 3,
        "metrics": {"train": {"loss": None}},
        "throughput": {"examples_per_second": None, "step_ms_median": None},
    }
    assert shown(summary, tmp_path)[:4] == ["interrupted  ·  3 steps", "", "  metric  train", "  loss"]


def test_a_long_path_is_whole(tmp_path: Path) -> None:
    directory = tmp_path / ("deep" * 20) / ("deeper" * 20)
    assert str(directory) in "".join(shown({"status": "completed"}, directory))


def test_paths_outside_the_working_directory_are_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert shown_path(tmp_path / "run") == str(tmp_path / "run")
    assert shown_path(tmp_path / "here" / "run") == "run"


def many(count: int, **facts: Any) -> dict[str, Any]:
    names = [f"a_table_with_a_long_name_{number}" for number in range(count)]
    return {
        "status": "completed",
        "tables": {name: {"vocabulary_size": 1000, "dim": 8, "storage": "variable"} for name in names},
        "freeze": {name: {"frozen_rows": 0, "trainable_rows_touched": 900} | facts for name in names},
    }


def test_the_tables_of_a_click_log_are_all_named(tmp_path: Path) -> None:
    text = shown(many(26), tmp_path, width=120)
    assert sum("a_table_with_a_long_name_" in line for line in text) == 26
    assert not any("more" in line for line in text)


def test_further_tables_share_a_row(tmp_path: Path) -> None:
    text = shown(many(100, trainable_rows_never_moved=100), tmp_path, width=120)
    assert sum("a_table_with_a_long_name_" in line for line in text) == 30
    [row] = [line for line in text if "70 more" in line]
    assert row.split() == ["70", "more", "70,000", "2.24", "63,000", "(90%)", "7,000", "(10%)"]


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("width", [72, 80, 100, 120])
def test_names_are_not_broken_for_columns_that_say_nothing(tmp_path: Path, width: int, terminal: bool) -> None:
    text = shown(many(26, trainable_rows_never_moved=100), tmp_path, width=width, terminal=terminal)
    assert sum("a_table_with_a_long_name_" in line for line in text) == (52 if (width, terminal) == (72, True) else 26)
    assert any("a_table_with_a_long_name_25" in line and "900 (90%)" in line for line in text)
    assert max(map(len, text)) <= width
    frozen = shown(many(26, trainable_rows_never_moved=100, frozen_rows=50), tmp_path, width=width, terminal=terminal)
    assert sum("50 (5%)" in line for line in frozen) == 26
