"""What strategy=multi_worker does not take is a fault of the config, with its remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

import embexp
from embexp.errors import ConfigError
from embexp.specs import footprint
from embexp.specs.strategies import CPU, MultiWorker
from tests import planted_triples

_ITEMS = ("tables.item.storage=mirrored", "tables.item_bias.storage=mirrored")


def faults(*overrides: str) -> dict[str, str]:
    """Config path and text of each fault."""
    with pytest.raises(ConfigError) as error:
        embexp.compose(["strategy=multi_worker", *overrides])
    return {fault.path: str(fault) for fault in error.value.faults}


@pytest.mark.parametrize(
    ("overrides", "path", "said"),
    [
        (["train.batch_size=2", "strategy.workers=3"], "train.batch_size", "set it to 3 or more"),
        (["runtime=session"], "runtime", "set strategy=cpu, or set runtime=function"),
        (
            ["experiment=recommendation", "data.path=.", "loss=softmax", "tables.item_bias.storage=mirrored"],
            "loss",
            "set tables.item.storage=mirrored, or choose loss=sampled_softmax",
        ),
        (["strategy=mirrored", "tables.item.storage=mirrored"], "tables.item.storage", "or set strategy=multi_worker"),
        (["strategy.block_rows=12"], "strategy", "block_rows must be a power of two"),
        (["strategy.addresses=[a:1]"], "strategy", "give one address per worker"),
        (["strategy.addresses=[a,b:2]"], "strategy", "host:port, such as node1:2222"),
        (["strategy.workers=0"], "strategy.workers", "at least 1"),
    ],
)
def test_fault(overrides: list[str], path: str, said: str) -> None:
    found = faults(*overrides)
    assert path in found, found
    assert said in found[path]


def test_a_loss_over_all_entities() -> None:
    found = faults("experiment=knowledge_graph", "data.path=.", "data.negatives=null")
    assert "set tables.entity.storage=mirrored, or data.negatives to a number" in found["data.negatives"]


@pytest.mark.parametrize(
    "overrides",
    [
        ["experiment=knowledge_graph", "data.negatives=null", "tables.entity.storage=mirrored"],
        ["experiment=recommendation", "data.timestamp=time", "loss=softmax", *_ITEMS],
        ["experiment=recommendation", "data.timestamp=time", "loss=sampled_softmax", "loss.negatives=null"],
    ],
)
def test_what_a_step_compares_may_be_mirrored_or_of_the_batch(overrides: list[str], tmp_path: Path) -> None:
    data = tmp_path / "data.csv"
    data.write_text("user,item,time\na,b,1\n")
    if "experiment=knowledge_graph" in overrides:
        data = planted_triples.divided(tmp_path / "graph", planted_triples.circle(30), test=20, valid=20)
    embexp.compose(["strategy=multi_worker", f"data.path={data}", *overrides])


@pytest.mark.parametrize(
    ("strategy", "environment", "share"),
    [
        (CPU(), {"SLURM_NTASKS": "4"}, 1),
        (MultiWorker(workers=4), {}, 1),  # all on this machine
        (MultiWorker(workers=4), {"SLURM_NTASKS": "4"}, 1 / 4),
        (MultiWorker(workers=4), {"TF_CONFIG": "{}"}, 1 / 4),
        (MultiWorker(workers=3, addresses=("a:1", "a:2", "b:1")), {}, 1 / 3),
        (MultiWorker(workers=2, addresses=("a:1", "a:2")), {}, 1),
    ],
)
def test_a_machine_needs_memory_for_its_workers_rows(
    strategy: CPU | MultiWorker, environment: dict[str, str], share: float
) -> None:
    assert footprint.rows_here(strategy, environment) == share


def test_a_table_may_be_larger_than_one_machine() -> None:
    rows = "model=mlp", "data.users=1000000000", "tables.user.dim=64"  # 512 GB with slots
    assert "needs at least" in str(faults(*rows, "strategy.workers=1000"))
    addresses = ",".join(f"n{number}:1" for number in range(1000))
    settings = [*rows, "strategy.workers=1000", "train.batch_size=1024", f"strategy.addresses=[{addresses}]"]
    embexp.compose(["strategy=multi_worker", *settings])


def test_each_worker_has_a_mirrored_table_whole() -> None:
    """A table of 10^9 rows of 64 numbers with one slot, 512 GB, on each of so many machines, or all on this one."""
    rows = "model=mlp", "data.users=1000000000", "tables.user.dim=64", "tables.user.storage=mirrored"
    found = faults(*rows, "strategy.workers=2")
    assert "1.0 TB" in str(found)
    assert "512.0 GB" in str(faults(*rows, "strategy.workers=2", "strategy.addresses=[a:1,b:1]"))


def test_one_worker_takes_everything() -> None:
    spec = embexp.compose(["strategy=multi_worker", "strategy.workers=1", "runtime=session"])
    assert isinstance(spec.strategy, MultiWorker)
