"""Runs with frozen rows: in every layout and runtime no frozen bit changes, and layouts end with the same bits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import embexp
from embexp import filling, scanned, story
from embexp.errors import ConfigError
from embexp.pretrained.aligned import align
from embexp.specs.run import RunSpec
from embexp.specs.running import RuntimeKind
from embexp.tables import row_engine
from embexp.tables.groups import Moving, RowGroups

ITEMS, DIM, STEPS = 80, 16, 60
LAYOUTS = {
    "variable": ["tables.item.storage=variable"],
    "split": ["tables.item.storage=split"],
    "memory_map": ["init@tables.item.init=memory_map"],
}
PAIRS = [(runtime, layout) for runtime in ("function", "session") for layout in LAYOUTS] + [("estimator", "variable")]
RULE = ("optimizer=adam", "optimizer.lazy_adam=false", "optimizer.weight_decay_factor=0.01")
FROZEN = ("freeze@tables.item.freeze=pretrained_rows",)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Vectors of 50 of the 80 items, in no order."""
    path = tmp_path_factory.mktemp("file") / "item.npy"
    generator = np.random.default_rng(0)
    np.save(path, generator.normal(0, 0.3, (50, DIM)).astype(np.float32))
    tokens = generator.permutation(ITEMS)[:50]
    path.with_suffix(".tokens.txt").write_text("".join(f"{token}\n" for token in tokens))
    return path


def known(file: Path) -> np.ndarray:
    return np.array([int(line) for line in file.with_suffix(".tokens.txt").read_text().split()])


def spec_of(file: Path, *overrides: str) -> RunSpec:
    return embexp.compose(
        [
            "experiment=clicks",
            "data.examples=4000",
            "data.users=60",
            f"data.items={ITEMS}",
            "train.batch_size=128",
            f"train.steps={STEPS}",
            "train.epochs=null",
            "train.log_every=1",
            "output.plots=false",
            "output.tensorboard=false",
            f"output.cache={file.parent / 'cache'}",
            "pretrained@tables.item.pretrained=file",
            f"tables.item.pretrained.path={file}",
            *overrides,
        ]
    )


def run(file: Path, directory: Path, *overrides: str) -> story.RunResult:
    directory.mkdir()
    return story.run(spec_of(file, *overrides), directory)


def losses(result: story.RunResult) -> np.ndarray:
    lines = [json.loads(line) for line in (result.directory / "metrics.jsonl").read_text().splitlines()]
    return np.array([line["loss"] for line in lines if line["event"] == "log"])


@pytest.fixture(scope="module")
def results(file: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], story.RunResult]:
    folder = tmp_path_factory.mktemp("runs")
    return {
        (runtime, layout): run(
            file, folder / f"{runtime}_{layout}", f"runtime={runtime}", *LAYOUTS[layout], *RULE, *FROZEN
        )
        for runtime, layout in PAIRS
    }


@pytest.mark.slow
@pytest.mark.parametrize("pair", PAIRS)
def test_frozen_rows_in_every_layout_and_runtime(
    file: Path, results: dict[tuple[str, str], story.RunResult], pair: tuple[str, str]
) -> None:
    runtime, layout = pair
    result, reference = results[pair], results["function", "variable"]
    found: dict[str, Any] = dict(result.summary["freeze"]["item"])
    assert 20 < found.pop("trainable_rows_touched") == found.pop("trainable_rows_moved") <= 30
    never_met = found.pop("trainable_rows_never_moved")
    assert found.pop("never_moved_because") == {"learning_rate_zero": 0, "no_gradient": 0, "never_met": never_met}
    assert found == {
        "special_rows_never_met": 0,
        "frozen_rows": 50,
        "frozen_rows_changed": 0,
        "trainable_rows": 30,
        "rules": [{"phase": 0, "kind": "pretrained_rows", "multiplier": 0.0, "rows_named": 50, "rows_taken": 50}],
    }
    assert result.summary["tables"]["item"]["storage"] == layout
    assert result.summary["runtime"] == runtime
    # Layouts of one runtime agree to the bit; runtimes as far as their graphs are optimized alike.
    for name in ("item", "user"):
        same = results[runtime, "variable"].summary["tables"][name]["digest"]
        assert result.summary["tables"][name]["digest"] == same
    np.testing.assert_allclose(losses(result), losses(reference), rtol=1e-3)
    # The checkpoint is that of a whole table, whatever the layout.
    table = embexp.load_run(result.directory).table("item")
    matrix, rows = np.load(file), known(file)
    np.testing.assert_array_equal(table[rows].view(np.uint32), matrix.view(np.uint32))
    assert embexp.load_run(result.directory).evaluate() == pytest.approx(result.summary["metrics"]["test"], rel=1e-5)


RULES = {
    "sgd": ["optimizer=sgd", "optimizer.weight_decay_factor=0.01"],
    "adagrad": ["optimizer=adagrad", "optimizer.clipvalue=0.01"],
    "adagrad_momentum": ["optimizer=adagrad_momentum", "optimizer.momentum=0.9"],
    "adam": list(RULE),
    "ftrl": ["optimizer=ftrl", "optimizer.clip_weight_max=0.2"],
}


