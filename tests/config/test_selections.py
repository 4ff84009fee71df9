"""Which choices can't be made, and why: found by composing, told in embexp's words."""

from __future__ import annotations

from pathlib import Path

import pytest

from embexp.config import composition, folders
from embexp.config.composition import compose_config
from embexp.errors import ConfigError


def told(*overrides: str, config_dir: Path | None = None) -> dict[str, str]:
    """Rule and remedy by path."""
    faults = compose_config(composition.loader(config_dir), overrides).faults
    return {fault.path: f"{fault.rule}|{fault.remedy}" for fault in faults}


INITS = list(folders.find().choices["init"])
OPTIMIZERS = list(folders.find().choices["optimizer"])
CHOSEN = "it is already chosen|write {}=… without the +"
NOTHING = "nothing in this config is chosen there|did you mean {}?"
CASES = {
    "added where something is chosen": (["+optimizer=sgd"], {"optimizer": CHOSEN.format("optimizer")}),
    "added twice": (
        ["+table@tables.mine=embedding", "model=mlp", "+table@tables.mine=bias"],
        {"table@tables.mine": CHOSEN.format("table@tables.mine")},
    ),
    "the same, added twice": (
        ["+table@tables.mine=embedding", "+table@tables.mine=embedding"],
        {"table@tables.mine": CHOSEN.format("table@tables.mine")},
    ),
    "removed where nothing is chosen": (
        ["~freeze@tables.itm.freeze"],
        {"freeze@tables.itm.freeze": NOTHING.format("freeze@tables.item.freeze or freeze@tables.user.freeze")},
    ),
    "removed, but something else is chosen": (
        ["~optimizer=ftrl"],
        {"optimizer": "the choice there is adagrad|remove it, or choose another: optimizer=…"},
    ),
    "each for its own reason": (
        ["+study=none", "model=mlp", "init=asign", "freeze@tables.itm.freeze=none", "optimizer=null"],
        {
            "study": CHOSEN.format("study"),
            "init": f"group init has {', '.join(INITS[:-1])} or {INITS[-1]}|did you mean assign?",
            "freeze@tables.itm.freeze": NOTHING.format("freeze@tables.item.freeze or freeze@tables.user.freeze"),
            "optimizer": f"group optimizer has {', '.join(OPTIMIZERS[:-1])} or {OPTIMIZERS[-1]}|choose one of them",
        },
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_choice_that_cannot_be_made(case: str) -> None:
    overrides, expected = CASES[case]
    assert told(*overrides) == expected


def test_a_choice_that_needs_a_later_one_is_made_although_another_cannot_be() -> None:
    composed = compose_config(
        composition.loader(),
        [
            "schedule@tables.mine.optimizer.schedule=cosine",
            "optimizer@tables.mine.optimizer=adam",
            "init@tables.itm.init=assign",
            "+table@tables.mine=embedding",
        ],
    )
    assert [fault.path for fault in composed.faults] == ["init@tables.itm.init"]
    assert composed.container["tables"]["mine"]["optimizer"]["schedule"]["kind"] == "cosine"
    assert composed.config.hydra.overrides.task == [
        "schedule@tables.mine.optimizer.schedule=cosine",
        "optimizer@tables.mine.optimizer=adam",
        "+table@tables.mine=embedding",
    ]


def test_a_base_that_needs_a_choice(tmp_path: Path) -> None:
    """Nothing composes without `experiment`, so nothing is to be learnt from leaving it out."""
    (tmp_path / "config.yaml").write_text("defaults:\n  - experiment: ???\n  - model: mlp\n  - _self_\nname: mine\n")
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "good.yaml").write_text("# @package _global_\ntask: binary\n")
    (tmp_path / "experiment" / "bad.yaml").write_text("# @package _global_\ntask: [\n")
    assert told("model=dlrm", "experiment=good", "modle@x=mlp", "~model", config_dir=tmp_path).keys() == {"modle@x"}
    assert told("init@tables.item.init=assign", "experiment=good", config_dir=tmp_path).keys() == {
        "init@tables.item.init"
    }
    with pytest.raises(ConfigError) as caught:
        told("model=mlp", "experiment=bad", config_dir=tmp_path)
    by_path = {fault.path: fault for fault in caught.value.faults}
    assert by_path["experiment"].source == f"{tmp_path}/experiment/bad.yaml:3"
    assert set(by_path) == {"experiment", ""}


def test_a_broken_base_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("defaults:\n  - optimizer: adm\n")
    with pytest.raises(ConfigError) as caught:
        told("model=mlp", "init=assign", config_dir=tmp_path)
    [fault] = caught.value.faults
    assert (fault.path, fault.value, fault.remedy) == ("optimizer", "'adm'", "did you mean adam?")
    assert fault.source == f"{tmp_path}/config.yaml"


@pytest.mark.parametrize(
    "entry",
    ["sdg", "/optimizer/sdg", "/optimizer@other: sdg", "optional /init: none\n  - /optimizer@x: [sgd, sdg]", "base"],
)
def test_the_file_that_names_a_missing_one_is_found(entry: str, tmp_path: Path) -> None:
    folder = tmp_path / "optimizer"
    folder.mkdir()
    (folder / "mine.yaml").write_text(f"defaults:\n  - {entry}\nkind: sgd\n")
    (folder / "base.yaml").write_text("defaults:\n  - sdg\n")
    [fault] = compose_config(composition.loader(tmp_path), ["optimizer=mine", "model=mlp"]).faults
    assert (fault.path, fault.value, fault.remedy) == ("optimizer", "'mine'", "did you mean sgd?")
    assert fault.source == str(folder / ("base.yaml" if entry == "base" else "mine.yaml"))


def test_a_file_at_the_wrong_place_that_has_a_list_where_the_config_has_a_mapping(tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text("tables: []\n# @package _global_\nseed: 5\n")
    found = told("experiment=mine", config_dir=tmp_path)
    assert found["experiment"].endswith("|begin the file with the line: # @package _global_")
