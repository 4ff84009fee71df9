"""What is shipped composes, and what a user adds to it does too."""

from __future__ import annotations

import importlib.util
import itertools
from pathlib import Path

import numpy as np
import pytest
import yaml

import embexp
from embexp.config import composition, folders
from embexp.errors import CommandLineError, ConfigError
from embexp.fields.graphs.specs import KnowledgeGraph
from embexp.records.folder import RunFolder
from embexp.runs import execute
from embexp.runs.prepare import prepare
from embexp.specs.inits import Assign
from embexp.specs.optimizers import Adam, CosineSchedule
from embexp.specs.pretrained import NoPretrained
from tests.thoroughness import thorough

CHOICES = folders.find().choices
EXPERIMENTS = [each for each in CHOICES["experiment"] if "/" not in each]
"""Those to start from; the published ones are these with data and settings of theirs."""


@pytest.mark.parametrize(("old", "new"), [("click", "binary"), ("rating", "regression")])
def test_old_names_of_tasks_are_read_and_said_once(old: str, new: str, capsys: pytest.CaptureFixture[str]) -> None:
    composition._report_old_name.cache_clear()
    assert [embexp.compose([f"task={old}"]).task for _ in range(2)] == [new, new]
    assert capsys.readouterr().err == f"task={old} is called task={new} since 0.2.0\n"


def any_model(activations: object) -> object:
    """Is named, and not called."""
    raise NotImplementedError


