"""`embexp plan`: bytes, inheritance, what has no effect, the jobs of a sweep."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from embexp.cli import commands
from embexp.config import composition
from embexp.specs.run import inert_settings
from embexp.system import terminal


def plan(capsys: pytest.CaptureFixture[str], *words: str) -> list[list[str]]:
    """The lines, each as its words."""
    assert commands.main(["plan", *words]) == 0
    return [line.split() for line in capsys.readouterr().out.splitlines()]


def row(lines: list[list[str]], name: str) -> list[str]:
    return next(line for line in lines if line and line[0] == name)


@pytest.mark.parametrize(
    ("optimizer", "slots"),
    [("sgd", 0), ("rowwise_adagrad", 1 / 16), ("adagrad", 1), ("adagrad_momentum", 2), ("adam", 2), ("ftrl", 2)],
)
def test_bytes(optimizer: str, slots: float, capsys: pytest.CaptureFixture[str]) -> None:
    words = [f"optimizer={optimizer}", "data.items=1000", "tables.user.vocabulary_size=1000000"]
    lines = plan(capsys, *words, "tables.item.dim=16")
    slot_words = {0: ["0", "B"], 1 / 16: ["4", "MB"], 1: ["64", "MB"], 2: ["128", "MB"]}[slots]
    assert row(lines, "user")[:7] == ["user", "1,000,000", "16", "64", "MB", *slot_words]
    assert row(lines, "item")[:5] == ["item", "1,000", "16", "64", "kB"]
    assert row(lines, "all")[1:3] == ["64.1", "MB"]


def test_own_settings_are_told_from_inherited_ones(capsys: pytest.CaptureFixture[str]) -> None:
    lines = plan(capsys, "optimizer=adagrad", "optimizer@tables.item.optimizer=ftrl", "init@tables.item.init=assign")
    assert row(lines, "item")[-6:] == ["ftrl", "0.001", "optimizer", "ftrl,", "init", "assign"]
    assert row(lines, "user")[-2:] == ["adagrad", "0.05"]
    assert " ".join(row(lines, "tables")).endswith("freeze none, unless a table has its own")
    assert row(plan(capsys, "optimizer=adagrad"), "tables")[-2:] == ["freeze", "none"]


def test_rows_of_16_bits_take_half_the_bytes_and_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["tables.user.vocabulary_size=1000000", "tables.user.dim=64", "tables.item.dim=64"]
    sizes.append("tables.user.dtype=bfloat16")
    lines = plan(capsys, "data.items=1000", *sizes, "optimizer=rowwise_adagrad")
    assert row(lines, "user")[3:7] == ["128", "MB", "4", "MB"]
    assert row(lines, "user")[-2:] == ["dtype", "bfloat16"]
    lines = plan(capsys, "data.items=1000", *sizes, "optimizer=adagrad", "tables.user.slot_dtype=float16")
    assert row(lines, "user")[3:7] == ["128", "MB", "128", "MB"]
    assert row(lines, "user")[-4:] == ["dtype", "bfloat16,", "slot_dtype", "float16"]


def test_frozen_tables_have_no_slots(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["optimizer=adam", "data.items=1000", "freeze@tables.item.freeze=table", "tables.user.vocabulary_size=2000"]
    lines = plan(capsys, *words, "optimizer.lazy_adam=false")
    assert row(lines, "item")[3:-2] == ["64", "kB", "0", "B", "64", "kB", "assign", "table", "mean"]
    assert row(lines, "user")[3:11] == ["128", "kB", "256", "kB", "0", "B", "assign", "none"]
    assert row(lines, "all")[1:7] == ["192", "kB", "256", "kB", "64", "kB"]
    assert [line[1] for line in lines if line[:1] == ["O(vocabulary):"]] == ["tables.user:"]


def test_runtime_and_ways_in_as_they_will_be(capsys: pytest.CaptureFixture[str]) -> None:
    lines = plan(capsys, "init@tables.item.init=placeholder_feed", "init=variable_load")
    assert ["where", "strategy", "cpu,", "runtime", "session", "(auto)"] in lines
    assert "placeholder_feed" in row(lines, "item")
    assert "variable_load" in row(lines, "user")
    assert ["where", "strategy", "cpu,", "runtime", "estimator"] in plan(capsys, "runtime=estimator")


def test_sizes_of_a_table_that_takes_its_dim_from_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = plan(capsys, "experiment=initialization")
    assert row(lines, "item")[:5] == ["item", "1,000", "1000", "4", "MB"]
    assert ["item", "item", "item", "[B,", "1000]"] in lines
    np.save(tmp_path / "mine.npy", np.zeros((12, 7)))
    lines = plan(capsys, "experiment=initialization", f"pretrained.path={tmp_path}/mine.npy")
    assert row(lines, "item")[:5] == ["item", "12", "7", "336", "B"]
    (tmp_path / "mine.txt").write_text("".join(f"{n} 1 2 3\n" for n in range(10)))
    words = ["experiment=initialization", f"pretrained.path={tmp_path}/mine.txt", f"output.cache={tmp_path}/c"]
    lines = plan(capsys, *words)
    assert row(lines, "item")[:7] == ["item", "10", "from", "the", "file", "from", "the"]
    assert ["item", "item", "item", "[B,", "dim]"] in lines
    lines = plan(capsys, *words, "--scan")
    assert row(lines, "item")[:5] == ["item", "10", "3", "120", "B"]


def test_impossible_jobs_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    lines = plan(capsys, "-m", "init=scaffold,assign", "runtime=function,session")
    skipped = [line for line in lines if "skipped:" in line]
    assert [" ".join(line) for line in skipped] == [
        "0 scaffold function skipped: init=scaffold: it works only in runtime session or estimator, but the "
        "runtime is function"
    ]
    assert ["3", "of", "4", "jobs", "would", "run;", "the", "first:"] in lines
    assert commands.main(["plan", "init=scaffold", "runtime=function"]) == 2


def test_what_only_the_data_tells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "r.csv").write_text("user,item,rating\n" + "".join(f"u{n % 3},i{n % 5},{n % 2}\n" for n in range(60)))
    words = ["experiment=ratings", f"data.path={tmp_path}/r.csv", "data.label=rating", f"output.cache={tmp_path}/c"]
    lines = plan(capsys, *words)
    assert row(lines, "user")[1:6] == ["from", "the", "data", "32", "128"]
    assert row(lines, "user_bias")[5:7] == ["4", "B/row"]
    assert not (tmp_path / "c").exists()
    lines = plan(capsys, *words, "--scan")
    assert row(lines, "user")[1:3] == ["4", "32"]  # three users and the row of unknown ones
    assert row(lines, "item_bias")[1:3] == ["6", "1"]


def test_features_and_their_shapes(capsys: pytest.CaptureFixture[str]) -> None:
    lines = plan(capsys, "features.history.max_sequence_length=4", "model=mlp")
    history = next(line for line in lines if line and line[0] == "history")
    assert history == ["history", "item", "history", "[B,", "4,", "16]"]


def test_cost_of_the_vocabulary_is_marked(capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main(["plan", "optimizer=adam", "optimizer.lazy_adam=false"]) == 0
    assert (
        "O(vocabulary): tables.user, tables.item: adam with lazy_adam=false updates every row"
        in capsys.readouterr().out
    )


@pytest.mark.parametrize(
    ("overrides", "note"),
    [
        (["model=dlrm"], "model.bottom: there are no dense features"),
        (["model=dcn_v2"], "model.rank: with 48 inputs, a full matrix has no more weights"),
        (["model=dcn_v2", "model.hidden=[]"], "model.structure: there are no hidden layers"),
        (
            ["optimizer@tables.item.optimizer=sgd", "optimizer@tables.user.optimizer=sgd"],
            "optimizer: every table has its own setting",
        ),
        (
            ["optimizer.multiply_weight_decay_factor_by_learning_rate=true"],
            "optimizer.multiply_weight_decay_factor_by_learning_rate: weight_decay_factor is 0",
        ),
        (
            ["optimizer@tables.item.optimizer=adagrad_momentum", "tables.item.optimizer.use_nesterov=true"],
            "tables.item.optimizer.use_nesterov: momentum is 0",
        ),
        (
            ["train.early_stopping.metric=auc"],
            "train.early_stopping.metric: patience is null, so nothing stops early",
        ),
        (
            ["init=memory_map", "pretrained=sample", "pretrained.dim=16", "freeze@tables.item.freeze=table"],
            "init memory_map on tables.user: not frozen or not pretrained, so their rows are assigned",
        ),
        (
            ["freeze@tables.item.freeze=table", "optimizer@tables.item.optimizer=sgd"],
            "tables.item.optimizer: the table is frozen",
        ),
        (["freeze=table"], "optimizer: every table is frozen"),
        (
            ["strategy=tpu_simulator", "train.evaluation_batch_size=512"],
            "train.evaluation_batch_size: strategy tpu_simulator requires batches of one size, so evaluations use"
            " train.batch_size (1,024)",
        ),
        (
            ["features.user.output_shape=[1024]", "train.evaluation_batch_size=512"],
            "train.evaluation_batch_size: an output_shape sets the batch size, so evaluations use"
            " train.batch_size (1,024)",
        ),
        (
            ["train.early_stopping.min_delta=0.1"],
            "train.early_stopping.min_delta: patience is null, so nothing stops early",
        ),
    ],
)
def test_inert_settings(overrides: list[str], note: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert note in inert_settings(composition.compose(overrides))
    assert note not in inert_settings(composition.compose(["model=mlp"]))
    assert commands.main(["plan", *overrides]) == 0
    assert f"no effect: {note}" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words", [["strategy=cpu"], ["strategy=tpu", "train.evaluation_batch_size=1024"], ["strategy=tpu"]]
)
def test_a_batch_size_that_holds_or_that_nobody_set(words: list[str]) -> None:
    assert not [note for note in inert_settings(composition.compose(words)) if "evaluation_batch_size" in note]


def test_jobs_and_doubles_of_a_sweep(capsys: pytest.CaptureFixture[str]) -> None:
    lines = plan(capsys, "-m", "seed=0,1,0", "optimizer=sgd,adam")
    assert ["0", "0", "sgd"] in lines
    assert ["3", "1", "adam"] in lines
    assert ["4", "0", "sgd", "duplicate", "of", "job", "0,", "not", "run", "again"] in lines
    assert ["4", "of", "6", "jobs", "would", "run;", "the", "first:"] in lines


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (3_072_000_000, "3.07 GB")])
def test_sizes(count: int, text: str) -> None:
    assert terminal.byte_size(count) == text


def test_faults_are_those_of_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main(["plan", "tables.item.dim=0"]) == 2
    assert "tables.item.dim = 0: it must be at least 1" in capsys.readouterr().err


def test_what_each_rule_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "data.examples=500",
        "data.users=100",
        f"output.cache={tmp_path}",
        "optimizer=adam",
        "freeze@tables.user.freeze=schedule",
        "tables.user.freeze.phases=[{rules: [{kind: rows, rows: [[0,90]]}]}, {step: 7, rules: [{kind: rows,"
        " rows: [[0,30]], tokens: ['31','x']}, {kind: table, multiplier: 0.5}]}]",
        "tables.user.dim=1000",
        "model=mlp",
        "model.hidden=[8]",
    ]
    assert commands.main(["plan", *words]) == 0
    assert "`embexp plan --scan` shows which rows of user are frozen" in capsys.readouterr().out
    assert commands.main(["plan", "--scan", *words, "tables.user.storage=split"]) == 0
    shown = capsys.readouterr().out
    assert "freeze: tables.user: rows covers 90 of 100 rows\n" in shown
    assert (
        "freeze: tables.user: rows covers 31 of 100 rows from step 7; 1 of 2 tokens are not in the vocabulary ('x')\n"
        "freeze: tables.user: table covers 69 of 100 rows from step 7 (learning rate × 0.5)\n"
        "layout: tables.user: split, 69 of 100 rows are trainable\n"
    ) in shown
    user = row([line.split() for line in shown.splitlines()], "user")
    assert user[3:9] == ["400", "kB", "552", "kB", "124", "kB"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["freeze@tables.user.freeze=rows", "tables.user.freeze.tokens=[x,y]"],
            "tables.user.freeze = rows: this rule matches no row of table user: 2 of 2 tokens are not in the "
            "vocabulary",
        ),
        (
            ["freeze=rows", "freeze.rows=[[1000,1001]]"],
            "freeze = rows: this rule matches no row of the tables user, item: [1000, 1001] goes beyond",
        ),
        (
            ["freeze=schedule", "freeze.phases=[{rules: [{kind: table}, {kind: rows, rows: [[0,1]]}]}]"],
            "freeze.phases.0.rules.1 = rows: this rule matches no row of the tables user, item: earlier rules "
            "match all",
        ),
        (
            ["freeze@tables.user.freeze=rows", "tables.user.freeze.rows=[[0,100]]", "tables.user.storage=split"],
            "tables.user.storage = 'split': a split table needs both rows that never move and rows that may, "
            "but 100 of",
        ),
        (
            ["freeze=schedule", "freeze.phases=[{}, {step: 9}, {epoch: 0.5}]"],
            "freeze = schedule: phase 2 begins at step 0, but the one before it begins at step 9",
        ),
    ],
)
def test_rules_that_take_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    small = ["data.examples=500", "data.users=100", f"output.cache={tmp_path}"]
    assert commands.main(["plan", "--scan", *small, *words]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (
            [],
            "object-based checkpoints, as often as possible at under 2% of the run time, keeping the newest 2, and at"
            " the end",
        ),
        (["checkpoint.save=never"], "no checkpoint"),
        (["checkpoint.save=end", "checkpoint.kind=name"], "name-based checkpoints at the end"),
        (
            ["checkpoint.every_steps=1000", "checkpoint.keep=null", "checkpoint.incremental=4"],
            "object-based checkpoints every 1,000 steps, keeping all, and at the end, a whole one every 4",
        ),
        (
            ["checkpoint.every_minutes=5", "checkpoint.keep_best=true"],
            "object-based checkpoints every 5 minutes, keeping the newest 2, and at the end, and the checkpoint of the"
            " best evaluation",
        ),
    ],
)
def test_says_what_is_saved(capsys: pytest.CaptureFixture[str], overrides: list[str], words: str) -> None:
    assert ["saving", *words.split()] in plan(capsys, *overrides)


def test_says_what_is_restored(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "c.index").touch()
    lines = plan(capsys, f"restore.path={tmp_path}/c", "restore.only=[embedding/item,top]")
    assert ["restore", "embedding/item,", "top", "from", f"{tmp_path}/c"] in lines
