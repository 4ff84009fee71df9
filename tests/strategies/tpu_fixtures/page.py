"""Writes docs/tpu_fixtures.md from the list of cases: `python -m tests.strategies.tpu_fixtures.page`."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from tests.strategies.tpu_fixtures.cases import CASES, Case, Outcome

PAGE = Path(__file__).resolve().parents[3] / "docs" / "tpu_fixtures.md"

HEAD = """# TensorFlow's TPU tests on the simulated TPU

This page lists TensorFlow's tests of its TPU embedding APIs, and of what a TPU's host computes for a step, and
which of them pass on the simulated TPU. TensorFlow runs them on real TPUs, in `tensorflow/python/tpu/tests`,
`tensorflow/python/tpu/tpu_embedding_v3_*test.py` and `tensorflow/python/tpu/tpu_outside_compilation_test.py`.
Our versions run on a simulated TPU of two cores, or of one or two chips with four SparseCores each,
with the real `TPUEmbedding`, `TPUEmbeddingV2` and `TPUStrategy`. They use the tables, ids and expected values
of the originals, with a tolerance of 1e-4; the code is our own. If an original only runs a step, our test also
checks the values.

The tests are in `tests/strategies/tpu_fixtures`. This page is generated from their list of cases, and a test
checks that it is up to date. The simulation has not been compared with a real TPU.

"""

TAIL = """
The table does not include tests that need no TPU: `tpu_embedding_for_serving_test.py`,
`tpu_embedding_v3_utils_test.py` and `tpu_embedding_v3_checkpoint_adapter_test.py`.
"""


def _rows() -> list[tuple[str, str, str, str, str]]:
    rows = []
    for (source, test, outcome, reason), group in groupby(
        CASES, key=lambda case: (case.source, case.test, case.outcome, case.reason)
    ):
        rows.append((source, test, _variants(list(group)), outcome.value, reason))
    return rows


def _variants(cases: list[Case]) -> str:
    names = [case.variant for case in cases if case.variant]
    if len(names) > 8:
        return f"{len(names)} variants"
    return ", ".join(names)


def text() -> str:
    """The whole page."""
    second = sum(case.source.startswith("tpu_embedding_v3") for case in CASES)
    counts = {outcome: sum(case.outcome is outcome for case in CASES) for outcome in Outcome}
    lines = [
        HEAD + f"{len(CASES)} cases: {counts[Outcome.PASSED]} passed, {counts[Outcome.FAILING]} failing, "
        f"{counts[Outcome.NOT_RUN]} not run.",
        f"{second} of them are of SparseCores (`EmbeddingFeature.V2`): those in `tpu_embedding_v3_*test.py`.",
        "The others are of the first generation of embedding hardware (`EmbeddingFeature.V1`), or of both.",
        "",
        "| original file | test | variants | cases | result | reason |",
        "|---|---|---|---|---|---|",
    ]
    for source, test, variants, outcome, reason in _rows():
        number = sum(
            (case.source, case.test, case.outcome.value, case.reason) == (source, test, outcome, reason)
            for case in CASES
        )
        lines.append(f"| `{source}` | `{test}` | {variants} | {number} | {outcome} | {reason} |")
    return "\n".join(lines) + "\n" + TAIL


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