INTERACTIONS = ["data.path=FILE", "data.timestamp=time"]
NEEDS = {
    ("data", "csv"): ["data.path=FILE", "data.label=rating"],
    ("data", "parquet"): ["data.path=FILE", "data.label=rating"],
    ("data", "jsonl"): ["data.path=FILE", "data.label=rating"],
    ("data", "recbole"): ["data.path=FILE", "data.label=rating"],
    ("data", "movielens"): ["data.path=FILE"],
    ("loss", "cosine_contrastive"): ["experiment=recommendation", *INTERACTIONS, "model.temperature=1"],
    ("data", "adjacency"): ["experiment=recommendation", "data.path=FILE"],
    ("graph", "ratings"): ["model=biased_dot", "data=csv", "data.path=FILE", "data.label=rating"],
    ("graph", "movielens"): ["model=biased_dot", "data=movielens", "data.path=FILE"],
    ("model", "dot"): ["model.left=[user,history]"],
    ("model", "biased_dot"): ["graph=ratings", "data=csv", "data.path=FILE", "data.label=rating"],
    ("model", "svd_plus_plus"): ["graph=ratings", "data=csv", "data.path=FILE", "data.label=rating", "task=regression"],
    ("model", "keras"): ["model.function=tests.config.test_compose:any_model"],
    ("data", "custom"): ["data.path=FILE", "data.label=rating", "data.function=tests.config.test_compose:any_model"],
    **{
        (group, "custom"): [f"{group}.function=tests.config.test_compose:any_model"]
        for group in ("loss", "optimizer", "dense_optimizer", "init", "freeze")
    },
    # By epoch it is for tasks whose data tells how often a row is looked up.
    ("optimizer", "sgd_ratings"): ["optimizer.weight_decay_per=touch"],
    ("pretrained", "file"): ["pretrained.path=FILE"],
    ("data", "text"): ["experiment=text_classification"],
    ("data", "text_few"): ["experiment=text_classification"],
    ("data", "skipgram"): ["experiment=skipgram"],
    ("graph", "text"): ["experiment=text_classification"],
    ("graph", "skipgram"): ["experiment=skipgram"],
    ("graph", "initialization"): ["model=mlp", "pretrained=sample"],
    ("model", "text_cnn"): ["experiment=text_classification"],
    ("model", "skipgram"): ["experiment=skipgram"],
    ("vectors", "non_static"): ["experiment=text_classification"],
    ("vectors", "random"): ["experiment=text_classification"],
    ("vectors", "random_static"): ["experiment=text_classification"],
    ("vectors", "static"): ["experiment=text_classification", "pretrained=file", "pretrained.path=FILE"],
    ("freeze", "pretrained_table"): ["pretrained=file", "pretrained.path=FILE"],
    ("data", "triples"): ["experiment=knowledge_graph", "data.path=FOLDER"],
    ("graph", "knowledge_graph"): ["experiment=knowledge_graph", "data.path=FOLDER"],
    ("model", "complex"): ["experiment=knowledge_graph", "data.path=FOLDER"],
    ("model", "distmult"): ["experiment=knowledge_graph", "data.path=FOLDER"],
    ("model", "transe"): ["experiment=knowledge_graph", "data.path=FOLDER"],
    ("model", "rotate"): ["experiment=knowledge_graph", "data.path=FOLDER"],
    ("experiment", "knowledge_graph"): ["data.path=FOLDER"],
    ("experiment", "knowledge_graph_large"): ["data.path=FOLDER"],
    ("model", "complex_large"): ["experiment=knowledge_graph", "data.path=FOLDER"],
    ("data", "triples_sampled"): ["experiment=knowledge_graph", "data.path=FOLDER"],
    ("experiment", "new_entities"): ["data.path=FOLDER"],
    ("study", "daily"): ["experiment=ratings", "data.path=[ONE,TWO,THREE]", "data.label=rating"],
    ("study", "new_items"): ["experiment=recommendation", *INTERACTIONS],
    ("study", "new_entities"): ["experiment=knowledge_graph", "data.path=FOLDER"],
    ("freeze", "pretrained_rows"): ["pretrained=file", "pretrained.path=FILE"],
    ("freeze", "rows"): ["freeze.rows=[[0, 50]]"],
    ("freeze", "old_rows"): ["pretrained=checkpoint", "pretrained.path=RUN"],
    ("pretrained", "checkpoint"): ["pretrained.path=RUN"],
    ("init", "memory_map"): ["freeze=table", "pretrained=file", "pretrained.path=FILE"],
    ("experiment", "movielens"): ["data.path=FILE"],
    ("experiment", "ratings"): ["data.path=FILE", "data.label=rating"],
    ("experiment", "recommendation"): INTERACTIONS,
    ("experiment", "movielens_recommendation"): ["data.path=FOLDER"],
    ("data", "interactions"): ["experiment=recommendation", *INTERACTIONS],
    ("data", "movielens_interactions"): ["experiment=movielens_recommendation", "data.path=FOLDER"],
    ("graph", "recommendation"): ["experiment=recommendation", *INTERACTIONS],
    ("graph", "movielens_recommendation"): ["experiment=movielens_recommendation", "data.path=FOLDER"],
    ("model", "matrix_factorization"): ["experiment=recommendation", *INTERACTIONS],
    ("model", "matrix_factorization_history"): ["experiment=recommendation", *INTERACTIONS],
    ("model", "two_tower"): ["experiment=recommendation", *INTERACTIONS],
    ("loss", "bpr"): ["experiment=recommendation", *INTERACTIONS],
    ("loss", "sampled_softmax"): ["experiment=recommendation", *INTERACTIONS],
    ("loss", "softmax"): ["experiment=recommendation", *INTERACTIONS],
}
"""What a choice needs beside it: values that only the user can give, and choices that go with it."""

PLACE = {
    "table": "+table@tables.mine",
    "feature": "+feature@features.mine",
    "initializer": "initializer@tables.item.initializer",
    "schedule": "schedule@optimizer.schedule",
}


def spec_of(*overrides: str) -> embexp.RunSpec:
    """The spec, without a look at data files."""
    return composition.job(composition.loader(), overrides, look_at_data=False).spec