@pytest.mark.slow
@settings(max_examples=2)
@given(
    rule=st.sampled_from(sorted(RULES)),
    model=st.sampled_from(["mlp", "dlrm_concat"]),
    combiner=st.sampled_from(["sum", "mean", "sqrtn"]),
    ranges=st.lists(st.tuples(st.integers(1, 50), st.integers(1, 10)), min_size=1, max_size=3),
    multiplier=st.sampled_from([0.0, 0.5]),
    users=st.sampled_from(["none", "table", "rows"]),
    seed=st.integers(0, 2**16),
)
def test_any_policy_in_every_layout_and_runtime(
    file: Path,
    tmp_path_factory: pytest.TempPathFactory,
    rule: str,
    model: str,
    combiner: str,
    ranges: list[tuple[int, int]],
    multiplier: float,
    users: str,
    seed: int,
) -> None:
    """Rows of ranges, and rows of the file behind them: no frozen bit changes, layouts of a runtime end alike."""
    rows = ", ".join(f"[{start}, {start + length}]" for start, length in ranges)
    overrides = [
        *RULES[rule],
        f"model={model}",
        f"tables.item.combiner={combiner}",
        f"seed={seed}",
        "train.steps=50",
        "output.checkpoint=true",
        "freeze@tables.item.freeze=schedule",
        f"tables.item.freeze.phases=[{{rules: [{{kind: rows, rows: [{rows}], multiplier: {multiplier}}},"
        " {kind: pretrained_rows}]}]",
        f"freeze@tables.user.freeze={users}",
        *(["tables.user.freeze.rows=[[3, 9], [20, 40]]"] if users == "rows" else []),
    ]
    folder, digests, tables = tmp_path_factory.mktemp("any"), {}, {}
    for runtime, layout in PAIRS:
        result = run(file, folder / f"{runtime}_{layout}", f"runtime={runtime}", *LAYOUTS[layout], *overrides)
        assert result.summary["tables"]["item"]["storage"] == layout
        for name, found in result.summary["freeze"].items():
            assert found["frozen_rows_changed"] == 0, (runtime, layout, name)
        digests[runtime, layout] = {name: each["digest"] for name, each in result.summary["tables"].items()}
        assert digests[runtime, layout] == digests[runtime, "variable"]
        tables[runtime] = {name: embexp.load_run(result.directory).table(name) for name in ("item", "user")}
    spec = spec_of(file, *overrides)
    data = scanned.read_data(spec, lambda what, part: None)
    sizes = scanned.table_sizes(spec, data.vocabularies)
    given_rows = align(spec, data.vocabularies, sizes, cache=file.parent / "cache")
    frozen = story.freeze_policies(spec, data, sizes, given_rows, RuntimeKind.FUNCTION)
    for name, source in filling.sources(spec, sizes, given_rows).items():
        policy, first = frozen[name], source.read(0, sizes[name])
        still = np.full(sizes[name], policy.still) if policy.frozen is None else policy.frozen
        for found in tables.values():
            np.testing.assert_array_equal(found[name][still].view(np.uint32), first[still].view(np.uint32))
            np.testing.assert_allclose(found[name], tables["function"][name], rtol=1e-3, atol=1e-4)
        if not policy.still:
            assert (tables["function"][name] != first).any()


@pytest.mark.slow
def test_a_run_that_moves_frozen_rows_says_so(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The count in the summary can fail: here nothing is left out of the assignment."""
    whole = RowGroups.moving

    def everything(self: RowGroups, ids: Any, step: Any) -> Moving:
        places = row_engine.tf.range(row_engine.tf.size(ids))
        return Moving(places, whole(self, ids, step).multipliers)

    monkeypatch.setattr(RowGroups, "moving", everything)
    result = run(file, tmp_path / "run", *LAYOUTS["variable"], *RULE, *FROZEN)
    assert 40 < result.summary["freeze"]["item"]["frozen_rows_changed"] <= 50


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["variable", "split"])
def test_rows_thaw_by_schedule(file: Path, tmp_path: Path, layout: str) -> None:
    policy = (
        "freeze@tables.item.freeze=schedule",
        "tables.item.freeze.phases=[{rules: [{kind: table}]}, {step: 40, rules: [{kind: rows, rows: [[0, 20]]},"
        " {kind: pretrained_rows, multiplier: 0.5}]}]",
        *LAYOUTS[layout],
    )
    before = run(file, tmp_path / "before", *policy, "train.steps=40")
    assert before.summary["freeze"]["item"]["trainable_rows_touched"] == 0
    assert before.summary["freeze"]["item"]["frozen_rows"] == 20
    after = run(file, tmp_path / "after", *policy)
    assert after.summary["freeze"]["item"]["trainable_rows_touched"] > 30
    first, last = (embexp.load_run(each.directory).table("item") for each in (before, after))
    np.testing.assert_array_equal(first[known(file)], np.load(file))
    changed = (first != last).any(1)
    assert not changed[:20].any()
    assert np.count_nonzero(changed) == after.summary["freeze"]["item"]["trainable_rows_touched"]
    taken = [each["rows_taken"] for each in after.summary["freeze"]["item"]["rules"]]
    assert taken == [ITEMS, 20, np.count_nonzero(known(file) >= 20)]


def test_rules_are_held_against_the_data(file: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tables\.item\.freeze = rows: this rule takes no row of table item: 1 of 1"):
        run(file, tmp_path / "run", "freeze@tables.item.freeze=rows", "tables.item.freeze.tokens=[nothing]")


def test_files_of_rules_are_part_of_what_a_run_is(file: Path, tmp_path: Path) -> None:
    mask = tmp_path / "mask.npy"
    short = ("freeze@tables.item.freeze=rows", f"tables.item.freeze.mask_file={mask}", "train.steps=1")
    ids = []
    for number in range(2):
        np.save(mask, np.arange(ITEMS) < 9 + number)
        result = run(file, tmp_path / f"run{number}", *short)
        assert result.summary["freeze"]["item"]["frozen_rows"] == 9 + number
        ids.append(result.summary["run_id"])
    mask.rename(tmp_path / "other.npy")
    moved = run(file, tmp_path / "moved", *short, f"tables.item.freeze.mask_file={tmp_path / 'other.npy'}")
    assert ids[0] != ids[1] == moved.summary["run_id"]
