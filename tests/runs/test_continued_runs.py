"""Runs that go on from the trained rows of another: in every runtime and layout, and what stays then."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import embexp
from embexp.checkpoints import store
from embexp.cli import commands, run_plan
from embexp.errors import CheckpointError, ConfigError
from embexp.runs import execute
from embexp.runs import run as single
from embexp.runs.prepare import prepare
from embexp.specs.run import RunSpec
from embexp.specs.running import RuntimeKind
from embexp.strategies import strategy as strategies
from embexp.system import terminal
from embexp.vectors.alignment import Alignment
from embexp.vectors.pretrained import earlier
from tests.thoroughness import chosen, left_out

END = "/.ATTRIBUTES/VARIABLE_VALUE"
SLOTS = ("momenta", "velocities")
RULE = ("optimizer=adam", "optimizer.lazy_adam=false", "optimizer.weight_decay_factor=0.01")


class World:
    """Ratings of few items, and of more: what was rated often comes first in a vocabulary, so rows move."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        generator = np.random.default_rng(0)
        self.files = {}
        for name, items in (
            ("first", [f"i{number}" for number in range(20)]),
            ("more", ["n0", "n1", "i19", "i3", "n2", "i7", "i0"]),
        ):
            lines = ["user,item,rating"]
            for rank, item in enumerate(items):
                for _ in range(90 - 3 * rank):
                    lines.append(f"u{generator.integers(9)},{item},{generator.integers(1, 6)}")
            self.files[name] = folder / f"{name}.csv"
            self.files[name].write_text("\n".join(lines) + "\n")

    def spec(self, file: str, *overrides: str) -> RunSpec:
        return embexp.compose(
            [
                "experiment=ratings",
                f"data.path={self.files[file]}",
                "data.label=rating",
                "graph=ratings",
                "model=mlp",
                "model.hidden=[4]",
                "tables.user.dim=4",
                "tables.item.dim=6",
                "dense_optimizer=adam",
                *(() if "optimizer=adagrad" in overrides else RULE),
                "train.epochs=null",
                "train.steps=20",
                "train.batch_size=32",
                "output.plots=false",
                "output.baselines=false",
                "output.tensorboard=false",
                f"output.cache={self.folder / 'cache'}",
                *overrides,
            ]
        )

    def run(self, name: str, file: str, *overrides: str) -> Path:
        directory = self.folder / name
        directory.mkdir()
        single.run(self.spec(file, *overrides), directory)
        return directory


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def first(world: World) -> Path:
    return world.run("first", "first")


def stored(directory: Path) -> dict[str, np.ndarray]:
    """What TensorFlow finds in a checkpoint, by key without its end."""
    reader = tf.train.load_checkpoint(str(directory / "checkpoint"))
    return {key.removesuffix(END): reader.get_tensor(key) for key in reader.get_variable_to_shape_map()}


def final(run: Path) -> dict[str, np.ndarray]:
    return stored(run / "checkpoints" / "final")


def tokens(run: Path, table: str) -> list[str]:
    """The table's rows in words, read without our reader."""
    lines = (run / "vocabularies" / f"{table}.tsv").read_text().splitlines()
    return [line.split("\t")[0] for line in lines[1:]]


def saved_before_the_first_step(spec: RunSpec, kind: RuntimeKind, directory: Path) -> dict[str, np.ndarray]:
    """What a run begins with, as its checkpoint holds it; and again by the readers of its tables."""
    prepared = prepare(spec)
    assert prepared.runtime is kind
    sources = execute.initial_rows(prepared.tables)
    strategy = strategies.build(spec.strategy)
    directory.mkdir()
    with strategy.active():
        training = execute.training_batches(prepared, strategy)
        made = execute.build(prepared, sources, training.element_spec, strategy, directory / "estimator")
        try:
            store.write_by(made.save, directory / "saved")
            values = stored(directory / "saved")
            for name, table in made.tables.items():
                np.testing.assert_array_equal(np.concatenate(list(table.blocks())), values[f"embedding/{name}"])
        finally:
            made.close()
    return values


IN_ONE_PIECE = [("function", "assign"), ("function", "variable_load"), ("session", "assign")]
IN_ONE_PIECE += [("session", "placeholder_feed"), ("session", "scaffold"), ("session", "constant")]
SPARSE_CORES = (
    "tpu_simulator strategy.embedding_feature=V2 strategy.sparse_cores=2 optimizer.weight_decay_factor=0"
    " optimizer.lazy_adam=true"
)
SOME = [("function", "variable_load"), ("session", "scaffold"), ("session", "constant")]


