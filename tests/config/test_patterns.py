"""An entry with a pattern is the long form, in every respect."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hydra.core.plugins import Plugins
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from embexp.cli.commands.completion import candidates
from embexp.config import composition, folders, patterns, yaml_schema
from embexp.config.hydra_job import Callbacks
from embexp.config.overrides import sweep_lines
from embexp.config.patterns import BadPatternError, expanded, matches, names
from embexp.errors import ConfigError
from embexp.specs.optimizers import Adam
from embexp.sweeps import planning

HEAD = """\
# @package _global_
defaults:
  - override /data: csv
  - override /graph: null
  - override /model: mlp
name: own
task: binary
train: {epochs: 1}
data: {path: clicks.csv, label: click, timestamp: at, dense_features: DENSE}
"""
LONG = (
    HEAD.replace("DENSE", "[I1, I2]")
    + """
tables: {C1: {dim: 8}, C2: {dim: 4, combiner: sum}, C3: {dim: 8}}
features: {C1: {table: C1}, C2: {table: C2}, C3: {table: C3}}
"""
)
SHORT = {
    "braces": HEAD.replace("DENSE", '["I{1..2}"]')
    + 'tables: {"C{1..3}": {dim: 8}, C2: {dim: 4, combiner: sum}}\nfeatures: {"C{1..3}": {}}\n',
    "globs": HEAD.replace("DENSE", '["I*"]')
    + 'tables: {C2: {dim: 4, combiner: sum}, "C*": {dim: 8}}\nfeatures: {"C?":}\n',
    "everything else": HEAD.replace("DENSE", '["I*"]')
    + 'tables: {"*": {dim: 8}, "C{2,2}": {dim: 4, combiner: sum}}\nfeatures: {"*": {table: "{name}"}}\n',
    "own names": HEAD.replace("DENSE", "[I1, I2]")
    + "tables: {C1: {dim: 8}, C2: {dim: 4, combiner: sum}, C3: {dim: 8}}\n"
    + "features: {C1:, C2: {}, C3: {table: '???'}}\n",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of configs, beside a click log with columns click, at, I1, I2, C1, C2 and C3."""
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{number % 2},{number},1,{number},a{number % 3},b,c\n" for number in range(30))
    Path("clicks.csv").write_text("click,at,I1,I2,C1,C2,C3\n" + rows)
    (tmp_path / "conf" / "experiment").mkdir(parents=True)
    for name, text in {"long": LONG, **SHORT}.items():
        (tmp_path / "conf" / "experiment" / f"{name.replace(' ', '_')}.yaml").write_text(text)
    return tmp_path / "conf"


def compose(folder: Path, *overrides: str) -> Any:
    return composition.job(composition.loader(folder), overrides)


@pytest.mark.parametrize("form", SHORT)
def test_a_short_form_is_the_long_one(form: str, folder: Path) -> None:
    long, short = (compose(folder, f"experiment={name.replace(' ', '_')}") for name in ("long", form))
    assert json.dumps(short.spec.model_dump(mode="json")) == json.dumps(long.spec.model_dump(mode="json"))
    own = ("name", "hydra")
    written = [
        {key: value for key, value in OmegaConf.to_container(job.composition.config).items() if key not in own}
        for job in (long, short)
    ]
    assert written[0] == written[1]  # what `.hydra/config.yaml` holds


@pytest.mark.parametrize("form", ["braces", "globs"])
def test_each_table_is_set_by_its_own_name(form: str, folder: Path) -> None:
    spec = compose(
        folder,
        f"experiment={form}",
        "tables.C3.dim=32",
        "~tables.C1",
        "~features.C1",
        "features.C2.column=C1",
        "optimizer@tables.C3.optimizer=adam",
        "schedule@tables.C3.optimizer.schedule=cosine",
        "feature@features.C3=bag",
    ).spec
    assert {name: table.dim for name, table in spec.tables.items()} == {"C2": 4, "C3": 32}
    assert isinstance(spec.tables["C3"].optimizer, Adam)
    assert spec.tables["C3"].optimizer.schedule.kind == "cosine"
    assert spec.features["C2"].column == "C1"
    assert spec.features["C3"].table == "C3"  # the file of the choice says ???


def test_a_choice_of_another_kind_replaces_the_pattern_s(folder: Path) -> None:
    text = 'tables: {"C{1..3}": {dim: 8, optimizer: {kind: sgd, learning_rate: 3.0}}}\nfeatures: {"C{1..3}": {}}\n'
    (folder / "experiment" / "kinds.yaml").write_text(HEAD.replace("DENSE", "[]") + text)
    spec = compose(folder, "experiment=kinds", "optimizer@tables.C2.optimizer=adam").spec
    assert [spec.optimizer_of(name).kind for name in spec.tables] == ["sgd", "adam", "sgd"]
    assert spec.optimizer_of("C2").learning_rate == Adam().learning_rate


@pytest.mark.parametrize("form", ["braces", "globs"])
def test_a_sweep_sets_one_of_many(form: str, folder: Path) -> None:
    batch = [[f"experiment={form}", f"tables.C3.dim={dim}"] for dim in range(1, 11)]
    loader = composition.loader(folder)
    found = [composition.candidate(loader, overrides) for overrides in batch]
    assert [each.spec.tables["C3"].dim for each in found] == list(range(1, 11))
    for each in found:
        assert OmegaConf.to_container(each.composition.config.tables) == each.composition.container["tables"]