@pytest.mark.parametrize(
    ("group", "choice"), [(group, choice) for group, choices in CHOICES.items() for choice in choices]
)
def test_every_choice_composes_and_validates(group: str, choice: str) -> None:
    if (group, choice) == ("tracking", "wandb") and importlib.util.find_spec("wandb") is None:
        pytest.skip("wandb is not installed")
    override = f"{PLACE.get(group, group)}={choice}"
    extra = {
        "table": ["+feature@features.mine=id", "features.mine.table=mine", "model=mlp"],
        "feature": ["features.mine.table=item", "features.mine.column=history", "model=mlp"],
    }.get(group, [])
    if choice.startswith("published/"):
        extra = ["seeds=1"]  # those of a mean over seeds are sweeps
    spec = spec_of(override, *extra, *NEEDS.get((group, choice), []))
    if group in (
        "data",
        "model",
        "loss",
        "optimizer",
        "dense_optimizer",
        "strategy",
        "runtime",
        "init",
        "freeze",
        "study",
        "tracking",
    ):
        part = getattr(spec, group)
        file = yaml.safe_load(CHOICES[group][choice].read_text())
        bases = [each for each in file.get("defaults", []) if isinstance(each, str) and each != "_self_"]
        own = file.get(group, {}).get("kind") if isinstance(file.get(group), dict) else None  # of `_global_` files
        assert part.kind == (own or file.get("kind") or (bases[0] if bases else choice))


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_no_experiment_leaks_values_into_another_choice(experiment: str) -> None:
    """Every optimizer with every experiment, of tables and of dense layers at once; in most runs, an eighth of them."""
    shift, part = EXPERIMENTS.index(experiment), 1 if thorough() else 8
    some = [
        [(group, choice) for number, choice in enumerate(CHOICES[group]) if (number + shift) % part == 0]
        for group in ("optimizer", "dense_optimizer")
    ]
    for both in itertools.zip_longest(*some):
        chosen = [each for each in both if each is not None]
        needs = [word for each in (*chosen, ("experiment", experiment)) for word in NEEDS.get(each, [])]
        spec_of(f"experiment={experiment}", *("=".join(each) for each in chosen), *needs)


@pytest.mark.parametrize(
    "experiment",
    [
        each
        for each in EXPERIMENTS
        if "knowledge_graph" not in each and "recommendation" not in each and each != "new_entities"
    ],
)
@pytest.mark.parametrize(
    "model", [["model=mlp"], ["model=keras", "model.function=tests.config.test_compose:any_model"]]
)
def test_every_experiment_takes_models_of_any_graph(experiment: str, model: list[str]) -> None:
    spec_of(f"experiment={experiment}", *model, *NEEDS.get(("experiment", experiment), []))


def test_the_default_is_the_experiment_clicks() -> None:
    spec = embexp.compose()
    assert spec == embexp.compose(["experiment=clicks"])
    assert (spec.name, spec.task, spec.data.kind) == ("clicks", "binary", "clicks")
    assert {name: feature.table for name, feature in spec.features.items()} == {
        "user": "user",
        "item": "item",
        "history": "item",
    }


def test_movielens_is_biased_matrix_factorisation_in_five_folds() -> None:
    spec = spec_of("experiment=movielens", "data.path=ml-100k", "data.fold=3")
    assert {name: table.dim for name, table in spec.tables.items()} == {
        "user": 32,
        "item": 32,
        "user_bias": 1,
        "item_bias": 1,
    }
    assert {name: spec.column_of(name) for name in spec.features} == {
        "user": "user_id",
        "item": "item_id",
        "user_bias": "user_id",
        "item_bias": "item_id",
    }
    assert (spec.data.folds, spec.data.fold, spec.data.split.kind) == (5, 3, "folds")


def test_a_table_takes_choices_of_its_own() -> None:
    spec = spec_of(
        "optimizer=sgd",
        "optimizer@tables.item.optimizer=adam",
        "tables.item.optimizer.learning_rate=0.5",
        "schedule@tables.item.optimizer.schedule=cosine",
        "init@tables.item.init=assign",
        "freeze@tables.item.freeze=none",
        "pretrained@tables.item.pretrained=none",
        "initializer@tables.user.initializer=constant",
        "schedule@dense_optimizer.schedule=exponential",
    )
    own = spec.tables["item"].optimizer
    assert isinstance(own, Adam)
    assert own.learning_rate == 0.5
    assert isinstance(own.schedule, CosineSchedule)
    assert spec.tables["user"].optimizer is None
    assert spec.optimizer_of("user").kind == "sgd"
    assert spec.tables["item"].init is not None
    assert spec.tables["user"].init is None
    assert spec.tables["user"].initializer.kind == "constant"
    assert spec.dense_optimizer.schedule.kind == "exponential"


