"""What TPUs can't honour, real or simulated."""

from __future__ import annotations

import pytest

import embexp
from embexp.errors import CombinationFault, ConfigError

FILE = ["pretrained@tables.item.pretrained=sample", "tables.item.dim=1000"]
ONE_PHASE = "freeze.phases=[{rules: [{kind: rows, rows: [[0, 2]], multiplier: %s}]}]"


def faults(*overrides: str, strategy: str = "tpu_simulator") -> list[tuple[str, str]]:
    try:
        embexp.compose([f"strategy={strategy}", *overrides])
    except ConfigError as error:
        return [(fault.path, fault.rule) for fault in error.faults if isinstance(fault, CombinationFault)]
    return []


@pytest.mark.parametrize("strategy", ["tpu", "tpu_simulator"])
@pytest.mark.parametrize(
    ("overrides", "path", "words"),
    [
        (["init=placeholder_feed"], "runtime", "it works only with strategy cpu or a single GPU"),
        (["init=constant"], "runtime", "it works only with strategy cpu or a single GPU"),
        (["runtime=session"], "runtime", "it works only with strategy cpu or a single GPU"),
        (
            [*FILE, "freeze@tables.item.freeze=table", "init@tables.item.init=memory_map"],
            "tables.item.init",
            "no row can stay in its file",
        ),
        ([*FILE, "freeze@tables.item.freeze=table", "init=memory_map"], "init", "no row can stay in its file"),
        (
            ["freeze@tables.item.freeze=rows", "tables.item.freeze.rows=[[0,2]]", "tables.item.storage=variable"],
            "tables.item.storage",
            "stores frozen rows separately",
        ),
        (["freeze=schedule"], "freeze.phases", "a row is either trainable or frozen for the whole run"),
        (["freeze=schedule", ONE_PHASE % "0.5"], "freeze.phases.0.rules.0.multiplier", "have the same learning rate"),
    ],
)
def test_refused(strategy: str, overrides: list[str], path: str, words: str) -> None:
    found = faults(*overrides, strategy=strategy)  # a sweep leaves such a job out
    assert [place for place, _ in found] == [path]
    assert words in found[0][1]


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["init=variable_load"],
        ["freeze=table"],
        ["freeze@tables.item.freeze=rows", "tables.item.freeze.rows=[[0,2]]", "tables.item.storage=split"],
        ["freeze=schedule", ONE_PHASE % "0.0"],
        ["optimizer=adam", "optimizer.lazy_adam=false", "optimizer.clipvalue=1.0", "optimizer.weight_decay_factor=0.1"],
        ["optimizer=ftrl", "schedule@optimizer.schedule=cosine"],
    ],
)
def test_taken(overrides: list[str]) -> None:
    assert faults(*overrides) == faults(*overrides, strategy="tpu") == []


def test_cores_share_batches_equally() -> None:
    [(path, rule)] = faults("strategy.cores=3")
    assert path == "train.batch_size"
    assert rule == "the 3 cores of strategy tpu_simulator share each batch equally, but it is not divisible by 3"
    assert faults("strategy.cores=3", "train.batch_size=1023") == []
    assert faults("train.batch_size=1023", strategy="tpu") == []  # how many cores it has is known once it is there


V2 = "strategy.embedding_feature=V2"


@pytest.mark.parametrize("strategy", ["tpu", "tpu_simulator"])
@pytest.mark.parametrize(
    ("override", "setting"),
    [
        ("optimizer.clipvalue=1.0", "clipvalue"),
        ("optimizer.clip_weight_min=-1.0", "clip_weight_min"),
        ("optimizer.clip_weight_max=0.5", "clip_weight_max"),
        ("optimizer.lazy_adam=false", "lazy_adam"),
    ],
)
def test_sparse_cores_have_no_such_setting(strategy: str, override: str, setting: str) -> None:
    """TensorFlow ignores it without a word."""
    [(path, rule)] = faults("optimizer=adam", override, V2, strategy=strategy)
    assert path == f"optimizer.{setting}"
    assert rule == "TensorFlow's TPUEmbeddingV2, which updates rows on SparseCores, has no such setting"
    assert faults("optimizer=adam", override, strategy=strategy) == []


