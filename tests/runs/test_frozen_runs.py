"""Runs with frozen rows: in every layout and runtime no frozen bit changes, and layouts end with the same bits."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given

import embexp
from embexp.config import validate
from embexp.errors import ConfigError
from embexp.runs import execute
from embexp.runs import execute as planned
from embexp.runs import run as single
from embexp.runs.prepare import prepare
from embexp.specs.optimizers import slots_of
from embexp.specs.run import RunSpec, rule_faults
from embexp.system import digests
from embexp.tables import row_engine
from embexp.tables.optimizers import Moving, RowGroups
from embexp.training.models import build_model as build
from tests import checkpoint_values, exact_training, random_graphs
from tests.exact_rules import Values
from tests.exact_training import Looked
from tests.random_graphs import Graph
from tests.thoroughness import examples

ITEMS, DIM, STEPS = 80, 16, 60
LAYOUTS = {
    "variable": ["tables.item.storage=variable"],
    "split": ["tables.item.storage=split"],
    "memory_map": ["init@tables.item.init=memory_map"],
}
PAIRS = [*(("function", layout) for layout in LAYOUTS), ("session", "memory_map"), ("estimator", "variable")]
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
            "output.baselines=false",
            "output.tensorboard=false",
            f"output.cache={file.parent / 'cache'}",
            "pretrained@tables.item.pretrained=file",
            f"tables.item.pretrained.path={file}",
            *overrides,
        ]
    )


def run(file: Path, directory: Path, *overrides: str) -> single.RunResult:
    directory.mkdir()
    return single.run(spec_of(file, *overrides), directory)


def losses(result: single.RunResult) -> np.ndarray:
    lines = [json.loads(line) for line in (result.directory / "metrics.jsonl").read_text().splitlines()]
    return np.array([line["loss"] for line in lines if line["event"] == "log"])


@pytest.fixture(scope="module")
def result_of(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], single.RunResult]:
    """Runs in a runtime and a layout, once."""
    folder = tmp_path_factory.mktemp("runs")

    @functools.cache
    def result_of(runtime: str, layout: str) -> single.RunResult:
        return run(file, folder / f"{runtime}_{layout}", f"runtime={runtime}", *LAYOUTS[layout], *RULE, *FROZEN)

    return result_of


@pytest.mark.slow
@pytest.mark.parametrize(("runtime", "layout"), PAIRS)
def test_frozen_rows_in_every_layout_and_runtime(
    file: Path, result_of: Callable[[str, str], single.RunResult], runtime: str, layout: str
) -> None:
    result, reference = result_of(runtime, layout), result_of("function", "variable")
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
    for name in ("item", "user") if runtime == "function" else ():
        assert result.summary["tables"][name]["digest"] == reference.summary["tables"][name]["digest"]
    np.testing.assert_allclose(losses(result), losses(reference), rtol=1e-3)
    # The checkpoint is that of a whole table, whatever the layout.
    finished, matrix, rows = embexp.load_run(result.directory), np.load(file), known(file)
    np.testing.assert_array_equal(finished.table("item")[rows].view(np.uint32), matrix.view(np.uint32))
    assert finished.evaluate() == pytest.approx(result.summary["metrics"]["test"], rel=1e-5)


WHOLE = {
    "by its rules": ["freeze@tables.item.freeze=schedule", "tables.item.freeze.phases=[{rules: [{kind: table}]}]"],
    "by reference": ["freeze@tables.item.freeze=table"],
    "with a table for which the file has nothing": ["model=mlp", "tables.user.dim=8", "freeze=table"],
}


@pytest.mark.parametrize("overrides", WHOLE.values(), ids=WHOLE)
def test_tables_that_are_frozen_whole_are_read_back(file: Path, tmp_path: Path, overrides: list[str]) -> None:
    """From their file where checkpoints do without them, and else from the checkpoint."""
    spec = spec_of(file, *overrides, "train.steps=3")
    if "freeze=table" in overrides:  # the file is meant for both tables, and fits one
        item = spec.tables["item"]
        inherits = {**spec.tables, "item": item.model_copy(update={"pretrained": None})}
        spec = spec.model_copy(update={"pretrained": item.pretrained, "tables": inherits})
    result = single.run(spec, tmp_path)
    found = embexp.load_run(result.directory)
    assert result.summary["freeze"]["item"]["trainable_rows"] == 0
    for name, table in result.summary["tables"].items():
        assert digests.of_rows([found.table(name)]) == table["digest"]
    assert found.evaluate() == pytest.approx(result.summary["metrics"]["test"], rel=1e-5)


@pytest.mark.slow
@examples(1)
@given(graph=random_graphs.graphs())
def test_any_graph_in_every_layout(graph: Graph, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Whole runs against definitions: frozen bits stay, layouts end alike, all else is where float64 ends."""
    folder = tmp_path_factory.mktemp("graph")
    graph.write(folder)
    done: dict[tuple[str, ...], tuple[single.RunResult, dict[str, Values]]] = {}
    for layout in LAYOUTS if graph.runtime != "estimator" else ["variable"]:
        kept = tuple(graph.storage(name, layout) for name in graph.tables)
        if kept not in done:
            (folder / layout).mkdir()
            result = single.run(checked(graph.container(folder, layout)), folder / layout)
            assert tuple(table["storage"] for table in result.summary["tables"].values()) == kept
            done[kept] = result, checkpoint_values.tables(result.directory / "checkpoints" / "final")
    (reference, values), *_ = done.values()
    spec = embexp.load_run(reference.directory).spec
    first = first_rows(graph, spec)
    right = in_float64(graph, spec, first)
    for name, start in first.items():
        still, lies_in_file = graph.still(name), graph.lies_in_file(name)
        slots = {} if still.all() else slots_of(spec.optimizer_of(name))
        assert set(values.get(name, {})) == (set() if lies_in_file else {None, *slots})
        for result, found in done.values():
            summary = result.summary["freeze"][name]
            assert (summary["frozen_rows"], summary["frozen_rows_changed"]) == (np.count_nonzero(still), 0)
            assert summary["trainable_rows_touched"] == np.count_nonzero(right.met[name])
            digest = digests.of_rows([start if lies_in_file else values[name][None]])
            assert result.summary["tables"][name]["digest"] == digest
            for slot, value in found.get(name, {}).items():
                np.testing.assert_array_equal(bits(value), bits(values[name][slot]))
        for slot, value in values.get(name, {}).items():
            before = start if slot is None else np.full_like(start, slots[slot])
            np.testing.assert_array_equal(bits(value[still]), bits(before[still]))
        if slots or not still.all():
            for slot, error in right.tables[name].errors(values[name], sums=True).items():
                assert (error <= 1).all(), (name, slot, error.max())
    np.testing.assert_allclose(losses(reference), right.losses, rtol=1e-4)


