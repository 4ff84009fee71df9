"""The fields of embexp keep the contract."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import ClassVar

from embexp.specs import fields
from tests.contracts.contract import Contract
from tests.contracts.field_cases import CASES

SHIPPED = tuple(name for name, case in CASES.items() if case.package is None)
"""Of the others, their own tests look at runs: tests/test_sequences.py."""


class TestFields(Contract):
    cases = CASES
    in_every_run: ClassVar[Mapping[str, Collection[str]]] = {
        **dict.fromkeys(("trains", "counts", "evaluates", "compares", "predicts"), SHIPPED),
        "exports": ("binary", "texts", "word pairs", "recommendation", "knowledge graph"),
        "resumes": ("recommendation",),
        "verifies": ("texts",),
        "sweeps": ("binary",),
        "freezes": ("knowledge graph",),
        "grows": ("texts",),
        "runs_elsewhere": ("knowledge graph",),
        "two_workers": ("recommendation",),
    }


def test_every_field_and_task_has_a_case() -> None:
    """Of those that embexp ships, and of the example of one that it does not; what is installed has its own tests."""
    remedy = "add a Case to CASES in tests/contracts/field_cases.py: overrides, and a function that writes its data"
    shipped = [each for each in fields.fields() if each.name in fields.SHIPPED]
    for each in shipped:
        known = {case.task for case in CASES.values() if case.field == each.name}
        assert known, f"field {each.name} has no case: {remedy}"
        for task in each.tasks:
            assert task in known, f"task {task} of field {each.name} has no case: {remedy}"
    of_shipped = {case.task for case in CASES.values() if case.package is None}
    assert of_shipped == {task for each in shipped for task in each.tasks}
    assert {case.field for case in CASES.values() if case.package is not None} == {"sequences"}