@pytest.mark.parametrize(
    ("runtime", "init", "strategy"),
    [
        *(pytest.param(*pair, "cpu", marks=() if pair in SOME else left_out()) for pair in IN_ONE_PIECE),
        ("function", "assign", "tpu_simulator"),
        ("function", "assign", SPARSE_CORES),
    ],
)
def test_with_the_same_vocabulary_everything_goes_on_from_where_it_was(
    world: World, first: Path, tmp_path: Path, runtime: str, init: str, strategy: str
) -> None:
    earlier = ["pretrained=checkpoint", f"pretrained.path={first}"]
    spec = world.spec("first", *earlier, f"init={init}", f"runtime={runtime}", *f"strategy={strategy}".split())
    begun, before = saved_before_the_first_step(spec, RuntimeKind(runtime), tmp_path / "begun"), final(first)
    assert begun.keys() == before.keys()
    anew = ("step", "_CHECKPOINTABLE_OBJECT_GRAPH")
    for key in before.keys() - set(anew):
        np.testing.assert_array_equal(begun[key], before[key], key)
    assert (begun["step"], before["step"]) == (0, 20)
    assert before["optimizer/_iterations"] == 20


def test_an_estimator_goes_on_too(world: World, first: Path) -> None:
    """It is only seen after a step: with one example, most rows are as they were, and the rest as in a function."""
    one = ("pretrained=checkpoint", f"pretrained.path={first}", "optimizer.lazy_adam=true", "train.steps=1")
    one += ("train.batch_size=1",)
    runs = [
        final(world.run(f"one_{runtime}", "first", *one, f"runtime={runtime}")) for runtime in ("estimator", "function")
    ]
    before = final(first)
    for key in before.keys() - {"_CHECKPOINTABLE_OBJECT_GRAPH"}:
        after, other = (found[key] for found in runs)
        np.testing.assert_allclose(after, other, rtol=1e-5, atol=1e-7, err_msg=key)
        if key.startswith("embedding/"):
            assert np.count_nonzero((after != before[key]).any(1)) <= 1, key
    assert runs[0]["optimizer/_iterations"] == 21


LAYOUTS = {
    ("function", "variable"): [],
    ("function", "split"): ["tables.item.storage=split"],
    ("function", "memory_map"): ["init@tables.item.init=memory_map"],
    ("session", "variable"): ["runtime=session"],
    ("session", "split"): ["runtime=session", "tables.item.storage=split"],
    ("session", "memory_map"): ["runtime=session", "init@tables.item.init=memory_map"],
    ("estimator", "variable"): ["runtime=estimator"],
}
LIKE_OTHERS = [("function", "variable"), ("session", "split"), ("session", "memory_map")]
OLD = ("pretrained=checkpoint", "freeze@tables.item.freeze=old_rows")


def grown(first: Path, second: Path) -> tuple[dict[int, int], list[int]]:
    """Row of the first run by row of the second, and the new rows."""
    were, are = tokens(first, "item"), tokens(second, "item")
    old = {row: were.index(token) for row, token in enumerate(are) if token in were}
    return old, [row for row, token in enumerate(are) if token not in were]


@pytest.mark.parametrize(
    ("layout", "overrides"),
    [
        pytest.param(*each, id="-".join(each[0]), marks=left_out() if each[0] in LIKE_OTHERS else ())
        for each in LAYOUTS.items()
    ],
)
def test_old_rows_stay_and_new_rows_train(
    world: World, first: Path, layout: tuple[str, str], overrides: list[str]
) -> None:
    second = world.run("_".join(layout), "more", *OLD, f"pretrained.path={first}", *overrides)
    before, after = final(first), final(second)
    old, new = grown(first, second)
    assert len(old) == 5  # <oov> and four items
    assert len(new) == 3
    assert sorted(old) != sorted(old.values())  # they moved, or this would show nothing
    item = "embedding/item"
    np.testing.assert_array_equal(after[item][list(old)], before[item][list(old.values())])
    moments = {slot: after[f"{item}.S{slot}"] for slot in SLOTS}
    for slot, values in moments.items():
        kept = before[f"{item}.S{slot}"][list(old.values())] if layout[1] == "variable" else 0
        np.testing.assert_array_equal(values[list(old)], np.broadcast_to(kept, (5, 6)), slot)
        assert (values[new] != 0).all()
    summary = json.loads((second / "summary.json").read_text())
    assert summary["freeze"]["item"]["frozen_rows"] == 5
    assert summary["freeze"]["item"]["frozen_rows_changed"] == 0
    assert summary["freeze"]["item"]["trainable_rows_touched"] == 3
    assert summary["tables"]["item"]["storage"] == layout[1]
    other = embexp.load_run(second).table("item")
    np.testing.assert_array_equal(other, after[item])
    # Users are not frozen: their rows went on.
    users, now = tokens(first, "user"), tokens(second, "user")
    assert set(now) <= set(users)
    assert (after["embedding/user"] != before["embedding/user"][[users.index(token) for token in now]]).any()


