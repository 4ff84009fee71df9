"""embexp beside a Hydra that somebody else uses in the same process, and Hydra as the judge of what embexp composes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hydra
import pytest
from hydra import version
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins
from hydra.core.utils import JobRuntime
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import OmegaConf

import embexp
from embexp.config import composition, hydra_job
from embexp.config import loader as loading
from embexp.config.composition import compose_config
from embexp.config.loader import Loader
from embexp.errors import ConfigError


@pytest.fixture(autouse=True)
def no_hydra() -> Iterator[None]:
    """Each test begins and ends with a process in which nobody has initialised Hydra."""
    GlobalHydra.instance().clear()
    yield
    GlobalHydra.instance().clear()
    HydraConfig.instance().cfg = None


@pytest.fixture(autouse=True)
def fresh(new_loader: Callable[..., Loader], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each composition has a loader of its own, as for users; other tests share one."""
    monkeypatch.setattr(composition, "loader", new_loader)


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    (tmp_path / "optimizer").mkdir()
    (tmp_path / "optimizer" / "sgd.yaml").write_text("momentum: 0.9\n")
    (tmp_path / "theirs.yaml").write_text("defaults:\n  - optimizer: sgd\n  - _self_\na: 1\njob: ${hydra:job.name}\n")
    return tmp_path


def test_a_notebook_that_has_initialised_hydra_keeps_it(theirs: Path) -> None:
    hydra.initialize_config_dir(str(theirs), job_name="notebook", version_base="1.2")
    before = GlobalHydra.instance().hydra
    assert embexp.compose(["optimizer=sgd", "model=mlp"]).optimizer.kind == "sgd"
    with pytest.raises(ConfigError):
        embexp.compose(["optimizer=nope", "init@tables.itm.init=assign"])
    assert GlobalHydra.instance().hydra is before
    assert (str(version.getbase()), JobRuntime.instance().get("name")) == ("1.2", "notebook")
    assert not HydraConfig.initialized()
    assert hydra.compose("theirs").optimizer == {"momentum": 0.9}


def test_a_notebook_can_initialise_hydra_after_embexp(theirs: Path) -> None:
    embexp.compose()
    assert not GlobalHydra.instance().is_initialized()
    with hydra.initialize_config_dir(str(theirs), version_base=None):
        assert hydra.compose("theirs").a == 1
        assert embexp.compose(["seed=3"]).seed == 3
        assert hydra.compose("theirs").a == 1
    assert embexp.compose(["seed=4"]).seed == 4


def test_a_loader_made_before_works_within_another_hydra(theirs: Path) -> None:
    loader = composition.loader()
    with hydra.initialize_config_dir(str(theirs), version_base="1.3"):
        assert composition.job(loader, ["optimizer=adam"], look_at_data=False).spec.optimizer.kind == "adam"


def test_a_job_of_hydras_own_keeps_its_config(theirs: Path) -> None:
    with hydra.initialize_config_dir(str(theirs), job_name="outer", version_base="1.3"):
        config = hydra.compose("theirs", return_hydra_config=True)
        HydraConfig.instance().set_config(config)
        composed = compose_config(
            composition.loader(), ["name=${hydra:job.name}", "hydra.run.dir=runs/${hydra:job.name}"]
        )
        assert composed.container["name"] == "embexp"
        assert hydra_job.run_directory(composed.config) == Path("runs/embexp")
        assert config.job == "outer"


def test_the_users_folder_is_searched_by_nobody_else(theirs: Path, tmp_path: Path) -> None:
    embexp.compose(config_dir=theirs)
    searched: list[str] = []

    class Watching(SearchPathPlugin):
        def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
            searched.extend(each.path for each in search_path.get_path())

    Plugins.instance().register(Watching)
    try:
        with hydra.initialize_config_dir("/their/folder", version_base="1.3"):
            pass
    finally:
        Plugins.instance().plugin_type_to_subclass_list[SearchPathPlugin].remove(Watching)
    assert searched == ["pkg://hydra.conf", "/their/folder"]