def bits(values: np.ndarray) -> np.ndarray:
    return values.view(np.uint32)


def checked(container: dict[str, Any]) -> RunSpec:
    spec, faults = validate.validate(container)
    assert spec is not None, faults
    assert rule_faults(spec) == []
    return spec


def first_rows(graph: Graph, spec: RunSpec) -> dict[str, np.ndarray]:
    """Values before the first step: of a file's tokens its rows, of others what the package draws."""
    prepared = prepare(spec)
    tables, vocabularies = prepared.tables, prepared.data.vocabularies
    found = {}
    for name, source in planned.initial_rows(tables).items():
        tokens = graph.vocabularies[name]
        assert vocabularies[name].tokens()[1:] == [token for token in tokens if token is not None]
        rows = found[name] = source.read(0, tables.rows[name])
        assert len(rows) == len(tokens)
        of_file = dict(zip(*graph.files.get(name, ([], [])), strict=True))
        for row in np.flatnonzero(graph.of_file(name)):
            assert rows[row].tobytes() == of_file[tokens[row]].tobytes()
    return found


def in_float64(graph: Graph, spec: RunSpec, first: dict[str, np.ndarray]) -> exact_training.Exact:
    looked = {
        name: Looked(feature.table, spec.tables[feature.table].combiner, feature.max_sequence_length)
        for name, feature in spec.features.items()
    }
    model = build(
        spec.model,
        shapes={name: each.activation_shape(spec.tables[each.table].width) for name, each in spec.features.items()},
        dense_width=graph.dense.shape[1],
        output_bias=execute.output_bias(spec.task, float(graph.labels[: random_graphs.TRAIN].mean(dtype=np.float64))),
        seed=spec.seed,
    )
    kernel, bias = (weight.numpy() for weight in model.trainable_weights)
    return exact_training.train(
        graph.batches(),
        looked,
        {name: spec.optimizer_of(name) for name in spec.tables},
        first,
        kernel,
        bias,
        rate=random_graphs.RATE,
        factors=graph.factors,
        clicks=spec.task == "binary",
    )


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
def test_rows_thaw_by_schedule(file: Path, tmp_path: Path) -> None:
    policy = (
        "freeze@tables.item.freeze=schedule",
        "tables.item.freeze.phases=[{rules: [{kind: table}]}, {step: 40, rules: [{kind: rows, rows: [[0, 20]]},"
        " {kind: pretrained_rows, multiplier: 0.5}]}]",
        *LAYOUTS["split"],
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
    with pytest.raises(
        ConfigError, match=r"tables\.item\.freeze = rows: this rule matches no row of table " r"item: 1 of 1"
    ):
        run(file, tmp_path / "run", "freeze@tables.item.freeze=rows", "tables.item.freeze.tokens=[nothing]")


def test_files_of_rules_are_part_of_what_a_run_is(file: Path, tmp_path: Path) -> None:
    mask = tmp_path / "mask.npy"
    short = ("freeze@tables.item.freeze=rows", f"tables.item.freeze.mask_file={mask}")
    ids = []
    for number in range(2):
        np.save(mask, np.arange(ITEMS) < 9 + number)
        prepared = prepare(spec_of(file, *short))
        assert prepared.tables.policies["item"].frozen_rows == 9 + number
        ids.append(prepared.run_id)
    mask.rename(tmp_path / "other.npy")
    moved = prepare(spec_of(file, *short, f"tables.item.freeze.mask_file={tmp_path / 'other.npy'}"))
    assert ids[0] != ids[1] == moved.run_id
