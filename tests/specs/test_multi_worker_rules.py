"""What strategy=multi_worker does not take is a fault of the config, with its remedy."""

from __future__ import annotations

import pytest

import embexp
from embexp.errors import ConfigError
from embexp.specs.strategies import MultiWorker


def faults(*overrides: str) -> dict[str, str]:
    """Config path and text of each fault."""
    with pytest.raises(ConfigError) as error:
        embexp.compose(["strategy=multi_worker", *overrides])
    return {fault.path: str(fault) for fault in error.value.faults}


@pytest.mark.parametrize(
    ("overrides", "path", "said"),
    [
        (["train.batch_size=2", "strategy.workers=3"], "train.batch_size", "set it to 3 or more"),
        (["runtime=session"], "runtime", "set strategy=cpu, or runtime=function"),
        (["tables.item.dtype=bfloat16"], "tables.item.dtype", "leave it float32"),
        (["tables.item.slot_dtype=bfloat16"], "tables.item.slot_dtype", "leave it float32"),
        (["tables.item.storage=memory_map"], "tables.item.storage", "leave it auto"),
        (["experiment=recommendation", "data.path=.", "loss=softmax"], "strategy", "choose strategy=cpu"),
        (["strategy.block_rows=12"], "strategy", "block_rows is a power of two"),
        (["strategy.addresses=[a:1]"], "strategy", "name one for each"),
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
    assert "set data.negatives to a number" in found["data.negatives"]


def test_one_worker_takes_everything() -> None:
    spec = embexp.compose(["strategy=multi_worker", "strategy.workers=1", "tables.item.dtype=bfloat16"])
    assert isinstance(spec.strategy, MultiWorker)
