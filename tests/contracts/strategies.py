"""The strategies that can run on a machine without accelerators."""

from __future__ import annotations

from typing import Any

import pytest

from embexp.specs.strategies import CPU, EmbeddingFeature, Mirrored, TPUSimulator
from tests.thoroughness import thorough

STRATEGIES: dict[str, Any] = {
    "cpu": CPU(),
    "mirrored, 2": Mirrored(replicas=2),
    "mirrored, 3": Mirrored(replicas=3),  # which share 8 examples unevenly
    "tpu_simulator, 1": TPUSimulator(cores=1),
    "tpu_simulator, 2": TPUSimulator(cores=2),
    "tpu_simulator, 2 on 2 hosts": TPUSimulator(cores=2, hosts=2),
    "tpu_simulator, 4 on 2 hosts": TPUSimulator(cores=4, hosts=2),
    "tpu_simulator, 2 of 2 SparseCores": TPUSimulator(cores=2, embedding_feature=EmbeddingFeature.V2, sparse_cores=2),
    "tpu_simulator, 4 on 2 hosts, of 1 SparseCore": TPUSimulator(
        cores=4, hosts=2, embedding_feature=EmbeddingFeature.V2, sparse_cores=1
    ),
}
"""By name. The more cores and hosts, the longer it takes to trace."""
SLOW = (
    "tpu_simulator, 1",
    "tpu_simulator, 2 on 2 hosts",
    "tpu_simulator, 4 on 2 hosts",
    "tpu_simulator, 4 on 2 hosts, of 1 SparseCore",
)
LIKE_ANOTHER = ("mirrored, 2", *SLOW)
"""Those whose code is that of another, with other numbers."""
LEFT_OUT = (
    "mirrored, 2",
    "tpu_simulator, 1",
    "tpu_simulator, 4 on 2 hosts",
    "tpu_simulator, 4 on 2 hosts, of 1 SparseCore",
)
"""Those that tests which take long leave to `make test-thorough`: KINDS has one like each."""
KINDS = ("cpu", "mirrored, 3", "tpu_simulator, 2 on 2 hosts", "tpu_simulator, 2 of 2 SparseCores")
"""One of each kind."""


def kinds() -> list[str]:
    """The strategies of tests that each take long: one of each kind, or all if they are to be thorough."""
    return list(STRATEGIES) if thorough() else list(KINDS)


def marked(names: list[str]) -> list[Any]:
    """Strategies as parameters of a test."""
    return [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in names]


NAMES = marked(list(STRATEGIES))


def skip_unless_thorough(strategy: str, first: bool) -> None:
    """Skips all but the first case of such a strategy: what the cases differ in is the same code on all of them."""
    if not thorough() and (strategy in LEFT_OUT or (strategy in LIKE_ANOTHER and not first)):
        pytest.skip("in every run, one case of this strategy: see `make test-thorough`")