def test_slots_go_on_with_their_rows_and_those_of_new_rows_begin(world: World, first: Path) -> None:
    """After a step of Adam, m' = 0.9 m + 0.1 g and v' = 0.999 v + 0.001 g^2 tell the same |g|."""
    second = world.run("one_step", "more", *OLD, f"pretrained.path={first}", "train.steps=1")
    before, after = final(first), final(second)
    slots = [f"embedding/{{}}.S{slot}" for slot in SLOTS]
    _, new = grown(first, second)
    users = tokens(first, "user")
    place = [users.index(token) for token in tokens(second, "user")]
    for table, were, are in (("item", None, new), ("user", place, list(range(len(place))))):
        m, v = (after[key.format(table)][are].astype(np.float64) for key in slots)
        m0, v0 = (0.0 if were is None else before[key.format(table)][were].astype(np.float64) for key in slots)
        g = (m - 0.9 * m0) / 0.1
        assert np.count_nonzero(np.abs(g).max(1) > 1e-4) > len(are) / 2
        np.testing.assert_allclose(g**2, (v - 0.999 * v0) / 0.001, rtol=1e-2, atol=1e-3 * (g**2).max())


def test_schedules_begin_again(world: World) -> None:
    """The dense optimizer goes on counting, for its bias correction, but not its learning rate."""
    cosine = ("schedule@dense_optimizer.schedule=cosine",)
    ended = world.run("ended", "first", *cosine)
    again = world.run("again", "first", *cosine, "pretrained=checkpoint", f"pretrained.path={ended}")
    weights = "optimizer/_trainable_variables/0"
    moved = np.abs(final(again)[weights] - final(ended)[weights]).max()
    assert moved > np.abs(final(ended)[weights]).max() / 1000
    assert final(again)["optimizer/_iterations"] == 40


