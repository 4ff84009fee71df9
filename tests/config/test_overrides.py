"""Whatever Hydra complains of, the user is told by a fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from embexp.config import composition, overrides
from embexp.config.loader import Loader
from embexp.errors import ConfigError

FILES: dict[str, tuple[bytes, str]] = {
    "defaults that are no list": (
        b"defaults: 5\n",
        "its defaults must be a list of choices, but they are 5",
    ),
    "a default that is a number": (b"defaults: [5]\n", "its defaults must be a list of choices, but they are [5]"),
    "a default of two groups": (b"defaults: [{a: 1, b: 2}]\n", "Too many keys in default item"),
    "a default of no group": (
        b"defaults: [{'': a}]\n",
        "the defaults list of one of them has an entry without a group",
    ),
    "a file in itself": (b"defaults: ['/experiment/mine']\n", "its defaults include the file itself"),
    "a value in itself": (b"x: &a [*a]\n", "one of its values contains itself"),
    "no UTF-8": (b"\xff\xfe\x00a", "it is not UTF-8"),
    "no YAML": (b"a: {b: [}\n", "it is not valid YAML: expected the node content"),
    "no mapping": (b"5\n", "a config must be a mapping of keys, but this is 5"),
    "code": (b"x: !!python/object:os.system {}\n", "it has the tag !!python/object:os.system"),
}


@pytest.mark.parametrize("case", FILES)
def test_a_broken_file_of_the_user(case: str, tmp_path: Path) -> None:
    content, words = FILES[case]
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        composition.candidate(composition.loader(tmp_path), ["experiment=mine", "seed=-1"], look_at_data=False)
    found = {fault.path: fault.rule for fault in caught.value.faults}
    assert any(words in rule for rule in found.values()), found
    assert "seed" in found


DEEP = 200
WORDS = {
    "a choice that is a number": ("hydra/launcher=1", "a choice must be the name of a file, or a list of names"),
    "choices that are numbers": ("hydra/job_logging=[1]", "a choice must be the name of a file, or a list of names"),
    "a list of lists": ("optimizer=[[a]]", "a choice must be the name of a file, or a list of names"),
    "a removed number": ("~optimizer=1", "a choice must be the name of a file, or a list of names"),
    "a place for files of no known kind": ("hydra.searchpath=[nope://]", "configs come from"),
    "lists in lists": (f"model.top={'[' * DEEP}{']' * DEEP}", "values may be nested at most 32 levels deep"),
    "lists that the parser gives up on": (
        f"model.top={'[' * 800}{']' * 800}",
        "values may be nested at most 32 levels deep",
    ),
    "mappings in mappings": (
        f"train={'{a:' * DEEP}1{'}' * DEEP}",
        "values may be nested at most 32 levels deep",
    ),
    "a key too deep": (f"++{'.'.join('a' * DEEP)}=1", "values may be nested at most 32 levels deep"),
    "a key too long": (f"{'a' * 5000}=1", "config has no key 'aaa"),
}


@pytest.mark.parametrize("case", WORDS)
def test_what_hydra_would_stumble_over(case: str) -> None:
    override, words = WORDS[case]
    with pytest.raises(ConfigError) as caught:
        composition.candidate(composition.loader(), [override, "seed=-1"], look_at_data=False)
    assert any(words in fault.rule for fault in caught.value.faults), caught.value
    assert "seed" in {fault.path for fault in caught.value.faults}


def test_a_fault_of_the_program_is_not_taken_for_one_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise KeyError("a mistake of ours")

    for place, name, words in ((Loader, "compose", ["optimizer=sgd"]), (overrides, "is_present", ["seed=1"])):
        with monkeypatch.context() as patch:
            patch.setattr(place, name, broken)
            with pytest.raises(KeyError, match="a mistake of ours"):
                composition.candidate(composition.loader(), words, look_at_data=False)