def test_ways_in_and_freezing_are_chosen_per_table() -> None:
    spec = spec_of(
        "init@tables.item.init=scaffold",
        "freeze@tables.item.freeze=table",
        "pretrained@tables.item.pretrained=sample",
        "tables.item.pretrained.rows=7",
        "init@tables.user.init=assign",
        "tables.user.init.chunk_bytes=99",
    )
    item, user = spec.tables["item"], spec.tables["user"]
    assert item.init is not None
    assert item.freeze is not None
    assert item.pretrained is not None
    assert (item.init.kind, item.freeze.kind, item.pretrained.kind) == ("scaffold", "table", "sample")
    assert item.pretrained.rows == 7
    assert user.init == Assign(chunk_bytes=99)
    assert (spec.frozen("item"), spec.kept_by_reference("item")) == (True, True)
    assert (spec.frozen("user"), spec.kept_by_reference("user")) == (False, False)


def test_the_experiment_initialization_compares_ways_in_with_one_runtime() -> None:
    spec = spec_of("experiment=initialization", "pretrained.path=mine.npy")
    assert spec.runtime.kind == "session"
    assert spec.pretrained.path == str(Path("mine.npy").absolute())
    assert spec.tables["item"].dim is None
    assert spec.tables["item"].pretrained is None
    assert spec.tables["user"].pretrained == NoPretrained()
    assert spec.output.compare == (
        "initialization.seconds",
        "initialization.peak_anonymous_bytes",
        "initialization.graph_def_bytes",
        "initialization.total_graph_def_bytes",
        "metrics.train.loss",
    )


def test_a_key_of_the_grammar_that_the_files_do_not_mention_may_be_set(tmp_path: Path) -> None:
    (tmp_path / "optimizer").mkdir()
    (tmp_path / "optimizer" / "short.yaml").write_text("kind: sgd\n")
    spec = embexp.compose(["optimizer=short", "optimizer.learning_rate=0.25"], config_dir=tmp_path)
    assert spec.optimizer.learning_rate == 0.25


def test_relative_paths_are_those_of_the_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ratings.csv").write_text("user,item,rating\na,b,3\n")
    monkeypatch.chdir(tmp_path)
    spec = embexp.compose(["experiment=ratings", "data.path=ratings.csv", "data.label=rating", "output.cache=c"])
    assert spec.data.path == str(tmp_path / "ratings.csv")
    assert spec.output.cache == str(tmp_path / "c")