AS_HYDRA = {
    "values": ["seed=3", "train.epochs=0.5", "name='a b'", "train.steps=null"],
    "a list": ["model.top=[5,6]", "output.compare=[a,b]"],
    "a list for another": ["model.top=[]", "model.top=[1,2,3]"],
    "a mapping, merged": ["train={steps: 3, early_stopping: {patience: 2}}"],
    "a mapping, added": ["+train={steps: 3}"],
    "added": ["model=keras", "+model.args.width=3", "+model.args.deep={a: [1, {b: 2}]}", "model.args.width=4"],
    "added by force": ["++seed=3", "++train.early_stopping.patience=2", "++model.args.of.mine=1"],
    "removed": ["~tables.user", "~train.early_stopping.restore_best", "~seed=0"],
    "removed and set again": ["~model.dropout", "+model.dropout=0.25"],
    "interpolations": ["features.item.column=${features.user.column}", "tables.item.dim=${tables.user.dim}"],
    "an interpolation, overridden": ["experiment=ratings", "tables.item.dim=4"],
    "missing": ["seed=???"],
    "of what is chosen": ["optimizer=adam", "optimizer.learning_rate=1e-3", "schedule@optimizer.schedule=cosine"],
    "of a table": ["optimizer@tables.item.optimizer=sgd", "tables.item.optimizer.learning_rate=1"],
    "functions": ["name=str(5)", "model.top=sort([3,1,2])", "seed=int(3.5)"],
    "of hydra": ["hydra.run.dir=here", "+hydra.job.env_set.A=b", "hydra/sweeper=basic", "seed=1"],
}


@pytest.mark.parametrize("case", AS_HYDRA)
def test_overrides_do_what_they_do_in_hydra(case: str) -> None:
    loader, overrides = composition.loader(), AS_HYDRA[case]
    ours = compose_config(loader, overrides).config
    with hydra.initialize_config_dir(str(loader.folders.shipped), job_name="embexp", version_base="1.3"):
        expected = hydra.compose("config", overrides, return_hydra_config=True)
    assert OmegaConf.to_container(ours) == OmegaConf.to_container(expected)


def test_a_loader_composes_the_same_choices_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What it gives is a copy of its own each time, so values of one job do not reach the next; in any folder."""
    monkeypatch.setattr(loading, "_SHIPPED", {})
    loader, calls = composition.loader(), []
    compose_files = loader._loader.load_configuration

    def counted(*arguments: Any, **keywords: Any) -> Any:
        calls.append(arguments)
        return compose_files(*arguments, **keywords)

    monkeypatch.setattr(loader._loader, "load_configuration", counted)
    for overrides in (["seed=3", "+model.args.x=1", "model=keras"], ["~tables.user", "model=keras"], ["model=keras"]):
        shared, alone = compose_config(loader, overrides), compose_config(composition.loader(), overrides)
        assert OmegaConf.to_container(shared.config) == OmegaConf.to_container(alone.config)
        assert shared.container == alone.container
        assert OmegaConf.is_struct(shared.config) == OmegaConf.is_struct(alone.config)
        assert OmegaConf.is_readonly(shared.config.hydra) == OmegaConf.is_readonly(alone.config.hydra)
    monkeypatch.chdir(tmp_path)
    assert compose_config(loader, ["model=keras"]).config.hydra.runtime.cwd == str(tmp_path)
    assert len(calls) == 1


@pytest.mark.parametrize(("first", "second"), [("clicks", "text_classification"), ("text_classification", "ratings")])
def test_a_choice_without_a_place_is_tried_again_only_where_there_is_one(
    monkeypatch: pytest.MonkeyPatch, first: str, second: str
) -> None:
    """Composing with it and without it took twice as long in each job of a sweep."""
    monkeypatch.setattr(loading, "_SHIPPED", {})
    loader, tried = composition.loader(), []
    compose_files = loader._loader.load_configuration

    def counted(name: str, overrides: list[str], *arguments: Any, **keywords: Any) -> Any:
        tried.append(overrides)
        return compose_files(name, overrides, *arguments, **keywords)

    monkeypatch.setattr(loader._loader, "load_configuration", counted)
    experiments = [first, "ratings", "text_classification", "clicks"]
    faults = [
        composition.check(compose_config(loader, [f"experiment={name}", "vectors=random"]))[1] for name in experiments
    ]
    assert [bool(found) for found in faults] == [name != "text_classification" for name in experiments]
    assert all("vectors = 'random'" in str(found[0]) for found in faults if found)
    with_it = [overrides[0] for overrides in tried if "vectors=random" in overrides]
    assert with_it == [f"experiment={first}", f"experiment={second}"]
