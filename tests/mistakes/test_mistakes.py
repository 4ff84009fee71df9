"""Wrong configs, files and command lines: each is told with path, value, rule and remedy, and leaves nothing behind."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from embexp.cli import arguments, commands
from embexp.cli.commands import plan, run
from embexp.config import composition, folders
from embexp.config.loader import Loader
from embexp.errors import CombinationFault, ConfigError, Fault
from embexp.specs import fields
from embexp.specs.pretrained import Format
from tests.mistakes.cases import Mistake, mistakes
from tests.thoroughness import chosen, thorough

MISTAKES = mistakes()
_FAULT = re.compile(r"^  (\S.*? = .*?: .*)$", re.MULTILINE)


@pytest.fixture(autouse=True)
def light(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without TensorFlow, even if another test has imported it, and with one loader of the shipped configs."""
    own: Callable[..., Loader] = arguments.config_loader

    def loader(options: object) -> Loader:
        if getattr(options, "config_dir", None) or getattr(options, "config_path", None):
            return own(options)
        return composition.loader(None, getattr(options, "config_name", "config"))

    for module in (arguments, run, plan):
        monkeypatch.setattr(module, "config_loader", loader)
    monkeypatch.setitem(sys.modules, "tensorflow", None)


def test_there_are_two_hundred_and_some_of_every_kind_in_every_run() -> None:
    assert len(MISTAKES) >= 200
    kinds = {name.split(":")[0] for name in MISTAKES}
    assert {name.split(":")[0] for name, each in MISTAKES.items() if not each.thorough} == kinds
    assert all(each.says.strip() for each in MISTAKES.values())


LISTS = {
    **{group: tuple(found) for group, found in folders.find().choices.items()},
    "tasks": tuple(fields.names("tasks")),
    "formats of vectors": tuple(map(str, Format)),
    "exports": tuple(fields.names("exports")),
}
"""Choices to which a recipe, or a field, adds one."""


@pytest.mark.parametrize("group", LISTS)
def test_no_mistake_spells_a_list_of_choices(group: str) -> None:
    """Another choice would break it: a mistake says the beginning of such a line."""
    one = rf"({'|'.join(map(re.escape, LISTS[group]))})"
    lists = re.compile(rf"\b{one}, {one}, {one}\b")
    for name, mistake in MISTAKES.items():
        assert not [line for line in mistake.says.splitlines() if lists.search(line)], name


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mistake: Mistake = MISTAKES[name]
    if mistake.thorough and not thorough():
        pytest.skip("in every run, one like it: see `make test-thorough`")
    monkeypatch.chdir(tmp_path)
    mistake.prepare(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    assert commands.main(mistake.arguments) == mistake.status
    said = capsys.readouterr().err
    place = 0
    shipped = str(composition.loader().folders.shipped)
    for line in mistake.says.replace("{here}", str(tmp_path)).replace("{conf}", shipped).splitlines():
        place = said.find(line.strip(), place)
        assert place >= 0, f"{line!r} is not said, or not there:\n{said}"
    assert "Traceback" not in said
    found = _FAULT.findall(said)
    assert len(set(found)) == len(found)  # none is told twice
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("name", chosen(MISTAKES, [each for each, one in MISTAKES.items() if not one.thorough][::7]))
def test_other_sentences_decide_nothing_else(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    MISTAKES[name].prepare(tmp_path)
    before = _ended(MISTAKES[name], monkeypatch)
    numbers = itertools.count()
    for kind in (Fault, CombinationFault):
        monkeypatch.setattr(kind, "__init__", _with_other_sentences(kind.__init__, numbers))
    assert _ended(MISTAKES[name], monkeypatch) == before


def _ended(mistake: Mistake, monkeypatch: pytest.MonkeyPatch) -> tuple[int, list[tuple[object, ...]]]:
    """The exit status, and all but the sentences of the faults that are told."""
    told: list[tuple[object, ...]] = []
    own = ConfigError.__str__

    def text(error: ConfigError) -> str:
        told.extend((fault.path, fault.value, fault.code, fault.fix, type(fault)) for fault in error.faults)
        return own(error)

    with monkeypatch.context() as patched:
        patched.setattr(ConfigError, "__str__", text)
        return commands.main(mistake.arguments), told


def _with_other_sentences(own: Callable[..., None], numbers: Iterator[int]) -> Callable[..., None]:
    def init(
        fault: Fault, path: str, value: str, rule: str, remedy: str = "", *others: object, **named: object
    ) -> None:
        own(fault, path, value, f"sentence {next(numbers)}", remedy and f"help {next(numbers)}", *others, **named)

    return init