@pytest.mark.parametrize("place", ["freeze", "tables.item.freeze"])
def test_the_files_of_freeze_policies_are_found_from_any_folder(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = tmp_path / "start"
    start.mkdir()
    (start / "tokens.txt").write_text("3\n1\n")
    np.save(start / "mask.npy", np.arange(20) >= 16)
    monkeypatch.chdir(start)
    choice = place if place == "freeze" else f"freeze@{place}"
    small = ["experiment=clicks", "data.examples=200", "data.users=20", "data.items=20", "output.cache=cache"]
    listed = embexp.compose(
        [*small, f"{choice}=rows", f"{place}.tokens_file=tokens.txt", f"{place}.mask_file=mask.npy"]
    )
    rules = "[{kind: rows, mask_file: mask.npy}, {kind: rows, tokens_file: tokens.txt, multiplier: 0.5}]"
    phases = embexp.compose([*small, f"{choice}=schedule", f"{place}.phases=[{{rules: {rules}}}]"])

    monkeypatch.chdir(tmp_path)
    for spec, frozen in ((listed, 6), (phases, 4)):
        folder = RunFolder(tmp_path)
        folder.write_spec(spec)
        recorded = folder.read_spec()
        assert set(recorded.freeze_of("item").files) == {str(start / "tokens.txt"), str(start / "mask.npy")}
        assert prepare(recorded).tables.policies["item"].frozen_rows == frozen


def test_a_users_folder_extends_and_comes_before_the_shipped_one(tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text(
        "# @package _global_\ndefaults:\n  - override /data: clicks\n  - override /graph: clicks\n"
        "  - override /model: mlp\nname: mine\ntask: binary\ntrain:\n  steps: 3\n"
    )
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mlp.yaml").write_text("kind: mlp\nhidden: [7]\n")
    spec = embexp.compose(["experiment=mine"], config_dir=tmp_path)
    assert (spec.name, spec.train.steps, spec.model.hidden) == ("mine", 3, (7,))
    assert spec.optimizer == embexp.compose(["experiment=clicks", "optimizer=adagrad"]).optimizer
    (tmp_path / "model" / "mlp.yaml").write_text("kind: mlp\nhidden: 7\n")
    with pytest.raises(
        ConfigError,
        match=rf"model.hidden = 7: it must be a list.\n *write model.hidden=\[7\]\n *set in {tmp_path}/model/mlp",
    ):
        embexp.compose(["experiment=mine"], config_dir=tmp_path)


def test_a_users_folder_that_is_not_there() -> None:
    with pytest.raises(CommandLineError, match="--config-dir /no/such: there is no such folder"):
        embexp.compose(config_dir="/no/such")


def test_composing_leaves_hydra_as_a_notebook_had_it(tmp_path: Path) -> None:
    from hydra import compose, initialize_config_dir

    (tmp_path / "theirs.yaml").write_text("a: 1\n")
    with initialize_config_dir(str(tmp_path), version_base="1.3"):
        embexp.compose()
        assert compose("theirs").a == 1


def test_a_spec_survives_json() -> None:
    spec = embexp.compose(["schedule@optimizer.schedule=piecewise", "optimizer.clipvalue=[-1,2]"])
    assert embexp.RunSpec.model_validate_json(spec.model_dump_json()) == spec


def test_broken_files_of_the_user_are_named(tmp_path: Path) -> None:
    (tmp_path / "optimizer").mkdir()
    file = tmp_path / "optimizer" / "mine.yaml"
    file.write_text("kind: sgd\nlearning_rate: [1\n")
    told = r"optimizer = 'mine': it is not valid YAML: .*\n *close the list with \]\n *set in .*mine.yaml:3"
    with pytest.raises(ConfigError, match=told):
        embexp.compose(["optimizer=mine"], config_dir=tmp_path)
    file.write_text("defaults:\n  - sdg\nkind: sgd\n")
    with pytest.raises(ConfigError, match=r"there is no file optimizer/sdg.yaml in .*\n *did you mean sgd\?"):
        embexp.compose(["optimizer=mine"], config_dir=tmp_path)


@pytest.mark.parametrize(
    "file",
    [each for each in sorted(folders.find().shipped.rglob("*.yaml")) if each.parent.name != "published"],
    ids=lambda path: path.stem,
)
def test_every_key_of_every_file_is_explained(file: Path) -> None:
    lines = file.read_text().splitlines()

    def check(node: yaml.MappingNode, path: str) -> None:
        for key, value in node.value:
            name = f"{path}{key.value}"
            if name == "defaults":
                continue
            above = lines[key.start_mark.line - 1].strip()
            explained = above.startswith("# ") and not above.startswith("# @package")
            if isinstance(value, yaml.MappingNode) and value.value:
                check(value, f"{name}.")
            else:
                assert explained, f"{file.name}: {name} has no comment"

    check(yaml.compose(file.read_text()), "")
    assert folders.about(file), f"{file} does not say what it is"


def test_entities_are_the_rows_of_candidates_also_where_there_are_more_relations() -> None:
    spec = spec_of("experiment=knowledge_graph_large", "data.path=none")
    rows = {"entity": 100, "relation": 5_000}
    dense = execute.dense_settings(spec, rows=rows, width=0, total_steps=1, examples=2 * 600)  # six triples per entity
    assert isinstance(dense.model, KnowledgeGraph)
    assert dense.model.n3 == 0.05