FAULTS = {
    "of all, once": ('{"C{1..3}": {dim: -8}}', '{"C{1..3}": {}}', "tables.C{1..3}.dim = -8: it must be at least 1"),
    "of some": (
        '{"C{1..5}": {dim: 8}}',
        '{"C{1..5}": {}}',
        "features.C4 = 'C4': HERE/clicks.csv has no such column",
    ),
    "unused": ('{"C{1..3}": {dim: 8}}', "{C1: {table: C1}}", "tables.C2 = unused"),
    "no table": ("{C1: {dim: 8}}", '{C1: , "C{2..3}": {}}', "features.C{2..3}.table = nothing: it must be given"),
    "no range": ('{"C{13}": {dim: 8}}', "{C1: {table: C1}}", "tables.C{13} = a pattern: braces must hold a list"),
    "no column": ('{"D*": {dim: 8}}', "{C1: {table: C1}}", "tables.D* = a pattern: no column of the data matches D*"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_a_fault_names_the_pattern_and_its_line(case: str, folder: Path) -> None:
    tables, features, says = FAULTS[case]
    text = HEAD.replace("DENSE", "[]") + f"tables: {tables}\nfeatures: {features}\n"
    (folder / "experiment" / "wrong.yaml").write_text(text)
    with pytest.raises(ConfigError) as raised:
        compose(folder, "experiment=wrong")
    fault = next(each for each in raised.value.faults if says.replace("HERE", str(Path.cwd())) in str(each))
    line = [each.partition(":")[0] for each in text.splitlines()].index(fault.path.partition(".")[0])
    assert fault.source == ("" if fault.value == "nothing" else f"conf/experiment/wrong.yaml:{line + 1}")
    if case in ("of all, once", "no table", "no range", "no column"):
        assert len(raised.value.faults) == 1


def test_data_that_is_not_there_is_the_only_fault(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"^1 fault in the config\n  data\.path = .*there is no such file"):
        compose(folder, "experiment=globs", "data.path=nothing.csv")


def test_an_app_of_hydra_may_have_patterns(folder: Path) -> None:
    config = composition.loader(folder).compose(["experiment=globs"])
    assert composition.spec_of(config) == compose(folder, "experiment=long").spec


def test_the_schema_of_editors_knows_patterns(folder: Path) -> None:
    schema = yaml_schema.schema(folders.find())
    for form in ("braces", "globs"):
        written = yaml.safe_load((folder / "experiment" / f"{form}.yaml").read_text())
        jsonschema.validate(written, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"tables": {"C{1..3}": {"dmi": 8}}}, schema)


def test_completion_knows_the_names(folder: Path) -> None:
    found = candidates("embexp run --config-dir conf experiment=braces tables.")
    assert found == ["tables.C1.", "tables.C2.", "tables.C3."]


@pytest.mark.parametrize(
    "pattern", ["C{1..26}", "{a,b}_{1..3}", "x{01..11}y", "{3..1}", "{a..e..2}", "{a,b{1..2}}", "plain", "{-2..2}"]
)
def test_braces_are_those_of_bash(pattern: str) -> None:
    told = subprocess.run(["bash", "-c", f"echo {pattern}"], capture_output=True, text=True, check=True)
    assert list(expanded(pattern)) == list(dict.fromkeys(told.stdout.split()))


@pytest.mark.parametrize("pattern", ["C{1..3", "C1..3}", "C{abc}", "C{1..99999999}", "{1..3..0}", "{a..3}"])
def test_what_is_no_pattern(pattern: str) -> None:
    with pytest.raises(BadPatternError):
        expanded(pattern)
    assert not matches(pattern, "C1")


@given(st.lists(st.from_regex(r"[A-D][0-9]{1,2}", fullmatch=True), unique=True))
def test_globs_match_in_the_order_of_the_columns(columns: list[str]) -> None:
    wanted = [each for each in columns if each.startswith("C")]
    if wanted:
        assert names("C*", columns) == wanted
    else:
        with pytest.raises(BadPatternError, match="no column"):
            names("C*", columns)


def test_settings_of_numeric_columns_may_be_a_mapping() -> None:
    container = {"data": {"dense_features": {"I{1..3}": {"transform": "log1p"}, "I2": {"missing": 0}}}}
    patterns.expand(container, list)
    assert container["data"]["dense_features"] == {
        "I1": {"transform": "log1p"},
        "I2": {"transform": "log1p", "missing": 0},
        "I3": {"transform": "log1p"},
    }


def test_the_sweeper_of_hydra_takes_the_jobs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It composes each job as a check of its own, and knows no patterns."""
    loader = composition.loader(folder)
    overrides = ["experiment=braces", "tables.C3.dim=8,16", "init@tables.C3.init=assign,constant", "~tables.C1"]
    plan = planning.plan(loader, sweep_lines(loader, [*overrides, "~features.C1"]))
    assert plan.jobs is not None
    assert len(plan.jobs) == 4
    assert {tuple(job.spec.tables) for job in plan.jobs} == {("C2", "C3")}
    swept = []

    class Sweeper:
        def __init__(self, context: Any) -> None:
            self.context = context

        def sweep(self, arguments: list[str]) -> None:
            assert "++tables.C3.dim=8,16" in arguments
            swept.append(self.context.config_loader.load_sweep_config(plan.base, ["experiment=braces", "~tables.C1"]))

    monkeypatch.setattr(Plugins, "instantiate_sweeper", lambda self, hydra_context, **rest: Sweeper(hydra_context))
    loader.multirun(plan.base, lambda config: None, plan.overrides, Callbacks(plan.base, loader.permission))
    assert len(swept) == 1
