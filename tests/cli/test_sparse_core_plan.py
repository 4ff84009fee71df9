"""What `embexp plan` says of SparseCores, against TensorFlow's own `TPUEmbeddingV2`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as draw
from rich.console import Console
from tensorflow.python.tpu import tpu_embedding_v3

import embexp
from embexp.cli import commands, sparse_core_plan
from embexp.cli.sparse_core_plan import PartitionedIds, SparseCorePlan
from embexp.runs.prepare import Prepared, prepare
from embexp.specs.optimizers import SGD
from embexp.specs.sparse_cores import (
    BAG,
    Chips,
    DistinctRows,
    Limits,
    Part,
    SettledLimits,
    Stack,
    Vectors,
    distinct_rows,
    stacked,
)
from embexp.tables.tpu_backend import SparseCoreDecay

api = tf.tpu.experimental.embedding
V2 = ("strategy=tpu_simulator", "strategy.embedding_feature=V2")
DATA = ("data=clicks_few", "data.examples=3000", "train.batch_size=128")


def features_of(parts: list[Part], vectors: dict[str, Vectors]) -> dict[str, Any]:
    optimizers = {name: api.SGD(rate) for name, rate in (("one", 0.5), ("other", 0.25))}
    tables = {
        part.name: api.TableConfig(part.rows, part.dim, name=part.name, optimizer=optimizers[part.optimizer])
        for part in parts
    }
    return {
        name: api.FeatureConfig(tables[each.part], output_shape=[each.count], name=name)
        for name, each in vectors.items()
    }


ROWS = draw.sampled_from([1, 7, 64, 1000, 1 << 24, 1 << 28])
PARTS = draw.lists(
    draw.tuples(ROWS, draw.sampled_from([1, 3, 8, 100]), draw.sampled_from(["one", "other"])), min_size=1, max_size=6
)


@given(
    parts=PARTS,
    counts=draw.lists(draw.sampled_from([16, 4096, 1 << 17]), min_size=6, max_size=6),
    chips=draw.sampled_from([1, 2, 4]),
    cores=draw.sampled_from([1, 2, 4]),
)
def test_stacks_are_those_of_tensorflow(
    parts: list[tuple[int, int, str]], counts: list[int], chips: int, cores: int
) -> None:
    """Also beyond its bounds: of rows, of bytes on a chip, of activations on a SparseCore."""
    given_parts = [Part(f"t{number}", *each, slots=0) for number, each in enumerate(parts)]
    vectors = {
        f"f{9 - n}": Vectors(each.name, count, 1)
        for n, (each, count) in enumerate(zip(given_parts, counts, strict=False))
    }
    config = features_of(given_parts, vectors)
    tables = list({id(each.table): each.table for each in config.values()}.values())
    theirs = tpu_embedding_v3._stack_tables_with_same_table_dim_and_optimizer(
        tables, sorted(config.items()), chips, cores
    )
    ours = stacked(given_parts, vectors, Chips(chips, cores))
    assert [stack.name for stack in ours] == list(theirs.stacked_table_to_tables)
    for stack in ours:
        for number, part in enumerate(stack.parts):
            layout = theirs.table_to_layout[part.name]
            assert layout.stacked_table_name == stack.name
            assert layout.sparse_core_shard_row_offset * chips * cores == stack.offsets[number]
            assert layout.sparse_core_shard_rotation == stack.rotations[number]
            assert layout.unsharded_padded_shape[1] == stack.width
            assert layout.total_rows_per_sparse_core_shard * chips * cores == stack.rows


@pytest.fixture(scope="module", params=[0.0, 0.1], ids=["plain", "decayed"])
def prepared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    words = ["freeze=rows", "freeze.rows=[[0,5]]", "optimizer=sgd", f"optimizer.weight_decay_factor={request.param}"]
    return prepare(embexp.compose([*DATA, *V2, *words, f"output.cache={tmp_path_factory.mktemp('cache')}"]))


def decays_of(prepared: Prepared, stack: Stack, chips: Chips) -> dict[str, DistinctRows]:
    """The vectors of parts with weight decay, by part."""
    lists = prepared.data.scan.examples.lists
    return {
        part.name: distinct_rows(
            part.rows,
            [
                Vectors(part.name, 64, BAG if name in lists else 1, bag=name in lists)
                for name in prepared.spec.features_of(part.name)
            ],
            Limits(),
            chips,
        )
        for part in stack.parts
        if part.decayed
    }


def ids_of_part(prepared: Prepared, name: str, part: str, examples: np.ndarray) -> Any:
    """The ids of a feature in a part of its table, as a TPU gets them."""
    table = prepared.spec.features[name].table
    column = prepared.data.scan.examples.lists.get(name)
    ids = [
        [prepared.data.scan.examples.column(name, examples)[n]]
        if column is None
        else column.values[column.splits[example] : column.splits[example + 1]]
        for n, example in enumerate(examples)
    ]
    frozen = prepared.tables.policies[table].frozen
    assert frozen is not None
    mine = frozen == (part != table)
    return tf.ragged.constant([[int(mine[:id_].sum()) for id_ in own if mine[id_]] for own in ids], dtype=tf.int32)


def test_ids_are_those_that_tensorflow_counts(prepared: Prepared) -> None:
    plan = sparse_core_plan.plan(
        prepared.spec, prepared.tables.rows, {"user": 16, "item": 16}, prepared.tables.policies, prepared
    )
    assert plan is not None
    assert [stack.name for stack in plan.stacks] == ["item_user", "item/fixed_user/fixed"]
    batch = np.arange(128)
    for stack in plan.stacks:
        decays = decays_of(prepared, stack, plan.chips)
        assert bool(decays) == bool(prepared.spec.optimizer.weight_decay_factor and "fixed" not in stack.name)
        ids, distinct, _, for_decay = sparse_core_plan.of_batch(prepared, stack, decays, batch, plan.chips)
        assert for_decay == 0
        named = {
            name + "/fixed" * part.name.endswith("/fixed"): (name, part)
            for part in stack.parts
            for name, feature in prepared.spec.features.items()
            if part.name.removesuffix("/fixed") == feature.table
        }
        tables = {
            part.name: api.TableConfig(part.rows, part.dim, combiner="sum", name=part.name) for part in stack.parts
        }
        config = {key: api.FeatureConfig(tables[part.name], output_shape=[64]) for key, (_, part) in named.items()}
        given = [
            {key: ids_of_part(prepared, name, part.name, own) for key, (name, part) in named.items()}
            for own in np.split(batch, 2)
        ]
        for name, own in decays.items():
            looked_up = [key for key, (_, part) in named.items() if part.name == name]
            decay = SparseCoreDecay(name, name, looked_up, SGD(), own)
            config[decay.key] = api.FeatureConfig(tables[name], output_shape=[own.count])
            dealt = decay.deal([ids[key].values for ids in given for key in looked_up])
            for ids_of_chip, each in zip(given, dealt, strict=True):
                ids_of_chip[decay.key] = each
        with embexp.tpu_simulator(cores=2, embedding_feature="V2"):
            counted = [
                api.TPUEmbeddingV2.compute_sparse_core_stats(
                    own,
                    config,
                    num_tpu_chips=2,
                    optimizer=api.SGD(0.5),
                )
                for own in given
            ]
        assert ids == max(int(most[stack.name]) for most, _ in counted)
        assert distinct == max(int(most[stack.name]) for _, most in counted)


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert commands.main(["plan", *DATA, *words]) == 0
    return capsys.readouterr().out


def test_plan_shows_stacks_and_what_batches_bring(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cache = f"output.cache={tmp_path}"
    found = shown(capsys, "--scan", *V2, cache)
    assert "SparseCores: 2 chips with 4 each" in found
    [line] = [line for line in found.splitlines() if line.startswith("item, user ")]
    assert line.split()[2:4] == ["192", "16"]
    assert "sufficient: strategy.max_ids_per_table=" in found
    assert "warning:" not in found
    few = shown(capsys, "--scan", *V2, cache, "strategy.max_ids_per_table=2", "strategy.max_unique_ids_per_table=1")
    assert "warning: strategy.max_ids_per_table: batches send more" in few
    assert "warning: strategy.max_unique_ids_per_table: batches send more" in few
    assert " of 2 " in few


def test_plan_without_data_and_of_a_tpu(capsys: pytest.CaptureFixture[str]) -> None:
    found = shown(capsys, V2[0].removesuffix("_simulator"), V2[1])
    assert "SparseCores: 4 chips with 2 each (assumed, those of a TPU v6e-4)" in found
    assert "sufficient:" not in found
    assert "SparseCores" not in shown(capsys, V2[0])


@pytest.mark.parametrize("prepared", [0.1], indirect=True)
def test_plan_warns_of_too_little_room_for_decay(prepared: Prepared, capsys: pytest.CaptureFixture[str]) -> None:
    """A batch looks up the five trainable items, where two chips have a vector each for them."""
    chips, stack = Chips(2, 4), Stack(16)
    stack.add(Part("item", 5, 16, "sgd", 0, decayed=True), 64, 0, chips)
    for count, words in ((4, []), (1, ["warning: strategy.max_ids_per_chip_per_sample: batches send more, "])):
        room = DistinctRows(chips, count, enough=False, single=0, bags=1)
        own = PartitionedIds(*sparse_core_plan.of_batch(prepared, stack, {"item": room}, np.arange(128), chips))
        assert own.for_decay == (8 if words else 0)
        limits = SettledLimits({"item": 1000}, {"item": 1000}, 1000)
        SparseCorePlan(chips, False, [stack], limits, {"item": own}).show(Console())
        warned = [line for line in capsys.readouterr().out.splitlines() if line.startswith("warning")]
        assert len(warned) == len(words)
        assert all(line.startswith(start) for line, start in zip(warned, words, strict=True))
