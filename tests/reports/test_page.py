"""What is in the page of a report: data, curves, maps, and how text gets into it."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import embexp
from embexp import reports
from embexp.reports.collected import collect
from embexp.reports.page import (
    Curve,
    Curves,
    as_json,
    document,
    figures_of,
    of_runs,
    page_of,
    points_each,
    read_curves,
    shortened,
)
from embexp.reports.report import as_json as written_json
from embexp.reports.report import report
from embexp.runs import table_maps
from tests import short_runs
from tests.reports import swept_runs
from tests.thoroughness import examples

ASSETS = Path(reports.__file__).parent / "assets"
VENDOR = ASSETS / "vendor"
HOSTILE = "</script><!--<script>&\u2028\u2029\ud800"


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return swept_runs.sweep(tmp_path_factory.mktemp("swept"), jobs=6, seeds=2, failed=1, skipped=1)


def data_of(page: str) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def test_the_page_has_all_runs_and_needs_nothing_else(swept: Path) -> None:
    page = page_of(collect([swept]))
    data = data_of(page)
    assert [run["label"] for run in data["runs"]] == [f"#{number}" for number in range(8)]
    assert [run["status"] for run in data["runs"]] == ["completed"] * 6 + ["failed", "skipped"]
    assert data["runs"][6]["reason"] == swept_runs.REASON
    assert data["primary"] == {
        "name": "rmse", "direction": "lower", "validation": "validation rmse", "test": "test rmse",
        "all": ["rmse"],
    }  # fmt: skip
    outside = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert not re.search(r"(src|href)\s*=\s*[\"'](?!#|data:)", outside)
    assert "@import" not in page
    assert "url(" not in outside


def test_the_page_of_200_runs_with_all_its_maps_has_at_most_six_megabytes(tmp_path: Path) -> None:
    swept_runs.sweep(tmp_path, jobs=200, evaluations=100)
    found = [swept_runs.a_map(number, rows=table_maps.MOST_ROWS) for number in range(table_maps.MOST_TABLES)]
    page = document(of_runs(collect([tmp_path]), maps=found), title="many")
    assert len(page.encode()) <= 6_000_000


def test_runs_that_differ_in_the_seed_are_one_group(swept: Path) -> None:
    data = of_runs(collect([swept]))
    assert [run["group"] for run in data["runs"][:6]] == [0, 0, 1, 1, 2, 2]
    assert "seed" in data["columns"]
    assert "seed" not in data["groups"][0]


def test_a_job_that_was_not_run_has_numbers_like_the_others(swept: Path) -> None:
    data = of_runs(collect([swept]))
    values = [run["values"][data["columns"].index("optimizer.learning_rate")] for run in data["runs"]]
    assert all(isinstance(value, float) for value in values)


def test_the_history_is_that_of_a_search(tmp_path: Path) -> None:
    sweep = swept_runs.sweep(tmp_path / "sweep", jobs=2, evaluations=2)
    assert of_runs(collect([sweep]))["search"] is None
    assert json.loads(written_json(report(sweep)))["searches"] == []
    objectives = [{"metric": "validation mae", "direction": "minimize"}]
    swept_runs.write_json(sweep / "search.json", {"objectives": objectives, "trials": []})  # as embexp 0.1.0 wrote it
    found = of_runs(collect([sweep]))["search"]
    assert (found["by"], found["metrics"], found["parameters"], found["trials"]) == (
        "Optuna",
        ["validation mae"],
        [],
        [],
    )
    for damaged in ([], "x", {"objectives": 3}, {"objectives": [{}]}):
        swept_runs.write_json(sweep / "search.json", damaged)
        assert of_runs(collect([sweep]))["search"] is None
    for damaged in ({"trials": 3, "parameters": "x"}, {"trials": [1], "parameters": [2], "importance": [3]}):
        swept_runs.write_json(sweep / "search.json", {"objectives": objectives, **damaged})
        assert of_runs(collect([sweep]))["search"]["metrics"] == ["validation mae"]


def test_what_a_search_has_left_out_is_told(tmp_path: Path) -> None:
    sweep = swept_runs.sweep(tmp_path / "sweep", jobs=2, evaluations=2)
    content = swept_runs.a_search(sweep) | {"n_trials": 20, "left_out": 18, "ended": "its budget of 2h is spent"}
    swept_runs.write_json(sweep / "search.json", content)
    found = report(sweep)
    assert found.notes[0] == "the search ended with 2 of 20 trials, without the other 18: its budget of 2h is spent"
    [written] = json.loads(written_json(found))["searches"]
    assert (written["left_out"], written["trials"]) == (18, content["trials"])


def test_shared_settings_are_stored_once(swept: Path) -> None:
    data = of_runs(collect([swept]))
    for job in (0, 3):
        spec = json.loads((swept / str(job) / "spec.json").read_text())
        settings = dict([*data["common"], *data["runs"][job]["settings"]])
        assert settings["train.steps"] == spec["train"]["steps"]
        assert settings["optimizer.learning_rate"] == spec["optimizer"]["learning_rate"]
    assert "train.steps" in dict(data["common"])
    assert "train.steps" not in dict(data["runs"][0]["settings"])


def test_only_the_scripts_of_the_page_may_run(swept: Path) -> None:
    page = document(of_runs(collect([swept]), maps=[swept_runs.a_map(0)]), title="a page")
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'")
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    assert len(scripts) == 3
    for script in scripts:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy[1]
    assert "unsafe-eval" not in policy[1]


def test_the_scripts_make_no_markup_of_text() -> None:
    for script in (ASSETS / "js").glob("*.js"):
        text = script.read_text("utf-8")
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", text), (
            script
        )
        assert not re.search(r"\bfetch\(|XMLHttpRequest|WebSocket|sendBeacon|import\(", text), script


def test_vendored_files_are_those_of_the_notice() -> None:
    notice = (VENDOR / "NOTICE").read_text("utf-8")
    for name in ("echarts.min.js", "umap-js.min.js"):
        assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() in notice
        assert name in notice


@given(st.recursive(st.text() | st.just(HOSTILE), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_json_in_the_page_reads_back_and_ends_no_element(value: Any) -> None:
    text = as_json(value)
    assert not re.search("[<>&\u2028\u2029]", text)
    assert text.isascii()
    assert json.loads(text) == value


def test_hostile_titles_and_settings_stay_text(swept: Path, tmp_path: Path) -> None:
    records = collect([swept])
    data = {**of_runs(records), "groups": [HOSTILE, "{{title}}"]}
    page = document(data, title=f"{HOSTILE}{{{{data}}}}")
    assert page.count("<script") == page.count("</script>") == 3  # data, ECharts, the page's own: no map, no UMAP
    assert html.escape("</script><!--<script>&") in page
    assert data_of(page)["groups"] == [HOSTILE, "{{title}}"]


KEYS = st.sampled_from(["initialization", "freeze", "tables", "item", "method", "warnings", "digest", "storage"])
LEAVES = st.none() | st.booleans() | st.floats() | st.text() | st.integers()


@examples(10)
@given(st.dictionaries(KEYS, st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner))))
def test_any_summary_gives_figures_that_json_has(summary: dict[str, Any]) -> None:
    json.dumps(figures_of(summary), allow_nan=False)


def test_a_page_of_damaged_runs_is_written(tmp_path: Path) -> None:
    for name, text in {"a": "{", "b": '{"status": "completed"}', "c": '{"status": "completed", "tables": 3}'}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "summary.json").write_text(text)
        (tmp_path / name / "metrics.jsonl").write_text('{"event": "log", "step": 1, "loss": "NaN"}\n{"event"')
    records = collect([tmp_path])
    assert len(data_of(page_of(records, maps=table_maps.of_best(records)))["runs"]) == 3


def test_curves_are_what_metrics_jsonl_has(tmp_path: Path) -> None:
    lines = [
        {"event": "log", "step": 10, "loss": 0.5, "timing": {"seconds": 1.0}},
        {
            "event": "evaluation",
            "step": 10,
            "split": "validation",
            "metrics": {"auc": 0.75},
            "timing": {"seconds": 1.5},
        },
        {"event": "evaluation", "step": 10, "split": "test", "metrics": {"auc": 0.5}, "timing": {"seconds": 1.6}},
        {"event": "log", "step": 20, "loss": "NaN", "timing": {"seconds": 2.0}},
        {"event": "drift", "step": 20, "drift": {}, "timing": {"seconds": 2.5}},
    ]
    path = tmp_path / "metrics.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in lines) + '\n{"event": "log", "st')
    found = read_curves(path)
    assert found.by_name == {"train loss": Curve([10, 20], [0.5, None]), "validation auc": Curve([10], [0.75])}
    assert read_curves(tmp_path / "missing") == Curves()


def test_long_curves_keep_their_ends_their_best_point_and_their_mean() -> None:
    steps = list(range(1, 10_001))
    values = [1.0 + (step % 7) / 100 for step in steps]
    values[1234] = 0.5
    run = Curves({"train loss": Curve(steps, values), "validation rmse": Curve(steps, values)})
    short = shortened(run, 400)
    rmse, loss = short["validation rmse"], short["train loss"]
    assert len(rmse.steps) <= 400
    assert (rmse.steps[0], rmse.steps[-1], min(v for v in rmse.values if v)) == (1, 10_000, 0.5)
    assert len(loss.steps) == 400
    # Each point is the mean of as many: so is the mean of all.
    assert np.mean([v for v in loss.values if v]) == pytest.approx(np.mean(values), rel=1e-4)


def test_points_of_many_curves_are_bounded() -> None:
    runs = [Curves({str(name): Curve([1], [1.0]) for name in range(4)})] * 1000
    assert points_each(runs) * 4000 <= 250_000
    assert points_each(runs[:1]) == 400


def test_components_are_those_of_the_covariance_matrix() -> None:
    generator = np.random.default_rng(0)
    values = (generator.normal(0, 1, (200, 12)) @ generator.normal(0, 1, (12, 12))).astype(np.float32) + 5
    scores, shares = table_maps.principal_components(values)
    variances, vectors = np.linalg.eigh(np.cov(values.T.astype(np.float64)))
    np.testing.assert_allclose(shares, (variances / variances.sum())[::-1][:10], rtol=1e-9)
    expected = (values - values.mean(0, dtype=np.float64)) @ vectors[:, ::-1][:, :10]
    np.testing.assert_allclose(np.abs(scores), np.abs(expected), rtol=1e-6, atol=1e-6)


def test_packed_scores_read_back() -> None:
    scores = np.random.default_rng(0).normal(0, 3, (50, 10))
    packed, scale = table_maps.packed_scores(scores)
    read = np.frombuffer(base64.b64decode(packed), "<i2").reshape(50, 10) / 32_767 * scale
    np.testing.assert_allclose(read, scores, atol=scale / 60_000)


def test_a_sample_has_the_most_frequent_rows() -> None:
    rows = table_maps.sampled(1_000_000, ranked=True)
    assert len(rows) == len(set(rows.tolist())) == table_maps.MOST_ROWS
    assert rows[:1000].tolist() == list(range(1000))
    assert rows[-1] > 500_000
    assert table_maps.sampled(5, ranked=False).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.slow
def test_maps_of_a_real_run_know_where_its_rows_come_from(tmp_path_factory: pytest.TempPathFactory) -> None:
    result = short_runs.runner(tmp_path_factory)(*short_runs.PRETRAINED)
    found = {each["table"]: each for each in table_maps.of_best(collect([result.directory]))}
    item = found["item"]
    assert item["count"] == item["total"] == short_runs.ITEMS
    marks = {mark["name"]: [mark["names"][value] for value in mark["values"]] for mark in item["marks"]}
    summary = json.loads((result.directory / "summary.json").read_text())
    assert (
        marks["provenance"].count("pretrained") == summary["initialization"]["tables"]["item"]["rows_pretrained"] == 50
    )
    assert marks["training"].count("frozen") == summary["freeze"]["item"]["frozen_rows"] == 50
    assert {a for a, b in zip(marks["provenance"], marks["training"], strict=True) if b == "frozen"} == {"pretrained"}
    # The points are those of the rows that the checkpoint has, read by TensorFlow.
    import tensorflow as tf

    stored = tf.train.load_checkpoint(str(result.directory / "checkpoints" / "final" / "checkpoint"))
    rows = stored.get_tensor("embedding/item/.ATTRIBUTES/VARIABLE_VALUE").astype(np.float64)
    points = np.frombuffer(base64.b64decode(item["packed"]), "<i2").reshape(len(rows), -1) / 32_767 * item["scale"]
    first = np.linalg.svd(rows - rows.mean(0))[2][0]
    np.testing.assert_allclose(np.abs(points[:, 0]), np.abs((rows - rows.mean(0)) @ first), atol=item["scale"] / 10_000)
    assert "user" in found
    # Nearest rows, lengths and distances from the file, by plain NumPy.
    units = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    cosines = units @ units.T - 2 * np.eye(len(rows))
    for place, tokens, near in item["near"]:
        order = np.argsort(-cosines[place])[:8]
        assert tokens == [item["tokens"][row] for row in order]
        np.testing.assert_allclose(near, cosines[place, order], atol=6e-4)
    assert item["moved"] is None  # the pretrained rows were frozen
    result = short_runs.runner(tmp_path_factory)(short_runs.PRETRAINED[0])
    item = next(each for each in table_maps.of_best(collect([result.directory])) if each["table"] == "item")
    run = embexp.load_run(result.directory)
    path = Path(run.spec.tables["item"].pretrained.path)
    tokens = path.with_suffix(".tokens.txt").read_text().splitlines()
    before, after = np.load(path).astype(np.float64), run.table("item")[[int(token) for token in tokens]]
    cosines = (before * after).sum(1) / np.linalg.norm(before, axis=1) / np.linalg.norm(after, axis=1)
    expected = sorted(zip(1 - cosines, tokens, strict=True), reverse=True)
    assert [token for token, _ in item["moved"]["most"]] == [token for _, token in expected[:12]]
    np.testing.assert_allclose(item["moved"]["mean"], (1 - cosines).mean(), rtol=1e-3)