def test_matching_by_position_would_be_seen(world: World, first: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = earlier.aligned_with

    def by_position(vocabulary: object, rows: int, earlier: object, earlier_rows: int, how: object) -> Alignment:
        found = right(vocabulary, rows, earlier, earlier_rows, how)  # type: ignore[arg-type]
        return Alignment(np.where(found.file_rows >= 0, np.arange(rows), -1), found.kinds, found.by)

    monkeypatch.setattr(earlier, "aligned_with", by_position)
    with pytest.raises(AssertionError, match="Arrays are not equal"):
        test_old_rows_stay_and_new_rows_train(world, first, ("by", "position"), [])


def test_rows_that_were_new_in_a_grown_checkpoint_train(world: World, first: Path, tmp_path: Path) -> None:
    (tmp_path / "new.txt").write_text("\n".join(["n1", *tokens(first, "item")[1:], "n0", "n2"]))
    words = ["checkpoint", "grow", str(first), "--vocabulary", f"item={tmp_path / 'new.txt'}", "--missing", "zeros"]
    assert commands.main([*words, "--out", str(tmp_path / "grown")]) == 0
    second = world.run(
        "grown", "more", *OLD, f"pretrained.path={tmp_path / 'grown'}", "init@tables.item.init=memory_map"
    )
    old, new = grown(first, second)
    before, after = final(first)["embedding/item"], final(second)["embedding/item"]
    np.testing.assert_array_equal(after[list(old)], before[list(old.values())])
    assert (after[new] != 0).all()
    coverage = json.loads((second / "coverage.json").read_text())["tables"]["item"]
    assert (coverage["rows_pretrained"], coverage["rows_missing"], coverage["rows_old"]) == (8, 0, 5)


def test_pretrained_rows_are_all_that_the_checkpoint_has(
    world: World, first: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    second = world.run(
        "pretrained_rows", "more", "pretrained=checkpoint", f"pretrained.path={first}", "freeze=pretrained_rows"
    )
    summary = json.loads((second / "summary.json").read_text())
    assert summary["freeze"]["item"]["frozen_rows"] == 5
    # Of 20 items and the OOV row, five are among the eight rows here.
    found, before = summary["initialization"]["tables"], len(embexp.load_run(first).vocabulary("item").tokens())
    assert before == 21
    item = {"rows_pretrained": 5, "rows_missing": 3, "rows_dropped": before - 5}
    assert {name: found["item"][name] for name in item} == item
    assert found["user"]["rows_dropped"] == 0
    assert json.loads((second / "coverage.json").read_text())["tables"]["item"]["rows_dropped"] == before - 5
    dropped = f"16 of the 21 rows of {first} are dropped: their tokens are not in this run's vocabulary"
    assert f"tables.item, tables.item_bias: {dropped}" in summary["warnings"]
    spec = world.spec("more", "pretrained=checkpoint", f"pretrained.path={first}")
    run_plan.show(spec, terminal.console(), scan=True, trace=False)
    shown = capsys.readouterr().out
    assert f"tables.item, tables.item_bias: {dropped}" in " ".join(shown.split())
    [heading] = [line for line in shown.splitlines() if line.startswith("pretrained ") and "rows" in line]
    [row] = [line for line in shown.splitlines() if line.startswith("item ") and "%" in line]
    assert heading.split("  ")[0] == "pretrained"
    assert ("rows kept" in heading, "rows new" in heading, "rows dropped" in heading) == (True, True, True)
    assert row.split()[1:5] == ["5", "(62.5%)", "3", "16"]


def test_another_table_and_another_optimizer(world: World, first: Path) -> None:
    second = world.run(
        "other",
        "more",
        "optimizer=adagrad",
        "optimizer.learning_rate=0.1",
        "dense_optimizer=sgd",
        "pretrained=checkpoint",
        f"pretrained.path={first}",
        "pretrained@tables.user.pretrained=none",
        "freeze@tables.item.freeze=old_rows",
    )
    summary = json.loads((second / "summary.json").read_text())
    # Of so few ratings it may learn nothing.
    assert [line for line in summary["warnings"] if "constant" not in line] == [
        "tables.item, tables.user_bias, tables.item_bias: the checkpoint's optimizer is adam: its slots momenta,"
        " velocities are ignored; those of adagrad, accumulators, start from their initial values",
        f"tables.item, tables.item_bias: 16 of the 21 rows of {first} are dropped: their tokens are not in this"
        " run's vocabulary",
        "dense_optimizer: starts afresh because the checkpoint's slots belong to another kind of optimizer",
    ]
    old, _ = grown(first, second)
    np.testing.assert_array_equal(final(second)["embedding/item.Saccumulators"][list(old)], np.float32(1e-7))
    own = world.run(
        "own",
        "first",
        "tables.user.dim=6",
        "pretrained@tables.item.pretrained=checkpoint",
        f"tables.item.pretrained.path={first}",
        "freeze@tables.item.freeze=table",
    )
    assert "embedding/item" not in final(own)  # recorded by its path
    np.testing.assert_array_equal(embexp.load_run(own).table("item"), final(first)["embedding/item"])


def test_a_table_that_was_kept_in_its_file_is_found_there(world: World, tmp_path: Path) -> None:
    vectors = tmp_path / "items.vec"
    values = np.random.default_rng(1).normal(size=(20, 6)).astype(np.float32)
    rows = [" ".join([f"i{number}", *map(repr, map(float, row))]) for number, row in enumerate(values)]
    vectors.write_text("20 6\n" + "\n".join(rows) + "\n")
    frozen = ("pretrained@tables.item.pretrained=file", f"tables.item.pretrained.path={vectors}")
    before = world.run("by_reference", "first", *frozen, "freeze@tables.item.freeze=table")
    assert "embedding/item" not in final(before)
    second = world.run("after_reference", "more", *OLD, f"pretrained.path={before}")
    found = embexp.load_run(second).table("item")
    for row, token in enumerate(tokens(second, "item")):
        if token.startswith("i"):
            np.testing.assert_array_equal(found[row], values[int(token[1:])], token)
    [warning] = [each for each in json.loads((second / "summary.json").read_text())["warnings"] if "slots" in each]
    assert "the checkpoint has no slots momenta, velocities (the table was frozen)" in warning
    new = tmp_path / "new.txt"
    new.write_text("i5\nn0\ni1\n")
    assert (
        commands.main(["checkpoint", "grow", str(before), "--vocabulary", f"item={new}", "--out", f"{new}.grown"]) == 0
    )
    reader = tf.train.load_checkpoint(f"{new}.grown/checkpoints/final/checkpoint")
    np.testing.assert_array_equal(reader.get_tensor(f"embedding/item{END}")[[1, 3]], values[[5, 1]])
    vectors.write_text(vectors.read_text().replace("i3", "i333"))
    with pytest.raises(embexp.RunError, match=r"items\.vec has changed since the run"):
        world.run("changed", "more", *OLD, f"pretrained.path={before}")


@pytest.mark.parametrize("runtime", chosen(["function", "session", "estimator"], ["function"]))
def test_a_dense_part_that_does_not_fit_is_told_before_training(world: World, first: Path, runtime: str) -> None:
    wide = ("model.hidden=[5]", "pretrained=checkpoint", f"pretrained.path={first}", f"runtime={runtime}")
    with pytest.raises(CheckpointError) as error:
        world.run(f"misfit_{runtime}", "more", *wide)
    assert "the dense part of" in str(error.value)
    for words in (r"kernel is (12, 5) and was (12, 4)", "bias is (5,) and was (4,)", "kernel is (5, 1) and was (4, 1)"):
        assert words in str(error.value)
    assert "set pretrained.dense=false to start with a new dense part" in str(error.value)
    for file in ("summary.json", "metrics.jsonl"):
        lines = world.folder / f"misfit_{runtime}" / file
        assert not lines.exists() or not lines.read_text()
    world.run(f"fits_{runtime}", "more", *wide, "pretrained.dense=false", "train.steps=1")


def test_a_dim_that_is_left_open_is_that_of_the_checkpoint(world: World, first: Path) -> None:
    run = world.run("open", "more", "tables.item.dim=null", "train.steps=1", *OLD, f"pretrained.path={first}")
    assert embexp.load_run(run).table("item").shape == (8, 6)


def test_the_digest_of_the_source_is_part_of_the_run_id(world: World, first: Path) -> None:
    copy = shutil.copytree(first, world.folder / "copy")
    other = world.run("other_first", "first", "seed=1", "train.steps=1")
    ids = [
        prepare(world.spec("more", *OLD, f"pretrained.path={path}", "train.steps=1")).run_id
        for path in (first, copy, other)
    ]
    assert ids[0] == ids[1] != ids[2]


FAULTS = {
    "old rows of no checkpoint": (
        ["freeze=old_rows"],
        "freeze = old_rows: it freezes rows from a checkpoint, but no table that inherits it restores any",
    ),
    "a table's old rows of no checkpoint": (
        ["freeze@tables.item.freeze=old_rows"],
        "tables.item.freeze = old_rows: it freezes rows from a checkpoint, but the table restores none",
    ),
    "a rule of old rows": (
        ["freeze=schedule", "freeze.phases=[{rules: [{kind: old_rows, multiplier: 0.5}]}]"],
        "freeze.phases.0.rules.0 = old_rows: it freezes rows from a checkpoint",
    ),
    "no directory": (
        ["pretrained=checkpoint", "pretrained.path=nowhere"],
        "there is no such directory; give the directory of a finished run, or of a grown checkpoint",
    ),
    "a table for all": (
        ["pretrained=checkpoint", "pretrained.path=FIRST", "pretrained.table=item"],
        "pretrained.table = 'item': each table restores the rows of the table with the same name",
    ),
    "no such table": (
        [
            "pretrained@tables.item.pretrained=checkpoint",
            "tables.item.pretrained.path=FIRST",
            "tables.item.pretrained.table=film",
        ],
        "the checkpoint has no table 'film'; its tables are user, item",
    ),
    "another dim": (
        ["pretrained@tables.item.pretrained=checkpoint", "tables.item.pretrained.path=FIRST", "tables.item.dim=5"],
        "rows of its table 'item' have 6 numbers, but those of the table have 5",
    ),
    "two dense parts": (
        [
            "pretrained=checkpoint",
            "pretrained.path=FIRST",
            "pretrained@tables.item.pretrained=checkpoint",
            "tables.item.pretrained.path=SECOND",
            "tables.item.pretrained.dense=true",
        ],
        "tables.item.pretrained.dense = true: the dense part is restored from one checkpoint only, but pretrained",
    ),
}


@pytest.mark.parametrize(("overrides", "words"), FAULTS.values(), ids=FAULTS)
def test_faults(world: World, first: Path, overrides: list[str], words: str) -> None:
    second = world.folder / "second"
    if not second.exists():
        second.symlink_to(first)
    named = [each.replace("FIRST", str(first)).replace("SECOND", str(second)) for each in overrides]
    with pytest.raises(ConfigError) as error:
        world.spec("more", *named)
    assert words in str(error.value)
