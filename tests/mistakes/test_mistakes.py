"""Wrong configs, files and command lines: each is told with path, value, rule and remedy, and leaves nothing behind."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from embexp.cli import arguments, commands
from embexp.cli.commands import plan, run
from embexp.config import composition
from embexp.config.loader import Loader
from tests.mistakes.cases import Mistake, mistakes
from tests.thoroughness import thorough

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
