"""YAML files that would take all time or memory: refused by their events, with the line and what to do.

The bounds are compared with what PyYAML's own loader makes of files just below them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf

from embexp.config import composition, folders
from embexp.errors import ConfigError

LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]\n" for level in range(1, 9)
)
MERGED = "a0: &a0 {x: 1, y: 2}\n" + "".join(
    f"a{level}: &a{level} {{<<: [{', '.join([f'*a{level - 1}'] * 10)}]}}\n" for level in range(1, 9)
)
NINES = "9" * 5000
REFUSED = {
    "aliases of nine levels of ten": (LAUGHS, 5, "at most 10,000 values after aliases"),
    "merged aliases": (MERGED, 6, "10,000 values"),
    "an alias of itself": ("model: &m\n  top: *m\n", 3, "contains itself"),
    "five hundred brackets": (f"model: {'[' * 500}{']' * 500}\n", 2, "nested at most 32 levels deep"),
    "a hundred thousand brackets": (f"model:\n  {'[' * 100_000}\n", 3, "nested at most 32 levels deep"),
    "nested dashes": (f"model:\n  {'- ' * 500}x\n", 3, "nested at most 32 levels deep"),
    "five thousand digits": (f"seed: {NINES}\n", 2, "at most 100 digits, but this one has 5,000"),
    "five thousand hexadecimal digits": (f"seed: 0x{NINES}\n", 2, "at most 100 digits, but this one has 5,000"),
    "five thousand sexagesimal digits": (f"seed: 1{':59' * 2500}\n", 2, "at most 100 digits"),
    "a number by its tag": (f'seed: !!int "{NINES}"\n', 2, "at most 100 digits"),
    "a hundred thousand values": (f"model: [{'1, ' * 100_000}]\n", 2, "at most 10,000 values"),
    "more than four megabytes": (f"name: {'x' * (4 << 20)}\n", 1, "at most 4,194,304 bytes"),
    "a truth by its tag": ("seed: !!bool maybe\n", 2, "'maybe' is neither true nor false"),
    "a date by its tag": ("seed: !!timestamp never\n", 2, "the tag !!timestamp"),
    "a set": ("seed: !!set {a, b}\n", 2, "the tag !!set"),
}  # fmt: skip
READ = {
    "aliases": "a: &a {dim: 16, words: &words [a, b]}\nb: *a\nc: {<<: *a, dim: 8}\nd: [*words, *words]\n",
    "digits": f"a: {'9' * 100}\nb: '{NINES}'\nc: {'f' * 5000}\nd: 0x{'f' * 90}\n",
    "nesting": f"a: {'[' * 31}{']' * 31}\n",
    "tags": "a: !!str 5\nb: !!float 5\nc: !!int '5'\nd: !!bool yes\ne: !!null ''\nf: !!seq [!!map {}]\n",
    "values": f"a: [{'1, ' * 9_000}]\n",
    "nothing": "",
    "a byte order mark": "\ufeffa: 1\n",
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_config_that_would_take_all_time_is_refused_with_its_line(case: str, tmp_path: Path) -> None:
    text, line, rule = REFUSED[case]
    file = tmp_path / "mine.yaml"
    file.write_text(f"defaults: [config, _self_]\n{text}", encoding="utf-8")
    with pytest.raises(ConfigError) as raised:
        composition.job(composition.loader(tmp_path, "mine"), [])
    [fault] = raised.value.faults
    assert rule in fault.rule
    assert fault.remedy
    assert fault.source == f"{file}:{line}"


def test_a_choice_that_would_take_all_time_is_refused_as_the_choice(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model/mine.yaml").write_text(f"kind: mlp\n{LAUGHS}")
    (tmp_path / "optimizer").mkdir()  # this one is named by a file, not by the command line
    (tmp_path / "optimizer/other.yaml").write_text(f"kind: adam\n{LAUGHS}")
    (tmp_path / "main.yaml").write_text("defaults: [config, {override optimizer: other}, _self_]\n")
    for name, overrides in (("config", ["model=mine"]), ("main", [])):
        with pytest.raises(ConfigError, match="at most 10,000 values") as raised:
            composition.job(composition.loader(tmp_path, name), overrides)
        assert len(raised.value.faults) == 1


@pytest.mark.parametrize("case", READ)
def test_what_is_within_the_bounds_is_read_as_by_pyyaml(case: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(READ[case], encoding="utf-8")
    assert folders.load(file) == yaml.safe_load(READ[case])


def test_the_completion_of_a_shell_skips_such_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(LAUGHS)
    assert folders.keys_of(file) == []


@pytest.mark.parametrize(
    ("override", "path"),
    [
        (f"seed={NINES}", "seed"),
        (f"+seed=-{NINES}", "seed"),
        (f"model.top=[1,{NINES}]", "model.top"),
        (f"seed=range(0,{NINES})", "seed"),
    ],
)
def test_an_override_of_five_thousand_digits(override: str, path: str) -> None:
    with pytest.raises(ConfigError) as raised:
        composition.job(composition.loader(), [override])
    [fault] = raised.value.faults
    assert (fault.path, fault.remedy) == (path, "quote it if it is a text")
    assert "at most 100 digits, but this one has 5,000" in fault.rule
    assert len(str(fault)) < 300


def test_digits_of_a_text_are_no_number() -> None:
    found: Any = composition.job(composition.loader(), [f"name='{NINES}'"]).composition.container["name"]
    assert found == NINES


_REFERENCE = "'${b%d}'"


@pytest.mark.parametrize(
    "lines",
    [
        ["b0: x", *(f"b{level}: {f'${{b{level - 1}}}' * 10}" for level in range(1, 10))],
        ["b0: {x: 1}", *(f"b{level}: {{l: '${{b{level - 1}}}', r: '${{b{level - 1}}}'}}" for level in range(1, 40))],
        ["b0: x", *(f"b{level}: [{', '.join([_REFERENCE % (level - 1)] * 10)}]" for level in range(1, 10))],
    ],
)
def test_interpolations_that_stand_for_a_text_of_a_gigabyte(lines: list[str], tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("\n".join(["defaults: [config, _self_]", *lines]))
    with pytest.raises(ConfigError, match="its interpolations expand to more than 10,000 values"):
        composition.job(composition.loader(tmp_path, "mine"), [])


def test_interpolations_that_lead_back_to_themselves_are_no_matter_of_number(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("defaults: [config, _self_]\nseed: ${seeds}\nseeds: ${seed}\n")
    with pytest.raises(ConfigError, match="it can't be resolved"):
        composition.job(composition.loader(tmp_path, "mine"), [])


@pytest.mark.parametrize("key", ["''", "' '"])
def test_a_defaults_list_that_names_no_group(key: str, tmp_path: Path) -> None:
    """Found by `make fuzz`."""
    (tmp_path / "mine.yaml").write_text(f"defaults: [config, {{{key}: x}}, _self_]\n")
    assert folders.outline(composition.loader(tmp_path, "mine").folders, "mine").choices["strategy"] == "cpu"
    with pytest.raises(ConfigError):
        composition.job(composition.loader(tmp_path, "mine"), [])


def test_libyaml_and_omegaconf_read_the_same_in_all_shipped_files() -> None:
    """Composing reads shipped files with libyaml, which takes `1e-3` for a text, and the last of two keys."""
    for file in sorted(folders.find().shipped.rglob("*.yaml")):
        content, package = folders.of_text(file.read_text(encoding="utf-8"))
        assert repr(content) == repr(OmegaConf.to_container(OmegaConf.load(file))), file
        assert package == folders.package_of(file)