@pytest.mark.parametrize("optimizer", ["adagrad", "adagrad_momentum", "adam", "ftrl"])
def test_only_sgd_decays_on_sparse_cores(optimizer: str) -> None:
    words = (f"optimizer={optimizer}", "optimizer.weight_decay_factor=0.1")
    [(path, rule)] = faults(*words, V2)
    assert path == "optimizer.weight_decay_factor"
    assert rule == "SparseCores apply weight decay as part of the gradient, which is exact only for the rule of sgd"
    assert faults(*words) == faults("optimizer=sgd", *words[1:], V2) == []
    assert faults("experiment=movielens", "data.path=.", V2) == []


ZERO = ["schedule@optimizer.schedule=piecewise", "optimizer.schedule.boundaries=[5]", "optimizer.schedule.values=[1,0]"]
COSINE = ["schedule@optimizer.schedule=cosine"]


@pytest.mark.parametrize(
    ("schedule", "refused"),
    [
        ([], False),
        (ZERO, True),
        ([*ZERO[:2], "optimizer.schedule.values=[1,0.5]"], False),
        (COSINE, False),
        ([*COSINE, "optimizer.schedule.decay_steps=5"], True),
        ([*COSINE, "optimizer.schedule.decay_steps=5", "optimizer.schedule.alpha=0.1"], False),
    ],
)
def test_decay_on_sparse_cores_needs_a_learning_rate(schedule: list[str], refused: bool) -> None:
    words = ["optimizer=sgd", "optimizer.weight_decay_factor=0.1", *schedule]
    path = "optimizer.multiply_weight_decay_factor_by_learning_rate"
    found = faults(*words, V2)
    assert [place for place, _ in found] == [path] * refused
    assert all("the schedule makes the learning rate 0" in rule for _, rule in found)
    assert faults(*words) == faults(*words, V2, f"{path}=true") == []


def test_sparse_cores_share_batches_equally() -> None:
    [(path, rule)] = faults(V2, "strategy.cores=4", "train.batch_size=1032")
    assert path == "train.batch_size"
    assert rule == (
        "the 16 SparseCores of strategy tpu_simulator share each batch equally, but it is not divisible by 16"
    )
    assert faults("strategy.cores=4", "train.batch_size=1032") == []


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("strategy.sparse_cores=8", "TensorFlow supports 1, 2 or 4 SparseCores per chip, not 8"),
        (
            "strategy.cores=3",
            "the total number of SparseCores must be a power of two, so with SparseCores cores can't be 3",
        ),
        ("strategy.embedding_feature=V3", "V1"),
    ],
)
def test_numbers_of_sparse_cores(override: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        embexp.compose(["strategy=tpu_simulator", V2, override, "train.batch_size=1536"])


def test_only_sparse_cores_have_limits() -> None:
    limit = "strategy.max_ids_per_table=64"
    [(path, rule)] = faults(limit)
    assert path == "strategy.max_ids_per_table"
    assert rule == "only SparseCores (V2) limit the number of ids, but strategy.embedding_feature is auto"
    assert faults(limit, V2) == faults(limit, strategy="tpu") == []
    assert [path for path, _ in faults(limit, "strategy.embedding_feature=V1", strategy="tpu")] == [path]


def test_an_evaluation_ranks_all_entities() -> None:
    found = faults("experiment=knowledge_graph", "data.path=x", "data.negatives=3")
    assert found == [
        (
            "data.negatives",
            "an evaluation compares all rows, but strategy tpu_simulator requires batches of the same shape as in"
            " training",
        )
    ]
