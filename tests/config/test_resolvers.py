"""Resolvers of the user's own, and values that come from the environment."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

import embexp
from embexp.cli.commands import plan
from embexp.config import composition
from embexp.errors import ConfigError
from embexp.records.folder import code_of, named_functions, recorded_functions
from embexp.records.manifest import content_id
from embexp.runs.verification import _other_variables
from embexp.sweeps import planning

SOURCE = """
calls = []

def size(name, factor=1):
    calls.append(name)
    return {"small": 8, "large": 32}[name] * factor

def strange():
    return object()

def layers(*sizes):
    return list(sizes)
"""


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of the user's, of another name in each test, as Python imports each once."""
    name = f"own_{hashlib.sha256(str(tmp_path).encode()).hexdigest()[:8]}"
    (tmp_path / f"{name}.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    return name


def faults(*overrides: str, config_dir: str | None = None) -> dict[str, str]:
    with pytest.raises(ConfigError) as caught:
        embexp.compose(overrides, config_dir=config_dir)
    return {fault.path: f"{fault.rule}; {fault.remedy}" for fault in caught.value.faults}


def test_values_are_resolved_and_recorded_and_so_is_the_code(own: str) -> None:
    spec = embexp.compose(
        [f"resolvers={{size: '{own}:size', layers: '{own}:layers'}}", "tables.item.dim=${size:small,2}",
         "tables.user.dim=${tables.item.dim}", "model=mlp", "model.hidden=${layers:8,4}"]
    )  # fmt: skip
    assert (spec.tables["item"].dim, spec.tables["user"].dim) == (16, 16)
    recorded = json.loads(spec.model_dump_json())
    assert recorded["model"]["hidden"] == [8, 4]
    assert recorded["resolvers"] == {"size": f"{own}:size", "layers": f"{own}:layers"}
    assert named_functions(spec) == {}  # what a recorded spec runs, so that it needs no permission
    code = code_of(recorded_functions(spec), ())
    assert code is not None
    assert list(code.files) == [own]
    assert not OmegaConf.has_resolver("size")
    without = spec.model_copy(update={"resolvers": {}})
    assert content_id(spec, "0") == content_id(without, "0")


def test_files_and_sweeps_name_them_too(own: str, tmp_path: Path) -> None:
    (tmp_path / "conf" / "experiment").mkdir(parents=True)
    values = f"resolvers: {{size: '{own}:size'}}\ntrain: {{batch_size: '${{size:${{name}}}}'}}\n"
    text = f"# @package _global_\ndefaults: [clicks]\n{values}"
    (tmp_path / "conf" / "experiment" / "mine.yaml").write_text(text)
    found = planning.plan(composition.loader("conf"), ["experiment=mine", "name=small,large", "seed=1,2"])
    assert found.jobs is not None
    assert [job.spec.train.batch_size for job in found.jobs] == [8, 8, 32, 32]
    assert {job.spec.resolvers["size"] for job in found.jobs} == {f"{own}:size"}


def test_a_config_of_a_hydra_app(own: str) -> None:
    with initialize_config_module("embexp.conf", version_base="1.3"):
        cfg = compose("config", [f"+resolvers.size='{own}:size'", "seed=${size:large}"])
    assert embexp.spec_of(cfg, without=["hydra"] if "hydra" in cfg else []).seed == 32


def test_whose_code_it_is(own: str, tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "their_code.py").write_text("raise SystemExit('it was run')\ndef f(): ...\n")
    (tmp_path / "theirs" / "theirs.yaml").write_text("resolvers: {f: 'theirs.their_code:f'}\n")
    (tmp_path / "theirs" / "experiment").mkdir()
    text = "# @package _global_\ndefaults: [clicks]\nresolvers: {f: 'theirs.their_code:f'}\nseed: '${f:}'\n"
    (tmp_path / "theirs" / "experiment" / "x.yaml").write_text(text)
    found = faults("experiment=x", config_dir="theirs")
    assert "is in a config folder" in found["resolvers.f"]
    assert "allow_code" in found["resolvers.f"]
    assert "seed" in found
    found = faults("resolvers.join=os.path:join", "name=${join:a,b}")
    assert "Python's standard library" in found["resolvers.join"]
    spec = embexp.compose(["resolvers.join=posixpath:join", "name=${join:a,b}"], allow_code=["posixpath:join"])
    assert spec.name == "a/b"
    assert "Python's standard library" in faults("resolvers.join=posixpath:join", "name=${join:a,b}")["resolvers.join"]


@pytest.mark.parametrize(
    ("overrides", "path", "words"),
    [
        (["resolvers.now={own}:size"], "resolvers.now", "already has a resolver of that name"),
        (["resolvers.hydra={own}:size"], "resolvers.hydra", "choose another name, such as resolvers.my_hydra"),
        (["+resolvers={{oc.env: '{own}:size'}}"], "resolvers.oc", ""),
        (["resolvers.x={own}:sise"], "resolvers.x", "did you mean {own}:size?"),
        (["resolvers.x=nothing_here:size"], "resolvers.x", "there is no module 'nothing_here'"),
        (["resolvers.x={own}.size"], "resolvers.x", "it must look like package.module:function"),
        (["resolvers.x={own}:size", "seed=${{x:none}}"], "seed", "the resolver x ({own}:size) raised KeyError: 'none'"),
        (["resolvers.x={own}:size", "seed=${{x:}}"], "seed", "raised TypeError"),
        (["resolvers.x={own}:strange", "seed=${{x:}}"], "seed", "returned a object"),
        (["seed=${{x:}}"], "seed", "or one that resolvers adds"),
        (["+environment.X=3"], "environment", "here a run records which environment variables its config read"),
    ],
)
def test_faults(overrides: list[str], path: str, words: str, own: str) -> None:
    found = faults(*(each.format(own=own) for each in overrides), "train.batch_size=-1")
    assert "train.batch_size" in found
    matching = {key: text for key, text in found.items() if key.startswith(path)}
    assert any(words.format(own=own) in text for text in matching.values()), found


def test_each_value_is_asked_for_once_in_a_config(own: str) -> None:
    embexp.compose([f"resolvers.size={own}:size", "seed=${size:small}", "data.seed=${size:small}"])
    module = __import__(own)
    assert len(module.calls) <= 2  # of the values, and of the columns of the data


class TestEnvironment:
    """`${oc.env:NAME}`: the run says so, and `verify` names what is another value by now."""

    def test_what_is_recorded(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        monkeypatch.setenv("EXPERIMENT", "a name")
        monkeypatch.setenv("MY_PASSWORD", "sesame")
        monkeypatch.delenv("SEED", raising=False)
        words = [
            "name=${oc.env:EXPERIMENT}",
            "data.seed='${oc.decode:${oc.env:SEED,7}}'",
            "output.cache=${oc.env:MY_PASSWORD}",
        ]
        spec = embexp.compose(words)
        assert json.loads(spec.model_dump_json())["environment"] == {
            "EXPERIMENT": {"value": hashlib.sha256(b"a name").hexdigest(), "keys": ["name"]},
            "MY_PASSWORD": {"value": "secret", "keys": ["output.cache"]},
            "SEED": {"value": None, "keys": ["data.seed"]},
        }
        assert content_id(spec, "0") == content_id(spec.model_copy(update={"environment": {}}), "0")
        assert plan.main(words[:2]) == 0
        out = capsys.readouterr().out
        assert "the environment variable EXPERIMENT decides name" in out
        assert "the environment variable SEED is not set, and would decide data.seed" in out
        assert embexp.compose(["seed=3"]).model_dump(mode="json").get("environment") is None

    def test_jobs_that_are_copies_have_it_too(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("EXPERIMENT", "a")
        found = planning.plan(composition.loader(), ["name=${oc.env:EXPERIMENT}", "seed=1,2,3"])
        assert found.jobs is not None
        assert {tuple(job.spec.environment) for job in found.jobs} == {("EXPERIMENT",)}

    def test_what_verify_says(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("EXPERIMENT", "a")
        spec = embexp.compose(["name=${oc.env:EXPERIMENT}", "data.seed='${oc.decode:${oc.env:SEED,7}}'"])
        assert list(_other_variables(spec.environment)) == []
        monkeypatch.setenv("EXPERIMENT", "b")
        monkeypatch.setenv("SEED", "8")
        notes = {each.name: each.note for each in _other_variables(spec.environment)}
        assert notes == {
            "EXPERIMENT": "it had another value when the config was composed; this run has the recorded name",
            "SEED": "it was not set when the config was composed; this run has the recorded data.seed",
        }
        monkeypatch.delenv("EXPERIMENT")
        assert "and is not set now" in next(iter(_other_variables(spec.environment))).note
