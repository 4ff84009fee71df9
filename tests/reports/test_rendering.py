"""What stands in the terminal."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from embexp.reports.report import Report, report, run_columns, show
from tests.reports.made_runs import ledger, run, spec, sweep


def printed(found: Report, width: int = 120, *, terminal: bool = False) -> list[str]:
    text = io.StringIO()
    show(found, Console(file=text, width=width, force_terminal=terminal, color_system=None))
    return [line.rstrip() for line in text.getvalue().splitlines()]


def test_runs_and_settings_over_seeds(tmp_path: Path) -> None:
    sweep(tmp_path, optimizers={"sgd": [1.0, 1.2, 1.1], "adam": [0.9, 1.0, 1.05]})
    lines = printed(report(tmp_path))
    assert lines[0].split("  ") == [
        "job", "optimizer", "seed", "validation rmse", "test rmse", "test mae", "seconds",
    ]  # fmt: skip
    assert lines[1].split() == ["*", "3", "adam", "0", "0.9000", "1.0000", "0.4500", "4.5"]
    assert lines[2].split() == ["0", "sgd", "0", "1.0000", "1.1000", "0.5000", "1.5"]
    assert lines[8].split()[:4] == ["optimizer", "runs", "validation", "rmse"]
    assert lines[9].split()[:9] == ["*", "adam", "3", "0.9833", "±", "0.0764", "1.0833", "±", "0.0764"]
    assert "reference" in lines[9]
    assert lines[10].split()[:2] == ["sgd", "3"]
    assert "+0.1167" in lines[10]
    assert lines[12] == "* best by validation rmse (lower is better)"
    assert (
        lines[13]
        == "interval (Student's t), difference from the reference, and p: of test rmse; p comes from a paired t-test"
    )


def test_what_has_no_results_stands_below(tmp_path: Path) -> None:
    jobs = [
        {"state": "completed", "directory": "0", "overrides": ["init=a"]},
        {"state": "failed", "directory": "1", "overrides": ["init=b"], "reason": "out of memory", "spec": spec()},
        {"state": "skipped", "overrides": ["init=c"], "reason": "it can't be", "spec": spec()},
        {"state": "skipped", "overrides": ["init=d"], "reason": "it can't be", "spec": spec()},
        {"state": "planned", "overrides": ["init=e"], "spec": spec()},
        {"state": "pruned", "overrides": ["init=f"], "spec": spec(), "reason": "worse than the median at step 5"},
    ]
    ledger(tmp_path, jobs)
    run(tmp_path / "0", spec(), validation={"rmse": 1.0})
    run(tmp_path / "1", spec())
    (tmp_path / "1" / "run.log").write_text("Killed\n")
    lines = printed(report(tmp_path))
    assert lines[lines.index("* best by validation rmse (lower is better)") + 1 :] == [
        "job 1 failed [init=b]: out of memory",
        f"    {tmp_path / '1' / 'run.log'}",
        "job 5 pruned [init=f]: worse than the median at step 5",
        "2 jobs (2, 3) skipped: it can't be",
        "job 4 not started [init=e]",
    ]
    assert lines[1].split()[:3] == ["*", "0", "a"]
    assert len([line for line in lines if "1.0000" in line]) == 1


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("width", [40, 80, 120])
def test_a_wide_table_stays_readable(tmp_path: Path, width: int, terminal: bool) -> None:
    for number in range(3):
        changes = {f"model__setting_with_a_long_name_{each}": f"value {number} " * 6 for each in range(8)}
        content = spec(optimizer__learning_rate=number / 10, **changes)
        run(tmp_path / f"{number}", content, validation={"rmse": 1.0 + number, "mae": 1}, test={"rmse": 1.0, "mae": 2})
    lines = printed(report(tmp_path), width, terminal=terminal)
    assert all(cell_len(line) <= width for line in lines[:-1])  # the last is a sentence
    words = " ".join(lines).split()
    assert {"validation", "rmse", "mae"} <= set(words)
    for value in ("1.0000", "2.0000", "3.0000"):
        assert value in words  # no number is broken


def test_columns_that_compare_ways_in(tmp_path: Path) -> None:
    """As `experiment=initialization` has them: units for people, headings as short as they can be."""
    keys = ["initialization.seconds", "initialization.peak_anonymous_bytes", "initialization.graph_def_bytes"]
    keys += ["initialization.total_graph_def_bytes", "nothing.there"]
    for number, values in enumerate([(1.2345, 3_072_000_000, 4_000_512, 4_100_000), (0.0021, 12_345, 512, 0)]):
        summary = {"initialization": {key.partition(".")[2]: value for key, value in zip(keys, values, strict=False)}}
        content = spec(init__kind=("constant", "assign")[number], output__compare=keys)
        run(tmp_path / str(number), content, validation={"rmse": 1.0 + number}, summary=summary)
    lines = printed(report(tmp_path), 200)
    assert [each.strip() for each in lines[0].split("  ") if each.strip()] == [
        "run", "init.kind", "validation rmse", "initialization seconds", "peak anonymous", "graph def",
        "total graph def",
    ]  # fmt: skip
    assert " ".join(lines[1].split()) == "* 0 constant 1.0000 1.23 s 3.07 GB 4 MB 4.1 MB"
    assert " ".join(lines[2].split()) == "1 assign 2.0000 2.1 ms 12.3 kB 512 B 0 B"
    assert "output.compare: no summary.json of these runs has the key nothing.there" in lines


def test_many_jobs_with_one_cause_are_one_line(tmp_path: Path) -> None:
    ledger(tmp_path, [{"state": "skipped", "reason": "the same"} for _ in range(30)])
    assert printed(report(tmp_path)) == ["30 jobs (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, … 18 more) skipped: the same"]


def test_many_causes_are_not_all_listed(tmp_path: Path) -> None:
    ledger(tmp_path, [{"state": "pruned", "reason": f"worse at step {step}"} for step in range(20)])
    lines = printed(report(tmp_path))
    assert lines[:2] == ["job 0 pruned: worse at step 0", "job 1 pruned: worse at step 1"]
    assert lines[-1] == "8 jobs (12, 13, 14, 15, 16, 17, 18, 19) pruned for other reasons; --csv FILE lists them"
    assert len(lines) == 13


def test_nothing_but_the_grid_decides_what_is_shown(tmp_path: Path) -> None:
    sweep(tmp_path, optimizers={"sgd": [1.0]})
    assert [column.heading for column in run_columns(report(tmp_path))] == [
        "job", "validation rmse", "test rmse", "test mae", "seconds",
    ]  # fmt: skip
