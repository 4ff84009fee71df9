"""The remedy of each recorded mistake, applied to its command, mends it."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from embexp.cli import arguments
from embexp.cli.arguments import Parser, add_config_arguments
from embexp.cli.commands import HelpShown
from embexp.config import composition
from embexp.config.loader import Loader
from embexp.errors import ConfigError, Fault, UsageError
from tests.mistakes.cases import HERE, Mistake, mistakes
from tests.thoroughness import thorough

MISTAKES = mistakes()
WITHOUT: dict[str, list[str]] = yaml.safe_load((HERE / "without_fix.yml").read_text(encoding="utf-8"))
"""Mistakes without a fix, by the reason."""
FIXED = [name for name in MISTAKES if not any(name in names for names in WITHOUT.values())]
_KEY = re.compile(r"[+~]*([^=:]*)")
_ROUNDS = 3
"""A remedy may show a fault that another one hid."""


def key_of(word: str) -> str:
    """The key of an override, even of one that is none."""
    found = _KEY.match(word)
    assert found is not None
    return found[1]


def mended(words: Sequence[str], fix: Sequence[str]) -> list[str]:
    """A command line with the overrides of a fix instead of those with the same keys."""
    after = list(words)
    for line in fix:
        added = [line] if "=" in line or line.startswith("~") else []
        places = [place for place, word in enumerate(after) if key_of(word) == key_of(line)]
        broken = next(
            (run for run in _runs(after) if len(run) > 1 and "".join(after[run.start : run.stop]) == line), None
        )
        if broken is not None:
            after[broken.start : broken.stop] = [line]
        elif places:
            after = [word for place, word in enumerate(after) if place not in places]
            after[places[0] : places[0]] = added
        else:
            after += added or [f"~{line}"]
    return after


def _runs(words: Sequence[str]) -> list[range]:
    """Two or three words in a row."""
    return [
        range(start, stop) for start in range(len(words)) for stop in range(start + 2, min(start + 4, len(words) + 1))
    ]


def faults(loader: Loader, words: Sequence[str]) -> list[Fault]:
    """All faults of a command line."""
    try:
        composition.job(loader, words, look_at_data=False)
    except ConfigError as error:
        return list(error.faults)
    return []


@pytest.fixture(scope="module")
def shipped() -> Loader:
    return composition.loader()


def options_of(mistake: Mistake) -> argparse.Namespace | None:
    """The options of a run or a plan; None: it is another command, or a sweep, or has no such options."""
    command, *rest = mistake.arguments or [""]
    if command not in ("run", "plan"):
        return None
    parser = Parser(command, "usage: embexp run")
    add_config_arguments(parser)
    try:
        options = parser.parse(rest)
        return None if arguments.is_multirun(options) else options
    except (UsageError, HelpShown):
        return None


def fixed(mistake: Mistake, shipped: Loader) -> bool:
    """Whether a mistake has a fix; asserts that each one mends its fault, and leads to no other."""
    if (options := options_of(mistake)) is None:
        return False
    own = options.config_dir or options.config_path
    words = options.overrides
    try:
        loader = arguments.config_loader(options) if own or options.config_name else shipped
        before = faults(loader, words)
    except UsageError:
        return False
    if not any(fault.fix for fault in before):
        return False
    for _ in range(_ROUNDS):
        if not any(fault.fix for fault in before):
            break
        known = {(fault.path, fault.rule) for fault in before if fault.fix}
        for fault in before:
            words = mended(words, fault.fix)
        before = faults(loader, words)
        again = [str(fault) for fault in before if (fault.path, fault.rule) in known]
        assert not again, f"{words} still has:\n" + "\n".join(again)
    return True


def test_at_least_sixty_have_a_fix() -> None:
    assert len(FIXED) >= 60
    assert {name for names in WITHOUT.values() for name in names} < set(MISTAKES)


@pytest.mark.parametrize("name", FIXED)
def test_a_remedy(name: str, shipped: Loader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if MISTAKES[name].thorough and not thorough():
        pytest.skip("in every run, one like it: see `make test-thorough`")
    monkeypatch.chdir(tmp_path)
    MISTAKES[name].prepare(tmp_path)
    assert fixed(MISTAKES[name], shipped)


@pytest.mark.parametrize("word", ["~model=mlp", "~optimizer=adam", "~init=constant"])
def test_the_remedy_of_a_removal_of_another_choice_leads_to_no_fault(word: str, shipped: Loader) -> None:
    [fault] = faults(shipped, [word])
    group, _, choice = word.removeprefix("~").partition("=")
    assert fault.remedy is not None
    assert f"{group}=…" in fault.remedy
    assert faults(shipped, mended([word], fault.fix)) == []
    assert faults(shipped, [f"{group}={choice}"]) == []
