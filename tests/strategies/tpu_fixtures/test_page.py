"""The list of cases, the tests that take their cases from it, and the page written from it agree."""

from __future__ import annotations

import importlib
from collections import Counter
from pathlib import Path

from tests.strategies.tpu_fixtures import page
from tests.strategies.tpu_fixtures.cases import CASES, Case, Outcome

FOLDER = Path(__file__).parent


def cases_with_a_test() -> Counter[Case]:
    """The cases that the test functions of this folder are parametrised with."""
    found: Counter[Case] = Counter()
    for file in sorted(FOLDER.glob("test_*.py")):
        module = importlib.import_module(f"tests.strategies.tpu_fixtures.{file.stem}")
        for name, function in vars(module).items():
            if not name.startswith("test_"):
                continue
            for mark in getattr(function, "pytestmark", []):
                if mark.name == "parametrize" and mark.args[0] == "case":
                    found.update(parameter.values[0] for parameter in mark.args[1])
    return found


def test_every_case_has_one_test_or_a_reason() -> None:
    assert cases_with_a_test() == Counter(case for case in CASES if case.outcome is not Outcome.NOT_RUN)
    for case in CASES:
        assert bool(case.reason) == (case.outcome is not Outcome.PASSED), case


def test_names_are_unique() -> None:
    assert len({case.name for case in CASES}) == len(CASES)


def test_page_is_that_of_the_list() -> None:
    assert page.PAGE.read_text(encoding="utf-8") == page.text(), "python -m tests.strategies.tpu_fixtures.page"
