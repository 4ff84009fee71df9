"""What is said of a sweep's outcomes."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path

import pytest
from rich.console import Console

from embexp.sweeps import columns, outcomes, results
from embexp.sweeps.outcomes import Outcome, Status


def outcome(number: int, status: Status = Status.COMPLETED, **overrides: str) -> Outcome:
    metrics = {"test rmse": float(number), "test loss": number**2.0} if status.has_results else {}
    return Outcome(number, overrides, status, directory=Path(f"/s/{number}"), seconds=1.5, metrics=metrics)


def test_means_are_over_folds_and_seeds_and_never_over_settings() -> None:
    settings = [("sgd", "0"), ("sgd", "1"), ("sgd", "2"), ("adam", "0")]
    found = [outcome(n, optimizer=each, fixed="x", **{"data.fold": fold}) for n, (each, fold) in enumerate(settings)]
    found += [outcome(4, Status.FAILED, optimizer="adam", fixed="x", **{"data.fold": "1"})]
    averages = results.averages(found)
    assert averages == [
        (
            {"optimizer": "sgd"},
            3,
            {
                "test rmse": {"mean": 1.0, "std": 1.0},
                "test loss": {"mean": 5 / 3, "std": pytest.approx(math.sqrt(13 / 3))},
            },
        )
    ]
    assert results.averages([outcome(0, optimizer="sgd"), outcome(1, optimizer="adam")]) == []


def test_the_table() -> None:
    text = io.StringIO()
    found = [outcome(0, seed="0"), outcome(1, seed="1"), outcome(2, Status.SKIPPED, seed="1")]
    results.show(found, Path("/s"), Console(file=text, width=120))
    lines = [line.split() for line in text.getvalue().splitlines()]
    assert lines[0] == ["job", "seed", "status", "test", "rmse", "seconds", "directory"]
    assert lines[1] == ["0", "0", "completed", "0.0000", "1.5", "0"]
    assert lines[4] == ["mean", "2", "values", "±", "std", "0.5000", "±", "0.7071"]
    assert lines[-1] == ["results", "in", "/s"]


def test_columns_that_compare_ways_in() -> None:
    """As `experiment=initialization` has them: units for people, heads as short as they can be."""
    keys = ["initialization.seconds", "initialization.peak_anonymous_bytes", "initialization.graph_def_bytes"]
    keys += ["initialization.total_graph_def_bytes", "metrics.train.loss"]
    values = [
        dict(zip(keys, (1.2345, 3_072_000_000, 4_000_512, 4_100_000, 0.69314), strict=True)),
        dict(zip(keys, (0.0021, 12_345, 512, 0, 0.69), strict=True)),
    ]
    found = [
        Outcome(number, {"init": init}, Status.COMPLETED, seconds=1.5, compared=compared)
        for number, (init, compared) in enumerate(zip(("constant", "assign"), values, strict=True))
    ]
    found.append(Outcome(2, {"init": "memory_map"}, Status.SKIPPED, "it can't be"))
    text = io.StringIO()
    results.show(found, Path("/s"), Console(file=text, width=200))
    lines = text.getvalue().splitlines()
    assert [each.strip() for each in lines[0].split("  ") if each.strip()] == [
        "job", "init", "status", "initialization seconds", "peak anonymous", "graph def", "total graph def", "loss",
        "seconds", "directory",
    ]  # fmt: skip
    assert " ".join(lines[1].split()) == "0 constant completed 1.23 s 3.07 GB 4 MB 4.1 MB 0.6931 1.5"
    assert " ".join(lines[2].split()) == "1 assign completed 2.1 ms 12.3 kB 512 B 0 B 0.6900 1.5"
    assert lines[3].split() == ["2", "memory_map", "skipped"]


@pytest.mark.parametrize(
    ("keys", "heads"),
    [
        (["a.b.c"], ["c"]),
        (["a.b.c", "a.x.c"], ["b c", "x c"]),
        (["a.seconds"], ["a seconds"]),
        (["seconds"], ["seconds"]),  # nothing shorter tells it from the sweep's own
        (["c", "a.c"], ["c", "a c"]),
        (["tables.item.digest", "tables.user.digest"], ["item digest", "user digest"]),
    ],
)
def test_heads(keys: list[str], heads: list[str]) -> None:
    assert list(columns.heads(keys, taken=["job", "seconds"]).values()) == heads


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("x_bytes", 0, "0 B"),
        ("x.bytes", 1_999_999, "2 MB"),
        ("seconds", 0.0, "0 s"),
        ("seconds", 0.00005, "50 µs"),
        ("seconds", 61.25, "61.2 s"),
        ("steps", 12_345, "12,345"),
        ("rate", 12_345.6, "12,346"),
        ("loss", 0.25, "0.2500"),
        ("status", "completed", "completed"),
        ("frozen", True, "True"),
        ("nothing", None, ""),
        ("several", {"é": 1}, '{"é": 1}'),
    ],
)
def test_cells(key: str, value: object, shown: str) -> None:
    assert columns.cell(key, value) == shown


def test_accuracy_over_seeds_for_each_of_several_settings() -> None:
    accuracies = {"random": (0.5, 0.6), "static": (0.7, 0.7), "non_static": (0.75, 0.85)}
    found = [
        Outcome(
            number,
            {"vectors": vectors, "seed": str(seed), "experiment": "text_classification"},
            Status.STOPPED_EARLY,
            seconds=2.0,
            metrics={"test accuracy": accuracies[vectors][seed], "test log_loss": 1.0, "test macro_f1": 0.5},
        )
        for number, (vectors, seed) in enumerate((vectors, seed) for vectors in accuracies for seed in (0, 1))
    ]
    text = io.StringIO()
    results.show(found, Path("/s"), Console(file=text, width=160))
    means = [line.split() for line in text.getvalue().splitlines() if line.startswith("mean")]
    assert [line[:4] for line in means] == [["mean", each, "2", "values"] for each in accuracies]
    assert [line[6:9] for line in means] == [
        ["0.5500", "±", "0.0707"], ["0.7000", "±", "0.0000"], ["0.8000", "±", "0.0707"],
    ]  # fmt: skip


def test_only_losses() -> None:
    text = io.StringIO()
    results.show([Outcome(0, {}, Status.COMPLETED, metrics={"test loss": 2.0})], Path("/s"), Console(file=text))
    assert "test loss" in text.getvalue()


@pytest.mark.parametrize(
    ("summary", "exit_status", "expected"),
    [
        ({"status": "completed"}, 0, Status.COMPLETED),
        ({"status": "stopped_early"}, 0, Status.STOPPED_EARLY),
        ({"status": "interrupted"}, 1, Status.INTERRUPTED),
        ({"status": "completed"}, 1, Status.FAILED),
        ({"status": "somehow"}, 0, Status.FAILED),
        (None, 0, Status.FAILED),
    ],
)
def test_status_of_a_job(summary: dict | None, exit_status: int, expected: Status, tmp_path: Path) -> None:
    if summary is not None:
        (tmp_path / "summary.json").write_text(json.dumps(summary))
    found = outcomes.read(tmp_path, number=0, overrides={}, exit_status=exit_status, seconds=1.0)
    assert found.status is expected


def test_a_job_that_says_nothing(tmp_path: Path) -> None:
    found = outcomes.read(tmp_path, number=0, overrides={}, exit_status=3, seconds=1.0)
    assert found.reason == "exit status 3, no output"


def test_varying() -> None:
    assert outcomes.varying([{"a": "1", "b": "2"}, {"a": "1", "b": "3", "c": "4"}]) == ["b", "c"]
    assert outcomes.varying([]) == []
