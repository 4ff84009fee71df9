"""Every choice of a config names an implementation that exists."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from embexp.runs.experiment import Study
from embexp.specs import run, tasks, tracking
from embexp.specs.base import Choice
from embexp.specs.fields import imported
from embexp.specs.pretrained import Format


def choices(base: type[Choice] = Choice) -> Iterator[type[Choice]]:
    """All classes with a kind of their own."""
    for each in base.__subclasses__():
        kind = each.model_fields.get("kind")
        if each.__module__.startswith("embexp.") and kind is not None and not kind.is_required():
            yield each
        yield from choices(each)


IMPLEMENTED = sorted({*choices()} - {tracking.NoTracking}, key=lambda each: each.__qualname__)


def test_all_groups_are_there() -> None:
    assert run.RunSpec.model_fields  # which imports them all
    modules = {each.__module__.split(".")[2] for each in IMPLEMENTED}
    assert modules >= {"data", "freezing", "inits", "models", "optimizers", "strategies", "tracking"}


@pytest.mark.parametrize(
    "choice", sorted(IMPLEMENTED, key=lambda each: each.__qualname__), ids=lambda each: each.__name__
)
def test_a_choice_has_its_implementation(choice: type[Choice]) -> None:
    found = imported(choice.implementation)
    assert callable(found) or isinstance(found, Study)


@pytest.mark.parametrize("form", Format)
def test_a_format_has_its_reader(form: Format) -> None:
    assert callable(imported(form.reader.implementation))


@pytest.mark.parametrize(
    "name", sorted({name for each in tasks.every_metric() for name in (each.value, each.constant) if name})
)
def test_a_metric_has_its_functions(name: str) -> None:
    assert callable(imported(name))
