"""Writes docs/tpu_fixtures.md from the list of cases: `python -m tests.strategies.tpu_fixtures.page`."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from tests.strategies.tpu_fixtures.cases import CASES, Case, Outcome

PAGE = Path(__file__).resolve().parents[3] / "docs" / "tpu_fixtures.md"

HEAD = """# TensorFlow's TPU embedding tests on the simulated TPU

TensorFlow tests its TPU embedding API on real TPUs, in `tensorflow/python/tpu/tests`.
Here the same cases run on a simulated TPU of two cores, with the real `TPUEmbedding` and `TPUStrategy`.
Tables, ids and expected values are those of the originals, met to 1e-4. The code is our own.
Where an original only runs a step, the test here also checks the values.

The tests are in `tests/strategies/tpu_fixtures`. This page is written from their list of cases.
A test compares the two.

"""

TAIL = """
Not part of the table: `tpu_embedding_v3_*_test.py` in the folder above, which test SparseCore, other hardware with
another API; and `tpu_embedding_for_serving_test.py` there, which needs no TPU.
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
    counts = {outcome: sum(case.outcome is outcome for case in CASES) for outcome in Outcome}
    lines = [
        HEAD + f"{len(CASES)} cases: {counts[Outcome.PASSED]} passed, {counts[Outcome.FAILING]} failing, "
        f"{counts[Outcome.NOT_RUN]} not run.",
        "",
        "| original file | test | variants | cases | here | reason |",
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
