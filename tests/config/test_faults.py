"""Every way to get a config wrong, and the words for it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import embexp
from embexp.config import composition
from embexp.errors import ConfigError, Fault
from embexp.specs.freezing import Rule
from embexp.specs.optimizers import TableOptimizer

RATINGS = ("experiment=ratings", "data.label=rating")


def faults(*overrides: str, look_at_data: bool = False) -> dict[str, Fault]:
    """The first fault of each path."""
    with pytest.raises(ConfigError) as caught:
        composition.job(composition.loader(), overrides, look_at_data=look_at_data)
    return {fault.path: fault for fault in reversed(caught.value.faults)}


def one_of(choice: Any) -> str:
    """The kinds of a choice, in a sentence."""
    *rest, last = [each.model_fields["kind"].default for each in get_args(get_args(choice)[0])]
    return f"{', '.join(rest)} or {last}"


def fault_of(path: str, *overrides: str) -> Fault:
    """The one fault of some overrides, at a path."""
    with pytest.raises(ConfigError) as caught:
        composition.job(composition.loader(), overrides, look_at_data=False)
    [fault] = caught.value.faults
    assert fault.path == path
    return fault


ROWS = "freeze@tables.item.freeze=rows"
AS_TYPED = {
    "a single number": ("name=12_3", "name", "12_3 (read as 123)", 'name="12_3"'),
    "an environment variable": (
        "tables.item.vocabulary_size=${oc.env:NOT_SET,800}",
        "tables.item.vocabulary_size",
        "${oc.env:NOT_SET,800} (read as '800')",
        'tables.item.vocabulary_size="${oc.decode:${oc.env:NOT_SET,800}}"',
    ),
    "a branch of two": ("sweep.objective=5", "sweep.objective", "5", 'sweep.objective="5"'),
    "a backslash before a quote": ('name=a (\\"', "name", 'a (\\"', 'name="a (\\\\\\""'),
}


TEXTS_THAT_ARE_NO_METRICS = ("a branch of two",)


@pytest.mark.parametrize("name", AS_TYPED)
def test_a_value_as_typed_and_the_override_that_mends_it(name: str) -> None:
    override, path, value, mended = AS_TYPED[name]
    chosen = [ROWS] if "freeze" in override else []
    fault = fault_of(path, *chosen, override)
    assert (fault.value, fault.fix) == (value, (mended,))
    assert shlex.quote(mended) in fault.remedy
    composed = composition.compose_config(composition.loader(), [*chosen, mended])
    _, after = composition.check(composed, look_at_data=False)
    assert fault.rule not in [other.rule for other in after]
    assert name in TEXTS_THAT_ARE_NO_METRICS or not after


def test_the_tag_of_a_union_is_no_key() -> None:
    found = faults(ROWS, "tables.item.freeze.ranges=[[0,5]]")
    assert found.keys() == {"tables.item.freeze.ranges", "tables.item.freeze"}  # no rows are named, either
    fault = found["tables.item.freeze.ranges"]
    assert fault.rule == "rows has no key 'ranges'"
    assert fault.source == "the command line (tables.item.freeze.ranges=[[0,5]])"
    found = faults(ROWS, "tables.item.freeze.rows=[[0,x]]")
    assert found.keys() == {"tables.item.freeze.rows.0.1"}
    found = faults(ROWS, "tables.item.freeze.rows=5")
    assert found["tables.item.freeze.rows"].rule == "it must be a list"


def test_the_branches_of_a_union_are_no_keys() -> None:
    fault = fault_of("sweep.objective", "sweep.objective={}")
    assert (fault.value, fault.rule) == ("{}", "it must be text, or it must be a list")


FORMS = {
    "an objective that is a mapping": ("sweep.objective={}", "remove it, which means sweep.objective=null"),
    "one item for a list": ("freeze.tokens=a", "write freeze.tokens=[a]"),
    "one range for a list of them": ("freeze.rows=[5,9]", "write freeze.rows=[[5,9]]"),
    "a slice": ("freeze.rows=5:9", "write freeze.rows=[[5,9]]"),
    "a range with its ends exchanged": ("freeze.rows=[[5,2]]", "write [2,5]"),
    "a range without its end": ("freeze.rows=[[5]]", "such as freeze.rows=[[0,1]]"),
    "a name for a list of ranges": ("freeze.rows=abc", "such as freeze.rows=[[0,1]]"),
    "a name for a mapping": ("sweep.exclude=[sgd]", "such as sweep.exclude=[{NAME:0}]"),
}


@pytest.mark.parametrize("name", FORMS)
def test_a_value_of_another_form_has_a_remedy(name: str) -> None:
    override, remedy = FORMS[name]
    chosen = ["freeze=rows"] if "freeze" in override else []
    for fault in faults(*chosen, override).values():
        assert fault.remedy == remedy
        assert bool(fault.fix) == (not remedy.startswith(("such as", "write [")))  # an item is not set alone
        if fault.fix:
            composed = composition.compose_config(
                composition.loader(), [*chosen, *(line for line in fault.fix if "=" in line)]
            )
            assert composition.check(composed, look_at_data=False)[1] == []


def test_values_of_a_file_as_they_are_written(tmp_path: Path) -> None:
    (tmp_path / "freeze").mkdir()
    file = tmp_path / "freeze" / "skus.yaml"
    file.write_text("kind: rows\ntokens: [1_1_1, 007,\n  1e5, NO, ~, 0x10, 12:30, 2024-05-31, '5']\n", "utf-8")
    with pytest.raises(ConfigError) as caught:
        composition.job(composition.loader(tmp_path), ["freeze@tables.item.freeze=skus"], look_at_data=False)
    values = [(fault.path, fault.value, fault.source, fault.remedy) for fault in caught.value.faults]
    expected = [
        ("1_1_1", "111"),
        ("007", "7"),
        ("1e5", "100000.0"),
        ("NO", "false"),
        ("~", "null"),
        ("0x10", "16"),
        ("12:30", "750"),
    ]
    assert values == [
        (
            f"tables.item.freeze.tokens.{place}",
            f"{written} (read as {read})",
            f"{file}:{2 if place < 2 else 3}",
            f'put it in quotes: "{written}"',
        )
        for place, (written, read) in enumerate(expected)
    ]


def test_an_initializer_by_its_name_in_other_libraries() -> None:
    fault = fault_of("initializer@tables.item.initializer", "initializer@tables.item.initializer=xaiver")
    assert fault.remedy == "did you mean glorot_uniform or glorot_normal?"
    fault = fault_of("tables.item.initializer.kind", "tables.item.initializer={kind: xavier, stddev: null}")
    assert fault.fix == ("tables.item.initializer", "initializer@tables.item.initializer=glorot_uniform")


CASES = {
    "frozen rows that nobody names": (
        ["freeze=rows"],
        "freeze",
        "rows: [], tokens: [], tokens_file: null, mask_file: null: set at least one of rows, tokens, "
        "tokens_file and mask_file.\n    set freeze.rows=[[0,100]]",
    ),
    "a range of no rows": (
        ["freeze=rows", "freeze.rows=[[0,5],[7,7]]"],
        "freeze.rows.1",
        "[7, 7]: rows are half-open ranges [start, stop), so [7, 7] is empty.\n    write [7,8]",
    ),
    "a rule of no kind": (
        ["freeze=schedule", "freeze.phases=[{rules: [{kind: tabel}]}]"],
        "freeze.phases.0.rules.0.kind",
        f"'tabel': it must be {one_of(Rule)}.\n    did you mean table?",
    ),
    "a rule with a key of another": (
        ["freeze=schedule", "freeze.phases=[{rules: [{kind: table, rows: [[0,3]]}]}]"],
        "freeze.phases.0.rules.0.rows",
        "[[0, 3]]: rows belongs to rows, not to table.",
    ),
    "a multiplier below 0": (
        ["freeze=schedule", "freeze.phases=[{rules: [{kind: table, multiplier: -1}]}]"],
        "freeze.phases.0.rules.0.multiplier",
        "-1: it must be at least 0.",
    ),
    "phases that do not begin": (
        ["freeze=schedule", "freeze.phases=[{}, {}]"],
        "freeze",
        "phases: [{}, {}]: each of the phases after the first needs the step or epoch at which it begins.",
    ),
    "phases out of order": (
        ["freeze=schedule", "freeze.phases=[{}, {step: 5}, {step: 5}]"],
        "freeze",
        "phases: [{}, {step: 5}, {step: 5}]: phases must be in the order of their steps or epochs.",
    ),
    "no phase": (
        ["freeze=schedule", "freeze.phases=[]"],
        "freeze",
        "phases: []: phases must have at least one entry.",
    ),
    "a first phase that begins later": (
        ["freeze=schedule", "freeze.phases=[{epoch: 1}]"],
        "freeze",
        "phases: [{epoch: 1}]: the first of the phases begins when training begins: remove its step and epoch.",
    ),
    "feature names a table that is not there": (
        ["features.item.table=itm"],
        "features.item.table",
        "'itm': there is no table of that name.\n    did you mean 'item'?",
    ),
    "a misspelt feature, which is a new one": (
        ["+features.usre={}"],
        "features.usre.table",
        "nothing: it must be given.\n    did you mean features.user? Or set features.usre.table=…",
    ),
    "unused table": (
        ["+table@tables.extra=embedding"],
        "tables.extra",
        "unused: every table must be used by a feature.\n    set table: extra in a feature, or remove the table",
    ),
    "a dotted key that is none": (
        ["output.compare=[metrics..loss]"],
        "output.compare.0",
        "'metrics..loss': it must look like keys separated by dots, such as initialization.seconds.",
    ),
    "dim of a file that is not there": (
        ["tables.item.dim=null", "model=mlp"],
        "tables.item.dim",
        "null: null means the dim of the pretrained file, but the table has no pretrained file.\n"
        "    set a number, or choose pretrained@tables.item.pretrained=file",
    ),
    "dim not positive": (["tables.item.dim=0"], "tables.item.dim", "0: it must be at least 1."),
    "dim no whole number": (["tables.item.dim=1.5"], "tables.item.dim", "1.5: it must be a whole number."),
    "vocabulary_size not positive": (
        ["tables.item.vocabulary_size=-5"],
        "tables.item.vocabulary_size",
        "-5: it must be at least 1.",
    ),
    "unknown combiner": (
        ["tables.item.combiner=meen"],
        "tables.item.combiner",
        "'meen': it must be sum, mean or sqrtn.\n    did you mean mean?",
    ),
    "unknown optimizer parameter": (
        ["optimizer=adagrad", "+optimizer.learning_rat=0.1"],
        "optimizer.learning_rat",
        "0.1: adagrad has no key 'learning_rat'.\n    did you mean learning_rate?",
    ),
    "option of another optimizer, plain": (
        ["optimizer=adagrad", "optimizer.lazy_adam=true"],
        "optimizer.lazy_adam",
        "true: lazy_adam belongs to adam, not to adagrad.\n    choose adam instead of adagrad, or remove the key",
    ),
    "option of several other optimizers": (
        ["optimizer=sgd", "+optimizer.initial_accumulator_value=1"],
        "optimizer.initial_accumulator_value",
        "1: initial_accumulator_value belongs to adagrad, rowwise_adagrad or ftrl, not to sgd.",
    ),
    "option of another initializer": (
        ["tables.item.initializer.value=1"],
        "tables.item.initializer.value",
        "1: value belongs to constant, not to truncated_normal.",
    ),
    "a sequence with weights": (
        ["features.history.max_sequence_length=4", "features.history.weights=w", "model=mlp"],
        "features.history.weights",
        "'w': a sequence can't have weights, and max_sequence_length is 4.",
    ),
    "a sequence of single ids": (
        ["features.user.max_sequence_length=4", "model=mlp"],
        "features.user.max_sequence_length",
        "4: column 'user' holds one id per example, but this setting applies only to columns that hold several.",
    ),
    "weights of single ids": (
        [*RATINGS, "data.path=f", "features.user.weights=w"],
        "features.user.weights",
        "'w': column 'user' holds one id per example, but this setting applies only to columns that hold several.",
    ),
    "output_shape against the sequence's length": (
        ["features.history.max_sequence_length=4", "features.history.output_shape=[1024,3]", "model=mlp"],
        "features.history.output_shape",
        "[1024, 3]: after the batch size it must have the 4 positions of max_sequence_length.\n    write [1024, 4]",
    ),
    "output_shape against the batch": (
        ["features.history.output_shape=[100,3]", "model=mlp"],
        "features.history.output_shape",
        "[100, 3]: its first number must be the batch size, but train.batch_size is 1024.\n    write [1024, 3]",
    ),
    "output_shape not positive": (
        ["features.history.output_shape=[1024,0]"],
        "features.history.output_shape.1",
        "0: it must be at least 1.",
    ),
    "neither steps nor epochs": (
        ["train.epochs=null"],
        "train",
        "steps: null, epochs: null: neither steps nor epochs is set, so training would never end.",
    ),
    "a choice that is not there": (
        ["optimizer=adagrat"],
        "optimizer",
        "'adagrat': group optimizer has adagrad, ",
    ),
    "a kind that is not there": (
        ["optimizer.kind=adagrat"],
        "optimizer.kind",
        f"'adagrat': it must be {one_of(TableOptimizer)}.\n    did you mean adagrad",
    ),
    "a value that must be given": (
        ["experiment=movielens"],
        "data.path",
        "nothing: it must be given.\n    set data.path=…\n    set in ",
    ),
    "an interpolation that leads nowhere": (
        ["tables.item.dim=${tables.itm.dim}"],
        "tables.item.dim",
        "${tables.itm.dim}: it can't be resolved: Interpolation key 'tables.itm.dim' not found.",
    ),
    "a place where nothing is chosen": (
        ["init@tables.itm.init=assign"],
        "init@tables.itm.init",
        "'assign': nothing in this config is chosen there.\n    did you mean init@tables.item.init",
    ),
    "a group that is not there": (
        ["optimiser@tables.item.optimizer=adam"],
        "optimiser@tables.item.optimizer",
        "'adam': there is no group 'optimiser'.\n    did you mean optimizer?",
    ),
    "keys of what is not chosen": (
        ["tables.item.optimizer.learning_rate=1"],
        "tables.item.optimizer.learning_rate",
        "1: tables.item.optimizer is not set, so it has no keys.\n"
        "    choose one first: optimizer@tables.item.optimizer=…",
    ),
    "no override": (["nonsense"], "nonsense", "no value: an override is KEY=VALUE"),
    "several values without -m": (
        ["seed=1,2"],
        "seed",
        "1,2: a single run takes one value.\n    add -m to run once for",
    ),
    "a range without -m": (["seed=range(0,3)"], "seed", "range(0,3): a single run takes one value.\n    add -m"),
    "+ of what is there": (
        ["+seed=1"],
        "seed",
        "1: + adds a key, but this one already exists.\n    write seed=… without the +",
    ),
    "~ of what is not there": (["~train.stesp"], "train.stesp", "a removal: there is no such key in this config."),
    "a typo in the name of a table": (
        ["tables.itme.dim=8"],
        "tables.itme.dim",
        "8: there is no such key in this config.\n    did you mean tables.item.dim",
    ),
    "an argument of the user's function": (
        ["model=keras", "model.function=tests.config.test_compose:any_model", "model.args.width=3"],
        "model.args.width",
        "3: there is no such key in this config.\n    add arguments for the function with +: +model.args.width=3",
    ),
    "a bad name": (
        ["+table@tables.a-b=embedding"],
        "tables.a-b",
        "'a-b': it must look like a name: letters, digits and underscores, beginning with a letter.",
    ),
    "a metric of another task": (
        ["train.early_stopping.patience=1", "train.early_stopping.metric=rmse"],
        "train.early_stopping.metric",
        "'rmse': the metrics of task binary are log_loss, auc, loss.",
    ),
    "classes as ratings": (
        ["experiment=text_classification", "task=regression"],
        "task",
        "regression: the labels of data=text are classes, whose numbers have no meaning.\n    set task=classification",
    ),
    "early stopping that sees nothing": (
        ["train.early_stopping.patience=1", "data.split.validation=0"],
        "train.early_stopping.patience",
        "1: early stopping needs a validation split, but data.split.validation is 0.",
    ),
    "a fold without folds": (
        ["data.fold=1"],
        "data.fold",
        "1: only split kind folds uses it, but data.split.kind is random.",
    ),
    "folds without a fold": (
        ["data.split.kind=folds", "data.folds=5"],
        "data",
        "folds: 5, fold: null: split.kind=folds needs data.folds and data.fold.",
    ),
    "a group for another split": (
        ["data.split.group=user"],
        "data.split.group",
        "'user': only leave_one_out and within: user use it, but data.split.kind is random.",
    ),
    "users of a split by time": (
        ["data.split.kind=time", "data.split.within=user", "data.split.group=user"],
        "data.split",
        "kind: 'time', within: 'user': within works only with kind random, not with time.",
    ),
    "a split within users without their column": (
        ["data.split.within=user"],
        "data.split",
        "within: 'user', group: null: within needs group, the column that names the user.",
    ),
    "users and items in one table": (
        ["features.item.table=user"],
        "features.item",
        "'item': its ids identify items, but those of table 'user' identify users.",
    ),
    "too few rows for the clicks": (
        ["data.items=1000", "tables.item.vocabulary_size=10"],
        "tables.item.vocabulary_size",
        "10: the data has 1000 items, and each one needs a row.",
    ),
    "dims that a model multiplies": (
        ["tables.user.dim=8"],
        "model",
        "dlrm: the vectors that it multiplies must have the same dim, but they have user 8, item 16, history 16.",
    ),
    "a model that names no feature": (
        ["model=dot", "model.left=[usr]", "model.right=[item,history]"],
        "model.left",
        "'usr': this run has no such feature.\n    did you mean 'user'?",
    ),
    "a bias that is a vector": (
        ["model=dot", "model.biases=[history]"],
        "model.biases",
        "'history': a bias has dim 1, but 'history' gives [B, 16].",
    ),
    "a sequence where the model takes none": (
        ["features.history.max_sequence_length=4"],
        "features.history",
        "a sequence of shape [B, 4, 16]: dlrm takes one vector per feature.",
    ),
    "a function that is not there": (
        ["model=keras", "model.function=nosuchmodule:build"],
        "model.function",
        "'nosuchmodule:build': there is no module 'nosuchmodule' in the working directory",
    ),
    "no dotted path": (
        ["model=keras", "model.function=build"],
        "model.function",
        "'build': it must look like package.module:function.",
    ),
    "a number where a list belongs": (["model.top=5"], "model.top", "5: it must be a list."),
    "a scalar where a mapping belongs": (["train=5"], "train", "5: it must be a mapping of keys."),
    "clip bounds": (
        ["optimizer.clipvalue=-1"],
        "optimizer.clipvalue",
        "-1: it must be greater than 0, or it must be a list.",
    ),
    "an unknown setting of hydra": (
        ["hydra.run.dri=x"],
        "hydra.run.dri",
        "'x': Hydra has no such setting.",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_fault(case: str) -> None:
    overrides, path, words = CASES[case]
    found = faults(*overrides)
    assert path in found, found
    text = str(found[path])
    assert text.startswith(f"{path} = {words}"), text


PREFIXES = ["", "+", "++"]


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("trian.epochs", "train.epochs|train"),
        ("train.epoch", "epochs"),
        ("data.exampels", "examples"),
        ("data.split.vaildation", "validation"),
        ("optimizer.schedule.warm_up_steps", "warmup_steps"),
        ("model.activaton", "activation"),
        ("tables.item.dimm", "dim"),
        ("features.user.colunm", "column"),
        ("sead", "seed"),
        ("output.tensorbord", "tensorboard"),
        ("strategy.intra_op_thread", "intra_op_threads"),
    ],
)
def test_a_typo_passes_in_no_way(prefix: str, key: str, near: str) -> None:
    found = faults(f"{prefix}{key}=1")
    fault = found.get(key) or found[key.split(".")[0]]
    assert re.search(rf"did you mean .*({near})", fault.remedy), fault


def test_a_typo_in_a_file_is_found_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text(
        "# @package _global_\nname: mine\ntask: binary\ntrain:\n  epochs: 1\n  batch_sise: 3\n"
        "tables:\n  item:\n    combiner: avg\n"
    )
    with pytest.raises(ConfigError) as caught:
        embexp.compose(["experiment=mine"], config_dir=tmp_path)
    by_path = {fault.path: fault for fault in caught.value.faults}
    assert by_path["train.batch_sise"].source == f"{tmp_path}/experiment/mine.yaml:6"
    assert by_path["train.batch_sise"].remedy == "did you mean batch_size?"
    assert by_path["tables.item.combiner"].source == f"{tmp_path}/experiment/mine.yaml:9"
    assert set(by_path) == {"train.batch_sise", "tables.item.combiner"}


def test_sources() -> None:
    found = faults("experiment=movielens", "tables.user.dim=0", "model=dot", "data.path=x")
    assert found["tables.user.dim"].source == "the command line (tables.user.dim=0)"
    assert re.search(r"conf/graph/ratings\.yaml:\d+$", found["tables.item.dim"].source)


def test_all_faults_at_once() -> None:
    found = faults(
        "nonsense",
        "optimizer=adagad",
        "init@tables.itm.init=assign",
        "tables.itm.dim=7",
        "+train.foo=1",
        "train.epochs=null",
        "tables.user.dim=-3",
        "tables.item.combiner=meen",
        "features.item.table=itm",
        "data.fold=3",
        "optimizer.lr=1",
        "seed=a,b",
    )
    assert set(found) == {
        "nonsense",
        "optimizer",
        "init@tables.itm.init",
        "tables.itm.dim",
        "train.foo",
        "train",
        "tables.user.dim",
        "tables.item.combiner",
        "features.item.table",
        "data.fold",
        "optimizer.lr",
        "seed",
    }


def test_one_missing_value_does_not_hide_the_rest() -> None:
    found = faults("experiment=ratings", "tables.user.dim=0")
    assert {"data.path", "data.label", "tables.user.dim"} <= set(found)


class TestDataFiles:
    """The header and the first lines are looked at before anything starts."""

    def test_missing(self, tmp_path: Path) -> None:
        found = faults(*RATINGS, f"data.path={tmp_path}/no.csv", look_at_data=True)
        assert f"data.path = '{tmp_path}/no.csv': there is no such file or folder." in str(found["data.path"])
        assert found["data.path"].source == f"the command line (data.path={tmp_path}/no.csv)"

    def test_empty(self, tmp_path: Path) -> None:
        (tmp_path / "empty.csv").write_text("")
        found = faults(*RATINGS, f"data.path={tmp_path}/empty.csv", look_at_data=True)
        assert "empty" in str(found["data.path"])

    def test_lacking_columns(self, tmp_path: Path) -> None:
        (tmp_path / "short.csv").write_text("user,stars\na,3\n")
        found = faults(*RATINGS, f"data.path={tmp_path}/short.csv", look_at_data=True)
        assert {"features.item.column", "data.label"} <= set(found)

    def test_malformed_line(self, tmp_path: Path) -> None:
        (tmp_path / "bad.csv").write_text("user,item,rating\na,b,3\na,b,good\n")
        found = faults(*RATINGS, f"data.path={tmp_path}/bad.csv", look_at_data=True)
        assert "line 3: found 'good'" in str(found["data.path"])

    def test_together_with_other_faults(self, tmp_path: Path) -> None:
        found = faults(*RATINGS, f"data.path={tmp_path}/no.csv", "tables.user.dim=0", "seed=-1", look_at_data=True)
        assert {"data.path", "tables.user.dim", "seed"} <= set(found)

    def test_time_without_a_column(self, tmp_path: Path) -> None:
        (tmp_path / "r.csv").write_text("user,item,rating\na,b,3\n")
        found = faults(*RATINGS, f"data.path={tmp_path}/r.csv", "data.split.kind=time", look_at_data=True)
        assert "needs the column of timestamps" in found["data.timestamp"].rule


KEYS = ["seed", "train.epochs", "tables.item.dim", "tables.item", "optimizer", "optimizer.kind", "features", "data"]
KEYS += ["model.top.0", "hydra", "hydra/launcher", "hydra.searchpath", "init@tables.item.init", "table@tables.y"]
VALUES = ["1", "-1", "null", "x", "[1,2]", "{a: 1}", "1.5", "true", "${seed}", "${no}", "'a b'", "???", "", "nan"]
VALUES += ["[adam,[sgd]]", "int(x)", "tag(a,1)", "extend_list(1)", "${hydra:x.y}", "adam"]


@given(
    st.lists(
        st.one_of(
            st.builds(
                lambda prefix, key, value: f"{prefix}{key}={value}",
                st.sampled_from(["", "+", "++", "~"]),
                st.sampled_from(KEYS) | st.from_regex(r"[a-z]{1,6}(\.[a-z]{1,6}){0,2}", fullmatch=True),
                st.sampled_from(VALUES),
            ),
            st.text(max_size=12),
        ),
        max_size=3,
    )
)
@example(["~optimizer", "optimizer.kind=sgd"])
@example(["tables=1"])
@example(["features=[1]", "~tables"])
@example(["1: 2=3", "data={kind: csv}"])
def test_whatever_is_said_the_answer_is_a_spec_or_faults(overrides: list[str]) -> None:
    try:
        answer = composition.job(composition.loader(), overrides, look_at_data=False).spec
    except ConfigError as error:
        answer = error
    assert isinstance(answer, embexp.RunSpec) or all(fault.rule for fault in answer.faults)
