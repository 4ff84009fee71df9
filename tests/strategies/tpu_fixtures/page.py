"""Writes docs/tpu_fixtures.md from the list of cases: `python -m tests.strategies.tpu_fixtures.page`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from tests.strategies.tpu_fixtures.cases import CASES, Case, Outcome

PAGE = Path(__file__).resolve().parents[3] / "docs" / "tpu_fixtures.md"

HEAD = """# TensorFlow's TPU tests on the simulated TPU

The simulated TPU has not been compared with a real TPU, so how far can you trust it? It passes TensorFlow's own tests
of its TPU embedding APIs, and of what a TPU's host computes for a step. This page lists them.

TensorFlow runs these tests on real TPUs. They are in `tensorflow/python/tpu/tests`,
`tensorflow/python/tpu/tpu_embedding_v3_*test.py` and `tensorflow/python/tpu/tpu_outside_compilation_test.py`.
Our versions, in `tests/strategies/tpu_fixtures`, use the real `TPUEmbedding`, `TPUEmbeddingV2` and `TPUStrategy` on
two simulated cores, or on one or two chips with four SparseCores each. The code is our own. Tables, ids and expected
values are those of the originals, with a tolerance of 1e-4. If an original only runs a step, our test also checks
the values.

"""

TAIL = """
Three files are not in the list, because their tests need no TPU: `tpu_embedding_for_serving_test.py`,
`tpu_embedding_v3_utils_test.py` and `tpu_embedding_v3_checkpoint_adapter_test.py`.
"""


def _tree() -> Iterator[str]:
    """The original files, each with its tests, their variants, and what does not pass."""
    for source, of_file in groupby(CASES, key=lambda case: case.source):
        cases = list(of_file)
        yield f"{source}: {len(cases)}"
        for (test, outcome, reason), group in groupby(cases, key=lambda case: (case.test, case.outcome, case.reason)):
            result = "" if outcome is Outcome.PASSED else f" ({outcome.value}: {reason})"
            yield f"    {test}{_variants(list(group))}{result}"


def _variants(cases: list[Case]) -> str:
    names = [case.variant for case in cases if case.variant]
    if len(names) > 8:
        return f": {len(names)} variants"
    return f": {', '.join(names)}" if names else ""


def text() -> str:
    """The whole page."""
    second = sum(case.source.startswith("tpu_embedding_v3") for case in CASES)
    counts = {outcome: sum(case.outcome is outcome for case in CASES) for outcome in Outcome}
    summary = (
        f"Of {len(CASES)} cases, {counts[Outcome.PASSED]} pass, {counts[Outcome.FAILING]} fail, and "
        f"{counts[Outcome.NOT_RUN]} are not run. The {second} cases of `tpu_embedding_v3_*test.py` test SparseCores\n"
        "(`EmbeddingFeature.V2`). The others test the first generation of embedding hardware (`EmbeddingFeature.V1`),\n"
        "or both. Below, each file is followed by its number of cases, and by its tests with their variants:\n"
    )
    return "\n".join([HEAD + summary, "```text", *_tree(), "```", TAIL])


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
